"""Find the branches of a session: their tips, where they part, and the summaries of those left.

What surprised us: a branch summary hangs where the new branch begins, and `fromId` is the old
leaf in pi 0.87, but the place where the user went, or "root", in older files. So it counts only
where it is off the summary's own path; else the branch that was left is that of the entry
written just before the summary, if that one is off the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from indexerd.events import Entry, Kind
from indexerd.sessions.positions import name_at
from indexerd.sessions.state import NOWHERE, ROOT, SessionState

BRANCH_PREAMBLE = (  # what pi puts before the summary of a branch, for its model
    "The user explored a different conversation branch before returning here.\n"
    "Summary of that exploration:\n\n"
)


class Tip(NamedTuple):
    """A branch's last entry. Rows, or ROOT for none; counts are from the root on."""

    row: int
    entries: int = 0
    users: int = 0
    parting: int = ROOT  # the nearest row above that has several children
    last: int = ROOT  # the newest user or assistant message
    summary: int = ROOT  # the branch summary of this branch


def tips(state: SessionState, summaries: Mapping[int, Entry]) -> list[Tip]:
    """List every branch's tip in the file's order; `summaries`: those of branches, by row.

    Where only bookkeeping follows the leaf, the leaf is the tip.
    """
    rows, told = state.tips(), dict(_told(state, summaries))
    found = _tips_at(state, [*rows, state.leaf], told)
    tips = [found[row] for row in rows]
    if state.leaf in (NOWHERE, *rows):
        return tips
    leaf = found[state.leaf]
    others = [tip for tip in tips if tip.last != leaf.last or not state.leads_to(leaf.row, tip.row)]
    return [*others, leaf]


def _tips_at(state: SessionState, wanted: list[int], told: Mapping[int, int]) -> dict[int, Tip]:
    """Count what these rows have above them; an orderly tree takes one pass over all rows."""
    children, found, kept = state.children(), dict[int, Tip](), {*wanted}
    left = children[:]  # children still to come; a row without any is not needed any more
    ways = [range(len(state))] if state.orderly else map(state.path, wanted)
    for way in ways:
        before = Tip(ROOT)
        for row in way:
            parent = state.parent(row)
            above = found.get(parent, Tip(ROOT)) if state.orderly else before
            left[parent] -= state.orderly
            if not left[parent] and parent not in kept:
                found.pop(parent, None)
            parts = above.row != ROOT and children[above.row] > 1
            kind = state.kind(row)
            before = found[row] = Tip(
                row=row,
                entries=above.entries + 1,
                users=above.users + (kind is Kind.USER),
                parting=above.row if parts else above.parting,
                last=row if kind in (Kind.USER, Kind.ASSISTANT) else above.last,
                summary=told.get(row, above.summary),
            )
    return found


def summary_rows(state: SessionState) -> Iterator[int]:
    """Yield the rows of branch summaries, which `tips` needs."""
    return (row for row in state.entries() if state.kind(row) is Kind.BRANCH_SUMMARY)


def asks(state: SessionState, tip: Tip) -> list[int]:
    """List the rows of human messages on this branch alone, oldest first."""
    own = takewhile(lambda row: row != tip.parting, state.up(tip.row))
    return [row for row in own if state.kind(row) is Kind.USER][::-1]


def names(state: SessionState, tip: Tip) -> set[str]:
    """Collect the ids by which a summary may name this branch's end."""
    found = set[str]()
    for row in state.up(tip.row):
        found.add(state.id(row))
        if row == tip.last or state.parent(row) == tip.parting:
            break
    durable = name_at(state, tip.row)
    named = state.row(durable)
    if named is None or named not in set(state.up(tip.parting)):  # else other branches share it
        found.add(durable)
    return found


def _told(state: SessionState, summaries: Mapping[int, Entry]) -> Iterator[tuple[int, int]]:
    """Pair the rows that were left with the summaries written then; later ones count."""
    for row, entry in summaries.items():
        left = state.row(entry.from_id) if entry.from_id is not None else None
        for one in (left, row - 1 if row else None) if any(entry.texts) else ():
            if one is not None and not state.leads_to(one, row):
                yield one, row
                break
