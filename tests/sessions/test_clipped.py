"""Texts that know how long they were: counts and notes are those of the whole."""

from __future__ import annotations

from typing import Any

import pytest

from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.events import Entry, Kind, ToolCall, ToolResult
from indexerd.sessions.clipped import clip, joined, length
from indexerd.sessions.clipped_entries import COUNTED, SUMMED, Keep, clipped
from indexerd.sessions.context import ContextMessage
from indexerd.sessions.serialize import parts_of, units

LONG = 'grün "x"\t𝄞\n' * 60_000


def speeches(entry: Entry) -> list[ContextMessage]:
    """An answer and a result as they are summed up."""
    role = "toolResult" if entry.kind is Kind.TOOL else "assistant"
    return [ContextMessage(role, entry, entry.texts, entry.thinking, entry.tools)]


def entry(kind: Kind, **fields: Any) -> Entry:
    """One entry."""
    return Entry(id="a", kind=kind, type="message", role=None, timestamp="", **fields)


@pytest.mark.parametrize("keep", [SUMMED, COUNTED])
@pytest.mark.parametrize(
    "found",
    [
        entry(Kind.TOOL, texts=(LONG, "end"), results=(ToolResult("c", "", LONG + "end"),)),
        entry(Kind.ASSISTANT, texts=(LONG, "short"), thinking=(LONG,)),
        entry(Kind.ASSISTANT, tools=(ToolCall("write", arguments={"path": "a", "text": LONG}),)),
        entry(Kind.ASSISTANT, tools=(ToolCall("write", arguments=[LONG, {"1": [LONG]}]),)),
        entry(Kind.CALL, tools=(ToolCall("sh", arguments='{"text": "' + "ab" * 99_999 + '"}'),)),
        entry(Kind.CALL, tools=(ToolCall("sh", arguments=LONG),)),
    ],
)
def test_tokens_are_those_of_the_whole(found: Entry, keep: Keep) -> None:
    """S1.25, S3.23: by the rules of each agent, whatever is left out of a text."""
    whole, less = speeches(found), speeches(clipped(found, keep))
    for rules in (compact_pi.estimate_tokens, compact_codex.estimate, compact_opencode.estimate):
        assert [*map(rules, less)] == [*map(rules, whole)]
    assert sum(len(text) for _, text in parts_of(less)) < 400_000


def test_a_result_is_summed_up_to_the_letter() -> None:
    """S1.24: its beginning, and how many characters are missing of the whole."""
    found = entry(Kind.TOOL, texts=(LONG,), results=(ToolResult("c", "", LONG),))
    less = clipped(found, SUMMED)
    assert parts_of(speeches(less))[0][1] == parts_of(speeches(found))[0][1]
    assert less.texts == (less.results[0].text,)


def test_words_keep_both_ends_and_say_what_is_missing() -> None:
    """A text is cut between lines: half a secret would not be known for one."""
    text = "".join(f"line {number}\n" for number in range(50_000))
    less = clip(text, 1000, 1000)
    head, note, tail = less.partition("\n[... ")
    count = int(tail.split()[0])
    assert note
    assert text.startswith(head + "\n")
    assert text.endswith(tail.partition("...]\n")[2])
    assert len(head) + count + len(tail.partition("...]\n")[2]) == len(text)
    assert units(less) == len(text)


def test_what_is_short_stays_the_very_text() -> None:
    """Nothing is copied, joined or marked."""
    text = "short" * 10
    assert clip(text, 30, 10) is text
    assert type(joined([text, text])) is str
    assert length(text) == (50, 50)
