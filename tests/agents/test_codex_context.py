"""What codex hands its model: the history of a compaction as it is, or as codex rebuilds it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from indexerd.events import Entry, Kind
from indexerd.sessions import context as context_module
from indexerd.sessions.context import USERS_TOKENS, Context, context_of
from indexerd.sessions.state import SessionState
from tests.agents.codex_files import (
    SHARED,
    answer,
    entries,
    event,
    line,
    meta,
    said,
    state_of,
    user,
)

REAL = SHARED / "real" / "codex" / "sessions"
PREFIX = "Another language model started to solve this problem"
SUMMARY = f"{PREFIX} and so on.\nSUM \n"


def context(state: SessionState, data: bytes) -> Context:
    """The context at the leaf, with entries as the state knows them."""
    held = dict(zip(state.path(), entries(state, data), strict=True))

    def read(row: int) -> Entry:
        found, kind = held[row], state.kind(row)
        return found if found.kind is Kind.OTHER else replace(found, kind=kind)

    return context_of(state, read)


def seen(*lines: bytes) -> list[tuple[str, str]]:
    """The messages of a small session."""
    found = context(state_of(*lines), b"".join(lines))
    return [(one.role, one.text) for one in found.messages]


def message(role: str, *texts: str) -> dict[str, Any]:
    """An item of a replaced history."""
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


def old(summary: str = SUMMARY) -> bytes:
    """A compaction that brings no history."""
    return line("compacted", {"message": summary})


def test_the_history_that_a_compaction_brings_is_all_of_it() -> None:
    """S3.5: in codex's roles, verbatim, blocks joined with nothing between; no summary is added."""
    history = [
        message("user", "q \n"),
        message("developer", " a ", "b\n"),
        message("user", "<environment_context>\n</environment_context>\n"),
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "function_call_output", "call_id": "c", "output": "o\n"},
        message("user", SUMMARY),
    ]
    made = line("compacted", {"message": SUMMARY, "replacement_history": history})
    assert seen(meta(), user("before"), made, user("after")) == [
        ("user", "q \n"),
        ("developer", " a b\n"),
        ("user", "<environment_context>\n</environment_context>\n"),
        ("toolResult", "o\n"),
        ("user", SUMMARY),
        ("user", "after"),
    ]


def test_what_was_said_is_what_the_model_got() -> None:
    """interfaces.md: developer messages by their role, human ones with all that is around them."""
    told = line("response_item", message("developer", "be ", "kind\n"))
    framed = "# Open tabs\n\n## My request for Codex:\nfix it \n"
    found = seen(meta(), told, user(framed), said(framed), answer("done\n"))
    assert found == [("developer", "be kind\n"), ("user", framed), ("assistant", "done\n")]
    # The event may come first, and then stands for the item.
    assert seen(meta(), event("user_message", message=framed), user(framed)) == [("user", framed)]


def test_an_old_compaction_keeps_what_humans_said() -> None:
    """formats.md 3.10: human messages in order, the summary as a user's, the later items."""
    context_given = user("<environment_context>\n</environment_context>")
    talk = (meta(), context_given, user("one "), answer("1"), user("two"), answer("2"))
    kept = [("user", "one "), ("user", "two")]
    assert seen(*talk, old(), answer("3")) == [*kept, ("user", SUMMARY), ("assistant", "3")]
    assert seen(*talk, old("")) == [*kept, ("user", "(no summary available)")]
    again = seen(*talk, old(), user("three"), old("S2"))
    assert again == [*kept, ("user", "three"), ("user", "S2")]


def test_an_old_compaction_goes_on_from_the_history_of_another() -> None:
    """formats.md 3.10: what humans said in it, and since then; no context, no summaries."""
    history = [
        message("user", "q"),
        message("user", "<environment_context>\n</environment_context>"),
        message("assistant", "a"),
        message("user", "SUM"),
    ]
    made = line("compacted", {"message": "SUM", "replacement_history": history})
    found = seen(meta(), user("dropped"), made, user("r"), old("S2"))
    assert found == [("user", "q"), ("user", "r"), ("user", "S2")]
    made = line("compacted", {"message": "SUM", "replacement_history": history[1:]})
    assert seen(meta(), user("dropped"), made, old("S2")) == [("user", "S2")]


def test_only_the_newest_words_of_humans_are_kept() -> None:
    """formats.md 3.10: 20 000 tokens of 4 bytes; the first too long is cut and ends the walk."""
    fits = "y" * (4 * (USERS_TOKENS - 8) - 1)  # one token is not full
    cut = "\U0001f600" * 10 + "\nsecond line with text\n"
    found = seen(meta(), user("gone"), user(cut), user(fits), old())
    shown = "\U0001f600" * 4 + "…8 tokens truncated… line with text\n"  # codex's own example
    assert found == [("user", shown), ("user", fits), ("user", SUMMARY)]
    full = "z" * 4 * USERS_TOKENS
    assert seen(meta(), user("gone"), user(full), old()) == [("user", full), ("user", SUMMARY)]


@given(st.text(min_size=1), st.integers(1, 12))
def test_a_cut_tears_no_character(text: str, tokens: int) -> None:
    """formats.md 3.10: both ends are of the text itself, and together within the budget."""
    text = text.encode("utf-8", "ignore").decode() + "....." * 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context_module, "USERS_TOKENS", tokens)
        (_, found), _ = seen(meta(), user(f"<{text}>"), old())
    if found == f"<{text}>":
        assert len(found.encode()) <= 4 * tokens
        return
    marks = found.split("…")
    head, tail = marks[0] if "…" not in text else found[:1], marks[-1]
    assert f"<{text}>".startswith(head)
    assert f"<{text}>".endswith(tail)
    assert "\ufffd" not in found or "\ufffd" in text


def test_settings_are_those_of_the_turn_and_the_header() -> None:
    """S1.20: effort and model of the newest turn, the provider of the file's own header."""

    def of(*lines: bytes) -> tuple[Any, Any]:
        found = context(state_of(*lines), b"".join(lines))
        return found.model, found.thinking_level

    first = line("turn_context", {"turn_id": "t", "model": "gpt-9", "effort": "high"})
    head = meta(model_provider="openai")
    named = {"provider": "openai", "modelId": "gpt-9"}
    assert of(head, first, user("q")) == (named, "high")
    assert of(head, first, user("q"), line("turn_context", {"model": "gpt-9"})) == (named, None)
    other = line("turn_context", {"model": "m", "model_provider": "p"})
    assert of(head, first, other) == ({"provider": "p", "modelId": "m"}, None)
    assert of(meta(), first) == ({"provider": None, "modelId": "gpt-9"}, "high")
    copied = meta("b" * 36, model_provider="copied")
    assert of(head, copied, *turn_of(first)) == (named, "high")


def turn_of(*lines: bytes) -> list[bytes]:
    """A turn without a context of its own."""
    return [event("task_started", turn_id="t"), *lines, user("q"), answer("a")]


@pytest.mark.shared
@pytest.mark.skipif(not REAL.is_dir(), reason="the shared fixtures are not beside this checkout")
def test_a_real_compacted_session_is_the_history_it_brings() -> None:
    """S3.5: of two compactions the newest, role by role and text by text; then the later items."""
    (path,) = REAL.rglob("*01a1fff2-3b5b-7930*.jsonl")
    data = path.read_bytes()
    lines = [json.loads(one) for one in data.splitlines()]
    at = max(place for place, one in enumerate(lines) if one["type"] == "compacted")
    items = lines[at]["payload"]["replacement_history"]
    items += [one["payload"] for one in lines[at:] if one["type"] == "response_item"]
    state = state_of(data, file=str(path))
    found = context(state, data)
    assert [(one.role, one.text) for one in found.messages] == [
        (one["role"], "".join(block["text"] for block in one["content"])) for one in items
    ]
    assert found.model == {"provider": "fake", "modelId": "gpt-5.5"}
