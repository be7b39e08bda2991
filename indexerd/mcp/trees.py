"""What `get_tree` and `list_branches` answer: a page of a session's entries, and its branches.

In: a conversation with the daemon, and the page that is wanted. Out: as many entries as fit the
answer's bound, and where the next page begins. The first page is always fetched anew; the others
are of the tree that the first was of, for as long as the shelf keeps it. Of branches come the
current one, and those that were active last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexerd.mcp.answers import GIST_MAX, Answer, brief_head
from indexerd.mcp.daemon import Talk
from indexerd.mcp.pick import named
from indexerd.mcp.texts import BYTES_MAX, Safe, bounded, ident, size
from indexerd.meta.limits import NAME_MAX

NODES_MAX = 200
BRANCHES_MAX = 50
_REST = 100  # bytes of the fields that are known last


def tree(talk: Talk, ref: str, *, limit: int, offset: int, **narrowing: Any) -> Answer:
    """`get_tree`: a stretch of the entries that fit, depth first."""
    found = _fetched(talk, str(named(talk, ref)["sessionId"]), offset, narrowing)
    nodes = found["nodes"]
    answer: Answer = brief_head(talk, found) | {
        "leafId": None if found.get("leafId") is None else ident(found["leafId"]),
        "total": len(nodes),
        "offset": offset,
        "nodes": [],
        "warnings": talk.safe.lines(found.get("warnings"), 10),
    }
    room = BYTES_MAX - size(answer) - _REST
    wanted = nodes[offset : offset + limit]
    answer["nodes"] = _fitting(talk.safe, wanted, room)
    end = offset + len(answer["nodes"])
    if len(answer["nodes"]) < len(wanted):
        answer["truncated"] = ["nodes"]
    return answer | ({"nextOffset": end} if end < len(nodes) else {})


def _fitting(safe: Safe, nodes: Sequence[Mapping[str, Any]], room: int) -> list[Answer]:
    """As many of the first nodes as fit; at least one, as a page without any would have no next."""
    kept: list[Answer] = []
    for one in nodes:
        node = _node(safe, one)
        room -= size(node) + 1
        if kept and room < 0:
            break
        kept.append(node)
    return kept


def _fetched(
    talk: Talk, session_id: str, offset: int, narrowing: Mapping[str, Any]
) -> Mapping[str, Any]:
    key = (session_id, *sorted((name, str(one)) for name, one in narrowing.items()))
    kept = talk.trees.get(key) if offset else None
    if kept is not None:
        return kept
    found: Mapping[str, Any] = talk.ask("tree", ref=session_id, **narrowing)
    talk.trees.put(key, found)
    return found


def _node(safe: Safe, one: Mapping[str, Any]) -> Answer:
    node: Answer = {
        "id": ident(one["id"]),
        "parentId": None if one.get("parentId") is None else ident(one["parentId"]),
        "depth": int(one.get("depth") or 0),
        "type": ident(one.get("type")),
        "timestamp": ident(one.get("timestamp")),
        "active": bool(one.get("active")),
        "text": safe.cut_line(one.get("text")),
    }
    if one.get("role"):
        node["role"] = ident(one["role"])
    if one.get("label"):
        node["label"] = safe.line(one["label"], NAME_MAX)
    return node


def branches(talk: Talk, ref: str) -> Answer:
    """`list_branches`: where a session's branches end."""
    found = talk.ask("branches", ref=named(talk, ref)["sessionId"])
    tips = sorted(found["tips"], key=lambda tip: str(tip.get("lastActivity")), reverse=True)
    tips.sort(key=lambda tip: not tip.get("active"))
    return bounded(
        brief_head(talk, found)
        | {
            "leafId": None if found.get("leafId") is None else ident(found["leafId"]),
            "total": len(tips),
            "branches": [_tip(talk.safe, one) for one in tips[:BRANCHES_MAX]],
        }
    )


def _tip(safe: Safe, one: Mapping[str, Any]) -> Answer:
    above = one.get("branchPointId")
    tip: Answer = {
        "leafId": ident(one["leafId"]),
        "branchPointId": None if above is None else ident(above),
        "entries": int(one.get("entries") or 0),
        "userMessages": int(one.get("userMessages") or 0),
        "lastActivity": ident(one.get("lastActivity")),
        "active": bool(one.get("active")),
    }
    for key in ("label", "gist", "reason"):
        if one.get(key):
            tip[key] = safe.line(one[key], GIST_MAX)
    return tip
