"""The text of a session that is sent: pi's cut, after redaction, read only as far as needed."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexerd.entries import Kind, code
from indexerd.indexing.indexer import border
from indexerd.indexing.transcript import Caps, Section, assemble, truncate_tail
from indexerd.privacy.redact import Redactor
from indexerd.sessions.state import SessionState
from tests.sessions.canaries import WORD, pem
from tests.store.rows import meta

CAPS = Caps(max_bytes=51_200, max_lines=2000)
SMALL = Caps(max_bytes=100, max_lines=10)
toy = Redactor(("KEY-[^!]*!",))


def user(text: str, *, old: bool = False) -> Section:
    return Section("User: ", "user", text, old)


def agent(text: str) -> Section:
    return Section("Assistant: ", "assistant", text)


def render(sections: Iterable[Section]) -> str:
    return "\n\n".join(map(str, sections))


def pi_truncate_tail(text: str, max_bytes: int, max_lines: float) -> tuple[str, bool]:
    """Do as pi's truncateTail, over bytes, written independently of indexerd's code."""
    raw = [line.encode() for line in text.split("\n")]
    if len(raw) <= max_lines and sum(map(len, raw)) + len(raw) - 1 <= max_bytes:
        return text, False
    taken: list[bytes] = []
    used = 0
    while len(taken) < len(raw) and len(taken) < max_lines:
        line = raw[len(raw) - 1 - len(taken)]
        used += len(line) if not taken else len(line) + 1
        if used > max_bytes:
            break
        taken.insert(0, line)
    if not taken:
        start = len(raw[-1]) - max_bytes
        while raw[-1][start] & 0xC0 == 0x80:  # inside a character: move forward
            start += 1
        return raw[-1][start:].decode(), True
    return b"\n".join(taken).decode(), True


texts = st.one_of(
    st.text(alphabet=st.sampled_from("ab \n\n\r\u00e9\u4e2d\U0001f600\u2028\x85"), max_size=80),
    st.text(max_size=60),
)


@settings(max_examples=400, deadline=None)
@given(texts, st.integers(4, 60), st.integers(1, 12))
@example("x" * 10, 10, 1)
@example("x" * 11, 10, 1)
@example("ab\n" + "x" * 10, 10, 5)
@example("\U0001f600" * 5, 18, 5)
@example("a\nb\nc", 100, 2)
@example("a\nb\nc", 3, 100)
@example("huge" * 10 + "\n", 5, 5)
@example("", 4, 1)
def test_the_cut_equals_pis(text: str, max_bytes: int, max_lines: int) -> None:
    """S0.14, S0.15: the same bytes that pi's truncateTail keeps."""
    kept, truncated = truncate_tail(text, Caps(max_bytes, max_lines))
    assert (kept, truncated) == pi_truncate_tail(text, max_bytes, max_lines)
    assert len(kept.encode()) <= max_bytes
    assert len(kept.split("\n")) <= max_lines
    assert text.endswith(kept)


@pytest.mark.parametrize("visible", range(1, 40))
def test_a_secret_on_the_cut_is_redacted_whole(visible: int) -> None:
    """It is redacted before the cut, wherever the cut falls."""
    secret = "KEY-abcdefghijklmnopqrstuvwxyz0123456789!"
    tail = "z" * (SMALL.max_bytes - visible)
    made = assemble([user(f"first\n{secret}{tail}")], SMALL, toy)
    assert made.redactions == {"custom": 1}
    for n in range(4, len(secret)):
        assert secret[n - 4 : n] not in made.text


@pytest.mark.parametrize("line", range(2, 21))
def test_a_secret_spread_over_two_messages_is_found(line: int) -> None:
    """S2.21: secrets are searched in the joined text, and the messages keep their roles."""
    lines = pem().split("\n")
    first, second = "\n".join(lines[:line]), "\n".join(lines[line:])
    said = [user(f"note\n{first}", old=True), agent(f"{second}\nrest"), user("thanks")]
    made = assemble(reversed(said), CAPS, toy)
    spoken = [(section.role, section.text) for section in made.sections]
    key = "note\n[redacted:private-key]"
    assert spoken == [("user", key), ("assistant", "\nrest"), ("user", "thanks")]
    assert made.text == "Assistant: \nrest\n\nUser: thanks"
    assert made.redactions == {}
    whole = assemble(reversed([user(f"note\n{first}"), *said[1:]]), CAPS, toy)
    assert whole.text == f"User: {key}\n\n{made.text}"
    assert whole.redactions == {"private-key": 1}
    gone = assemble([agent(second), user(first, old=True)], CAPS, toy)
    assert (gone.text, gone.only_new) == ("User: [redacted:private-key]", False)
    assert WORD not in str((made, whole, gone))


words = st.lists(
    st.sampled_from(["KEY-", "12!", "\n\nUser: ", "\n\nAssistant: ", "text", "\n", "x" * 90, "é"]),
    min_size=1,
    max_size=8,
).map(" ".join)


@given(st.lists(words, max_size=4), st.lists(words, max_size=4))
@example(["Look:\n\nUser: a\n\nAssistant: b"], ["\n\nUser: KEY-12!"])
def test_the_sent_text_is_redacted_and_labels_in_it_are_text(
    old: list[str], new: list[str]
) -> None:
    """S2.21: each message is one section with its own role, whatever is in it."""
    both = [*(user(text, old=True) for text in old), *map(agent, new)]
    found = assemble(reversed(both), CAPS, toy)
    said = [section for section in [*map(user, old), *map(agent, new)] if section.text.strip()]
    assert [section.role for section in found.sections] == [section.role for section in said]
    assert render(found.sections) == toy(render(said)).text
    sent = [section for section in said if section.role == "assistant" or not found.only_new]
    assert found.text == toy(render(sent)).text


@pytest.mark.parametrize(("agent", "row"), [("pi", 3), ("opencode", 1), ("codex", 1)])
def test_a_turn_that_grows_is_sent_again(agent: str, row: int) -> None:
    """Answers of opencode are written while they grow, so half an answer may have been indexed."""
    state = SessionState()
    for at, kind in enumerate([Kind.USER, Kind.ASSISTANT] * 2 + [Kind.USER]):
        state.add(f"e{at}", f"e{at - 1}" if at else None, code(kind), at, 1)
    assert border(agent, state, meta(last_indexed_leaf_id="e3")) == row
    assert border("opencode", state, meta(last_indexed_leaf_id="e1")) is None
