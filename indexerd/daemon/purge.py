"""`purge`: a session is forgotten, for good or until that is taken back (S2.23).

What goes is ours: meta file, the user's sidecar, digest, temporary files, what the store and
the index hold, and what other sessions were told of it. The agent's own file stays, byte for
byte, unless it is asked for by name. Before anything goes the session is noted as forgotten, so
that nothing is read or written of it any more, by whoever was about to: a purge that is cut short
by a crash has forgotten the session, and can be asked for again, by its id, to remove the rest.

The session meant is never guessed, and by its whole id it may be one that has no row: what its
user excluded afterwards (`privacy.exclude`) has left files of ours, too. Where the agent's own
file is to go and does not, the answer says why; ours are gone all the same.

Forks and sub-agents stay as they are. Forks that read the context sets of the session get their
copies first.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.daemon.answers import Answers
from indexerd.daemon.forgotten import Forgotten, remove_transcript
from indexerd.daemon.library import Library
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.sidecar import Sidecars
from indexerd.errors import IndexerdError, NotFoundError, StateError, UsageError
from indexerd.logs import Event
from indexerd.meta.cache import meta_or_problem
from indexerd.meta.reader import digest_name
from indexerd.meta.writer import MetaWriter
from indexerd.paths import is_session_id, meta_name, user_name
from indexerd.protocol import params
from indexerd.sessions.info import base_name
from indexerd.sources.stores import Store

Row = dict[str, Any]
Forget = Callable[[str], Awaitable[None]]

BOXED = "opencode"  # the agent that keeps all its sessions in one database


class _Meant(NamedTuple):
    """A session that is to be forgotten, or was already."""

    session_id: str
    agent: str  # "" where nothing tells
    row: Row | None  # None: it was forgotten already, or is hidden


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
        forget: Iterable[Forget],
        clock: Callable[[], float],
    ) -> None:
        """`forget(session_id)`, each of them, drops what another part remembers of a session."""
        self._pipeline = pipeline
        self._answers = answers
        self._sidecars = sidecars
        self._writer = writer
        self._forgotten = forgotten
        self._forget = tuple(forget)
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()

    async def purge(self, asked: params.Purge) -> dict[str, Any]:
        """Forget a session, say what that would remove, or take it back."""
        by = asked.by or "socket"
        if asked.undo:
            return await self._to_its_end(self._undo(asked.ref, by))
        meant = await self._meant(asked.ref, asked.cwd)
        held: _Held = await self._pipeline.read(_held, self._pipeline.library, meant)
        if asked.transcript:
            _refuse(meant, held, forgotten=meant.session_id in self._forgotten)
        if asked.dry_run:
            return _told(meant, held, transcript=asked.transcript)
        return await self._to_its_end(self._carry_out(meant, held, by, transcript=asked.transcript))

    async def _to_its_end(self, work: Any) -> dict[str, Any]:
        """What has begun is carried out, whoever has hung up meanwhile; one after the other."""
        doing = asyncio.create_task(self._alone(work))
        self._under_way.add(doing)
        doing.add_done_callback(self._under_way.discard)
        return await asyncio.shield(doing)

    async def _alone(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        async with self._one_at_a_time:
            return await work

    async def _meant(self, ref: str, cwd: str | None) -> _Meant:
        if ref in self._forgotten:
            return _Meant(ref, self._forgotten.agent(ref), None)
        hidden: _Meant | None = await self._pipeline.read(_hidden, self._pipeline.library, ref)
        if hidden is not None:
            return hidden
        row = self._answers.certain(ref, cwd=cwd)
        return _Meant(row["sessionId"], row["agent"], row)

    async def _carry_out(
        self, meant: _Meant, held: _Held, by: str, *, transcript: bool
    ) -> dict[str, Any]:
        session_id, pipeline = meant.session_id, self._pipeline
        if meant.row is not None:
            await self._sidecars.part(meant.row)
        if session_id not in self._forgotten:
            await asyncio.to_thread(
                self._forgotten.add, session_id, meant.agent, at=self._clock(), by=by
            )
        pipeline.library.files.exclusions.changed()
        await pipeline.reconsider()
        await pipeline.indexer.stop(session_id)
        removed: list[Path] = []
        for home in held.homes:
            removed += await asyncio.to_thread(self._writer.remove, home, session_id)
        await pipeline.read(pipeline.library.metas.reread, session_id, None)
        if await pipeline.read(pipeline.library.store.get, session_id):  # its file was gone
            await pipeline.rewritten(session_id, "")
        await pipeline.indexer.forget(session_id)
        for forget in self._forget:
            await forget(session_id)
        await pipeline.read(pipeline.library.index.owe_rebuild)  # an excluded one's words, too
        await self._scour()
        gone, kept = list[Path](), list[dict[str, str]]()
        if transcript:
            gone, kept = await asyncio.to_thread(_take_away, held.transcripts, meant.row)
        told = {"session": session_id, "count": len(removed) + len(gone), "by": by}
        pipeline.bus.log(Event.SESSION_PURGED, told | {"transcript": bool(gone)})
        found = {
            "sessionId": session_id,
            "removed": [*map(str, removed), *map(str, gone)],
            "transcriptRemoved": bool(gone) and not kept,
        }
        return found | ({"notRemoved": kept} if kept else {})

    async def _scour(self) -> None:
        """Take its words out of our files; where the disk does not let us, that is still owed."""
        library, read = self._pipeline.library, self._pipeline.read
        try:
            while await read(library.texts.wipe):
                pass
            await read(library.store.fold)
        except StateError:
            self._pipeline.owe()
            raise

    async def _undo(self, session_id: str, by: str) -> dict[str, Any]:
        """A session may be read again; what was removed does not come back."""
        if session_id not in self._forgotten:
            hint = "--undo takes the whole id of a session that was purged"
            raise NotFoundError("this session was not purged", hint=hint)
        await asyncio.to_thread(self._forgotten.undo, session_id, at=self._clock(), by=by)
        await self._pipeline.read(_recall, self._pipeline.library, session_id)
        await self._pipeline.reconsider()
        return {"sessionId": session_id, "undone": True}


def _hidden(library: Library, session_id: str) -> _Meant | None:
    """A session by its whole id, if it has no row and there are traces of it all the same."""
    if not is_session_id(session_id) or library.store.get(session_id) is not None:
        return None
    for store in library.stores():
        home = Path(store.meta)
        if _ours([home], session_id):
            meta, _ = meta_or_problem(session_id, store.meta)
            agents = [one.agent for one in library.stores() if meta and one.agent == meta.agent]
            return _Meant(session_id, next(iter(agents), store.agent), None)
    return _Meant(session_id, "", None) if session_id in library.files.hidden else None


def _ours(homes: Iterable[Path], session_id: str) -> list[Path]:
    """Files of ours that are there."""
    names = [make(session_id) for make in (meta_name, user_name, digest_name)]
    files = [home / name for home in homes for name in names]
    return [one for one in files if one.is_file()]


def _held(library: Library, meant: _Meant) -> _Held:
    """What there is of a session. For the thread that owns the library."""
    session_id = meant.session_id
    stat = library.metas.get(session_id)
    stores = library.stores()
    found = [one.meta for one in stores if one.agent == meant.agent or not meant.agent]
    homes = [Path(one) for one in dict.fromkeys([*([stat.directory] if stat else []), *found])]
    homes += [home for home in _places(stores) if home not in homes and _ours([home], session_id)]
    transcripts = [] if meant.agent == BOXED else library.files.owners.files(session_id)
    paths = [one.path for one in transcripts]
    bases = {base_name(path) for path in paths}
    heirs = [
        card.session_id
        for card in library.files.owners.cards()
        if card.session_id != session_id and not bases.isdisjoint(card.bases)
    ]
    return _Held(homes, _ours(homes, session_id), [*map(Path, paths)], heirs)


def _places(stores: Iterable[Store]) -> dict[Path, None]:
    """Every meta directory, once."""
    return dict.fromkeys(Path(store.meta) for store in stores)


def _recall(library: Library, session_id: str) -> None:
    library.files.hidden.discard(session_id)
    library.files.exclusions.changed()


def _refuse(meant: _Meant, held: _Held, *, forgotten: bool) -> None:
    """Raise UsageError where the agent's own file is not for us to remove."""
    if meant.agent == BOXED:
        raise UsageError(
            "opencode keeps its sessions in one database, which is its own to write",
            hint=f"`opencode session delete {meant.session_id}` deletes it there",
        )
    if meant.row is None and not forgotten:
        hint = "purge it without its transcript, and remove that by hand"
        raise UsageError("an excluded session's own file is not looked at", hint=hint)
    if meant.row is None:
        hint = f"`indexerd purge {meant.session_id} --undo` first, then purge it anew"
        raise UsageError("of a purged session not even the place of its file is known", hint=hint)
    if held.heirs:
        first = held.heirs[0]
        raise UsageError(
            f"the history of {len(held.heirs)} other sessions begins in this file: {first}, …"
            if len(held.heirs) > 1
            else f"the history of another session begins in this file: {first}",
            hint="purge it without its transcript, or that session first",
        )


def _take_away(transcripts: list[Path], row: Row | None) -> tuple[list[Path], list[dict[str, str]]]:
    """Remove a session's own files; those that are gone now, and why the others are not."""
    gone, kept = list[Path](), dict[str, str]()
    for path in transcripts:
        try:
            if remove_transcript(path):
                gone.append(path)
            else:
                kept[str(path)] = _why(path)
        except IndexerdError as bad:
            kept[str(path)] = bad.upstream or _why(path)
    named = Path(row["sessionFile"]) if row else None
    if named is not None and named not in transcripts:  # it stood for the session before
        kept[str(named)] = _why(named)
    return gone, [{"path": path, "reason": reason} for path, reason in kept.items()]


def _why(path: Path) -> str:
    """Why a file was not for us to remove."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return "it is not there any more"
    if stat.S_ISLNK(mode):
        return "it is a link"
    return "it is not the session's any more" if stat.S_ISREG(mode) else "it is no plain file"


def _told(meant: _Meant, held: _Held, *, transcript: bool) -> dict[str, Any]:
    """What would be removed."""
    row = meant.row or {}
    paths = [*held.ours, *(held.transcripts if transcript else ())]
    return {
        "sessionId": meant.session_id,
        "name": row.get("name"),
        "sessionFile": row.get("sessionFile"),
        "files": [str(path) for path in paths],
    }
