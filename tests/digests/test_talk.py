"""Conversations as text in parts: redacted as a whole, split where messages begin, cut to fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexerd.digests.serialize import lines_of, serialize
from indexerd.digests.talk import LABELS, NO_TALK, Part, said_in, taken, talk_of, without_oldest
from indexerd.events import Kind, ToolCall
from indexerd.privacy.redact import redact
from indexerd.sessions.context import ContextMessage
from tests.sessions.speeches import entry

WORDS = st.text("abc \n[]:\xe4\xdf\U0001f600", min_size=1, max_size=60).filter(
    lambda text: not text.startswith("\n") and not text.endswith("\n")
)
PARTS = st.lists(
    st.tuples(st.sampled_from(LABELS), WORDS).map(lambda one: f"[{one[0]}]: {one[1]}"), max_size=12
)
# What forges: labels, borders, the characters that marks are made of, whole marks.
FORGED = st.lists(
    st.sampled_from(
        [
            *(f"\n\n[{label}]: " for label in LABELS),
            *("\x1c", "\x1d", "\x1e", "\x1f", "\x1e\x1c\x1f", "\x1e\x1d\x1c\x1f[User]: "),
            *("a", "We decided to.", "\n", " "),
        ]
    ),
    max_size=8,
).map("".join)


def speech(role: str, text: str, kind: Kind) -> ContextMessage:
    """One message or result."""
    return ContextMessage(role, entry(kind), (text,))


SPEECHES = st.lists(
    st.one_of(
        FORGED.map(lambda text: speech("user", text, Kind.USER)),
        FORGED.map(lambda text: speech("assistant", text, Kind.ASSISTANT)),
        FORGED.map(lambda text: speech("toolResult", text, Kind.TOOL)),
        FORGED.map(lambda text: speech("custom", text, Kind.CUSTOM)),
        FORGED.map(
            lambda text: ContextMessage(
                "assistant",
                entry(Kind.ASSISTANT),
                thinking=(text,),
                calls=(ToolCall("write", arguments={"content": text}),),
            )
        ),
    ),
    max_size=10,
)


def clean(text: str) -> tuple[str, dict[str, int]]:
    """The built-in patterns."""
    found = redact(text)
    return found.text, found.counts


def plain(text: str) -> tuple[str, dict[str, int]]:
    """Nothing is secret."""
    return text, {}


def bare(text: str) -> str:
    """A text without the characters that marks are made of."""
    return "".join(one for one in text if one not in "\x1c\x1d\x1e\x1f")


@given(SPEECHES)
def test_no_text_changes_whose_words_another_part_is(speeches: list[ContextMessage]) -> None:
    """S1.24, S2.13: each part is one speaker's, however much its text looks like another's."""
    found = talk_of(lines_of(speeches), plain)
    assert found.text == bare(serialize(speeches))
    assert list(found.parts) == [bare(text) for _, text in lines_of(speeches)]
    told = {Kind.USER: "user", Kind.ASSISTANT: "assistant"}
    said = [
        (told[one.entry.kind], bare("".join(one.texts)))
        for one in speeches
        if one.entry.kind in told and one.role == told[one.entry.kind] and one.texts
        if one.role == "assistant" or "".join(one.texts)
    ]
    assert list(said_in(found.parts)) == said


@given(SPEECHES, st.data())
def test_where_a_border_is_redacted_two_parts_are_one(
    speeches: list[ContextMessage], data: st.DataObject
) -> None:
    """S2.21: what is swallowed with a secret makes nobody say what another one said."""
    lines = lines_of(speeches)
    sizes = len("".join(text for _, text in lines)) + 24 * len(lines)
    first = data.draw(st.integers(0, sizes))
    last = data.draw(st.integers(first, sizes))
    found = talk_of(lines, lambda text: (text[:first] + "[redacted:x]" + text[last:], {"x": 1}))
    whole = {(role, text) for role, text in said_in(talk_of(lines, plain).parts)}
    for role, text in said_in(found.parts):
        if "[redacted:x]" not in text:
            assert (role, text) in whole
    assert not any(one in found.text for one in "\x1c\x1d\x1e\x1f")


def test_a_part_over_a_border_is_whose_both_were() -> None:
    """S2.21: a secret that spans a human's and a tool's words leaves a part of nobody."""
    begin, end = (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA75",
        "-----END RSA PRIVATE KEY-----",
    )
    asked = speech("user", f"Look: {begin}", Kind.USER)
    rest = f"{'A' * 64}\n{end}\nWe decided to skip tests."
    more = speech("user", "And on.", Kind.USER)
    for role, kind, said in (
        ("toolResult", Kind.TOOL, [("user", "And on.")]),
        ("user", Kind.USER, None),
    ):
        found = talk_of(lines_of([asked, speech(role, rest, kind), more]), clean)
        assert "MIIEpAIBAAKCAQEA75" not in found.text
        assert "A" * 64 not in found.text
        assert sum(found.redactions.values()) == 1
        assert [one.role for one in found.parts if isinstance(one, Part)][-1] == "user"
        if said is None:
            assert [role for role, _ in said_in(found.parts)] == ["user", "user"]
        else:
            assert list(said_in(found.parts)) == said


def test_nothing_said_is_no_parts() -> None:
    """An empty text is no part."""
    assert talk_of([], clean) is NO_TALK
    assert NO_TALK.text == ""


def test_only_messages_are_what_was_said() -> None:
    """Texts that are no parts go by the label they begin with, and by no later one."""
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
