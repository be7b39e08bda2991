"""The tools of the MCP server.

A tool is a function. The model reads its docstring: what it does, when to call it, what to do next.
`@tool` names its parameters, which `PARAMETERS` describes: `name!` is required, `name=10` has a
default. A tool calls a method of the daemon and returns the answer, made safe for a model, in at
most `BYTES_MAX`; what does not fit is named in `truncated`, or is on the next page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from mcp_types import Tool as Described
from mcp_types import ToolAnnotations
from msgspec import Meta

from indexerd.mcp.daemon_client import Conversation
from indexerd.mcp.rendering import DATA, Answer, bounded
from indexerd.meta.sidecar import NAME_MAX
from indexerd.privacy.sanitize import escape_path

LOOK = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
ASK = LOOK.model_copy(update={"idempotent_hint": False, "open_world_hint": True})  # a model
NOTE = LOOK.model_copy(update={"read_only_hint": False})  # stores its arguments
MAKE = ASK.model_copy(update={"read_only_hint": False})  # stores a model's answer

INJECTED_MAX = 12_000  # bytes of expanded references: the daemon cuts at whole sessions
_BRIEF = """sessionId name agent description tags cwd modifiedAt userMessageCount state
parentSessionId gone subagent"""
_SESSION = f"""{_BRIEF} createdAt messageCount firstUserMessage models filesModified filesRead
toolsUsed gitBranch parentSessionFile"""

Filter = Literal["user-only", "no-tools", "default", "labeled-only", "all"]
Strategy = Literal["own", "pi", "codex", "opencode"]

_SESSION_IS = (
    "A session: its id, a prefix of it (6 characters or more), its name, or a similar name. Where"
    " this is optional, the default is the session you are running in, or an error with candidates."
)
# Type, maximum length or value (as in `protocol/params.py`), and a description for the model.
PARAMETERS: dict[str, tuple[Any, int, str]] = {
    "session": (str, 400, _SESSION_IS),
    "ref": (str, 400, _SESSION_IS),
    "cwd": (str, 4096, "The project: this directory and below. Default: the server's directory."),
    "query": (str, 1000, 'Words, a "phrase in quotes", or re:pattern; tag:NAME narrows it.'),
    "question": (str, 4000, "One self-contained question."),
    "text": (str, 200_000, "The text with the references, verbatim."),
    "all_projects": (bool, 0, "True: search every project."),
    "agent": (str, 64, "Only sessions of this agent: pi, claude, codex, opencode."),
    "since": (str, 64, "Only sessions active since then: an ISO-8601 date or time."),
    "archived": (bool, 0, "True: include archived sessions, and those whose file is gone."),
    "subagents": (bool, 0, "True: include sub-agents' sessions."),
    "limit": (int, 200, "Maximum number of results."),
    "cursor": (str, 400, "nextCursor of the previous page."),
    "offset": (int, 1_000_000, "Number of results to skip."),
    "before": (int, 100_000_000, "nextBefore of the previous page; 0: the newest."),
    "leaf": (str, 200, "A branch: the id of its last entry (list_branches)."),
    "turnId": (str, 200, "Set by hosts: the user's turn, in which questions are limited."),
    "show": (Filter, 0, "Which entries to show; user-only: the user's prompts, in order."),
    "search": (str, 400, "Only entries with all these words."),
    "full": (bool, 0, "True: whole texts; only very long ones are cut."),
    "setName": (str, NAME_MAX, "files, endpoints, ports or applet; others work, with a warning."),
    "items": (list[str], 0, "At most 10; files as absolute paths. With replace, [] clears."),
    "mode": (Literal["replace", "merge"], 0, "Replace the set, or add to it."),
    "strategy": (Strategy, 0, "Whose compaction rules to use; own: the session's own agent's."),
    "instructions": (str, 4000, "What the summary should focus on."),
    "handoff": (bool, 0, "True: one document to start a new session with, instead."),
    "dryRun": (bool, 0, "True: only report the current figures; no model is called."),
}


class Tool(NamedTuple):
    """A tool. `params` has its arguments, and `cwd`, which every tool takes."""

    answer: Callable[..., Answer]
    params: type[msgspec.Struct]
    described: Described


TOOLS: dict[str, Tool] = {}


def _field(declared: str) -> tuple[str, Any, Any]:
    name, _, number = declared.rstrip("!").partition("=")
    kind, most, description = PARAMETERS[name]
    default: Any = get_args(kind)[0] if get_origin(kind) is Literal else kind()
    bounds: dict[str, Any] = {"max_length": most} if kind is str else {}
    if kind is int:
        default = int(number or 0)
        bounds = {"ge": min(default, 1), "le": most}
    kind = Annotated[kind, Meta(description=description, **bounds)]
    return name, kind, msgspec.NODEFAULT if declared.endswith("!") else default


def tool(title: str, params: str, hints: ToolAnnotations = LOOK) -> Callable[[Any], Any]:
    """Declare a function as a tool."""

    def add(answer: Callable[..., Any]) -> Callable[..., Any]:
        name, fields = answer.__name__, map(_field, f"{params} cwd".split())
        taken = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        schema = msgspec.json.schema(taken)["$defs"][name]
        described = Described(
            name=name,
            title=title,
            description=" ".join((answer.__doc__ or "").split()),
            input_schema={key: value for key, value in schema.items() if key != "title"},
            output_schema={"type": "object"},
            annotations=hints,
        )
        TOOLS[name] = Tool(answer, taken, described)
        return answer

    return add


@tool("Search past sessions", "query! all_projects agent since limit=10")
def search_sessions(talk: Conversation, *, all_projects: bool, **params: Any) -> Answer:
    """Search the messages, summaries, names and tags of past sessions of every coding agent.

    Call it when the user mentions earlier work, or before you solve something that may already have
    been solved. Other projects are searched if this one has no hit. Next: get_session,
    query_session.
    """
    cwd = None if all_projects else talk.cwd
    result = talk.ask("search", **params, rows=True, cwd=cwd)
    if not result["hits"] and cwd:
        cwd, result = None, talk.ask("search", **params, rows=True)
    rows = result.get("rows") or {}
    of_row = "agent cwd modifiedAt description"
    hits = [hit | _only(rows.get(hit["sessionId"], {}), of_row) for hit in result["hits"]]
    answer = {"scope": "project" if cwd else "all", "hits": hits} | _only(result, "warnings")
    return _of_several(talk, "Names and snippets are from the sessions named", answer)


@tool("List past sessions", "all_projects agent since archived subagents limit=10 cursor")
def list_sessions(talk: Conversation, *, all_projects: bool, limit: int, **params: Any) -> Answer:
    """List the sessions of this project, newest first, with names and descriptions.

    Call it to see recent work, or to find a session without words to search for. A fork names its
    `parentSessionId`. Next: get_session.
    """
    cwd = None if all_projects else talk.cwd
    while True:
        result = talk.ask("list", **params, cwd=cwd, limit=limit)
        rows = [_only(row, _BRIEF) for row in result["sessions"]]
        fields = {"scope": "project" if cwd else "all", "sessions": rows}
        fields |= _only(result, "nextCursor")
        answer = _of_several(talk, "Names and descriptions are from the sessions", fields)
        limit = len(answer["sessions"])
        if limit == len(rows):
            return answer  # else ask again for fewer, so that the next page begins where this ends


@tool("Look at a past session", "session!")
def get_session(talk: Conversation, *, session: str) -> Answer:
    """Get everything known about one past session without reading its transcript.

    Summary, decisions, files, tools, noted context, its parent's id. Call it when you know which
    session is meant. Next: query_session for what the summary leaves out.
    """
    result = talk.ask("get", ref=talk.id_of(session))
    row, meta = result["session"], result.get("meta") or {}
    answer = _only(row, _SESSION) | _only(result, "context labels warnings")
    answer |= {"summary": "", "keyDecisions": []} | _only(meta, "summary keyDecisions")
    shown = talk.about(answer, "summarised", row=row, model=meta.get("model"))
    return bounded(shown) | {"resume": _command(talk, row)[0]}


@tool("Ask a past session", "session! question! leaf turnId", ASK)
def query_session(talk: Conversation, *, session: str, **params: Any) -> Answer:
    """Ask one past session a question, answered from its transcript with citations.

    Call it when a summary is not enough: commands, error messages, values, reasons. It may use the
    user's model: ask one good question rather than many. Next: the cited entries in get_tree.
    """
    result = talk.ask("query_session", session=talk.id_of(session), **params)
    return bounded(talk.about(result, "answered"))


@tool("Find the session a name means", "ref! all_projects")
def resolve_session(talk: Conversation, *, ref: str, all_projects: bool) -> Answer:
    """Find out which session a name, an id prefix, or a half-remembered name means.

    Call it when the user names a session. If several match, you get an error with the candidates:
    ask the user, or compare them with get_session. Next: get_session or query_session with the id.
    """
    result = talk.resolve(ref, scope="all" if all_projects else "project")
    return dict(talk.renderer.render(result))


@tool("Expand @@ references", "text! turnId", ASK)
def expand_references(talk: Conversation, **params: Any) -> Answer:
    """Get what the `@@` references in a text mean: quoted summaries, and answers to questions.

    They are `@@name`, `@@id`, `@@"a name"`, `@@name~2` (with two ancestors), and `@@name: a
    question?`, which may use the user's model. Call it when a message from the user has one and no
    quoted summary came with it. Next: query_session.
    """
    params |= {"cwd": talk.cwd, "sessionId": talk.own_id(), "maxBytes": INJECTED_MAX}
    result = talk.ask("expand", **params)
    answer = _only(result, "references statusText")
    answer["messages"] = [message["content"] for message in result["messages"]]
    return _of_several(talk, "Messages quote the sessions that they name", answer)


@tool("Look through a session's messages", "session! show search limit=50 offset")
def get_tree(
    talk: Conversation, *, session: str, show: str, search: str, limit: int, offset: int
) -> Answer:
    """Look through the messages of one past session, in order, with every branch.

    Call it to follow how a session went, or to find the entry that a question is about. `active`
    marks the current path. Next: `nextOffset` as `offset`, or query_session.
    """
    result = talk.ask("tree", ref=talk.id_of(session), filter=show, search=search)
    nodes = result["nodes"]
    page = {"total": len(nodes), "offset": offset, "nodes": nodes[offset : offset + limit]}
    answer = bounded(talk.about(result | page))
    end = offset + len(answer["nodes"])
    return answer | ({"nextOffset": end} if end < len(nodes) else {})


@tool("List a session's branches", "session!")
def list_branches(talk: Conversation, *, session: str) -> Answer:
    """List the branches of one past session, each by its last entry.

    Call it to learn what was tried and abandoned, or to get the `leaf` that other tools take.
    `gist` says what a branch was about. Next: summarize_branch for one that has none.
    """
    result = talk.ask("branches", ref=talk.id_of(session))
    result["tips"].sort(key=lambda tip: (tip["active"], tip["lastActivity"] or ""), reverse=True)
    return bounded(talk.about(result))


@tool("Note what this session works with", "setName! items! mode session", NOTE)
def set_relevant_context(talk: Conversation, *, session: str, **params: Any) -> Answer:
    """Note what this session is working with, so that a resumed session has it again.

    Call it when you have read or edited a file that is central to the work, when you start to use
    endpoints or ports, when any of these change, and before you finish.
    """
    session_id = talk.id_of(session, certain=True)
    result = talk.ask("set_relevant_context", session=session_id, **params)
    return dict(talk.renderer.render({"sessionId": session_id} | result))


@tool("What a session works with", "setName session")
def get_relevant_context(talk: Conversation, *, session: str, **params: Any) -> Answer:
    """Get what was noted with set_relevant_context: files, endpoints, ports.

    Call it at the beginning of a resumed session, or to learn which files a past session was about.
    Next: read those files before you continue.
    """
    session_id = talk.id_of(session)
    result = talk.ask("get_relevant_context", session=session_id, **params)
    noted = {"sessionId": session_id} | _only(result, "context" if result["context"] else "text")
    return _of_several(talk, f"Noted in session {session_id}", noted)


@tool("How to resume a session", "session!")
def resume_command(talk: Conversation, *, session: str) -> Answer:
    """Get the shell command that reopens a past session in its own agent.

    Call it when the user wants to continue an earlier session. Next: show the command to the user;
    do not run it yourself, as it starts an interactive program.
    """
    row = talk.ask("get", ref=talk.id_of(session))["session"]
    shown: Answer = talk.renderer.render(_only(row, "sessionId name agent cwd"))
    return shown | dict(zip(("command", "note"), _command(talk, row), strict=True))


@tool("Read a long session as a page", "session! full limit=10 before leaf")
def session_history(
    talk: Conversation, *, session: str, full: bool, limit: int, before: int, leaf: str
) -> Answer:
    """Read one past session: summaries of its older parts, then its last messages.

    Call it to continue a long session's work. It calls no model. Next: `nextBefore` as `before` for
    earlier messages; query_session for a detail.
    """
    result = talk.ask("history", ref=talk.id_of(session), full=full, leaf=leaf)
    first, before = not before, before or result["fullMessageCount"] + 1
    parts = [part for part in result["segments"] if part["covering_messages"][0] < before]
    messages = [message for message in result["recent"] if message["n"] < before]
    if full:  # `content` keeps its lines
        messages = [message | {"text": "", "content": message["text"]} for message in messages]
    fields = _only(result, "sessionId leafId fullMessageCount foldedMessages")
    fields["recent"] = messages[::-1][:limit]  # newest first, since the end is cut
    fields["segments"] = parts[::-1] if first or len(messages) <= limit else []
    answer = bounded(talk.about(fields))
    recent, segments = answer["recent"], answer["segments"]
    if len(recent) < len(messages):
        answer["nextBefore"] = (recent or messages)[-1]["n"]
    elif len(segments) < len(parts):
        answer["nextBefore"] = (segments or parts)[-1]["covering_messages"][0]
    return answer | {"recent": recent[::-1], "segments": segments[::-1]}


@tool("How full a session is", "session")
def session_stats(talk: Conversation, *, session: str) -> Answer:
    """Get how full a session's context is, which agents would compact it now, and its totals.

    Call it before you continue a long session. It calls no model. Next: compact_session with
    `handoff`, or digest_session.
    """
    return bounded(talk.about(talk.ask("stats", ref=talk.id_of(session))))


@tool("Summarise a session, or hand it over", "session strategy instructions handoff leaf", ASK)
def compact_session(talk: Conversation, *, session: str, strategy: str, **params: Any) -> Answer:
    """Summarise a session of any agent, as an agent's own compaction would; it is not changed.

    Call it only when asked to, and once: it uses the user's model, which may take minutes and cost
    money. With `handoff` you get one document to continue elsewhere. Next: read the instruction
    files that it names.
    """
    rules = "" if strategy == "own" else strategy
    result = talk.ask("compact", ref=talk.id_of(session), strategy=rules, **params)
    return bounded(talk.about(result, "summarised"))


@tool("Summarise an abandoned branch", "session! leaf! instructions", MAKE)
def summarize_branch(talk: Conversation, *, session: str, **params: Any) -> Answer:
    """Summarise an abandoned branch of a session, and store the summary next to the session.

    Call it when it matters what was tried there and list_branches has no `gist` of it. It uses the
    user's model, which may take minutes and cost money. Next: query_session with that `leaf`.
    """
    result = talk.ask("branch_summary", ref=talk.id_of(session, certain=True), **params)
    return bounded(talk.about(result, "summarised"))


@tool("Fold a session's older messages", "session dryRun", MAKE)
def digest_session(talk: Conversation, *, session: str, **params: Any) -> Answer:
    """Fold a session's older messages into a summary that is stored next to the session.

    Call it when session_history shows many messages in no segment. It uses the user's model, which
    may take minutes and cost money. Next: session_history.
    """
    session_id = talk.id_of(session, certain=not params["dryRun"])
    return bounded(talk.about(talk.ask("digest", ref=session_id, **params), "summarised"))


def _only(value: Mapping[str, Any], fields: str) -> Answer:
    """Pick the named fields that are neither absent, null nor false."""
    picked = {key: value.get(key) for key in fields.split()}
    return {key: value for key, value in picked.items() if value is not None and value is not False}


def _of_several(talk: Conversation, whose: str, fields: Answer) -> Answer:
    return bounded({"provenance": f"{whose}: {DATA}."} | talk.renderer.render(fields))


def _command(talk: Conversation, row: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return a resume command, or None if it has a secret or control characters; and a note."""
    command = str(row.get("resume") or "")
    if row.get("gone") or not command:
        return None, "the session's file is gone: there is nothing to resume"
    if escape_path(command) != command or "resume" in row.get("shown", ()):
        session_id = talk.renderer.render(row["sessionId"], "sessionId")
        return None, f"show the user: run `indexerd resume {session_id}`"
    return command, "for the user to run in a terminal of their own"
