"""What is summed up of a branch that was left: pi's rules; nothing is written.

In: where the session stood and where it went, and the steps of the rows between. Out: what a
model is to be told of them, within a budget of tokens, and the files that the summary names.

A branch goes back to the deepest entry that it shares with where the session went. Compactions do
not end it: their summaries are part of what is told. Tools' results are not told, as the calls
say enough. The newest is told first; what does not fit the budget ends it, but a summary is still
told while the rest takes less than nine tenths. What surprised us: the answer that did not fit is
not told, and its files are listed all the same; so are those of every branch summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from indexerd.digests.compact_pi import RESERVE, estimate_tokens, files_of
from indexerd.events import Kind
from indexerd.sessions.context import ContextEntry, ContextMessage
from indexerd.sessions.history import FileLists
from indexerd.sessions.state import SessionState

PREAMBLE = (  # what pi puts before the summary of a branch, for its model
    "The user explored a different conversation branch before returning here.\n"
    "Summary of that exploration:\n\n"
)
WINDOW = 128_000  # tokens of a model that does not say
BUDGET = WINDOW - RESERVE
_NEARLY_FULL = 0.9  # of the budget
_SUMMARIES = frozenset({Kind.COMPACTION, Kind.BRANCH_SUMMARY})


@dataclass(frozen=True, slots=True)
class Branch:
    """What is told of a branch, oldest first; no speeches: there is nothing to sum up."""

    speeches: tuple[ContextMessage, ...]
    files: FileLists
    tokens: int  # estimated, of the speeches


def branch_rows(state: SessionState, leaf: int, target: int | None) -> list[int]:
    """Rows of a branch, root-side first: what is on the way to `leaf` and not to `target`.

    Without a target the session went back before its first entry: the branch is all of the path.
    """
    if leaf < 0:
        return []
    shared = set() if target is None or target < 0 else set(state.path(target))
    rows = []
    for row in state.up(leaf):
        if row in shared:
            break
        rows.append(row)
    return rows[::-1]


def prepare_branch(steps: Sequence[ContextEntry], budget: int = BUDGET) -> Branch:
    """What to tell of a branch, given its raw steps; `budget` is in tokens, 0 is no limit."""
    told: list[list[ContextMessage]] = []
    seen: list[ContextEntry] = []
    total = 0
    for step in reversed(steps):
        said = [one for one in step.speeches if one.role != "toolResult"]
        if not said and step.speeches:
            continue
        seen.append(step)
        tokens = sum(map(estimate_tokens, said))
        fits = budget <= 0 or total + tokens <= budget
        if fits or (step.entry.kind in _SUMMARIES and total < budget * _NEARLY_FULL):
            told.append(said)
            total += tokens
        if not fits:
            break
    summaries = [step.entry for step in steps if step.entry.kind is Kind.BRANCH_SUMMARY]
    speeches = tuple(_forward(told))
    return Branch(speeches, files_of(seen, summaries), total)


def _forward(told: list[list[ContextMessage]]) -> Iterator[ContextMessage]:
    for said in reversed(told):
        yield from said
