"""A digest and three compactions of a session of 2.4 MB, by the daemon and its built-in model.

    python bench/bench_digest.py [--smoke] [--rounds N] [--file SESSION.jsonl]

A pi session of a thousand entries is written (or the one that is named is copied), as many times
as there are rounds, since a digest leaves nothing to do for the next one. The daemon runs in a
process of its own; the time is that of a request over the socket, from the line out to the line in.
The promise is a second each. With --smoke one small round, to see that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from indexerd.client import Client  # noqa: E402 - the path comes first

PROMISE_SECONDS = 1.0
WORDS = ["parser", "cache", "login", "token", "index", "search", "export", "queue", "metrics"]
READY_SECONDS = 30.0


def session(made: random.Random, session_id: str, entries: int) -> bytes:
    """A pi session with requests, answers that call tools, and results of some length."""
    head = {"type": "session", "version": 3, "id": session_id, "cwd": "/w"}
    lines: list[dict[str, Any]] = [head | {"timestamp": "2026-01-01T00:00:00.000Z"}]
    parent = None
    for n in range(entries):
        role = ("user", "assistant", "toolResult", "assistant")[n % 4]
        said = " ".join(made.choice(WORDS) for _ in range(30 if role != "toolResult" else 1150))
        text = f"We decided to keep the {made.choice(WORDS)} in step {n}. {said}."
        message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
        if n % 4 == 1:
            call = {"type": "toolCall", "id": f"c{n}", "name": "edit"}
            message["content"].append(call | {"arguments": {"path": f"/w/{made.choice(WORDS)}.py"}})
        if role == "toolResult":
            message |= {"toolCallId": f"c{n - 1}", "toolName": "edit"}
        if role == "assistant":
            message["stopReason"] = "toolUse" if n % 4 == 1 else "stop"
        stamp = f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.000Z"
        entry = {"type": "message", "id": f"{n:08x}", "parentId": parent, "timestamp": stamp}
        lines.append(entry | {"message": message})
        parent = f"{n:08x}"
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()


def copied(file: Path, session_id: str) -> bytes:
    """A session under another id."""
    head, _, rest = file.read_bytes().partition(b"\n")
    return json.dumps(json.loads(head) | {"id": session_id}).encode() + b"\n" + rest


def start(home: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A daemon that watches nothing but our sessions."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PI_CODING_AGENT_DIR": str(home / "pi")}
    env |= {f"XDG_{name}_HOME": str(home / name) for name in ("CONFIG", "STATE", "DATA")}
    env |= {"INDEXERD_SOCKET": str(home / "s"), "INDEXERD_DIGEST__TRIGGER_THRESHOLD": "100000"}
    command = [sys.executable, "-m", "indexerd", "run"]
    daemon = subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.DEVNULL)
    return daemon, home / "s"


def wait(sock: Path, count: int) -> list[str]:
    """The sessions' ids, once all of them are known and named."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        try:
            with Client(sock) as client:
                rows = client.call("list", {"limit": 500})["sessions"]
        except Exception:  # noqa: BLE001 - it is not there yet
            rows = []
        if len(rows) >= count and all(row["indexed"] for row in rows):
            return [row["sessionId"] for row in rows]
        time.sleep(0.05)
    raise SystemExit("the daemon did not get ready")


def measure(sock: Path, ids: list[str]) -> dict[str, list[float]]:
    """Seconds of each request."""
    found: dict[str, list[float]] = {}
    asks = [
        ("digest", {}),
        *(("compact", {"strategy": one}) for one in ("pi", "codex", "opencode")),
    ]
    for session_id in ids:
        for method, more in asks:
            with Client(sock, timeout=60) as client:
                started = time.perf_counter()
                client.call(method, {"ref": session_id, **more})
                took = time.perf_counter() - started
            found.setdefault(" ".join([method, *more.values()]), []).append(took)
    return found


def main() -> int:
    """Measure, print, and say by the exit code whether the promise is kept."""
    wanted = argparse.ArgumentParser(description=__doc__)
    wanted.add_argument("--smoke", action="store_true")
    wanted.add_argument("--rounds", type=int, default=5)
    wanted.add_argument("--file", type=Path)
    told = wanted.parse_args()
    rounds, entries = (1, 120) if told.smoke else (told.rounds, 1000)
    made = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="indexerd-bench-") as folder:
        home = Path(folder)
        where = home / "pi" / "sessions" / "--w--"
        where.mkdir(parents=True)
        size = 0
        for n in range(rounds):
            key = str(uuid.UUID(int=made.getrandbits(128)))
            data = copied(told.file, key) if told.file else session(made, key, entries)
            size = len(data)
            (where / f"2026-01-01T00-00-0{n % 10}-000Z_{key}.jsonl").write_bytes(data)
        daemon, sock = start(home)
        try:
            found = measure(sock, wait(sock, rounds))
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=30)
    print(f"{rounds} sessions of {size / 1e6:.1f} MB")
    for name, seconds in found.items():
        print(f"{name:18} median {sorted(seconds)[len(seconds) // 2] * 1000:6.0f} ms", end="")
        print(f"   longest {max(seconds) * 1000:6.0f} ms")
    return 0 if max(map(max, found.values())) <= PROMISE_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
