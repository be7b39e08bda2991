"""Changes to sessions' sidecars, and the block for a resumed session.

Title, labels, environment hint and context sets share one file, so all changes go through here, one
at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from indexerd.daemon.answers import Answers, Row
from indexerd.daemon.pipeline import Pipeline
from indexerd.errors import IndexerdError, UsageError
from indexerd.meta.sidecar import KNOWN, SET_MAX, Edited, absolute, edit, resume_block
from indexerd.meta.writer import MetaWriter
from indexerd.paths import directory_of
from indexerd.privacy.redact import for_people, quotable
from indexerd.protocol import params
from indexerd.sources.session_reader import SessionReaderPool, full_id
from indexerd.times import iso

RESUMED_MAX = 4096  # resumes that have had their block


@dataclass(eq=False)
class Sidecars:
    """The sidecars of all sessions, for one daemon."""

    pipeline: Pipeline
    answers: Answers
    pool: SessionReaderPool
    writer: MetaWriter
    record: Callable[[Mapping[str, Any]], Any]  # writes a row of telemetry; may block
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # a change reads before it writes
    resumed: dict[tuple[str, str | None], None] = field(default_factory=dict)  # session, resumeId

    async def set(self, args: params.SetContext) -> Row:
        row = self.answers.row(args.session, cwd=args.cwd, fuzzy=False)
        wanted = params.ContextSet(set_name=args.set_name, items=args.items, mode=args.mode)
        if args.set_name.strip(" ") == "files":
            lost = await asyncio.to_thread(_missing, directory_of(row), args.items or [])
            if lost and len(args.items or []) <= SET_MAX:  # else that is the error
                hint = "relative paths start at the session's directory"
                raise UsageError(f"no such file: {', '.join(map(quotable, lost))}", hint=hint)
        edited = await self._change(row, params.Update(ref=row["sessionId"], set_context=wanted))
        return {
            "sessionId": row["sessionId"],
            "text": edited.text,
            "contextChanged": bool(edited.names),
            "setName": args.set_name.strip(" "),
            "warnings": [*edited.warnings],
        }

    async def update(self, args: params.Update) -> Row:
        """Set or clear the fields that are given."""
        row = self.answers.by_id(args.ref)
        if args.label:
            args = replace(args, label=await self._named(row, args.label))
        edited = await self._change(row, args)
        new = self.answers.by_id(row["sessionId"])
        if args.title is not UNSET:
            renamed = {key: new[key] for key in ("sessionFile", "name")} | {"previous": row["name"]}
            self.pipeline.bus.publish("session.renamed", row["sessionId"], renamed)
        return new | {"warnings": list(edited.warnings)} if edited.warnings else new

    async def _named(self, row: Row, label: params.EntryLabel) -> params.EntryLabel:
        """Complete the id of a label's entry; NotFoundError if there is no such entry.

        A label whose entry is gone can be removed.
        """
        try:
            return await self.pool.read(
                row["sessionId"],
                None,
                lambda session: replace(label, entry_id=full_id(session.state, label.entry_id)),
            )
        except IndexerdError:
            labels = (await asyncio.to_thread(self.answers.sidecar, row)).labels
            if label.text or label.entry_id not in labels:
                raise
            return label

    async def _change(self, row: Row, args: params.Update) -> Edited:
        session_id, bus = row["sessionId"], self.pipeline.bus
        async with self.lock:
            old = await asyncio.to_thread(self.answers.sidecar, row)
            edited = await asyncio.to_thread(edit, old, args)
            if edited.user is None:
                return edited
            path = self.answers.sidecar_path(row)
            await asyncio.to_thread(self.writer.write_user, path.parent, session_id, edited.user)
            await self.pipeline.rewritten(session_id, str(path.parent))
        for name in edited.names:
            row = {"customType": "relevant-context:set", "success": True, "setName": name}
            row |= {"sessionId": session_id, "contextChanged": True}
            row["timestamp"] = iso(time())
            await asyncio.to_thread(self.record, row)
            if name not in KNOWN:
                bus.log("context.unknown_set", {"session": session_id})
        if edited.names:
            only = edited.names[0] if len(edited.names) == 1 else None
            bus.context("changed", session_id, edited.user.context, only)
        return edited

    async def resume(self, args: params.ResumeContext) -> Row:
        """Return the block for the first message after a resume, once."""
        row = self.answers.row(args.session, cwd=args.cwd, fuzzy=False)
        session_id, cwd = row["sessionId"], directory_of(row)
        user = await asyncio.to_thread(self.answers.sidecar, row)
        if (session_id, args.resume_id) in self.resumed:
            return {"sessionId": session_id, "text": None, "missingFiles": 0}
        self.resumed[session_id, args.resume_id] = None
        if len(self.resumed) > RESUMED_MAX:
            del self.resumed[next(iter(self.resumed))]
        shown = directory_of(for_people(row))
        make = partial(resume_block, shown, user.env_hint, user.context, partial(_exists, cwd))
        text, missing = await asyncio.to_thread(make)
        self.pipeline.bus.context("resume", session_id, user.context)
        return {"sessionId": session_id, "text": text, "missingFiles": missing}

    def opened(self, session_id: str) -> None:
        """Publish the context sets of a session whose history was opened."""
        with suppress(IndexerdError):  # `get` reports an invalid file
            if context := self.answers.sidecar(self.answers.by_id(session_id)).context:
                self.pipeline.bus.context("load", session_id, context)


def _exists(cwd: str, item: str) -> bool:
    """Whether a file exists; true where permissions hide it."""
    try:
        path = Path(absolute(cwd, item)).expanduser()
        return path.exists() or not path.is_absolute()
    except (OSError, RuntimeError):
        return True


def _missing(cwd: str, items: Iterable[str]) -> list[str]:
    """List the relative paths that lead nowhere from the session's directory."""
    return [item for item in items if absolute(cwd, item) != item and not _exists(cwd, item)]
