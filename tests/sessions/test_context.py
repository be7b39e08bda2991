"""The context of a session: edits, version 1 and wrong transform rules."""

from typing import Any

import pytest

from indexerd.errors import UsageError
from indexerd.protocol import params
from indexerd.sessions.context import Context, context_of
from tests.sessions.tree_sessions import entry, line, reader, said, session, state_of


def seen(*lines: bytes, leaf: str | None = None, version: int = 3) -> Context:
    data = session(*lines, version=version)
    state = state_of(data)
    view = state.snapshot(state.row(leaf)) if leaf else state
    return context_of(view, reader(state, data), level="off")


def view(context: Context) -> list[str]:
    return [f"{message.role} {message.text}".strip() for message in context.messages]


TALK = [
    said("a", None, "user", "one"),
    said("b", "a", "assistant", "1", provider="p", model="m"),
    said("c", "b", "user", "two"),
    said("d", "c", "assistant", "2", provider="p", model="m"),
]


def edit(entry_id: str, above: str, target: str, **more: Any) -> bytes:
    return entry("context_edit", entry_id, above, targetId=target, **more)


def test_edits_change_what_the_model_sees() -> None:
    """In pi 0.87 null removes the target, an object replaces its text, the last edit counts."""
    blocks = [{"type": "text", "text": "new"}, {"type": "image"}, {"type": "text", "text": "er"}]
    found = seen(
        *TALK,
        edit("e", "d", "a", replacement={"content": "first"}),
        edit("f", "e", "a", replacement={"content": blocks}),
        edit("g", "f", "b", replacement=None),
        edit("h", "g", "c"),
        edit("i", "h", "nobody", replacement=None),
    )
    assert view(found) == ["user newer", "user two", "assistant 2"]


def test_version_1_names_the_kept_entry_by_index() -> None:
    """S1.8: `firstKeptEntryIndex` counts the header as 0 and skips lines that are no JSON."""
    talk = [
        line(type="message", timestamp="t", message={"role": "user", "content": text})
        for text in ("one", "two", "three")
    ]

    def kept(index: Any) -> list[str]:
        last = line(type="compaction", summary="S", firstKeptEntryIndex=index, tokensBefore=1)
        return view(seen(talk[0], b"{torn\n", *talk[1:], last, version=1))

    assert kept(2) == ["compactionSummary S", "user two", "user three"]
    for odd in (0, 9, "2", True):
        assert kept(odd) == ["compactionSummary S"]


@pytest.mark.parametrize(
    "given",
    [
        ["prune"],
        [{}],
        [{"rule": "compress"}],
        [{"rule": "prune", "protectTokens": -1}],
        [{"rule": "prune", "tokens": 5}],
        [{"rule": "summary"}],
        [{"rule": "summary", "text": "x" * 70_000}],
        [{"rule": "truncate", "chars": 500, "roles": ["user", 5]}],
        [{"rule": "truncate"}],
        [{"rule": "truncate", "chars": 99}],
        [{"rule": "truncate", "chars": 500, "keep": "middle"}],
        [{"rule": "prune"}] * (20 + 1),
    ],
)
def test_wrong_rules_are_errors(given: Any) -> None:
    with pytest.raises(UsageError):
        params.decode(params.Context, {"ref": "s", "transforms": given})
