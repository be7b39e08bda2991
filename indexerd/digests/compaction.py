"""`compact` and `branch_summary`: summarize any session by the rules of pi, Codex or opencode.

The session does not change; the result is what that agent would store, redacted. A branch's summary
is kept in the digest sidecar, where `branches` finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.digests import compact_codex, compact_opencode, compact_pi, prompts, transcript
from indexerd.digests.handoff import document
from indexerd.digests.segments import store_segment
from indexerd.digests.stats import context_size
from indexerd.digests.summarize import Row, Summarizer
from indexerd.digests.transcript import NO_PARTS, RedactedTranscript, redact_parts
from indexerd.errors import SessionEmptyError, UsageError
from indexerd.events import Kind, Stretch
from indexerd.models.extractive.sentences import decisions
from indexerd.privacy.redact import Redactor, redactor, shown_path
from indexerd.protocol import params
from indexerd.references.services import Services
from indexerd.sessions import context
from indexerd.sessions.branches import BRANCH_PREAMBLE
from indexerd.sessions.clipped import SUMMED
from indexerd.sessions.context import ContextEntry, ContextMessage
from indexerd.sessions.facts import FileLists, file_lists
from indexerd.sessions.positions import message_rows
from indexerd.settings import Settings
from indexerd.sources.session_reader import Check, OpenSession, row_of
from indexerd.times import iso

STRATEGIES = ("pi", "codex", "opencode")
WINDOW = 128_000  # tokens, where the model's window is not known
TURN_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"  # pi's, as the next two
NO_HISTORY = "No prior history."
NOTHING = "No content to summarize"


@dataclass(slots=True)
class Compaction:
    """The parts of a context to summarize, and facts about them."""

    strategy: str
    history: RedactedTranscript
    files: FileLists
    prefix: RedactedTranscript = NO_PARTS  # the beginning of a turn whose end is kept
    previous: str = ""  # the earlier summary, to be merged
    users: Sequence[ContextMessage] = ()  # people's words that Codex keeps
    answer: dict[str, Any] = field(default_factory=dict)  # fields of the result
    home: Path | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of a branch's segment


def plan_compaction(
    session: OpenSession, check: Check, settings: Settings, asked: params.Compact
) -> Compaction:
    """Decide what a strategy summarizes and keeps of the context at the leaf.

    A hand-off summarizes everything; so does the strategy of the session's own agent, if its rule
    would wait for more.
    """
    if asked.strategy not in (None, *STRATEGIES):
        raise UsageError(f"strategy is one of {', '.join(STRATEGIES)}")
    state, agent, clean = session.state, session.info.agent, redactor(settings)
    keep = asked.keep_recent_tokens
    name = asked.strategy or (agent if agent in STRATEGIES else "pi")
    said = partial(transcript.summarizable_messages, state=state, agent=agent)
    with session.reading(check, SUMMED) as read:
        entries = context.context_entries(state, read)
        cut = compact_pi.prepare(entries, keep) if name == "pi" and not asked.handoff else None
        if cut is None and asked.strategy == "pi" and not asked.handoff:
            why = f"there is nothing to compact before the newest {keep} tokens"
            raise SessionEmptyError(why, hint="without a strategy everything is summarized")
    if cut is None:  # everything, and the summary at its beginning to be merged
        summary, messages = _with_previous(entries)
        history = list(said(compact_opencode.pruned(messages) if name == "opencode" else messages))
    else:
        summary, history = cut.previous_summary or "", list(said(cut.history))
    prefix = list(said(cut.turn_prefix)) if cut else []
    users = said(m for one in entries for m in one.speeches) if name == "codex" else ()
    found = Compaction(
        name,
        redact_parts(history, clean),
        _without_secrets(cut.files if cut else file_lists(e.entry for e in entries), clean),
        redact_parts(prefix, clean),
        previous=clean(summary)[0],
        users=compact_codex.users_of(replace(m, texts=(clean(m.text)[0],)) for m in users),
        answer={
            "sessionId": session.info.session_id,
            "strategy": name,
            "firstKeptEntryId": cut.first_kept_id if cut else None,
            "tokensBefore": cut.tokens_before if cut else context_size(state, entries)[0],
            "isSplitTurn": cut is not None and cut.split,
            "messagesSummarized": len(history) + len(prefix),
        },
    )
    if not (found.history.parts or found.prefix.parts or found.previous):
        raise SessionEmptyError("there is no text to summarize")
    return found


def _with_previous(entries: Sequence[ContextEntry]) -> tuple[str, list[ContextMessage]]:
    """Return the newest compaction's summary, if the model sees it, and all other messages."""
    summaries = [one for one in entries if one.entry.kind is Kind.COMPACTION and one.speeches]
    newest = max(summaries, key=lambda one: one.place, default=None)
    newest = newest if newest and any(newest.entry.texts) else None
    messages = list[ContextMessage]()
    for one in entries:
        messages += compact_pi.beside_summary(one) if one is newest else one.speeches
    return "".join(newest.entry.texts) if newest else "", messages


def _with_older(files: FileLists, row: Row) -> FileLists:
    """Add the files of calls that compactions removed from the context."""
    modified = {*files.modified, *row["filesModified"]}
    read = {*files.read, *row["filesRead"]} - modified
    return FileLists(tuple(sorted(read)), tuple(sorted(modified)))


def _without_secrets(files: FileLists, clean: Redactor) -> FileLists:
    read, modified = ([clean(path)[0] for path in each] for each in (files.read, files.modified))
    return FileLists(tuple(read), tuple(modified))


def plan_branch(
    session: OpenSession, check: Check, settings: Settings, *, leaf: str
) -> Compaction | None:
    """Plan the summary of a branch by pi's rules; None where nothing was said there.

    The branch reaches from an old leaf back to where its path meets the current one, across
    compactions.
    """
    state, clean, tip = session.state, redactor(settings), row_of(session.state, leaf)
    shared = set(state.path(state.leaf)) if state.leaf >= 0 else set()
    rows = [row for row in state.path(tip) if row not in shared]
    window = settings.digest.context_window or WINDOW
    with session.reading(check, SUMMED) as read:
        entries = context.entries_of(state, read, rows, edits=False)
    messages, files = fit_branch(entries, max(1, window - settings.digest.reserve_tokens))
    said = transcript.summarizable_messages(messages, state, session.info.agent)
    text = redact_parts(said, clean)
    if not text.parts:
        return None
    own, files = set(rows), _without_secrets(files, clean)
    within = [at for at, row in enumerate(message_rows(state, rows[-1])) if row in own] or [0]
    facts = {
        "kind": "branch",
        "covering": (within[0], within[-1]),
        "leaf_id": leaf,
        "files_modified": files.modified,
        "key_decisions": decisions(words for _, words in transcript.words_in(text.parts)),
    }
    return Compaction("pi", text, files, home=session.home, facts=facts)


def fit_branch(
    entries: Sequence[ContextEntry], budget: int
) -> tuple[list[ContextMessage], FileLists]:
    """Return a branch's messages that fit into `budget` tokens, and its files.

    Results of tools are left out. The first message from the end that does not fit is the limit,
    except that a summary is added while the rest takes less than nine tenths. What surprised us:
    the files of the answer that did not fit are listed, and those of every branch summary.
    """
    messages: list[ContextMessage] = []  # newest first
    seen: list[ContextEntry] = []
    total = 0
    for one in reversed(entries):
        said = [message for message in one.speeches if message.role != "toolResult"]
        if not said and one.speeches:
            continue
        seen.append(one)
        tokens = compact_pi.estimate_tokens(*said)
        fits = total + tokens <= budget
        sums_up = one.entry.kind in (Kind.COMPACTION, Kind.BRANCH_SUMMARY)
        if fits or (sums_up and total < budget * 0.9):
            messages += reversed(said)
            total += tokens
        if not fits:
            break
    summaries = [one.entry for one in entries if one.entry.kind is Kind.BRANCH_SUMMARY]
    return messages[::-1], compact_pi.files_of(seen, summaries)


async def compact(services: Services, asked: params.Compact) -> dict[str, Any]:
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    work = partial(plan_compaction, settings=services.settings(), asked=asked)
    plan = await services.pool.read(row["sessionId"], asked.leaf, work)
    if row["agent"] != "pi" and asked.leaf is None:  # pi's compactions remember files
        plan.files = _with_older(plan.files, row)
    writer = Summarizer(services, row, "compaction", strategy=plan.strategy)
    text, where = plan.previous or NO_HISTORY, shown_path(row["cwd"])
    if plan.history.parts:
        base = Stretch("checkpoint", (), where, plan.previous, max_tokens=prompts.CHECKPOINT_TOKENS)
        text = await writer.write(plan.history, base, prompts.Wish(asked.instructions or ""))
    if plan.prefix.parts:
        base = Stretch("turn", (), where, max_tokens=prompts.TURN_TOKENS)
        text += TURN_HEADING + await writer.write(plan.prefix, base)
    if writer.model and plan.strategy == "pi" and not asked.handoff:  # a hand-off lists the files
        text += compact_pi.file_blocks(plan.files)
    found = {**plan.answer, "summary": text, "alreadyCompacted": not writer.model}
    found |= _made(plan.files, writer)
    if plan.strategy == "codex":
        found["replacementHistory"] = compact_codex.replacement_history(plan.users, text)
    if asked.handoff:
        found["handoff"] = await asyncio.to_thread(
            document,
            row,
            summary=text,
            summary_by=writer.model or row["agent"],
            written=iso(time.time()),
            files=_with_older(plan.files, row),
            messages=transcript.words_in(plan.history.parts),
        )
    return found


async def branch_summary(services: Services, asked: params.BranchSummary) -> dict[str, Any]:
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    session_id, focus = row["sessionId"], asked.instructions or ""
    work = partial(plan_branch, settings=services.settings(), leaf=asked.leaf)
    plan = await services.pool.read(session_id, None, work)
    writer = Summarizer(services, row, "branch", strategy="pi")
    text, files = NOTHING, FileLists((), ())
    if plan is not None:
        files, where = plan.files, shown_path(row["cwd"])
        base = Stretch("branch", (), where, max_tokens=prompts.BRANCH_TOKENS)
        wish = prompts.Wish("", focus) if asked.replace_instructions else prompts.Wish(focus)
        summary = await writer.write(plan.history, base, wish)
        text = BRANCH_PREAMBLE + summary + compact_pi.file_blocks(files)
        facts = plan.facts | {"model": writer.model}
        await store_segment(services, plan.home, session_id, summary, **facts)
    answer = {"sessionId": session_id, "leafId": asked.leaf, "summary": text}
    return answer | _made(files, writer)


def _made(files: FileLists, writer: Summarizer) -> dict[str, Any]:
    details = {"readFiles": list(files.read), "modifiedFiles": list(files.modified)}
    return {"details": details, "usage": writer.usage, "notes": writer.notes}
