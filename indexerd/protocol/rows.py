"""The `Row` of interfaces.md: one session as lists, lookups and searches show it.

Made from a card (the session file), a meta file and a sidecar, each of which may be missing.
The order of names is the user's title, the meta file's name, the agent's own, the first user
message, the file's stem (S0.46). Paths in a row are absolute, resolved against the cwd; secrets in
them are replaced but where a program goes: the session's file, its parent's, the cwd, the command.
Session and meta files may have been written by any hand: no text of theirs goes in unbounded.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any

from indexerd.events import Turn
from indexerd.meta.model import MetaFile
from indexerd.privacy.redact import redact
from indexerd.privacy.redact_paths import shown_paths, with_shown
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol.limits import (
    DESCRIPTION_MAX,
    FIRST_MESSAGE_MAX,
    NAME_MAX,
    SUMMARY_MAX,
    TAG_MAX,
)
from indexerd.sessions.info import SessionInfo
from indexerd.times import iso_ms, iso_of_ms

PATHS_MAX = 500  # files listed in a row
TAGS_SHOWN = 50
PATH_MAX = 4096  # characters; no path of a file system is longer
WORD_MAX = 128  # characters of an id, a time, the name of an agent or a tool
TOKEN_KEYS = ("input", "output", "cacheRead", "cacheWrite")
LOOKED_AT = 20_000  # characters of any text: far beyond every limit, and bounds the work


@dataclass(frozen=True, slots=True)
class Facts:
    """What was done on a session's path, gathered as its text was indexed."""

    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: tuple[tuple[str, int], ...] = ()
    tool_uses: tuple[tuple[str, tuple[str, ...]], ...] = ()  # at most three a tool
    models: tuple[str, ...] = ()  # in order of their last use
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)  # input, output, cache read, cache write
    cost_usd: float | None = None  # where the agent recorded it
    duration_ms: int = 0  # from the first message to the last


@dataclass(frozen=True, slots=True)
class Written:
    """A row, and the text that is searched beside it."""

    row: dict[str, Any]
    summary: str
    aliases: tuple[str, ...]


def row_of(
    card: SessionInfo,
    meta: MetaFile | None,
    title: str | None,
    facts: Facts | None,
    *,
    resume: Callable[[str, str, str], str],
    parent: tuple[str | None, str | None] = (None, None),
) -> Written:
    """The row of a session whose file is there. `parent`: its id, and its file.

    `facts`: None until all of it was read, and then nothing is told of what it took.
    """
    stem = posixpath.basename(card.path).removesuffix(".zst").removesuffix(".jsonl")
    names = _names(title, meta, card.agent_title, card.first_user, stem)
    row = _base(names, meta, title) | {
        "sessionId": card.session_id,
        "agent": card.agent,
        "sessionFile": _shown(card.file),
        "cwd": _shown(card.cwd),
        "createdAt": iso_of_ms(iso_ms(card.created_at) or card.mtime_ms),
        "firstUserMessage": card.first_user,
        "archived": card.archived,
        "gone": False,
        "resume": resume(card.session_id, card.cwd, card.path),
        "version": card.version,
        "subagent": card.subagent,
    }
    row |= fact_fields(facts) | growing(card)
    if card.git_branch:
        row["gitBranch"] = _line(_unsecret(card.git_branch), WORD_MAX)
    if card.agent_title:
        row["agentTitle"] = _line(card.agent_title, FIRST_MESSAGE_MAX)
    parent_id, parent_file = parent
    if card.parent or parent_file:
        row["parentSessionFile"] = _absolute(card.parent or parent_file or "", card.cwd)
    if parent_id:
        row["parentSessionId"] = parent_id[:WORD_MAX]
    return _written(row, meta, [title, card.agent_title])


def growing(card: SessionInfo) -> dict[str, Any]:
    """The fields of a row that become others while a session grows, and no card but it changes."""
    found: dict[str, Any] = {
        "modifiedAt": iso_of_ms(card.modified_ms),
        "messageCount": card.messages,
        "userMessageCount": card.users,
        "newUserMessages": card.new_users,
        "state": state_of(card),
        "leafId": card.leaf_id and card.leaf_id[:WORD_MAX],
        "compactions": card.compactions,
    }
    if card.tokens:
        found["tokens"] = dict(zip(TOKEN_KEYS, card.tokens, strict=True))
    return found


def firm(card: SessionInfo) -> tuple[Any, ...] | None:
    """All else that a row takes from a card; None where its file's time is in it, too."""
    return _firm(card) if iso_ms(card.created_at) else None


_firm = attrgetter(
    *("agent", "path", "session_id", "cwd", "created_at", "parent", "version", "agent_title"),
    *("first_user", "parent_id", "subagent", "archived", "git_branch", "born_ms", "first"),
    *("boxed", "fork_of"),
)


def gone_row(
    old: dict[str, Any] | None, meta: MetaFile | None, title: str | None
) -> Written | None:
    """The row of a session whose file is gone: what was known, or what its meta file says."""
    if old is None and meta is None:
        return None
    row = dict(old) if old else _from_meta(meta)
    for key in ("model", "updatedAt", "metaName"):
        row.pop(key, None)
    stem = posixpath.basename(row["sessionFile"]).removesuffix(".jsonl")
    names = _names(title, meta, row.get("agentTitle"), row.get("firstUserMessage", ""), stem)
    row |= _base(names, meta, title)
    row |= {"gone": True, "archived": True, "state": "archived", "resume": ""}
    return _written(row, meta, [title, row.get("agentTitle")])


def fact_fields(facts: Facts | None) -> dict[str, Any]:
    """The facts as fields of a row; without them no sum is said, not even 0."""
    if facts is None:
        return {"filesRead": [], "filesModified": [], "toolsUsed": {}, "toolUses": {}, "models": []}
    return {
        "filesRead": list(shown_paths(facts.files_read)),
        "filesModified": list(shown_paths(facts.files_modified)),
        "toolsUsed": dict(facts.tools_used),
        "toolUses": {name: list(uses) for name, uses in facts.tool_uses},
        "models": list(facts.models),
        "tokens": dict(zip(TOKEN_KEYS, facts.tokens, strict=True)),
        "costUsd": facts.cost_usd,
        "durationMs": facts.duration_ms,
    }


def facts_of(row: dict[str, Any] | None) -> Facts | None:
    """The facts that a row holds, if its session was read."""
    if row is None or "durationMs" not in row:
        return None
    tokens = row.get("tokens", {})
    return Facts(
        files_read=tuple(row.get("filesRead", ())),
        files_modified=tuple(row.get("filesModified", ())),
        tools_used=tuple(row.get("toolsUsed", {}).items()),
        tool_uses=tuple((name, tuple(uses)) for name, uses in row.get("toolUses", {}).items()),
        models=tuple(row.get("models", ())),
        tokens=(*(tokens.get(key, 0) for key in TOKEN_KEYS),),
        cost_usd=row.get("costUsd"),
        duration_ms=row["durationMs"],
    )


def _from_meta(meta: MetaFile | None) -> dict[str, Any]:
    assert meta is not None  # noqa: S101 - gone_row looked
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
        "archived": False,
        "filesRead": _listed(meta.files_read, meta.cwd),
        "filesModified": _listed(meta.files_modified, meta.cwd),
        "toolsUsed": {
            _line(name, WORD_MAX): count
            for name, count in list((meta.tools_used or {}).items())[:PATHS_MAX]
        },
        "resume": "",
    }


def _base(names: tuple[str, str], meta: MetaFile | None, title: str | None) -> dict[str, Any]:
    name, source = names
    found: dict[str, Any] = {
        "name": name,
        "nameSource": source,
        "description": _text(_unsecret(meta.description), DESCRIPTION_MAX) if meta else "",
        "tags": _tags(meta.tags) if meta else [],
        "indexed": meta is not None,
    }
    if meta is not None:
        found |= {
            "model": _line(meta.model, NAME_MAX),
            "updatedAt": _line(meta.updated_at, WORD_MAX),
        }
        if title:
            found["metaName"] = _line(_unsecret(meta.name), NAME_MAX)
    return found


def _tags(tags: Iterable[str]) -> list[str]:
    plain = (_line(_unsecret(tag), TAG_MAX) for tag in islice(tags, TAGS_SHOWN))
    return [tag for tag in plain if tag]


def _names(
    title: str | None, meta: MetaFile | None, agent: str | None, first: str, stem: str
) -> tuple[str, str]:
    candidates = (
        (title, "user"),
        (_unsecret(meta.name) if meta else None, "meta"),
        (agent, "agent"),
        (first, "first-message"),
    )
    for text, source in candidates:
        name = _line(text or "", NAME_MAX)
        if name:
            return name, source
    return _line(_unsecret(_shown(stem)), NAME_MAX) or "session", "file"


def _written(row: dict[str, Any], meta: MetaFile | None, names: Iterable[str | None]) -> Written:
    known = [row["name"], _line(_unsecret(meta.name), NAME_MAX) if meta else "", *names]
    aliases = dict.fromkeys(_line(name, NAME_MAX) for name in known if name)
    summary = _text(_unsecret(meta.summary), SUMMARY_MAX) if meta else ""
    return Written(with_shown(row), summary, tuple(name for name in aliases if name))


@lru_cache(512)
def _unsecret(text: str) -> str:
    """A text of a meta file without secrets, before it is cut: another hand may have written it.

    A row is made anew whenever its session grows, and its meta file seldom changes.
    """
    return redact(text[:LOOKED_AT]).text


def _line(text: str, limit: int) -> str:
    return clean_line(text[:LOOKED_AT], limit)


def _text(text: str, limit: int) -> str:
    return clean_text(text[:LOOKED_AT], limit)


def state_of(card: SessionInfo) -> str:
    """The session's state, as a row says it (S3.25)."""
    if card.archived:
        return "archived"
    if card.turn_state is Turn.OPEN and card.answered:
        return "active"
    return "compacted" if card.compacted else "idle"


def _shown(path: str) -> str:
    """A path that JSON can hold: bytes that are no UTF-8 are escaped."""
    whole = path[:PATH_MAX].encode("utf-8", "surrogateescape")
    return whole.decode("utf-8", "backslashreplace")


def _listed(paths: Iterable[str] | None, cwd: str) -> list[str]:
    """Paths of a meta file, absolute and without secrets."""
    return list(shown_paths(tuple(_absolute(one, cwd) for one in islice(paths or (), PATHS_MAX))))


def _absolute(path: str, cwd: str) -> str:
    return _shown(absolute(path[:PATH_MAX], cwd[:PATH_MAX]))


def absolute(path: str, cwd: str) -> str:
    """A path as a tool was given it, made absolute."""
    path = path.removeprefix("@")
    return posixpath.normpath(posixpath.join("/", cwd, path))
