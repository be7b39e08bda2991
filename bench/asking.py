"""Questions asked in turns, of a look-up and of the plain way, and told as figures side by side.

The questions are cut into rounds. In each the look-up answers all of a round, then the plain way
some of them, evenly chosen: as many as it has the time for. A ratio is that of the questions which
both answered: at p50 the middle of the rounds' own, at p99, for which a round has too few, of all
rounds together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any

from measure import Bench, Target, percentile, ratio

ROUNDS = 5


@dataclass(frozen=True)
class Plain:
    """The plain way: what it is called, how it is asked, and how many of the questions it gets."""

    name: str
    ask: Callable[[Any], Any]
    most: int = 1_000_000


@dataclass
class Turns:
    """What a look-up took for each question, in milliseconds, and both in each round."""

    taken: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)  # of the processor
    ours: list[list[float]] = field(default_factory=list)  # for what the plain way answered, too
    plain: list[list[float]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    pairs: list[tuple[Any, Any, Any]] = field(default_factory=list)  # question, answer, plain one

    def floor(self, share: float) -> float:
        """The plain way's percentile."""
        return percentile(chain(*self.plain), share)

    def ratio(self, share: float) -> float:
        """That of the questions that both answered: the middle of the rounds', or of all."""
        if share > 0.5:
            return percentile(chain(*self.ours), share) / self.floor(share)
        both = zip(self.ours, self.plain, strict=True)
        return median(percentile(one, share) / percentile(two, share) for one, two in both)


@dataclass
class Asking:
    """Questions are asked and timed through this, and the figures kept."""

    bench: Bench

    def latency(
        self,
        label: str,
        ask: Callable[[Any], Any],
        questions: Sequence[Any],
        plain: Plain,
        *,
        promise: float | None = None,
        times: float | None = None,
        note: str = "",
    ) -> Turns:
        """p50 and p99 in milliseconds, of the clock; at p99 this thread's own time is told, too.

        `promise` is the most that the p99 may be, `times` the most of the plain way's p50; `note`
        says what the two do not do alike.
        """
        turns = in_rounds(ask, questions, plain)
        target = Target(times, of="ratio") if times else None
        for share, which in ((0.5, "p50"), (0.99, "p99")):
            more: dict[str, Any] = {"target": target, "note": note}
            if which == "p99":
                used = f"of the processor {percentile(turns.used, share):.3g} ms"
                more = {"target": Target(promise) if promise else None}
                more["note"] = f"{used}; {note}" if note else used
            more |= {"limit": plain.name, "floor": turns.floor(share), "ratio": turns.ratio(share)}
            self.bench.add(f"{label}, {which}", percentile(turns.taken, share), "ms", **more)
        return turns

    def once(self, label: str, ours: Sequence[float], plain: Sequence[float], limit: str) -> None:
        """A figure of some rounds, whose seconds are given: their middle, in milliseconds."""
        told = {"limit": limit, "floor": median(plain) * 1e3, "ratio": ratio(ours, plain)}
        self.bench.add(label, median(ours) * 1e3, "ms", **told)

    def rate(
        self,
        label: str,
        amount: float,
        unit: str,
        taken: tuple[Sequence[float], Sequence[float]],
        limit: str,
    ) -> None:
        """How much a second, of the seconds that both took in each round for equal shares of it."""
        ours, plain = taken
        told = {"limit": limit, "floor": amount / sum(plain), "ratio": ratio(plain, ours)}
        self.bench.add(label, amount / sum(ours), unit, **told)

    def all(self, what: str, said: Sequence[tuple[Any, bool]]) -> None:
        """Check that something holds for every one of the questions; the first failure is told."""
        wrong = [asked for asked, right in said if not right]
        told = f"{what}: {wrong[0]!r}, one of {len(wrong)}" if wrong else what
        self.bench.check(told, ok=bool(said) and not wrong)


def in_rounds(ask: Callable[[Any], Any], questions: Sequence[Any], plain: Plain) -> Turns:
    """Ask all questions in rounds, and the plain way a share of them."""
    turns, few = Turns(), max(1, plain.most // ROUNDS)
    rounds = min(ROUNDS, len(questions))
    for n in range(rounds):
        part = questions[n * len(questions) // rounds : (n + 1) * len(questions) // rounds]
        ours: list[float] = []
        answers = [timed(ask, one, ours, turns.used) for one in part]
        theirs: list[float] = []
        every = max(1, len(part) // few)
        told = [timed(plain.ask, one, theirs) for one in part[::every]]
        turns.taken += ours
        turns.ours.append(ours[::every])
        turns.plain.append(theirs)
        turns.answers += answers
        turns.pairs += zip(part[::every], answers[::every], told, strict=True)
    return turns


def timed(
    ask: Callable[[Any], Any], question: Any, into: list[float], used: list[float] | None = None
) -> Any:
    """An answer; milliseconds of the clock, and of this thread's own time, are noted."""
    before, start = time.thread_time(), time.perf_counter()
    answer = ask(question)
    taken, own = time.perf_counter() - start, time.thread_time() - before
    into.append(taken * 1e3)
    if used is not None:
        used.append(own * 1e3)
    return answer
