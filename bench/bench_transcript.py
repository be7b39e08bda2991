"""Describing a session again after one more turn: does it cost more where the session is long?

    python bench/bench_transcript.py [--smoke] [--rounds N]

Sessions of pi of 1, 20 and 200 MB, which all end with the same megabyte, are read and described
once; 40 % of what comes before are pictures. Then, in turns, one more turn is appended to each, and
the processor time is measured of what the daemon does about it, by its own functions, in this
process: taking in the new lines (`follow`), putting the transcript together from its end
(`transcript`), the whole run with words, built-in model and meta file (`re-index`), and keeping the
session's tree in the ledger.

The limit of a long session is the same of the 1 MB: all but the last turn is old. That of the 1 MB
is the plain way, in the same rounds: parse the appended lines; parse the whole file, walk from its
last entry to the root, join, keep the end; the same, and a meta file written durably. The tree is
stored as one value, which grows with the session: its limit is, of each size, a bare SQLite write
of as many bytes.

What is checked: the transcript is that of the plain way, and what the ledger has is a tree of all
entries, the last of them its leaf.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench_write import durably
from corpus import make
from corpus_text import Draw
from home import Home, message
from measure import Bench, Target, cpu, in_turns, ratio

from indexerd.daemon.forgotten import Forgotten, GuardedWriter
from indexerd.daemon.library import Library
from indexerd.indexing.indexer import Indexer
from indexerd.indexing.snapshot import take
from indexerd.indexing.transcript import MARKER, Caps
from indexerd.models.budget import Budget
from indexerd.models.extractive import Extractive
from indexerd.models.telemetry import Telemetry
from indexerd.privacy.redactor import redactor
from indexerd.sessions.state import SessionState
from indexerd.settings import Settings
from indexerd.sources.stores import stores
from indexerd.store.catalog import Catalog
from indexerd.store.ledger import Ledger

SIZES, SMALL = (1, 20, 200), (1, 2)
PICTURES = 0.4
STEPS = ("follow", "transcript", "re-index", "ledger")
TALK = 100  # messages of the last megabyte that are words alone
LIMIT = 1.2  # of what it costs at 1 MB
PLAIN = {
    "follow": "parsing the two lines",
    "transcript": "parsing the file, joining",
    "re-index": "parsing, joining, writing durably",
    "ledger": "a bare SQLite write of the tree",
}


class Long:
    """One long session, and the library that knows it."""

    def __init__(self, bench: Bench, home: Home, megabytes: int, stack: ExitStack) -> None:
        self.bench = bench
        self.path = long_session(home, megabytes)
        self.id = json.loads(self.path.open("rb").readline())["id"]
        self.last = json.loads(self.path.read_bytes().splitlines()[-1])["id"]
        self.turns = 0
        self.settings = Settings(model_keys=["local/extractive"])
        self.spent: dict[str, float] = {}
        self.plain: dict[str, float] = {}
        self.meta = b""
        self.root, state = home.root, home.root / "state"
        state.mkdir()
        self.stored = sqlite3.connect(state / "ledger.sqlite")
        self.bare = bare_store(home.root / "bare.sqlite")
        stack.callback(self.stored.close)
        stack.callback(self.bare.close)
        self.library = library(home, self.settings)
        stack.callback(self.library.close)
        self.indexer = indexer(self.library, state, self.settings)
        self.library.load()
        for _ in self.library.scan():
            pass
        while self.library.texts.step():
            pass
        self.round()
        self.plainly(small=True)

    def round(self) -> None:
        """Append a turn, and do what the daemon does; what each step cost is in `spent`."""
        self.before = self.path.stat().st_size
        self.append()
        did: dict[str, Callable[[], object]] = {
            "follow": lambda: list(self.library.hinted([str(self.path)])),
            "transcript": self.transcript,
            "re-index": lambda: asyncio.run(self.run()),
            "ledger": self.library.checkpoint,
        }
        self.spent = {name: cpu(step) for name, step in did.items()}

    def plainly(self, *, small: bool) -> None:
        """The limits; what each cost is in `plain`. Where it is not small, only the ledger's."""
        tree = self.tree()
        did: dict[str, Callable[[], object]] = {}
        if small:
            did["follow"] = lambda: parsed(self.path, self.before)
            did["transcript"] = self.slow
            did["re-index"] = lambda: (self.slow(), durably(self.root / "plain", self.meta))
        did["ledger"] = lambda: put(self.bare, tree)
        self.plain = {name: cpu(step) for name, step in did.items()}

    def tree(self) -> bytes:
        """What the ledger has of the session's tree, on the disk."""
        rows = self.stored.execute("SELECT state FROM files_3 WHERE state IS NOT NULL").fetchall()
        self.bench.check("the ledger has the one session", ok=len(rows) == 1)
        return bytes(rows[0][0])

    def append(self) -> None:
        """One more turn, as pi writes it."""
        self.turns += 1
        asked = f"Please mend the lock of cellar door {self.turns}: it does not turn."
        told = "Done: the spring was rusty, and we decided to oil it before using force. " * 4
        with self.path.open("ab") as file:
            for role, text in (("user", asked), ("assistant", told)):
                entry_id = f"f{self.turns:06d}{role[0]}"
                file.write(message(entry_id, self.last, role, text, time.time()))
                self.last = entry_id

    def transcript(self) -> str:
        """What would be sent."""
        caps = Caps(self.settings.index.max_bytes, self.settings.index.max_lines)
        told = take(self.library, self.id, caps, redactor(self.settings))
        return told.transcript.text

    async def run(self) -> None:
        """Describe the session."""
        done = await self.indexer.run(self.id, self.settings, [Extractive()])
        self.meta = (Path(done.directory) / f"{self.id}.meta.json").read_bytes()
        leaf = json.loads(self.meta)["lastIndexedLeafId"]
        self.bench.check("the meta file names the last answer", ok=leaf == self.last)
        self.library.written(self.id, done.directory)

    def slow(self) -> str:
        """The transcript, the slow way."""
        return slowly(self.path, self.settings.index.max_bytes, self.settings.index.max_lines)

    def right(self) -> None:
        """Hold the transcript and the stored tree against the slow way."""
        slow = self.slow()
        size = self.path.stat().st_size // 1_000_000
        self.bench.check(f"the transcript of {size} MB", ok=self.transcript() == slow)
        self.bench.check(f"that of {size} MB is cut", ok=MARKER in slow)
        held = SessionState.decode(self.tree(), str(self.path))
        entries = self.path.read_bytes().count(b"\n") - 1
        self.bench.check(f"the stored tree of {size} MB is whole", ok=len(held) == entries)
        leaf = held.ids[held.leaf].decode()
        self.bench.check(f"that of {size} MB ends with the last", ok=leaf == self.last)


def long_session(home: Home, megabytes: int) -> Path:
    """A session of so many megabytes; the last is always the same, and has enough words."""
    made = make(home.root / ".pi/agent", "pi", 1, 900_000, 1)
    path = Path(made.files[0])
    head, first, *rest = path.read_bytes().splitlines(keepends=True)
    old = make(home.root / "old", "pi", 1, 4_000_000, 2, PICTURES)
    rows = Path(old.files[0]).read_bytes().splitlines(keepends=True)[1:]
    kinds = [row.split(b'"', 4)[3] for row in rows]
    afters = [row[row.index(b',"timestamp"') :] for row in rows]
    size, number, above = path.stat().st_size + TALK * 1000, 0, b"null"
    with path.open("wb") as file:
        file.write(head)
        while size < megabytes * 1_000_000:
            at = number % len(rows)
            told = (kinds[at], number, above, afters[at])
            size += file.write(b'{"type":"%s","id":"%08x","parentId":%s%s' % told)
            above, number = b'"%08x"' % number, number + 1
        draw, parent = Draw(3, 1 << 18), json.loads(above)
        for turn in range(TALK):
            entry_id, said = f"e{turn:07d}", json.loads(b'"%s"' % draw.filler(700))
            file.write(message(entry_id, parent, ("user", "assistant")[turn % 2], said, 1.7e9))
            parent = entry_id
        file.write(first.replace(b'"parentId":null', b'"parentId":"%s"' % parent.encode(), 1))
        file.writelines(rest)
    return path


def library(home: Home, settings: Settings) -> Library:
    """All that is known of the sessions of a home, as the daemon puts it together."""
    state = home.root / "state"

    def failed(*told: object) -> None:
        raise SystemExit(f"it failed: {told}")

    return Library(
        Ledger(state / "ledger.sqlite"),
        Catalog.open(state / "catalog.sqlite"),
        stores=lambda: stores(settings, {}, home.root),
        exclude=list,
        report=failed,
        defect=failed,
    )


def indexer(held: Library, state: Path, settings: Settings) -> Indexer:
    """What describes sessions, as the daemon puts it together."""
    told: list[Any] = []

    async def at_once(work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)

    budget = Budget(
        state / "budget.jsonl", lambda: settings, time.time, lambda *one: told.append(one)
    )
    return Indexer(
        held,
        reader=at_once,
        budget=budget,
        telemetry=Telemetry(state / "telemetry.jsonl"),
        writer=GuardedWriter(Forgotten(state)),
        notify=lambda *one: told.append(one),
        clock=time.time,
    )


def slowly(path: Path, most_bytes: int, most_lines: int) -> str:
    """The transcript by the obvious way: parse all, walk to the root, join, keep the end."""
    entries = {}
    for row in path.read_bytes().splitlines():
        held = json.loads(row)
        if "id" in held and held["type"] != "session":
            entries[held["id"]] = held
            last = held["id"]
    said: list[str] = []
    at: str | None = last
    while at is not None:
        entry = entries[at]
        at = entry["parentId"]
        told = entry.get("message", {})
        if told.get("role") in ("user", "assistant"):
            parts = (one["text"].strip() for one in told["content"] if one["type"] == "text")
            text = "\n".join(one for one in parts if one)
            said += [f"{told['role'].capitalize()}: {text}"] if text else []
    lines = "\n\n".join(reversed(said)).split("\n")
    kept = lines[-most_lines:]
    left = most_bytes + 1 - sum(len(one.encode()) + 1 for one in kept)
    gone = 0
    while left < 0:
        left += len(kept[gone].encode()) + 1
        gone += 1
    cut = f"\n\n{MARKER}" if len(kept) - gone < len(lines) else ""
    return "\n".join(kept[gone:]) + cut


def parsed(path: Path, start: int) -> list[Any]:
    """The lines of a file from a place on."""
    with path.open("rb") as file:
        file.seek(start)
        return [json.loads(row) for row in file.read().splitlines()]


def bare_store(path: Path) -> sqlite3.Connection:
    """A table of one value; what is overwritten in it is not wiped."""
    made = sqlite3.connect(path, isolation_level=None)
    made.execute("PRAGMA journal_mode=WAL")
    made.execute("PRAGMA synchronous=NORMAL")
    made.execute("PRAGMA secure_delete=OFF")
    made.execute("CREATE TABLE one (id INTEGER PRIMARY KEY, held BLOB)")
    return made


def put(store: sqlite3.Connection, held: bytes) -> None:
    """The least: one statement."""
    store.execute("INSERT OR REPLACE INTO one VALUES (1, ?)", (held,))


def main() -> int:
    bench = Bench("transcript", "One more turn of a long session")
    bench.options.add_argument("--rounds", type=int, default=9)
    rounds = 1 if bench.smoke else bench.asked.rounds
    sizes = SMALL if bench.smoke else SIZES
    with ExitStack() as stack:
        held = {one: Long(bench, stack.enter_context(Home()), one, stack) for one in sizes}
        methods = {str(one): turn(long) for one, long in held.items()}
        spent: dict[int, list[dict[str, float]]] = {one: [] for one in sizes}
        plain: dict[int, list[dict[str, float]]] = {one: [] for one in sizes}
        for _ in range(rounds):
            in_turns(methods, 1, warm=0)
            for one in sizes:
                held[one].plainly(small=one == sizes[0])
                spent[one].append(held[one].spent)
                plain[one].append(held[one].plain)
        for long in held.values():
            long.right()
    report(bench, sizes, spent, plain)
    return bench.end()


def report(
    bench: Bench,
    sizes: tuple[int, ...],
    spent: dict[int, list[dict[str, float]]],
    plain: dict[int, list[dict[str, float]]],
) -> None:
    """Each step of each size, beside the plain way or beside the smallest session."""
    first = sizes[0]
    for step in STEPS:
        for size in sizes:
            itself = size == first or step == "ledger"
            ours = [one[step] for one in spent[size]]
            least = [one[step] for one in (plain[size] if itself else spent[first])]
            told: dict[str, Any] = {"limit": PLAIN[step] if itself else f"{first} MB"}
            told |= {"floor": 1000 * median(least), "ratio": ratio(ours, least)}
            if step in STEPS[1:3] and not itself:
                told["target"] = Target(LIMIT, of="ratio")
            bench.add(f"{step}, one turn more, {size} MB", 1000 * median(ours), "ms", **told)


def turn(long: Long) -> Callable[[], float]:
    """One round of a session: seconds of the processor."""
    return lambda: cpu(long.round)


if __name__ == "__main__":
    sys.exit(main())
