"""What a page was told of a session, and what is new since: whole documents, patches, or nothing.

In: a story as it is now, and the rest of its document. Out: what a page needs that has a version
of it already. A version is `G.N`: `G` stands for one reading of the file, in which a row stays the
same entry; `N` counts on with each change. Of every row is remembered at which `N` its node came
or changed, so that a patch can be made since any version of the same `G`.

    whole   {version, …the document, exportedAt, beats: […], nodes: [{row, …}]}
    patch   {version, base, …those fields of the rest that are others now, exportedAt,
            rows: SPLICE, beats: SPLICE, nodes: [new or changed ones]}
    nothing {version, base}, both what the page has
    SPLICE  {keep, put, end}: of a list that the page has the first `keep` and the last `end`
            stay, and `put` stands between them. `rows` is of the row at each place. The beats
            that stay at the end have moved (`first`, `last`, `labels`) by as many places as there
            are more rows, or fewer. Of a version whose lists are not kept any more nothing stays.

A node hangs below the node that it hung below, wherever that stands now; one that hangs below
another is among `nodes`, and its `above` is a place of the new list. Whether it is on the path is
told by `leaf` and `above`: that is no change. Pure; the nodes it is given may be others' again as
soon as `answer` has returned, the beats may not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import eq
from typing import Any, TypeVar

from indexerd.sessions.state import ROOT
from indexerd.web.export_json import beat_json, row_json
from indexerd.web.story import Beat, Node, Story

KEPT = 4  # versions whose lists are kept, for pages that are not told of each

_VERSION = re.compile(r"([0-9a-f]{1,64})\.(0|[1-9][0-9]{0,15})", re.ASCII)
_One = TypeVar("_One")


@dataclass(frozen=True, slots=True)
class _Shown:
    """The nodes as they were told last: by place, but for `places`."""

    nodes: list[Node]
    ordinals: list[int]
    labels: list[str | None]
    over: list[int]  # the rows of their parents
    places: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Lists:
    """The lists of one version."""

    rows: list[int]
    beats: list[Beat]


_NOTHING = _Shown([], [], [], [], {})


class Told:
    """The versions of one reading of a session. `generation` is hexadecimal."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self._number = -1
        self._about: dict[str, Any] = {}
        self._fields: dict[str, int] = {}  # of `about`: the number at which each was another before
        self._lists: dict[int, _Lists] = {}  # by number
        self._shown = _NOTHING
        self._changed: dict[int, int] = {}  # by row: the number at which it was another before

    @property
    def version(self) -> str:
        """That of what was told last."""
        return f"{self.generation}.{self._number}"

    def answer(
        self, story: Story, about: dict[str, Any], now: str, since: str | None
    ) -> dict[str, Any]:
        """What a page needs that has version `since`, or none. `now`: when this is told.

        `about` has the same fields each time.
        """
        self._take(story, about)
        return self.again(story, now, since)

    def again(self, story: Story, now: str, since: str | None) -> dict[str, Any]:
        """The same, where nothing has changed since the last answer, which was of this story."""
        base = self._known(since)
        if base == self._number:
            return {"version": since, "base": since}
        told = {"version": self.version, "exportedAt": now}
        if base is None:
            beats = [beat_json(one) for one in story.beats]
            return self._about | told | {"beats": beats, "nodes": self._nodes(story, -1)}
        about = {key: one for key, one in self._about.items() if self._fields[key] > base}
        lists = self._patched(self._lists[self._number], self._lists.get(base))
        return about | told | {"base": since, **lists, "nodes": self._nodes(story, base)}

    def _known(self, since: str | None) -> int | None:
        match = _VERSION.fullmatch(since or "")
        if match is None or match[1] != self.generation:
            return None
        number = int(match[2])
        return number if number <= self._number else None

    def _take(self, story: Story, about: dict[str, Any]) -> None:
        rows, nodes = list(story.places), story.nodes
        shown = _Shown(
            nodes,
            [node.ordinal for node in nodes],
            [node.label for node in nodes],
            [rows[node.above] if node.above >= 0 else ROOT for node in nodes],
            story.places,
        )
        new = _differing(rows, self._shown, shown)
        last = self._lists.get(self._number, _Lists([], []))
        lists = _Lists(rows, _same_first(last.beats, story.beats))
        fields = [key for key, one in about.items() if self._about.get(key, ...) != one]
        if self._number >= 0 and not new and not fields and lists == last:
            return
        self._number += 1
        if len(rows) < len(last.rows) + len(new):  # some may have gone
            self._changed = {row: self._changed[row] for row in rows if row in self._changed}
        self._changed |= dict.fromkeys(new, self._number)
        self._fields |= dict.fromkeys(fields, self._number)
        self._about, self._shown = about, shown
        self._lists[self._number] = lists
        self._lists.pop(self._number - KEPT, None)

    def _nodes(self, story: Story, base: int) -> list[dict[str, Any]]:
        rows, changed = self._lists[self._number].rows, self._changed
        return [
            row_json(node, row)
            for row, node in zip(rows, story.nodes, strict=True)
            if changed[row] > base
        ]

    def _patched(self, now: _Lists, base: _Lists | None) -> dict[str, Any]:
        old = base or _Lists([], [])
        by = len(now.rows) - len(old.rows)

        def same(one: Beat, other: Beat) -> bool:
            return _moved(one, by) == other

        rows = _splice(old.rows, now.rows, eq)
        beats = _splice(old.beats, now.beats, same if by else eq)
        beats["put"] = [beat_json(one) for one in beats["put"]]
        return {"rows": rows, "beats": beats}


def _differing(rows: Sequence[int], old: _Shown, new: _Shown) -> list[int]:
    """The rows of the nodes that are not told as they were: by the very same ones."""
    return [
        row
        for row, node, ordinal, label, over in zip(
            rows, new.nodes, new.ordinals, new.labels, new.over, strict=True
        )
        if (at := old.places.get(row)) is None
        or node is not old.nodes[at]
        or ordinal != old.ordinals[at]
        or over != old.over[at]
        or label != old.labels[at]
    ]


def _same_first(old: list[Beat], new: list[Beat]) -> list[Beat]:
    """The new ones; those at the beginning that say the same are the old ones."""
    keep = _kept(old, new)
    return old[:keep] + new[keep:]


def _kept(old: Sequence[Any], new: Sequence[Any]) -> int:
    """How many stay at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    differing = (n for n, (one, other) in pairs if one is not other and one != other)
    return next(differing, min(len(old), len(new)))


def _splice(old: list[_One], new: list[_One], same: Callable[[_One, _One], bool]) -> dict[str, Any]:
    """What makes a list of another; `same` compares what may stay at the end."""
    keep = _kept(old, new)
    rest = min(len(old), len(new)) - keep
    end = next((n for n in range(rest) if not same(old[-1 - n], new[-1 - n])), rest)
    return {"keep": keep, "put": new[keep : len(new) - end], "end": end}


def _moved(beat: Beat, by: int) -> Beat:
    """A beat that stands so many places further on."""
    labels = [place + by for place in beat.labels]
    return replace(beat, first=beat.first + by, last=beat.last + by, labels=labels)
