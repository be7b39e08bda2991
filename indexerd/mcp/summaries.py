"""What the MCP tools answer for which a model writes: compactions, branches, digests.

In: a conversation with the daemon. Out: summaries, quoted. A model wrote them of texts from any
hand, so they are data as much as those. A hand-off is quoted by the daemon already; one that is
too long loses lines of its middle, where the oldest messages are, and keeps its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexerd.mcp.answers import PATHS_SHOWN, Answer, brief_head, by, usage_of
from indexerd.mcp.daemon import Talk
from indexerd.mcp.histories import meant, newest
from indexerd.mcp.texts import BYTES_MAX, Safe, bounded, ident, size
from indexerd.meta.limits import SUMMARY_MAX

NOTES_SHOWN = 20
KEPT_BYTES = 6000  # of what Codex would keep verbatim
MESSAGE_BYTES = 2000  # of one message of that
_REST = 300  # bytes: what `bounded` keeps free, and the name of a field
_BY = "summarised"
_FIGURES = (
    "before",
    "after",
    "reduction",
    "tokensSaved",
    "tokensBefore",
    "tokensAfter",
    "compression",
    "targetCompression",
    "targetMet",
)


def compact(
    talk: Talk,
    ref: str,
    *,
    strategy: str | None,
    instructions: str,
    handoff: bool,
    leaf: str,
    keep: int,
) -> Answer:
    """`compact_session`; without a reference, of the running session."""
    found = talk.ask(
        "compact",
        ref=meant(talk, ref),
        strategy=strategy,
        instructions=instructions or None,
        handoff=handoff or None,
        leaf=leaf or None,
        keepRecentTokens=keep,
    )
    kept = found.get("firstKeptEntryId")
    answer = _written(talk, found) | {
        "strategy": ident(found["strategy"]),
        "tokensBefore": int(found["tokensBefore"]),
        "firstKeptEntryId": None if kept is None else ident(kept),
        "messagesSummarized": int(found["messagesSummarized"]),
        "isSplitTurn": bool(found["isSplitTurn"]),
        "alreadyCompacted": bool(found["alreadyCompacted"]),
    }
    if "handoff" in found:
        room = BYTES_MAX - size(answer) - _REST
        document = talk.safe.block(found["handoff"])
        shown = shortened(document, room, ident(found["sessionId"]))
        return bounded(answer | {"handoff": shown})
    answer |= _summary(talk.safe, found)
    if "replacementHistory" in found:
        some = found["replacementHistory"][:-1]  # the last one is the summary
        answer["replacementHistory"] = newest(some, lambda one: _kept(talk.safe, one), KEPT_BYTES)
    return bounded(answer)


def compact_text(answer: Answer) -> str | None:
    """A hand-off as it is, under a line that says whose it is; None: there is none."""
    document = answer.get("handoff")
    return None if document is None else f"{answer['provenance']}\n\n{document}"


def shortened(document: str, most: int, session_id: str) -> str:
    """A document in `most` bytes of JSON: whole lines, the first and the last of them."""
    if size(document) <= most:
        return document
    lines = document.split("\n")
    most -= 200 + len(session_id)
    first = _fitting(lines, most * 2 // 3)
    last = _fitting(lines[first:][::-1], most // 3)
    remark = (
        f"({len(lines) - first - last} lines are left out here;"
        f" `indexerd compact {session_id} --handoff` prints all of it.)"
    )
    return "\n".join([*lines[:first], "", remark, "", *lines[len(lines) - last :]])


def _fitting(lines: list[str], most: int) -> int:
    """How many of the first lines fit."""
    for count, line in enumerate(lines):
        most -= size(line)  # with quotes, which are as long as an escaped newline
        if most < 0:
            return count
    return len(lines)


def branch(talk: Talk, ref: str, leaf: str, *, instructions: str, replace: bool) -> Answer:
    """`summarize_branch`."""
    found = talk.ask(
        "branch_summary",
        ref=meant(talk, ref, certain=True),
        leaf=leaf,
        instructions=instructions or None,
        replaceInstructions=replace or None,
    )
    answer = _written(talk, found) | {"leafId": ident(found["leafId"])}
    return bounded(answer | _summary(talk.safe, found))


def digest(talk: Talk, ref: str, *, dry: bool) -> Answer:
    """`digest_session`; without a reference, of the running session."""
    found = talk.ask("digest", ref=meant(talk, ref, certain=not dry), dryRun=dry or None)
    safe, segment = talk.safe, found.get("segment")
    answer = _written(talk, found) | {
        "made": segment is not None,
        "topics": safe.lines(found.get("topics"), NOTES_SHOWN),
        "filesModified": safe.exacts(found.get("files"), PATHS_SHOWN),
        "commands": safe.lines(found.get("commands"), PATHS_SHOWN),
        "keyDecisions": safe.lines(found.get("decisions"), NOTES_SHOWN),
    }
    answer |= {key: found[key] for key in _FIGURES if key in found}
    if segment is not None:
        answer["covering"] = [int(one) for one in segment["covering_messages"]]
        answer["content"] = safe.quote(segment.get("content"), 4 * SUMMARY_MAX)
    if found.get("reason"):
        answer["reason"] = safe.line(found["reason"])
    return bounded(answer)


def _written(talk: Talk, found: Mapping[str, Any]) -> Answer:
    """Which session, who wrote of it, what that cost, and what is to be said of it."""
    usage = usage_of(found)
    return brief_head(talk, found, by(_BY, usage.get("model"))) | {
        "usage": usage,
        "notes": talk.safe.lines(found.get("notes"), NOTES_SHOWN),
    }


def _summary(safe: Safe, found: Mapping[str, Any]) -> Answer:
    details = found.get("details") or {}
    return {
        "summary": safe.quote(found.get("summary"), 4 * SUMMARY_MAX),
        "filesModified": safe.exacts(details.get("modifiedFiles"), PATHS_SHOWN),
        "filesRead": safe.exacts(details.get("readFiles"), PATHS_SHOWN),
    }


def _kept(safe: Safe, one: Mapping[str, Any]) -> Answer:
    entry = one.get("entryId")
    return {
        "role": ident(one.get("role")),
        "text": safe.fit(one.get("text"), MESSAGE_BYTES),
        "entryId": None if entry is None else ident(entry),
    }
