"""Sessions of older opencode releases, a tree of small files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import SessionUnreadableError
from indexerd.sources.opencode import BRIEF_TEXT
from indexerd.sources.opencode import look_at_tree as look
from indexerd.sources.source import TREE
from indexerd.sources.tail import Verdict
from tests.sources.test_opencode_db import in_full, offsets, rendered

START = 1_730_000_000_000


class Storage:
    """A tree, written record by record as the client does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._clock = 1_700_000_000

    def put(self, kind: str, owner: str, name: str, held: Any) -> Path:
        path = self.root / kind / owner / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(held if isinstance(held, str) else json.dumps(held, indent=2))
        self._clock += 1
        for touched in (path, path.parent):
            os.utime(touched, (self._clock, self._clock))
        return path

    def session(self, name: str = "ses_a", **more: Any) -> Path:
        times = {"created": START, "updated": START + 1}
        held = {"id": name, "directory": "/work/demo", "title": "A title", "time": times}
        return self.put("session", "project", name, held | more)

    def said(
        self, name: str, role: str, text: str, at: int = 0, session: str = "ses_a", **more: Any
    ) -> Path:
        times = {"created": START + at, "completed": START + at}
        path = self.put("message", session, name, {"id": name, "role": role, "time": times} | more)
        self.put("part", name, f"prt_{name}", {"type": "text", "text": text})
        return path


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A session with a prompt and an answer."""
    tree = Storage(tmp_path / "storage")
    tree.session()
    tree.said("msg_1", "user", "x" * 5000, at=1)
    tree.said("msg_2", "assistant", "hi", at=2, finish="stop")
    return tree


def path_of(storage: Storage, name: str = "ses_a") -> str:
    return f"{storage.root}/session/project/{name}.json"


def test_the_same_lines_as_of_a_database(storage: Storage) -> None:
    """S3.9: the session's line, then its messages ordered by time, brief and full."""
    storage.said("msg_0", "user", "later, although its id sorts first", at=9)
    first, prompt, answer, last = rendered(path_of(storage), TREE)
    assert first["time"] == {"created": START, "updated": START + 1, "archived": 0}
    assert (first["id"], first["title"], first["directory"]) == ("ses_a", "A title", "/work/demo")
    assert [message["id"] for message in (prompt, answer, last)] == ["msg_1", "msg_2", "msg_0"]
    assert prompt["parts"] == [{"type": "text", "text": "x" * BRIEF_TEXT}]
    assert (answer["role"], answer["finish"], answer["parts"]) == ("assistant", "stop", [])
    assert [message["parts"][0].get("text") for message in in_full(path_of(storage), TREE)] == [
        "x" * 5000,
        "hi",
        "later, although its id sorts first",
    ]


def test_a_compacting_question_has_its_answers_record(storage: Storage) -> None:
    """formats.md 4.6: what a summary keeps is stored in the message that asked for it."""
    storage.put("message", "ses_a", "msg_3", {"role": "user", "time": {"created": START + 3}})
    storage.put("part", "msg_3", "prt_3", {"type": "compaction", "tail_start_id": "msg_2"})
    storage.said("msg_4", "assistant", "S", at=4, summary=True, finish="stop", parentID="msg_3")
    assert in_full(path_of(storage), TREE)[3]["parent"] == [
        {"type": "compaction", "tail_start_id": "msg_2"}
    ]


CHANGES = {
    "title": lambda storage: storage.session(title="New"),
    "message added": lambda storage: storage.said("msg_3", "user", "more", at=3),
    "message rewritten": lambda storage: storage.said(
        "msg_2", "assistant", "hi", at=2, finish="error"
    ),
    "part added": lambda storage: storage.put("part", "msg_2", "prt_new", {"type": "patch"}),
    "part rewritten": lambda storage: storage.put(
        "part", "msg_2", "prt_msg_2", {"type": "text", "text": "no"}
    ),
    "part deleted": lambda one: (one.root / "part/msg_2/prt_msg_2.json").unlink(),
    "message deleted": lambda one: (one.root / "message/ses_a/msg_2.json").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_changes_only_that_sessions_signature(storage: Storage, change: str) -> None:
    """In the session's file, its messages, or the newest messages' parts."""
    storage.session("ses_b")
    storage.said("msg_b", "user", "hello", session="ses_b")
    path, other = path_of(storage), path_of(storage, "ses_b")
    before = look(path), look(other)
    position = TREE.tail()
    assert position.read(path).verdict is Verdict.CONTINUE
    assert position.read(path).verdict is Verdict.SAME

    CHANGES[change](storage)

    assert look(path) != before[0]
    assert look(other) == before[1]
    assert position.read(path).verdict is Verdict.CONTINUE
    assert position.read(path).verdict is Verdict.SAME


@pytest.mark.parametrize(
    ("place", "left"), [("message/ses_a/msg_2", 2), ("part/msg_1/prt_msg_1", 3)]
)
@pytest.mark.parametrize("half", ["", '{"id": "msg', "[]"])
def test_a_half_written_record_is_read_later(
    storage: Storage, place: str, left: int, half: str
) -> None:
    """formats-observed.md: a truncated record is no error, and is read again."""
    path, record = path_of(storage), storage.root / f"{place}.json"
    whole = record.read_text()
    record.write_text(half)
    position = TREE.tail()
    found = position.read(path)
    assert (found.verdict, len([*found.lines])) == (Verdict.CONTINUE, left)
    record.write_text(whole)
    assert len([*position.read(path).lines]) == 3
    assert position.read(path).verdict is Verdict.SAME


def test_deleted_records_are_gone(storage: Storage) -> None:
    """A session, a message, then the whole tree."""
    path = path_of(storage)
    places = offsets(path, TREE)
    (storage.root / "message/ses_a/msg_2.json").unlink()
    with TREE.lines(path) as held:
        assert json.loads(held(places[1], 1))["id"] == "msg_1"
        with pytest.raises(SessionUnreadableError, match="gone"):
            held(places[2], 1)
    Path(path).unlink()
    assert look(path) is None
    with pytest.raises(FileNotFoundError):
        TREE.tail().read(path)
    with pytest.raises(SessionUnreadableError), TREE.lines(path):
        pass


def test_records_of_any_shape_are_read(storage: Storage) -> None:
    """Wrong types read as missing, and an id in a record leads to no other file."""
    storage.session(id="../../up", title=7, time=[], revert="x", parentID={})
    outside = "../../outside"
    storage.put("part", outside, "prt_1", {"type": "text", "text": "secret"})
    storage.said("msg_2", "assistant", "hi", id="../../up", parentID=outside, summary=True)
    storage.put("message", "ses_a", "msg_3", {"role": ["user"], "time": {"created": "soon"}})
    storage.put("part", "msg_3", "prt_3", {"type": {}, "text": [], "state": 3})
    first, *said = rendered(path_of(storage), TREE)
    assert (first["title"], first["parentID"]) == ("", "")
    assert len(said) == len(in_full(path_of(storage), TREE)) == 3
    assert not any("parent" in message for message in in_full(path_of(storage), TREE))
