"""What the index of names holds of one session, and the keys that it answers to.

In: a catalog row and further names. Out: a `Known`, and its names in folded form.

A session that nobody named goes by its first message, and a message may hold references to other
sessions: "please look at @@confirm-button" must neither become what `@@confirm-button` means nor
make it ambiguous. Agents make their titles of first messages, too. So a reference in a name, from
`@@` to the end of the word or of the quoted name, is no part of what the session answers to; the
name is displayed as it stands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from indexerd.core.names_fuzzy import folded
from indexerd.core.times import iso_ms

# A quoted name ends with its quote, or where the name as a whole was cut.
_REFERENCE = re.compile(r'@@(?:"[^"]*(?:"|\Z)|“[^”]*(?:”|\Z)|\S)\S*')


class Known(NamedTuple):
    """What the index holds of a session."""

    session_id: str
    name: str  # as displayed
    aliases: tuple[str, ...]  # every name it answers to, the displayed one included
    cwd: str
    modified: int  # milliseconds since the epoch
    named: bool  # the name was given by somebody, and not only taken from a message or a file
    live: bool  # neither gone nor archived, and not a sub-agent's

    def folds(self) -> dict[str, None]:
        """Its names in folded form, without references to others; each once, in order."""
        folds = (folded(without_references(alias)) for alias in self.aliases)
        return dict.fromkeys(key for key in folds if key)


def known(row: Mapping[str, Any], aliases: Iterable[str] = ()) -> Known:
    """What the index holds of a row; the row's own names are aliases anyway."""
    name = str(row.get("name") or "")
    own = (name, str(row.get("agentTitle") or ""), *aliases)
    return Known(
        session_id=str(row["sessionId"]),
        name=name,
        aliases=tuple(dict.fromkeys(one for one in own if one)),
        cwd=sys.intern(str(row.get("cwd") or "")),
        modified=iso_ms(str(row.get("modifiedAt") or "")),
        named=row.get("nameSource") in {"user", "meta", "agent"},
        live=not (row.get("archived") or row.get("gone") or row.get("subagent")),
    )


def without_references(name: str) -> str:
    """A name without the `@@` references in it."""
    return _REFERENCE.sub(" ", name) if "@@" in name else name
