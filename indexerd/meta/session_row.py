"""Make a session's row from its session file's info, its meta file and its sidecar.

Each of these may be missing. A session's name is the user's title, else one that a person gave in
the agent, a language model's name, the agent's own title, the built-in model's name, the first user
message, or the file's stem. Paths in a row are absolute, resolved against the cwd. Session and meta
files are not trusted: their texts are bounded.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from indexerd.agents import resume_command
from indexerd.entries import ASKED
from indexerd.meta.cache import MetaCache
from indexerd.meta.model import Marks, MetaFile, distinct
from indexerd.models.base import LOCAL
from indexerd.privacy.redact import StoredRow, redact, shown_path, with_shown
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol import limits
from indexerd.sessions.facts import TOKEN_KEYS, RowFacts, absolute, fact_fields, facts_of
from indexerd.sessions.family import Parent, ParentIndex
from indexerd.sessions.info import SessionInfo, state_of
from indexerd.sources.projects import Projects
from indexerd.sources.roots import Layout
from indexerd.sources.session_reader import SessionFiles
from indexerd.store.store import StateStore
from indexerd.times import iso_ms, iso_of_ms

Row = dict[str, Any]


class Rows:
    """Makes rows. For one thread."""

    def __init__(
        self, files: SessionFiles, metas: MetaCache, store: StateStore, projects: Projects
    ) -> None:
        self._files = files
        self._projects = projects
        self._metas = metas
        self._store = store
        self.parents = ParentIndex()

    def of(
        self, session_id: str, old: Row | None, facts: RowFacts | None = None
    ) -> StoredRow | None:
        """Make a session's row; without `facts`, with those of its `old` row."""
        info, stat = self._files.info(session_id), self._metas.get(session_id)
        meta = self._metas.meta(session_id)
        marks = stat.marks if stat else Marks()
        if info is not None:
            facts, parent, resume = facts or facts_of(old), self._parent(info, old), ""
            root = self._files.root_of(info.path)
            prompts_only = root is not None and root.layout is Layout.HISTORY
            if root and not (root.kept or prompts_only):
                cwd = info.cwd if info.cwd.startswith("/") else ""
                cwd = self._projects.now(cwd, iso_ms(info.created_at) or info.mtime_ms)
                own = info.session_id, cwd, info.path, root.variables
                resume = resume_command(root.agent, *own)
            written = row_of(info, meta, marks, facts, resume=resume, parent=parent)
            if root is not None and root.kept:
                written.row["copyOnly"] = True
            if prompts_only:
                written.row.update(gone=True, promptsOnly=True)
            return self._placed(written)
        # The user may have excluded the session whose files we still have.
        places = [("", "")]
        places += [(old["sessionFile"], old["cwd"])] if old else []
        places += [(meta.session_file, meta.cwd)] if meta else []
        if any(self._files.hides(session_id, *place) for place in places):
            return None
        return self._placed(gone_row(old, meta, marks))

    def _placed(self, written: StoredRow | None) -> StoredRow | None:
        """Add where a session's directory and project are now, if they are elsewhere."""
        if written is None:
            return None
        row, cwd, began = written.row, written.row["cwd"], iso_ms(written.row["createdAt"])
        places = {
            "movedTo": self._projects.now(cwd, began),
            "project": self._projects.project(cwd, began),
        }
        elsewhere = {key: path for key, path in places.items() if path != cwd}
        rest = {key: value for key, value in row.items() if key not in places}
        return written._replace(row=with_shown(rest | elsewhere))

    def _parent(self, info: SessionInfo, old: Row | None) -> Parent:
        """Find a session's parent; a parent whose file is gone remains the parent."""
        parent = self.parents.parent(info)
        if info.parent:  # the file may be gone while its row exists
            rows = [] if parent.session_id else self._store.by_file(info.parent)
            return Parent(str(rows[0]["sessionId"]), info.parent) if rows else parent
        before = old.get("parentSessionId") if old else None
        named = (before if before != info.parent_id else None) or parent.session_id
        if named and self._files.info(named) is None and not self._files.hides(named):
            row = self._store.get(named)
            return Parent(named, str(row["sessionFile"])) if row else parent
        return parent


def row_of(
    info: SessionInfo,
    meta: MetaFile | None,
    marks: Marks,
    facts: RowFacts | None,
    *,
    resume: str,
    parent: tuple[str | None, str | None] = (None, None),
) -> StoredRow:
    """Make the row of a session whose file exists.

    `parent` is an id and a file; `facts` are None until the whole file was read.
    """
    row = {
        "sessionId": info.session_id,
        "agent": info.agent,
        "sessionFile": _shown(info.file),
        "cwd": _shown(info.cwd),
        "createdAt": iso_of_ms(iso_ms(info.created_at) or info.mtime_ms),
        "firstUserMessage": info.first_prompt,
        "archived": info.archived,
        "gone": False,
        "resume": resume,
        "version": info.version,
        "subagent": info.subagent,
        "modifiedAt": iso_of_ms(info.modified_ms),
        "messageCount": info.messages,
        "userMessageCount": info.users,
        "newUserMessages": info.new_users,
        "state": state_of(info),
        "leafId": info.leaf_id and info.leaf_id[: limits.WORD_MAX],
        "compactions": info.compactions,
    }
    row |= {"question": info.question} if row["state"] == "waiting" else {}
    row |= {"recap": info.recap} if info.recap else {}
    row |= fact_fields(facts)
    if info.tokens:
        row["tokens"] = dict(zip(TOKEN_KEYS, info.tokens, strict=True))
    if info.git_branch:
        row["gitBranch"] = _safe(info.git_branch, limits.WORD_MAX)
    if info.agent_title:
        row["agentTitle"] = _line(info.agent_title, limits.FIRST_MESSAGE_MAX)
        row |= {"agentTitleBy": "user"} if info.named_by_person else {}
    parent_id, parent_file = parent
    if above := info.parent or parent_file:
        row["parentSessionFile"] = _absolute(above, info.cwd)
    if parent_id:
        row["parentSessionId"] = parent_id[: limits.WORD_MAX]
    return _stored(row, meta, marks, info.path)


def gone_row(old: Row | None, meta: MetaFile | None, marks: Marks) -> StoredRow | None:
    """Make the row of a session whose file is gone, from its old row or else its meta file."""
    row = dict(old) if old else _from_meta(meta) if meta else None
    if row is None:
        return None
    for key in ("model", "updatedAt", "metaName", "pinned", "hidden", "ownTags"):
        row.pop(key, None)
    row |= {"gone": True, "archived": True, "state": "archived", "resume": ""}
    return _stored(row, meta, marks, row["sessionFile"])


def _from_meta(meta: MetaFile) -> Row:
    tools = islice((meta.tools_used or {}).items(), limits.PATHS_MAX)
    return {
        "sessionId": meta.session_id,
        "agent": _line(meta.agent, limits.WORD_MAX) or "pi",
        "sessionFile": _shown(meta.session_file),
        "cwd": _shown(meta.cwd),
        "createdAt": _line(meta.session_created_at or meta.created_at, limits.WORD_MAX),
        "modifiedAt": _line(meta.session_modified_at or meta.updated_at, limits.WORD_MAX),
        "messageCount": meta.message_count or 0,
        "userMessageCount": meta.user_message_count or 0,
        "newUserMessages": 0,
        "firstUserMessage": _safe(meta.first_user_message, limits.FIRST_MESSAGE_MAX),
        "filesRead": _paths(meta.files_read, meta.cwd),
        "filesModified": _paths(meta.files_modified, meta.cwd),
        "toolsUsed": {_line(name, limits.WORD_MAX): count for name, count in tools},
    }


def _stored(row: Row, meta: MetaFile | None, marks: Marks, file: str) -> StoredRow:
    """Add a row's name and the texts of its meta file; also return its summary and aliases."""
    stem = posixpath.basename(file).removesuffix(".zst").removesuffix(".jsonl")
    own, titled = _line(marks.title, limits.NAME_MAX), _line(row.get("agentTitle"), limits.NAME_MAX)
    written = _safe(meta.name, limits.NAME_MAX) if meta else ""
    by_person, built_in = row.get("agentTitleBy") == "user", meta and meta.model.startswith(LOCAL)
    more = f"{titled}; ", f"{titled} + "  # it also tells another subject, or words
    names = [
        ("user", own),
        ("user", titled if by_person else ""),
        ("meta", "" if built_in else written),
        ("agent", written if titled and written.startswith(more) else titled),
        ("meta", written),
        ("first-message", _beginning(row.get("firstUserMessage") or "")),
        ("file", _safe(_shown(stem), limits.NAME_MAX) or "session"),
    ]
    source, name = next((source, name) for source, name in names if name)
    recap = row.get("recap", "")
    row |= {"name": name, "nameSource": source, "description": recap}
    row |= {key: True for key in ("pinned", "hidden") if getattr(marks, key)}
    row["indexed"], summary, told = meta is not None, "", not recap.startswith(ASKED)
    if meta is not None:
        described = clean_text(_unsecret(meta.description), limits.DESCRIPTION_MAX)
        row |= {
            "description": (told and built_in and recap) or described,
            "model": _line(meta.model, limits.NAME_MAX),
            "updatedAt": _line(meta.updated_at, limits.WORD_MAX),
        }
        row |= {"metaName": written} if written not in ("", name) else {}
        summary = clean_text(_unsecret(meta.summary), limits.SUMMARY_MAX)
    row |= {"ownTags": own_tags} if (own_tags := distinct(map(_tag, marks.tags))) else {}
    tags = (*marks.tags, *(meta.tags if meta else ()))[: limits.TAGS_SHOWN]
    row["tags"] = distinct(map(_tag, tags))
    aliases = dict.fromkeys([name, written, own, titled])
    return StoredRow(row, summary, tuple(filter(None, aliases)))


@lru_cache(512)
def _unsecret(text: str) -> str:
    """Redact a text; call this before cutting it."""
    return redact(text[: limits.READ_MAX]).text


def _line(text: str | None, limit: int) -> str:
    return clean_line((text or "")[: limits.READ_MAX], limit)


def _beginning(prompt: str) -> str:
    """Shorten a prompt to a name: whole words, and a sign that there is more."""
    line = _line(prompt, limits.NAME_MAX + 1)
    if len(line) <= limits.NAME_MAX:
        return line
    kept = line[: limits.NAME_MAX - 1]
    words = kept.rpartition(" ")[0]  # short in a language without spaces
    return (words if len(words) > limits.NAME_MAX // 2 else kept) + "…"


def _safe(text: str | None, limit: int) -> str:
    return clean_line(_unsecret(text or ""), limit)


def _tag(text: str) -> str:
    return _safe(text, limits.TAG_MAX)


def _shown(path: str) -> str:
    """Escape the bytes of a path that are not UTF-8, for JSON."""
    whole = path[: limits.PATH_MAX].encode("utf-8", "surrogateescape")
    return whole.decode("utf-8", "backslashreplace")


def _paths(paths: Sequence[str] | None, cwd: str) -> list[str]:
    whole = (_absolute(path, cwd) for path in (paths or ())[: limits.PATHS_MAX])
    return [*dict.fromkeys(map(shown_path, whole))]


def _absolute(path: str, cwd: str) -> str:
    return _shown(absolute(path[: limits.PATH_MAX], cwd[: limits.PATH_MAX]))
