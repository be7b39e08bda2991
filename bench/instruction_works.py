"""What is counted by bench_instructions.py: the daemon's own ways, and the plain ones beside them.

Every work is a function that answers what it found, so that it can be compared. `Ours` opens what
was stored of a home and uses the daemon's own functions. `Plain` is one SQLite file with rows, an
index for what is asked, and one FTS5 table; orjson for lines; scandir and stat for a sweep.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench_socket import Echo, handler, number
from scan_methods import Corpus, full, parse, states, texts

from indexerd.daemon.answers import Answers
from indexerd.daemon.library import Library
from indexerd.daemon.unix_server import UnixServer
from indexerd.paths import META_SUFFIX
from indexerd.protocol import params, wire
from indexerd.protocol.params import decode
from indexerd.settings import Settings
from indexerd.sources.stores import stores
from indexerd.store.catalog import Catalog
from indexerd.store.ledger import Ledger

FEW = 5  # questions of a kind
TRIPS = 100  # questions on the socket
SCHEMA = """
CREATE TABLE row (id TEXT PRIMARY KEY, file TEXT, name TEXT, modified TEXT, meta TEXT, row TEXT);
CREATE INDEX row_name ON row (name);
CREATE INDEX row_listed ON row (modified DESC, id);
CREATE VIRTUAL TABLE word USING fts5 (session UNINDEXED, text);
"""
FOUND = """
SELECT session, snippet(word, 1, '«', '»', '…', 24) FROM word WHERE word MATCH ?
ORDER BY rank LIMIT 20"""
LISTED = "SELECT row FROM row ORDER BY modified DESC, id LIMIT 50"
PAGE = b'{"jsonrpc":"2.0","id":1,"result":{"sessions":[%b]}}\n'
ONE = b'{"jsonrpc":"2.0","id":1,"result":{"session":%b,"meta":%b}}\n'

Work = Callable[[], Any]
Plan = dict[str, Any]


def opened(root: Path) -> Library:
    """All that is known of the sessions of a home, as the daemon puts it together."""

    def failed(*told: object) -> None:
        raise SystemExit(f"it failed: {told}")

    return Library(
        Ledger(root / "state/ledger.sqlite"),
        Catalog.open(root / "state/catalog.sqlite"),
        stores=lambda: stores(Settings(), {}, root),
        exclude=list,
        report=failed,
        defect=failed,
    )


class Ours:
    """What the daemon does, by its own functions."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.plan, self.library = plan, opened(root)
        self.library.load()
        for _ in self.library.scan():
            pass
        self.answers = Answers(self.library.catalog, lambda: 1.8e9, home=self.library.home)
        assert self.answers.names

    def works(self) -> dict[str, Work]:
        """Each by its name."""
        plan = self.plan
        return {
            "rare": lambda: self.search(plan["rare"]),
            "common": lambda: self.search(plan["common"]),
            "page": lambda: [
                wire.result(1, self.answers.page(decode(params.List, {}))) for _ in range(FEW)
            ],
            "get": lambda: self.get(plan["ids"]),
            "named": lambda: self.get(plan["names"]),
            "append": self.append,
            "words": self.words,
            "sweep": self.sweep,
            "rows": lambda: self.rows(plan["grown"]),
            "said": lambda: self.search(plan["said"]),
        }

    def search(self, words: Iterable[str]) -> list[bytes]:
        return [
            wire.result(1, self.answers.search(decode(params.Search, {"query": one})))
            for one in words
        ]

    def get(self, refs: Iterable[str]) -> list[bytes]:
        ask = self.answers.get
        return [wire.result(1, ask(params.RefParams(ref=one))) for one in refs]

    def append(self) -> list[str]:
        hinted = self.library.hinted
        return [
            one.session_id for path in self.plan["grown"] for told in hinted([path]) for one in told
        ]

    def words(self) -> int:
        while self.library.texts.some():
            pass
        return self.library.texts.unread

    def sweep(self) -> list[str]:
        self.library.find_stores()
        return [one.session_id for told in self.library.scan() for one in told]

    def rows(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        """What the catalog has of some files."""
        return [row for path in paths for row in self.library.catalog.by_file(path)]


def fill(root: Path, library: Library, texts: dict[str, list[str]]) -> None:
    """Store what is known of all sessions, and what is to be found of them, the plain way."""
    catalog = library.catalog
    db = _plain(root)
    db.executescript(SCHEMA)
    db.execute("BEGIN")
    for own, row in catalog.get_many(catalog.ids()).items():
        meta = f"{library.home(own)}/{own}{META_SUFFIX}"
        told = (own, row["sessionFile"], row["name"], row["modifiedAt"], meta, json.dumps(row))
        db.execute("INSERT INTO row VALUES (?, ?, ?, ?, ?, ?)", told)
        db.executemany("INSERT INTO word VALUES (?, ?)", ((own, text) for text in texts[own]))
    db.execute("COMMIT")
    db.close()


def _plain(root: Path) -> sqlite3.Connection:
    db = sqlite3.connect(root / "plain.sqlite", isolation_level=None)
    db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")
    return db


class Plain:
    """The same by the plain way."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.plan, self.top = plan, f"{root}/.pi/agent/sessions"
        self.db = _plain(root)
        asked = "SELECT file, row FROM row WHERE file IN (SELECT value FROM json_each(?))"
        held = self.db.execute(asked, (json.dumps(plan["grown"]),))
        self.held: dict[str, Any] = {file: json.loads(row) for file, row in held}
        self.read = {path: Path(path).stat().st_size for path in plan["grown"]}
        self.known: dict[str, tuple[int, int]] = {}
        self.new: list[tuple[str, str]] = []
        self.sweep()

    def works(self) -> dict[str, Work]:
        """Each by its name."""
        plan = self.plan
        told = {
            "rare": lambda: self.search(plan["rare"]),
            "common": lambda: self.search(plan["common"]),
            "page": lambda: [self.page() for _ in range(FEW)],
            "get": lambda: [self.get("id", one) for one in plan["ids"]],
            "named": lambda: [self.get("name", one) for one in plan["names"]],
            "append": self.append,
            "words": self.words,
            "sweep": self.sweep,
            "rows": lambda: [self.held[path] for path in plan["grown"]],
            "said": lambda: self.search(plan["said"]),
        }
        return {f"{name}, plain": work for name, work in told.items()}

    def search(self, words: Iterable[str]) -> list[list[Any]]:
        return [self.db.execute(FOUND, (f'"{one}"',)).fetchall() for one in words]

    def page(self) -> bytes:
        return PAGE % ",".join([row for (row,) in self.db.execute(LISTED)]).encode()

    def get(self, column: str, value: str) -> bytes:
        sql = f"SELECT row, meta FROM row WHERE {column} = ?"
        row, meta = self.db.execute(sql, (value,)).fetchone()
        with open(meta, "rb", buffering=0) as file:
            return ONE % (row.encode(), file.read())

    def append(self) -> list[str]:
        told = []
        for path in self.plan["grown"]:
            with open(path, "rb", buffering=0) as file:
                file.seek(self.read[path])
                data = file.read()
            self.read[path] += len(data)
            row = self.held[path]
            for line in data.splitlines():
                entry: Any = parse(line)
                row["leafId"], row["modifiedAt"] = entry["id"], entry["timestamp"]
                row["messageCount"] += 1
                self.new.append((row["sessionId"], entry["message"]["content"][0]["text"]))
            values = (row["modifiedAt"], json.dumps(row), row["sessionId"])
            self.db.execute("UPDATE row SET modified = ?, row = ? WHERE id = ?", values)
            told.append(row["sessionId"])
        return told

    def words(self) -> int:
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO word VALUES (?, ?)", self.new)
        self.db.execute("COMMIT")
        self.new = []
        return len(self.new)

    def sweep(self) -> list[str]:
        known, stack, changed = self.known, [self.top], []
        while stack:
            with os.scandir(stack.pop()) as entries:
                for one in entries:
                    if one.is_dir(follow_symlinks=False):
                        stack.append(one.path)
                        continue
                    stat = one.stat(follow_symlinks=False)
                    now = stat.st_size, stat.st_mtime_ns
                    if known.get(one.path) != now:
                        known[one.path] = now
                        changed.append(one.path)
        return changed


def scans(plan: Plan) -> dict[str, Work]:
    """Reading files from their first byte, beside a full parse of every line."""
    told: dict[str, Work] = {}
    for agent, files in plan["scans"].items():
        one = Corpus(agent, agent, files, 0, 0)
        told[agent] = lambda one=one: states(one)  # type: ignore[misc]
        told[f"{agent}, plain"] = lambda one=one: full(one)  # type: ignore[misc]
        if agent == "pi":
            told["texts"] = lambda one=one: texts(one)  # type: ignore[misc]
            told["texts, plain"] = told[f"{agent}, plain"]
    return told


class Served:
    """The socket's server and an echo, each at work until the one who asks it hangs up."""

    def __init__(self, root: Path) -> None:
        self.loop, self.ended = asyncio.new_event_loop(), asyncio.Event()
        self.handle = handler(map(number, range(TRIPS)))
        ours = UnixServer(root / "socket", self.answer, lambda _why: None)
        self.loop.run_until_complete(ours.start())
        plain = self.loop.create_unix_server(lambda: Hears(self.ended), root / "socket, plain")
        self.servers = ours, self.loop.run_until_complete(plain)

    def answer(self, request: wire.Request, peer: Any) -> Any:
        if request.id == 0:
            peer.on_close(self.ended.set)
        return self.handle(request, peer)

    def works(self) -> dict[str, Work]:
        """Each by its name."""
        return dict.fromkeys(("socket", "socket, plain"), self.until_left)

    def until_left(self) -> None:
        self.loop.run_until_complete(self.ended.wait())
        self.ended.clear()


class Hears(Echo):
    """An echo that says when its peer is gone."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.ended = ended

    def connection_lost(self, _why: Exception | None) -> None:
        self.ended.set()
