"""What is done to our books, caches and files step by step, and what is found of it afterwards.

A journey is a directory as it is before (`prepare`), what is done to it (`steps`: each `yield`
promises what was done so far), and what is found there afterwards (`look`, which fails where
something is torn). `beside` is a directory that no crash touches: there the test writes session
files, a provider keeps its bill, and promises are noted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexerd.daemon.library import Library
from indexerd.disk import RotatingFile
from indexerd.errors import ProviderError
from indexerd.events import Prompt
from indexerd.meta import reader as metas
from indexerd.meta.model import UserFile
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Reply, Tokens
from indexerd.models.budget import Budget
from indexerd.models.journal import Journal
from indexerd.models.scripted import Scripted
from indexerd.search.index import Message
from indexerd.search.ranking import search
from indexerd.sessions.state import SessionState
from indexerd.settings import Settings
from indexerd.sources.cursor import Cursor
from indexerd.sources.stores import Store
from indexerd.store.store import StateStore
from tests.meta.writer_driver import SESSION, meta
from tests.store.rows import caches, row

FLASH = "google/gemini-3.5-flash-lite"
WISH = 3600.0  # seconds of rest that the provider asks for
Steps = Iterator[None]
_Held = tuple[Cursor, bytes, bytes | None]


@dataclass(frozen=True)
class Journey:
    """What is done, and how it is found."""

    prepare: Callable[[Path, Path], None]
    steps: Callable[[Path, Path], Steps]
    look: Callable[[Path, Path], Any]


def note(path: Path, text: str) -> None:
    """One word more in a file beside."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, text.encode())
    os.close(fd)


def nothing(_directory: Path, _beside: Path) -> None:
    """There is nothing before."""


# -- the books -----------------------------------------------------------------------------------


def budget(directory: Path) -> Budget:
    """The books of a daemon that has just started."""
    found = Budget(directory / "budget.jsonl", Settings, time.time, lambda _event, _fields: None)
    found.load()
    return found


def spend(directory: Path, beside: Path) -> Steps:
    """A call that is answered, and one whose provider wants to be left alone."""
    books, model = budget(directory), Scripted([], key=FLASH)
    prompt, tokens = Prompt("", "Describe this.", {}, 100), Tokens(input=400, output=90)
    reply = Reply("{}", FLASH.partition("/")[2], tokens=tokens)
    with asyncio.Runner() as runner:
        ticket = runner.run(books.reserve(model, prompt))
        yield
        note(beside / "bill", "0.0003\n")  # whoever is asked is to be paid
        runner.run(books.settle(ticket, reply))
        yield
        ticket = runner.run(books.reserve(model, prompt))
        yield
        note(beside / "bill", "0\n")
        bad = ProviderError("429", retry_after=WISH, throttled=True)
        runner.run(books.failed(ticket, bad))
        yield


def books_found(directory: Path, _beside: Path) -> dict[str, Any]:
    """What the next daemon knows of what was spent, and whether the provider has its rest."""
    rows = list(Journal(directory / "budget.jsonl").rows())
    account = budget(directory).account
    rests = [one.until for one in budget(directory).breakers.values() if one.until > time.time()]
    Journal(directory / "budget.jsonl").append({"op": "note"})  # the next row stands by itself
    after = list(Journal(directory / "budget.jsonl").rows())
    assert after == [*rows, {"op": "note"}]
    return {
        "seen": [row["op"] for row in rows],
        "calls": account.calls,
        "usd": account.usd,
        "refunded": any(row["op"] == "settle" and row["usd"] == 0 for row in rows),
        "rests": bool(rests),
    }


# -- meta files and what stands beside them --------------------------------------------------------


def _written(directory: Path, generation: int) -> Steps:
    writer, held = MetaWriter(), directory / "sessions-meta"
    writer.write_meta(held, meta(generation))
    yield
    lines = [{"generation": generation, "n": n} for n in range(3 + generation)]
    writer.write_digest(held, SESSION, lines)
    yield
    writer.write_user(held, SESSION, UserFile.model_validate({"title": f"title {generation}"}))
    yield


def _write_old(directory: Path, _beside: Path) -> None:
    for _ in _written(directory, 0):
        pass


def _write_new(directory: Path, _beside: Path) -> Steps:
    return _written(directory, 1)


def files_found(directory: Path, _beside: Path) -> dict[str, Any]:
    """Which files are new, each of them whole; and that what was left is swept."""
    held = directory / "sessions-meta"
    found = metas.read_meta(held / f"{SESSION}.meta.json")
    user = metas.read_user(held / f"{SESSION}.user.json")
    assert found is not None
    assert user is not None
    assert found == meta(int(found.last_indexed_leaf_id))
    segments = [json.loads(one) for one in (held / f"{SESSION}.digest.jsonl").open()]
    generation = segments[0]["generation"]
    assert segments == [{"generation": generation, "n": n} for n in range(3 + generation)]
    MetaWriter().sweep(held)
    assert len(os.listdir(held)) == 3
    news = [int(found.last_indexed_leaf_id), generation, int((user.title or "")[-1])]
    assert news == sorted(news, reverse=True)
    return {"seen": ["new"] * sum(news)}


# -- the audit trail -------------------------------------------------------------------------------


def _trail(directory: Path, first: int, last: int) -> Steps:
    for number in range(first, last):
        assert RotatingFile(directory / "trail", limit=100, keep=2).append(b"%040d" % number)
        yield


def _trail_old(directory: Path, _beside: Path) -> None:
    for _ in _trail(directory, 0, 5):
        pass


def _trail_new(directory: Path, _beside: Path) -> Steps:
    return _trail(directory, 5, 10)


def trail_found(directory: Path, _beside: Path) -> dict[str, Any]:
    """The lines over all the files, oldest first: no gap, no torn one but the last."""
    data = b""
    for name in ("trail.2", "trail.1", "trail"):
        path = directory / name
        data += path.read_bytes() if path.exists() else b""
    numbers = [int(one) for one in data.splitlines() if len(one) == 40]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert 2 <= len(numbers) <= 6
    assert RotatingFile(directory / "trail", limit=100, keep=2).append(b"%040d" % 99)
    assert (directory / "trail").read_bytes().splitlines()[-1] == b"%040d" % 99
    return {"seen": list(range(5, numbers[-1] + 1))}


# -- the caches ------------------------------------------------------------------------------------


def _state(number: int) -> bytes:
    return b"state %d " % number + b"x" * 20_000


def _cursor(number: int) -> Cursor:
    return Cursor(1, 2, 100 + number, -1, 50 + number, 50, b"h" * 8, b"t" * 8)


def _store_old(directory: Path, _beside: Path) -> None:
    with closing(StateStore(directory / "store.sqlite")) as ledger:
        ledger.put_files(
            (f"/{name}", _cursor(0), b"card 0", _state(0)) for name in ("grown", "gone", "still")
        )
        ledger.note("topic", "key", b"0")


def _store_new(directory: Path, _beside: Path) -> Steps:
    ledger = StateStore(directory / "store.sqlite")
    ledger.put_files(
        [
            ("/grown", _cursor(1), b"card 1", _state(1)),
            ("/still", _cursor(1), b"card 1", None),
            ("/new", _cursor(1), b"card 1", _state(1)),
        ]
    )
    yield
    ledger.forget_files(["/gone"])
    yield
    ledger.fold()
    yield
    ledger.note("topic", "key", b"1")
    yield
    ledger.close()
    yield


def store_found(directory: Path, _beside: Path) -> dict[str, Any]:
    """How many of the transactions are in it: the first ones, each whole."""
    with closing(StateStore(directory / "store.sqlite")) as ledger:
        _sound(directory / "store.sqlite")
        assert not ledger.made
        held = {path: (at, card, ledger.state(path)) for path, at, card in ledger.cards()}
        value = ledger.notes("topic")["key"]
    old: _Held = (_cursor(0), b"card 0", _state(0))
    new: _Held = (_cursor(1), b"card 1", _state(1))
    stages = [{"/grown": old, "/gone": old, "/still": old}]
    stages += [{"/grown": new, "/gone": old, "/still": (new[0], new[1], old[2]), "/new": new}]
    stages += [{path: one for path, one in stages[1].items() if path != "/gone"}]
    assert held in stages, sorted(held)
    noted = value == b"1"
    assert not noted or held == stages[2]
    return {"seen": ["step"] * ([0, 1, 3, 5][stages.index(held) + noted])}


def _texts_old(directory: Path, _beside: Path) -> None:
    store, index = caches(directory)
    with closing(store), closing(index):
        index.open()
        index.put([(row(name), "old", ()) for name in ("grown", "gone")])
        said = Message(0, "e1", "user", "", "earlier words")
        index.add_messages("grown", 0, [said], "0 read")
        index.add_messages("gone", 0, [said._replace(entry="g1", text="gone words")], "0 read")
        index.commit()


def _texts_new(directory: Path, _beside: Path) -> Steps:
    store, index = caches(directory)
    index.open()
    said = [Message(1 + n, f"n{n}", "user", "", f"later {n} " + "y" * 400) for n in range(20)]
    index.add_messages("grown", 1, said, "1 read")
    index.put([(row("grown", 5, messageCount=22), "new", ())])
    index.commit()
    yield
    index.put([(row("new", 6), "new", ())])
    yield
    index.forget("gone", wholly=True)
    while index.rebuild():
        pass
    yield
    index.close()
    store.close()
    yield


def texts_found(directory: Path, _beside: Path) -> dict[str, Any]:
    """What was read is found once, whatever was cut short, and what was forgotten is not."""
    store, index = caches(directory)
    with closing(store), closing(index):
        anew = index.open()  # after a power cut its files may be half there: read again
        assert not store.made
        _sound(directory / "store.sqlite")
        counts = {name: (store.get(name) or {}).get("messageCount") for name in ("grown", "gone")}
        stage = 0
        if counts["grown"] == 22:
            stage = 1 + (store.get("new") is not None) + (counts["gone"] is None)
        read = int((index.mark("grown") or "0").split(" ")[0])
        said = [Message(1 + n, f"n{n}", "user", "", f"later {n}") for n in range(20)]
        if anew:
            said.insert(0, Message(0, "e1", "user", "", "earlier words"))
        if not read:
            index.add_messages("grown", 0 if anew else 1, said, "1 read")
        index.put([(store.get(name) or {}, "", ()) for name in store.unindexed()])
        index.commit()
        found = [one.entry for one in index.messages("grown")]
        assert found == ["e1", *(f"n{n}" for n in range(20))]
        assert stage < 3 or not search(index, '"gone words"').hits
    return {"seen": ["step"] * (4 if stage == 3 and not store_owes(directory) else stage)}


def store_owes(directory: Path) -> bool:
    """Whether words are still to be wiped."""
    with closing(StateStore(directory / "store.sqlite")) as store:
        return store.noted("index", "rebuild") is not None


def _sound(path: Path) -> None:
    """SQLite finds nothing wrong."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# -- a whole library -------------------------------------------------------------------------------


def library(directory: Path, beside: Path) -> Library:
    """A library over the sessions beside."""
    return Library(
        *caches(directory),
        stores=lambda: [Store("pi", f"{beside}/agent/sessions", f"{beside}/agent/sessions-meta")],
        exclude=list,
        report=lambda *_: None,
        defect=_no_defect,
    )


def _no_defect(path: str, bug: Exception) -> None:
    raise AssertionError(path) from bug


def follow(directory: Path, beside: Path) -> Steps:
    """Read what is new, as a daemon does from its start to its end."""
    held = library(directory, beside)
    held.load()
    for _ in held.scan():
        pass
    while held.texts.step():
        pass
    held.checkpoint()
    yield
    held.close()
    yield


def _follow_old(directory: Path, beside: Path) -> None:
    for _ in follow(directory, beside):
        pass


def library_found(directory: Path, beside: Path) -> dict[str, Any]:
    """Cursors and what was counted up to them; and what a reading from there comes to."""
    held = library(directory, beside)
    assert not held.store.made
    _sound(directory / "store.sqlite")
    positions = {}
    for path, cursor, _ in held.store.cards():
        state = SessionState.decode(held.store.state(path) or b"", path)
        positions[path] = [cursor.offset, len(state), state.user_messages()]
    held.load()
    for _ in held.scan():
        pass
    while held.texts.step():
        pass
    content = _content(held)
    held.close()
    return {"seen": [], "positions": positions, "content": content}


def _content(held: Library) -> list[Any]:
    rows = [held.store.get(one) or {} for one in sorted(held.store.ids())]
    said = [list(one) for row in rows for one in held.index.messages(row["sessionId"])]
    return [rows, said]


JOURNEYS = {
    "books": Journey(nothing, spend, books_found),
    "files": Journey(_write_old, _write_new, files_found),
    "trail": Journey(_trail_old, _trail_new, trail_found),
    "store": Journey(_store_old, _store_new, store_found),
    "texts": Journey(_texts_old, _texts_new, texts_found),
    "library": Journey(_follow_old, follow, library_found),
}
