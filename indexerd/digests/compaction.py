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

from indexerd.agents.lines import own_words
from indexerd.digests import compact_codex, compact_opencode, compact_pi, transcript
from indexerd.digests.handoff import Handoff, document, instruction_files
from indexerd.digests.prompts import BRANCH_TOKENS, CHECKPOINT_TOKENS, PREVIOUS_MAX, TURN_TOKENS
from indexerd.digests.segments import chain_at, new_segment, store_segment
from indexerd.digests.stats import context_size
from indexerd.digests.summarize import Row, Services, Summary, Task, summarize, usage_of
from indexerd.digests.transcript import NO_PARTS, RedactedTranscript, redact_parts, words_in
from indexerd.errors import SessionEmptyError, UsageError
from indexerd.events import Kind, Stretch
from indexerd.models.extractive.sentences import decisions
from indexerd.models.threads import Check
from indexerd.privacy.redact import Redactor, for_people, redactor, shown_path
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol import params
from indexerd.sessions import context
from indexerd.sessions.branches import BRANCH_PREAMBLE
from indexerd.sessions.clipped_entries import SUMMED
from indexerd.sessions.context import ContextEntry, ContextMessage, Message, Read
from indexerd.sessions.history import FileLists, file_lists, merged
from indexerd.sessions.positions import message_rows
from indexerd.sessions.serialize import parts_of
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession, row_of
from indexerd.times import iso

STRATEGIES = ("pi", "codex", "opencode")
KEPT_LOOKED = 400  # newest messages among which those are found that a hand-off quotes
KEPT_MAX = 20
KEPT_TEXT_MAX = 20_000  # characters of one of them
SAID_BYTES = 20_000_000  # of lines before the context that are looked at for what was said
SAID_MAX = 2_000_000  # characters of it
TOKENS_MAX = 1 << 53
WINDOW = 128_000  # tokens of a model that does not say
NO_FILES = FileLists((), ())
TURN_HEADING = "\n\n---\n\n**Turn Context (split turn):**\n\n"  # pi's, as the next two
NO_HISTORY = "No prior history."
NOTHING = "No content to summarize"


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is summarized, what stays, and what is known besides."""

    strategy: str
    history: RedactedTranscript = NO_PARTS
    prefix: RedactedTranscript = NO_PARTS  # the beginning of a turn whose end stays
    split: bool = False
    first_kept: str | None = None
    tokens_before: int = 0
    previous: str = ""
    files: FileLists = NO_FILES
    users: tuple[Message, ...] = ()  # what humans said that stays (Codex)
    kept: tuple[dict[str, Any], ...] = ()  # the newest messages, for a hand-off
    summarized: int = 0  # messages
    decisions: tuple[str, ...] = ()  # of the whole path, for a hand-off
    earlier: tuple[tuple[int, int, str], ...] = ()  # segments: first and last message, content
    notes: tuple[str, ...] = ()  # what was left out
    done: str | None = None  # the summary there is already, where nothing came after it


def plan_compaction(
    session: OpenSession,
    check: Check,
    settings: Settings,
    *,
    strategy: str | None,
    keep: int,
    handoff: bool,
) -> Compaction:
    """What a strategy would do with the context at the leaf, keeping about so many tokens of it.

    Without a strategy it is that of the session's own agent, which summarizes all there is where
    its rule would wait for more. SessionEmptyError where there is nothing to summarize. A session
    that ends with a compaction has that one: what its agent stored is never made anew.

    A hand-off has to do without the session, so that is summarized as a whole, by any strategy:
    only `first_kept` and `split` are what the strategy would make of them. Its decisions and its
    files are those of the whole path.
    """
    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(f"strategy is one of {', '.join(STRATEGIES)}")
    clean = redactor(settings)
    with session.reading(check, SUMMED) as read:
        planner = _Planner(session, read, clean, whole=handoff)
        if not any(one.speeches for one in planner.entries):
            raise SessionEmptyError("there is no conversation to sum up")
        found = planner.by_rules(strategy, keep)
        found = planner.handed_over(found) if handoff else found
    earlier = chain_at(session.state, session.home, session.info.session_id)
    shown = ((one.first, one.last, clean(one.content)[0]) for one in earlier)  # of any hand
    return replace(found, earlier=tuple(shown))


class _Planner:
    """The context of one session, and what a strategy makes of it."""

    def __init__(self, session: OpenSession, read: Read, clean: Redactor, *, whole: bool) -> None:
        """`whole`: of files, those of the whole path are wanted."""
        self.entries = context.context_entries(session.state, read)
        self._state, self._agent = session.state, session.info.agent
        self._read, self._clean, self._whole_path = read, clean, whole

    def by_rules(self, strategy: str | None, keep: int) -> Compaction:
        """What the strategy does; one that was asked for raises where it does nothing."""
        own = self._agent if self._agent in STRATEGIES else "pi"
        name, done = strategy or own, self._final_compaction()
        if name == "pi" and (done is None or self._agent == "pi"):
            found = compact_pi.prepare(self.entries, keep)
            if found is not None:
                return self._pi(found)
        if done is not None:
            return self._already(own, done)
        if strategy == "pi" and not self._whole_path:
            why = f"there is no place for a cut before the newest {keep} tokens"
            if compact_pi.reach(self.entries) < keep:
                why = f"all of it is within the newest {keep} tokens"
            hint = "keep less (--keep-recent TOKENS), or leave out --strategy"
            raise SessionEmptyError(f"there is nothing to compact: {why}", hint=hint)
        return self._whole(name)

    def handed_over(self, found: Compaction) -> Compaction:
        """The same for whoever has nothing else of the session (see `plan_compaction`)."""
        whole, (_, rest) = found, _previous(self.entries)
        if self._says_more(rest) if found.done is not None else found.strategy == "pi":
            whole = self._whole(found.strategy)
        said = [*self._earlier_words().parts, *whole.history.parts]
        return replace(
            whole,
            first_kept=found.first_kept,
            split=found.split,
            kept=self._newest(),
            decisions=decisions(own_words(text) for _, text in words_in(said)),
        )

    # -- what a strategy does ------------------------------------------------------------

    def _pi(self, found: compact_pi.Prepared) -> Compaction:
        history, prefix = map(self._summarizable, (found.history, found.turn_prefix))
        return self._made(
            "pi",
            history,
            found.previous_summary or "",
            found.files,
            prefix=self._redacted(prefix),
            split=found.split,
            first_kept=found.first_kept_id,
            tokens_before=found.tokens_before,
            summarized=len(history) + len(prefix),
        )

    def _whole(self, name: str) -> Compaction:
        """All of the conversation; what humans said last stays in Codex."""
        summary, rest = _previous(self.entries)
        messages = compact_opencode.history_of(rest) if name == "opencode" else _messages(rest)
        messages = self._summarizable(messages)
        found = self._made(
            name,
            messages,
            summary,
            file_lists(one.entry for one in self.entries),
            tokens_before=context_size(name, self._state, self.entries)[0],
            users=self._users() if name == "codex" else (),
            summarized=len(messages),
        )
        if not found.history.parts and not found.previous:
            raise SessionEmptyError("there is nothing in words to sum up")
        return found if found.history.parts else replace(found, done=found.previous)

    def _made(
        self,
        strategy: str,
        messages: Sequence[ContextMessage],
        summary: str,
        files: FileLists,
        **more: Any,
    ) -> Compaction:
        history, previous = self._redacted(messages), self._summary(summary)
        over, notes = len(previous) - PREVIOUS_MAX, tuple[str, ...]()
        if over > 0 and history.parts:
            notes = (f"{over} characters at the end of the earlier summary were too much",)
        return Compaction(
            strategy, history, previous=previous, files=self._files(files), notes=notes, **more
        )

    def _already(self, own: str, last: ContextEntry) -> Compaction:
        """The session ends with a compaction: its own summary is all there is to say."""
        kept = last.entry.compaction.kept if last.entry.compaction else None
        row = self._state.row(kept) if kept is not None else None
        return Compaction(
            own,
            first_kept=kept if row is not None and self._state.on_path(row) else None,
            tokens_before=self._tokens_before(last),
            files=self._files(file_lists([last.entry])),
            users=self._users() if own == "codex" else (),
            done=self._summary("".join(last.entry.texts)),
        )

    def _final_compaction(self) -> ContextEntry | None:
        """The compaction that a session ends with: nobody said anything since."""
        newest = max(filter(_sums_up, self.entries), key=lambda one: one.place, default=None)
        since = [one for one in self.entries if newest and one.place > newest.place]
        return None if self._says_more(since) else newest

    def _says_more(self, entries: Iterable[ContextEntry]) -> bool:
        """Whether anything is said here. Claude Code notes `/compact` behind its summary."""
        said = self._summarizable(_messages(entries))
        return any(one.role != "custom" or self._agent != "claude" for one in said)

    # -- texts ---------------------------------------------------------------------------

    def _summarizable(self, messages: Iterable[ContextMessage]) -> list[ContextMessage]:
        return list(transcript.summarizable_messages(messages, self._state, self._agent))

    def _redacted(self, messages: Iterable[ContextMessage]) -> RedactedTranscript:
        return redact_parts(parts_of(messages), self._clean)

    def _summary(self, text: str) -> str:
        """An earlier summary of the agent's own, redacted."""
        return self._clean(transcript.summary_words(text, self._agent))[0]

    def _newest(self) -> tuple[dict[str, Any], ...]:
        """The newest messages of human and agent, redacted, as a hand-off quotes them."""
        found = list[dict[str, Any]]()
        for one in reversed(self._summarizable(_messages(self.entries))[-KEPT_LOOKED:]):
            role, text = transcript.speaker(one), "".join(one.texts)
            text = own_words(text).strip() if role == "user" else text.strip()
            if role and text and len(found) < KEPT_MAX:
                shown = clean_text(self._clean(text)[0], KEPT_TEXT_MAX)
                found.append({"role": role, "text": shown, "entryId": one.entry.id})
        return tuple(reversed(found))

    def _users(self) -> tuple[Message, ...]:
        """What humans said that stays in Codex, redacted, each by the id of where it was said.

        An earlier compaction brings texts alone; whose they are is found among what it replaced.
        """
        found = compact_codex.users_of(map(self._with_own_words, self.entries))
        brought = {one.entry.id for one in self.entries if one.entry.kind is Kind.COMPACTION}
        entries = map(self._read, self._replaced(Kind.USER))
        ids = {"".join(one.as_sent): one.id for one in entries}
        return tuple(
            Message(
                one.role,
                self._clean(one.text)[0],
                ids.get(one.text, one.entry_id) if one.entry_id in brought else one.entry_id,
            )
            for one in found
        )

    def _with_own_words(self, entry: ContextEntry) -> ContextEntry:
        """An entry with a human's own words; the tree knows of those behind instructions."""
        human = self._state.kind(entry.row) == Kind.USER
        if entry.entry.kind not in (Kind.USER, Kind.OTHER) or not human:
            return entry
        own = self._summarizable(entry.speeches)
        return replace(entry, entry=own[0].entry, speeches=tuple(own)) if own else entry

    # -- what compactions have replaced --------------------------------------------------

    def _replaced(self, *kinds: Kind) -> list[int]:
        """Rows of the path, root first, that the context does not show any more."""
        state, shown = self._state, {one.row for one in self.entries}
        if not any(one.entry.kind is Kind.COMPACTION for one in self.entries):
            return []
        return [row for row in state.path() if row not in shown and state.kind(row) in kinds]

    def _earlier_words(self) -> RedactedTranscript:
        """What human and agent said before the context, from the beginning on."""
        rows, size, found = list[int](), 0, list[ContextMessage]()
        for row in self._replaced(Kind.USER, Kind.ASSISTANT):
            size += self._state.lengths[row]
            if size > SAID_BYTES:
                break
            rows.append(row)
        room, passing = SAID_MAX, context.passing_messages(self._state, self._read, rows)
        for one in transcript.summarizable_messages(passing, self._state, self._agent):
            room -= sum(map(len, one.texts))
            if room < 0:
                break
            if one.role in ("user", "assistant"):
                found.append(replace(one, thinking=(), calls=()))
        return self._redacted(found)

    def _tokens_before(self, compaction: ContextEntry) -> int:
        """Tokens of the context that it replaced: as recorded, or else as it is counted."""
        held = compaction.entry.compaction
        recorded = held.tokens_before if held else None
        if recorded is not None and math.isfinite(recorded):
            return max(0, min(int(recorded), TOKENS_MAX))
        above = self._state.parent(compaction.row)
        if above < 0:
            return 0
        state = self._state.still(above)
        return context_size(self._agent, state, context.context_entries(state, self._read))[0]

    def _files(self, files: FileLists) -> FileLists:
        """Files with those of calls before the context, where no compaction remembers them.

        pi's compactions do, so for its sessions there are none, unless the whole path is asked
        for (S1.23, S3.17).
        """
        whole = self._whole_path or self._agent != "pi"
        rows = self._replaced(Kind.ASSISTANT, Kind.CALL) if whole else []
        return _shown(merged(files, file_lists(map(self._read, rows))), self._clean)


def _previous(entries: list[ContextEntry]) -> tuple[str, list[ContextEntry]]:
    """The summary that the context begins with, which is to be merged, and what came after it.

    What such a compaction keeps of the messages before it stands among the rest.
    """
    at = max(range(len(entries)), key=lambda at: (_sums_up(entries[at]), entries[at].place))
    found = entries[at]
    if not _sums_up(found):
        return "", entries
    summary = "".join(found.entry.texts)
    brought = tuple(one for one in found.speeches if not "".join(one.texts).endswith(summary))
    return summary, [*entries[:at], replace(found, speeches=brought), *entries[at + 1 :]]


def _sums_up(entry: ContextEntry) -> bool:
    """Whether an entry is a compaction that the model is shown."""
    held = entry.entry
    return held.kind is Kind.COMPACTION and bool(entry.speeches and "".join(held.texts))


def _messages(entries: Iterable[ContextEntry]) -> list[ContextMessage]:
    return [message for one in entries for message in one.speeches]


def _shown(files: FileLists, clean: Redactor) -> FileLists:
    """Paths without secrets in them."""

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
    files = _shown(files, clean)
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
        "notes": [*plan.notes, *(note for one in made for note in one.notes)],
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
    return text + (compact_pi.file_blocks(plan.files) if plan.strategy == "pi" else ""), made


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
