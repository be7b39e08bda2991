"""`compact` and `branch_summary`: summarize any session by the rules of pi, Codex or opencode.

The session does not change; the result is what that agent would store, redacted. A branch's summary
is kept in the digest sidecar, where `branches` finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from indexerd.digests import compact_pi, prompts, transcript
from indexerd.digests.compact_opencode import pruned
from indexerd.digests.compact_pi import Prepared, prepare
from indexerd.digests.handoff import document
from indexerd.digests.segments import store_segment
from indexerd.digests.stats import context_size
from indexerd.digests.summarize import Row, Summarizer
from indexerd.digests.transcript import RedactedTranscript, redact_parts
from indexerd.errors import SessionEmptyError
from indexerd.events import Kind, Stretch
from indexerd.models.extractive.sentences import decisions
from indexerd.privacy.redact import Redactor, redactor, shown_path
from indexerd.protocol import params
from indexerd.references.services import Services
from indexerd.sessions import context
from indexerd.sessions.clipped import SUMMED
from indexerd.sessions.context import ContextEntry, ContextMessage
from indexerd.sessions.facts import FileLists, file_lists
from indexerd.sessions.state import message_rows
from indexerd.sessions.tree_answers import BRANCH_PREAMBLE
from indexerd.settings import Settings
from indexerd.sources.session_reader import Check, OpenSession, row_of

USERS_TOKENS = 20_000  # of the user's messages that stay by Codex's rules
WINDOW = 128_000  # tokens, if the model's window is unknown
TURN_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"  # pi's, as the next two
NO_HISTORY = "No prior history."
NOTHING = "No content to summarize"


@dataclass(slots=True)
class Compaction:
    """What a strategy summarizes and keeps of a context; its texts are redacted."""

    strategy: str
    cut: Prepared
    history: RedactedTranscript
    prefix: RedactedTranscript  # the beginning of a turn whose end is kept
    messages: int  # in both
    previous: str  # the earlier summary, to be merged
    files: FileLists
    users: list[ContextMessage]  # the user's messages that Codex keeps


def plan_compaction(
    session: OpenSession, check: Check, settings: Settings, asked: params.Compact
) -> Compaction:
    """Decide what a strategy summarizes and keeps of the context at the leaf.

    A hand-off summarizes everything; so does the strategy of the session's own agent, if its rule
    would wait for more.
    """
    state, agent, clean = session.state, session.info.agent, redactor(settings)
    name = asked.strategy or (agent if agent in ("codex", "opencode") else "pi")
    by_pi, keep = name == "pi" and not asked.handoff, asked.keep_recent_tokens
    with session.reading(check, SUMMED) as read:
        entries = context.context_entries(state, read)
    cut = prepare(entries, keep) if by_pi else None
    if cut is None and by_pi and asked.strategy:
        why = f"there is nothing to compact before the newest {keep} tokens"
        raise SessionEmptyError(why, hint="without a strategy everything is summarized")
    cut = cut or _everything(entries, context_size(state, entries)[0])
    said = partial(transcript.summarizable_messages, state=state, agent=agent)
    history = list(said(pruned(cut.history) if name == "opencode" else cut.history))
    prefix = list(said(cut.turn_prefix))
    users = said(m for one in entries for m in one.speeches) if name == "codex" else ()
    found = Compaction(
        name,
        cut,
        redact_parts(history, clean),
        redact_parts(prefix, clean),
        len(history) + len(prefix),
        clean(cut.previous_summary or "")[0],
        _without_secrets(cut.files, clean),
        users_of(replace(m, texts=(clean(m.text)[0],)) for m in users),
    )
    if not (found.history.parts or found.prefix.parts or found.previous):
        raise SessionEmptyError("there is no text to summarize")
    return found


def _everything(entries: Sequence[ContextEntry], tokens: int) -> Prepared:
    """Keep nothing; merge the newest compaction's summary, if the model sees it."""
    summaries = [one for one in entries if one.entry.kind is Kind.COMPACTION and one.speeches]
    newest = max(summaries, key=lambda one: one.place, default=None)
    newest = newest if newest and any(newest.entry.texts) else None
    messages = list[ContextMessage]()
    for one in entries:
        messages += compact_pi.beside_summary(one) if one is newest else one.speeches
    summary = "".join(newest.entry.texts) if newest else None
    files = file_lists(one.entry for one in entries)
    return Prepared(None, tuple(messages), (), False, tokens, summary, files)  # noqa: FBT003


def _with_older(files: FileLists, row: Row) -> FileLists:
    """Add the files of calls that compactions removed from the context."""
    modified = {*files.modified, *row["filesModified"]}
    read = {*files.read, *row["filesRead"]} - modified
    return FileLists(tuple(sorted(read)), tuple(sorted(modified)))


def _without_secrets(files: FileLists, clean: Redactor) -> FileLists:
    read, modified = (tuple(clean(path)[0] for path in one) for one in (files.read, files.modified))
    return FileLists(read, modified)


Branch = tuple[RedactedTranscript, FileLists, Path | None, dict[str, Any]]


def plan_branch(
    session: OpenSession, check: Check, settings: Settings, *, leaf: str
) -> Branch | None:
    """Return a branch's text and files, the sidecar's directory, and the facts of its segment.

    The branch reaches from an old leaf back to where its path meets the current one, across
    compactions. None where nothing was said there.
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
    return text, files, session.home, facts


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


def users_of(said: Iterable[ContextMessage]) -> list[ContextMessage]:
    """Return the user's newest messages within USERS_TOKENS; a message too long keeps its ends."""
    found, left = list[ContextMessage](), USERS_TOKENS
    for one in reversed([one for one in said if transcript.speaker(one) == "user"]):
        data, size = one.text.encode("utf-8", "replace"), 4 * left
        if left <= 0:
            break
        if len(data) > size:
            head = data[: size // 2].decode("utf-8", "ignore")
            tail = data[len(data) - size + size // 2 :].decode("utf-8", "ignore")
            gone = -(-(len(data) - size) // 4)
            one = replace(one, texts=(f"{head}…{gone} tokens truncated…{tail}",))  # noqa: PLW2901 - the shortened one
        found.append(one)
        left -= -(-len(data) // 4)
    return found[::-1]


def replacement_history(users: Iterable[ContextMessage], summary: str) -> list[dict[str, Any]]:
    """Return the messages that replace the history, the summary last."""
    kept = [{"role": one.role, "text": one.text, "entryId": one.entry.id} for one in users]
    return [*kept, {"role": "user", "text": summary, "entryId": None}]


async def compact(services: Services, asked: params.Compact) -> dict[str, Any]:
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    work = partial(plan_compaction, settings=services.settings(), asked=asked)
    plan: Compaction = await services.pool.read(row["sessionId"], asked.leaf, work)
    older = _with_older(plan.files, row)
    # pi's compactions remember files
    files = older if row["agent"] != "pi" and asked.leaf is None else plan.files
    writer = Summarizer(services, row, "compaction", strategy=plan.strategy)
    text, where = plan.previous or NO_HISTORY, shown_path(row["cwd"])
    if plan.history.parts:
        base = Stretch("checkpoint", (), where, plan.previous, max_tokens=prompts.CHECKPOINT_TOKENS)
        text = await writer.write(plan.history, base, prompts.Wish(asked.instructions or ""))
    if plan.prefix.parts:
        base = Stretch("turn", (), where, max_tokens=prompts.TURN_TOKENS)
        text += TURN_HEADING + await writer.write(plan.prefix, base)
    if writer.model and plan.strategy == "pi" and not asked.handoff:  # a hand-off lists the files
        text += compact_pi.file_blocks(files)
    found = {
        "sessionId": row["sessionId"],
        "strategy": plan.strategy,
        "firstKeptEntryId": plan.cut.first_kept_id,
        "tokensBefore": plan.cut.tokens_before,
        "isSplitTurn": plan.cut.split,
        "messagesSummarized": plan.messages,
        "summary": text,
        "alreadyCompacted": not writer.model,
        **_made(files, writer),
    }
    if plan.strategy == "codex":
        found["replacementHistory"] = replacement_history(plan.users, text)
    if asked.handoff:
        author, words = writer.model or row["agent"], transcript.words_in(plan.history.parts)
        found["handoff"] = await asyncio.to_thread(document, row, text, author, older, words)
    return found


async def branch_summary(services: Services, asked: params.BranchSummary) -> dict[str, Any]:
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    session_id, focus = row["sessionId"], asked.instructions or ""
    work = partial(plan_branch, settings=services.settings(), leaf=asked.leaf)
    plan: Branch | None = await services.pool.read(session_id, None, work)
    writer = Summarizer(services, row, "branch", strategy="pi")
    text, files = NOTHING, FileLists((), ())
    if plan is not None:
        said, files, home, facts = plan
        base = Stretch("branch", (), shown_path(row["cwd"]), max_tokens=prompts.BRANCH_TOKENS)
        wish = prompts.Wish("", focus) if asked.replace_instructions else prompts.Wish(focus)
        summary = await writer.write(said, base, wish)
        text = BRANCH_PREAMBLE + summary + compact_pi.file_blocks(files)
        facts |= {"model": writer.model}
        await store_segment(services, home, session_id, summary, **facts)
    answer = {"sessionId": session_id, "leafId": asked.leaf, "summary": text}
    return answer | _made(files, writer)


def _made(files: FileLists, writer: Summarizer) -> dict[str, Any]:
    details = {"readFiles": list(files.read), "modifiedFiles": list(files.modified)}
    return {"details": details, "usage": writer.usage, "notes": writer.notes}
