"""What a daemon says of long sessions, in the socket's own shapes: docs/PROTOCOL.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Say = Callable[[dict[str, Any]], Any]

USAGE = {
    "inputTokens": 10,
    "outputTokens": 2,
    "costUsd": 0.01,
    "calls": 1,
    "model": "m/x",
    "ms": 5,
}


def segment(first: int, last: int, text: str) -> dict[str, Any]:
    """A segment as it is stored."""
    return {
        "id": f"seg_{first}",
        "covering_messages": [first, last],
        "content": text,
        "key_decisions": [text],
        "files_modified": ["/w/a.py", text[:500]],
        "tools_used": [{"tool": "bash", "count": 2, "notable_uses": [text]}],
        "generated_at": "2026-11-21T11:00:00.000Z",
        "token_count": 20,
        "model": "m/x",
        "leafId": f"e{last}",
    }


def message(n: int, text: str) -> dict[str, Any]:
    """A message in no segment."""
    role = "assistant" if n % 2 else "user"
    return {"n": n, "role": role, "text": text, "entryId": f"e{n}", "at": "2026-11-21T11:00:00Z"}


def long_history(session_id: str, folded: int, total: int, text: str) -> dict[str, Any]:
    """A history whose segments have ten messages each."""
    return {
        "sessionId": session_id,
        "leafId": f"e{total}",
        "segments": [segment(at, at + 9, f"{at}: {text}") for at in range(0, folded, 10)],
        "recent": [message(n, f"{n}: {text}") for n in range(folded, total)],
        "fullMessageCount": total,
        "foldedMessages": folded,
    }


def stats_of(session_id: str) -> dict[str, Any]:
    """How full a session is."""
    return {
        "sessionId": session_id,
        "contextTokens": 170_000,
        "estimated": True,
        "reserve": 16_384,
        "level": "fold",
        "window": 200_000,
        "windowSource": "list",
        "usable": 183_616,
        "percent": 92.6,
        "shouldCompact": {"pi": False, "codex": False, "opencode": True},
        "totals": {"messages": 40, "costUsd": None, "savedTokens": -3},
        "warnings": ["93% of 183,616 usable tokens are taken: fold or compact it now"],
    }


def compacted(session_id: str, text: str) -> dict[str, Any]:
    """A compaction by the rules of Codex."""
    kept = {"role": "user", "text": text, "entryId": "e1"}
    return {
        "sessionId": session_id,
        "strategy": "codex",
        "summary": text,
        "firstKeptEntryId": "e1",
        "tokensBefore": 900,
        "details": {"readFiles": [text], "modifiedFiles": ["/w/a.py"]},
        "isSplitTurn": False,
        "messagesSummarized": 12,
        "alreadyCompacted": False,
        "usage": USAGE,
        "notes": [text],
        "replacementHistory": [kept, {"role": "user", "text": text, "entryId": None}],
    }


def digested(session_id: str, text: str) -> dict[str, Any]:
    """A digest that was made."""
    return {
        "sessionId": session_id,
        "segment": segment(0, 9, text),
        "before": 20,
        "after": 11,
        "reduction": 45.0,
        "tokensSaved": 400,
        "tokensBefore": 900,
        "tokensAfter": 500,
        "compression": 0.2,
        "targetCompression": 0.3,
        "targetMet": True,
        "covering": [0, 9],
        "topics": [text],
        "files": ["/w/a.py", text],
        "commands": [text],
        "decisions": [text],
        "model": "m/x",
        "costUsd": 0.01,
        "usage": USAGE,
        "notes": [text],
    }


def tip(leaf: str, at: str, text: str, *, active: bool = False) -> dict[str, Any]:
    """Where a branch ends."""
    told = {"leafId": leaf, "branchPointId": "e1", "entries": 3, "userMessages": 1}
    more = {"lastActivity": at, "active": active, "label": text, "gist": text, "reason": text}
    return told | more


def long_answers(session_id: str, text: str) -> dict[str, Say]:
    """Answers by method, in which every text is this one."""
    return {
        "history": lambda params: long_history(session_id, 20, 30, text),
        "stats": lambda params: stats_of(session_id),
        "compact": lambda params: compacted(session_id, text),
        "branch_summary": lambda params: {
            "sessionId": session_id,
            "leafId": params["leaf"],
            "summary": text,
            "details": {"readFiles": [text], "modifiedFiles": []},
            "usage": USAGE,
            "notes": [],
        },
        "digest": lambda params: digested(session_id, text),
        "branches": lambda params: {
            "sessionId": session_id,
            "leafId": "e9",
            "tips": [tip("e9", "2026-11-21T11:00:00Z", text, active=True)],
        },
    }
