"""How many questions were asked in each turn of a client's (S0.64). In memory, and bounded."""

from __future__ import annotations

from collections import OrderedDict

from indexerd.errors import CallLimitError

TURNS_MAX = 1000  # whose questions are counted; those asked in longest ago are forgotten


class Turns:
    """Counts questions by turn. A question without a turn is not counted."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def take(self, turn_id: str | None, limit: int) -> None:
        """Count a question; CallLimitError where there were `limit` in that turn."""
        if turn_id is None:
            return
        count = self._counts.pop(turn_id, 0)
        self._counts[turn_id] = count if count >= limit else count + 1
        while len(self._counts) > TURNS_MAX:
            self._counts.popitem(last=False)
        if count >= limit:
            asked = "1 question" if limit == 1 else f"{limit} questions"
            raise CallLimitError(f"{asked} of this turn, as many as are allowed, came before")

    def give_back(self, turn_id: str | None) -> None:
        """A question that was counted came to no call of a model."""
        if turn_id is not None and turn_id in self._counts:
            self._counts[turn_id] -= 1
