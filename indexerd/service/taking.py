"""Lines into a session's state, by its agent's adapter, and what the place of a file adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from indexerd.agents import ADAPTERS
from indexerd.core.card import Card
from indexerd.core.lines import Block, Oversize
from indexerd.core.session import SessionState
from indexerd.core.times import iso_ms
from indexerd.events import Header
from indexerd.io.stores import Kind, Store
from indexerd.service.lineage import Lineage


def begin(
    agent: str, path: str, pieces: Iterable[Block | Oversize], lineage: Lineage
) -> SessionState:
    """A new state, with the history that another file holds of it."""
    state = SessionState(path)
    first = next(iter(pieces), None)
    if isinstance(first, Block):
        lineage.borrow(state, agent, first.data.partition(b"\n")[0])
    return state


def take_in(agent: str, state: SessionState, pieces: Iterable[Block | Oversize]) -> None:
    """Take in what was read."""
    adapter = ADAPTERS[agent]
    for piece in pieces:
        if isinstance(piece, Oversize):
            adapter.skim_oversize(state, piece)
        else:
            adapter.skim(state, piece.data, piece.offset)


def besides(
    store: Store | None, title: Callable[[str, str], str | None], header: Header
) -> dict[str, Any]:
    """What is known of a session besides its own lines, as `card_of` takes it."""
    if store is None:
        return {}
    return {
        "title": title(store.agent, header.session_id),
        "archived": store.archive,
        "boxed": store.kind is Kind.DATABASE,
    }


def rank(path: str, card: Card | None, store: Store) -> tuple[object, ...]:
    """What decides between files of one session, before their newest entries do.

    Of a thread's files in Codex that with the newest session_meta is live (a revert makes a
    second), a plain one before its compressed copy; in opencode the database before the tree.
    """
    if store.agent == "codex" and card is not None:
        return (iso_ms(card.created_at), not path.endswith(".zst"))
    return (store.kind is Kind.DATABASE,) if store.agent == "opencode" else ()


def is_blank(state: SessionState) -> bool:
    """Whether a file has no header yet, as while pi migrates it (S1.11): no reason to forget."""
    return state.header is None and not (state.foreign or state.bad_lines or state.seen)


def archived(gone: list[str], stores: list[Store]) -> Iterator[str]:
    """Where files that are gone would be, had their agent archived them.

    The archive may have been made for the first of them, and not be watched yet.
    """
    for path in gone:
        agents = {one.agent for one in stores if one.takes(path)}
        for store in stores:
            if store.archive and store.agent in agents and not store.takes(path):
                yield f"{store.sessions}/{path.rpartition('/')[2]}"
