"""What every benchmark shares: figures beside their limits, rounds, and how they are told.

A benchmark is a script of its own, `bench/bench_*.py`. It makes a `Bench`, adds `Figure`s to it,
checks what it measured against the slow, obvious way (`bench.check`), and ends with
`return bench.end()`. Its options are the same everywhere:

    python bench/bench_X.py [--smoke] [--json FILE] [own options]

The exit status is 1 where a check failed or something did not work, and never because a machine is
slow: a target that is missed is marked in the table, and no more. `--smoke` takes a second or two
and shows that it runs; its figures mean nothing. `--json` writes the figures to a file, from which
`bench/run.py` makes the one table, and `docs/PERFORMANCE.md`.

A figure has a limit, measured in the same run: what the machine can do at best, what the plain way
costs, or what a peer does. Methods take turns, round by round, and the ratio is taken inside each
round, so that what else the machine does falls on all alike; what is told is the median of rounds.
What can have none says so (`alone`): an exponent, or what a peer does, which others are held to.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


@dataclass(frozen=True)
class Target:
    """A promise: the value, or its ratio to the limit, is at most or at least so much."""

    number: float
    most: bool = True  # False: at least
    of: str = "value"  # or "ratio"

    def met(self, figure: Figure) -> bool:
        """Whether a figure keeps it; one that has no ratio does not keep a promise of one."""
        told = figure.ratio if self.of == "ratio" else figure.value
        if told is None:
            return False
        return told <= self.number if self.most else told >= self.number

    def text(self, unit: str) -> str:
        """The promise in words."""
        told = f"{self.number:g} x limit" if self.of == "ratio" else f"{self.number:g} {unit}"
        return f"{'≤' if self.most else '≥'} {told}"


@dataclass(frozen=True)
class Figure:
    """One measured figure: of what, how much, beside which limit and which promise."""

    name: str
    value: float
    unit: str  # "ms", "MB/s", "MB", "us", "%", "instructions" ...
    limit: str = ""  # what it is compared with
    floor: float | None = None  # the limit's own value, in the same unit
    ratio: float | None = None  # value / floor, as the median of the rounds' own ratios
    target: Target | None = None
    note: str = ""
    alone: str = ""  # why it stands beside nothing, in a few words


class Bench:
    """The figures of one script, and whether all went well."""

    def __init__(self, name: str, title: str, argv: Sequence[str] | None = None) -> None:
        """`title` is the heading of its table; options are taken from the command line.

        A SIGTERM ends the script as an exception would: nothing that it made or started stays.
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        self.name = name
        self.title = title
        self.figures: list[Figure] = []
        self.broken: list[str] = []
        self._argv = argv
        self.options = argparse.ArgumentParser(description=title)
        self.options.add_argument("--smoke", action="store_true", help="a second: does it run?")
        self.options.add_argument("--json", type=Path, help="write the figures to this file")
        self._asked: argparse.Namespace | None = None

    @property
    def asked(self) -> Any:
        """The options, parsed once all of them were added."""
        if self._asked is None:
            self._asked = self.options.parse_args(self._argv)
        return self._asked

    @property
    def smoke(self) -> bool:
        """Whether it is only to be shown that it runs."""
        return bool(self.asked.smoke)

    def add(self, name: str, value: float, unit: str, **more: Any) -> Figure:
        """Note a figure; it is printed at once.

        One of a limit is `limit` and `floor`, and where rounds have their own, `ratio`. ValueError
        where it stands beside nothing and does not say why: `alone`.
        """
        if more.get("floor") and more.get("ratio") is None:
            more["ratio"] = value / more["floor"]
        figure = Figure(name, value, unit, **more)
        if figure.ratio is None and not figure.alone:
            raise ValueError(f"{name}: beside what?")
        self.figures.append(figure)
        print(line(figure), flush=True)
        return figure

    def check(self, what: str, *, ok: bool) -> None:
        """Hold the measured thing against the slow, obvious way: a difference breaks the bench."""
        if not ok:
            self.broken.append(what)
            print(f"BROKEN: {what}", file=sys.stderr, flush=True)

    def end(self) -> int:
        """Write what was found; the exit status."""
        if self.asked.json:
            told = {
                "name": self.name,
                "title": self.title,
                "broken": self.broken,
                "figures": [as_json(one) for one in self.figures],
            }
            self.asked.json.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        return 1 if self.broken else 0


def as_json(figure: Figure) -> dict[str, Any]:
    """A figure as it is stored, with its promise in words and whether it is kept."""
    held = {key: one for key, one in asdict(figure).items() if one not in (None, "")}
    held.pop("target", None)
    for key in ("value", "floor", "ratio"):
        if key in held:
            held[key] = rounded(held[key])
    if figure.target is not None:
        held["target"] = figure.target.text(figure.unit)
        held["met"] = figure.target.met(figure)
    return held


def line(figure: Figure) -> str:
    """A figure as a line of text."""
    told = f"{figure.name:52} {rounded(figure.value):>10g} {figure.unit:5}"
    if figure.floor is not None:
        told += f"  {figure.limit}: {rounded(figure.floor):g}"
    if figure.ratio is not None:
        told += f"  x {rounded(figure.ratio):g}"
    if figure.target is not None:
        word = "met" if figure.target.met(figure) else "MISSED"
        told += f"  {word} ({figure.target.text(figure.unit)})"
    return told + (f"  {figure.note}" if figure.note else "")


def rounded(number: float) -> float:
    """Three figures are all that a measurement on a shared machine is worth."""
    return float(f"{number:.3g}")


# -- measuring -----------------------------------------------------------------------------------


def wall(work: Callable[[], object]) -> float:
    """Seconds of the clock that some work takes."""
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def cpu(work: Callable[[], object]) -> float:
    """Seconds of processor time that some work takes, of the program and of the kernel for it."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def in_turns(
    methods: dict[str, Callable[[], float]], rounds: int, warm: int = 1
) -> dict[str, list[float]]:
    """What each method measured in each round; the methods take turns, the first rounds warm up."""
    found: dict[str, list[float]] = {name: [] for name in methods}
    for turn in range(-warm, rounds):
        for name, method in methods.items():
            value = method()
            if turn >= 0:
                found[name].append(value)
    return found


def ratio(ours: Sequence[float], limit: Sequence[float]) -> float:
    """The median of the rounds' own ratios."""
    return median(a / b for a, b in zip(ours, limit, strict=True))


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values are."""
    held = sorted(values)
    return held[min(len(held) - 1, int(share * len(held)))]


def memory_mb(pid: int | str = "self", field: str = "VmRSS") -> float:
    """Resident memory of a process in megabytes (Linux); `VmHWM` is the most it ever was."""
    for one in Path(f"/proc/{pid}/status").read_text().splitlines():
        if one.startswith(field + ":"):
            return int(one.split()[1]) / 1024
    raise ValueError(f"no {field} of {pid}")


def cpu_of(pid: int) -> float:
    """Seconds of processor time that another process has used so far (Linux), to the nanosecond."""
    return time.clock_gettime(~pid << 3 | 2)  # its own clock: clock_getcpuclockid(3) says the same
