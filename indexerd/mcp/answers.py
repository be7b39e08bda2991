"""What each tool of the MCP server answers: one method of the daemon, and the fields a model needs.

In: a conversation with the daemon, and the tool's arguments. Out: JSON values that `Renderer` has
made safe, in at most `BYTES_MAX`; what does not fit is cut, named in `truncated`, or on a next
page. Errors are the daemon's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexerd.errors import AmbiguousError, IndexerdError
from indexerd.mcp.daemon import Conversation
from indexerd.mcp.rendering import BYTES_MAX, DATA, Answer, Renderer, bounded, fitting, size
from indexerd.privacy.sanitize import escape_path

_REST = 400  # bytes of an answer for the fields that are known last
_BRIEF = [
    "sessionId",
    "name",
    "agent",
    "description",
    "tags",
    "cwd",
    "modifiedAt",
    "userMessageCount",
    "state",
    "parentSessionId",
    "gone",
    "subagent",
]
_HIT = ["sessionId", "name", "field", "snippet", "entryId", "role", "at", "score"]
_OF_ROW = ["agent", "cwd", "modifiedAt", "description"]
_SESSION = (
    *_BRIEF,
    *[
        "createdAt",
        "messageCount",
        "firstUserMessage",
        "models",
        "filesModified",
        "filesRead",
        "toolsUsed",
    ],
    *["gitBranch", "parentSessionFile"],
)
_NODE = ["id", "parentId", "depth", "type", "role", "label", "timestamp", "active", "text"]
_TIP = [
    "leafId",
    "branchPointId",
    "entries",
    "userMessages",
    "lastActivity",
    "active",
    "label",
    "gist",
    "reason",
]
_REFERENCE = ["raw", "status", "sessionId", "name", "how", "candidates", "notes", "questions"]
_FIGURES = [
    "before",
    "after",
    "reduction",
    "tokensSaved",
    "tokensBefore",
    "tokensAfter",
    "compression",
    "targetCompression",
    "targetMet",
]
DESCRIPTION_MAX = 300  # characters of a description in a list
INJECTED_MAX = 12_000  # bytes of what references stand for: the daemon cuts at whole sessions
REPLACED_BYTES = 6000  # of what Codex would keep verbatim


def search(talk: Conversation, query: str, *, everywhere: bool, **narrowing: Any) -> Answer:
    """`search_sessions`: in the project; where nothing is found there, in all of them."""
    cwd = None if everywhere else talk.cwd
    found = talk.ask("search", query=query, cwd=cwd, rows=True, **narrowing)
    if not found["hits"] and cwd:
        cwd, found = None, talk.ask("search", query=query, rows=True, **narrowing)
    rows = found.get("rows") or {}
    hits = [
        _only(one, _HIT) | _only(rows.get(one["sessionId"], {}), _OF_ROW) for one in found["hits"]
    ]
    answer = {"scope": "project" if cwd else "all", "hits": hits, "warnings": _warnings(found)}
    return _rendered(talk, f"Names and snippets are from the sessions named: {DATA}.", answer)


def sessions(talk: Conversation, *, everywhere: bool, limit: int, **narrowing: Any) -> Answer:
    """`list_sessions`: one page, newest first, and where the next one begins."""
    cwd = None if everywhere else talk.cwd
    while True:
        found = talk.ask("list", cwd=cwd, limit=limit, **narrowing)
        rows = [_brief(talk.renderer, one) for one in found["sessions"]]
        kept = fitting(rows, BYTES_MAX - _REST, lambda row: row)
        if len(kept) == len(rows):
            break
        limit = len(kept)  # so that the next page begins where this one ends
    more = _only(found, ["nextCursor"])
    answer = {"scope": "project" if cwd else "all", "sessions": rows, **more}
    return {"provenance": f"Names and descriptions are from the sessions: {DATA}."} | answer


def _brief(renderer: Renderer, row: Mapping[str, Any]) -> Answer:
    shown = {key: one for key, one in _only(row, _BRIEF).items() if one not in (None, False)}
    brief: Answer = renderer.render(shown)
    return brief | {"description": renderer.line(row.get("description") or "", DESCRIPTION_MAX)}


def resolve(talk: Conversation, ref: str, *, everywhere: bool) -> Answer:
    """`resolve_session`."""
    found = talk.resolve(ref, scope="all" if everywhere else "project")
    rendered: Answer = talk.renderer.render(_only(found, ["sessionId", "name", "how", "score"]))
    return rendered


def session(talk: Conversation, ref: str) -> Answer:
    """`get_session`: metadata and facts."""
    session_id = talk.resolve(ref)["sessionId"]
    found = talk.ask("get", ref=session_id)
    row, meta = found["session"], found.get("meta") or {}
    answer = _only(row, _SESSION) | {
        "summary": meta.get("summary") or "",
        "keyDecisions": meta.get("keyDecisions") or [],
        "context": found.get("context") or {},
        "labels": found.get("labels") or {},
        "warnings": _warnings(found),
    }
    ancestors = _ancestors(talk, row)
    answer |= {"forkedFrom": ancestors} if ancestors else {}
    by = f"; summarised by {meta['model']}" if meta.get("model") else ""
    rendered = _rendered(talk, _from(row, by), answer)
    return rendered | {"resume": _command(talk, row)[0]}


def _ancestors(talk: Conversation, row: Mapping[str, Any]) -> list[Answer]:
    """The sessions that one was forked from, its parent first; no name: not known here."""
    if not row.get("parentSessionId"):
        return []
    members = {one["sessionId"]: one for one in talk.ask("family", ref=row["sessionId"])["members"]}
    found: list[Answer] = []
    parent = row["parentSessionId"]
    while parent and parent not in {one["sessionId"] for one in found}:
        known = members.get(parent, {})
        found.append({"sessionId": parent, "name": known.get("name", "")})
        parent = known.get("parentSessionId")
    return found


def resume(talk: Conversation, ref: str) -> Answer:
    """`resume_command`: never changed; what could act on a terminal is not given."""
    row = talk.ask("get", ref=talk.resolve(ref)["sessionId"])["session"]
    command, note = _command(talk, row)
    shown: Answer = talk.renderer.render(_only(row, ["sessionId", "name", "agent", "cwd"]))
    return shown | {"command": command, "note": note}


def _command(talk: Conversation, row: Mapping[str, Any]) -> tuple[str | None, str]:
    command = str(row.get("resume") or "")
    if row.get("gone") or not command:
        return None, "the session's file is gone: there is nothing to resume"
    if escape_path(command) != command:
        session_id = talk.renderer.render(row["sessionId"], "sessionId")
        return None, f"show the user: run `indexerd resume {session_id}`"
    return command, "for the user to run in a terminal of their own"


def tree(talk: Conversation, ref: str, *, limit: int, offset: int, **narrowing: Any) -> Answer:
    """`get_tree`: a page of the entries, depth first."""
    found = talk.ask("tree", ref=talk.resolve(ref)["sessionId"], **narrowing)
    nodes = found["nodes"]
    head = {"leafId": found["leafId"], "warnings": _warnings(found)}
    answer = _about(talk, found, head) | {"total": len(nodes), "offset": offset}
    wanted = nodes[offset : offset + limit]
    room = BYTES_MAX - size(answer) - _REST
    page = fitting(wanted, room, lambda one: talk.renderer.render(_only(one, _NODE)))
    end = offset + len(page)
    answer |= {"nodes": page} | ({"nextOffset": end} if end < len(nodes) else {})
    return answer | ({"truncated": ["nodes"]} if len(page) < len(wanted) else {})


def branches(talk: Conversation, ref: str) -> Answer:
    """`list_branches`: the current branch, then those that were active last."""
    found = talk.ask("branches", ref=talk.resolve(ref)["sessionId"])
    tips = sorted(found["tips"], key=lambda tip: str(tip.get("lastActivity")), reverse=True)
    tips.sort(key=lambda tip: not tip.get("active"))
    shown = {"leafId": found["leafId"], "branches": [_only(one, _TIP) for one in tips]}
    return bounded(_about(talk, found, shown) | {"total": len(tips)})


def query(talk: Conversation, ref: str, **asked: Any) -> Answer:
    """`query_session`: an answer from one session, with citations."""
    found = talk.ask("query_session", session=talk.resolve(ref)["sessionId"], **asked)
    fields = ["answerMarkdown", "confidence", "citations", "notes", "usage"]
    return bounded(_about(talk, found, _only(found, fields), "answered"))


def expand(talk: Conversation, text: str, *, turn_id: str | None) -> Answer:
    """`expand_references`: what `@@…` in a text stands for."""
    found = talk.ask(
        "expand",
        text=text,
        cwd=talk.cwd,
        sessionId=talk.own_id(),
        turnId=turn_id,
        maxBytes=INJECTED_MAX,
    )
    answer = {
        "references": [_only(one, _REFERENCE) for one in found["references"]],
        "messages": [one["content"] for one in found["messages"]],
        "statusText": found.get("statusText") or [],
    }
    return _rendered(talk, f"Messages quote the sessions that they name: {DATA}.", answer)


def set_context(talk: Conversation, ref: str, **given: Any) -> Answer:
    """`set_relevant_context`; without a reference, of the running session."""
    which = {"session": ref, "cwd": talk.cwd} if ref else {"session": talk.running()["sessionId"]}
    found = talk.ask("set_relevant_context", **which, **given)
    fields = ["sessionId", "text", "contextChanged", "setName", "warnings"]
    rendered: Answer = talk.renderer.render({"sessionId": which["session"]} | _only(found, fields))
    return rendered


def get_context(talk: Conversation, ref: str, name: str | None) -> Answer:
    """`get_relevant_context`: whole items, as many of each set as fit."""
    which = {"session": ref, "cwd": talk.cwd} if ref else {"session": talk.running()["sessionId"]}
    found = talk.ask("get_relevant_context", **which, setName=name)
    session_id = found.get("sessionId") or which["session"]
    held: dict[str, list[str]] = talk.renderer.render(found["context"], "context")
    kept, most = held, max(map(len, held.values()), default=0)
    while size(kept) > BYTES_MAX - _REST and most:
        most //= 2
        kept = {key: items[:most] for key, items in held.items()}
    answer = _rendered(talk, f"Noted in session {session_id}: {DATA}.", {"sessionId": session_id})
    left = {key: len(held[key]) - len(kept[key]) for key in held if len(held[key]) > len(kept[key])}
    return answer | {"context": kept} | ({"leftOut": left} if left else {})


def history(
    talk: Conversation, ref: str, *, full: bool, limit: int, before: int, leaf: str
) -> Answer:
    """`session_history`: segments, then the messages that are in none, the newest that fit.

    Messages are counted from 0 on the path, and a segment stands for a range of them: `before`
    is such a number, and 0 means the end.
    """
    session_id = talk.resolve(ref)["sessionId"]
    found = talk.ask("history", ref=session_id, full=full or None, leaf=leaf or None)
    answer = _about(talk, found, _only(found, ["leafId", "fullMessageCount", "foldedMessages"]))
    before = before or int(found["fullMessageCount"]) + 1
    messages = [one for one in found["recent"] if one["n"] < before]
    segments = [one for one in found["segments"] if one["covering_messages"][0] < before]
    room = BYTES_MAX - size(answer) - _REST
    share = room * 2 // 3 if segments else room
    recent = fitting(messages[::-1][:limit], share, lambda one: _message(talk, one, full))[::-1]
    folded: list[Any] = []
    left = room - size(recent)
    if len(recent) == len(messages) or before > int(found["fullMessageCount"]):
        folded = fitting(segments[::-1], left, lambda one: _segment(talk, one, full))[::-1]
    answer |= {"segments": folded, "recent": recent}
    if len(recent) < len(messages):
        answer["nextBefore"] = recent[0]["n"]
    elif len(folded) < len(segments):
        answer["nextBefore"] = folded[0]["covering"][0]
    return bounded(answer)


def _message(talk: Conversation, one: Mapping[str, Any], full: bool) -> Answer:
    text = one["text"]
    body = {"content": text[:4000]} if full else {"text": text}
    shown = talk.renderer.render(_only(one, ["n", "role", "entryId", "at"]) | body)
    return {("text" if key == "content" else key): value for key, value in shown.items()}


def _segment(talk: Conversation, one: Mapping[str, Any], full: bool) -> Answer:
    rendered: Answer = talk.renderer.render(
        {
            "covering": one["covering_messages"],
            "content": str(one["content"])[: 5000 if full else 1000],
            "keyDecisions": one.get("key_decisions") or [],
            "filesModified": (one.get("files_modified") or [])[:30],
            "generatedAt": one.get("generated_at"),
            "model": one.get("model"),
        }
    )
    return rendered


def stats(talk: Conversation, ref: str) -> Answer:
    """`session_stats`; without a reference, of the running session."""
    found = talk.ask("stats", ref=talk.resolve(ref)["sessionId"])
    return bounded(_about(talk, found, dict(found)))


def compact(talk: Conversation, ref: str, **given: Any) -> Answer:
    """`compact_session`: a summary, or a hand-off; without a reference, of the running session."""
    found = talk.ask("compact", ref=talk.resolve(ref)["sessionId"], **given)
    fields = [
        "strategy",
        "tokensBefore",
        "firstKeptEntryId",
        "messagesSummarized",
        "isSplitTurn",
        "alreadyCompacted",
        "usage",
        "notes",
    ]
    answer = _about(talk, found, _only(found, fields), "summarised")
    if "handoff" in found:
        document = talk.renderer.render(found["handoff"], "handoff")
        room = BYTES_MAX - size(answer) - _REST
        return answer | {"handoff": _shortened(document, room, str(answer["sessionId"]))}
    details = found.get("details") or {}
    shown = {
        "summary": found["summary"],
        "filesModified": details.get("modifiedFiles") or [],
        "filesRead": details.get("readFiles") or [],
    }
    answer |= talk.renderer.render(shown)
    if "replacementHistory" in found:  # the last one is the summary
        kept = found["replacementHistory"][:-1][::-1]
        answer["replacementHistory"] = fitting(kept, REPLACED_BYTES, talk.renderer.render)[::-1]
    return bounded(answer)


def _shortened(document: str, most: int, session_id: str) -> str:
    """A document in `most` bytes of JSON: whole lines, the first and the last of them."""
    if size(document) <= most:
        return document
    lines = document.split("\n")
    first = len(fitting(lines, most * 3 // 5, str))
    last = len(fitting(lines[first:][::-1], most // 4, str))
    remark = (
        f"({len(lines) - first - last} lines are left out here;"
        f" `indexerd compact {session_id} --handoff` prints all of it.)"
    )
    return "\n".join([*lines[:first], "", remark, "", *lines[len(lines) - last :]])


def branch(talk: Conversation, ref: str, **given: Any) -> Answer:
    """`summarize_branch`."""
    found = talk.ask("branch_summary", ref=talk.resolve(ref, certain=True)["sessionId"], **given)
    fields = ["leafId", "summary", "usage", "notes"]
    details = found.get("details") or {}
    files = {
        "filesModified": details.get("modifiedFiles") or [],
        "filesRead": details.get("readFiles") or [],
    }
    return bounded(_about(talk, found, _only(found, fields) | files, "summarised"))


def digest(talk: Conversation, ref: str, *, dry: bool) -> Answer:
    """`digest_session`; without a reference, of the running session."""
    session_id = talk.resolve(ref, certain=not dry)["sessionId"]
    found = talk.ask("digest", ref=session_id, dryRun=dry or None)
    segment = found.get("segment")
    shown = _only(found, [*_FIGURES, "topics", "commands", "reason", "usage", "notes"]) | {
        "made": segment is not None,
        "filesModified": found.get("files") or [],
        "keyDecisions": found.get("decisions") or [],
    }
    if segment is not None:
        shown |= {"covering": segment["covering_messages"], "content": segment["content"]}
    return bounded(_about(talk, found, shown, "summarised"))


def failure(bad: IndexerdError, renderer: Renderer) -> Answer:
    """An error of the tree as a tool tells it."""
    told: Answer = {
        "code": bad.kind,
        "message": renderer.line(bad),
        "hint": renderer.line(bad.hint),
        "retryable": bad.retryable,
    }
    if bad.upstream is not None:
        told["upstream"] = renderer.render(bad.upstream, "code")
    if isinstance(bad, AmbiguousError):
        some = [_only(one, ["sessionId", "name"]) for one in bad.candidates[:20]]
        told["candidates"] = renderer.render(some)
    return told


def _about(talk: Conversation, found: Mapping[str, Any], fields: Answer, deed: str = "") -> Answer:
    """Which session an answer is about and who wrote it, before its rendered fields."""
    row = talk.ask("get", ref=found["sessionId"])["session"]
    model = (found.get("usage") or {}).get("model")
    head = _only(row, ["sessionId", "name"]) | fields
    rendered: Answer = talk.renderer.render(head)
    provenance = _from(row, f"; {deed} by {model}" if deed and model else "")
    return {"provenance": talk.renderer.line(provenance)} | rendered


def _rendered(talk: Conversation, provenance: str, fields: Answer) -> Answer:
    rendered = talk.renderer.render(fields)
    return bounded({"provenance": talk.renderer.line(provenance)} | rendered)


def _from(row: Mapping[str, Any], by: str) -> str:
    return f"From session {row['sessionId']}, written by agent {row['agent']}{by}: {DATA}."


def _warnings(found: Mapping[str, Any]) -> list[str]:
    return list(found.get("warnings") or ())[:10]


def _only(value: Mapping[str, Any], fields: Sequence[str]) -> Answer:
    return {key: value[key] for key in fields if key in value}
