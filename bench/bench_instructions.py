"""Instructions of what is asked and taken in, each beside the plain way for the same.

    python bench/bench_instructions.py [--smoke]

Some hundred sessions are read, described and stored by this process, which counts nothing. Another
one opens what was stored, and does by turns what the daemon does and what the plain way would be:
a search, a page, one session, lines that were appended, a sweep that finds nothing new, a scan, and
a round trip on the socket. Callgrind counts it: figures that no noise changes, but of the program
alone, without the kernel's share. The plain ways are those of one SQLite file with rows, an index
for what is asked, and one FTS5 table; of orjson; and of scandir and stat.

What both answered while they were counted is compared with one another, and with what every line
of every file says. Without valgrind it is done all the same, and nothing is counted.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import corpus
from bench_socket import ECHO, ask, connect, right
from bench_socket import request as question
from home import Home, append, message
from instruction_works import FEW, TRIPS, Ours, Plain, Served, fill, opened, scans
from instructions import Program, serve, why_not
from measure import Bench
from scan_methods import PARSER, Corpus, full, truth_of

from indexerd.daemon.process import settle_memory
from indexerd.meta.model import MetaFile, Usage
from indexerd.meta.writer import MetaWriter

WORKS = "--works"
GROWN = 8  # sessions that get a line
WARM = 2  # times that all is done before it is counted
OFTEN = 2  # common words
LONG, MOST = 7, 20  # letters of a rare word, at least one more; hits
Told = dict[str, list[Any]]

PARSED = PARSER.replace(" / 0.92", "")
BOTH = ("", ", plain")
CHANGED = ("leafId", "modifiedAt", "messageCount")  # by a line


class Counting(NamedTuple):
    """A work that is counted, beside the same with `, plain` behind its name."""

    work: str
    told: str
    unit: str
    limit: str
    times: int  # that it is done in one go


def figures(lines: dict[str, int], files: int) -> Iterator[Counting]:
    """What is counted; `lines` of each agent's files that are scanned, `files` that are swept."""
    yield Counting("rare", "search, a rare word", "instr/search", "FTS5, bm25", FEW)
    yield Counting("common", "search, a common word", "instr/search", "FTS5, bm25", OFTEN)
    yield Counting("page", "list, a page of 50", "instr/page", "SQLite select", FEW)
    yield Counting("get", "get, by id", "instr/get", "SQLite select + read", FEW)
    yield Counting("named", "get, by name", "instr/get", "SQLite select + read", FEW)
    yield Counting("sweep", "a sweep, nothing changed", "instr/file", "scandir + stat", files)
    yield Counting(
        "append", "an append taken in", "instr/append", f"{PARSED} + a row stored", GROWN
    )
    yield Counting("words", "its words", "instr/append", "FTS5 insert", GROWN)
    for agent, many in lines.items():
        yield Counting(agent, f"scan, {agent}", "instr/line", PARSED, many)
    yield Counting("texts", "scan with all texts, pi", "instr/line", PARSED, lines["pi"])
    yield Counting("socket", "resolve, the server alone", "instr/answer", "echo", TRIPS)


# -- what there is -------------------------------------------------------------------------------


class Made:
    """Sessions, and what is asked of them; the same for both processes, as `plan` tells it."""

    def __init__(self, home: Home, sessions: int) -> None:
        self.root = home.root
        made = corpus.make(home.root / ".pi/agent", "pi", sessions, 14_000 * sessions, 7)
        self.files = made.files
        self.ids = [Path(one).stem.rpartition("_")[2] for one in made.files]
        self.owners = dict(zip(made.files, self.ids, strict=True))
        self.texts = {own: truth_of("pi", path).said for path, own in self.owners.items()}
        for number, own in enumerate(self.ids[: 4 * FEW]):
            held = described(own, number, "")
            self.texts[own] += [held.name, held.description, held.summary, *held.tags]
        self.tokens = {own: tokens(texts) for own, texts in self.texts.items()}
        often = Counter(word for words in self.tokens.values() for word in words)
        self.words = [*_rare(often), *_common(often)]
        self.scans = {
            agent: corpus.make(home.root / agent, agent, 2, 200_000, 8).files
            for agent in corpus.AGENTS
        }
        self.grown = made.files[-GROWN:]
        self.late = made.files[:GROWN]  # what grows at the very end, and never before
        self.leaves = {path: truth_of("pi", path).leaf for path in (*self.grown, *self.late)}
        self.leaves_then = self.leaves  # before the last line
        self.said = [word_of(WARM + 1, number) for number in range(GROWN)]
        self.turn = 0
        self._store()

    def _store(self) -> None:
        (self.root / "state").mkdir()
        library = opened(self.root)
        library.load()
        for _ in library.scan():
            pass
        for number, session_id in enumerate(self.ids[: 4 * FEW]):
            where = library.home(session_id)
            card = library.files.card(session_id)
            assert where is not None
            assert card is not None
            MetaWriter().write_meta(Path(where), described(session_id, number, card.leaf_id or ""))
            library.written(session_id, where)
        while library.texts.step():
            pass
        library.checkpoint()
        fill(self.root, library, self.texts)
        library.close()

    def plan(self) -> str:
        """What the other process is told."""
        return json.dumps(
            {
                "rare": self.words[:FEW],
                "common": self.words[FEW:],
                "said": self.said,
                "ids": self.ids[:FEW],
                "names": [name_of(number) for number in range(FEW, 2 * FEW)],
                "grown": self.grown,
                "scans": self.scans,
            }
        )

    def grow(self, paths: list[str]) -> None:
        """A line more for each of some sessions, as pi writes it."""
        self.turn += 1
        self.leaves_then = dict(self.leaves)
        for number, path in enumerate(paths):
            entry, word = f"e{self.turn:04d}{number:03d}", word_of(self.turn, number)
            said = f"Oiled: {word}. " + "The spring was rusty, and the key is bent. " * 7
            append(path, message(entry, self.leaves[path], "assistant", said, time.time()))
            self.leaves[path] = entry
            self.tokens[self.owners[path]] |= tokens([said])

    def lines(self) -> dict[str, int]:
        """How many lines of each agent are scanned."""
        return {agent: full(Corpus("", agent, one, 0, 0)) for agent, one in self.scans.items()}

    def has_all(self, word: str, ours: str, plain: list[list[str]]) -> bool:
        """Whether both ways found the sessions that have a word, or twenty of them."""
        hits = json.loads(ours)["result"]["hits"]
        found = [{one["sessionId"] for one in hits}, {session for session, _ in plain}]
        holders = {own for own, words in self.tokens.items() if word in words}
        shown = [*(one["snippet"] for one in hits), *(snippet for _, snippet in plain)]
        marked = all("«" in one for one in shown)
        if len(holders) < len(hits):
            return False
        if len(holders) < MOST:
            return marked and found == [holders, holders]
        return marked and len(hits) == len(plain) == MOST and found[0] | found[1] <= holders


def tokens(texts: list[str]) -> set[str]:
    """The words of some texts."""
    return {word for text in texts for word in re.findall(r"\w+", text.lower())}


def _rare(often: Counter[str]) -> list[str]:
    """Words of one session, which begin as no other does."""
    begun = Counter(word[:6] for word in often)
    plain = (one for one in often if one.isascii() and one.isalpha() and len(one) > LONG)
    return sorted(one for one in plain if often[one] == 1 and begun[one[:6]] == 1)[:FEW]


def _common(often: Counter[str]) -> list[str]:
    return [one for one, _ in often.most_common() if len(one) > 1][:OFTEN]


def name_of(number: int) -> str:
    """The name of a session that was described."""
    return f"Mend door {number} of the cellar"


def word_of(turn: int, number: int) -> str:
    """A word that no other line has."""
    return f"zq{turn}x{number}qz"


def described(session_id: str, number: int, leaf: str) -> MetaFile:
    """A meta file, as a short session has it."""
    return MetaFile(
        session_id=session_id,
        session_file=f"/sessions/{session_id}.jsonl",
        name=name_of(number),
        description="The lock was rusty and did not turn. It was oiled, and a spare key was cut.",
        summary="## Goal\n- open the door\n\n## Key Decisions\n" + "- oil before force\n" * 20,
        tags=["lock", "door", "oil"],
        cwd="/home/dev/project",
        created_at="2026-11-01T10:00:00Z",
        updated_at="2026-11-01T10:00:00Z",
        model="local/extractive",
        last_indexed_leaf_id=leaf,
        agent="pi",
        usage=Usage(calls=1),
    )


# -- counting ------------------------------------------------------------------------------------


class Counted:
    """The works, done by the other process: to warm up, and then to be counted."""

    def __init__(self, program: Program, made: Made) -> None:
        self.program, self.made = program, made
        self.trips: dict[str, list[bytes]] = {}

    def both(self, work: str, do: Callable[..., int | None]) -> list[int]:
        """Our way and the plain one; sessions grow ahead of what takes that in."""
        if work == "append":
            self.made.grow(self.made.grown)
        return [do(name, self.beside(name)) or 0 for name in (work, f"{work}, plain")]

    def beside(self, work: str) -> Callable[[], object]:
        """What is done here meanwhile."""
        return (lambda: self.ask(work)) if work.startswith("socket") else list

    def ask(self, work: str) -> None:
        with connect(str(self.made.root / work)) as sock:
            asked = "get" if work.endswith("plain") else "resolve"
            self.trips[work] = [ask(sock, question(asked, n)) for n in range(TRIPS)]

    def warm(self, told: list[Counting]) -> None:
        """Do all, as often as it takes until nothing is done for the first time."""
        for _ in range(WARM):
            for one in told:
                self.both(one.work, self.program.do)
        self.program.do("sweep, plain")  # it was not told of what has grown


def child(root: Path) -> int:
    """The process that is looked at."""
    plan = json.loads((root / "plan.json").read_text())
    ours = Ours(root, plan)
    works = ours.works() | Plain(root, plan).works() | scans(plan)
    works |= Served(root).works()
    settle_memory()
    serve(works, root / "answers")
    os._exit(0)


def main() -> int:
    """Make, count, compare."""
    if sys.argv[1:2] == [WORKS]:
        return child(Path(sys.argv[2]))
    bench = Bench("instructions", "Counted instructions: what is asked and taken in")
    small, reason = bench.smoke, "" if bench.smoke else why_not()
    with Home() as home:
        made = Made(home, 60 if small else 200)
        told = list(figures(made.lines(), len(made.files)))
        (home.root / "plan.json").write_text(made.plan())
        argv = [sys.executable, __file__, WORKS, str(home.root)]
        counting = not (reason or small)
        with Program(argv, home.root, counting=counting) as program:
            one = Counted(program, made)
            one.warm(told)
            reason = program.begin() or reason
            for each in told:
                ours, plain = one.both(each.work, program.count)
                if counting and not reason:
                    add(bench, each, ours, plain)
            program.rest()
            for work in ("rows", "said", "sweep"):
                one.both(work, program.do)
            made.grow(made.late)
            one.both("sweep", program.do)
            checked(bench, made, program.end(), one.trips)
    if reason:
        print(f"all was done, and nothing counted: {reason}", file=sys.stderr)
    return bench.end()


def add(bench: Bench, one: Counting, ours: int, plain: int) -> None:
    """One figure beside its limit."""
    bench.add(
        one.told,
        ours / one.times,
        one.unit,
        limit=one.limit,
        floor=plain / one.times,
    )


# -- what was found ------------------------------------------------------------------------------


def checked(bench: Bench, made: Made, told: Told, trips: dict[str, list[bytes]]) -> None:
    """Hold what was answered last against the plain way, and against every line."""
    last = {name: many[-1] for name, many in told.items() if many}
    asked = {"rare": made.words[:FEW], "common": made.words[FEW:], "said": made.said}
    for kind, words in asked.items():
        for word, *found in zip(words, last[kind], last[f"{kind}, plain"], strict=True):
            bench.check(f"{kind}: what is found of {word!r}", ok=made.has_all(word, *found))
    pages = [[results(one)["sessions"] for one in last[f"page{way}"]] for way in BOTH]
    bench.check("list: both pages are the same", ok=pages[0] == pages[1])
    bench.check("list: a page has 50 rows", ok={len(one) for one in pages[0]} == {50})
    for kind, first in (("get", 0), ("named", FEW)):
        ours, plain = ([results(one) for one in last[kind + way]] for way in BOTH)
        same = all(one | two == one for one, two in zip(ours, plain, strict=True))
        names = [one["meta"]["name"] for one in ours]
        bench.check(f"{kind}: both are the same", ok=same)
        wanted = [name_of(number) for number in range(first, first + FEW)]
        bench.check(f"{kind}: it is who was asked for", ok=names == wanted)
    grown(bench, made, last)
    for agent, files in made.scans.items():
        truths = [truth_of(agent, one) for one in files]
        rows = sum(len(one.parents) for one in truths)
        bench.check(f"scan, {agent}: all rows are known", ok=last[agent] == rows)
        if agent == "pi":
            said = sum(len(text) for one in truths for text in one.said)
            bench.check(f"scan, {agent}: all texts are read", ok=last["texts"] == said)
    for work, method in (("socket", "resolve"), ("socket, plain", ECHO)):
        wrong = [n for n, came in enumerate(trips[work]) if not right(method, n, came)]
        bench.check(f"{work}: {len(wrong)} answers are not of what was asked", ok=not wrong)


def grown(bench: Bench, made: Made, last: dict[str, Any]) -> None:
    """What is known of the sessions that got a line, and of those that got one since."""
    ids, late = ([made.owners[path] for path in some] for some in (made.grown, made.late))
    rows = [[[row[key] for key in CHANGED] for row in last[f"rows{way}"]] for way in BOTH]
    leaves = [made.leaves_then[path] for path in made.grown]
    bench.check("append: both know the same", ok=rows[0] == rows[1])
    bench.check("append: the line is the leaf", ok=[one[0] for one in rows[0]] == leaves)
    bench.check("append: each is told of", ok=last["append"] == last["append, plain"] == ids)
    bench.check("sweep: it finds what has grown", ok=sorted(last["sweep"]) == sorted(late))
    files = sorted(last["sweep, plain"])
    bench.check("sweep: so does the plain one", ok=files == sorted(made.late))


def results(line: str) -> dict[str, Any]:
    """An answer, without what says nothing, and what a line's time makes of it."""

    def told(held: dict[str, Any]) -> dict[str, Any]:
        return {key: one for key, one in held.items() if one is not None and key != "durationMs"}

    found: dict[str, Any] = json.loads(line, object_hook=told)["result"]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
