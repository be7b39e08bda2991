"""Exports of real session files: bounds, secrets, digests in their places, kin; nothing written."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.daemon.views import Taken, row_of
from indexerd.digests.segments import Segment, encode
from indexerd.errors import NotFoundError
from indexerd.privacy.sanitize import bare
from indexerd.sessions.info import info_of
from indexerd.sessions.tree import still
from indexerd.web import export as exports
from indexerd.web.export import Wish
from tests.sessions.tree_sessions import PUBLIC, entry, said, session, state_of
from tests.sources.lines_held import Lines

KEY = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"
REAL = PUBLIC / "pi-mono/before-compaction.jsonl"


def taken(
    data: bytes, home: Path | None = None, leaf: str | None = None, lost: int | None = None
) -> Taken:
    """A session as it is handed to a reader; of row `lost` the line was too long."""
    state = state_of(data)
    if lost is not None:
        state.lengths[lost] = 0
    card = info_of(state, agent="pi", path="/s.jsonl", mtime_ms=0, since=None)
    assert card is not None
    lines: Any = nullcontext(Lines(state, data))
    row = None if leaf is None else row_of(state, leaf)
    return Taken(card, still(state, row), lines, dict(state.labels), home)


def exported(one: Taken, wish: Wish, **stored: Any) -> dict[str, Any]:
    """The document of a session."""
    read = exports.read_session(one, lambda: None, wish)
    row = {"sessionId": "s1", "cwd": "/w", "name": "A name"}
    head = exports.head_of({"session": row, **stored}, {}, "2026-01-01T00:00:00Z")
    return exports.document_of(head, read, wish)


def texts(found: dict[str, Any]) -> list[str]:
    """What the entries say."""
    return [node["text"] for node in found["nodes"]]


TALK = [
    said("a", None, "user", "Where to?"),
    said("b", "a", "assistant", "Two ways."),
    said("c", "b", "user", "Left."),
    said("d", "c", "assistant", "Dead end."),
    said("e", "b", "user", "Right."),
    said("f", "e", "assistant", "There."),
]


def test_the_leaf_asked_for_is_where_it_is_seen_from() -> None:
    """S1.36: another leaf has its own path, the tree is the same, and a gist tells of the rest."""
    data = session(*TALK)
    found = exported(taken(data), Wish("json"))
    other = exported(taken(data, leaf="d"), Wish("json"))
    assert (found["leafId"], other["leafId"]) == ("f", "d")
    assert texts(found) == texts(other)
    markdown = exports.text_of(other, Wish("md"))
    assert "Dead end." in markdown
    assert "There." not in markdown
    (left,) = (beat for beat in found["beats"] if beat.get("gist"))
    assert (left["gist"], left["gistSource"]) == ("Left.", "ask")
    assert {tip["leafId"]: tip["place"] for tip in found["tips"]} == {"d": 3, "f": 5}


def test_texts_are_bounded_each_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of megabytes is cut with a note; the more there is, the less each may say."""
    data = session(said("a", None, "user", "x" * 5_000_000), said("b", "a", "assistant", "y" * 90))
    found = exported(taken(data), Wish("json"))
    assert [len(text) for text in texts(found)] == [exports.TEXT_MAX, 90]
    assert [node.get("length") for node in found["nodes"]] == [5_000_000, None]
    assert found["textMax"] == exports.TEXT_MAX
    monkeypatch.setattr(exports, "TOTAL_MAX", 2000)
    assert [len(text) for text in texts(exported(taken(data), Wish("json")))] == [1000, 90]
    monkeypatch.setattr(exports, "TOTAL_MAX", 10)
    assert [len(text) for text in texts(exported(taken(data), Wish("json")))] == [200, 90]


@pytest.mark.parametrize("form", exports.FORMATS)
def test_secrets_go_where_that_was_asked_for(form: str) -> None:
    """Not otherwise; and wherever they stand, also across a cut, in names and in metadata."""
    across = "z" * (exports.TEXT_MAX - 20) + f" {KEY} " + "z" * 90_000
    calls = [{"type": "toolCall", "id": "1", "name": "bash", "arguments": {"command": KEY}}]
    thoughts = [{"type": "thinking", "thinking": f"It is {KEY}."}]
    data = session(
        said("a", None, "user", f"My key is {KEY}"),
        said("b", "a", "assistant", content=[*thoughts, *calls]),
        said("c", "b", "toolResult", f"token {KEY}", toolCallId="1", toolName="bash"),
        said("d", "c", "user", across),
        entry("label", "e", "d", targetId="d", label=KEY),
    )
    meta = {"summary": f"The key {KEY}", "name": "x"}
    open_ = exports.text_of(exported(taken(data), Wish(form), meta=meta), Wish(form))
    assert KEY in open_
    wish = Wish(form, redact=True)
    kept = exports.text_of(exported(taken(data), wish, meta=meta), wish)
    assert KEY[:16] not in kept
    assert "[redacted:anthropic-key]" in kept or "\\[redacted:anthropic-key\\]" in kept
    assert "A1b2C3d4" not in kept


def test_people_get_what_shows_and_programs_everything() -> None:
    """Escape sequences and invisible characters are in the JSON alone, escaped."""
    data = session(said("a", None, "user", "re\x1b[31md \u202eteam\r\n  two"))
    assert texts(exported(taken(data), Wish("json"))) == ["re\x1b[31md \u202eteam\r\n  two"]
    meta = {"name": "x", "summary": "ol\u202ed"}
    found = exported(taken(data), Wish("html"), meta=meta)
    assert texts(found) == ["red team\n  two"]
    assert found["meta"]["summary"] == "old"


@given(st.text(alphabet=st.sampled_from("ab \n\r\t\x1b[m\u202e\u200d\u00e9\x9b\u2028")))
def test_a_glance_changes_nothing(text: str) -> None:
    """Texts that show as they are are told apart quickly, and no others."""
    wanted = bare(text).replace("\r\n", "\n")
    assert exports.cutter(Wish("html"))(text, 100) == wanted[:100]
    assert exports.cutter(Wish("json"))(text, 5) == text[:5]


def test_digests_stand_at_what_they_cover(tmp_path: Path) -> None:
    """A segment that holds on the path has its places; one of another branch is left out."""
    held = Segment("x", 0, 2, "- Left.", (), (), (), "", 1, "m", "c")
    path = tmp_path / "s1.digest.jsonl"
    path.write_text(json.dumps(encode(held)))
    data = session(*TALK)
    assert exported(taken(data, tmp_path), Wish())["digests"] == []
    (one,) = exported(taken(data, tmp_path, leaf="d"), Wish())["digests"]
    assert (one["from"], one["to"], one["content"]) == (0, 2, "- Left.")
    path.unlink()
    path.mkdir()
    broken = exported(taken(data, tmp_path), Wish())
    assert broken["digests"] == []
    assert len(broken["warnings"]) == 1


def test_lines_that_are_lost_are_told_of() -> None:
    """F8: an entry whose line is too long to be read keeps its place, and is counted."""
    found = exported(taken(session(*TALK), lost=1), Wish())
    assert texts(found)[:2] == ["Where to?", ""]
    assert found["warnings"] == ["1 entry is too long to be read"]


def test_reading_ends_when_nobody_waits() -> None:
    """The check is called for every entry: a live view whose reader left is not made for nobody."""
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise NotFoundError("gone")

    with pytest.raises(NotFoundError):
        exports.read_session(taken(session(*TALK)), check, Wish())


def test_kin_are_those_of_a_family() -> None:
    """The same ids, as the method `family` tells them; an own parent that is no member too."""
    members = [
        {"sessionId": "p1", "parentSessionId": None, "relation": "root"},
        {"sessionId": "s1", "parentSessionId": "p1", "relation": "fork"},
        {"sessionId": "f1", "parentSessionId": "s1", "relation": "fork"},
        {"sessionId": "r1", "parentSessionId": "s1", "relation": "resumed"},
        {"sessionId": "g1", "parentSessionId": "f1", "relation": "fork"},
        {"sessionId": "t1", "parentSessionId": "s1", "relation": "subagent"},
    ]
    found = exports.kin_in({"members": members}, "s1")
    assert found == {"forks": ["f1", "r1"], "subagents": ["t1"], "parent": "p1"}
    assert exports.kin_in({"members": members[:1]}, "p1") == {}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Fix the parser", "fix-the-parser-0a1b2c3d.md"),
        ("../../etc/\x1b[31mpasswd", "etc-passwd-0a1b2c3d.md"),
        ("…", "session-0a1b2c3d.md"),
    ],
)
def test_a_file_is_named_for_its_session(name: str, told: str) -> None:
    """Letters and digits alone: a name cannot lead anywhere."""
    assert exports.file_name({"name": name, "sessionId": "0a1b2c3d-9"}, Wish("md")) == told


@pytest.mark.shared
@pytest.mark.skipif(not REAL.is_file(), reason="the public sessions are not here")
def test_a_real_session() -> None:
    """2.4 MB of pi's own work: 55 asks, two compactions, nothing lost."""
    found = exported(taken(REAL.read_bytes()), Wish("html"))
    kinds = [beat["kind"] for beat in found["beats"]]
    assert (len(found["nodes"]), kinds.count("ask"), kinds.count("compaction")) == (1002, 55, 2)
    assert {beat["depth"] for beat in found["beats"]} == {0}
    for form in exports.FORMATS:
        assert len(exports.text_of(found, Wish(form))) > 100_000


def test_a_gist_holds_no_half_of_a_secret() -> None:
    """S2.21: with --redact a text is clean before anything is cut from it."""
    token = "ghp_a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6"
    talk = [*TALK[:2], said("c", "b", "user", "c" * 180 + f" {token}"), *TALK[3:]]
    found = exported(taken(session(*talk)), Wish("json", redact=True))
    assert "ghp_" not in json.dumps(found)
    plain = exported(taken(session(*talk)), Wish("json", redact=False))
    assert any(tip.get("gist", "").startswith("ccc") for tip in plain["tips"])
