"""Rules over a context, as the view and the command take them: one output, nothing kept (S1.37)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexerd.cli import main
from indexerd.cli.backend import App
from indexerd.errors import UsageError
from indexerd.sessions.context import CLEARED
from tests.sessions.taken import taken, view
from tests.sessions.tree_sessions import entry, said, session

LONG = "x" * 1000
CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "/a"}}
RESULT = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "isError": False}
TALK = session(
    said("a", None, "user", "Read it."),
    entry("message", "b", "a", message={"role": "assistant", "content": [CALL]}),
    entry(*("message", "c", "b"), message=RESULT | {"content": [{"type": "text", "text": LONG}]}),
    said("d", "c", "assistant", "Done."),
)
PRUNE = {"rule": "prune", "protectTokens": 0}


def test_rules_hold_for_one_answer() -> None:
    """The next answer is as if there had been none; what was changed says so."""
    plain = view("context", taken(TALK), {})
    assert "transformed" not in plain
    found = view("context", taken(TALK), {"transforms": [PRUNE]})
    assert found["transformed"] is True
    texts = [one["text"] for one in found["messages"]]
    assert texts == ["Read it.", "", CLEARED, "Done."]
    same = [(one["role"], one["entryId"]) for one in plain["messages"]]
    assert same == [(one["role"], one["entryId"]) for one in found["messages"]]
    assert plain == view("context", taken(TALK), {"transforms": None})
    with pytest.raises(UsageError, match="transforms"):
        view("context", taken(TALK), {"transforms": "prune"})


def test_the_whole_can_be_had_as_one_text() -> None:
    """S1.24: as pi hands it to a summariser, with the calls that messages do not show."""
    found = view("context", taken(TALK), {"serialize": True})
    expected = [
        "[User]: Read it.",
        '[Assistant tool calls]: read(path="/a")',
        f"[Tool result]: {LONG}",
        "[Assistant]: Done.",
    ]
    assert found["serialized"] == "\n\n".join(expected)
    rules = [PRUNE, {"rule": "summary", "from": "d", "text": "It was done.", "role": "user"}]
    found = view("context", taken(TALK), {"serialize": True, "transforms": rules})
    expected[2:] = [f"[Tool result]: {CLEARED}", "[User]: It was done."]
    assert found["serialized"] == "\n\n".join(expected)


def test_the_command_takes_rules_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order; with --serialized the text alone is printed; what is no JSON is usage."""
    asked: list[dict[str, Any]] = []

    def answered(_app: App, method: str, params: dict[str, Any], **_: Any) -> Any:
        given = {key: value for key, value in params.items() if value is not None}
        asked.append(given)
        return view(method, taken(TALK), given)

    monkeypatch.setattr(App, "read", answered)
    cut = {"rule": "truncate", "chars": 100, "keep": "head"}
    argv = ["context", "s1", "--transform", json.dumps(PRUNE), "--transform", json.dumps(cut)]
    assert main.run([*argv, "--serialized"]) == 0
    assert asked[0]["transforms"] == [PRUNE, cut]
    shown = capsys.readouterr().out
    assert shown.startswith("[User]: Read it.\n\n[Assistant tool calls]: ")
    assert f"[Tool result]: {CLEARED}\n" in shown
    assert main.run([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["transformed"] is True
    assert main.run(["context", "s1", "--transform", "prune"]) == 2
    assert "--transform takes a JSON object" in capsys.readouterr().err
