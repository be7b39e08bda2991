"""What a run found out, as a file: figures, and every survivor with the reason that it may live.

The reasons are written in by hand; a later run keeps them for the mutants that are still there.
`docs/MUTANTS.md` shows the record `sample.json`.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parent / "sample.json"
ABOUT = (
    "A sample of the changes to indexerd/core and indexerd/agents that tests/mutants/making.py "
    "makes, drawn by `seed`: every file has its share, and two at least. `known` is how many "
    "there are."
)
CELL_MAX = 90  # characters
NOTICED = ("killed", "timed out")
UNNOTICED = ("survived", "not reached")


@dataclass(frozen=True)
class Judged:
    """What became of a mutant."""

    name: str
    operator: str
    status: str  # one of NOTICED or UNNOTICED
    by: str  # the test that failed
    diff: str


@dataclass
class Record:
    """One run."""

    seed: int = 0
    known: int = 0  # mutants, of which the run's are a sample
    files: dict[str, dict[str, int]] = field(default_factory=dict)  # how many of each status
    survivors: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, judged: Sequence[Judged], seed: int, known: int, before: Record) -> Record:
        """A run's record, with the reasons of an earlier one."""
        reasons = {_key(one): one.get("reason", "") for one in before.survivors}
        survivors = []
        for one in judged:
            if one.status in UNNOTICED:
                held = {**asdict(one), "reason": ""}
                del held["by"]
                survivors.append(held | {"reason": reasons.get(_key(held), "")})
        files = {path: dict(counts) for path, counts in by_file(judged).items()}
        return cls(seed, known, files, survivors)

    @classmethod
    def read(cls, path: Path) -> Record:
        """A record; an empty one where there is none."""
        held = json.loads(path.read_text()) if path.exists() else {}
        return cls(**{one.name: held[one.name] for one in fields(cls) if one.name in held})

    def write(self, path: Path) -> None:
        """Keep it, with the sums for whoever reads the file."""
        sums = {"total": self.counts, "packages": self.packages}
        held = {"about": ABOUT, **asdict(self)} | sums
        path.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n")

    @property
    def counts(self) -> Counter[str]:
        """How many of each status."""
        return sum((Counter(one) for one in self.files.values()), Counter[str]())

    @property
    def packages(self) -> dict[str, Counter[str]]:
        """How many of each status, by package."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for path, counts in self.files.items():
            found[path.split("/")[1]] += Counter(counts)
        return dict(sorted(found.items()))

    @property
    def percent(self) -> float:
        """How many were noticed, of a hundred."""
        return percent(self.counts)

    @property
    def doubt(self) -> float:
        """By how much that may be wrong for all mutants, 19 times in 20."""
        share = self.percent / 100
        return 196 * math.sqrt(share * (1 - share) / max(1, self.counts.total()))


def percent(counts: Counter[str]) -> float:
    """How many were noticed, of a hundred."""
    return 100 * sum(counts[one] for one in NOTICED) / max(1, counts.total())


def told(record: Record) -> str:
    """What the document says of a record: the figures, and the survivors by their reasons."""
    counts = record.counts
    figures = (
        f"Seed {record.seed}: of {record.known} changes {counts.total()} were tried. "
        f"{counts['killed']} made a test fail, {counts['timed out']} did not end, "
        f"{counts['survived']} survived, {counts['not reached']} were not reached: "
        f"**{record.percent:.1f} %** were noticed; of all changes it is "
        f"{record.percent - record.doubt:.0f} to {record.percent + record.doubt:.0f} %, as far as "
        "a sample of that size can tell (19 times in 20)."
    )
    lines = [
        figures,
        "",
        "| package | tried | killed | did not end | survived | not reached | noticed |",
        "|---|---|---|---|---|---|---|",
        *(_row(package, counts) for package, counts in record.packages.items()),
        "",
        "| survivor | change | why it may live |",
        "|---|---|---|",
    ]
    for one in record.survivors:
        path, line, _ = one["name"].split(":")
        lines.append(
            f"| {path.removeprefix('indexerd/')}:{line} | {_short(one['diff'])} | {one['reason']} |"
        )
    return "\n".join(lines) + "\n"


def _row(package: str, counts: Counter[str]) -> str:
    cells = [counts.total(), *(counts[one] for one in (*NOTICED, *UNNOTICED))]
    return f"| `{package}` | {' | '.join(map(str, cells))} | {percent(counts):.1f} % |"


def _short(diff: str) -> str:
    """What is new in a difference, fit for a cell of a table."""
    new = [line[1:].strip() for line in bare(diff) if line.startswith("+")]
    text = " ".join(new) or "(left out)"
    shown = text if len(text) <= CELL_MAX else f"{text[:CELL_MAX]}…"
    return "`` " + shown.replace("|", "\\|").replace("``", "` `") + " ``"


def by_file(judged: Sequence[Judged]) -> dict[str, Counter[str]]:
    """How many of each status, by file."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in judged:
        found[one.name.partition(":")[0]][one.status] += 1
    return dict(sorted(found.items()))


def bare(diff: str) -> list[str]:
    """A difference without its places."""
    return [line for line in diff.splitlines() if not line.startswith("@@")]


def _key(survivor: Mapping[str, Any]) -> tuple[str, ...]:
    return (survivor["name"].partition(":")[0], *bare(survivor["diff"]))
