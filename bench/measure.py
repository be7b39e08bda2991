"""Collect figures and their limits in one table.

A limit is measured in the same run, in turns with our figure, so that other load on the machine
affects both. A ratio is the median of the rounds' ratios; for latencies, that of p50.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Values = Sequence[float]
HEAD = ("what", "measured", "limit of the same run (ratio)", "target")


@dataclass(frozen=True)
class Beside:
    """A limit: its name, and its values; without values it could not be measured."""

    name: str
    values: Values


class Bench:
    """The rows of a run."""

    def __init__(self, *, smoke: bool) -> None:
        """With `smoke`, only check that everything works; the figures mean nothing."""
        self.smoke = smoke
        self.rows: list[tuple[str, ...]] = []

    def size(self, full: int, smoke: int) -> int:
        return smoke if self.smoke else full

    def row(self, *cells: str, met: bool | None = None) -> None:
        """Add a row and print it; `met` says whether the target in its last cell is met."""
        if met is not None:
            cells = (*cells[:-1], f"{cells[-1]}: {'met' if met else '**missed**'}")
        self.rows.append(cells)
        print("  ".join(one for one in cells if one), flush=True)

    def heading(self, text: str) -> None:
        self.row(f"**{text}**", "", "", "")

    def latency(self, what: str, took: Values, beside: Beside, **targets: float) -> None:
        """Add a row of latencies in milliseconds: p50 and p99, with their targets."""
        got, limit = quantiles(took), median(beside.values)
        self.row(
            what,
            f"{number(got['p50'])} / {number(got['p99'])} ms",
            f"{beside.name}: {number(limit)} ({number(got['p50'] / limit)})",
            ", ".join(f"{name} ≤ {bound:g} ms" for name, bound in targets.items()),
            met=all(got[name] <= bound for name, bound in targets.items()) if targets else None,
        )

    def amount(self, what: str, took: Values, unit: str, beside: Beside, target: str = "") -> None:
        """Add a row of values measured in rounds, each with its own limit.

        A target is `≤ 3 s`, in the figure's unit, or `≤ 3 x`, times the limit.
        """
        ours, ratio, limit, met = median(took), None, beside.name, None
        if beside.values:
            ratio = median(a / b for a, b in zip(took, beside.values, strict=True))
            limit += f": {number(median(beside.values))} ({number(ratio)})"
        sign, bound, of = target.split() if target else ("", "0", "")
        value = ratio if of == "x" else ours
        if target and value is not None:
            met = value <= float(bound) if sign == "≤" else value >= float(bound)
        self.row(what, f"{number(ours)} {unit}", limit, target, met=met)

    def table(self) -> str:
        """Return all rows as Markdown."""
        rows = [HEAD, ("---",) * len(HEAD), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def number(value: float) -> str:
    """Format with three digits: a measurement on a shared machine is worth no more."""
    return f"{float(f'{value:.3g}'):,g}"


def quantiles(values: Values) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    return {"p50": median(values), "p99": sorted(values)[int(0.99 * len(values))]}


def wall(work: Callable[[], object]) -> float:
    """Return the wall-clock seconds that some work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu(work: Callable[[], object]) -> float:
    """Return the seconds of processor time that some work takes in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def in_turns(
    methods: dict[str, Callable[[], float]], rounds: int, warm: int = 0
) -> dict[str, list[float]]:
    """Return what each method measured in each round; methods take turns after a warm-up."""
    found: dict[str, list[float]] = {name: [] for name in methods}
    for turn in range(-warm, rounds):
        for name, method in methods.items():
            value = method()
            if turn >= 0:
                found[name].append(value)
    return found
