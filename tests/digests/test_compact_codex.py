"""Compaction as in Codex: what stays, what goes, and how tokens are counted (formats.md 3.10)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.agents.base import ContextUse
from indexerd.digests.compact_pi import estimate_tokens
from indexerd.digests.compaction import USERS_TOKENS, users_of
from indexerd.digests.stats import context_size
from indexerd.digests.transcript import summarizable_messages
from indexerd.entries import Compaction, Kind, Retained
from indexerd.sessions.context import ContextEntry, ContextMessage
from indexerd.sessions.state import SessionState
from tests.sessions.speeches import calls, entry, gave, said, state_of, steps


def kept(*messages: ContextMessage) -> list[tuple[str, str]]:
    found = users_of(summarizable_messages(messages, SessionState("/s"), "codex"))
    return [(message.text, message.entry.id) for message in found]


def test_a_compactions_history_stays_without_its_summary() -> None:
    """formats.md 3.10: whether the history was stored or is put together by codex."""
    history = (
        Retained("user", "one", human=True),
        Retained("developer", "rules"),
        Retained("user", "SUMMARY"),
    )
    stored = entry(Kind.COMPACTION, "k", compaction=Compaction(retained=history, whole=True))
    brought = [ContextMessage(message.role, stored, (message.text,)) for message in history]
    assert kept(*brought, said("user", "two", name="u2")) == [("one", "k"), ("two", "u2")]
    bare = entry(Kind.COMPACTION, "k", compaction=Compaction())
    before, summary = said("user", "one", name="u1"), ContextMessage("user", bare, ("SUMMARY",))
    assert kept(before, summary) == [("one", "u1")]


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


def talk() -> list[ContextEntry]:
    return steps(
        *[said("user", "q" * 40), calls("c1"), gave("c1", "r" * 400)],
        *[said("assistant", "a" * 40), said("user", "q" * 8)],
    )


def test_a_count_wins_and_what_came_after_is_added() -> None:
    """S3.23: plus results of its calls, which codex writes before the count."""
    held = talk()
    counted = state_of(5, context=ContextUse(1000, 3, 9))
    assert context_size(counted, held)[0] == 1000 + 2  # the second question
    before_result = state_of(3, context=ContextUse(500, 2))
    assert context_size(before_result, held[:3])[0] == 500 + 100  # 400 bytes of result
    older = state_of(5, context=ContextUse(300, 0))
    assert context_size(older, held)[0] == 300 + sum(
        estimate_tokens(speech) for s in held[1:] for speech in s.speeches
    )


def test_a_count_from_before_a_compaction_is_ignored() -> None:
    """S3.23: a count after it, which codex estimates itself, covers all that was left."""
    compaction = entry(Kind.COMPACTION, "k")
    summary = ContextEntry(3, compaction, (ContextMessage("user", compaction, ("s" * 40,)),), 3)
    asked = said("user", "q" * 8)
    held = [summary, ContextEntry(5, asked.entry, (asked,), 5)]
    assert context_size(state_of(6, context=ContextUse(9000, 2)), held)[0] == 10 + 2
    assert context_size(state_of(6, context=ContextUse(700, 4)), held)[0] == 700 + 2
