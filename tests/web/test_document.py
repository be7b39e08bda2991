"""Exports of sessions: limits and secrets."""

import base64
import json
from typing import Any

import pytest

from indexerd.privacy.redact import redact
from indexerd.sources.session_reader import OpenSession
from indexerd.web import document
from indexerd.web.document import Wish, document_of
from indexerd.web.session_page import FORMATS, wish_for
from tests.sessions.opening import opened
from tests.sessions.tree_sessions import call, entry, result, said, session

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 30).decode()
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
KEY = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"


def exported(one: OpenSession, wish: Wish, **stored: Any) -> dict[str, Any]:
    row = {"sessionId": "s1", "cwd": "/w", "name": "A name"}
    return document_of(one, {"session": row, **stored}, wish)


def edit_call(call_id: str, old: str, new: str) -> dict[str, Any]:
    return call(call_id, "edit", path="/w/a.py", oldText=old, newText=new)


def texts(found: dict[str, Any]) -> list[str]:
    return [node["text"] for node in found["nodes"]]


TALK = [
    said("a", None, "user", "Where to?"),
    said("b", "a", "assistant", "Two ways."),
    said("c", "b", "user", "Left."),
    said("d", "c", "assistant", "Dead end."),
    said("e", "b", "user", "Right."),
    said("f", "e", "assistant", "There."),
]


def test_texts_are_bounded_each_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of megabytes is cut with a note; the more texts there are, the shorter each is."""
    data = session(said("a", None, "user", "x" * 5_000_000), said("b", "a", "assistant", "y" * 90))
    found = exported(opened(data), Wish())
    assert [len(text) for text in texts(found)] == [document.TEXT_MAX, 90]
    assert [node.get("length") for node in found["nodes"]] == [5_000_000, None]
    assert found["textMax"] == document.TEXT_MAX
    monkeypatch.setattr(document, "TOTAL_MAX", 2000)
    assert [len(text) for text in texts(exported(opened(data), Wish()))] == [1000, 90]
    monkeypatch.setattr(document, "TOTAL_MAX", 10)
    assert [len(text) for text in texts(exported(opened(data), Wish()))] == [200, 90]


def test_a_page_has_the_newest_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning counts earlier ones; a page keeps its beginning for a while."""
    monkeypatch.setattr(document, "STRIDE", 2)
    for shown, left_out in ((5, 0), (4, 2), (3, 2)):
        found = exported(opened(session(*TALK)), Wish(newest=shown))
        assert [node["id"] for node in found["nodes"]] == list("abcdef"[left_out:])
        named = any(f"the oldest {left_out} entries" in warning for warning in found["warnings"])
        assert named == bool(left_out)
        assert found["leafId"] == "f"


TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
KEYED = "hunter2hunter2X9"  # a secret by the name of its field alone


@pytest.mark.parametrize("form", FORMATS)
def test_secrets_are_redacted_on_request(form: str) -> None:
    """S2.21: in all places, also across a cut, in names and in metadata."""
    across = "z" * (document.TEXT_MAX - 20) + f" {KEY} " + "z" * 90_000
    calls = [
        call("1", "bash", command=KEY, more=[KEY], env={"PASSWORD": KEYED, "token": [KEYED]}),
        edit_call("2", "a\nb", f"a\n{KEY}\n"),
        edit_call("3", PEM, ""),
    ]
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    thoughts = [{"type": "thinking", "thinking": f"It is {KEY}."}]
    data = session(
        said("a", None, "user", f"My key is {KEY}"),
        said("b", "a", "assistant", content=[*thoughts, *calls]),
        result("c", "b", "1", "bash", f"token {KEY}"),
        said("left", "c", "user", "c" * 180 + f" {TOKEN}"),  # its gist ends in it
        said("d", "c", "user", content=[{"type": "text", "text": across}, image]),
        entry("label", "e", "d", targetId="d", label=KEY),
    )
    meta = {"summary": f"The key {KEY}", "name": "x"}
    open_ = FORMATS[form](exported(opened(data), wish_for(form), meta=meta))
    assert KEY in open_
    assert (PNG in open_) == (form != "md")
    kept = FORMATS[form](exported(opened(data), wish_for(form, redact=redact), meta=meta))
    assert KEY[:16] not in kept
    assert PNG not in kept
    assert "MIIEvQ" in open_
    assert "MIIEvQ" not in kept
    assert "[redacted:anthropic-key]" in kept or "\\[redacted:anthropic-key\\]" in kept
    assert "A1b2C3d4" not in kept
    assert TOKEN[:5] not in kept
    assert KEYED not in kept


def test_json_is_complete_and_names_what_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments and results are whole; what had to be cut is listed by entry."""
    arguments = {"command": "x" * 30_000, "more": {"n": 1, "list": ["y" * 90]}}
    calls = [call("1", "bash", **arguments), edit_call("2", "a\nb", "a\nc")]
    data = session(
        said("a", None, "assistant", content=calls),
        result("b", "a", "1", "bash", "z" * 30_000),
        result("c", "b", "2", "edit", "No.", isError=True),
    )
    found = json.loads(FORMATS["json"](exported(opened(data), wish_for("json"))))
    assert (found["format"], found["schema"], found["cut"]) == ("indexerd-export", 2, [])
    first, second = found["nodes"][0]["calls"]
    assert first["input"] == arguments
    assert second["edits"] == [
        {"path": "/w/a.py", "kind": "edit", "diff": " a\n-b\n+c", "added": 1, "removed": 1}
    ]
    assert second["failed"]
    assert texts(found)[1:] == ["z" * 30_000, "No."]
    assert [node["results"][0]["call"] for node in found["nodes"][1:]] == ["1", "2"]
    markdown = FORMATS["md"](exported(opened(data), wish_for("md")))
    assert "```diff\n a\n-b\n+c\n```" in markdown
    assert f"```\ncommand: {'x' * 900}" in markdown
    monkeypatch.setattr(document, "WHOLE_ROOMS", (1000,))
    found = exported(opened(data), wish_for("json"))
    assert found["cut"] == [
        {"entryId": "a", "field": "calls.0.input.command", "length": 30_000, "kept": 1000},
        {"entryId": "b", "field": "text", "length": 30_000, "kept": 1000},
    ]


def test_a_file_written_again_shows_what_changed() -> None:
    """Only below the write before; after an edit or a failed write the text is not known."""

    def wrote(entry_id: str, parent: str | None, content: str) -> bytes:
        write = call(entry_id, "write", path="/w/a.py", content=content)
        return said(entry_id, parent, "assistant", content=[write])

    data = session(
        wrote("a", None, "1\n2\n3\n"),
        wrote("b", "a", "1\n2\n4\n"),
        result("r", "b", "b", "write", "No.", isError=True),
        wrote("c", "r", "1\n2\n5\n"),
        wrote("d", "a", "1\n2\n6\n"),
        said("e", "d", "assistant", content=[edit_call("e", "6", "7")]),
        wrote("f", "e", "1\n2\n8\n"),
    )
    found = exported(opened(data), Wish())
    made = {node["id"]: node["calls"][0] for node in found["nodes"] if node.get("calls")}
    (edit,) = made.pop("c")["edits"]
    assert edit["diff"] == " 1\n 2\n-3\n+5"
    assert [one["edits"][0]["added"] for one in made.values()] == [3, 3, 3, 1, 3]


def test_of_a_prompt_only_what_a_person_typed_is_shown() -> None:
    skill = '<skill name="remember" location="/s/SKILL.md">\n# Remember\n</skill>\n\nthe port'
    data = session(said("a", None, "user", skill))
    (shown,) = exported(opened(data), wish_for("html"))["nodes"]
    assert (shown["text"], shown["leftOut"]) == ("the port", len(skill) - len("the port"))
    assert shown["sent"] == skill
    assert "# Remember" in FORMATS["md"](exported(opened(data), wish_for("md")))
    marked = session(said("a", None, "user", '<skill name="x" location="">s</skill>\n\nthe port'))
    (shown,) = exported(opened(marked), wish_for("html"))["nodes"]
    assert (shown["text"], "leftOut" in shown) == ("the port", False)  # a short mark: no note
    whole = json.loads(FORMATS["json"](exported(opened(data), wish_for("json"))))
    assert texts(whole) == [skill]


def test_a_command_without_words_shows_what_it_does() -> None:
    """Codex keeps the text of Spec Kit's commands, but not their names."""
    ask = "\n## User Input\n\n```text\n\n```\n\nYou **MUST** consider it.\n\n## Outline\n\n"
    data = session(said("a", None, "user", f"{ask}1. Run the set-up.\n2. Write the plan."))
    (shown,) = exported(opened(data), wish_for("html"))["nodes"]
    assert shown["text"] == "Command: Run the set-up."
