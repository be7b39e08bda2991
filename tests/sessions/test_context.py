"""The context of a session: compactions, edits and version 1."""

from typing import Any

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
