"""Compaction as a service: `compact` and `branch_summary`.

Both sum up a session of any agent, by the rules of a real agent, and change nothing in it. What
comes back is what that agent would store. A branch's summary is kept in the digest sidecar, where
`branches` finds it for a gist.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.daemon.answers import Answers
from indexerd.daemon.views import Taken
from indexerd.digests import compact_codex
from indexerd.digests.branch_pi import PREAMBLE
from indexerd.digests.compact_pi import file_blocks
from indexerd.digests.compact_plans import (
    NO_FILES,
    NO_HISTORY,
    NOTHING,
    TURN_HEADING,
    Branch,
    Compaction,
    branch,
    compaction,
    strategy_of,
)
from indexerd.digests.handoff import Earlier, Handoff, Verbatim, document
from indexerd.digests.instruction_files import instruction_files
from indexerd.digests.segments import Segment
from indexerd.digests.stored_digest import store_segment
from indexerd.digests.summaries import Summaries, Summary, Task
from indexerd.digests.summary_prompts import BRANCH_TOKENS, CHECKPOINT_TOKENS, TURN_TOKENS
from indexerd.digests.talk import Talk
from indexerd.events import Stretch
from indexerd.meta.writer import MetaWriter
from indexerd.models.base import Model
from indexerd.models.threads import Check
from indexerd.privacy.redact_paths import for_people, shown_path
from indexerd.protocol import params
from indexerd.protocol.params import RefParams
from indexerd.references.looks import Looks
from indexerd.sessions.history import FileLists
from indexerd.settings import Settings
from indexerd.times import iso

_TOKENS = {"checkpoint": CHECKPOINT_TOKENS, "turn": TURN_TOKENS}

Row = dict[str, Any]


class Compactions:
    """Answers `compact` and `branch_summary`, for one daemon."""

    def __init__(
        self,
        answers: Answers,
        *,
        looks: Looks,
        summaries: Summaries,
        models: Callable[[], list[Model]],
        settings: Callable[[], Settings],
        writer: MetaWriter,
        clock: Callable[[], float],
    ) -> None:
        """`models()` are those of digests, in the user's order."""
        self._answers = answers
        self._looks = looks
        self._summaries = summaries
        self._models = models
        self._settings = settings
        self._writer = writer
        self._clock = clock

    # -- compaction ----------------------------------------------------------------------

    async def compact(self, asked: params.Compact) -> dict[str, Any]:
        """The result of `compact`."""
        row, wanted, settings = self._row(asked), wanted_of(asked), self._settings()
        plan = await self._looks.at(row["sessionId"], wanted.leaf, wanted.work(settings))

        async def write(task: Task) -> Summary:
            return await self._summaries.write(task, settings, self._models())

        return await result_of(row, plan, wanted, write)

    # -- branches ------------------------------------------------------------------------

    async def branch_summary(self, asked: params.BranchSummary) -> dict[str, Any]:
        """The result of `branch_summary`."""
        row, leaf = self._row(asked), asked.leaf
        focus, instead = asked.instructions or "", asked.replace_instructions
        settings = self._settings()
        window = settings.digest.context_window or None
        work = partial(branch, settings=settings, leaf=leaf, window=window)
        found = await self._looks.at(row["sessionId"], None, work)
        if found is None:
            return _branch_result(row, leaf, NOTHING)
        task = Task(
            session_id=row["sessionId"],
            agent=row["agent"],
            name="branch",
            talk=found.talk,
            base=_stretch(row, "branch", BRANCH_TOKENS, found.files),
            focus="" if instead else focus,
            instead=focus if instead else "",
            strategy="pi",
            drops=True,
        )
        made = await self._summaries.write(task, settings, self._models())
        text = PREAMBLE + made.text + file_blocks(found.files)
        self._answers.by_id(row["sessionId"])  # NotFoundError: it was forgotten meanwhile
        if found.home is not None:
            segment = self._segment(found, made)
            store = partial(store_segment, self._writer, found.home, row["sessionId"], segment)
            await asyncio.to_thread(store)
        return _branch_result(row, leaf, text, found, made)

    def _segment(self, found: Branch, made: Summary) -> Segment:
        return Segment(
            id=f"seg_{secrets.token_hex(6)}",
            first=found.first,
            last=found.last,
            content=made.text,
            key_decisions=found.decisions,
            files_modified=found.files.modified,
            tools_used=(),
            generated_at=iso(self._clock()),
            token_count=-(-len(made.text) // 4),
            model=made.model,
            leaf_id=found.leaf_id,
            kind="branch",
        )

    def _row(self, asked: RefParams) -> Row:
        return self._answers.row(asked.ref, cwd=asked.cwd)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a compaction."""

    strategy: str | None  # None: the rules of the session's own agent
    focus: str
    leaf: str | None
    keep: int  # tokens
    handoff: bool

    def work(self, settings: Settings) -> Callable[[Taken, Check], Compaction]:
        """Reading what it takes, for `Looks.at`."""
        return partial(
            compaction,
            settings=settings,
            strategy=self.strategy,
            keep=self.keep,
            handoff=self.handoff,
        )


def wanted_of(asked: params.Compact) -> Wanted:
    """What a request asks for; UsageError for what it cannot ask."""
    return Wanted(
        strategy=strategy_of(asked.strategy),
        focus=asked.instructions or "",
        leaf=asked.leaf,
        keep=asked.keep_recent_tokens,
        handoff=asked.handoff,
    )


async def result_of(
    row: Row,
    plan: Compaction,
    wanted: Wanted,
    write: Callable[[Task], Coroutine[Any, Any, Summary]],
) -> dict[str, Any]:
    """The result of `compact`; `write` makes a summary."""
    text, made = await _summed_up(row, plan, wanted.focus, write)
    found = {
        "sessionId": row["sessionId"],
        "strategy": plan.strategy,
        "summary": text,
        "firstKeptEntryId": plan.first_kept,
        "tokensBefore": plan.tokens_before,
        "details": {
            "readFiles": list(plan.files.read),
            "modifiedFiles": list(plan.files.modified),
        },
        "isSplitTurn": plan.split,
        "messagesSummarized": plan.summarized,
        "alreadyCompacted": plan.done is not None,
        "usage": _usage(made),
        "notes": [*plan.notes, *(note for one in made for note in one.notes)],
    }
    if plan.strategy == "codex":
        found["replacementHistory"] = compact_codex.compacted(plan.users, text)
    if wanted.handoff:
        found["handoff"] = await asyncio.to_thread(_handoff, row, plan, text, made)
    return found


async def _summed_up(
    row: Row,
    plan: Compaction,
    focus: str,
    write: Callable[[Task], Coroutine[Any, Any, Summary]],
) -> tuple[str, list[Summary]]:
    if plan.done is not None:
        return plan.done, []
    text, made = plan.previous or NO_HISTORY, list[Summary]()
    if plan.history.parts:
        made.append(await write(_task(row, plan, plan.history, "checkpoint", focus)))
        text = made[-1].text
    if plan.prefix.parts:
        made.append(await write(_task(row, plan, plan.prefix, "turn", "")))
        text = f"{text}{TURN_HEADING}{made[-1].text}"
    return text + (file_blocks(plan.files) if plan.strategy == "pi" else ""), made


def _usage(made: list[Summary]) -> dict[str, Any]:
    """What all calls together cost."""
    costs = [one.spent.usd for one in made]
    return {
        "inputTokens": sum(one.spent.input_tokens for one in made),
        "outputTokens": sum(one.spent.output_tokens for one in made),
        "costUsd": None if None in costs else sum(one or 0.0 for one in costs),
        "calls": sum(one.spent.calls for one in made),
        "model": made[0].model if made else None,
        "ms": sum(one.ms for one in made),
    }


def _handoff(row: Row, plan: Compaction, text: str, made: list[Summary]) -> str:
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
            written=iso(time.time()),
            summary=text,
            summary_by=made[0].model if made else row["agent"],
            modified=[*plan.files.modified, *row["filesModified"]],
            read=[*plan.files.read, *row["filesRead"]],
            instructions=instruction_files(row["cwd"]),
            decisions=plan.decisions,
            earlier=[Earlier(one.first, one.last, one.content) for one in plan.earlier],
            messages=[Verbatim(one["role"], one["text"], one["entryId"]) for one in plan.kept],
            resume=_resume(row) if shown["resume"] == row["resume"] else shown["resume"],
        )
    )


def _resume(row: Row) -> str:
    """The agent's own command; without a directory to go to that is not there any more."""
    command, cwd = str(row["resume"]), str(row["cwd"])
    return command if Path(cwd).is_dir() else command.removeprefix(f"cd {shlex.quote(cwd)} && ")


def _task(row: Row, plan: Compaction, talk: Talk, kind: str, focus: str) -> Task:
    base = _stretch(row, kind, _TOKENS[kind], plan.files)
    if kind == "checkpoint":
        base = replace(base, previous=plan.previous)
    return Task(
        session_id=row["sessionId"],
        agent=row["agent"],
        name="compaction",
        talk=talk,
        base=base,
        focus=focus,
        strategy=plan.strategy,
        drops=True,
    )


def _stretch(row: Row, kind: str, tokens: int, files: FileLists) -> Stretch:
    return Stretch(
        kind=kind,
        messages=(),
        files_read=files.read,
        files_modified=files.modified,
        cwd=shown_path(row["cwd"]),
        max_tokens=tokens,
    )


def _branch_result(
    row: Row, leaf: str, text: str, found: Branch | None = None, made: Summary | None = None
) -> dict[str, Any]:
    files = found.files if found else NO_FILES
    return {
        "sessionId": row["sessionId"],
        "leafId": leaf,
        "summary": text,
        "details": {"readFiles": list(files.read), "modifiedFiles": list(files.modified)},
        "usage": _usage([made] if made else []),
        "notes": list(made.notes) if made else [],
    }
