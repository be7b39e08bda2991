"""What agents' hooks cost: whole processes, with a warm daemon, against the interpreter's start.

    python bench/bench_hooks.py [--smoke] [--rounds N]

`indexerd expand` with one reference, with none, and `complete`, as the installed program runs
them, each in turn with a bare `python -c pass`, so that noise hits all. The target: `expand` costs
at most 3 times the interpreter's own start (medians).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from indexerd.client import Client  # noqa: E402 - the path comes first
from indexerd.errors import IndexerdError  # noqa: E402 - the path comes first

LIMIT = 3.0
PROGRAM = "import sys; from indexerd.__main__ import main; sys.exit(main())"  # as the script has it
SESSION = "0199c3f2-7a10-7bbb-8000-0123456789ab"


def home(root: Path) -> dict[str, str]:
    """A pi session, and the environment of its user."""
    folder = root / "home/.pi/agent/sessions/--w--"
    folder.mkdir(parents=True)
    at = {"timestamp": "2026-11-21T10:00:00.000Z"}
    said = [{"type": "text", "text": "Mend the moving average, please."}]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    rows: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": SESSION, "cwd": "/w"} | at,
        {"type": "message", "id": "a", "parentId": None}
        | at
        | {"message": {"role": "user", "content": said}},
        {"type": "message", "id": "b", "parentId": "a"}
        | at
        | {"message": answer | {"stopReason": "stop"}},
        {"type": "session_info", "id": "c", "parentId": "b", "name": "Moving average"} | at,
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"2026-11-21T10-00-00-000Z_{SESSION}.jsonl").write_text(text)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "home"),
        "INDEXERD_STATE_DIR": str(root / "state"),
        "INDEXERD_DATA_DIR": str(root / "data"),
        "INDEXERD_SOCKET": str(root / "s.sock"),
        "INDEXERD_MODEL_KEYS": '["local/extractive"]',
        "PYTHONPATH": str(ROOT),
    }


def milliseconds(env: dict[str, str], *argv: str) -> float:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *argv], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    spent = (time.perf_counter() - started) * 1000
    if "--json" in argv:
        json.loads(done.stdout)
    return spent


def wait(socket: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            with Client(socket, 5) as client:
                found = client.call("expand", {"text": "@@moving-average"})
        except IndexerdError:
            time.sleep(0.05)
            continue
        if found["message"]:
            return
        time.sleep(0.05)
    raise SystemExit("the daemon did not get ready")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    rounds = 3 if asked.smoke else asked.rounds
    run = ("-c", PROGRAM)
    cases = {
        "python -c pass": ("-c", "pass"),
        "expand @@name": (*run, "expand", "as in @@moving-average, please"),
        "expand, no reference": (*run, "expand", "nothing to see here"),
        "complete mov": (*run, "complete", "mov"),
    }
    with tempfile.TemporaryDirectory() as folder:
        env = home(Path(folder))
        daemon = subprocess.Popen([sys.executable, *run, "run"], env=env, stderr=subprocess.DEVNULL)
        try:
            wait(env["INDEXERD_SOCKET"])
            times: dict[str, list[float]] = {name: [] for name in cases}
            for _ in range(rounds):
                for name, argv in cases.items():
                    times[name].append(milliseconds(env, *argv))
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(10)
    medians = {name: statistics.median(one) for name, one in times.items()}
    base = medians["python -c pass"]
    for name, median in medians.items():
        print(f"{name:24} {median:7.1f} ms   {median / base:5.2f} x")
    ratio = medians["expand @@name"] / base
    print(f"expand: {ratio:.2f} times the interpreter's start (limit {LIMIT})")
    return int(not asked.smoke and ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
