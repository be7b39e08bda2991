"""What `session_history` and `session_stats` answer: what a long session came to, in pages.

In: a conversation with the daemon, and where a page ends. Out: segments, and messages that are in
none, oldest first, as many of the newest as fit. Messages are counted from 0 on the path, and a
segment stands for a range of them, so that one number says where the page before ends. The first
page has both kinds; those before it have messages as long as there are any, then segments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from indexerd.errors import AmbiguousError
from indexerd.mcp.answers import Answer, brief_head
from indexerd.mcp.daemon import Talk
from indexerd.mcp.pick import named, running
from indexerd.mcp.texts import BYTES_MAX, Safe, bounded, ident, size

GIST_BYTES = 1000  # of a segment's text, unless all is asked for
CONTENT_BYTES = 5000
MESSAGE_BYTES = 4000  # of a message in full
LIST_BYTES = 1500  # of each list of a segment
TOOLS_SHOWN = 20
_REST = 300  # bytes: what `bounded` keeps free, and fields that are known last


class _Page(NamedTuple):
    segments: list[Answer]
    recent: list[Answer]
    next_before: int | None


def history(talk: Talk, ref: str, *, full: bool, limit: int, before: int, leaf: str) -> Answer:
    """`session_history`: one page; `before` 0 is the newest."""
    session_id = named(talk, ref)["sessionId"]
    found = talk.ask("history", ref=session_id, full=full or None, leaf=leaf or None)
    answer = brief_head(talk, found) | {
        "leafId": None if found.get("leafId") is None else ident(found["leafId"]),
        "fullMessageCount": int(found["fullMessageCount"]),
        "foldedMessages": int(found["foldedMessages"]),
    }
    room = BYTES_MAX - size(answer) - _REST
    page = _page(talk.safe, found, full=full, limit=limit, before=before or None, room=room)
    answer |= {"segments": page.segments, "recent": page.recent}
    more = {} if page.next_before is None else {"nextBefore": page.next_before}
    return bounded(answer | more)


def _page(
    safe: Safe, found: Mapping[str, Any], *, full: bool, limit: int, before: int | None, room: int
) -> _Page:
    folded = int(found["foldedMessages"])
    messages = [one for one in found["recent"] if before is None or one["n"] < before]
    held = [
        one for one in found["segments"] if before is None or one["covering_messages"][0] < before
    ]
    share = room * 2 // 3 if held and before is None else room
    recent = newest(messages[-limit:], lambda one: _message(safe, one, full=full), share)
    segments: list[Answer] = []
    if before is None or before <= folded:
        room -= size(recent)
        least = 0 if recent else 1
        segments = newest(held, lambda one: _segment(safe, one, full=full), room, least)
    if len(recent) < len(messages):
        return _Page(segments, recent, int(recent[0]["n"]))
    if len(segments) == len(held):
        return _Page(segments, recent, None)
    return _Page(segments, recent, segments[0]["covering"][0] if segments else folded)


def newest(
    some: Sequence[Mapping[str, Any]],
    told: Callable[[Mapping[str, Any]], Answer],
    room: int,
    least: int = 1,
) -> list[Answer]:
    """As many of the last ones as fit `room` bytes, in their order; `least` at any rate."""
    kept: list[Answer] = []
    for one in reversed(some):
        shown = told(one)
        room -= size(shown) + 1
        if room < 0 and len(kept) >= least:
            break
        kept.append(shown)
    return kept[::-1]


def _message(safe: Safe, one: Mapping[str, Any], *, full: bool) -> Answer:
    text = safe.fit(one.get("text"), MESSAGE_BYTES) if full else safe.cut_line(one.get("text"))
    told: Answer = {
        "n": int(one["n"]),
        "role": ident(one.get("role")),
        "text": text,
        "entryId": ident(one.get("entryId")),
        "at": ident(one.get("at")),
    }
    tools = [ident(name) for name in (one.get("tools") or ())[:TOOLS_SHOWN]]
    return told | ({"tools": tools} if tools else {})


def _segment(safe: Safe, one: Mapping[str, Any], *, full: bool) -> Answer:
    first, last = one["covering_messages"]
    decisions = safe.lines(one.get("key_decisions"), 5)
    return {
        "covering": [int(first), int(last)],
        "content": safe.fit(one.get("content"), CONTENT_BYTES if full else GIST_BYTES),
        "keyDecisions": whole(decisions, LIST_BYTES if full else GIST_BYTES // 2),
        "filesModified": whole(
            safe.exacts(one.get("files_modified"), 100), LIST_BYTES if full else GIST_BYTES // 2
        ),
        "generatedAt": ident(one.get("generated_at")),
        "model": ident(one.get("model")),
    }


def whole(items: Sequence[str], most: int) -> list[str]:
    """The first items that fit: half a path is another path."""
    kept: list[str] = []
    for one in items:
        most -= size(one) + 1
        if most < 0:
            break
        kept.append(one)
    return kept


# -- figures -------------------------------------------------------------------------------------


def stats(talk: Talk, ref: str) -> Answer:
    """`session_stats`; without a reference, of the running session."""
    found = talk.ask("stats", ref=meant(talk, ref))
    level = found.get("level")
    answer = brief_head(talk, found) | {
        "contextTokens": int(found["contextTokens"]),
        "estimated": bool(found["estimated"]),
        "reserve": int(found["reserve"]),
        "level": None if level is None else ident(level),
        "shouldCompact": {
            ident(key): bool(one) for key, one in (found.get("shouldCompact") or {}).items()
        },
        "totals": {
            ident(key): None if one is None else _number(one)
            for key, one in found["totals"].items()
        },
        "warnings": talk.safe.lines(found.get("warnings"), 10),
    }
    if "windowSource" in found:
        answer["windowSource"] = ident(found["windowSource"])
    known = (key for key in ("window", "usable", "percent") if found.get(key) is not None)
    return answer | {key: _number(found[key]) for key in known}


def _number(value: Any) -> int | float:
    return value if isinstance(value, int) else float(value)


def meant(talk: Talk, ref: str, *, certain: bool = False) -> str:
    """The id of the session that is named; without a reference, of the one that runs.

    `certain`: something is to be changed, so that a name which is only close means nothing.
    """
    found = named(talk, ref) if ref else running(talk)
    if certain and found.get("how") == "fuzzy":
        raise AmbiguousError("that is only close to a session's name", [dict(found)])
    return str(found["sessionId"])
