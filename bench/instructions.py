"""Instructions that works of a program take, counted by callgrind: what no noise changes.

The program that is looked at ends with `serve`: it says that it is ready, does the works that it
is told to, by name, and at its end puts down what each of them answered. `Program` starts it and
tells it. What it does until `begin`, its start and what warms it up, is not counted: that takes
some seconds under valgrind, and would take a minute if it were. So all works share one start.

Kernel work is in no such count. Where valgrind is not installed, `why_not` says so, and `Program`
runs the works all the same, uncounted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

PATIENCE = 300  # seconds any one work may take, on a slow machine, too
_TOOLS = ("valgrind", "vgdb")
_CALLGRIND = ("valgrind", "-q", "--tool=callgrind")
_NOTHING = "nothing"  # a work: what is counted of it is taken off the others
_AT_ONCE = "--max-invoke-ms=1"  # a program that waits for us is not waited for

Beside = Callable[[], object]


def why_not() -> str:
    """Why nothing can be counted on this machine; empty where it can."""
    missing = [one for one in _TOOLS if shutil.which(one) is None]
    if missing:
        return f"no {' and no '.join(missing)}"
    tried = subprocess.run(
        [*_CALLGRIND, "--callgrind-out-file=/dev/null", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return f"valgrind does not run: {tried.stderr[-400:]}" if tried.returncode else ""


def serve(works: Mapping[str, Callable[[], Any]], place: Path) -> int:
    """Do works as they are named on stdin, a line each; their answers go to `place` as JSON."""
    told: dict[str, list[Any]] = {name: [] for name in (*works, _NOTHING)}
    works = {**works, _NOTHING: lambda: None}
    print("ready", flush=True)
    for line in sys.stdin:
        name = line[:-1]
        told[name].append(works[name]())
        print("done", flush=True)
    place.write_text(json.dumps(told, default=bytes.decode))
    return 0


class Program:
    """A program that does works, under callgrind if they are to be counted."""

    def __init__(self, argv: list[str], place: Path, *, counting: bool) -> None:
        """`place` is a directory for callgrind's files, for errors, and for `answers`."""
        self.place = place
        self._dumps = self._least = 0
        self._counting = counting
        self._out, self._errors = place / "callgrind", place / "stderr"
        self._pipes = f"--vgdb-prefix={place / 'vgdb'}"  # which it leaves behind if it is killed
        under = [*_CALLGRIND, "--instr-atstart=no", f"--callgrind-out-file={self._out}"]
        under += [self._pipes]
        with self._errors.open("wb") as errors:
            self._run = subprocess.Popen(
                [*(under if counting else ()), *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"PYTHONHASHSEED": "0"},
            )
        self._hear("ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run.kill()
        self._run.wait()

    def do(self, name: str, beside: Beside = list) -> None:
        """Have it do a work; `beside` is done meanwhile, here."""
        assert self._run.stdin is not None
        self._run.stdin.write(f"{name}\n")
        self._run.stdin.flush()
        beside()
        self._hear("done")

    def begin(self) -> str:
        """Count from now on; says why it cannot, where this system does not let us."""
        if not self._counting:
            return ""
        try:
            self._tell("instrumentation", "on")
        except subprocess.SubprocessError as bad:
            self._counting = False
            return f"callgrind does not listen: {bad}"
        self.count(_NOTHING)
        self._least = self.count(_NOTHING)
        return ""

    def count(self, name: str, beside: Beside = list) -> int:
        """The instructions of a work, without those of being told; 0 where they are not counted."""
        self.do(name, beside)
        if not self._counting:
            return 0
        self._tell("dump", name)  # and begin at zero again
        self._dumps += 1
        with self._out.with_name(f"{self._out.name}.{self._dumps}").open() as dump:
            total = next(one for one in dump if one.startswith("summary:"))
        return int(total.split()[1]) - self._least

    def rest(self) -> None:
        """What comes now is not counted."""
        if self._counting:
            self._tell("instrumentation", "off")
            self._counting = False

    def end(self) -> dict[str, list[Any]]:
        """Have it end; what each work answered, time by time."""
        assert self._run.stdin is not None
        self._run.stdin.close()
        self._run.wait(PATIENCE)
        held: dict[str, list[Any]] = json.loads((self.place / "answers").read_text())
        return held

    def _tell(self, *words: str) -> None:
        command = ["vgdb", self._pipes, f"--pid={self._run.pid}", _AT_ONCE, *words]
        subprocess.run(command, capture_output=True, timeout=60, check=True)

    def _hear(self, word: str) -> None:
        assert self._run.stdout is not None
        if self._run.stdout.readline() != f"{word}\n":
            raise SystemExit(f"the program ended: {self._errors.read_text()[-4000:]}")
