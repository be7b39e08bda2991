"""What look-ups find, the slow and obvious way: by a look at every name, or at every message."""

from __future__ import annotations

from collections.abc import Sequence

from measure import ROOT  # puts the checkout on the path, which the imports below need

from indexerd.core.names_fuzzy import folded
from indexerd.core.names_known import Known, ring_of

assert ROOT.is_dir()


def begun(rows: Sequence[Known], keys: list[str], asked: Known) -> list[str]:
    """What the beginning of a name is completed to, by a look at every name."""
    part = folded(asked.name[:4])
    found = [
        (ring_of(asked.cwd, one.cwd), -one.modified, one.session_id)
        for one, key in zip(rows, keys, strict=True)
        if f" {part}" in f" {key}" or one.session_id.startswith(part)
    ]
    nearest = min(ring for ring, *_ in found)
    return [one for ring, _, one in sorted(found) if ring == nearest][:20]


def said(texts: list[list[str]], query: str) -> int:
    """In how many sessions a message says all words of a query, by a look at every message."""
    first, *others = query.split()
    return sum(
        any(first in text and {first, *others} <= {*text.split()} for text in one) for one in texts
    )
