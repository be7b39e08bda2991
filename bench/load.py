"""A process that appends lines to sessions, at a rate, as pi does: open, append, close.

In: a plan as JSON (the files with their last entries, how many lines, how many a second). Out: in
its place, when each append was made. All lines of one load say a word that no others say.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from home import Home, append, message

TEXT = "x" * 300


def write(place: Path) -> int:
    """Append as the plan in a file says; put down when each append was made."""
    plan = json.loads(place.read_text())
    paths, count, pause = plan["paths"], plan["count"], 1 / plan["rate"] if plan["rate"] else 0.0
    said = f"{TEXT} {plan['word']}"
    data = message("%s", "%s", "assistant", said, time.time()).decode()
    leaves = plan["leaves"]
    at: list[int] = []
    began = time.perf_counter()
    for number in range(count):
        path = paths[number % len(paths)]
        entry = f"{plan['first'] + number:08x}"
        append(path, (data % (entry, leaves[path])).encode())
        leaves[path] = entry
        at.append(time.perf_counter_ns())
        late = began + number * pause - time.perf_counter()
        if late > 0:
            time.sleep(late)
    place.write_text(json.dumps(at))
    return 0


def word(first: int) -> str:
    """What the lines of one load say, and no others do."""
    return f"load{first}ed"


class Load:
    """A writer at work; `times()` waits for its end."""

    def __init__(
        self, home: Home, leaves: dict[str, str], rate: float, count: int, first: int
    ) -> None:
        """`leaves`: the last entry of each file that is written to."""
        self._place = home.root / "plan.json"
        plan = {"paths": [*leaves], "rate": rate, "count": count, "first": first}
        plan |= {"word": word(first), "leaves": leaves}
        self._place.write_text(json.dumps(plan))
        command = [sys.executable, __file__, str(self._place)]
        self._process = subprocess.Popen(command)

    def times(self) -> list[float]:
        """Seconds of the clock at which each append was made."""
        if self._process.wait() != 0:
            raise SystemExit("the writer failed")
        return [one / 1e9 for one in json.loads(self._place.read_text())]


if __name__ == "__main__":
    sys.exit(write(Path(sys.argv[1])))
