"""What is summarized of a branch that was left, by pi's rules.

A branch goes back to the deepest entry that it shares with where the session went. Compactions do
not end it: their summaries are part of what is shown. Tools' results are not, as the calls say
enough. The newest is shown first; what does not fit the budget ends it, but a summary is still
shown while the rest takes less than nine tenths. What surprised us: the answer that did not fit
is not shown, and its files are listed all the same; so are those of every branch summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from indexerd.agents.lines import own_words
from indexerd.digests.compact_pi import RESERVE, estimate_tokens, files_of
from indexerd.digests.compaction_plan import listed
from indexerd.digests.redacted_transcript import RedactedTranscript, redact_parts, words_in
from indexerd.digests.summarizable import summarizable_messages
from indexerd.events import Kind
from indexerd.models.extractive.candidates import decisions
from indexerd.models.threads import Check
from indexerd.privacy.redact import redactor
from indexerd.sessions.clipped_entries import SUMMED
from indexerd.sessions.context import ContextEntry, ContextMessage, entries_of
from indexerd.sessions.history import FileLists
from indexerd.sessions.positions import message_rows
from indexerd.sessions.serialize import parts_of
from indexerd.sessions.state import SessionState
from indexerd.settings import Settings
from indexerd.sources.session_reader import OpenSession, row_of

WINDOW = 128_000  # tokens of a model that does not say
BUDGET = WINDOW - RESERVE
_NEARLY_FULL = 0.9  # of the budget
_SUMMARIES = frozenset({Kind.COMPACTION, Kind.BRANCH_SUMMARY})


@dataclass(frozen=True, slots=True)
class Branch:
    """What was said on a branch that was left."""

    transcript: RedactedTranscript
    files: FileLists
    leaf_id: str
    first: int  # positions of its messages on its path
    last: int
    home: Path | None
    decisions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """What a model is shown of a branch, oldest first; without messages nothing is summarized."""

    messages: tuple[ContextMessage, ...]
    files: FileLists
    tokens: int  # estimated, of the messages


def plan_branch(
    session: OpenSession, check: Check, settings: Settings, *, leaf: str
) -> Branch | None:
    """What was said from an old leaf back to where its path meets the current one.

    None where nothing was said there. NotFoundError for an entry that is not there.
    """
    state, clean = session.state, redactor(settings)
    rows = branch_rows(state, row_of(state, leaf), state.leaf)
    window = settings.digest.context_window or WINDOW
    with session.reading(check, SUMMED) as read:
        entries = entries_of(state, read, rows, edits=False)
        found = fit_branch(entries, max(1, window - settings.digest.reserve_tokens))
    said = summarizable_messages(found.messages, state, session.info.agent)
    transcript = redact_parts(parts_of(said), clean)
    if not transcript.parts:
        return None
    own = set(rows)
    within = [at for at, row in enumerate(message_rows(state, rows[-1])) if row in own]
    return Branch(
        transcript=transcript,
        files=listed(found.files, clean)[0],
        leaf_id=leaf,
        first=within[0] if within else 0,
        last=within[-1] if within else 0,
        home=session.home,
        decisions=decisions(own_words(text) for _, text in words_in(transcript.parts)),
    )


def branch_rows(state: SessionState, leaf: int, target: int | None) -> list[int]:
    """Rows of a branch, root-side first: what is on the way to `leaf` and not to `target`.

    Without a target the session went back before its first entry: the branch is all of the path.
    """
    if leaf < 0:
        return []
    shared = set() if target is None or target < 0 else set(state.path(target))
    return [row for row in state.path(leaf) if row not in shared]


def fit_branch(entries: Sequence[ContextEntry], budget: int = BUDGET) -> Shown:
    """What to show of a branch, given its raw entries; `budget` is in tokens, 0 is no limit."""
    messages: list[ContextMessage] = []  # newest first
    seen: list[ContextEntry] = []
    total = 0
    for one in reversed(entries):
        said = [message for message in one.speeches if message.role != "toolResult"]
        if not said and one.speeches:
            continue
        seen.append(one)
        tokens = sum(map(estimate_tokens, said))
        fits = budget <= 0 or total + tokens <= budget
        if fits or (one.entry.kind in _SUMMARIES and total < budget * _NEARLY_FULL):
            messages += reversed(said)
            total += tokens
        if not fits:
            break
    summaries = [one.entry for one in entries if one.entry.kind is Kind.BRANCH_SUMMARY]
    return Shown(tuple(reversed(messages)), files_of(seen, summaries), total)
