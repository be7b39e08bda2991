"""`purge`: remove what is kept of a session and do not read it again, until undone.

What goes is ours: meta file, the user's sidecar, digest, temporary files, what the store and
the index hold, and what was injected of it into other sessions. The agent's own file stays, byte
for byte, unless it is asked for by name. Before anything goes the session is noted as forgotten, so
that nothing is read or written of it any more, by whoever was about to: a purge that is cut short
by a crash has forgotten the session, and can be asked for again, by its id, to remove the rest.

The session meant is never guessed, and by its whole id it may be one that has no row: what its
user excluded afterwards (`privacy.exclude`) has left files of ours, too. Where the agent's own
file is to go and does not, the answer says why; ours are gone all the same. Forks and sub-agents
stay as they are; forks that read the context sets of the session get their copies first.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.daemon.answers import Answers
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.library import Library
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.sidecars import OneAtATime, Sidecars
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
_Meant = tuple[str, str, Row | None]  # id, agent, row

_BOXED = "opencode"  # the agent that keeps all its sessions in one database


class _Held(NamedTuple):
    """What there is of a session on the disk."""

    homes: list[Path]  # directories in which files of ours may be
    ours: list[Path]
    transcripts: list[Path]
    heirs: list[str]  # sessions whose history begins in its file


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
        """`forget(session_id)` drops what other sessions were told of it."""
        self._pipeline = pipeline
        self._answers = answers
        self._sidecars = sidecars
        self._writer = writer
        self._forgotten = forgotten
        self._forget = forget
        self._one_at_a_time = OneAtATime()

    async def purge(self, asked: params.Purge) -> Row:
        """Forget a session, say what that would remove, or take it back."""
        by = asked.by or "socket"
        if asked.undo:
            return await self._one_at_a_time(self._undo(asked.ref, by))
        session_id, agent, row = await self._meant(asked.ref, asked.cwd)
        library = self._pipeline.library
        held: _Held = await self._pipeline.read(_held, library, session_id, agent)
        if asked.transcript:
            self._refuse(session_id, agent, held, known=row is not None)
        if asked.dry_run:
            paths = [*held.ours, *(held.transcripts if asked.transcript else ())]
            named = {key: (row or {}).get(key) for key in ("name", "sessionFile")}
            return {"sessionId": session_id, **named, "files": [str(path) for path in paths]}
        meant = session_id, agent, row
        transcripts = held.transcripts if asked.transcript else None
        return await self._one_at_a_time(self._carry_out(meant, held.homes, transcripts, by))

    async def _meant(self, ref: str, cwd: str | None) -> _Meant:
        """Id, agent ("" where nothing tells) and row; none of one that is forgotten or hidden."""
        if ref in self._forgotten:
            return ref, self._forgotten.agent(ref), None
        agent: str | None = await self._pipeline.read(_hidden, self._pipeline.library, ref)
        if agent is not None:
            return ref, agent, None
        row = self._answers.certain(ref, cwd=cwd)
        return row["sessionId"], row["agent"], row

    async def _carry_out(
        self, meant: _Meant, homes: list[Path], transcripts: list[Path] | None, by: str
    ) -> Row:
        (session_id, agent, row), pipeline = meant, self._pipeline
        library, now = pipeline.library, pipeline.now()
        if row is not None:
            await self._sidecars.part(row)
        if session_id not in self._forgotten:
            await asyncio.to_thread(self._forgotten.add, session_id, agent, at=now, by=by)
        library.files.exclusions.changed()
        await pipeline.reconsider()
        await pipeline.end_run(session_id)
        removed: list[Path] = []
        for home in homes:
            removed += await asyncio.to_thread(self._writer.remove, home, session_id)
        await pipeline.read(library.metas.reread, session_id, None)
        if await pipeline.read(library.store.get, session_id):  # its file was gone
            await pipeline.rewritten(session_id, "")
        pipeline.indexer.outcomes.pop(session_id, None)
        await pipeline.indexer.note_retry(session_id)
        await self._forget(session_id)
        await self._sidecars.forget(session_id)
        await pipeline.read(library.index.owe_rebuild)  # an excluded one's words, too
        try:  # where the disk does not let us take its words out, that is still owed
            while await pipeline.read(library.index.rebuild):
                pass
            await pipeline.read(library.store.fold)
        except StateError:
            pipeline.owe()
            raise
        gone, kept = list[Path](), dict[str, str]()
        if transcripts is not None:
            gone, kept = await asyncio.to_thread(_take_away, transcripts, row)
        told = {"session": session_id, "count": len(removed) + len(gone), "by": by}
        pipeline.bus.log(Event.SESSION_PURGED, told | {"transcript": bool(gone)})
        found: Row = {
            "sessionId": session_id,
            "removed": [str(path) for path in (*removed, *gone)],
            "transcriptRemoved": bool(gone) and not kept,
        }
        left = [{"path": path, "reason": reason} for path, reason in kept.items()]
        return found | ({"notRemoved": left} if left else {})

    async def _undo(self, session_id: str, by: str) -> Row:
        """A session may be read again; what was removed does not come back."""
        if session_id not in self._forgotten:
            hint = "--undo takes the whole id of a session that was purged"
            raise NotFoundError("this session was not purged", hint=hint)
        agent, now = self._forgotten.agent(session_id), self._pipeline.now()
        await asyncio.to_thread(self._forgotten.add, session_id, agent, at=now, by=by, undone=True)
        files = self._pipeline.library.files
        await self._pipeline.read(files.hidden.discard, session_id)
        files.exclusions.changed()
        await self._pipeline.reconsider()
        return {"sessionId": session_id, "undone": True}

    def _refuse(self, session_id: str, agent: str, held: _Held, *, known: bool) -> None:
        """Raise UsageError where the agent's own file is not for us to remove."""
        if agent == _BOXED:
            raise UsageError(
                "opencode keeps its sessions in one database, which is its own to write",
                hint=f"`opencode session delete {session_id}` deletes it there",
            )
        if not known and session_id in self._forgotten:
            hint = f"`indexerd purge {session_id} --undo` first, then purge it anew"
            message = "of a purged session not even the place of its file is known"
            raise UsageError(message, hint=hint)
        if not known:
            hint = "purge it without its transcript, and remove that by hand"
            raise UsageError("an excluded session's own file is not looked at", hint=hint)
        if held.heirs:
            count, more = len(held.heirs), ", …" if len(held.heirs) > 1 else ""
            who = f"{count} other sessions" if count > 1 else "another session"
            raise UsageError(
                f"the history of {who} begins in this file: {held.heirs[0]}{more}",
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
    """Files of ours that are there."""
    names = [make(session_id) for make in (meta_name, user_name, digest_name)]
    files = [home / name for home in homes for name in names]
    return [one for one in files if one.is_file()]


def _held(library: Library, session_id: str, agent: str) -> _Held:
    """What there is of a session. For the thread that owns the library."""
    stat, stores, owners = library.metas.get(session_id), library.stores(), library.files.owners
    likely = [one.meta for one in stores if one.agent == agent or not agent]
    homes = [Path(one) for one in dict.fromkeys([*([stat.directory] if stat else []), *likely])]
    places = dict.fromkeys(Path(store.meta) for store in stores)
    homes += [home for home in places if home not in homes and _ours([home], session_id)]
    paths = [] if agent == _BOXED else [one.path for one in owners.files(session_id)]
    bases = {base_name(path) for path in paths}
    infos = (one for one in owners.infos() if one.session_id != session_id)
    heirs = [one.session_id for one in infos if not bases.isdisjoint(one.bases)]
    return _Held(homes, _ours(homes, session_id), [*map(Path, paths)], heirs)


def _take_away(transcripts: list[Path], row: Row | None) -> tuple[list[Path], dict[str, str]]:
    """Remove a session's own files; those that are gone now, and why the others are not."""
    gone, kept = list[Path](), dict[str, str]()
    for path in transcripts:
        try:
            if why := _why_not(path):
                kept[str(path)] = why
                continue
            path.unlink()
            gone.append(path)
        except OSError as bad:
            kept[str(path)] = os.strerror(bad.errno or 0)
        with suppress(OSError):  # it is gone; all that is at stake is a power cut
            sync_names(path.parent)
    named = Path(row["sessionFile"]) if row else None
    if named is not None and named not in transcripts:  # it stood for the session before
        kept[str(named)] = _why_not(named) or "it is not the session's any more"
    return gone, kept


def _why_not(path: Path) -> str:
    """Why a file is not for us to remove, or ""."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return "it is not there any more"
    if stat.S_ISLNK(mode):
        return "it is a link"
    return "" if stat.S_ISREG(mode) else "it is no plain file"
