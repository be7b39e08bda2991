"""What a purge stands on: what is remembered as forgotten, who may write, what is still read."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.forgotten import NAME, Forgotten, GuardedWriter, remove_transcript
from indexerd.daemon.sidecar import Resumes
from indexerd.errors import AccessError, NotFoundError
from indexerd.meta.model import UserFile
from indexerd.references.injection_cache import InjectionCache
from indexerd.sources.opencode_db import Database
from indexerd.sources.stores import Kind, Store
from indexerd.store.store import StateStore
from tests.sessions.opencode_rows import Rows
from tests.sources.thread_desk import A, B, Desk, Thread, fork

# -- what is remembered --------------------------------------------------------------------------


def test_of_several_lines_the_newest_counts(tmp_path: Path) -> None:
    """S2.23: it is read anew by every process; what is torn, or another's, is passed over."""
    forgotten = Forgotten(tmp_path)
    assert not forgotten
    forgotten.add("s1", "pi", at=1.0, by="cli")
    forgotten.add("s2", "codex", at=2.0, by="socket")
    forgotten.undo("s1", at=3.0, by="cli")
    path = tmp_path / NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("a") as file:
        file.write('[]\n{"sessionId": 5}\n{"sessionId": "s3", "agent": 7}\n{"sessionId": "s')
    for held in (Forgotten(tmp_path), Forgotten(tmp_path)):
        assert list(held) == ["s2", "s3"]
        assert ("s2" in held, "s1" in held) == (True, False)
        assert (held.agent("s2"), held.agent("s3"), held.agent("s1")) == ("codex", "", "")
    Forgotten(tmp_path).add("s1", "pi", at=4.0, by="cli")
    assert list(Forgotten(tmp_path)) == ["s2", "s3", "s1"]
    first = json.loads(path.read_text().splitlines()[0])
    time = "1970-01-01T00:00:01.000Z"
    assert first == {"sessionId": "s1", "agent": "pi", "at": time, "by": "cli"}


def test_without_the_list_nothing_is_read(tmp_path: Path) -> None:
    """A session must not come back because the list cannot be read."""
    (tmp_path / NAME).symlink_to("/nowhere/at/all")
    with pytest.raises(AccessError, match=NAME):
        Forgotten(tmp_path)


def test_nothing_is_written_about_a_forgotten_session(tmp_path: Path) -> None:
    """Whoever was about to write: the question is asked within the writer's lock."""
    forgotten = {"s1"}
    writer = GuardedWriter(forgotten)
    with pytest.raises(NotFoundError, match="purged"):
        writer.write_user(tmp_path, "s1", UserFile(title="t"))
    with pytest.raises(NotFoundError, match="purged"):
        writer.write_digest(tmp_path, "s1", [{}])
    assert list(tmp_path.iterdir()) == []
    forgotten.clear()
    writer.write_user(tmp_path, "s1", UserFile(title="t"))
    forgotten.add("s1")
    assert [path.name for path in writer.remove(tmp_path, "s1")] == ["s1.user.json"]


def test_only_a_plain_file_is_removed(tmp_path: Path) -> None:
    """A link in a session's place stays, and so does what it points to."""
    path, link = tmp_path / "s.jsonl", tmp_path / "l.jsonl"
    path.write_text("x")
    link.symlink_to(path)
    for other in (link, tmp_path):
        with pytest.raises(AccessError):
            remove_transcript(other)
    assert link.is_symlink()
    assert remove_transcript(path)
    assert not path.exists()
    assert not remove_transcript(path)


# -- what is read --------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A directory of sessions, nothing in it yet."""
    return Desk(tmp_path)


def forget(desk: Desk, *ids: str) -> None:
    """These are forgotten from now on, and no others."""
    desk.files.exclusions.forgotten = frozenset(ids)
    desk.files.exclusions.changed()


def test_forks_of_a_forgotten_session_stay_what_they_were(desk: Desk) -> None:
    """A fork's history is its own, where it begins in the file of a forgotten session, too."""
    base = Thread(desk.root, A, 1).say("one")
    heir = fork(desk, base).say("own")
    desk.scan()
    forget(desk, A)
    changes = desk.scan()
    assert [(one.session_id, one.card) for one in changes if one.session_id == A] == [(A, None)]
    for _ in range(2):
        base.say("later")
        heir.say("more")
        desk.scan()
        assert desk.files.card(A) is None
        assert desk.texts(B)[:3] == ["one", "own", "more"]
        assert desk.files.problems() == {}
        desk.restart()
        forget(desk, A)
    forget(desk)
    desk.scan()
    assert desk.texts(A) == ["one", "later", "later"]


def test_every_file_of_a_session_is_forgotten(desk: Desk) -> None:
    """A copy does not take the place of the file that stood for the session."""
    first = Thread(desk.root, A, 1).say("one")
    copy = first.path.with_name(first.path.name.replace("12-00-01", "12-00-02"))
    copy.write_bytes(first.path.read_bytes())
    desk.scan()
    files = desk.files.owners.files(A)
    assert {one.path for one in files} == {str(first.path), str(copy)}
    forget(desk, A)
    desk.scan()
    assert desk.files.card(A) is None
    assert desk.files.owners.files(A) == []
    copy.rename(copy.with_name(copy.name.replace("12-00-02", "12-00-03")))
    desk.scan()
    assert desk.files.card(A) is None


def test_a_forgotten_session_in_a_database_is_not_let_in(desk: Desk) -> None:
    """Whatever changes in it; until it is remembered."""
    rows = Rows(desk.root / "opencode.db")
    place = str(rows.path)
    desk.stores.append(Store("opencode", place, f"{desk.root}/meta", kind=Kind.DATABASE))
    desk.database = Database(place)
    rows.session("ses_1", directory="/w")
    rows.said("ses_1", "msg_1", "user", "psst")
    desk.scan()
    assert desk.files.card("ses_1") is not None
    forget(desk, "ses_1")
    for at in (2, 3):
        desk.scan()
        assert desk.files.card("ses_1") is None
        rows.said("ses_1", f"msg_{at}", "user", "psst")
        desk.restart()
        forget(desk, "ses_1")
    forget(desk)
    desk.scan()
    assert desk.files.card("ses_1") is not None


# -- what others remember ------------------------------------------------------------------------


def test_what_was_issued_of_a_session_and_to_it_is_forgotten(tmp_path: Path) -> None:
    """In the ledger and in memory; what is about other sessions stays, and so do their resumes."""
    ledger = StateStore(tmp_path / "store.sqlite")

    async def read(work: Any, *args: Any) -> Any:
        return work(*args)

    async def scene() -> None:
        issued = InjectionCache(ledger, read, lambda: 5.0)
        await issued.keep("s1", {"other": "text", "s2": "text of s2"})
        await issued.keep("s2", {"s1": "text of s1", "ref:that": "s1", "s3": "text of s3"})
        resumes = Resumes(ledger, read, lambda: 5.0)
        for session_id in ("s1", "s10"):
            assert await resumes.claim(f"{session_id}/r1")
            await resumes.keep(f"{session_id}/r1")
            assert await resumes.claim(f"{session_id}/")
        await issued.forget("s1")
        await resumes.forget("s1")
        for held in (issued, InjectionCache(ledger, read, lambda: 6.0)):
            assert await held.of("s1") == {}
            assert await held.of("s2") == {"s3": "text of s3"}
        assert await resumes.claim("s1/r1")
        assert await resumes.claim("s1/")
        assert not await Resumes(ledger, read, lambda: 6.0).claim("s10/r1")
        assert not await resumes.claim("s10/")

    asyncio.run(scene())
    ledger.close()
