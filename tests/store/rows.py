"""Rows and messages for tests, and an empty store and text index."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from indexerd.entries import Turn
from indexerd.meta.model import MetaFile
from indexerd.search.index import Message, TextIndex
from indexerd.search.ranking import search
from indexerd.sessions.info import SessionInfo
from indexerd.store.store import StateStore
from indexerd.times import iso_of_ms

BASE_MS = 1_790_000_000_000
SHOP = "/work/shop"


def caches(directory: Path | str) -> tuple[StateStore, TextIndex]:
    """A store and a text index in a directory."""
    store = StateStore(Path(directory) / "store.sqlite")
    return store, TextIndex(Path(directory) / "search", store)


def texts(directory: Path) -> TextIndex:
    _, index = caches(directory)
    index.open()
    return index


@contextmanager
def scratch() -> Iterator[TextIndex]:
    """The same for one example of a property test; rows are optional."""
    with tempfile.TemporaryDirectory() as directory:
        index = texts(Path(directory))
        fill(index, row("s1"))
        try:
            yield index
        finally:
            index.close()
            index.store.close()


def row(session_id: str, minute: int = 0, **more: Any) -> dict[str, Any]:
    """A row as in interfaces.md 5, last changed at a minute."""
    found = {
        "sessionId": session_id,
        "agent": "pi",
        "sessionFile": f"/sessions/{session_id}.jsonl",
        "cwd": SHOP,
        "name": f"Name of {session_id}",
        "nameSource": "meta",
        "description": "",
        "tags": [],
        "createdAt": iso_of_ms(BASE_MS + minute * 60_000 - 1000),
        "modifiedAt": iso_of_ms(BASE_MS + minute * 60_000),
        "messageCount": 2,
        "archived": False,
        "gone": False,
    }
    return found | more


NOON = 1_700_000_000_000
PATH = "/home/u/.pi/agent/sessions/--home-u-p--/2026-01-11T10-00-00-000Z_id.jsonl"
INFO = (  # of a session with two prompts
    *("pi", PATH, "id", "/home/u/p", "2026-01-11T10:00:00.000Z", None, 3, NOON, NOON + 5000),
    *("00000004", int(Turn.ENDED), None, "", 4, 2, True, False, 4, 0, None, 1),
)


def info(**fields: Any) -> SessionInfo:
    return msgspec.structs.replace(msgspec.convert(INFO, SessionInfo), **fields)


def meta(**fields: Any) -> MetaFile:
    """The meta file that an earlier run wrote."""
    held: dict[str, Any] = {
        "session_id": "id",
        "session_file": "/home/u/.pi/agent/sessions/p/s.jsonl",
        "name": "The meta name",
        "description": "What it was about.",
        "summary": "## Goal\n- a",
        "tags": ["one", "two", "three"],
        "cwd": "/home/u/p",
        "created_at": "2026-01-11T11:00:00.000Z",
        "updated_at": "2026-01-11T12:00:00.000Z",
        "model": "google/x",
        "last_indexed_leaf_id": "00000002",
    }
    return MetaFile(**(held | fields))


def fill(index: TextIndex, *rows: dict[str, Any], summary: str = "") -> None:
    """Add rows with no other searchable text."""
    index.put_rows([(row, summary, ()) for row in rows])
    index.commit()


def say(index: TextIndex, session_id: str, *said: str, commit: bool = True) -> None:
    """Add messages whose entry ids are made from session and position."""
    items = [Message(n, f"{session_id}-{n}", "user", "", text) for n, text in enumerate(said)]
    index.add_messages(session_id, items, b"all read", 1, replace=True)
    if commit:
        index.commit()


def hits(index: TextIndex, query: str, **filters: Any) -> list[tuple[str, str]]:
    """The sessions that a search finds, and the field."""
    found, _ = search(index, query, **filters)
    return [(hit["sessionId"], hit["field"]) for hit in found]
