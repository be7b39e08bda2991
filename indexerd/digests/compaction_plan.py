"""What a compaction or a branch's summary is made of, by the rules of pi, Codex or opencode.

In: an open session of any agent. Out: texts, redacted, with the facts that stand beside the
summary. Of rows that compactions have replaced only what can matter is read. Runs in threads,
never in the event loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.agents.lines import own_words
from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.digests.prompts import PREVIOUS_MAX
from indexerd.digests.segments import chain_at
from indexerd.digests.stats import context_size
from indexerd.digests.transcript import (
    NO_PARTS,
    RedactedTranscript,
    redact_parts,
    speaker,
    summarizable_messages,
    summary_words,
    words_in,
)
from indexerd.errors import SessionEmptyError, UsageError
from indexerd.events import Kind
from indexerd.models.extractive.candidates import decisions
from indexerd.models.threads import Check
from indexerd.privacy.redact import Redactor, redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.sessions.clipped_entries import SUMMED
from indexerd.sessions.context import (
    ContextEntry,
    ContextMessage,
    Message,
    Read,
    context_entries,
    entries_of,
    passing_messages,
)
from indexerd.sessions.history import FileLists, file_lists, merged
from indexerd.sessions.positions import message_rows
from indexerd.sessions.serialize import parts_of
from indexerd.sessions.state import SessionState
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession, row_of

STRATEGIES = ("pi", "codex", "opencode")
KEPT_LOOKED = 400  # newest messages among which those are found that a hand-off quotes
KEPT_MAX = 20
KEPT_TEXT_MAX = 20_000  # characters of one of them
PATHS_MAX = 10_000  # of each list of files
SAID_BYTES = 20_000_000  # of lines before the context that are looked at for what was said
SAID_MAX = 2_000_000  # characters of it
TOKENS_MAX = 1 << 53
WINDOW = 128_000  # tokens of a model that does not say
NO_FILES = FileLists((), ())


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


class Wanted(NamedTuple):
    """What is asked of a compaction."""

    strategy: str | None  # None: the rules of the session's own agent
    keep: int  # tokens
    handoff: bool


def plan_compaction(
    session: OpenSession, check: Check, settings: Settings, wanted: Wanted
) -> Compaction:
    """What the strategy would do with the context at the leaf.

    SessionEmptyError where there is nothing to summarize. A strategy that was not asked for by
    name summarizes all there is where its own rule would wait for more. A session that ends with
    a compaction has that one, whatever is asked for: what its agent stored is never made anew.

    A hand-off has to do without the session, so that is summarized as a whole, by any strategy:
    only `first_kept` and `split` are what the strategy would make of them. Its decisions and its
    files are those of the whole path.
    """
    if wanted.strategy is not None and wanted.strategy not in STRATEGIES:
        raise UsageError(f"strategy is one of {', '.join(STRATEGIES)}")
    clean = redactor(settings)
    with session.reading(check, SUMMED) as read:
        planner = _Planner(session, read, clean, wanted)
        if not any(one.speeches for one in planner.entries):
            raise SessionEmptyError("there is no conversation to sum up")
        found = planner.handed_over() if wanted.handoff else planner.by_rules()
    earlier = chain_at(session.state, session.home, session.info.session_id)
    shown = ((one.first, one.last, clean(one.content)[0]) for one in earlier)  # of any hand
    return replace(found, earlier=tuple(shown))


class _Planner:
    """The context of one session, and what a strategy makes of it."""

    def __init__(self, session: OpenSession, read: Read, clean: Redactor, wanted: Wanted) -> None:
        self.entries = context_entries(session.state, read)
        self._state: SessionState = session.state
        self._agent = session.info.agent
        self._own = self._agent if self._agent in STRATEGIES else "pi"
        self._read, self._clean, self._wanted = read, clean, wanted

    def by_rules(self) -> Compaction:
        """What the strategy does; one that was asked for raises where it does nothing."""
        name, keep = self._wanted.strategy or self._own, self._wanted.keep
        done = self._final_compaction()
        if name == "pi" and (done is None or self._agent == "pi"):
            found = compact_pi.prepare(self.entries, keep)
            if found is not None:
                return self._pi(found)
        if done is not None:
            return self._already(done)
        if name == "pi" and self._wanted.strategy is not None and not self._wanted.handoff:
            why = f"there is no place for a cut before the newest {keep} tokens"
            if compact_pi.reach(self.entries) < keep:
                why = f"all of it is within the newest {keep} tokens"
            hint = "keep less (--keep-recent TOKENS), or leave out --strategy"
            raise SessionEmptyError(f"there is nothing to compact: {why}", hint=hint)
        return self._whole(name)

    def handed_over(self) -> Compaction:
        """The same for whoever has nothing else of the session (see `plan_compaction`)."""
        found = whole = self.by_rules()
        _, rest = _previous(self.entries)
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
            tokens_before=context_size(name, self._state, self.entries).tokens,
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
        listed, notes = self._files(files)
        over = len(previous) - PREVIOUS_MAX
        if over > 0 and history.parts:
            notes += (f"{over} characters at the end of the earlier summary were too much",)
        return Compaction(strategy, history, previous=previous, files=listed, notes=notes, **more)

    def _already(self, last: ContextEntry) -> Compaction:
        """The session ends with a compaction: its own summary is all there is to say."""
        kept = last.entry.compaction.kept if last.entry.compaction else None
        row = self._state.row(kept) if kept is not None else None
        files, notes = self._files(file_lists([last.entry]))
        return Compaction(
            self._own,
            first_kept=kept if row is not None and self._state.on_path(row) else None,
            tokens_before=self._tokens_before(last),
            files=files,
            users=self._users() if self._own == "codex" else (),
            notes=notes,
            done=self._summary("".join(last.entry.texts)),
        )

    def _final_compaction(self) -> ContextEntry | None:
        """The compaction that a session ends with: nobody said anything since."""
        newest = max(filter(_sums_up, self.entries), key=lambda one: one.place, default=None)
        if newest is None:
            return None
        return (
            None if self._says_more([e for e in self.entries if e.place > newest.place]) else newest
        )

    def _says_more(self, entries: Iterable[ContextEntry]) -> bool:
        """Whether anything is said here. Claude Code notes `/compact` behind its summary."""
        said = self._summarizable(_messages(entries))
        return any(one.role != "custom" or self._agent != "claude" for one in said)

    # -- texts ---------------------------------------------------------------------------

    def _summarizable(self, messages: Iterable[ContextMessage]) -> list[ContextMessage]:
        return list(summarizable_messages(messages, self._state, self._agent))

    def _redacted(self, messages: Iterable[ContextMessage]) -> RedactedTranscript:
        return redact_parts(parts_of(messages), self._clean)

    def _summary(self, text: str) -> str:
        """An earlier summary of the agent's own, redacted."""
        return self._clean(summary_words(text, self._agent))[0]

    def _newest(self) -> tuple[dict[str, Any], ...]:
        """The newest messages of human and agent, redacted, as a hand-off quotes them."""
        found = list[dict[str, Any]]()
        for one in reversed(self._summarizable(_messages(self.entries))[-KEPT_LOOKED:]):
            role, text = speaker(one), "".join(one.texts)
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
        said = dict[str, str]()
        if any(one.entry_id in brought for one in found):
            entries = map(self._read, self._replaced(Kind.USER))
            said = {"".join(one.as_sent): one.id for one in entries}
        ids = (said.get(e.text, e.entry_id) if e.entry_id in brought else e.entry_id for e in found)
        return tuple(
            Message(one.role, self._clean(one.text)[0], entry_id)
            for one, entry_id in zip(found, ids, strict=True)
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
        room, passing = SAID_MAX, passing_messages(self._state, self._read, rows)
        for one in summarizable_messages(passing, self._state, self._agent):
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
        return context_size(self._agent, state, context_entries(state, self._read)).tokens

    def _files(self, files: FileLists) -> tuple[FileLists, tuple[str, ...]]:
        """Files with those of calls before the context, where no compaction remembers them.

        pi's compactions do, so for its sessions there are none, unless the whole path is asked
        for (S1.23, S3.17).
        """
        whole = self._wanted.handoff or self._agent != "pi"
        rows = self._replaced(Kind.ASSISTANT, Kind.CALL) if whole else []
        return listed(merged(files, file_lists(map(self._read, rows))), self._clean)


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


def listed(files: FileLists, clean: Redactor) -> tuple[FileLists, tuple[str, ...]]:
    """Paths without secrets in them, and a note where there are more than anybody lists."""

    def shown(paths: tuple[str, ...]) -> tuple[str, ...]:
        whole = "\n".join(paths[:PATHS_MAX])  # mostly there is none in all of them
        if clean(whole)[0] == whole:
            return paths[:PATHS_MAX]
        return tuple(clean(path)[0] for path in paths[:PATHS_MAX])

    more = sum(max(0, len(one) - PATHS_MAX) for one in (files.read, files.modified))
    notes = (f"{more} more files are not listed",) if more else ()
    return FileLists(shown(files.read), shown(files.modified)), notes


# -- branches ------------------------------------------------------------------------------------


class Branch(NamedTuple):
    """What was said on a branch that was left."""

    transcript: RedactedTranscript
    files: FileLists
    covering: tuple[int, int]  # positions of its messages on its path
    home: Path | None
    decisions: tuple[str, ...]


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
        entries = entries_of(state, read, rows, edits=False)
    messages, files = fit_branch(entries, max(1, window - settings.digest.reserve_tokens))
    said = summarizable_messages(messages, state, session.info.agent)
    transcript = redact_parts(parts_of(said), clean)
    if not transcript.parts:
        return None
    own = set(rows)
    within = [at for at, row in enumerate(message_rows(state, rows[-1])) if row in own] or [0]
    words = (own_words(text) for _, text in words_in(transcript.parts))
    covering = within[0], within[-1]
    return Branch(transcript, listed(files, clean)[0], covering, session.home, decisions(words))


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
