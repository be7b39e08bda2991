"""What a path says that its context does not show any more: rows that compactions have replaced.

In: a session as it was taken, its context, and a way to read a row. Out: files, what was said, and
facts about a compaction, for whoever sums the session up. Each row is read at most once a question,
and of rows that cannot matter only the kind is looked at. ValueError: a line is no JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from indexerd.daemon.views import Taken
from indexerd.digests import compact_codex, compact_opencode, compact_pi
from indexerd.digests.serialize import lines_of
from indexerd.digests.spoken import passing, summary_words, summed
from indexerd.digests.talk import Talk, talk_of
from indexerd.events import Kind
from indexerd.privacy.redactor import Redactor
from indexerd.sessions.context import (
    ContextEntry,
    ContextMessage,
    Message,
    Read,
    context_entries,
    passing_messages,
)
from indexerd.sessions.history import FileLists, file_lists
from indexerd.sessions.state import SessionState
from indexerd.sessions.tree import still

SAID_BYTES = 20_000_000  # of lines before the context that are looked at for what was said
SAID_MAX = 2_000_000  # characters of it
TOKENS_MAX = 1 << 53
_CALLS = frozenset({Kind.ASSISTANT, Kind.CALL})
_SAID = frozenset({Kind.USER, Kind.ASSISTANT})


@dataclass(frozen=True, slots=True)
class Look:
    """A session that is read, and the context at its leaf."""

    taken: Taken
    read: Read
    steps: list[ContextEntry]
    clean: Redactor
    whole: bool = False  # whether all that was ever done on the path counts

    @property
    def state(self) -> SessionState:
        """The session's tree."""
        return self.taken.state

    @property
    def agent(self) -> str:
        """Whose session it is."""
        return self.taken.card.agent

    def summed(self, speeches: Iterable[ContextMessage]) -> list[ContextMessage]:
        """What of these speeches goes into a summary."""
        return summed(speeches, self.state, self.agent)

    def summary(self, text: str) -> str:
        """An earlier summary of the agent's own, redacted."""
        return self.clean(summary_words(text, self.agent))[0]

    def talk(self, speeches: Iterable[ContextMessage]) -> Talk:
        """The same as text, redacted."""
        return talk_of(lines_of(speeches), self.clean)


def _before(look: Look, kinds: frozenset[Kind]) -> list[int]:
    """Rows of the path, root first, that the context does not show."""
    state, shown = look.state, {step.row for step in look.steps}
    if not any(step.entry.kind is Kind.COMPACTION for step in look.steps):
        return []
    return [row for row in state.path() if row not in shown and state.kind(row) in kinds]


def earlier_files(look: Look) -> FileLists:
    """Files of calls before the context, where no compaction remembers them (S1.23, S3.17).

    pi's compactions do, so for its sessions there are none, unless the whole path is asked for.
    """
    rows = _before(look, _CALLS) if look.whole or look.agent != "pi" else []
    return file_lists(look.read(row) for row in rows)


def earlier_talk(look: Look) -> Talk:
    """What human and agent said before the context, from the beginning on."""
    rows, size = list[int](), 0
    for row in _before(look, _SAID):
        size += look.state.lengths[row]
        if size > SAID_BYTES:
            break
        rows.append(row)
    return look.talk(_words(look, rows))


def _words(look: Look, rows: Sequence[int]) -> Iterator[ContextMessage]:
    """What was said in so many words, until that is enough."""
    size = 0
    for one in passing(passing_messages(look.state, look.read, rows), look.state, look.agent):
        size += sum(map(len, one.texts))
        if size > SAID_MAX:
            return
        if one.role in ("user", "assistant"):
            yield replace(one, thinking=(), calls=())


def tokens_before(look: Look, step: ContextEntry) -> int:
    """Tokens of the context that a compaction replaced: as recorded, or else as it is counted."""
    told = step.entry.details.get("tokensBefore")
    if isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told):
        return max(0, min(int(told), TOKENS_MAX))
    above = look.state.parent(step.row)
    if above < 0:
        return 0
    state = still(look.state, above)
    return tokens_of(look.agent, state, context_entries(state, look.read))


def tokens_of(name: str, state: SessionState, steps: Sequence[ContextEntry]) -> int:
    """Tokens of a context as an agent, or a strategy, of this name counts them."""
    if name == "codex":
        return compact_codex.tokens_of(state, steps)
    if name == "opencode":
        return compact_opencode.tokens_of(steps)
    return compact_pi.context_tokens(steps).tokens


def _own(look: Look, step: ContextEntry) -> ContextEntry:
    """A step with a human's own words; the tree knows of those that stand behind instructions."""
    if step.entry.kind not in (Kind.USER, Kind.OTHER) or look.state.kind(step.row) != Kind.USER:
        return step
    own = look.summed(step.speeches)
    return replace(step, entry=own[0].entry, speeches=tuple(own)) if own else step


def humans(look: Look) -> tuple[Message, ...]:
    """What humans said that stays in Codex, redacted, each by the id of where it was said.

    An earlier compaction brings texts alone; whose they are is found among what it replaced.
    """
    found = compact_codex.users_of(_own(look, step) for step in look.steps)
    brought = {step.entry.id for step in look.steps if step.entry.kind is Kind.COMPACTION}
    if any(one.entry_id in brought for one in found):
        entries = map(look.read, _before(look, frozenset({Kind.USER})))
        said = {"".join(one.details.get("sent", one.texts)): one.id for one in entries}
        found = tuple(
            replace(one, entry_id=said.get(one.text, one.entry_id))
            if one.entry_id in brought
            else one
            for one in found
        )
    return tuple(replace(one, text=look.clean(one.text)[0]) for one in found)
