"""From the end of a turn to its meta file, with the built-in model, less the quiet time.

    python bench/bench_turn.py [--turns 18] [--quiet 0.3] [--smoke]

The real daemon runs in a home of its own. A session is written as pi writes it, a line a write,
and every turn is indexed. The clock starts when the answer's last byte is written, and stops when
a meta file that names this answer can be read: seen, waited out, read, described, fsynced,
renamed. Once for a session that has just begun, and once for one of 400 turns, whose transcript
fills the cap of 51,200 bytes. The quiet time is taken off. The limit, after each turn: the file is
read and parsed, what was said is joined from its last entry back to the cap, and as many bytes as
the meta file has are written durably; nothing is waited for, and nothing described.

Judged by the median, as the slowest turn tells more of what else the machine did. The first turn,
which also finds a new file, stands apart. What is checked: that each turn's meta file came, has
the session's own count of messages, and says something that was said there.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench_write import durably
from home import Home, append, iso, line, message, wait
from measure import Bench, Target, ratio

TARGET = 300  # ms beyond the quiet time
CAP = 51_200  # bytes of a transcript
PLAIN = "parse, join, write durably"
LONG = 400  # turns of the long session before the measured ones


class Session:
    """A pi session file that grows by whole turns."""

    def __init__(self, home: Home) -> None:
        self.id = str(uuid.uuid4())
        self.messages = 0
        self.path = home.sessions / f"--p--/2026-11-21T10-00-00-000Z_{self.id}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._last: str | None = None
        head = {"type": "session", "version": 3, "id": self.id, "timestamp": iso(time.time())}
        self.path.write_bytes(line(head | {"cwd": "/home/u/project"}))

    def turns(self, count: int) -> None:
        """Append turns that nobody waits for, in one write."""
        append(str(self.path), b"".join(one for _ in range(count) for one in self._turn()))

    def turn(self) -> str | None:
        """Append one turn, a line a write; the id of its answer."""
        for one in self._turn():
            append(str(self.path), one)
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


def measure(
    bench: Bench, home: Home, quiet: float, before: int, turns: int
) -> list[tuple[float, float]]:
    """Milliseconds of each turn, the first one's first: beyond the quiet time, and the plain way's.

    The plain way comes right after, with the same file and as many bytes to write.
    """
    session = Session(home)
    session.turns(before)
    meta = home.root / f".pi/agent/sessions-meta/{session.id}.meta.json"
    took = []
    for _ in range(turns + 1):
        leaf = session.turn()
        began = time.perf_counter()
        wait(lambda leaf=leaf: covers(meta, leaf), "a meta file")  # type: ignore[misc]
        ours = time.perf_counter() - began - quiet
        data = meta.read_bytes()
        began = time.perf_counter()
        count, text = plainly(session.path, data, home.root)
        took.append((1000 * ours, 1000 * (time.perf_counter() - began)))
        told = json.loads(data)
        bench.check("the meta file counts all messages", ok=told["messageCount"] == count)
        bench.check("all were said", ok=count == session.messages)
        bench.check("and joined to the end", ok=f"lock {count // 2} was" in text)
        says = told["name"] and told["description"] and "spring" in told["summary"]
        bench.check("the meta file says what was said", ok=bool(says))
    return took


def plainly(path: Path, data: bytes, into: Path) -> tuple[int, str]:
    """How many messages a session has, and the end of what was said; `data` is written durably."""
    entries = {}
    for row in path.read_bytes().splitlines():
        entry = json.loads(row)
        entries[entry["id"]] = entry
    said: list[str] = []
    while entry.get("message"):
        message = entry["message"]
        said.append(f"{message['role'].capitalize()}: {message['content'][0]['text']}")
        entry = entries.get(entry["parentId"], {})
    joined = "\n\n".join(reversed(said)).encode()[-CAP:]
    durably(into / "plain", data)
    return len(said), joined.decode(errors="replace")


def covers(path: Path, leaf: str | None) -> bool:
    """Whether the meta file is there and names this answer."""
    try:
        return bool(json.loads(path.read_bytes())["lastIndexedLeafId"] == leaf)
    except FileNotFoundError:
        return False


def main() -> int:
    bench = Bench("turn", "From a turn's end to its meta file")
    bench.options.add_argument("--turns", type=int, default=18)
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
            took = measure(bench, home, quiet, before, turns)
            ours, plain = ([one[which] for one in took] for which in (0, 1))
            told = {"limit": PLAIN, "note": f"quiet time of {1000 * quiet:g} ms taken off"}
            bench.add(f"{name}, its first turn here", ours[0], "ms", floor=plain[0], **told)
            told |= {"note": ""}
            del ours[0], plain[0]
            middle = {"floor": median(plain), "ratio": ratio(ours, plain), "target": Target(TARGET)}
            bench.add(f"{name}, p50", median(ours), "ms", **told, **middle)
            bench.add(f"{name}, longest", max(ours), "ms", floor=max(plain), **told)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
