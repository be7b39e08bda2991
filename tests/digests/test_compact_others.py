"""Compaction as in Codex and opencode: what stays, what goes, and how tokens are counted."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.digests.compaction import USERS_TOKENS, pruned, users_of
from indexerd.digests.transcript import summarizable_messages
from indexerd.entries import Compaction, Entry, Kind, Retained, ToolCall, ToolResult
from indexerd.sessions.context import CLEARED, ContextMessage
from indexerd.sessions.state import SessionState


def kept(*messages: ContextMessage) -> list[tuple[str, str]]:
    found = users_of(summarizable_messages(messages, SessionState("/s"), "codex"))
    return [(message.text, message.entry.id) for message in found]


def test_a_compactions_history_stays_without_its_summary() -> None:
    """formats.md 3.10: whether the history was stored or is put together by codex."""
    rules, summary = Retained("developer", "rules"), Retained("user", "SUMMARY")
    history = (Retained("user", "one", human=True), rules, summary)
    stored = entry(Kind.COMPACTION, "k", compaction=Compaction(retained=history, whole=True))
    brought = [ContextMessage(message.role, stored, (message.text,)) for message in history]
    assert kept(*brought, said("user", "two", name="u2")) == [("one", "k"), ("two", "u2")]
    bare = entry(Kind.COMPACTION, "k", compaction=Compaction())
    before, after = said("user", "one", name="u1"), ContextMessage("user", bare, ("SUMMARY",))
    assert kept(before, after) == [("one", "u1")]


def approx_tokens(text: str) -> int:
    return -(-len(text.encode()) // 4)


@settings(max_examples=50)
@given(st.lists(st.text(max_size=6).map(lambda one: one * 9000), max_size=6))
def test_kept_messages_fit_the_budget(texts: list[str]) -> None:
    """formats.md 3.10: in order and whole, except for the first and a note of the cut."""
    talk = [one for text in texts for one in (said("user", text), said("assistant", "ok"))]
    found = [text for text, _ in kept(*talk)]
    note = 2 * len("…".encode()) + len("999999 tokens truncated")
    assert sum(map(approx_tokens, found)) <= USERS_TOKENS + approx_tokens("x" * note)
    tail = found[1:]
    assert tail == texts[len(texts) - len(tail) :]
    if sum(map(approx_tokens, texts)) <= USERS_TOKENS:
        assert found == texts


_KINDS = {"user": Kind.USER, "assistant": Kind.ASSISTANT}


def entry(kind: Kind, name: str = "e", **more: Any) -> Entry:
    return Entry(id=name, kind=kind, type="message", role=None, timestamp="", **more)


def said(role: str, text: str = "", *, name: str = "e") -> ContextMessage:
    return ContextMessage(role, entry(_KINDS[role], name), (text,) if text else ())


def calls(call: str) -> ContextMessage:
    return ContextMessage("assistant", entry(Kind.ASSISTANT), calls=(ToolCall("bash", id=call),))


def gave(call: str, text: str, *, cleared: bool = False, failed: bool = False) -> ContextMessage:
    at = entry(Kind.TOOL, failed=(call,) if failed else ())
    result = ToolResult(call, text=text, cleared=cleared)
    return ContextMessage("toolResult", at, (CLEARED if cleared else text,), result=result)


NEWEST = [said("user", "two"), said("assistant", "ok"), said("user", "three")]  # the last 2 turns


def results(*tokens: int) -> list[ContextMessage]:
    pairs = [(f"bash{n}", "x" * 4 * count) for n, count in enumerate(tokens)]
    return [one for call, text in pairs for one in (calls(call), gave(call, text))]


@pytest.mark.parametrize(
    "stop",
    [
        gave("c9", "x" * 4, cleared=True),
        ContextMessage("compactionSummary", entry(Kind.COMPACTION), ("So far.",)),
    ],
    ids=["pruned before", "summary"],
)
def test_pruning_stops_where_it_stopped_before(stop: ContextMessage) -> None:
    """formats.md 4.6: at the newest summary or at results already pruned; failures stay."""
    failed = [calls("f"), gave("f", "x" * 400_000, failed=True)]
    talk = [*results(90_000), stop, *failed, *results(30_000, 40_000), *NEWEST]
    changed = [at for at, new in enumerate(pruned(talk)) if new is not talk[at]]
    assert changed == [6]
