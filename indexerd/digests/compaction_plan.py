"""What a compaction summarizes and keeps, by the rules of pi, Codex or opencode.

In: an open session of any agent. Out: texts, redacted, with the facts that stand beside the
summary. Of rows that compactions have replaced only what can matter is read. Runs in threads,
never in the event loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from indexerd.agents.lines import own_words
from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.digests.prompts import PREVIOUS_MAX
from indexerd.digests.redacted_transcript import (
    NO_PARTS,
    RedactedTranscript,
    redact_parts,
    words_in,
)
from indexerd.digests.segments import Segment, chain_at
from indexerd.digests.stats import context_size
from indexerd.digests.summarizable import speaker, summarizable_messages, summary_words
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
    passing_messages,
)
from indexerd.sessions.history import FileLists, file_lists, merged
from indexerd.sessions.serialize import parts_of
from indexerd.sessions.state import SessionState
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession

STRATEGIES = ("pi", "codex", "opencode")
KEPT_LOOKED = 400  # newest messages among which they are looked for
KEPT_MAX = 20  # newest messages that a hand-off quotes
KEPT_TEXT_MAX = 20_000  # characters of one of them
PATHS_MAX = 10_000  # of each list of files
SAID_BYTES = 20_000_000  # of lines before the context that are looked at for what was said
SAID_MAX = 2_000_000  # characters of it
TOKENS_MAX = 1 << 53
NO_FILES = FileLists((), ())
_CALLS = frozenset({Kind.ASSISTANT, Kind.CALL})
_SAID = frozenset({Kind.USER, Kind.ASSISTANT})


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is summarized, what stays, and what is known besides."""

    strategy: str
    history: RedactedTranscript
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
    earlier: tuple[Segment, ...] = ()  # segments of the path
    notes: tuple[str, ...] = ()  # what was left out
    done: str | None = None  # the summary there is already, where nothing came after it


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a compaction."""

    strategy: str | None  # None: the rules of the session's own agent
    keep: int  # tokens
    handoff: bool


def strategy_of(name: str | None) -> str | None:
    """A strategy that there is; UsageError for another."""
    if name is not None and name not in STRATEGIES:
        raise UsageError(f"strategy is one of {', '.join(STRATEGIES)}")
    return name


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
    clean = redactor(settings)
    with session.reading(check, SUMMED) as read:
        planner = _Planner(session, read, clean, wanted)
        if not any(one.speeches for one in planner.entries):
            raise SessionEmptyError("there is no conversation to sum up")
        found = planner.handed_over() if wanted.handoff else planner.by_rules()
    held = chain_at(session.state, session.home, session.info.session_id)
    return replace(  # any hand may have written these
        found, earlier=tuple(replace(one, content=clean(one.content)[0]) for one in held)
    )


class _Planner:
    """The context of one session, and what a strategy makes of it."""

    def __init__(self, session: OpenSession, read: Read, clean: Redactor, wanted: Wanted) -> None:
        self.entries = context_entries(session.state, read)
        self._state: SessionState = session.state
        self._agent = session.info.agent
        self._own = self._agent if self._agent in STRATEGIES else "pi"
        self._read = read
        self._clean = clean
        self._wanted = wanted

    def by_rules(self) -> Compaction:
        """What the strategy does; one that was asked for raises where it does nothing."""
        name = self._wanted.strategy or self._own
        done = self._final_compaction()
        if name == "pi" and (done is None or self._agent == "pi"):
            found = compact_pi.prepare(self.entries, self._wanted.keep)
            if found is not None:
                return self._pi(found)
        if done is not None:
            return self._already(done)
        if name == "pi" and self._wanted.strategy is not None and not self._wanted.handoff:
            raise self._nothing_to_cut()
        return self._whole(name)

    def handed_over(self) -> Compaction:
        """The same for whoever has nothing else of the session (see `plan_compaction`)."""
        found = self.by_rules()
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
        history = self._summarizable(found.history)
        prefix = self._summarizable(found.turn_prefix)
        transcript = self._redacted(history)
        previous = self._summary(found.previous_summary or "")
        files, notes = self._files(found.files)
        return Compaction(
            strategy="pi",
            history=transcript,
            prefix=self._redacted(prefix),
            split=found.split,
            first_kept=found.first_kept_id,
            tokens_before=found.tokens_before,
            previous=previous,
            files=files,
            summarized=len(history) + len(prefix),
            notes=(*notes, *_cut(previous, transcript)),
        )

    def _already(self, last: ContextEntry) -> Compaction:
        """The session ends with a compaction: its own summary is all there is to say."""
        kept = last.entry.compaction.kept if last.entry.compaction else None
        row = self._state.row(kept) if kept is not None else None
        files, notes = self._files(file_lists([last.entry]))
        return Compaction(
            strategy=self._own,
            history=NO_PARTS,
            first_kept=kept if row is not None and self._state.on_path(row) else None,
            tokens_before=self._tokens_before(last),
            files=files,
            users=self._users() if self._own == "codex" else (),
            notes=notes,
            done=self._summary("".join(last.entry.texts)),
        )

    def _whole(self, name: str) -> Compaction:
        """All of the conversation; what humans said last stays in Codex."""
        summary, rest = _previous(self.entries)
        messages = compact_opencode.history_of(rest) if name == "opencode" else _messages(rest)
        messages = self._summarizable(messages)
        transcript, previous = self._redacted(messages), self._summary(summary)
        if not transcript.parts and not previous:
            raise SessionEmptyError("there is nothing in words to sum up")
        files, notes = self._files(file_lists(one.entry for one in self.entries))
        return Compaction(
            strategy=name,
            history=transcript,
            tokens_before=context_size(name, self._state, self.entries).tokens,
            previous=previous,
            files=files,
            users=self._users() if name == "codex" else (),
            summarized=len(messages),
            notes=(*notes, *_cut(previous, transcript)),
            done=None if transcript.parts else previous,
        )

    def _nothing_to_cut(self) -> SessionEmptyError:
        keep = self._wanted.keep
        why = f"there is no place for a cut before the newest {keep} tokens"
        if compact_pi.reach(self.entries) < keep:
            why = f"all of it is within the newest {keep} tokens"
        hint = "keep less (--keep-recent TOKENS), or leave out --strategy"
        return SessionEmptyError(f"there is nothing to compact: {why}", hint=hint)

    def _final_compaction(self) -> ContextEntry | None:
        """The compaction that a session ends with: nobody said anything since."""
        newest = max(filter(_sums_up, self.entries), key=lambda one: one.place, default=None)
        if newest is None:
            return None
        since = [one for one in self.entries if one.place > newest.place]
        return None if self._says_more(since) else newest

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
            if role and text:
                shown = clean_text(self._clean(text)[0], KEPT_TEXT_MAX)
                found.append({"role": role, "text": shown, "entryId": one.entry.id})
            if len(found) >= KEPT_MAX:
                break
        return tuple(reversed(found))

    def _users(self) -> tuple[Message, ...]:
        """What humans said that stays in Codex, redacted, each by the id of where it was said.

        An earlier compaction brings texts alone; whose they are is found among what it replaced.
        """
        found = compact_codex.users_of(map(self._with_own_words, self.entries))
        brought = {one.entry.id for one in self.entries if one.entry.kind is Kind.COMPACTION}
        said = dict[str, str]()
        if any(one.entry_id in brought for one in found):
            entries = map(self._read, self._replaced(frozenset({Kind.USER})))
            said = {"".join(one.as_sent): one.id for one in entries}
        return tuple(
            Message(
                one.role,
                self._clean(one.text)[0],
                said.get(one.text, one.entry_id) if one.entry_id in brought else one.entry_id,
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

    def _replaced(self, kinds: frozenset[Kind]) -> list[int]:
        """Rows of the path, root first, that the context does not show any more."""
        state, shown = self._state, {one.row for one in self.entries}
        if not any(one.entry.kind is Kind.COMPACTION for one in self.entries):
            return []
        return [row for row in state.path() if row not in shown and state.kind(row) in kinds]

    def _earlier_words(self) -> RedactedTranscript:
        """What human and agent said before the context, from the beginning on."""
        rows, size = list[int](), 0
        for row in self._replaced(_SAID):
            size += self._state.lengths[row]
            if size > SAID_BYTES:
                break
            rows.append(row)
        return self._redacted(self._words(rows))

    def _words(self, rows: Sequence[int]) -> Iterator[ContextMessage]:
        size = 0
        passing = passing_messages(self._state, self._read, rows)
        for one in summarizable_messages(passing, self._state, self._agent):
            size += sum(map(len, one.texts))
            if size > SAID_MAX:
                return
            if one.role in ("user", "assistant"):
                yield replace(one, thinking=(), calls=())

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
        rows = self._replaced(_CALLS) if whole else []
        return listed(merged(files, file_lists(self._read(row) for row in rows)), self._clean)


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
    lists = files.read, files.modified
    more = sum(max(0, len(one) - PATHS_MAX) for one in lists)
    read, modified = (_clean_paths(one[:PATHS_MAX], clean) for one in lists)
    return FileLists(read, modified), (f"{more} more files are not listed",) if more else ()


def _clean_paths(paths: tuple[str, ...], clean: Redactor) -> tuple[str, ...]:
    """Mostly there is no secret in all of them, which is quicker to find out than one by one."""
    whole = "\n".join(paths)
    return paths if clean(whole)[0] == whole else tuple(clean(path)[0] for path in paths)


def _cut(previous: str, transcript: RedactedTranscript) -> tuple[str, ...]:
    """A note where no model gets all of the earlier summary."""
    more = len(previous) - PREVIOUS_MAX
    if more <= 0 or not transcript.parts:
        return ()
    return (f"{more} characters at the end of the earlier summary were too much",)
