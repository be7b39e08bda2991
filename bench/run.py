"""Run the benchmarks, and print one table.

    python bench/run.py [--smoke] [--only NAME ...] [--write]

`--write` writes the table to docs/PERFORMANCE.md; `--smoke` only checks, in some seconds, that all
works. The exit status is 1 if something failed or an answer was wrong, not for a missed target.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

import cold
import commands
import live
import lookups
import memory
import scan
from measure import Bench

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/PERFORMANCE.md"
BEGIN, END = "<!-- table: written by `make bench-write` -->", "<!-- end of the table -->"
PARTS = {
    "lookups": lookups.run,
    "live": live.run,
    "cold": cold.run,
    "scan": scan.run,
    "restart": memory.restart,
    "long": memory.long,
    "commands": commands.run,
}


def write(bench: Bench) -> None:
    """Write the table to the document, with the facts that its figures depend on."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text() if info.exists() else "")
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    about = (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} processors"
        f" ({model[1] if model else platform.machine()}), {gigabytes:.0f} GiB, {platform.system()}"
        f" {platform.release().partition('-')[0]}, Python {platform.python_version()}."
    )
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{about}\n\n{bench.table()}\n{END}{after}")


def main() -> int:
    options = argparse.ArgumentParser(description="Run the benchmarks, and print one table.")
    options.add_argument("--smoke", action="store_true", help="only check that they work")
    names = list(PARTS)
    options.add_argument("--only", nargs="+", choices=names, default=names, help="run only these")
    options.add_argument("--write", action="store_true", help="write the table to the document")
    asked = options.parse_args()
    if asked.write and (asked.smoke or asked.only != names):
        options.error("--write is for a whole run")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    bench, failed, began = Bench(smoke=asked.smoke), [], time.monotonic()
    for name in asked.only:
        try:
            PARTS[name](bench)
        except Exception:  # noqa: BLE001 - the other parts are still measured
            traceback.print_exc()
            failed.append(name)
    print(f"\n{bench.table()}\n\n{time.monotonic() - began:.0f} s")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    elif asked.write:
        write(bench)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
