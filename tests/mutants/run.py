"""The mutation check: `python -m tests.mutants.run --seed 1 --count 600`.

Takes a sample of all mutants of indexerd/core and indexerd/agents (every file has its share, and
two at least), runs for each the tests that reach it, and says which nobody noticed. The same seed
on the same tree gives the same sample and the same answers. Notes are kept below `build/mutants`:
on the same tree, a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutants import suite
from tests.mutants.covering import PACKAGES, cover
from tests.mutants.judging import Judge, difference
from tests.mutants.making import Mutant, Mutants
from tests.mutants.notes import Notes, tree
from tests.mutants.recording import NOTICED, UNNOTICED, Judged, Record, bare, by_file

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutants"
LEAST = 2  # mutants of a file
NEAR = 40  # mutants, by which a number may have moved


def sample(files: dict[str, Mutants], seed: int, count: int) -> list[Mutant]:
    """So many mutants, each file with its share."""
    dice = random.Random(seed)
    total = sum(len(one.found) for one in files.values())
    shares = {
        path: min(len(one.found), max(LEAST, round(count * len(one.found) / total)))
        for path, one in files.items()
    }
    chosen: list[Mutant] = []
    for path, one in sorted(files.items()):
        order = dice.sample(one.found, len(one.found))
        chosen += _distinct(one, order, shares[path])
    dice.shuffle(chosen)  # so that half a run tells something about all
    return chosen


def _distinct(file: Mutants, order: Sequence[Mutant], count: int) -> list[Mutant]:
    """The first so many of which no two are the same, and that Python can read."""
    found: dict[str, Mutant] = {}
    before = file.original
    for mutant in order:
        if len(found) == count:
            break
        source = file.source(mutant)
        try:
            compile(source, mutant.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        if source != before:
            found.setdefault(source, mutant)
    return list(found.values())


def report(judged: Sequence[Judged]) -> None:
    """Survivors with their changes, a line for every file, and the sum."""
    for one in judged:
        if one.status in UNNOTICED:
            print(f"\n{one.name} ({one.operator}) {one.status}\n{one.diff}")
    print(f"\n{'killed':>8}{'timed out':>11}{'survived':>10}{'not reached':>13}")
    total: Counter[str] = Counter()
    for path, counts in by_file(judged).items():
        print(_row(counts), path)
        total += counts
    print(_row(total), "in all")
    dead = sum(total[status] for status in NOTICED)
    print(f"\n{dead} of {total.total()} mutants were noticed: {100 * dead / total.total():.1f} %")


def _row(counts: Counter[str]) -> str:
    return (
        f"{counts['killed']:8}{counts['timed out']:11}"
        f"{counts['survived']:10}{counts['not reached']:13}"
    )


def main() -> None:
    """Read the command line, run, tell."""
    told = _told()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets have one order, in every run
        os.environ["PYTHONHASHSEED"] = "0"
        again = [sys.executable, "-m", "tests.mutants.run", *sys.argv[1:]]
        os.execv(sys.executable, again)  # noqa: S606 - this program itself
    WORK.mkdir(parents=True, exist_ok=True)
    suite.prepare(ROOT)
    covered = cover(ROOT, WORK)
    before = Record.read(told.again).survivors if told.again else []
    left = {one["name"]: one["diff"] for one in before}
    paths = sorted(path for one in PACKAGES for path in (ROOT / one).rglob("*.py"))
    files: dict[str, Mutants] = {}
    for path in paths:
        name = str(path.relative_to(ROOT))
        if name.startswith(told.only) and (not before or any(name in one for one in left)):
            files[name] = Mutants(name, path.read_text())
    mutants = list(_again(files, left)) if before else sample(files, told.seed, told.count)
    known = sum(len(one.found) for one in files.values())
    print(f"{len(mutants)} of {known} mutants", flush=True)
    notes = Notes(WORK / "judged.jsonl", tree(ROOT))
    judged = [notes.held[one.name] for one in mutants if one.name in notes.held]
    left_over = [one for one in mutants if one.name not in notes.held]
    for one in Judge(ROOT, files, covered, told.jobs).fates(left_over):
        judged.append(one)
        notes.add(one)
        print(f"{one.status:12}{one.name}  {one.by}", flush=True)
    judged.sort(key=lambda one: one.name)
    report(judged)
    if told.result:
        Record.of(judged, told.seed, known, Record.read(told.result)).write(told.result)


def _again(files: dict[str, Mutants], left: dict[str, str]) -> Iterator[Mutant]:
    """What survived earlier, found by its number; or near it, where a file has changed since."""
    for name, diff in left.items():
        path, _, number = name.split(":")
        at = int(number)
        for one in files[path].found[max(0, at - NEAR) : at + NEAR]:
            if bare(difference(files[path], one)) == bare(diff):
                yield one
                break
        else:
            print(f"{'gone':12}{name}")


def _told() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="files whose name begins so")
    parser.add_argument("--again", type=Path, help="the survivors of this result, once more")
    parser.add_argument("--result", type=Path, help="where to write what became of each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
