"""Families: the order of sessions that came from one another, and how each came to be.

In: links (which session came from which) and rows of interfaces.md, section 5. Out: depth first,
children oldest first, and the members that `family` tells of. Pure.

What agents write of parents is not ours: it may run in a circle, or name what is not there. So
every session is met once, a circle begins with the oldest session in it, and the way to the
session that was asked about is shown even where the rest has to be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from indexerd.times import iso_ms

Relation = Literal["root", "fork", "resumed", "subagent"]
Row = Mapping[str, Any]
_TOLD = ("sessionId", "name", "agent", "cwd", "state", "archived", "gone")
_THEN = ("createdAt", "modifiedAt")


class Link(NamedTuple):
    """Which session one came from."""

    session_id: str
    parent: str  # its id, or its file where that is all that is known; empty: none
    created: int  # ms since the epoch
    subagent: bool


class Place(NamedTuple):
    """A session's place in its family; `parent` is empty where that is no member of it."""

    session_id: str
    depth: int
    parent: str


def by_age(links: Iterable[Link]) -> list[Link]:
    """The oldest first; of one age, by their ids."""
    return sorted(links, key=lambda one: (one.created, one.session_id))


def depth_first(roots: Iterable[Link], below: Iterable[Link]) -> list[Place]:
    """Every session that hangs on these roots, each once."""
    children: dict[str, list[Link]] = {}
    for one in by_age(below):
        children.setdefault(one.parent, []).append(one)
    waiting = [Place(one.session_id, 0, "") for one in reversed(by_age(roots))]
    found: dict[str, Place] = {}
    while waiting:
        place = waiting.pop()
        if place.session_id in found:
            continue
        found[place.session_id] = place
        more = reversed(children.get(place.session_id, ()))
        waiting += [Place(one.session_id, place.depth + 1, place.session_id) for one in more]
    return list(found.values())


def kept(places: Sequence[Place], own: str, limit: int) -> list[Place]:
    """At most so many places: the way to one's own first, its end if it is longer, then the top."""
    above = {one.session_id: one.parent for one in places}
    way: list[str] = []
    while own in above and len(way) < limit:
        way.append(own)
        own = above[own]
    certain, room = set(way), limit - len(way)
    chosen = []
    for one in places:
        if one.session_id not in certain:
            room -= 1
        if one.session_id in certain or room >= 0:
            chosen.append(one)
    return chosen


def relation(row: Row, above: Row | None, *, named: bool, carries_on: bool | None) -> Relation:
    """How a session came to be. `named`: it says that it came from another one.

    `carries_on` tells whether its messages go on where those of the parent end; None where
    messages cannot tell, as when it has none of them. Then times do: it was resumed if the parent
    was over when it began.
    """
    if not named:
        return "root"
    if row.get("subagent"):
        return "subagent"
    if carries_on is None and above is not None:
        carries_on = 0 < iso_ms(above["modifiedAt"]) <= iso_ms(row["createdAt"])
    return "resumed" if carries_on else "fork"


def member(row: Row, depth: int, how: Relation) -> dict[str, Any]:
    """What is told of one session."""
    return {
        **{key: row[key] for key in _TOLD},
        "subagent": bool(row.get("subagent")),
        **{key: row[key] for key in _THEN},
        "userMessageCount": row["userMessageCount"],
        "parentSessionId": row.get("parentSessionId"),
        "relation": how,
        "depth": depth,
    }
