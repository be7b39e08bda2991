"""Lines into a session's state, by its agent's adapter, and a state into a card.

What the place of a file adds to what its lines say is here, too; nothing here remembers anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from indexerd.agents.base import Oversize
from indexerd.errors import SessionUnreadableError
from indexerd.events import Header
from indexerd.paths import is_session_id
from indexerd.privacy.exclusions import Exclusions
from indexerd.sessions.info import SessionInfo, info_of
from indexerd.sessions.state import SessionState
from indexerd.sources.cursor import Verdict
from indexerd.sources.lineage import Lineage, cwd_of
from indexerd.sources.lines import Block
from indexerd.sources.memory import Tracked
from indexerd.sources.sources import source_of
from indexerd.sources.stores import Kind, Store
from indexerd.times import iso_ms


@dataclass(frozen=True, slots=True)
class Change:
    """A session is not what it was. `card` is None when its last file is gone."""

    session_id: str
    card: SessionInfo | None
    verdict: Verdict
    was: SessionInfo | None = None
    branched: bool = False  # the old leaf is not on the new path


def only_grew(change: Change | None) -> bool:
    """Whether a known session got more at its end, and nothing else."""
    return change is not None and change.verdict is Verdict.CONTINUE and change.was is not None


def begin(
    agent: str, path: str, pieces: Iterable[Block | Oversize], lineage: Lineage
) -> SessionState:
    """A new state, with the history that another file holds of it."""
    state = SessionState(path)
    first = next(iter(pieces), None)
    if isinstance(first, Block):
        lineage.borrow(state, agent, first.data.partition(b"\n")[0])
    return state


def made(
    file: Tracked,
    state: SessionState,
    store: Store | None,
    since: Callable[[str], str | None],
    title: Callable[[str, str], str | None],
) -> tuple[SessionInfo | None, str]:
    """A file's card, and what is wrong with the file where there can be none."""
    header, was, cursor = state.header, file.card, file.tail.cursor
    card = info_of(
        state,
        agent=file.agent,
        path=file.path,
        mtime_ms=max(cursor.mtime_ns, 0) // 1_000_000 if cursor else 0,
        since=since(header.session_id) if header else None,
        **(_besides(store, title, header) if header else {}),
    )
    if card is None and was is not None and is_blank(state):  # emptied, to be written anew
        card = replace(was, path=file.path, since=since(was.session_id), new_users=0)
    if card is not None and not is_session_id(card.session_id):
        return None, "the session id is not of the allowed form"
    return card, ""


def let_in(file: Tracked, exclusions: Exclusions) -> bool:
    """Whether an excluded session runs where it is not excluded any more."""
    seen = file.look() if file.passed else None
    if seen is None or exclusions.match(file.path, ""):
        return False
    with suppress(SessionUnreadableError):
        file.passed, file.cwd = seen, cwd_of(file.agent, file.path)
        file.excluded = exclusions.match(file.path, file.cwd)
    return not file.excluded


def _besides(
    store: Store | None, title: Callable[[str, str], str | None], header: Header
) -> dict[str, Any]:
    """What is known of a session besides its own lines, as `info_of` takes it."""
    if store is None:
        return {}
    return {
        "title": title(store.agent, header.session_id),
        "archived": store.archive,
        "boxed": store.kind is Kind.DATABASE,
    }


def rank(path: str, card: SessionInfo | None, store: Store) -> tuple[object, ...]:
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


def is_there(path: str, store: Store | None) -> bool:
    """Whether there is something to read. What a database holds is looked at only to be read."""
    if store is None:
        return False
    return store.kind is Kind.DATABASE or source_of(store.agent, path).look(path) is not None


def elsewhere(gone: list[str], stores: list[Store]) -> Iterator[str]:
    """Where files that are gone would be, had their agent archived or compressed them, or both.

    The archive may have been made for the first of them, and not be watched yet.
    """
    for path in gone:
        agents = {one.agent for one in stores if one.kind is Kind.FILES and one.takes(path)}
        if not agents:
            continue
        folder, _, name = path.rpartition("/")
        other = name.removesuffix(".zst") if name.endswith(".zst") else f"{name}.zst"
        yield f"{folder}/{other}"
        for store in stores:
            if store.archive and store.agent in agents and not store.takes(path):
                yield from (f"{store.sessions}/{one}" for one in (name, other))
