"""`compact` and `branch_summary`: a session of any agent, summarized by the rules of a real one.

Nothing changes in the session. The result is what that agent would store. A branch's summary is
kept in the digest sidecar, where `branches` finds it for a gist.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.digests.branch_summary import Branch, plan_branch
from indexerd.digests.compact_codex import replacement_history
from indexerd.digests.compact_pi import file_blocks
from indexerd.digests.compaction_plan import (
    NO_FILES,
    Compaction,
    Wanted,
    plan_compaction,
    strategy_of,
)
from indexerd.digests.handoff import Earlier, Handoff, Verbatim, document
from indexerd.digests.instruction_files import instruction_files
from indexerd.digests.prompts import BRANCH_TOKENS, CHECKPOINT_TOKENS, TURN_TOKENS
from indexerd.digests.redacted_transcript import RedactedTranscript
from indexerd.digests.segments import Segment, new_id, store_segment, text_tokens
from indexerd.digests.summarize import Summarizer, Summary, Task, usage_of
from indexerd.events import Stretch
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.privacy.redact import for_people, shown_path
from indexerd.protocol import params
from indexerd.sessions.branches import BRANCH_PREAMBLE
from indexerd.sessions.history import FileLists
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionReaderPool, SessionRows
from indexerd.times import iso

TURN_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"  # pi's, as the next two
NO_HISTORY = "No prior history."
NOTHING = "No content to summarize"

Row = dict[str, Any]


class Compactions:
    """Answers `compact` and `branch_summary`."""

    def __init__(
        self,
        rows: SessionRows,
        *,
        pool: SessionReaderPool,
        summarizer: Summarizer,
        models: Callable[[], list[Model]],
        settings: Callable[[], Settings],
        writer: MetaWriter,
        clock: Callable[[], float],
    ) -> None:
        """`models()` are those of digests, in the user's order."""
        self._rows = rows
        self._pool = pool
        self._summarizer = summarizer
        self._models = models
        self._settings = settings
        self._writer = writer
        self._clock = clock

    async def compact(self, asked: params.Compact) -> dict[str, Any]:
        """The result of `compact`."""
        row, settings = self._rows.row(asked.ref, cwd=asked.cwd), self._settings()
        wanted = Wanted(strategy_of(asked.strategy), asked.keep_recent_tokens, asked.handoff)
        work = partial(plan_compaction, settings=settings, wanted=wanted)
        plan = await self._pool.read(row["sessionId"], asked.leaf, work)
        text, made = await self._summarized(row, plan, asked.instructions or "", settings)
        found = {
            "sessionId": row["sessionId"],
            "strategy": plan.strategy,
            "summary": text,
            "firstKeptEntryId": plan.first_kept,
            "tokensBefore": plan.tokens_before,
            "details": _details(plan.files),
            "isSplitTurn": plan.split,
            "messagesSummarized": plan.summarized,
            "alreadyCompacted": plan.done is not None,
            "usage": usage_of(made),
            "notes": [*plan.notes, *(note for one in made for note in one.notes)],
        }
        if plan.strategy == "codex":
            found["replacementHistory"] = replacement_history(plan.users, text)
        if asked.handoff:
            by = made[0].model if made else row["agent"]
            found["handoff"] = await asyncio.to_thread(self._handoff, row, plan, text, by)
        return found

    async def _summarized(
        self, row: Row, plan: Compaction, focus: str, settings: Settings
    ) -> tuple[str, list[Summary]]:
        """The summary's text, and the calls that it took."""
        if plan.done is not None:
            return plan.done, []
        made = list[Summary]()

        async def write(transcript: RedactedTranscript, base: Stretch, focus: str) -> str:
            task = Task(
                session_id=row["sessionId"],
                agent=row["agent"],
                name="compaction",
                transcript=transcript,
                base=base,
                focus=focus,
                strategy=plan.strategy,
                drops=True,
            )
            made.append(await self._summarizer.write(task, settings, self._models()))
            return made[-1].text

        text = plan.previous or NO_HISTORY
        if plan.history.parts:
            base = _stretch(row, "checkpoint", CHECKPOINT_TOKENS, plan.files)
            text = await write(plan.history, replace(base, previous=plan.previous), focus)
        if plan.prefix.parts:
            base = _stretch(row, "turn", TURN_TOKENS, plan.files)
            text += TURN_HEADING + await write(plan.prefix, base, "")
        return text + (file_blocks(plan.files) if plan.strategy == "pi" else ""), made

    def _handoff(self, row: Row, plan: Compaction, text: str, by: str) -> str:
        """The document that a new session goes on from. Blocks: it looks for files."""
        shown = for_people(row)
        return document(
            Handoff(
                session_id=row["sessionId"],
                agent=row["agent"],
                name=row["name"],
                cwd=shown["cwd"],
                git_branch=row.get("gitBranch", ""),
                began=row["createdAt"],
                last_active=row["modifiedAt"],
                written=iso(self._clock()),
                summary=text,
                summary_by=by,
                modified=[*plan.files.modified, *row["filesModified"]],
                read=[*plan.files.read, *row["filesRead"]],
                instructions=instruction_files(row["cwd"]),
                decisions=plan.decisions,
                earlier=[Earlier(one.first, one.last, one.content) for one in plan.earlier],
                messages=[Verbatim(one["role"], one["text"], one["entryId"]) for one in plan.kept],
                resume=_resume(row) if shown["resume"] == row["resume"] else shown["resume"],
            )
        )

    async def branch_summary(self, asked: params.BranchSummary) -> dict[str, Any]:
        """The result of `branch_summary`."""
        row, settings = self._rows.row(asked.ref, cwd=asked.cwd), self._settings()
        session_id, focus = row["sessionId"], asked.instructions or ""
        work = partial(plan_branch, settings=settings, leaf=asked.leaf)
        found = await self._pool.read(session_id, None, work)
        text, made = NOTHING, list[Summary]()
        if found is not None:
            task = Task(
                session_id=session_id,
                agent=row["agent"],
                name="branch",
                transcript=found.transcript,
                base=_stretch(row, "branch", BRANCH_TOKENS, found.files),
                focus="" if asked.replace_instructions else focus,
                instead=focus if asked.replace_instructions else "",
                strategy="pi",
                drops=True,
            )
            made.append(await self._summarizer.write(task, settings, self._models()))
            text = BRANCH_PREAMBLE + made[0].text + file_blocks(found.files)
            self._rows.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
            if found.home is not None:
                segment = self._segment(found, made[0])
                await asyncio.to_thread(
                    store_segment, self._writer, found.home, session_id, segment
                )
        return {
            "sessionId": session_id,
            "leafId": asked.leaf,
            "summary": text,
            "details": _details(found.files if found else NO_FILES),
            "usage": usage_of(made),
            "notes": [note for one in made for note in one.notes],
        }

    def _segment(self, found: Branch, made: Summary) -> Segment:
        return Segment(
            id=new_id(),
            first=found.first,
            last=found.last,
            content=made.text,
            key_decisions=found.decisions,
            files_modified=found.files.modified,
            tools_used=(),
            generated_at=iso(self._clock()),
            token_count=text_tokens(made.text),
            model=made.model,
            leaf_id=found.leaf_id,
            kind="branch",
        )


def _resume(row: Row) -> str:
    """The agent's own command; without a directory to go to that is not there any more."""
    command, cwd = str(row["resume"]), str(row["cwd"])
    return command if Path(cwd).is_dir() else command.removeprefix(f"cd {shlex.quote(cwd)} && ")


def _stretch(row: Row, kind: str, tokens: int, files: FileLists) -> Stretch:
    return Stretch(
        kind=kind,
        messages=(),
        files_read=files.read,
        files_modified=files.modified,
        cwd=shown_path(row["cwd"]),
        max_tokens=tokens,
    )


def _details(files: FileLists) -> dict[str, Any]:
    return {"readFiles": list(files.read), "modifiedFiles": list(files.modified)}
