"""A session's entries as a story."""

from __future__ import annotations

from indexerd.web.story import Story, kept_rows, node_of, story_of, turn_of
from tests.sessions.tree_sessions import reader, session, state_of


def told(
    *entries: bytes, leaf: str | None = None, gists: dict[str, str] | None = None, room: int = 500
) -> Story:
    """The story of a session of these entries."""
    data = session(*entries)
    state = state_of(data)
    if leaf is not None:
        state.move_leaf(leaf.encode())
    read = reader(state, data)
    drafts = {
        row: node_of(read(row), turn_of(state, row), room, lambda text, most: text[:most])
        for row in kept_rows(state)
    }
    named = {state.index[tip.encode()]: (text, "agent") for tip, text in (gists or {}).items()}
    return story_of(state, drafts, state.labels, named)
