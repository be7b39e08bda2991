"""`purge`: remove our files of a session and do not read it again, until undone.

The session is noted as forgotten before anything is removed, so a purge that a crash cut short can
be repeated, by the session's id. The agent's own file stays, unless its removal is requested. A
whole id may name a session without a row, which `privacy.exclude` has hidden since. Forks and
sub-agents stay; forks that read the session's context sets get copies first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.daemon.answers import Answers
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.library import Library
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.sidecars import Sidecars
from indexerd.disk import sync_names
from indexerd.errors import NotFoundError, StateError, UsageError
from indexerd.logs import Event
from indexerd.meta.reader import digest_name
from indexerd.meta.writer import MetaWriter
from indexerd.paths import is_session_id, meta_name, user_name
from indexerd.protocol import params
from indexerd.sessions.info import base_name

Row = dict[str, Any]


class _Target(NamedTuple):
    """A session to purge."""

    session_id: str
    agent: str  # "" if unknown
    row: Row | None  # None: it is forgotten or excluded
    homes: list[Path]  # directories that may have files of ours
    ours: list[Path]
    transcripts: list[Path]
    dependents: list[str]  # sessions whose history begins in its file


@dataclass(eq=False)
class Purge:
    """Forgets sessions, for one daemon."""

    pipeline: Pipeline
    answers: Answers
    sidecars: Sidecars
    writer: MetaWriter
    forgotten: Forgotten
    forget: Callable[[str], Awaitable[None]]  # drops what was injected of it into other sessions
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def purge(self, asked: params.Purge) -> Row:
        async with self.lock:
            if asked.undo:
                return await self._undo(asked)
            found = await self._target(asked)
            if asked.transcript:
                self._check_transcript(found)
            if asked.dry_run:
                row = found.row or {}
                paths = [*found.ours, *(found.transcripts if asked.transcript else ())]
                named = {key: row.get(key) for key in ("name", "sessionFile")}
                return {"sessionId": found.session_id, **named, "files": [*map(str, paths)]}
            return await self._remove(found, asked)

    async def _target(self, asked: params.Purge) -> _Target:
        read, library = self.pipeline.read, self.pipeline.library
        row, session_id = None, asked.ref
        agent = self.forgotten.agents.get(session_id)
        if agent is None:
            agent = await read(_hidden, library, session_id)
        if agent is None:
            row = self.answers.row(session_id, cwd=asked.cwd, fuzzy=False)
            session_id, agent = row["sessionId"], row["agent"]
        return await read(_on_disk, library, session_id, agent, row)

    async def _note(self, session_id: str, agent: str, asked: params.Purge) -> None:
        by, now, add = asked.by or "socket", self.pipeline.now(), self.forgotten.add
        await asyncio.to_thread(add, session_id, agent, at=now, by=by, undone=asked.undo)

    async def _remove(self, found: _Target, asked: params.Purge) -> Row:
        session_id, pipeline, library = found.session_id, self.pipeline, self.pipeline.library
        if found.row is not None:
            await self.sidecars.give_to_forks(found.row)
        if session_id not in self.forgotten.agents:
            await self._note(session_id, found.agent, asked)
        await pipeline.reconsider()
        await pipeline.end_run(session_id)
        removed: list[Path] = []
        for home in found.homes:
            removed += await asyncio.to_thread(self.writer.remove, home, session_id)
        await pipeline.read(library.metas.reread, session_id, None)
        if await pipeline.read(library.store.get, session_id):  # its file was gone
            await pipeline.rewritten(session_id, "")
        pipeline.indexer.outcomes.pop(session_id, None)
        await pipeline.indexer.note_retry(session_id)
        await self.forget(session_id)
        await self.sidecars.forget(session_id)
        await pipeline.read(library.index.owe_rebuild)
        try:
            while await pipeline.read(library.index.rebuild):
                pass
            await pipeline.read(library.store.fold)
        except StateError:
            pipeline.unread.set()  # tries again
            raise
        kept: dict[Path, str] = {}
        if asked.transcript:
            gone, kept = await asyncio.to_thread(_remove_transcripts, found)
            removed += gone
        done = asked.transcript and not kept
        fields = {"session": session_id, "count": len(removed), "by": asked.by or "socket"}
        pipeline.bus.log(Event.SESSION_PURGED, fields | {"transcript": done})
        answer: Row = {"sessionId": session_id, "removed": [*map(str, removed)]}
        left = [{"path": str(path), "reason": reason} for path, reason in kept.items()]
        return answer | {"transcriptRemoved": done} | ({"notRemoved": left} if left else {})

    async def _undo(self, asked: params.Purge) -> Row:
        """Let a session be read again; removed files do not come back."""
        session_id, pipeline = asked.ref, self.pipeline
        agent = self.forgotten.agents.get(session_id)
        if agent is None:
            hint = "--undo takes the whole id of a session that was purged"
            raise NotFoundError("this session was not purged", hint=hint)
        await self._note(session_id, agent, asked)
        await pipeline.read(pipeline.library.files.hidden.discard, session_id)
        await pipeline.reconsider()
        return {"sessionId": session_id, "undone": True}

    def _check_transcript(self, found: _Target) -> None:
        """Raise UsageError if the agent's own file must not be removed."""
        session_id, dependents = found.session_id, found.dependents
        if found.agent == "opencode":
            raise UsageError(
                "opencode keeps its sessions in one database, which only opencode may write",
                hint=f"`opencode session delete {session_id}` deletes it there",
            )
        if found.row is None and session_id in self.forgotten.agents:
            hint = f"`indexerd purge {session_id} --undo` first, then purge it again"
            raise UsageError("of a purged session not even the file's place is known", hint=hint)
        if found.row is None:
            hint = "purge it without its transcript, and remove that by hand"
            raise UsageError("an excluded session's own file is not read or removed", hint=hint)
        if dependents:
            count = f"{len(dependents)} other sessions" if dependents[1:] else "another session"
            raise UsageError(
                f"the history of {count} begins in this file: {', '.join(dependents[:3])}",
                hint="purge it without its transcript, or purge those sessions first",
            )


def _hidden(library: Library, session_id: str) -> str | None:
    """Return the agent of a session that has no row but files of ours; None for other sessions."""
    if not is_session_id(session_id) or library.store.get(session_id) is not None:
        return None
    known = "" if session_id in library.files.hidden else None
    stores = library.stores()
    return next((one.agent for one in stores if _ours([Path(one.meta)], session_id)), known)


def _ours(homes: Iterable[Path], session_id: str) -> list[Path]:
    names = [make(session_id) for make in (meta_name, user_name, digest_name)]
    return [path for home in homes for name in names if (path := home / name).is_file()]


def _on_disk(library: Library, session_id: str, agent: str, row: Row | None) -> _Target:
    """Find a session's files. For the thread that owns the library."""
    meta, owners = library.metas.get(session_id), library.files.owners
    places = [*([meta.directory] if meta else []), *(one.meta for one in library.stores())]
    homes = [*map(Path, dict.fromkeys(places))]
    paths = [] if agent == "opencode" else [one.path for one in owners.files(session_id)]
    bases = {base_name(path) for path in paths}
    infos = (one for one in owners.infos() if one.session_id != session_id)
    dependents = [one.session_id for one in infos if not bases.isdisjoint(one.bases)]
    ours, transcripts = _ours(homes, session_id), [*map(Path, paths)]
    return _Target(session_id, agent, row, homes, ours, transcripts, dependents)


def _remove_transcripts(found: _Target) -> tuple[list[Path], dict[Path, str]]:
    """Remove a session's own files; return the removed ones, and why the others were kept."""
    gone, kept = list[Path](), dict[Path, str]()
    for path in found.transcripts:
        try:
            if path.is_symlink():
                kept[path] = "it is a link"
            else:
                path.unlink()
                gone.append(path)
                sync_names(path.parent)
        except OSError as bad:
            if path not in gone:
                kept[path] = os.strerror(bad.errno or 0)
    if not found.transcripts and found.row:
        path = Path(found.row["sessionFile"])
        kept[path] = "it is a link" if path.is_symlink() else "it is not there any more"
    return gone, kept
