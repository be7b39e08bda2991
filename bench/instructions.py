"""Instructions that a program takes for some work, counted by callgrind: what no noise changes.

In: a program that prints a line when it is ready, and what is to be done with it then. Out: how
many instructions it has executed meanwhile. Its start, which takes a minute under callgrind for
what takes a second without, is run but not counted. Kernel work is in no such count.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

PATIENCE = 900  # seconds any one thing may take, on a slow machine, too

Program = subprocess.Popen[str]


def countable() -> bool:
    """Whether callgrind is installed."""
    return None not in (shutil.which("valgrind"), shutil.which("callgrind_control"))


def callgrind(argv: list[str], place: Path, work: Callable[[Program], object]) -> int:
    """Instructions of the program while `work` is done with it; 0 where they cannot be counted.

    The program may end by that; one that goes on is ended. Callgrind's own file is left at `place`.
    """
    if not countable():
        return 0
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={place}", *argv]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        if not run.stdout.readline():
            return 0
        _count(run, "on")
        work(run)
        if run.poll() is None:
            _count(run, "off")
            run.terminate()
        _, told = run.communicate(timeout=PATIENCE)
    marked = [one for one in told.splitlines() if "Collected :" in one]
    return int(marked[-1].rpartition(":")[2]) if marked else 0


def _count(run: Program, word: str) -> None:
    asked = ["callgrind_control", "-i", word, str(run.pid)]
    subprocess.run(asked, capture_output=True, timeout=PATIENCE, check=True)
