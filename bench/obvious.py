"""What look-ups find, the plain and obvious way: held in a dict, or by a look at everything.

These are the limits that names stand beside, and what their answers are compared with: of the
product's own code only the form in which names are the same is taken, and what it knows of each.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from itertools import islice

from measure import ROOT  # puts the checkout on the path, which the imports below need

from indexerd.search.names_known import Known

assert ROOT.is_dir()

_WORDS = re.compile(r"\w+")
PAGE = 20  # completions, or hits


def plain_key(text: str) -> str:
    """A name in lower case, one space between its words."""
    return " ".join(_WORDS.findall(text.casefold()))


class Held:
    """Ids and names as a plain program holds them: a dict, a sorted list, a dict of names."""

    def __init__(self, rows: Sequence[Known]) -> None:
        self.rows = rows
        self.keys = [plain_key(one.name) for one in rows]
        self.ids = {one.session_id for one in rows}
        self.sorted = sorted(self.ids)
        self.named: dict[str, list[str]] = {}
        for one, key in zip(rows, self.keys, strict=True):
            self.named.setdefault(key, []).append(one.session_id)

    def resolve(self, ref: str) -> tuple[str, str | None]:
        """How a reference is meant, and which session: by its id, the id's beginning, its name."""
        if ref in self.ids:
            return "id", ref
        at = bisect_left(self.sorted, ref)
        begun = [one for one in self.sorted[at : at + 2] if one.startswith(ref)]
        if begun:
            return ("prefix", begun[0]) if len(begun) == 1 else ("ambiguous", None)
        same = self.named.get(plain_key(ref), ())
        if not same:
            return "not found", None
        return ("name", same[0]) if len(same) == 1 else ("ambiguous", None)

    def begun(self, part: str, cwd: str) -> list[str]:
        """What the beginning of a name is completed to: nearby first, and of these the newest."""
        part = plain_key(part)
        found = [
            (_far(cwd, one.cwd), -one.modified, one.session_id)
            for one, key in zip(self.rows, self.keys, strict=True)
            if key.startswith(part) or f" {part}" in key or one.session_id.startswith(part)
        ]
        nearest = min((far for far, *_ in found), default=0)
        return [one for far, _, one in sorted(found) if far == nearest][:PAGE]

    def newest(self) -> list[str]:
        """The sessions that changed last."""
        return [one.session_id for one in nlargest(PAGE, self.rows, key=lambda one: one.modified)]


def _far(here: str, cwd: str) -> int:
    if f"{cwd}/".startswith(f"{here}/"):
        return 0
    return 1 if f"{here}/".startswith(f"{cwd}/") else 2


def by_threes(keys: Sequence[str]) -> dict[str, list[int]]:
    """Which names have three letters in a row, for all threes: the plain index for likeness."""
    found: dict[str, list[int]] = {}
    for n, key in enumerate(keys):
        for part in {key[at : at + 3] for at in range(len(key) - 2)}:
            found.setdefault(part, []).append(n)
    return found


def alike(threes: dict[str, list[int]], ref: str, most: int) -> list[int]:
    """The names that share the most threes with a reference."""
    shared = Counter[int]()
    for part in {ref[at : at + 3] for at in range(len(ref) - 2)}:
        shared.update(threes.get(part, ()))
    return [n for n, _ in shared.most_common(most)]


def said(texts: list[list[str]], query: str) -> int:
    """In how many sessions, a page at most, a message says all words of a query."""
    first, *others = query.split()
    wanted = {first, *others}
    having = (
        True
        for one in texts
        if any(first in text and wanted <= {*_WORDS.findall(text)} for text in one)
    )
    return sum(islice(having, PAGE))
