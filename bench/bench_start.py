"""Starts: again, with nothing changed, and for the first time; beside what the disk alone costs.

    python bench/bench_start.py [--smoke] [--rounds N]

Again: a home of 10,000 small sessions, of which all but one are as they were. From the daemon's
exec to READY, to the first answered question, and to the end of catching up, each round beside a
daemon with no sessions, a bare scandir + stat of the same files, and a bare reading of what is
stored of them. At the end of each round some sessions grow: what is stored after all rounds stands
beside the same rows written at once. For the first time: 3,000 sessions of 53 KB, equal parts pi,
Claude Code and Codex, from exec until the last word is searchable, beside reading and parsing every
line of them. Nothing is described in either, and no digest made; the built-in model is the only
one.

What is checked: every session is known, a name leads to its own session, what grew is counted, the
ledger does not grow by being written again, and words that were put into one file alone, in the
place of what its user said, find that session and no other.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from corpus import make
from home import QUIET, Daemon, Home, Small, Writer, wait
from measure import Bench, Target, cpu, in_turns, ratio, wall
from plain import imports

from indexerd.errors import NotFoundError
from indexerd.sources.scan import scan

TOLD = "nothing described, no digests"
PARTS = {"pi": ".pi/agent", "claude": ".claude", "codex": ".codex"}
CORPUS_BYTES = 124_000_000
CORPUS_FILES = 3_000
COLD = 3  # first starts
GROWN = 500  # sessions that grow at the end of a round
LEDGER = "ledger.sqlite"
LEDGER_MOST = 2.5  # times what its rows take that are written at once
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


def main() -> int:
    bench = Bench("start", "Start: again with nothing changed, and for the first time")
    bench.options.add_argument("--rounds", type=int, default=3)
    count = 200 if bench.smoke else 10_000
    with Home() as home:
        again(bench, home, home.small(count))
    with Home() as home:
        first(bench, home, CORPUS_FILES // (100 if bench.smoke else 1))
    return bench.end()


# -- again ---------------------------------------------------------------------------------------


class Starts:
    """Starts of one home, or of one with no sessions: what each of them took, in seconds."""

    def __init__(self) -> None:
        self.ready: list[float] = []
        self.answered: list[float] = []
        self.scanned: list[float] = []
        self.spent: list[float] = []  # of the processor
        self.caught_up: list[float] = []  # from READY on

    def note(self, daemon: Daemon, ask: Callable[[], None], sessions: int) -> None:
        """Follow one start; `ask` is the first question."""
        self.ready.append(daemon.ready())
        ask()
        self.answered.append(daemon.since())
        self.scanned.append(daemon.scanned())
        self.caught_up.append(self.scanned[-1] - self.ready[-1])
        daemon.settled(sessions)
        self.spent.append(daemon.cpu())


def again(bench: Bench, home: Home, made: list[Small]) -> None:
    """Restarts of a home that is known."""
    with home.daemon(**QUIET) as daemon:
        daemon.settled(len(made))
    ours, empty, asked = Starts(), Starts(), random.Random(1)
    writers = [Writer(one) for one in asked.sample(made, min(len(made) // 2, GROWN))]
    ledger = home.state / LEDGER

    def start() -> float:
        writers[0].append()  # a start that compared nothing would be quick, and miss it
        with home.daemon(**QUIET) as daemon:
            ours.note(daemon, lambda: named(bench, daemon, asked.choice(made)), len(made))
            seen = counted(daemon, writers[0])
            bench.check("a restart sees what was appended meanwhile", ok=seen)
            grow(daemon, writers)
            daemon.settled(len(made))
        return 0.0

    def start_empty() -> float:
        with Home() as other, other.daemon(**QUIET) as daemon:
            empty.note(daemon, lambda: unnamed(daemon), 0)
        return 0.0

    top = str(home.sessions)
    rounds = 1 if bench.smoke else bench.asked.rounds
    bare: dict[str, Callable[[], float]] = {
        "stats": lambda: wall(lambda: stats(top)),
        "stored": lambda: wall(lambda: stored(ledger)),
    }
    found = in_turns({"ours": start, **bare, "empty": start_empty}, rounds, warm=0)
    bench.check("all files are there", ok=stats(top) == len(made) == len(scan([top]).files))
    bench.check("the ledger holds a row of each", ok=stored(ledger) == len(made))
    name = f"restart, {len(made)} sessions"
    started(bench, name, ours, empty)
    caught_up(bench, name, ours, found, len(made))
    kept(bench, home, f"{name}: {rounds} starts, {len(writers) * rounds} appends")


def named(bench: Bench, daemon: Daemon, wanted: Small) -> None:
    """Ask for a session by its name."""
    found = daemon.ask("resolve", {"ref": wanted.name, "scope": "all"})
    bench.check("a name leads to its session", ok=found["sessionId"] == wanted.id)


def unnamed(daemon: Daemon) -> None:
    """Ask for a session that is not there, nor any other."""
    with suppress(NotFoundError):
        daemon.ask("resolve", {"ref": "rusty door", "scope": "all"})


def grow(daemon: Daemon, writers: list[Writer]) -> None:
    """Append to some sessions, and wait until it is counted: in any order."""
    for one in writers:
        one.append()
    for one in writers[:: len(writers) // 20]:
        wait(partial(counted, daemon, one), "what was appended", 0.05)


def counted(daemon: Daemon, by: Writer) -> bool:
    """Whether the daemon counts all that was appended to a session."""
    told = daemon.ask("get", {"ref": by.id})["session"]["messageCount"]
    return bool(told == 2 + by.entries)


def started(bench: Bench, name: str, ours: Starts, empty: Starts) -> None:
    """Figures from exec on, beside a daemon that has nothing to know."""
    for what, mine, others in (
        ("exec to READY", ours.ready, empty.ready),
        ("exec to the first answer", ours.answered, empty.answered),
        ("exec to caught up", ours.scanned, empty.scanned),
        ("processor, exec to caught up", ours.spent, empty.spent),
    ):
        told: dict[str, Any] = {"limit": "with no sessions", "floor": 1000 * median(others)}
        told["ratio"] = ratio(mine, others)
        if mine is ours.ready:
            told |= {"target": Target(500), "note": TOLD}
        bench.add(f"{name}: {what}", 1000 * median(mine), "ms", **told)


def caught_up(
    bench: Bench, name: str, ours: Starts, found: dict[str, list[float]], files: int
) -> None:
    """What is done between READY and the end of catching up, beside what must be."""
    bare = found["stats"]
    told: dict[str, Any] = {"limit": "scandir + stat", "floor": 1000 * median(bare)}
    told["ratio"] = ratio(ours.caught_up, bare)
    bench.add(f"{name}: READY to caught up", 1000 * median(ours.caught_up), "ms", **told)
    over = [(one - least) / files for one, least in zip(ours.caught_up, bare, strict=True)]
    each = [one / files for one in found["stored"]]
    told = {"limit": "reading what is stored", "floor": 1e6 * median(each)}
    told |= {"ratio": ratio(over, each), "target": Target(15)}
    bench.add(f"{name}: over scandir + stat, a file", 1e6 * median(over), "us", **told)


def kept(bench: Bench, home: Home, name: str) -> None:
    """What the ledger takes on the disk, beside its rows written at once."""
    size = sum(home.stored(LEDGER + part) for part in ("", "-wal"))
    with looking(home.state / LEDGER) as db:
        db.execute("VACUUM INTO ?", (str(home.root / "least"),))
    least = (home.root / "least").stat().st_size
    told = {"limit": "its rows, written at once", "floor": least / 1e6}
    bench.add(f"{name}: the ledger", size / 1e6, "MB", **told)
    told = f"the ledger takes {size} bytes for rows of {least}"
    bench.check(told, ok=size <= LEDGER_MOST * least)


def looking(ledger: Path) -> closing[sqlite3.Connection]:
    """A connection that leaves the file and its log as they are."""
    return closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True))


def stored(ledger: Path) -> int:
    """Read what is stored of each file, and no more; how many they are."""
    with looking(ledger) as db:
        [table] = db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'files@_%' ESCAPE '@'")
        rows = db.execute(f"SELECT path, cursor, card FROM {table[0]}").fetchall()
    return len(rows)


def stats(top: str) -> int:
    """List all directories, and stat every file; how many there are."""
    count, stack = 0, [top]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                elif entry.name.endswith(".jsonl"):
                    entry.stat(follow_symlinks=False)
                    count += 1
    return count


# -- for the first time --------------------------------------------------------------------------


def first(bench: Bench, home: Home, files: int) -> None:
    """A cold start on a corpus of three agents, and what reading and parsing it costs."""
    each = CORPUS_BYTES * files // CORPUS_FILES // len(PARTS)
    made = [
        make(home.root / part, agent, files // len(PARTS), each, seed=number)
        for number, (agent, part) in enumerate(PARTS.items())
    ]
    paths = [Path(path) for one in made for path in one.files]
    size = sum(one.bytes for one in made)
    hide(paths[-1])
    words = planted(paths)
    bench.check("there are words to look for", ok=len(words) > 2)
    raw, plain, parsed = [], [], []
    known, taken, spent, peaks = [], [], [], []
    for _ in range(1 if bench.smoke else COLD):
        raw.append(wall(lambda: [one.read_bytes() for one in paths]))
        plain.append(wall(lambda: parsed.append(cpu(lambda: parse(paths)))))
        home.forget()
        with home.daemon(**QUIET) as daemon:
            known.append(daemon.scanned())
            taken.append(daemon.settled(len(paths)))
            spent.append(daemon.cpu())
            peaks.append(daemon.memory("VmHWM"))
            right(bench, daemon, paths, words)
    name = f"first start, {len(paths)} sessions, {size / 1e6:.0f} MB"
    for what, ours, least in (
        ("exec to all words searchable", taken, plain),
        ("exec to all sessions known", known, plain),
        ("processor", spent, parsed),
    ):
        told: dict[str, Any] = {"limit": "read + parse", "floor": median(least), "note": TOLD}
        bench.add(f"{name}: {what}", median(ours), "s", ratio=ratio(ours, least), **told)
    told = {"limit": "only reading", "floor": median(raw), "ratio": ratio(plain, raw)}
    bench.add(f"{name}: read + parse", median(plain), "s", **told)
    told = {"limit": "imports alone", "floor": imports(), "target": Target(90)}
    bench.add(f"{name}: most memory", max(peaks), "MB", **told)


def right(bench: Bench, daemon: Daemon, paths: list[Path], words: list[tuple[str, Path]]) -> None:
    """Hold what the daemon knows after a first start against the files."""
    known = daemon.ask("status")["sessions"]
    bench.check(f"{len(paths)} sessions are known, not {known}", ok=known == len(paths))
    bench.check("no secret is found", ok=not daemon.ask("search", {"query": SECRET})["hits"])
    for path in [path for path in paths if PARTS["pi"] in str(path)][:20]:
        row = daemon.ask("get", {"ref": path.stem.rpartition("_")[2]})["session"]
        told = {one.removeprefix(row["cwd"] + "/") for one in row["filesModified"]}
        bench.check(f"what was changed in {path.name}", ok=changed(path, told))
    for word, path in words:
        hits = daemon.ask("search", {"query": word, "limit": 50})["hits"]
        found = {one["sessionId"] for one in hits}
        bench.check(
            f"{word} is found in {path.name} alone",
            ok=len(found) == 1 and found.pop() in path.name,
        )


def parse(paths: list[Path]) -> int:
    """Every line of every file, as plain values."""
    decode = msgspec.json.decode
    count = 0
    for path in paths:
        for one in path.read_bytes().splitlines():
            decode(one)
            count += 1
    return count


def planted(paths: list[Path]) -> list[tuple[str, Path]]:
    """Give some files a word that no other has, in the place of one that their user said."""
    chosen = random.Random(2)
    found: list[tuple[str, Path]] = []
    for number, path in enumerate(chosen.sample(paths, min(len(paths), 30))):
        data = path.read_bytes()
        words = set(re.findall(r"\b[a-z]{6,14}\b", " ".join(asked(data))))
        for word in sorted(words):
            if f'"{word}"'.encode() not in data:  # it may be a key
                new = f"quokka{chr(97 + number % 26) * (1 + number // 26)}lith"
                path.write_bytes(re.sub(rb"\b%s\b" % word.encode(), new.encode(), data))
                found.append((new, path))
                break
    return found


def hide(path: Path) -> None:
    """Have a user say a secret: what is searchable must be without it."""
    data = path.read_bytes()
    word = max(re.findall(r"\b[a-z]{3,14}\b", asked(data)[0]), key=len)
    path.write_bytes(re.sub(rb"\b%s\b" % word.encode(), SECRET.encode(), data))


def changed(path: Path, told: set[str]) -> bool:
    """Whether files are told of as changed in a session of pi, and none that were not."""
    wrote = {
        part["arguments"].get("path")
        for one in path.read_bytes().splitlines()
        for part in msgspec.json.decode(one).get("message", {}).get("content", ())
        if isinstance(part, dict) and part.get("name") in ("edit", "write")
    }
    return told <= wrote and bool(told) == bool(wrote)


def asked(data: bytes) -> list[str]:
    """What the user typed, by any of the three agents, every line parsed in full."""
    found: list[str] = []
    for one in data.splitlines():
        held = msgspec.json.decode(one)
        said = held.get("message") or held.get("payload", {}).get("item") or {}
        if "user" not in (said.get("role"), said.get("type", "")[:4].lower()):
            continue
        content = said["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        found += [part["text"] for part in parts if part.get("text")]
    return found


if __name__ == "__main__":
    sys.exit(main())
