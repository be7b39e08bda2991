"""What the two tools for relevant context answer.

In: a conversation with the daemon, and a set. Out: what was stored. Sets were written by others
as much as anything else here: their text is quoted line by line, under a line that says whose it
is. In the data, names and items are exact, since they are files to be opened and names to be
asked with. What does not fit is left out by whole items, as half a path is another path, and
every set that lost some is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from indexerd.mcp.answers import DATA, Answer, sets_of
from indexerd.mcp.daemon import Talk
from indexerd.mcp.pick import running
from indexerd.mcp.texts import BYTES_MAX, bounded, compact, ident, reading, size
from indexerd.meta.context_sets import NOTHING
from indexerd.meta.limits import NAME_MAX
from indexerd.references.inject import harmless

ROOM = BYTES_MAX - 6000  # bytes for sets; the rest is for the names of what is left out

Sets = dict[str, list[str]]


def set_context(talk: Talk, ref: str, name: str, items: list[str], mode: str) -> Answer:
    """`set_relevant_context`; without a reference, of the running session."""
    which, whose = _whose(talk, ref)
    found = talk.ask("set_relevant_context", **which, setName=name, items=items, mode=mode)
    return whose | {
        "sessionId": ident(found.get("sessionId") or which["session"]),
        "text": talk.safe.line(found.get("text")),
        "contextChanged": bool(found.get("contextChanged")),
        "setName": talk.safe.exact(found.get("setName") or name, NAME_MAX),
        "warnings": talk.safe.lines(found.get("warnings"), 20),
    }


def set_text(answer: Answer) -> str:
    """What became of a set, in the older tool's words (S4.7), and what else is to be said."""
    return "\n".join([answer["text"], *(f"note: {one}" for one in answer["warnings"])])


def get_context(talk: Talk, ref: str, name: str | None) -> Answer:
    """`get_relevant_context`; without a reference, of the running session."""
    which, whose = _whose(talk, ref)
    found = talk.ask("get_relevant_context", **which, setName=name)
    session_id = ident(found.get("sessionId") or which["session"])
    kept, left = fitting(sets_of(talk.safe, found.get("context")), ROOM)
    answer = {
        "provenance": f"Noted in session {session_id}: {DATA}.",
        "sessionId": session_id,
        **whose,
        "context": kept,
    }
    return bounded(answer | ({"leftOut": left} if left else {}))


def get_text(answer: Answer) -> str:
    """The sets for a reader, as JSON of which each line is quoted."""
    if not answer["context"]:
        return NOTHING
    written = json.dumps(reading(answer["context"]), indent=2, ensure_ascii=False)
    lines = [answer["provenance"], *(f"> {line}" for line in written.split("\n"))]
    left = answer.get("leftOut")
    if left:
        named = harmless(compact(reading(left)))
        lines.append(f"Left out, as it did not fit (items by set; ask for one by setName): {named}")
    return "\n".join(lines)


def fitting(context: Mapping[str, list[str]], room: int) -> tuple[Sets, dict[str, int]]:
    """As many whole items as fit `room` bytes of JSON, a few of each set; how many are left out.

    Every set is in the first part, be it empty there, and its items are the first ones it has.
    """
    kept: Sets = {name: [] for name in context}
    full = set[str]()
    used = size(kept)
    for turn in zip_longest(*context.values()):
        for name, item in zip(context, turn, strict=True):
            if item is None or name in full:
                continue
            needed = size(item) + 1
            if used + needed > room:
                full.add(name)
                continue
            kept[name].append(item)
            used += needed
    left = {name: len(context[name]) - len(items) for name, items in kept.items()}
    return kept, {name: count for name, count in left.items() if count}


def _whose(talk: Talk, ref: str) -> tuple[Answer, Answer]:
    """Whose context is meant, as params; and what is to be told of a session we chose."""
    if ref:  # as it was given: the daemon waits for a session that has only just begun
        return {"session": ref, "cwd": talk.cwd}, {}
    row: Mapping[str, Any] = running(talk)
    return {"session": row["sessionId"]}, {"name": talk.safe.line(row.get("name"), NAME_MAX)}
