"""`compact` and `branch_summary`: a session of any agent, summarized by the rules of a real one.

Nothing changes in the session; the result is what pi, Codex or opencode would store. Texts are
redacted. Of rows that compactions have replaced only what can matter is read. Planning runs in
threads. A branch's summary is kept in the digest sidecar, where `branches` finds it for a gist.
"""

from __future__ import annotations

import asyncio
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.agents.json_lines import own_words
from indexerd.digests import compact_codex, compact_opencode, compact_pi, prompts, transcript
from indexerd.digests.handoff import Handoff, document, instruction_files
from indexerd.digests.segments import chain_at, new_segment, store_segment
from indexerd.digests.stats import context_size
from indexerd.digests.summarize import Row, Services, Summary, Task, summarize, usage_of
from indexerd.digests.transcript import NO_PARTS, RedactedTranscript, redact_parts, words_in
from indexerd.errors import SessionEmptyError, UsageError
from indexerd.events import Kind, Stretch
from indexerd.models.extractive.sentences import decisions
from indexerd.privacy.redact import Redactor, for_people, redactor, shown_path
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol import params
from indexerd.sessions import context
from indexerd.sessions.branches import BRANCH_PREAMBLE
from indexerd.sessions.clipped_entries import SUMMED
from indexerd.sessions.context import ContextEntry, ContextMessage, Read
from indexerd.sessions.facts import FileLists, file_lists
from indexerd.sessions.positions import message_rows
from indexerd.sessions.serialize import parts_of
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession, row_of
from indexerd.threads import Check
from indexerd.times import iso

STRATEGIES = ("pi", "codex", "opencode")
KEPT_LOOKED = 400  # newest messages among which those are found that a hand-off quotes
KEPT_MAX = 20
KEPT_TEXT_MAX = 20_000  # characters of one of them
TOKENS_MAX = 1 << 53
WINDOW = 128_000  # tokens of a model that does not say
NO_FILES = FileLists((), ())
TURN_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"  # pi's, as the next two
NO_HISTORY = "No prior history."
NOTHING = "No content to summarize"


@dataclass(slots=True)
class Compaction:
    """What is summarized, what stays, and what is known besides."""

    strategy: str
    history: RedactedTranscript = NO_PARTS
    prefix: RedactedTranscript = NO_PARTS  # the beginning of a turn whose end stays
    split: bool = False
    first_kept: str | None = None
    tokens_before: int = 0
    previous: str = ""  # the earlier summary, to be merged
    files: FileLists = NO_FILES
    users: tuple[ContextMessage, ...] = ()  # what humans said that stays (Codex)
    summarized: int = 0  # messages
    done: str | None = None  # the summary there is already, where nothing came after it
    # For a hand-off:
    messages: tuple[tuple[str, str, str], ...] = ()  # the newest: role, text, entry id
    decisions: tuple[str, ...] = ()
    earlier: tuple[tuple[int, int, str], ...] = ()  # segments: first and last message, content


def plan_compaction(
    session: OpenSession,
    check: Check,
    settings: Settings,
    *,
    strategy: str | None,
    keep: int,
    handoff: bool,
) -> Compaction:
    """What a strategy would do with the context at the leaf, keeping about `keep` tokens of it.

    Without a strategy it is that of the session's own agent, which summarizes all there is where
    its rule would wait for more. A hand-off has to do without the session, so that is summarized
    as a whole. A session that ends with a compaction has that one: what its agent stored is never
    made anew. SessionEmptyError where there is nothing to summarize.
    """
    if strategy not in (None, *STRATEGIES):
        raise UsageError(f"strategy is one of {', '.join(STRATEGIES)}")
    agent, clean = session.info.agent, redactor(settings)
    own = agent if agent in STRATEGIES else "pi"
    with session.reading(check, SUMMED) as read:
        planner = _Planner(session, read, clean, handoff=handoff)
        if not any(one.speeches for one in planner.entries):
            raise SessionEmptyError("there is no conversation to sum up")
        last = None if handoff else planner.final_compaction()
        found, name = None, strategy or own
        if name == "pi" and not handoff and (last is None or agent == "pi"):
            found = planner.by_pis_rules(keep)
        if found is None and last is None and strategy == "pi" and not handoff:
            why = f"there is nothing to compact before the newest {keep} tokens"
            hint = "keep less (--keep-recent TOKENS), or leave out --strategy"
            raise SessionEmptyError(why, hint=hint)
        found = found or planner.whole(own if last else name, last)
    if handoff:
        chain = chain_at(session.state, session.home, session.info.session_id)
        said = decisions(own_words(text) for _, text in words_in(found.history.parts))
        found.messages = planner.newest()
        found.decisions = (*(clean(d)[0] for one in chain for d in one.key_decisions), *said)
        found.earlier = tuple((*one.covering, clean(one.content)[0]) for one in chain)
    return found


class _Planner:
    """The context of one session, and what a strategy makes of it."""

    def __init__(self, session: OpenSession, read: Read, clean: Redactor, *, handoff: bool) -> None:
        self.entries = context.context_entries(session.state, read)
        self._state, self._agent = session.state, session.info.agent
        self._read, self._clean = read, clean
        # pi's compactions remember files, so for its sessions older calls are not looked at.
        self._older_calls = handoff or self._agent != "pi"

    def by_pis_rules(self, keep: int) -> Compaction | None:
        """A cut, and what stands before it; None where pi would do nothing."""
        found = compact_pi.prepare(self.entries, keep)
        if found is None:
            return None
        history, prefix = self._said(found.history), self._said(found.turn_prefix)
        return Compaction(
            "pi",
            self._redacted(history),
            self._redacted(prefix),
            split=found.split,
            first_kept=found.first_kept_id,
            tokens_before=found.tokens_before,
            previous=self._summary(found.previous_summary or ""),
            files=self._files(found.files),
            summarized=len(history) + len(prefix),
        )

    def whole(self, name: str, last: ContextEntry | None) -> Compaction:
        """All of the conversation; of one that ends with a compaction its summary, as it is."""
        summary, rest = _previous(self.entries)
        messages = [] if last else _messages(rest)
        found = compact_opencode.pruned(messages) if name == "opencode" else messages
        said, previous = self._said(found), self._summary(summary)
        history = self._redacted(said)
        if not history.parts and not previous:
            raise SessionEmptyError("there is nothing in words to sum up")
        held, state = last.entry.compaction if last else None, self._state
        row = state.row(held.kept) if held and held.kept is not None else None
        tokens = held.tokens_before if held else None
        if tokens is None or not math.isfinite(tokens):  # not recorded
            tokens = context_size(state, self.entries)[0]
        return Compaction(
            name,
            history,
            first_kept=state.id(row) if row is not None and state.on_path(row) else None,
            tokens_before=max(0, min(int(tokens), TOKENS_MAX)),
            previous=previous,
            files=self._files(file_lists(one.entry for one in self.entries)),
            users=self._users() if name == "codex" else (),
            summarized=len(said),
            done=None if history.parts else previous,
        )

    def final_compaction(self) -> ContextEntry | None:
        """The compaction that a session ends with: nobody said anything since."""
        newest = max(filter(_sums_up, self.entries), key=lambda one: one.place, default=None)
        since = [one for one in self.entries if newest and one.place > newest.place]
        # Claude Code notes `/compact` behind its summary.
        notes = ("custom",) if self._agent == "claude" else ()
        more = any(one.role not in notes for one in self._said(_messages(since)))
        return None if more else newest

    def newest(self) -> tuple[tuple[str, str, str], ...]:
        """The newest messages of human and agent, redacted, as a hand-off quotes them."""
        found = list[tuple[str, str, str]]()
        for one in reversed(self._said(_messages(self.entries))[-KEPT_LOOKED:]):
            role, text = transcript.speaker(one), "".join(one.texts)
            text = own_words(text).strip() if role == "user" else text.strip()
            if role and text and len(found) < KEPT_MAX:
                shown = clean_text(self._clean(text)[0], KEPT_TEXT_MAX)
                found.append((role, shown, one.entry.id))
        return tuple(reversed(found))

    def _said(self, messages: Iterable[ContextMessage]) -> list[ContextMessage]:
        return list(transcript.summarizable_messages(messages, self._state, self._agent))

    def _redacted(self, messages: Iterable[ContextMessage]) -> RedactedTranscript:
        return redact_parts(parts_of(messages), self._clean)

    def _summary(self, text: str) -> str:
        return self._clean(transcript.summary_words(text, self._agent))[0]

    def _users(self) -> tuple[ContextMessage, ...]:
        """What humans said that stays in Codex: their own words, redacted."""
        entries = list[ContextEntry]()
        for one in self.entries:  # the tree knows of words behind instructions
            human = self._state.kind(one.row) == Kind.USER
            own = human and one.entry.kind in (Kind.USER, Kind.OTHER) and self._said(one.speeches)
            entries.append(replace(one, entry=own[0].entry, speeches=tuple(own)) if own else one)
        found = compact_codex.users_of(entries)
        return tuple(replace(one, texts=(self._clean(one.text)[0],)) for one in found)

    def _files(self, files: FileLists) -> FileLists:
        """Files with those of calls before the context, redacted."""
        shown, state = {one.row for one in self.entries}, self._state
        if self._older_calls and any(one.entry.kind is Kind.COMPACTION for one in self.entries):
            calls = (Kind.ASSISTANT, Kind.CALL)
            rows = [row for row in state.path() if row not in shown and state.kind(row) in calls]
            more = file_lists(map(self._read, rows))
            modified = {*files.modified, *more.modified}
            read = {*files.read, *more.read} - modified
            files = FileLists(tuple(sorted(read)), tuple(sorted(modified)))
        return _without_secrets(files, self._clean)


def _previous(entries: list[ContextEntry]) -> tuple[str, list[ContextEntry]]:
    """The summary that the context begins with, which is to be merged, and what came after it.

    What such a compaction keeps of the messages before it stands among the rest.
    """
    at = max(range(len(entries)), key=lambda at: (_sums_up(entries[at]), entries[at].place))
    found = entries[at]
    if not _sums_up(found):
        return "", entries
    brought = replace(found, speeches=compact_pi.beside_summary(found))
    return "".join(found.entry.texts), [*entries[:at], brought, *entries[at + 1 :]]


def _sums_up(entry: ContextEntry) -> bool:
    """Whether an entry is a compaction that the model is shown."""
    shown = entry.entry.kind is Kind.COMPACTION and bool(entry.speeches)
    return shown and any(entry.entry.texts)


def _messages(entries: Iterable[ContextEntry]) -> list[ContextMessage]:
    return [message for one in entries for message in one.speeches]


def _without_secrets(files: FileLists, clean: Redactor) -> FileLists:
    def shown(paths: tuple[str, ...]) -> tuple[str, ...]:
        whole = "\n".join(paths)  # mostly there is none in all of them
        return paths if clean(whole)[0] == whole else tuple(clean(path)[0] for path in paths)

    return FileLists(shown(files.read), shown(files.modified))


# -- branches ------------------------------------------------------------------------------------


class Branch(NamedTuple):
    """What was said on a branch that was left."""

    transcript: RedactedTranscript
    files: FileLists
    home: Path | None
    facts: dict[str, Any]  # of its segment


def plan_branch(
    session: OpenSession, check: Check, settings: Settings, *, leaf: str
) -> Branch | None:
    """What was said from an old leaf back to where its path meets the current one, by pi's rules.

    None where nothing was said there. NotFoundError for an entry that is not there. Compactions do
    not end a branch: their summaries are part of what is shown.
    """
    state, clean, tip = session.state, redactor(settings), row_of(session.state, leaf)
    shared = set(state.path(state.leaf)) if state.leaf >= 0 else set()
    rows = [row for row in state.path(tip) if row not in shared]
    window = settings.digest.context_window or WINDOW
    with session.reading(check, SUMMED) as read:
        entries = context.entries_of(state, read, rows, edits=False)
    messages, files = fit_branch(entries, max(1, window - settings.digest.reserve_tokens))
    said = transcript.summarizable_messages(messages, state, session.info.agent)
    text = redact_parts(parts_of(said), clean)
    if not text.parts:
        return None
    own = set(rows)
    within = [at for at, row in enumerate(message_rows(state, rows[-1])) if row in own] or [0]
    words = (own_words(text) for _, text in words_in(text.parts))
    files = _without_secrets(files, clean)
    facts: dict[str, Any] = {"covering": (within[0], within[-1]), "leaf_id": leaf, "kind": "branch"}
    facts |= {"files_modified": files.modified, "key_decisions": decisions(words)}
    return Branch(text, files, session.home, facts)


def fit_branch(
    entries: Sequence[ContextEntry], budget: int
) -> tuple[list[ContextMessage], FileLists]:
    """What a model is shown of a branch, oldest first, within so many tokens; and its files.

    Tools' results are not shown, as the calls say enough. The newest comes first; what does not
    fit ends it, but a summary is still shown while the rest takes less than nine tenths. What
    surprised us: the answer that did not fit is not shown, and its files are listed all the same;
    so are those of every branch summary.
    """
    messages: list[ContextMessage] = []  # newest first
    seen: list[ContextEntry] = []
    total = 0
    for one in reversed(entries):
        said = [message for message in one.speeches if message.role != "toolResult"]
        if not said and one.speeches:
            continue
        seen.append(one)
        tokens = sum(map(compact_pi.estimate_tokens, said))
        fits = total + tokens <= budget
        sums_up = one.entry.kind in (Kind.COMPACTION, Kind.BRANCH_SUMMARY)
        if fits or (sums_up and total < budget * 0.9):
            messages += reversed(said)
            total += tokens
        if not fits:
            break
    summaries = [one.entry for one in entries if one.entry.kind is Kind.BRANCH_SUMMARY]
    return messages[::-1], compact_pi.files_of(seen, summaries)


# -- answers -------------------------------------------------------------------------------------


async def compact(services: Services, asked: params.Compact) -> dict[str, Any]:
    """The result of `compact`."""
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    work = partial(
        plan_compaction,
        settings=services.settings(),
        strategy=asked.strategy,
        keep=asked.keep_recent_tokens,
        handoff=asked.handoff,
    )
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
        "notes": [note for one in made for note in one.notes],
    }
    if plan.strategy == "codex":
        found["replacementHistory"] = compact_codex.replacement_history(plan.users, text)
    if asked.handoff:
        by = made[0].model if made else row["agent"]
        written = iso(services.clock())
        found["handoff"] = await asyncio.to_thread(_handoff, row, plan, text, by, written)
    return found


async def _summarized(
    services: Services, row: Row, plan: Compaction, focus: str
) -> tuple[str, list[Summary]]:
    """The summary's text, and the calls that it took."""
    made, text = list[Summary](), plan.previous or NO_HISTORY
    task = partial(Task, row, "compaction", strategy=plan.strategy)
    if plan.history.parts:
        base = _stretch(row, "checkpoint", prompts.CHECKPOINT_TOKENS, plan.files)
        base = replace(base, previous=plan.previous)
        made.append(await summarize(services, task(plan.history, base, prompts.Wish(focus))))
        text = made[-1].text
    if plan.prefix.parts:
        base = _stretch(row, "turn", prompts.TURN_TOKENS, plan.files)
        made.append(await summarize(services, task(plan.prefix, base)))
        text += TURN_HEADING + made[-1].text
    return text + (compact_pi.file_blocks(plan.files) if plan.strategy == "pi" else ""), made


def _handoff(row: Row, plan: Compaction, text: str, by: str, written: str) -> str:
    """The document that a new session goes on from. Blocks: it looks for files."""
    shown, resume = for_people(row), str(row["resume"])
    if shown["resume"] != resume:
        resume = shown["resume"]
    elif not Path(row["cwd"]).is_dir():  # a directory that is not there any more
        resume = resume.removeprefix(f"cd {shlex.quote(row['cwd'])} && ")
    facts = {"agent": row["agent"], "session": row["sessionId"], "name": row["name"]}
    facts |= {"directory": shown["cwd"], "git branch": row.get("gitBranch", "")}
    facts |= {"began": row["createdAt"], "last active": row["modifiedAt"], "handed over": written}
    handoff = Handoff(
        session_id=row["sessionId"],
        cwd=shown["cwd"],
        facts=facts,
        summary=text,
        summary_by=by,
        resume=resume,
        decisions=plan.decisions,
        modified=[*plan.files.modified, *row["filesModified"]],
        read=[*plan.files.read, *row["filesRead"]],
        instructions=instruction_files(row["cwd"]),
        earlier=plan.earlier,
        messages=plan.messages,
    )
    return document(handoff)


async def branch_summary(services: Services, asked: params.BranchSummary) -> dict[str, Any]:
    """The result of `branch_summary`."""
    row = services.rows.row(asked.ref, cwd=asked.cwd)
    session_id, focus = row["sessionId"], asked.instructions or ""
    work = partial(plan_branch, settings=services.settings(), leaf=asked.leaf)
    found = await services.pool.read(session_id, None, work)
    text, made = NOTHING, list[Summary]()
    if found is not None:
        base = _stretch(row, "branch", prompts.BRANCH_TOKENS, found.files)
        wish = prompts.Wish("", focus) if asked.replace_instructions else prompts.Wish(focus)
        task = Task(row, "branch", found.transcript, base, wish, strategy="pi")
        made.append(await summarize(services, task))
        text = BRANCH_PREAMBLE + made[0].text + compact_pi.file_blocks(found.files)
        services.rows.by_id(session_id)  # NotFoundError: it was forgotten meanwhile
        if found.home is not None:
            by, now = made[0].model, services.clock()
            segment = new_segment(made[0].text, by, now, **found.facts)
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
