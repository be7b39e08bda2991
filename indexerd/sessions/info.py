"""The facts of a session that the daemon keeps in memory, without its tree.

An info is made from a session's state whenever its file changes, and is all that policy, rows
and lookups need. It is frozen: the thread that reads files makes infos, other threads read them.
"""

from __future__ import annotations

import sys

import msgspec
from msgspec.structs import force_setattr

from indexerd.entries import Kind, Turn
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.sessions.state import NOWHERE, SessionState
from indexerd.times import iso_ms


class SessionInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The facts of one session file. Times in ms since the epoch."""

    agent: str
    path: str
    session_id: str
    cwd: str
    created_at: str
    parent: str | None
    version: int
    activity_ms: int  # newest user or assistant message
    mtime_ms: int
    leaf_id: str | None
    turn: Turn
    agent_title: str | None
    first_prompt: str
    messages: int
    users: int  # human messages on the current path
    answered: bool
    compacted: bool  # the newest entry is a compaction
    rows: int
    bad_lines: int
    since: str | None = None  # the lastIndexedLeafId that `new_users` was counted from
    new_users: int = 0
    looped: bool = False  # some parents form a cycle
    parent_id: str | None = None
    subagent: bool = False
    archived: bool = False
    git_branch: str = ""
    compactions: int = 0
    born_ms: int = 0  # when the file was begun; history copied into it is older
    first: str = ""  # identifies the first entry: the same in all copies of one history
    tokens: tuple[int, ...] | None = None  # the agent's own sums, if it keeps them
    in_database: bool = False  # in a database: the path is the database's, then the id
    base_names: tuple[str, ...] = ()  # names of the other files in which its history begins
    missing_base: str = ""  # the thread with earlier history whose file was not found
    base_excluded: bool = False  # earlier history is in a file that the user excluded
    fork_of: str = ""  # title of the session that this one was forked from, if it names that
    named_by_person: bool = False  # a person gave `agent_title`
    recap: str = ""  # what most of it did, by the agent's own model
    question: str = ""  # what its last message asks the user

    @property
    def has_base(self) -> bool:
        return bool(self.base_names or self.missing_base or self.base_excluded)

    @property
    def file(self) -> str:
        """The file that the user knows; for a session in a database, the database."""
        return self.path.rpartition("/")[0] if self.in_database else self.path

    @property
    def modified_ms(self) -> int:
        """The time of the newest message, or else the file's."""
        return self.activity_ms or self.mtime_ms


_SAME = (  # fields that an info copies from its state
    *("activity_ms", "turn", "messages", "answered", "bad_lines", "git_branch"),
    *("leaf_id", "compactions", "first", "fork_of", "tokens", "missing_base", "base_excluded"),
    "question",
)
_OF_HEADER = ("session_id", "cwd", "created_at", "parent", "parent_id", "subagent", "version")


def info_of(
    state: SessionState,
    *,
    agent: str,
    path: str,
    mtime_ms: int,
    since: str | None,
    title: str | None = None,
    archived: bool = False,
    in_database: bool = False,
) -> SessionInfo | None:
    """Make the info of a state; None if the file is not a session.

    `title` (a person's), `archived` and `in_database` come from elsewhere than the session's lines.
    """
    header = state.header
    if header is None:
        return None
    return SessionInfo(
        agent=agent,
        path=path,
        mtime_ms=mtime_ms,
        agent_title=title or state.name,
        named_by_person=bool(title) or state.named_by_person,
        since=since,
        new_users=state.new_user_messages(since),
        archived=archived or state.archived,
        born_ms=state.born_ms or iso_ms(header.created_at),
        in_database=in_database,
        base_names=tuple(base_name(path) for _, path in state.base_files),
        # Like pi's own list: the first message of the file, whatever the path.
        first_prompt=state.first_prompt or state.command
        if agent != "pi"
        else next(filter(None, state.openings.values()), ""),
        users=state.user_messages(),
        recap=state.told,
        compacted=state.leaf != NOWHERE and state.kind(state.leaf) is Kind.COMPACTION,
        rows=len(state),
        looped=bool(state.cycles),
        **{name: getattr(header, name) for name in _OF_HEADER},
        **{name: getattr(state, name) for name in _SAME},
    )


def base_name(path: str) -> str:
    """Return the part of a file's name that survives a move and compression."""
    return replace_surrogates(path.rpartition("/")[2].removesuffix(".zst"))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SessionInfo)


def pack(info: SessionInfo) -> bytes:
    """Encode an info for the store, without its path, which may not be valid text."""
    return _encoder.encode(msgspec.structs.replace(info, path=""))


def unpack(data: bytes, path: str) -> SessionInfo:
    """Decode an info; ValueError for another build's bytes. Common strings are shared."""
    info = _decoder.decode(data)  # its errors are ValueErrors
    force_setattr(info, "path", path)  # no other thread has this info yet
    for name in ("agent", "cwd", "git_branch"):
        force_setattr(info, name, sys.intern(getattr(info, name)))
    return info


def state_of(info: SessionInfo) -> str:
    if info.archived:
        return "archived"
    if info.question:
        return "waiting"
    if info.turn is Turn.OPEN and info.answered:
        return "active"
    if info.turn is Turn.FAILED:
        return "failed"
    return "compacted" if info.compacted else "idle"
