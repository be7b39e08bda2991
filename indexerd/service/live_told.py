"""What a page was told of a session, and what is new since: whole documents, patches, or nothing.

In: a story as it is now, and the rest of its document. Out: what a page needs that has a version
of it already. A version is `G.N`: `G` stands for one reading of the file, in which a row stays the
same entry; `N` counts on with each change. Of every row is remembered at which `N` its node came
or changed, so that a patch can be made since any version of the same `G`.

    whole   {version, …the document, exportedAt, nodes: [{row, …}]}
    patch   {version, base, …the rest of the document, exportedAt, rows: [row at each place],
            above: [place of the parent at each place], nodes: [new or changed ones]}
    nothing {version, base}, both what the page has

A place, and whether it is on the path, is no change of a node: a page has those of `above` and
`leaf`. Pure; the nodes it is given may be others' again as soon as `answer` has returned.
"""

from __future__ import annotations

import re
from typing import Any

from indexerd.core.export_json import row_json
from indexerd.core.story import Node, Story

_VERSION = re.compile(r"([0-9a-f]{1,64})\.(0|[1-9][0-9]{0,15})", re.ASCII)

_Shown = tuple[Node, int, str | None]


class Told:
    """The versions of one reading of a session. `generation` is hexadecimal."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self._number = -1
        self._about: dict[str, Any] = {}
        self._rows: list[int] = []
        self._above: list[int] = []
        self._shown: dict[int, _Shown] = {}  # by row, as it was told last
        self._changed: dict[int, int] = {}  # by row: the number at which it was another before

    @property
    def version(self) -> str:
        """That of what was told last."""
        return f"{self.generation}.{self._number}"

    def answer(
        self, story: Story, about: dict[str, Any], now: str, since: str | None
    ) -> dict[str, Any]:
        """What a page needs that has version `since`, or none. `now`: when this is told."""
        self._take(story, about)
        base = self._known(since)
        if base == self._number:
            return {"version": since, "base": since}
        told = {"version": self.version, **about, "exportedAt": now}
        if base is None:
            return told | {"nodes": self._nodes(story, -1)}
        nodes = self._nodes(story, base)
        return told | {"base": since, "rows": self._rows, "above": self._above, "nodes": nodes}

    def _known(self, since: str | None) -> int | None:
        match = _VERSION.fullmatch(since or "")
        if match is None or match[1] != self.generation:
            return None
        number = int(match[2])
        return number if number <= self._number else None

    def _take(self, story: Story, about: dict[str, Any]) -> None:
        rows = list(story.places)
        above = [node.above for node in story.nodes]
        shown: dict[int, _Shown] = {
            row: (node, node.ordinal, node.label)
            for row, node in zip(rows, story.nodes, strict=True)
        }
        new = [row for row, one in shown.items() if not _is(self._shown.get(row), one)]
        same = (rows, above, about) == (self._rows, self._above, self._about)
        if same and not new and self._number >= 0:
            return
        self._number += 1
        self._changed = {row: self._changed[row] for row in rows if row in self._changed}
        self._changed |= dict.fromkeys(new, self._number)
        self._rows, self._above, self._about, self._shown = rows, above, about, shown

    def _nodes(self, story: Story, base: int) -> list[dict[str, Any]]:
        return [
            row_json(node, row)
            for row, node in zip(self._rows, story.nodes, strict=True)
            if self._changed[row] > base
        ]


def _is(old: _Shown | None, new: _Shown) -> bool:
    """Whether a node is told as it was: the very same one, whatever it holds."""
    return old is not None and old[0] is new[0] and old[1:] == new[1:]
