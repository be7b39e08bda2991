"""The `Row` of a session, made of all that is known of it.

Made from the session file's info, a meta file and a sidecar, each of which may be missing. The
order of names is the user's title, the meta file's name, the agent's own, the first user message,
the file's stem. Paths in a row are absolute, resolved against the cwd. Session and meta
files may have been written by any hand: no text of theirs goes into a row unbounded.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from typing import Any

from indexerd.agents import ADAPTERS
from indexerd.meta.cache import MetaCache
from indexerd.meta.model import MetaFile
from indexerd.privacy.redact import redact, shown_paths, with_shown
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol.limits import (
    DESCRIPTION_MAX,
    FIRST_MESSAGE_MAX,
    NAME_MAX,
    PATH_MAX,
    PATHS_MAX,
    READ_MAX,
    SUMMARY_MAX,
    TAG_MAX,
    TAGS_SHOWN,
    WORD_MAX,
)
from indexerd.protocol.results import StoredRow
from indexerd.sessions.facts import TOKEN_KEYS, Facts, absolute, fact_fields, facts_of
from indexerd.sessions.family import Parent, ParentIndex
from indexerd.sessions.info import SessionInfo, state_of
from indexerd.sources.stores import Store
from indexerd.store.store import StateStore
from indexerd.times import iso_ms, iso_of_ms

Row = dict[str, Any]


class Rows:
    """Makes rows. One thread uses this."""

    def __init__(
        self,
        info: Callable[[str], SessionInfo | None],
        hides: Callable[..., bool],
        metas: MetaCache,
        store: StateStore,
        stores: Callable[[], list[Store]],
    ) -> None:
        """`hides(session_id, file="", cwd="")`: whether the user excluded a session."""
        self._info = info
        self._hides = hides
        self._metas = metas
        self._store = store
        self._stores = stores
        self.parents = ParentIndex()

    def of(self, session_id: str, old: Row | None, facts: Facts | None = None) -> StoredRow | None:
        """A session's row, `old` until now; None where it has none. `facts`: None keeps the old."""
        info, stat = self._info(session_id), self._metas.get(session_id)
        meta = self._metas.meta(session_id)
        title = stat.title if stat else None
        if info is None:
            return None if self._is_hidden(session_id, meta, old) else gone_row(old, meta, title)
        facts = facts_of(old) if facts is None else facts
        parent = self._parent(info, old.get("parentSessionId") if old else None)
        return row_of(info, meta, title, facts, resume=self._resume, parent=parent)

    def _resume(self, session_id: str, cwd: str, path: str) -> str:
        """The command that opens a session again; a directory that is not absolute is none."""
        store = next((one for one in self._stores() if one.takes(path)), None)
        if store is None:
            return ""
        command = ADAPTERS[store.agent].resume_command
        return command(session_id, cwd if cwd.startswith("/") else "", path, store.variables)

    def _is_hidden(self, session_id: str, meta: MetaFile | None, old: Row | None) -> bool:
        """Whether the user excluded a session, of which perhaps only our own files are left."""
        places = [("", "")]
        places += [(old["sessionFile"], old["cwd"])] if old else []
        places += [(meta.session_file, meta.cwd)] if meta else []
        return any(self._hides(session_id, *one) for one in places)

    def _parent(self, info: SessionInfo, told: str | None) -> Parent:
        """Where a session came from; one that is gone stays the parent that was `told` before."""
        parent = self.parents.parent(info)
        if parent.session_id is None and info.parent:  # its file is gone; its row may be there
            for row in self._store.by_file(info.parent):
                return Parent(str(row["sessionId"]), info.parent)
        before = told if told != info.parent_id else None
        named = "" if info.parent else before or parent.session_id
        if named and self._info(named) is None and not self._hides(named):
            left = self._store.get(named)
            if left is not None:
                return Parent(named, str(left["sessionFile"]))
        return parent


def row_of(
    info: SessionInfo,
    meta: MetaFile | None,
    title: str | None,
    facts: Facts | None,
    *,
    resume: Callable[[str, str, str], str],
    parent: tuple[str | None, str | None] = (None, None),
) -> StoredRow:
    """The row of a session whose file is there. `parent`: its id, and its file.

    `facts`: None until all of it was read, and then nothing is told of what it took.
    """
    stem = posixpath.basename(info.path).removesuffix(".zst").removesuffix(".jsonl")
    row = _base(meta, title, info.agent_title, info.first_user, stem) | {
        "sessionId": info.session_id,
        "agent": info.agent,
        "sessionFile": _shown(info.file),
        "cwd": _shown(info.cwd),
        "createdAt": iso_of_ms(iso_ms(info.created_at) or info.mtime_ms),
        "firstUserMessage": info.first_user,
        "archived": info.archived,
        "gone": False,
        "resume": resume(info.session_id, info.cwd, info.path),
        "version": info.version,
        "subagent": info.subagent,
        "modifiedAt": iso_of_ms(info.modified_ms),
        "messageCount": info.messages,
        "userMessageCount": info.users,
        "newUserMessages": info.new_users,
        "state": state_of(info),
        "leafId": info.leaf_id and info.leaf_id[:WORD_MAX],
        "compactions": info.compactions,
    }
    row |= fact_fields(facts)
    if info.tokens:
        row["tokens"] = dict(zip(TOKEN_KEYS, info.tokens, strict=True))
    if info.git_branch:
        row["gitBranch"] = _line(_unsecret(info.git_branch), WORD_MAX)
    if info.agent_title:
        row["agentTitle"] = _line(info.agent_title, FIRST_MESSAGE_MAX)
    parent_id, parent_file = parent
    if info.parent or parent_file:
        row["parentSessionFile"] = _absolute(info.parent or parent_file or "", info.cwd)
    if parent_id:
        row["parentSessionId"] = parent_id[:WORD_MAX]
    return _written(row, meta, [title, info.agent_title])


def gone_row(old: Row | None, meta: MetaFile | None, title: str | None) -> StoredRow | None:
    """The row of a session whose file is gone: what was known, or what its meta file says."""
    row = dict(old) if old else _from_meta(meta) if meta else None
    if row is None:
        return None
    for key in ("model", "updatedAt", "metaName"):
        row.pop(key, None)
    stem = posixpath.basename(row["sessionFile"]).removesuffix(".jsonl")
    row |= _base(meta, title, row.get("agentTitle"), row.get("firstUserMessage", ""), stem)
    row |= {"gone": True, "archived": True, "state": "archived", "resume": ""}
    return _written(row, meta, [title, row.get("agentTitle")])


def _from_meta(meta: MetaFile) -> Row:
    tools = islice((meta.tools_used or {}).items(), PATHS_MAX)
    return {
        "sessionId": meta.session_id,
        "agent": _line(meta.agent or "", WORD_MAX) or "pi",
        "sessionFile": _shown(meta.session_file),
        "cwd": _shown(meta.cwd),
        "createdAt": _line(meta.session_created_at or meta.created_at, WORD_MAX),
        "modifiedAt": _line(meta.session_modified_at or meta.updated_at, WORD_MAX),
        "messageCount": meta.message_count or 0,
        "userMessageCount": meta.user_message_count or 0,
        "newUserMessages": 0,
        "firstUserMessage": _line(_unsecret(meta.first_user_message or ""), FIRST_MESSAGE_MAX),
        "filesRead": _paths(meta.files_read, meta.cwd),
        "filesModified": _paths(meta.files_modified, meta.cwd),
        "toolsUsed": {_line(name, WORD_MAX): count for name, count in tools},
    }


def _base(
    meta: MetaFile | None, title: str | None, agent_title: str | None, first: str, stem: str
) -> Row:
    """What every row says of a session's name, and what its meta file says."""
    of_meta = _line(_unsecret(meta.name), NAME_MAX) if meta else ""
    names = {
        "user": _line(title or "", NAME_MAX),
        "meta": of_meta,
        "agent": _line(agent_title or "", NAME_MAX),
        "first-message": _line(first, NAME_MAX),
        "file": _line(_unsecret(_shown(stem)), NAME_MAX) or "session",
    }
    source, name = next((source, name) for source, name in names.items() if name)
    found: Row = {"name": name, "nameSource": source, "description": "", "tags": []}
    found["indexed"] = meta is not None
    if meta is not None:
        tags = [_line(_unsecret(tag), TAG_MAX) for tag in islice(meta.tags, TAGS_SHOWN)]
        found |= {
            "description": _text(_unsecret(meta.description), DESCRIPTION_MAX),
            "tags": [tag for tag in tags if tag],
            "model": _line(meta.model, NAME_MAX),
            "updatedAt": _line(meta.updated_at, WORD_MAX),
        }
        if title:
            found["metaName"] = of_meta
    return found


def _written(row: Row, meta: MetaFile | None, names: Iterable[str | None]) -> StoredRow:
    """A row with its summary, and all names that it is found by."""
    known = [row["name"], _unsecret(meta.name) if meta else "", *names]
    aliases = dict.fromkeys(_line(name or "", NAME_MAX) for name in known)
    summary = _text(_unsecret(meta.summary), SUMMARY_MAX) if meta else ""
    return StoredRow(with_shown(row), summary, tuple(name for name in aliases if name))


@lru_cache(512)
def _unsecret(text: str) -> str:
    """A text of a meta file without secrets, before it is cut: another hand may have written it."""
    return redact(text[:READ_MAX]).text


def _line(text: str, limit: int) -> str:
    return clean_line(text[:READ_MAX], limit)


def _text(text: str, limit: int) -> str:
    return clean_text(text[:READ_MAX], limit)


def _shown(path: str) -> str:
    """A path that JSON can hold: bytes that are no UTF-8 are escaped."""
    whole = path[:PATH_MAX].encode("utf-8", "surrogateescape")
    return whole.decode("utf-8", "backslashreplace")


def _paths(paths: Iterable[str] | None, cwd: str) -> list[str]:
    """Paths of a meta file, absolute and without secrets."""
    return list(shown_paths(tuple(_absolute(one, cwd) for one in islice(paths or (), PATHS_MAX))))


def _absolute(path: str, cwd: str) -> str:
    return _shown(absolute(path[:PATH_MAX], cwd[:PATH_MAX]))
