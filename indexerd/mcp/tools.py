"""The tools of the MCP server as a model sees them, and what each answers.

A tool is a function: its docstring is what the model reads (when to call it, what it gives, what
to do next). `@tool` names its parameters, which `PARAMETERS` describes: `name!` is required, and
`name=10` has a default. It asks a method of the daemon and gives the answer, made safe for a model,
in at most `BYTES_MAX`; what does not fit is cut and named in `truncated`, or on a next page. A text
beside the answer is for readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from mcp_types import Tool as Described
from mcp_types import ToolAnnotations
from msgspec import Meta

from indexerd.mcp.daemon_client import Conversation
from indexerd.mcp.rendering import BYTES_MAX, DATA, Answer, bounded, fitting, size
from indexerd.meta.context_sets import NAME_MAX, NOTHING
from indexerd.privacy.sanitize import escape_path

LOOK = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
ASK = LOOK.model_copy(update={"idempotent_hint": False, "open_world_hint": True})  # a model
NOTE = LOOK.model_copy(update={"read_only_hint": False})  # writes what it is given
MAKE = ASK.model_copy(update={"read_only_hint": False})  # writes what a model makes

INJECTED_MAX = 12_000  # bytes of what references stand for: the daemon cuts at whole sessions
_REST = 400  # bytes of an answer for the fields that are known last
_BRIEF = "sessionId name agent description tags cwd modifiedAt userMessageCount state"
_BRIEF += " parentSessionId gone subagent"
_SESSION = _BRIEF + " createdAt messageCount firstUserMessage models filesModified filesRead"
_SESSION += " toolsUsed gitBranch parentSessionFile"

Filter = Literal["user-only", "no-tools", "default", "labeled-only", "all"]
Mode = Literal["replace", "merge"]
Strategy = Literal["own", "pi", "codex", "opencode"]

_SESSION_IS = (
    "A session: its id, an id's beginning (6 characters or more), its name, or nearly its name."
    " Where it may be left out, that means the session you are running in; you get an error with"
    " the candidates where that cannot be told for certain."
)
# As in `protocol/params.py`: type, greatest length or value, and what a model is told.
PARAMETERS: dict[str, tuple[Any, int, str]] = {
    "session": (str, 400, _SESSION_IS),
    "ref": (str, 400, _SESSION_IS),
    "cwd": (str, 4096, "The project: a directory and all below; otherwise that of this server."),
    "query": (str, 1000, 'Words, a "phrase in quotes", or re:pattern.'),
    "question": (str, 4000, "One self-contained question."),
    "text": (str, 200_000, "The text with the references, verbatim."),
    "all_projects": (bool, 0, "True: look in every project at once."),
    "agent": (str, 64, "Only sessions of this agent: pi, claude, codex, opencode."),
    "since": (str, 64, "Only sessions active since then: an ISO-8601 date or time."),
    "archived": (bool, 0, "True: archived and lost ones, too."),
    "subagents": (bool, 0, "True: those of sub-agents, too."),
    "limit": (int, 200, "How many at most."),
    "cursor": (str, 400, "nextCursor of the page before."),
    "offset": (int, 1_000_000, "Leave out so many."),
    "before": (int, 100_000_000, "nextBefore of the page before; 0: the newest."),
    "leaf": (str, 200, "A branch: the id of its last entry (list_branches)."),
    "turnId": (str, 200, "For hosts: the user's turn; its questions are counted together."),
    "show": (Filter, 0, "Which entries; user-only is what the user asked, in order."),
    "search": (str, 400, "Only entries that have all these words."),
    "full": (bool, 0, "True: texts whole, or nearly so."),
    "setName": (str, NAME_MAX, "files, endpoints, ports or applet; others work, with a warning."),
    "items": (list[str], 10, "At most 10; files as absolute paths. With replace, [] clears."),
    "mode": (Mode, 0, "Replace the set, or add to it."),
    "strategy": (Strategy, 0, "Whose rules of what is summed up; own: its agent's."),
    "instructions": (str, 4000, "What the summary should dwell on."),
    "handoff": (bool, 0, "True: one document to begin a new session with, instead."),
    "dryRun": (bool, 0, "True: only the figures as they are; no model is called."),
}


class Tool(NamedTuple):
    """A tool. `params` takes its arguments, and `cwd`, which every tool has."""

    answer: Callable[..., Answer | tuple[Answer, str]]
    params: type[msgspec.Struct]
    described: Described


TOOLS: dict[str, Tool] = {}


def _field(declared: str) -> tuple[str, Any, Any]:
    name, _, number = declared.rstrip("!").partition("=")
    kind, most, description = PARAMETERS[name]
    default: Any = get_args(kind)[0] if get_origin(kind) is Literal else kind()
    bounds: dict[str, Any] = {}
    if kind is str:
        bounds = {"max_length": most} | ({"min_length": 1} if declared.endswith("!") else {})
    elif kind is int:
        default = int(number or 0)
        bounds = {"ge": min(default, 1), "le": most}
    elif most:  # the daemon says what is wrong with a longer list
        bounds = {"extra_json_schema": {"maxItems": most}}
    kind = Annotated[kind, Meta(description=description, **bounds)]
    return name, kind, msgspec.NODEFAULT if declared.endswith("!") else default


def tool(
    title: str, params: str, hints: ToolAnnotations = LOOK
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function as a tool."""

    def add(answer: Callable[..., Any]) -> Callable[..., Any]:
        name = answer.__name__
        taken = msgspec.defstruct(
            name,
            [_field(one) for one in f"{params} cwd".split()],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        schema = msgspec.json.schema(taken)["$defs"][name]
        described = Described(
            name=name,
            title=title,
            description=" ".join((answer.__doc__ or "").split()),
            input_schema={key: one for key, one in schema.items() if key != "title"},
            output_schema={"type": "object"},
            annotations=hints,
        )
        TOOLS[name] = Tool(answer, taken, described)
        return answer

    return add


@tool("Search past sessions", "query! all_projects agent since limit=10")
def search_sessions(talk: Conversation, *, all_projects: bool, **asked: Any) -> Answer:
    """Search the past sessions of every coding agent on this machine.

    What was said, summarised, named or tagged is searched. Call it when the user speaks of earlier
    work ("as we did with…", "why did we decide…"), or before you solve again what may have been
    worked out already. Gives the best places, with session, snippet and entry id; other projects
    only if nothing is found in this one. Next: get_session, or query_session to ask it.
    """
    cwd = None if all_projects else talk.cwd
    found = talk.ask("search", **asked, rows=True, cwd=cwd)
    if not found["hits"] and cwd:
        cwd, found = None, talk.ask("search", **asked, rows=True)
    rows = found.get("rows") or {}
    of_row = "agent cwd modifiedAt description"
    hits = [one | _only(rows.get(one["sessionId"], {}), of_row) for one in found["hits"]]
    answer = {"scope": "project" if cwd else "all", "hits": hits} | _only(found, "warnings")
    return _of_several(talk, "Names and snippets are from the sessions named", answer)


@tool(
    "List past sessions",
    "all_projects agent since archived subagents limit=10 cursor",
)
def list_sessions(talk: Conversation, *, all_projects: bool, limit: int, **asked: Any) -> Answer:
    """List the sessions of this project, newest first, with names and descriptions.

    Call it to see what was worked on lately, or to find a session whose words you do not know. A
    fork names its `parentSessionId`. Next: get_session; search_sessions if you know a word of it.
    """
    cwd = None if all_projects else talk.cwd
    while True:
        found = talk.ask("list", **asked, cwd=cwd, limit=limit)
        rows = [_only(one, _BRIEF) for one in found["sessions"]]
        limit = len(fitting(rows, BYTES_MAX - 3 * _REST, talk.renderer.render))
        if limit == len(rows):
            break  # else once more, so that the next page begins where this one ends
    answer = {"scope": "project" if cwd else "all", "sessions": rows}
    answer |= _only(found, "nextCursor")
    return _of_several(talk, "Names and descriptions are from the sessions", answer)


@tool("Look at a past session", "session!")
def get_session(talk: Conversation, *, session: str) -> Answer:
    """Get everything known of one past session without reading its transcript.

    Summary, decisions, files read and modified, tools, models, noted context, the sessions that it
    was forked from, and how to resume it. Call it when you know which session is meant. Next:
    query_session for what the summary leaves out.
    """
    found = talk.ask("get", ref=talk.id_of(session))
    row, meta = found["session"], found.get("meta") or {}
    answer = _only(row, _SESSION) | _only(found, "context labels warnings")
    answer |= {"summary": "", "keyDecisions": []} | _only(meta, "summary keyDecisions")
    if row.get("parentSessionId"):
        answer["forkedFrom"] = _ancestors(talk, row)
    by = f"summarised by {meta['model']}" if meta.get("model") else ""
    return bounded(talk.attributed(row, answer, by)) | {"resume": _command(talk, row)[0]}


@tool("Ask a past session", "session! question! leaf turnId", ASK)
def query_session(talk: Conversation, *, session: str, **asked: Any) -> Answer:
    """Ask one past session a question, answered from its transcript with citations.

    Call it when a summary is not enough: exact commands, error messages, values, reasons. It may
    use the model that the user configured, which takes some seconds and may cost a little, so ask
    one good question rather than many. Next: look at the cited entries in get_tree.
    """
    found = talk.ask("query_session", session=talk.id_of(session), **asked)
    return bounded(talk.about(found, "answered"))


@tool("Find the session a name means", "ref! all_projects")
def resolve_session(talk: Conversation, *, ref: str, all_projects: bool) -> Answer:
    """Say which session a name, a part of an id, or a half-remembered name means.

    Call it when the user names a session. Where several fit you get an error with the candidates:
    ask the user, or compare them by get_session. Next: get_session or query_session with the id.
    """
    found = talk.resolve(ref, scope="all" if all_projects else "project")
    return dict(talk.renderer.render(found))


@tool("Expand @@ references", "text! turnId", ASK)
def expand_references(talk: Conversation, **asked: Any) -> Answer:
    """Say what the `@@` references in a text stand for.

    They are `@@name`, `@@id`, `@@"a name"`, `@@name~2` (with two ancestors), and `@@name: a
    question?`. Call it when a message of the user holds one and no quoted summary came with it.
    Gives the quoted summaries, and answers to the questions, which may use the user's model;
    `questions` of a reference says which failed, and why. Next: query_session.
    """
    asked |= {"cwd": talk.cwd, "sessionId": talk.own_id(), "maxBytes": INJECTED_MAX}
    found = talk.ask("expand", **asked)
    answer = _only(found, "references statusText")
    answer["messages"] = [one["content"] for one in found["messages"]]
    return _of_several(talk, "Messages quote the sessions that they name", answer)


@tool("Look through a session's messages", "session! show search limit=50 offset")
def get_tree(
    talk: Conversation, *, session: str, show: str, search: str, limit: int, offset: int
) -> Answer:
    """Look through the messages of one past session, in order, with every branch.

    Gives a short line for each entry, indented by `depth`; `active` marks the current path. Call
    it to see how a session went, or to find the entry that a question is about. A page holds at
    most 18 kB. Next: go on with `nextOffset` as `offset`, or ask query_session.
    """
    found = talk.ask("tree", ref=talk.id_of(session), filter=show, search=search)
    nodes = found.pop("nodes")
    answer = talk.about(found) | {"total": len(nodes), "offset": offset}
    wanted = nodes[offset : offset + limit]
    page = fitting(wanted, BYTES_MAX - size(answer) - _REST, talk.renderer.render)
    end = offset + len(page)
    answer |= {"nodes": page} | ({"nextOffset": end} if end < len(nodes) else {})
    return answer | ({"truncated": ["nodes"]} if len(page) < len(wanted) else {})


@tool("List a session's branches", "session!")
def list_branches(talk: Conversation, *, session: str) -> Answer:
    """List the branches of one past session, each by its last entry.

    Call it to learn what was tried and left, or to get the `leaf` that other tools take. `gist` is
    what is known of a branch. Next: summarize_branch for one without a gist, query_session or
    session_history with its `leafId` as `leaf`.
    """
    found = talk.ask("branches", ref=talk.id_of(session))
    found["tips"].sort(key=lambda tip: (tip["active"], tip["lastActivity"] or ""), reverse=True)
    return bounded(talk.about(found))


@tool("Note what this session works with", "setName! items! mode session", NOTE)
def set_relevant_context(talk: Conversation, *, session: str, **asked: Any) -> tuple[Answer, str]:
    """Note what this session is working with, so that a resumed session has it again.

    Call it when you have read or edited a file that the work turns on (or endpoints, ports), when
    such a thing changes, and before you finish. Gives what was stored.
    """
    session_id = talk.id_of(session, certain=True)
    found = talk.ask("set_relevant_context", session=session_id, **asked)
    answer = talk.renderer.render({"sessionId": session_id} | found)
    # In the older tool's words, and what else is to be said.
    return answer, "\n".join([answer["text"], *(f"note: {one}" for one in answer["warnings"])])


@tool("What a session works with", "setName session")
def get_relevant_context(talk: Conversation, *, session: str, **asked: Any) -> Any:
    """Get what was noted with set_relevant_context: files, endpoints, ports.

    Call it at the beginning of a resumed session, or to learn what files a past session was about.
    Next: read those files before you go on.
    """
    session_id = talk.id_of(session)
    found = talk.ask("get_relevant_context", session=session_id, **asked)
    noted = {"sessionId": session_id, "context": found["context"]}
    answer = _of_several(talk, f"Noted in session {session_id}", noted)
    return answer if found["context"] else (answer, NOTHING)


@tool("How to resume a session", "session!")
def resume_command(talk: Conversation, *, session: str) -> Answer:
    """Get the shell command that opens a past session again in its own agent.

    Call it when the user wants to go on with an earlier session. Next: show the command to the
    user; do not run it yourself, as it starts an interactive program.
    """
    row = talk.ask("get", ref=talk.id_of(session))["session"]
    command, note = _command(talk, row)
    shown: Answer = talk.renderer.render(_only(row, "sessionId name agent cwd"))
    return shown | {"command": command, "note": note}


@tool("Read a long session as a page", "session! full limit=10 before leaf")
def session_history(
    talk: Conversation, *, session: str, full: bool, limit: int, before: int, leaf: str
) -> Answer:
    """Read what one past session came to: summaries of its older parts, then its last messages.

    Call it to go on with a long session's work. Gives the segments that digests made, and `limit`
    messages after them, a line each; `full` gives more of each text. It calls no model. Next:
    `nextBefore` as `before` for what came earlier; query_session for a detail.
    """
    found = talk.ask("history", ref=talk.id_of(session), full=full, leaf=leaf)
    answer = talk.about(_only(found, "sessionId leafId fullMessageCount foldedMessages"))
    first = not before
    before = before or found["fullMessageCount"] + 1  # messages are counted from 0
    messages = [one for one in found["recent"] if one["n"] < before]
    if full:  # with its lines
        messages = [one | {"text": "", "content": one["text"]} for one in messages]
    segments = [one for one in found["segments"] if one["covering_messages"][0] < before]
    room, render = BYTES_MAX - size(answer) - _REST, talk.renderer.render
    recent = fitting(messages[::-1][:limit], room * 2 // 3, render)[::-1]
    whole = len(recent) == len(messages)
    folded = fitting(segments[::-1] if first or whole else (), room - size(recent), render)[::-1]
    answer |= {"segments": folded, "recent": recent}
    if not whole:
        answer["nextBefore"] = recent[0]["n"]
    elif len(folded) < len(segments):
        answer["nextBefore"] = folded[0]["covering_messages"][0]
    return bounded(answer)


@tool("How full a session is", "session")
def session_stats(talk: Conversation, *, session: str) -> Answer:
    """Tell how full a session's context is, and what the session came to so far.

    Tokens of the context, the model's window where that is known, which agents would compact it
    now, and totals. Call it before you go on with a long session. It calls no model. Next:
    compact_session with `handoff`, or digest_session.
    """
    return bounded(talk.about(talk.ask("stats", ref=talk.id_of(session))))


@tool("Sum up a session, or hand it over", "session strategy instructions handoff leaf", ASK)
def compact_session(talk: Conversation, *, session: str, strategy: str, **asked: Any) -> Any:
    """Sum up a session of any agent, as an agent's own compaction would; it stays as it is.

    Call it when the user wants to go on elsewhere with what a session did, with `handoff` for one
    document that holds all that is needed. It uses the model that the user configured, which may
    take minutes and cost something: call it once, and when asked to. Next: read the instruction
    files that a hand-off names; give the document to whoever goes on.
    """
    rules = "" if strategy == "own" else strategy
    found = talk.ask("compact", ref=talk.id_of(session), strategy=rules, **asked)
    answer = bounded(talk.about(found, "summarised"))
    if "handoff" in answer:
        return answer, f"{answer['provenance']}\n\n{answer['handoff']}"
    return answer


@tool("Sum up a branch that was left", "session! leaf! instructions", MAKE)
def summarize_branch(talk: Conversation, *, session: str, **asked: Any) -> Answer:
    """Sum up a branch of a session that was left, back to where it parted from the current one.

    Call it when it matters what was tried there and list_branches has no gist of it. The summary
    is kept beside the session. It uses the model that the user configured, which may take minutes
    and cost something. Next: query_session with the same `leaf` for a detail.
    """
    found = talk.ask("branch_summary", ref=talk.id_of(session, certain=True), **asked)
    return bounded(talk.about(found, "summarised"))


@tool("Fold a session's older messages", "session dryRun", MAKE)
def digest_session(talk: Conversation, *, session: str, **asked: Any) -> Answer:
    """Fold the older messages of a session into a summary, which session_history shows.

    Call it when session_history shows many messages in no segment, or the user asks for it. What
    is made is kept beside the session, which stays as it is. It uses the model that the user
    configured, which may take minutes and cost something. Next: session_history.
    """
    session_id = talk.id_of(session, certain=not asked["dryRun"])
    return bounded(talk.about(talk.ask("digest", ref=session_id, **asked), "summarised"))


def _only(value: Mapping[str, Any], fields: str) -> Answer:
    """The named fields, without those that say nothing."""
    found = {key: value.get(key) for key in fields.split()}
    return {key: one for key, one in found.items() if one is not None and one is not False}


def _of_several(talk: Conversation, whose: str, fields: Answer) -> Answer:
    return bounded({"provenance": f"{whose}: {DATA}."} | talk.renderer.render(fields))


def _ancestors(talk: Conversation, row: Mapping[str, Any]) -> list[Answer]:
    """The sessions that one was forked from, its parent first; no name: not known here."""
    members = {one["sessionId"]: one for one in talk.ask("family", ref=row["sessionId"])["members"]}
    found: list[Answer] = []
    while (parent := row.get("parentSessionId")) and len(found) <= len(members):
        row = members.get(parent, {})
        found.append({"sessionId": parent, "name": row.get("name", "")})
    return found


def _command(talk: Conversation, row: Mapping[str, Any]) -> tuple[str | None, str]:
    """A resume command, never changed: what could act on a terminal is not given."""
    command = str(row.get("resume") or "")
    if row.get("gone") or not command:
        return None, "the session's file is gone: there is nothing to resume"
    if escape_path(command) != command:
        session_id = talk.renderer.render(row["sessionId"], "sessionId")
        return None, f"show the user: run `indexerd resume {session_id}`"
    return command, "for the user to run in a terminal of their own"
