"""How quickly sessions are scanned, beside a full parse of every line and a bare read.

    python bench/bench_scan.py [--smoke] [--json FILE] [--real FOLDER]

Each corpus is scanned in turns by the daemon's own code, by the quickest general JSON parser there
is, and by a loop that only reads; ratios are of processor time within one round, with the page
cache warm. Process start and the text index stand in other benchmarks. Every file's leaf, parents,
human messages and texts are compared with a full parse.

Where orjson is not installed, msgspec stands for it, which reaches 0.89 to 0.93 of its speed on
these lines: its figure is divided by 0.92. Instructions for each line stand in
bench_instructions.py.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import corpus
from measure import ROOT, Bench, Target, cpu, in_turns, ratio, wall
from scan_methods import FACTOR, PARSER, Corpus, differs, full, raw, states, texts

MB = 1_000_000
REAL = ROOT / "tests/fixtures/real"
TARGETS = {  # performance.md section 8: of a full parse, of a bare read, of a full parse with texts
    "pi big": (4.5, 0.38, 1.7),
    "pi small": (3.2, 0.36, 1.45),
}
COLD = 0.75  # of a bare read, where nothing is in memory


def main() -> int:
    """Make, measure, compare."""
    bench = Bench("scan", "Cold scan of session files, page cache warm, one core")
    bench.options.add_argument("--real", type=Path, help="a pi directory of one's own, as well")
    size = 0.02 if bench.smoke else 1.0
    with tempfile.TemporaryDirectory(prefix="indexerd-scan-") as place:
        made = list(corpora(Path(place), size))
        if bench.asked.real:
            made.append(found("real", "pi", sorted(bench.asked.real.rglob("*.jsonl"))))
        for one in made:
            measured(bench, one, rounds=1 if bench.smoke else 3)
        for one in made:
            checked(bench, one)
        if not bench.smoke:
            cold(bench, made[0])
    return bench.end()


# -- corpora ---------------------------------------------------------------------------------------


def corpora(place: Path, size: float) -> Iterator[Corpus]:
    """What is scanned: sizes of sessions and lines as people have them."""
    plans = (
        ("pi big", "pi", 90, 100 * MB, 0.4),
        ("pi small", "pi", 1000, 40 * MB, 0.0),
        ("claude", "claude", 40, 20 * MB, 0.1),
        ("codex", "codex", 70, 18 * MB, 0.1),
        ("opencode", "opencode", 40, 16 * MB, 0.0),
    )
    for seed, (name, agent, sessions, many, pictures) in enumerate(plans):
        folder = place / name.replace(" ", "-")
        made = corpus.make(
            folder, agent, max(2, int(sessions * size)), int(many * size), seed, pictures
        )
        yield Corpus(name, agent, made.files, made.bytes, made.lines)
    times = 20 if size >= 1 else 2
    for agent, folders in (("pi", ("pi",)), ("claude", ("claude",)), ("codex", ("codex",))):
        yield copied(place / f"real-{agent}", agent, [REAL / one for one in folders], times)


def copied(place: Path, agent: str, folders: list[Path], times: int) -> Corpus:
    """The real client's own files, so often that they can be measured."""
    files = [one for folder in folders for one in folder.rglob("*.jsonl") if is_session(one)]
    place.mkdir()
    made = []
    for turn in range(times):
        for one in files:
            target = place / str(turn) / one.name
            target.parent.mkdir(exist_ok=True)
            made.append(shutil.copyfile(one, target))
    return found(f"{agent} fixtures", agent, made)


def is_session(path: Path) -> bool:
    """Whether a file of an agent's directory holds a conversation."""
    return path.name != "session_index.jsonl"


def found(name: str, agent: str, files: list[Path]) -> Corpus:
    """Files that are there."""
    data = [path.read_bytes() for path in files]
    lines = sum(one.count(b"\n") for one in data)
    return Corpus(name, agent, [str(one) for one in files], sum(map(len, data)), lines)


# -- measuring -------------------------------------------------------------------------------------


def measured(bench: Bench, one: Corpus, rounds: int) -> None:
    """Scan a corpus in all ways, by turns."""
    speeds = in_turns(
        {method.__name__: speed(one, method) for method in (raw, full, states, texts)},
        rounds,
    )
    speeds["full"] = [value / FACTOR for value in speeds["full"]]
    parse, bare, spoken = TARGETS.get(one.name, (None, None, None))
    width = f"{len(one.files)} files, {one.bytes / MB:.0f} MB, {one.bytes // one.lines} B a line"
    rows = (
        ("states", "full", PARSER, "scan", parse, width),
        ("states", "raw", "bare read", "scan, of a bare read", bare, ""),
        ("texts", "full", PARSER, "scan with all texts", spoken, ""),
    )
    for ours, limit, beside, what, target, note in rows:
        bench.add(
            f"{one.name}: {what}",
            median(speeds[ours]),
            "MB/s",
            limit=beside,
            floor=median(speeds[limit]),
            ratio=ratio(speeds[ours], speeds[limit]),
            target=Target(target, most=False, of="ratio") if target else None,
            note=note,
        )


def speed(one: Corpus, method: Callable[[Corpus], int]) -> Callable[[], float]:
    """MB in a second of processor time."""
    return lambda: one.bytes / MB / max(cpu(lambda: method(one)), 1e-9)


def checked(bench: Bench, one: Corpus) -> None:
    """Hold every file against a full parse; of the real ones, which are copies, each once."""
    wrong: dict[str, int] = {}
    for path in {Path(path).name: path for path in one.files}.values():
        what = differs(one.agent, path)
        if what:
            wrong[what] = wrong.get(what, 0) + 1
    bench.check(f"{one.name}: files that differ from a full parse: {wrong}", ok=not wrong)


def cold(bench: Bench, one: Corpus) -> None:
    """The same where nothing is in the page cache, by the clock, or why that cannot be."""
    name = f"{one.name}: scan from disk"
    if not hasattr(os, "posix_fadvise"):
        print(f"{name}: not measured, this system has no posix_fadvise to drop its page cache")
        return

    def gone(method: Callable[[Corpus], int]) -> Callable[[], float]:
        def run() -> float:
            forget(one.paths)
            return one.bytes / MB / wall(lambda: method(one))

        return run

    warm = one.bytes / MB / wall(lambda: raw(one))
    speeds = in_turns({"raw": gone(raw), "states": gone(states)}, 3, warm=0)
    bare = median(speeds["raw"])
    if bare > 0.7 * warm:
        told = f"{bare:.0f} MB/s after dropping it, {warm:.0f} MB/s with it"
        print(f"{name}: not measured, the page cache was not dropped: a bare read has {told}")
        return
    bench.add(
        name,
        median(speeds["states"]),
        "MB/s",
        limit="bare read from disk",
        floor=bare,
        ratio=ratio(speeds["states"], speeds["raw"]),
        target=Target(COLD, most=False, of="ratio"),
        note="by the clock, page cache dropped before each run",
    )


def forget(paths: list[str]) -> None:
    """Have the system drop these files from its page cache."""
    os.sync()
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


if __name__ == "__main__":
    raise SystemExit(main())
