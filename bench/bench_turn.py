"""From the end of a turn to its meta file, with the built-in model, less the quiet time.

    python bench/bench_turn.py [--turns 20] [--quiet 0.3] [--smoke]

The real daemon runs in a home of its own. A session is written as pi writes it, a line a write,
and every turn is indexed. The clock starts when the answer's last byte is written, and stops when
a meta file that names this answer can be read: seen, waited out, read, described, fsynced,
renamed. Once for a session that has just begun, and once for one of 400 turns, whose transcript
fills the cap of 51,200 bytes. The limit is the quiet time, which is taken off.

Judged by the median, as the slowest turn tells more of what else the machine did. The first turn,
which also finds a new file, stands apart. What is checked: that each turn's meta file came, and
has the session's own count of messages.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from home import Home, append, iso, line, message, wait
from measure import Bench, Target

TARGET = 300  # ms beyond the quiet time
LONG = 400  # turns of the long session before the measured ones


class Session:
    """A pi session file that grows by whole turns."""

    def __init__(self, home: Home) -> None:
        self.id = str(uuid.uuid4())
        self.messages = 0
        self._path = home.sessions / f"--p--/2026-11-21T10-00-00-000Z_{self.id}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._last: str | None = None
        head = {"type": "session", "version": 3, "id": self.id, "timestamp": iso(time.time())}
        self._path.write_bytes(line(head | {"cwd": "/home/u/project"}))

    def turns(self, count: int) -> None:
        """Append turns that nobody waits for, in one write."""
        append(str(self._path), b"".join(one for _ in range(count) for one in self._turn()))

    def turn(self) -> str | None:
        """Append one turn, a line a write; the id of its answer."""
        for one in self._turn():
            append(str(self._path), one)
        return self._last

    def _turn(self) -> Iterator[bytes]:
        n = self.messages // 2 + 1
        asked = f"Please mend the lock of cellar door {n}: it does not turn in src/door_{n % 9}.py."
        answered = (
            f"Done. The spring of lock {n} was rusty; we decided to oil it before force. " * 3
        )
        for role, text in (("user", asked), ("assistant", answered)):
            entry_id = uuid.uuid4().hex[:8]
            yield message(entry_id, self._last, role, text, time.time())
            self._last = entry_id
            self.messages += 1


def measure(bench: Bench, home: Home, quiet: float, before: int, turns: int) -> list[float]:
    """Milliseconds beyond the quiet time of each turn, the first one's first."""
    session = Session(home)
    session.turns(before)
    meta = home.root / f".pi/agent/sessions-meta/{session.id}.meta.json"
    took = []
    for _ in range(turns + 1):
        leaf = session.turn()
        began = time.perf_counter()
        wait(lambda leaf=leaf: covers(meta, leaf), "a meta file")  # type: ignore[misc]
        took.append(1000 * (time.perf_counter() - began - quiet))
        told = json.loads(meta.read_bytes())["messageCount"]
        bench.check("the meta file counts all messages", ok=told == session.messages)
    return took


def covers(path: Path, leaf: str | None) -> bool:
    """Whether the meta file is there and names this answer."""
    try:
        return bool(json.loads(path.read_bytes())["lastIndexedLeafId"] == leaf)
    except FileNotFoundError:
        return False


def main() -> int:
    bench = Bench("turn", "From a turn's end to its meta file")
    bench.options.add_argument("--turns", type=int, default=20)
    bench.options.add_argument("--quiet", type=float, default=0.3, help="quiet time in seconds")
    quiet = bench.asked.quiet
    turns = 3 if bench.smoke else bench.asked.turns
    more = {
        "INDEXERD_MIN_NEW_USER_MESSAGES": "1",
        "INDEXERD_INDEX__QUIET_SECONDS": str(float(quiet)),
    }
    with Home() as home, home.daemon(**more) as daemon:
        daemon.settled()
        for name, before in (("a new session", 0), (f"a session of {LONG} turns", LONG)):
            first, *rest = measure(bench, home, quiet, before, turns)
            told = {"limit": f"quiet time of {1000 * quiet:g} ms, taken off"}
            bench.add(f"{name}, its first turn here", first, "ms", **told)
            bench.add(f"{name}, p50", median(rest), "ms", target=Target(TARGET), **told)
            bench.add(f"{name}, longest", max(rest), "ms", **told)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
