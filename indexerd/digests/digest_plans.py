"""What the next segment of a session would cover: read once, then left alone.

In: a session as it was taken. Out: the range of messages, their text, redacted and within its
format, and the facts that are no model's business: files, tools, decisions, figures. Only lines of
that range are read. Runs in threads, never in the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indexerd.daemon.views import Taken, reader
from indexerd.digests.assembled import Figures, figures
from indexerd.digests.compact_opencode import pruned
from indexerd.digests.compact_pi import estimate_tokens
from indexerd.digests.segments import (
    Segment,
    ToolUse,
    chain,
    covered,
    deeds_of,
    due,
    message_rows,
    name_at,
    rows_between,
    span,
)
from indexerd.digests.serialize import lines_of
from indexerd.digests.spoken import conversation, summed
from indexerd.digests.stats import outgrown
from indexerd.digests.stored_digest import stored_segments
from indexerd.digests.summary_prompts import SEGMENT_TOKENS
from indexerd.digests.talk import NO_TALK, Talk, said_in, talk_of
from indexerd.events import Entry, Kind
from indexerd.models.candidates import decisions
from indexerd.models.sentences import key_phrases, topic_runs
from indexerd.models.threads import Check
from indexerd.privacy.redactor import Redactor, redactor
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.references.inject import own_words
from indexerd.sessions.clipped_entries import COUNTED, SUMMED
from indexerd.sessions.context import ContextMessage, Read, context_messages, passing_messages
from indexerd.sessions.state import SessionState
from indexerd.settings import Digest, Settings

BELOW = "no more messages than the threshold are not summed up"
LEAST_BY_TOKENS = 10  # messages that a segment covers which is made for a context's size alone
RESULT_MAX = 500  # characters of a tool's result that are summed up
TOPICS_MAX, COMMANDS_MAX = 6, 10
SPAN_BYTES = 4_000_000  # of the lines of one segment, as far as they are kept in memory
LINE_BYTES = 500  # of one, beside its text
COMMAND_MAX = 200  # characters of one command
LEAST_TOKENS = 150  # a segment may always take
PREVIOUS_SEGMENTS = 3  # newest ones that the next one's model is shown
_SHELLS = frozenset({"bash", "shell", "exec_command", "local_shell", "container.exec", "execute"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be summed up; `span` is None where there is nothing to do, and `why` says why."""

    total: int  # messages on the path
    chain: tuple[Segment, ...]  # that holds on it
    home: Path | None
    span: tuple[int, int] | None = None
    why: str = ""
    talk: Talk = NO_TALK
    previous: str = ""
    decisions: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    tools_used: tuple[ToolUse, ...] = ()
    topics: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    leaf_id: str = ""
    tokens: int = 0  # of what is covered, as estimated
    tokens_before: int = 0  # of segments and messages that are not folded
    target: float = 0.0
    max_tokens: int = SEGMENT_TOKENS

    @property
    def messages(self) -> int:
        """How many messages the segment covers."""
        return 0 if self.span is None else self.span[1] - self.span[0] + 1

    def figures(self, segment: Segment | None = None) -> Figures:
        """What the segment saves; without one, how things are."""
        return figures(
            self.total,
            self.chain,
            segment,
            tokens_before=self.tokens_before,
            tokens_covered=self.tokens,
            target=self.target,
        )


def planned(taken: Taken, check: Check, settings: Settings, *, manual: bool) -> Plan:
    """The next segment; one that nobody asked for only where it is due.

    Who asks gets the figures of what there is, too, where there is nothing to do. ValueError: a
    line is no JSON, the session must be reread.
    """
    state, wanted = taken.state, settings.digest
    rows = message_rows(state)
    held = chain(state, rows, stored_segments(taken))
    total, folded = len(rows), covered(held)
    place = span(total, folded, wanted.preserve_recent)
    plan = Plan(total, tuple(held), taken.home, place, target=wanted.target_compression)
    if place is None:
        plan = replace(plan, why=_covered(wanted.preserve_recent))
    else:
        plan = replace(plan, span=_at_once(state, rows, *place))
    many = manual or (place is not None and due(total, folded, wanted.trigger_threshold))
    if not many and not _may_be_large(wanted, place):
        return replace(plan, span=None, why=plan.why or BELOW)
    with taken.lines as lines:
        counting = reader(taken, lines, check, COUNTED)
        if not many and not outgrown(taken, counting, wanted):
            return replace(plan, span=None, why=BELOW)
        return _read(plan, rows, taken, reader(taken, lines, check, SUMMED), settings)


def _at_once(state: SessionState, rows: list[int], first: int, last: int) -> tuple[int, int]:
    """The first of these messages, as many as are read at once: the next segment goes on there."""
    path, room = state.path(), SPAN_BYTES
    at, number = path.index(rows[first], first) if first else 0, first
    for row in path[at:]:
        if number < last and row == rows[number + 1]:
            if room <= 0:
                break
            number += 1
        most = SUMMED.result if state.kind(row) is Kind.TOOL else SUMMED.head + SUMMED.tail
        room -= LINE_BYTES + min(state.lengths[row], most)
    return first, min(number, last)


def _covered(keep: int) -> str:
    return f"all but the newest {keep} messages are summed up"


def _may_be_large(wanted: Digest, place: tuple[int, int] | None) -> bool:
    """Whether a context's size alone may be reason enough for a segment."""
    enough = place is not None and place[1] - place[0] + 1 >= LEAST_BY_TOKENS
    return wanted.token_trigger and enough


def _read(plan: Plan, rows: list[int], taken: Taken, read: Read, settings: Settings) -> Plan:
    """The plan with what its messages say, and those that stay."""
    state, path, agent = taken.state, taken.state.path(), taken.card.agent
    start = covered(plan.chain) if plan.span is None else plan.span[1] + 1
    recent = passing_messages(state, read, rows_between(path, rows, start, plan.total - 1))
    verbatim = sum(estimate_tokens(one) for one in conversation(recent, state, agent))
    verbatim += sum(one.token_count for one in plan.chain)
    if plan.span is None:
        return replace(plan, tokens_before=verbatim)
    covering = rows_between(path, rows, *plan.span)
    entries = [read(row) for row in covering]
    speeches = context_messages(state, _once(covering, entries), covering)
    tokens = sum(estimate_tokens(one) for one in conversation(speeches, state, agent))
    before = "\n\n".join(one.content for one in plan.chain[-PREVIOUS_SEGMENTS:])
    return replace(
        plan,
        previous=redactor(settings)(before)[0],
        leaf_id=name_at(state, rows[plan.span[1]]),
        tokens=tokens,
        tokens_before=tokens + verbatim,
        **_told(speeches, entries, taken, settings),
    )


def _talk(speeches: list[ContextMessage], taken: Taken, settings: Settings) -> Talk:
    """The conversation in pi's line format, its old tool output left out where that saves much."""
    kept = pruned(speeches) if settings.digest.prune_tool_output else speeches
    said = summed(kept, taken.state, taken.card.agent)
    return talk_of(lines_of(said, tool_result_max=RESULT_MAX), redactor(settings))


def _told(
    speeches: list[ContextMessage], entries: list[Entry], taken: Taken, settings: Settings
) -> dict[str, Any]:
    """What is said and done, redacted: as one text, and as facts."""
    clean, wanted = redactor(settings), settings.digest
    talk = _talk(speeches, taken, settings)
    aim = int(wanted.target_compression * len(talk.text) / 4)
    said = said_in(talk.parts)
    files_modified, tools_used = deeds_of(entries, taken.card.cwd)
    return {
        "talk": talk,
        "max_tokens": min(SEGMENT_TOKENS, max(LEAST_TOKENS, aim)),
        "decisions": decisions(own_words(text) for _, text in said),
        "files_modified": tuple(clean(one)[0] for one in files_modified),
        "tools_used": tuple(_clean_use(one, clean) for one in tools_used),
        "topics": tuple(_topics(own_words(text) for role, text in said if role == "user")),
        "commands": tuple(_commands(entries, clean)),
    }


def _clean_use(use: ToolUse, clean: Redactor) -> ToolUse:
    """Uses were redacted when they were read, but not by the user's own patterns."""
    return replace(use, notable_uses=tuple(clean(one)[0] for one in use.notable_uses))


def _topics(texts: Iterable[str]) -> list[str]:
    runs = ((topic_runs(clean_text(text[:4000], 4000)), 1) for text in texts)
    return key_phrases(runs, TOPICS_MAX)


def _commands(entries: Iterable[Entry], clean: Redactor) -> list[str]:
    """Command lines that the agent or its user ran, the newest that differ."""
    found: dict[str, None] = {}
    for entry in entries:
        if entry.kind is Kind.BASH:
            ran = [entry.text.partition("\n")[0].removeprefix("$ ")]
        else:
            ran = [call.detail for call in entry.tools if call.name.lower() in _SHELLS]
        for line in ran:
            shown = clean_line(clean(line[: 10 * COMMAND_MAX])[0], COMMAND_MAX)
            found.pop(shown, None)
            found[shown] = None
    found.pop("", None)
    return list(found)[-COMMANDS_MAX:]


def _once(rows: list[int], entries: list[Entry]) -> Read:
    """What was read already."""
    held = dict(zip(rows, entries, strict=True))
    return held.__getitem__
