"""`purge`: remove what is kept of a session and do not read it again, until undone.

What goes is ours: meta file, the user's sidecar, digest, temporary files, what the store and
the index hold, and what was injected of it into other sessions. The agent's own file stays, byte
for byte, unless it is asked for by name. The session is noted as forgotten before anything goes, so
that nothing is read or written of it any more: a purge that a crash cuts short can be asked for
again, by the session's id, to remove the rest.

The session meant is never guessed. By its whole id it may be one that has no row: one that was
excluded by `privacy.exclude` after files of ours were made. Forks and sub-agents stay; forks that
read the context sets of the session get their copies first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
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
from indexerd.meta.cache import meta_or_problem
from indexerd.meta.reader import digest_name
from indexerd.meta.writer import MetaWriter
from indexerd.paths import is_session_id, meta_name, user_name
from indexerd.protocol import params
from indexerd.sessions.info import base_name

Row = dict[str, Any]


class _Target(NamedTuple):
    """A session to purge, and what there is of it on the disk."""

    session_id: str
    agent: str  # "" where it is not known
    row: Row | None  # None: it is forgotten or excluded
    homes: list[Path]  # directories in which files of ours may be
    ours: list[Path]
    transcripts: list[Path]
    dependents: list[str]  # sessions whose history begins in its file


class Purge:
    """Forgets sessions, for one daemon."""

    def __init__(
        self,
        pipeline: Pipeline,
        answers: Answers,
        sidecars: Sidecars,
        *,
        writer: MetaWriter,
        forgotten: Forgotten,
        forget: Callable[[str], Awaitable[None]],
    ) -> None:
        """`forget(session_id)` drops what was injected of it into other sessions."""
        self._pipeline = pipeline
        self._answers = answers
        self._sidecars = sidecars
        self._writer = writer
        self._forgotten = forgotten
        self._forget = forget
        self._lock = asyncio.Lock()

    async def purge(self, asked: params.Purge) -> Row:
        """Forget a session, say what that would remove, or take it back."""
        by = asked.by or "socket"
        async with self._lock:
            if asked.undo:
                return await self._undo(asked.ref, by)
            found = await self._target(asked.ref, asked.cwd)
            if asked.transcript:
                self._check_transcript(found)
            if asked.dry_run:
                row = found.row or {}
                paths = [*found.ours, *(found.transcripts if asked.transcript else ())]
                named = {key: row.get(key) for key in ("name", "sessionFile")}
                return {"sessionId": found.session_id, **named, "files": [*map(str, paths)]}
            return await self._remove(found, by, transcript=asked.transcript)

    async def _target(self, ref: str, cwd: str | None) -> _Target:
        pipeline, row = self._pipeline, None
        agent = self._forgotten.agents.get(ref)
        if agent is None:
            agent = await pipeline.read(_hidden, pipeline.library, ref)
        if agent is None:
            row = self._answers.row(ref, cwd=cwd, fuzzy=False)
            ref, agent = row["sessionId"], row["agent"]
        return await pipeline.read(_on_disk, pipeline.library, ref, agent, row)

    async def _remove(self, found: _Target, by: str, *, transcript: bool | None) -> Row:
        session_id, pipeline, library = found.session_id, self._pipeline, self._pipeline.library
        if found.row is not None:
            await self._sidecars.give_to_forks(found.row)
        if session_id not in self._forgotten.agents:
            add = self._forgotten.add
            await asyncio.to_thread(add, session_id, found.agent, at=pipeline.now(), by=by)
        library.files.exclusions.changed()
        await pipeline.reconsider()
        await pipeline.end_run(session_id)
        removed: list[Path] = []
        for home in found.homes:
            removed += await asyncio.to_thread(self._writer.remove, home, session_id)
        await pipeline.read(library.metas.reread, session_id, None)
        if await pipeline.read(library.store.get, session_id):  # its file was gone
            await pipeline.rewritten(session_id, "")
        pipeline.indexer.outcomes.pop(session_id, None)
        await pipeline.indexer.note_retry(session_id)
        await self._forget(session_id)
        await self._sidecars.forget(session_id)
        await pipeline.read(library.index.owe_rebuild)  # of an excluded one, too
        try:
            while await pipeline.read(library.index.rebuild):
                pass
            await pipeline.read(library.store.fold)
        except StateError:
            pipeline.index_soon()  # tries again
            raise
        gone, kept = list[Path](), dict[Path, str]()
        if transcript:
            gone, kept = await asyncio.to_thread(_remove_transcripts, found)
        fields = {"session": session_id, "count": len(removed) + len(gone), "by": by}
        pipeline.bus.log(Event.SESSION_PURGED, fields | {"transcript": bool(gone)})
        answer: Row = {
            "sessionId": session_id,
            "removed": [str(path) for path in (*removed, *gone)],
            "transcriptRemoved": bool(gone) and not kept,
        }
        left = [{"path": str(path), "reason": reason} for path, reason in kept.items()]
        return answer | ({"notRemoved": left} if left else {})

    async def _undo(self, session_id: str, by: str) -> Row:
        """A session may be read again; what was removed does not come back."""
        agent, pipeline = self._forgotten.agents.get(session_id), self._pipeline
        if agent is None:
            hint = "--undo takes the whole id of a session that was purged"
            raise NotFoundError("this session was not purged", hint=hint)
        add = self._forgotten.add
        await asyncio.to_thread(add, session_id, agent, at=pipeline.now(), by=by, undone=True)
        await pipeline.read(pipeline.library.files.hidden.discard, session_id)
        pipeline.library.files.exclusions.changed()
        await pipeline.reconsider()
        return {"sessionId": session_id, "undone": True}

    def _check_transcript(self, found: _Target) -> None:
        """Raise UsageError where the agent's own file is not for us to remove."""
        session_id, dependents = found.session_id, found.dependents
        if found.agent == "opencode":
            raise UsageError(
                "opencode keeps its sessions in one database, which is its own to write",
                hint=f"`opencode session delete {session_id}` deletes it there",
            )
        if found.row is None and session_id in self._forgotten.agents:
            hint = f"`indexerd purge {session_id} --undo` first, then purge it again"
            message = "of a purged session not even the place of its file is known"
            raise UsageError(message, hint=hint)
        if found.row is None:
            hint = "purge it without its transcript, and remove that by hand"
            raise UsageError("an excluded session's own file is not looked at", hint=hint)
        if dependents:
            who = f"{len(dependents)} other sessions" if len(dependents) > 1 else "another session"
            more = ", …" if len(dependents) > 1 else ""
            raise UsageError(
                f"the history of {who} begins in this file: {dependents[0]}{more}",
                hint="purge it without its transcript, or that session first",
            )


def _hidden(library: Library, session_id: str) -> str | None:
    """The agent of a session without a row, of which there are traces; None for others."""
    if not is_session_id(session_id) or library.store.get(session_id) is not None:
        return None
    for store in library.stores():
        if _ours([Path(store.meta)], session_id):
            meta, _ = meta_or_problem(session_id, store.meta)
            agents = [one.agent for one in library.stores() if meta and one.agent == meta.agent]
            return next(iter(agents), store.agent)
    return "" if session_id in library.files.hidden else None


def _ours(homes: Iterable[Path], session_id: str) -> list[Path]:
    names = [make(session_id) for make in (meta_name, user_name, digest_name)]
    return [path for home in homes for name in names if (path := home / name).is_file()]


def _on_disk(library: Library, session_id: str, agent: str, row: Row | None) -> _Target:
    """What there is of a session. For the thread that owns the library."""
    meta, stores, owners = library.metas.get(session_id), library.stores(), library.files.owners
    places = [*([meta.directory] if meta else []), *(one.meta for one in stores)]
    own = {one.meta for one in stores if one.agent == agent or not agent}
    homes = [
        home
        for home in map(Path, dict.fromkeys(places))
        if str(home) in own or _ours([home], session_id)
    ]
    paths = [] if agent == "opencode" else [one.path for one in owners.files(session_id)]
    bases = {base_name(path) for path in paths}
    infos = (one for one in owners.infos() if one.session_id != session_id)
    dependents = [one.session_id for one in infos if not bases.isdisjoint(one.bases)]
    ours = _ours(homes, session_id)
    return _Target(session_id, agent, row, homes, ours, [*map(Path, paths)], dependents)


def _remove_transcripts(found: _Target) -> tuple[list[Path], dict[Path, str]]:
    """Remove a session's own files; those that are gone now, and why the others are not."""
    gone, kept = list[Path](), dict[Path, str]()
    for path in found.transcripts:
        if why := _why_not(path):
            kept[path] = why
            continue
        try:
            path.unlink()
            gone.append(path)
            sync_names(path.parent)
        except OSError as bad:
            if path not in gone:
                kept[path] = os.strerror(bad.errno or 0)
    named = Path(found.row["sessionFile"]) if found.row else None
    if named is not None and named not in found.transcripts:  # it stood for the session before
        kept[named] = _why_not(named) or "it is not the session's any more"
    return gone, kept


def _why_not(path: Path) -> str:
    """Why a file is not for us to remove, or ""."""
    if path.is_symlink():
        return "it is a link"
    return "" if path.is_file() else "it is not there any more"
