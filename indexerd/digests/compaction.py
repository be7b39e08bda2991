"""`compact` and `branch_summary`: a session of any agent, summarized by the rules of a real one.

Nothing changes in the session. The result is what that agent would store. A branch's summary is
kept in the digest sidecar, where `branches` finds it for a gist.
"""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.digests.compact_codex import replacement_history
from indexerd.digests.compact_pi import file_blocks
from indexerd.digests.compaction_plan import (
    NO_FILES,
    Compaction,
    Wanted,
    plan_branch,
    plan_compaction,
)
from indexerd.digests.handoff import Handoff, document
from indexerd.digests.instruction_files import instruction_files
from indexerd.digests.prompts import BRANCH_TOKENS, CHECKPOINT_TOKENS, TURN_TOKENS
from indexerd.digests.segments import new_segment, store_segment
from indexerd.digests.summarize import Row, Services, Summary, Task, summarize, usage_of
from indexerd.events import Stretch
from indexerd.privacy.redact import for_people, shown_path
from indexerd.protocol import params
from indexerd.sessions.branches import BRANCH_PREAMBLE
from indexerd.sessions.history import FileLists
from indexerd.times import iso

TURN_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"  # pi's, as the next two
NO_HISTORY = "No prior history."
NOTHING = "No content to summarize"


async def compact(services: Services, asked: params.Compact) -> dict[str, Any]:
    """The result of `compact`."""
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    wanted = Wanted(asked.strategy, asked.keep_recent_tokens, asked.handoff)
    work = partial(plan_compaction, settings=services.settings(), wanted=wanted)
    plan = await services.pool.read(row["sessionId"], asked.leaf, work)
    text, made = plan.done, list[Summary]()
    if text is None:
        text, made = await _summarized(services, row, plan, asked.instructions or "")
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
        written = iso(services.clock())
        found["handoff"] = await asyncio.to_thread(_handoff, row, plan, text, by, written)
    return found


async def _summarized(
    services: Services, row: Row, plan: Compaction, focus: str
) -> tuple[str, list[Summary]]:
    """The summary's text, and the calls that it took."""
    made = list[Summary]()
    task = partial(Task, row, "compaction", strategy=plan.strategy)
    text = plan.previous or NO_HISTORY
    if plan.history.parts:
        base = _stretch(row, "checkpoint", CHECKPOINT_TOKENS, plan.files)
        base = replace(base, previous=plan.previous)
        made.append(await summarize(services, task(plan.history, base, focus)))
        text = made[-1].text
    if plan.prefix.parts:
        base = _stretch(row, "turn", TURN_TOKENS, plan.files)
        made.append(await summarize(services, task(plan.prefix, base)))
        text += TURN_HEADING + made[-1].text
    return text + (file_blocks(plan.files) if plan.strategy == "pi" else ""), made


def _handoff(row: Row, plan: Compaction, text: str, by: str, written: str) -> str:
    """The document that a new session goes on from. Blocks: it looks for files."""
    shown, resume = for_people(row), str(row["resume"])
    if shown["resume"] != resume:
        resume = shown["resume"]
    elif not Path(row["cwd"]).is_dir():  # a directory that is not there any more
        resume = resume.removeprefix(f"cd {shlex.quote(row['cwd'])} && ")
    return document(
        Handoff(
            session_id=row["sessionId"],
            agent=row["agent"],
            name=row["name"],
            cwd=shown["cwd"],
            git_branch=row.get("gitBranch", ""),
            began=row["createdAt"],
            last_active=row["modifiedAt"],
            written=written,
            summary=text,
            summary_by=by,
            modified=[*plan.files.modified, *row["filesModified"]],
            read=[*plan.files.read, *row["filesRead"]],
            instructions=instruction_files(row["cwd"]),
            decisions=plan.decisions,
            earlier=plan.earlier,
            messages=[(one["role"], one["text"], one["entryId"]) for one in plan.kept],
            resume=resume,
        )
    )


async def branch_summary(services: Services, asked: params.BranchSummary) -> dict[str, Any]:
    """The result of `branch_summary`."""
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    session_id, focus = row["sessionId"], asked.instructions or ""
    work = partial(plan_branch, settings=services.settings(), leaf=asked.leaf)
    found = await services.pool.read(session_id, None, work)
    text, made = NOTHING, list[Summary]()
    if found is not None:
        base = _stretch(row, "branch", BRANCH_TOKENS, found.files)
        wish = ("", focus) if asked.replace_instructions else (focus, "")
        task = Task(row, "branch", found.transcript, base, *wish, strategy="pi")
        made.append(await summarize(services, task))
        text = BRANCH_PREAMBLE + made[0].text + file_blocks(found.files)
        services.rows.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
        if found.home is not None:
            segment = new_segment(
                made[0].text,
                made[0].model,
                services.clock(),
                covering=found.covering,
                key_decisions=found.decisions,
                files_modified=found.files.modified,
                leaf_id=asked.leaf,
                kind="branch",
            )
            await asyncio.to_thread(store_segment, services.writer, found.home, session_id, segment)
    return {
        "sessionId": session_id,
        "leafId": asked.leaf,
        "summary": text,
        "details": _details(found.files if found else NO_FILES),
        "usage": usage_of(made),
        "notes": [note for one in made for note in one.notes],
    }


def _stretch(row: Row, kind: str, tokens: int, files: FileLists) -> Stretch:
    where = shown_path(row["cwd"])
    return Stretch(kind, (), files.read, files.modified, cwd=where, max_tokens=tokens)


def _details(files: FileLists) -> dict[str, Any]:
    return {"readFiles": list(files.read), "modifiedFiles": list(files.modified)}
