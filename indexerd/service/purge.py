"""`purge`: a session is forgotten, for good or until that is taken back (S2.23).

What goes is ours: meta file, the user's sidecar, digest, temporary files, what the catalog and
the ledger hold, and what other sessions were told of it. The agent's own file stays, byte for
byte, unless it is asked for by name. Before anything goes the session is noted as forgotten, so
that nothing is read or written of it any more, by whoever was about to: a purge that is cut short
by a crash has forgotten the session, and can be asked for again, by its id, to remove the rest.

Forks and sub-agents stay as they are. Forks that read the context sets of the session get their
copies first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.core.card import base_name
from indexerd.errors import NotFoundError, UsageError
from indexerd.io.forgotten import Forgotten, remove_transcript
from indexerd.io.logs import Event
from indexerd.io.metas import digest_name
from indexerd.io.writer import MetaWriter
from indexerd.paths import meta_name, user_name
from indexerd.service.answers import Answers, flag, word
from indexerd.service.library import Library
from indexerd.service.pipeline import Pipeline
from indexerd.service.sidecar import Sidecars

Params = dict[str, Any]
Row = dict[str, Any]
Forget = Callable[[str], Awaitable[None]]

BOXED = "opencode"  # the agent that keeps all its sessions in one database


class _Meant(NamedTuple):
    """A session that is to be forgotten, or was already."""

    session_id: str
    agent: str
    row: Row | None


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

    def methods(self) -> dict[str, Callable[[Params, Any], Any]]:
        """Every method, by its name."""
        return {"purge": self._purge}

    async def _purge(self, params: Params, _peer: Any) -> dict[str, Any]:
        ref, by = word(params, "ref"), word(params, "by") or "socket"
        if not ref:
            raise UsageError("ref is required, and is a string")
        if by not in ("cli", "socket"):
            raise UsageError("by is cli or socket")
        if flag(params, "undo"):
            return await self._to_its_end(self._undo(ref, by))
        meant = self._meant(ref, word(params, "cwd"))
        transcript = flag(params, "transcript")
        held: _Held = await self._pipeline.read(_held, self._pipeline.library, meant)
        if transcript:
            _refuse(meant, held)
        if flag(params, "dryRun"):
            return _told(meant, held, transcript=transcript)
        return await self._to_its_end(self._carry_out(meant, held, by, transcript=transcript))

    async def _to_its_end(self, work: Any) -> dict[str, Any]:
        """What has begun is carried out, whoever has hung up meanwhile; one after the other."""
        doing = asyncio.create_task(self._alone(work))
        self._under_way.add(doing)
        doing.add_done_callback(self._under_way.discard)
        return await asyncio.shield(doing)

    async def _alone(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        async with self._one_at_a_time:
            return await work

    def _meant(self, ref: str, cwd: str | None) -> _Meant:
        if ref in self._forgotten:
            return _Meant(ref, self._forgotten.agent(ref), None)
        row = self._answers.row(ref, cwd=cwd)
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
        await pipeline.runner.stop(session_id)
        removed: list[Path] = []
        for home in held.homes:
            removed += await asyncio.to_thread(self._writer.remove, home, session_id)
        await pipeline.read(pipeline.library.shelf.reread, session_id, None)
        if await pipeline.read(pipeline.library.catalog.get, session_id):  # its file was gone
            await pipeline.rewritten(session_id, "")
        await pipeline.runner.forget(session_id)
        for forget in self._forget:
            await forget(session_id)
        async for _ in pipeline.read.steps(pipeline.library.catalog.scour()):
            pass
        await pipeline.read(pipeline.library.ledger.fold)
        paths = held.transcripts if transcript else ()
        gone = [path for path in paths if await asyncio.to_thread(remove_transcript, path)]
        told = {"session": session_id, "count": len(removed) + len(gone), "by": by}
        pipeline.news.say(Event.SESSION_PURGED, told | {"transcript": bool(gone)})
        return {
            "sessionId": session_id,
            "removed": [*map(str, removed), *map(str, gone)],
            "transcriptRemoved": bool(gone),
        }

    async def _undo(self, session_id: str, by: str) -> dict[str, Any]:
        """A session may be read again; what was removed does not come back."""
        if session_id not in self._forgotten:
            hint = "--undo takes the whole id of a session that was purged"
            raise NotFoundError("this session was not purged", hint=hint)
        await asyncio.to_thread(self._forgotten.undo, session_id, at=self._clock(), by=by)
        await self._pipeline.read(_recall, self._pipeline.library, session_id)
        await self._pipeline.reconsider()
        return {"sessionId": session_id, "undone": True}


def _held(library: Library, meant: _Meant) -> _Held:
    """What there is of a session. For the thread that owns the library."""
    session_id = meant.session_id
    brief = library.shelf.brief(session_id)
    found = [store.meta for store in library.stores() if store.agent == meant.agent]
    homes = [Path(one) for one in dict.fromkeys([*([brief.directory] if brief else []), *found])]
    names = [*(make(session_id) for make in (meta_name, user_name, digest_name))]
    files = [home / name for home in homes for name in names]
    transcripts = [] if meant.agent == BOXED else library.files.owners.files(session_id)
    paths = [one.path for one in transcripts]
    bases = {base_name(path) for path in paths}
    heirs = [
        card.session_id
        for card in library.files.owners.cards()
        if card.session_id != session_id and not bases.isdisjoint(card.bases)
    ]
    return _Held(homes, [one for one in files if one.is_file()], [*map(Path, paths)], heirs)


def _recall(library: Library, session_id: str) -> None:
    library.files.hidden.discard(session_id)
    library.files.exclusions.changed()


def _refuse(meant: _Meant, held: _Held) -> None:
    """Raise UsageError where the agent's own file is not for us to remove."""
    if meant.agent == BOXED:
        raise UsageError(
            "opencode keeps its sessions in one database, which is its own to write",
            hint=f"`opencode session delete {meant.session_id}` deletes it there",
        )
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
