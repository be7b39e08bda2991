"""`purge`: remove our files about a session, and do not read it again.

The session is recorded as forgotten before anything is removed, so an interrupted purge can be
repeated with its id. Its sub-agents go with it, and forks stay. The agent's own files are removed
only on request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from indexerd.agents import ADAPTERS
from indexerd.archive.copies import Archive, Source, side_files
from indexerd.daemon.answers import Answers, Row
from indexerd.daemon.forgotten import Forgotten
from indexerd.daemon.pipeline import Pipeline
from indexerd.disk import sync_names
from indexerd.errors import StateError, UsageError
from indexerd.meta.model import digest_name
from indexerd.meta.writer import MetaWriter
from indexerd.paths import meta_name, user_name
from indexerd.protocol import params
from indexerd.sessions.info import base_name


class _Target(NamedTuple):
    """A session to purge."""

    session_id: str
    agent: str  # "" if unknown
    row: Row  # empty: the session is already forgotten
    homes: list[Path]  # directories that may have files of ours
    ours: list[Path]
    transcripts: list[Path]
    sources: list[Source]  # of copies in the archive
    dependents: list[str]  # sessions whose history begins in its file


@dataclass(eq=False)
class Purge:
    """Forgets sessions, for one daemon."""

    pipeline: Pipeline
    answers: Answers
    writer: MetaWriter
    forgotten: Forgotten
    archive: Archive
    forget: Callable[[str], Awaitable[None]]  # drops texts about it that were injected elsewhere
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def purge(self, args: params.Purge) -> Row:
        async with self.lock:
            row: Row = {}
            session_id, agent = args.ref, self.forgotten.agents.get(args.ref)
            if agent is None:
                row = self.answers.row(args.ref, cwd=args.cwd, fuzzy=False)
                session_id, agent = row["sessionId"], row["agent"]
            targets = await self.pipeline.read(self._targets, session_id, agent, row)
            for target in targets if args.transcript else ():
                _check_transcript(target, {each.session_id for each in targets})
            answer: Row = {"sessionId": session_id}
            if below := [each.session_id for each in targets[1:]]:
                answer["subagents"] = below
            if args.dry_run:
                paths = [path for each in targets for path in (*each.ours, *self._copies(each))]
                for target in targets if args.transcript else ():
                    paths += filter(os.path.lexists, target.transcripts)
                named = {key: row.get(key) for key in ("name", "sessionFile")}
                return answer | named | {"files": [*map(str, paths)]}
            removed, kept, by = list[Path](), list[Row](), args.by or "socket"
            for target in targets:
                paths, reasons = await self._remove(target, by=by, transcript=args.transcript)
                removed += paths
                kept += reasons
            await self._erase()
            done = args.transcript and not kept
            answer |= {"removed": [*map(str, removed)], "transcriptRemoved": done}
            return answer | ({"notRemoved": kept} if kept else {})

    async def learn(self, purged: dict[str, str]) -> None:
        """Forget sessions that were purged on another machine; each with its agent."""
        async with self.lock:
            pipeline, known = self.pipeline, False
            for session_id in purged.keys() - self.forgotten.agents.keys():
                agent = purged[session_id]
                if row := await pipeline.read(pipeline.library.store.get, session_id):
                    target = await pipeline.read(self._target, session_id, agent, row)
                    await self._remove(target, by="fleet")
                    known = True
                else:
                    await asyncio.to_thread(self.forgotten.add, session_id, agent, by="fleet")
            if known:
                await self._erase()

    async def _remove(
        self, target: _Target, *, by: str, transcript: bool = False
    ) -> tuple[list[Path], list[Row]]:
        """Forget one session; return the removed files, and those that were kept, with reasons."""
        session_id, pipeline, library = target.session_id, self.pipeline, self.pipeline.library
        if target.row:
            await asyncio.to_thread(self.forgotten.add, session_id, target.agent, by=by)
        await pipeline.reconsider()
        pipeline.on_change()
        await pipeline.end_run(session_id)
        removed: list[Path] = []
        for home in target.homes:
            removed += await asyncio.to_thread(self.writer.remove, home, session_id)
        # Listed now: of a forgotten session no further copy is begun.
        for copy in await asyncio.to_thread(self._copies, target):
            if copy not in removed:
                await asyncio.to_thread(copy.unlink, missing_ok=True)
                removed.append(copy)
        await pipeline.read(library.metas.reread, session_id, None)
        if await pipeline.read(library.store.get, session_id):  # its file was gone
            await pipeline.rewritten(session_id, "")
        pipeline.indexer.outcomes.pop(session_id, None)
        await pipeline.indexer.note_retry(session_id)
        await self.forget(session_id)
        await pipeline.read(library.index.owe_rebuild)
        kept = list[Row]()
        for path in target.transcripts if transcript else ():
            if why := await asyncio.to_thread(_remove_transcript, path):
                kept.append({"path": str(path), "reason": why})
            else:
                removed.append(path)
        done = transcript and not kept
        fields = {"session": session_id, "count": len(removed), "by": by}
        pipeline.bus.log("session.purged", fields | {"transcript": done})
        return removed, kept

    def _targets(self, session_id: str, agent: str, row: Row) -> list[_Target]:
        """Find a session and all its sub-agents, in the thread that owns the library."""
        store = self.pipeline.library.store
        below = store.get_many(store.subagents(session_id))
        found = (self._target(each, old.get("agent", ""), old) for each, old in below.items())
        return [self._target(session_id, agent, row), *found]

    def _target(self, session_id: str, agent: str, row: Row) -> _Target:
        """Find a session's files, in the thread that owns the library."""
        library, archive, sources = self.pipeline.library, self.archive, list[Source]()
        meta, owners = library.metas.get(session_id), library.files.owners
        places = [*([meta.directory] if meta else []), *(root.meta for root in library.files.roots)]
        homes = [*map(Path, dict.fromkeys(places))]
        names = [make(session_id) for make in (meta_name, user_name, digest_name)]
        ours = [path for home in homes for name in names if (path := home / name).is_file()]
        paths = [file.path for file in owners.files(session_id)]
        paths = paths or ([] if row.get("machine") else [row.get("sessionFile", "")])
        for file in paths:
            if root := library.files.root_of(file):
                sources.append(archive.source_of(file) or Source(root.sessions, file))
        paths = [file for file in paths if not archive.source_of(file)]
        own = {base_name(path) for path in paths}
        infos = (info for info in owners.infos() if info.session_id != session_id)
        dependents = [info.session_id for info in infos if not own.isdisjoint(info.base_names)]
        transcripts = [Path(each) for path in paths for each in (path, *side_files(path))]
        return _Target(session_id, agent, row, homes, ours, transcripts, sources, dependents)

    def _copies(self, target: _Target) -> list[Path]:
        """List a session's copies in the archive."""
        return [copy for source in target.sources for copy in self.archive.copies(source)]

    async def _erase(self) -> None:
        """Rebuild the index, so that its files no longer have the purged texts."""
        pipeline, library = self.pipeline, self.pipeline.library
        try:
            while await pipeline.read(library.index.rebuild):
                pass
            await pipeline.read(library.store.fold)
        except StateError:
            pipeline.unread.set()  # tries again
            raise


def _check_transcript(target: _Target, purged: Collection[str]) -> None:
    """Raise UsageError if the agent's own file must not be removed; `purged`: ids that go too."""
    agent, dependents = target.agent, [each for each in target.dependents if each not in purged]
    if machine := target.row.get("machine"):
        hint = f"purge it with --transcript on {machine}"
        raise UsageError(f"its transcript is on {machine}", hint=hint)
    if target.row.get("promptsOnly"):
        why = "only prompts of it are left, in a file that has those of all sessions"
        raise UsageError(why, hint="purge it without its transcript")
    if command := ADAPTERS[agent].delete if agent in ADAPTERS else "":
        why = f"{agent} keeps its sessions in a database that only {agent} may change"
        raise UsageError(why, hint=f"`{command} {target.session_id}` deletes it there")
    if not target.row:
        hint = "remove its file by hand"
        raise UsageError("the session is already purged, so its file's path is unknown", hint=hint)
    if dependents:
        count = f"{len(dependents)} other sessions" if dependents[1:] else "another session"
        raise UsageError(
            f"the history of {count} begins in this file: {', '.join(dependents[:3])}",
            hint="purge it without its transcript, or purge those sessions first",
        )


def _remove_transcript(path: Path) -> str:
    """Remove an agent's file; return why it was kept."""
    if path.is_symlink():
        return "it is a link"
    try:
        path.unlink()
        sync_names(path.parent)
    except FileNotFoundError:
        return "it no longer exists"
    except OSError as bad:
        return os.strerror(bad.errno or 0)
    return ""
