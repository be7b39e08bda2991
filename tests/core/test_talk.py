"""Conversations as text in parts: redacted as a whole, split where messages begin, cut to fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexerd.core.redact import redact
from indexerd.core.talk import LABELS, NO_TALK, said_in, taken, talk_of, without_oldest

WORDS = st.text("abc \n[]:äß\U0001f600", min_size=1, max_size=60).filter(
    lambda text: not text.startswith("\n") and not text.endswith("\n")
)
PARTS = st.lists(
    st.tuples(st.sampled_from(LABELS), WORDS).map(lambda one: f"[{one[0]}]: {one[1]}"), max_size=12
)


def clean(text: str) -> tuple[str, dict[str, int]]:
    """The built-in patterns."""
    found = redact(text)
    return found.text, found.counts


def plain(text: str) -> tuple[str, dict[str, int]]:
    """Nothing is secret."""
    return text, {}


@given(PARTS)
def test_parts_are_the_messages_and_nothing_is_lost(parts: list[str]) -> None:
    """S1.24: what serialize joined by blank lines comes apart at the same places."""
    text = "\n\n".join(parts)
    found = talk_of(text, plain)
    assert found.text == text
    assert list(found.parts) == parts


def test_a_secret_over_two_messages_is_seen_and_counted() -> None:
    """S2.21: redaction looks at the whole; a key block that ends in the next message goes."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA75"
    text = f"[User]: this is it: {key}\n\n[Assistant]: {'A' * 64}\n-----END RSA PRIVATE KEY-----"
    found = talk_of(text, clean)
    assert "MIIEpAIBAAKCAQEA75" not in found.text
    assert "A" * 64 not in found.text
    assert sum(found.redactions.values()) == 1


def test_nothing_said_is_no_parts() -> None:
    """An empty text is no part."""
    assert talk_of("", clean) is NO_TALK
    assert NO_TALK.text == ""


def test_only_messages_are_what_was_said() -> None:
    """The built-in model gets words of human and agent, in order, with later labels in them."""
    parts = [
        "[User]: Use [Assistant]: as a mark.\n\nPlease.",
        "[Assistant thinking]: Hm.",
        "[Assistant]: Yes.",
        "[Assistant tool calls]: read(path=1)",
        "[Tool result]: x",
        "no label",
    ]
    assert said_in(parts) == (
        ("user", "Use [Assistant]: as a mark.\n\nPlease."),
        ("assistant", "Yes."),
    )


@given(PARTS, st.integers(200, 2000))
def test_chunks_together_are_all_of_it(parts: list[str], size: int) -> None:
    """S2.20: every part is in exactly one chunk, in its order, and every chunk fits."""
    left, found = parts, list[str]()
    for _ in range(len(parts) + 1):
        chunk, rest = taken(left, size)
        assert len("\n\n".join(chunk).encode()) <= size
        assert chunk or not left
        found += chunk
        left = rest
        if not left:
            break
    assert found == parts


@given(st.text(min_size=300, max_size=3000), st.integers(200, 300))
def test_a_part_that_is_too_long_loses_its_middle_and_says_so(text: str, size: int) -> None:
    """S2.20: never silently; what is left is its beginning and its end, whole characters."""
    part = f"[User]: {text}"
    (shown,), rest = taken([part, "[Assistant]: x"], size)
    assert rest == ["[Assistant]: x"]
    assert len(shown.encode("utf-8", "replace")) <= size
    head, _, after = shown.partition("\n[... ")
    count, _, tail = after.partition(" characters left out ...]\n")
    if "\n[... " not in part:  # else this test cannot tell where the note is
        assert part.encode("utf-8", "replace").startswith(head.encode("utf-8", "replace"))
        assert part.encode("utf-8", "replace").endswith(tail.encode("utf-8", "replace"))
        assert len(head) + int(count) + len(tail) == len(part)


@given(PARTS)
def test_what_is_dropped_is_the_oldest(parts: list[str]) -> None:
    """S3.24: a fourth or more goes, and no result is left without its call."""
    kept = without_oldest(parts)
    assert kept == parts[len(parts) - len(kept) :]
    assert len(kept) < len(parts) or not parts
    assert not kept or not kept[0].startswith("[Tool result]: ")
    gone = sum(map(len, parts)) - sum(map(len, kept))
    assert 4 * gone >= sum(map(len, parts))
