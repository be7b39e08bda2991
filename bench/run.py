"""All benchmarks, one after the other, and what they found as one table.

    python bench/run.py [--smoke] [--only NAME ...] [--write]

This is `make bench`. Each script runs in a process of its own and hands over its figures as JSON;
the table marks which targets were met. `--write` stores the figures as `bench/results.json` and
makes `docs/PERFORMANCE.md` of them, which a test compares. The exit status is 1 only where a
benchmark is broken: it did not run, or what it measured was not right.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]  # the first is not there by itself where paths are kept safe

from report import document, table  # noqa: E402 - the path comes first

RESULTS = HERE / "results.json"
DOCUMENT = ROOT / "docs/PERFORMANCE.md"
SECONDS = 1200  # after which a script hangs, even on a machine of a fifth of the speed


def machine() -> dict[str, Any]:
    """What these figures were measured on: no names, only what they depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [
        one.partition(":")[2].strip()
        for one in (cpuinfo.read_text().splitlines() if cpuinfo.exists() else [])
        if one.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processors": os.cpu_count(),
        "model": models[0] if models else platform.machine(),
        "memory_gib": round(memory),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "day": datetime.now(tz=UTC).strftime("%Y-%m-%d"),
    }


def run(script: Path, *, smoke: bool) -> dict[str, Any]:
    """What one script found; a script that did not come to its end is broken."""
    with tempfile.TemporaryDirectory(prefix="indexerd-bench-") as place:
        into = Path(place) / "figures.json"
        argv = [sys.executable, str(script), "--json", str(into), *(["--smoke"] if smoke else [])]
        env = {name: one for name, one in os.environ.items() if name != "PYTHONSAFEPATH"}
        began = time.monotonic()
        process = subprocess.Popen(argv, env=env)  # a script finds what lies beside it
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)  # it was told, too, and is at it
            raise
        finally:
            end(process)
        found: dict[str, Any] = {"name": script.stem.removeprefix("bench_"), "figures": []}
        if into.exists():
            found |= json.loads(into.read_text())
        elif code == 0:
            found["skipped"] = True  # it said why
        if code and not found.get("broken"):
            found["broken"] = [f"it ended with {code}"]
        return found | {"seconds": round(time.monotonic() - began, 1)}


def end(process: subprocess.Popen[bytes]) -> None:
    """Have a script end, if it has not: it ends what it has started, and removes what it made."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def store(results: dict[str, Any], *, whole: bool) -> None:
    """Keep the figures, and make the document of them; what did not run, or broke, stays as it was.

    Of a `whole` run nothing is kept of scripts that are no more.
    """
    held = json.loads(RESULTS.read_text())["benches"] if RESULTS.exists() else []
    kept = {one["name"]: one for one in held}
    found = {one["name"]: one for one in results["benches"]}
    good = {name: one for name, one in found.items() if one["figures"] and not one.get("broken")}
    for name in found.keys() - good.keys():
        print(f"{name}: its figures stay as they were", file=sys.stderr)
    names = found if whole else kept | found
    told = [one for name in sorted(names) if (one := good.get(name) or kept.get(name))]
    results = results | {"benches": told}
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    DOCUMENT.write_text(document(results, DOCUMENT.read_text()))


def main() -> int:
    """Run them, print the table, and store it where that is wished."""
    options = argparse.ArgumentParser(description="all benchmarks, as one table")
    options.add_argument("--smoke", action="store_true", help="see only whether they run")
    options.add_argument("--only", nargs="+", metavar="NAME", help="as in bench_NAME.py")
    options.add_argument("--write", action="store_true", help="make docs/PERFORMANCE.md anew")
    asked = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and not without the end of a script
    scripts = sorted(HERE.glob("bench_*.py"))
    if asked.only:
        scripts = [HERE / f"bench_{name}.py" for name in asked.only]
    found = []
    for script in scripts:
        print(f"\n== {script.stem}", flush=True)
        found.append(run(script, smoke=asked.smoke))
    results = {"machine": machine(), "benches": found}
    print("\n" + table(results))
    if asked.write and not asked.smoke:
        store(results, whole=not asked.only)
    broken = [f"{one['name']}: {what}" for one in found for what in one.get("broken", ())]
    for one in broken:
        print(f"BROKEN {one}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
