"""Three sessions and one library, and a catalog that fails where it is told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.library import Library
from indexerd.daemon.session_row import Rows
from indexerd.errors import WriteError
from indexerd.search import session_texts as texts
from indexerd.sources.stores import Store
from tests.e2e.world import Session
from tests.store.rows import caches


class Desk:
    """Three sessions, and one library."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.metas = root, root / "sessions/--w--", root / "meta"
        self.metas.mkdir()
        self.sessions = [Session(self.folder) for _ in range(3)]
        for session in self.sessions:
            session.talk(1)
        self.number = 0
        self.library = Library(
            *caches(root),
            stores=lambda: [Store("pi", f"{root}/sessions", str(self.metas))],
            exclude=list,
            report=lambda *_: None,
            defect=_no_defect,
        )
        self.library.load()
        for _ in self.library.scan():
            pass

    def do(self, what: str, session: Session) -> None:
        """Something happens to a session, or to what is known of it."""
        self.number += 1
        word = f"widget{self.number}"
        if what == "turn" and session.path.exists():
            session.turn(f"Where is {word}?")
        elif what == "named" and session.path.exists():
            session.entry("session_info", name=f"The {word}")
        elif what == "meta":
            self.describe(session, word)
        elif what == "title":
            held = {"schemaVersion": 1, "sessionId": session.id, "title": f"My {word}"}
            self.hold(session, "user", json.dumps(held))
        elif what == "bad meta":
            self.hold(session, "meta", "{")
        elif what == "gone":
            session.path.rename(f"{session.path}.aside")
        elif what == "back":
            Path(f"{session.path}.aside").rename(session.path)
        elif what == "read":
            while self.library.texts.some():
                pass

    def describe(self, session: Session, word: str) -> None:
        """Another hand describes a session."""
        held = {
            "schemaVersion": 1,
            "sessionId": session.id,
            "sessionFile": str(session.path),
            "name": f"Adjust the {word}",
            "description": "Widgets are adjusted.",
            "summary": f"All of {word}.",
            "tags": ["widgets"],
            "cwd": "/w",
            "createdAt": "2026-11-21T10:00:00.000Z",
            "updatedAt": "2026-11-21T10:00:00.000Z",
            "model": "other/model",
            "lastIndexedLeafId": session.last,
        }
        self.hold(session, "meta", json.dumps(held))

    def hold(self, session: Session, kind: str, text: str) -> None:
        """Write a file beside sessions."""
        (self.metas / f"{session.id}.{kind}.json").write_text(text)

    def look(self) -> None:
        """As after hints at everything."""
        paths = [str(one.path) for one in self.sessions] + [
            str(one) for one in self.metas.iterdir()
        ]
        for _ in self.library.hinted(paths):
            pass

    def agrees(self) -> None:
        """Every row, with the names it is found by, is the one that is made of everything."""
        library = self.library
        anew = Rows(library.files, library.metas, library.store, library._kin, library.stores)
        known = {one.session_id: one for one in library.store.names()}
        for session in self.sessions:
            written = anew.of(session.id, grown=False)
            assert written is not None
            assert library.store.get(session.id) == written.row
            assert set(known[session.id].aliases) == set(written.aliases)  # in any order


def _no_defect(path: str, bug: Exception) -> None:
    raise AssertionError(path) from bug


def fails_once(library: Library, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Read texts together; the nth storing of messages fails, however slow the machine is."""
    monkeypatch.setattr(texts, "SHARED_SECONDS", 60.0)
    added, left = library.index.add_messages, [nth]

    def add(*args: Any, **more: Any) -> int:
        left[0] -= 1
        if left[0] == 0:
            raise WriteError("no space is left on the device")
        return added(*args, **more)

    monkeypatch.setattr(library.index, "add_messages", add)
    with pytest.raises(WriteError):
        library.texts.some()
