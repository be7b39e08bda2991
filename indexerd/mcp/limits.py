"""How much the MCP server asks of others: questions in a minute, and trees that it keeps at hand.

Hosts say nothing of turns, and a model that asks in a loop spends its user's money. So questions
are counted over a minute, whatever turn they are of. A tree that is looked through page by page
is fetched once: the pages of one look are then of one tree, too. In memory, bounded, no clock of
its own. A window belongs to the event loop; a shelf may be used by several threads.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from indexerd.errors import CallLimitError

MINUTE = 60.0  # seconds
PER_MINUTE = 20  # questions
TREES_KEPT = 3
NODES_KEPT = 100_000  # of all trees together
KEPT_SECONDS = 60.0  # after a tree was last looked at

Clock = Callable[[], float]


class Window:
    """Counts questions over the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked = deque[float]()

    def take(self, questions: int) -> None:
        """Count so many at once; CallLimitError says when there is room for them."""
        now = self._clock()
        while self._asked and self._asked[0] <= now - MINUTE:
            self._asked.popleft()
        over = len(self._asked) + questions - PER_MINUTE
        if over > 0:
            wait = math.ceil(self._asked[over - 1] + MINUTE - now)
            raise CallLimitError(
                f"{len(self._asked)} questions and summaries were asked for in the last minute, of"
                f" {PER_MINUTE} that are allowed",
                hint=f"ask again in {wait} s; fewer and better questions may do",
            )
        self._asked.extend([now] * questions)


class Shelf:
    """Keeps the last few trees for the next page."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._trees = OrderedDict[Hashable, tuple[float, Mapping[str, Any]]]()

    def put(self, key: Hashable, tree: Mapping[str, Any]) -> None:
        """Keep a tree, as the socket gives it, in the place of those not looked at for longest."""
        with self._lock:
            self._trees.pop(key, None)
            self._trees[key] = (self._clock(), tree)
            while len(self._trees) > TREES_KEPT or self._size() > NODES_KEPT:
                self._trees.popitem(last=False)

    def get(self, key: Hashable) -> Mapping[str, Any] | None:
        """A tree that was looked at a moment ago."""
        with self._lock:
            seen, tree = self._trees.pop(key, (0.0, None))
            now = self._clock()
            if tree is None or now - seen > KEPT_SECONDS:
                return None
            self._trees[key] = (now, tree)
            return tree

    def _size(self) -> int:
        return sum(len(tree["nodes"]) for _, tree in self._trees.values())
