"""The tools of the MCP server as a model sees them, and what each answers.

A tool is a class: its docstring is the description (when to call it, what it gives, what to do
next), its fields are the parameters, `answer` calls a method of the daemon and gives JSON values
that `Renderer` has made safe, in at most `BYTES_MAX`; what does not fit is cut, named in
`truncated`, or on a next page. To add one: a class here, and its name in `TOOLS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from mcp_types import Tool as Described
from mcp_types import ToolAnnotations
from msgspec import Meta, Struct

from indexerd.mcp.daemon import Conversation
from indexerd.mcp.rendering import (
    BYTES_MAX,
    DATA,
    Answer,
    bounded,
    compact,
    fitting,
    provenance,
    reading,
    size,
)
from indexerd.meta.context_sets import NAME_MAX, NOTHING
from indexerd.privacy.sanitize import escape_path

LOOK = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
ASK = LOOK.model_copy(update={"idempotent_hint": False, "open_world_hint": True})  # a model
NOTE = LOOK.model_copy(update={"read_only_hint": False})  # writes what it is given
MAKE = ASK.model_copy(update={"read_only_hint": False})  # writes what a model makes

DESCRIPTION_MAX = 300  # characters of a description in a list
INJECTED_MAX = 12_000  # bytes of what references stand for: the daemon cuts at whole sessions
REPLACED_BYTES = 6000  # of what Codex would keep verbatim
_REST = 400  # bytes of an answer for the fields that are known last
_BRIEF = "sessionId name agent description tags cwd modifiedAt userMessageCount state"
_BRIEF += " parentSessionId gone subagent"
_SESSION = _BRIEF + " createdAt messageCount firstUserMessage models filesModified filesRead"
_SESSION += " toolsUsed gitBranch parentSessionFile"


def said(description: str, **bounds: Any) -> Meta:
    """What a model is told of a parameter, and its bounds."""
    return Meta(description=description, **bounds)


Session = Annotated[
    str,
    said(
        "The past session: its id, an id's beginning (6 characters or more), its name,"
        " or nearly its name.",
        min_length=1,
        max_length=400,
    ),
]
Own = Annotated[
    str,
    said(
        "Which session: id or name. Leave it out to mean the one you are running in;"
        " where that cannot be told for certain you get an error with the candidates.",
        max_length=400,
    ),
]
Everywhere = Annotated[bool, said("True: look in every project at once.")]
Agent = Annotated[
    str, said("Only sessions of this agent: pi, claude, codex, opencode.", max_length=64)
]
Since = Annotated[
    str, said("Only sessions active since then: an ISO-8601 date or time.", max_length=64)
]
Limit = Annotated[int, said("How many at most.", ge=1, le=50)]
Leaf = Annotated[
    str, said("Another branch: the id of its last entry (list_branches).", max_length=200)
]
Focus = Annotated[str, said("What the summary should dwell on.", max_length=4000)]
Turn = Annotated[
    str,
    said(
        "For hosts: their name of the user's turn; its questions are counted together.",
        max_length=200,
    ),
]


def _as_is(field: str) -> str:
    return field


class Tool(Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A tool."""

    title: ClassVar[str]
    hints: ClassVar[ToolAnnotations] = LOOK
    verbatim: ClassVar[bool] = True  # gives words of a session, not only what is known of it

    cwd: Annotated[
        str,
        said(
            "The project: a directory, its sub-directories included. Leave it out to"
            " mean the one this server was started in.",
            max_length=4096,
        ),
    ] = ""

    def answer(self, talk: Conversation) -> Answer:
        """What the tool gives."""
        raise NotImplementedError

    def shown(self, found: Answer) -> str:
        """The same for a reader."""
        return compact(reading(found))

    def asks_model(self) -> bool:
        """Whether this call costs the user something."""
        return bool(self.hints.open_world_hint)

    @classmethod
    def called(cls) -> str:
        """The tool's name."""
        return re.sub(r"\B([A-Z])", r"_\1", cls.__name__).lower()

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The parameters' schemas, without the titles for which a model would pay."""
        return dict(cls._schema()["properties"])

    @classmethod
    def _schema(cls) -> dict[str, Any]:
        schema: dict[str, Any] = msgspec.json.schema(cls)["$defs"][cls.__name__]
        return {key: one for key, one in schema.items() if key not in ("title", "description")}

    @classmethod
    def described(cls) -> Described:
        """The tool as hosts list it."""
        return Described(
            name=cls.called(),
            title=cls.title,
            description=" ".join(inspect.cleandoc(cls.__doc__ or "").split()),
            input_schema=cls._schema(),
            output_schema={"type": "object"},
            annotations=cls.hints,
        )


class SearchSessions(Tool, kw_only=True, rename=_as_is):
    """Search the past sessions of every coding agent on this machine.

    What was said, summarised, named or tagged is searched. Call it when the user speaks of earlier
    work ("as we did with…", "where did I…", "why did we decide…"), or before you work out anew
    what may have been worked out already. Gives the best places first, each with its session, a
    snippet and the entry's id; the current project is searched first, and the others only if
    nothing is found in it. Next: get_session for the summary of a hit's session, or query_session
    to ask it.
    """

    title = "Search past sessions"
    query: Annotated[
        str, said('Words, a "phrase in quotes", or re:pattern.', min_length=1, max_length=1000)
    ]
    all_projects: Everywhere = False
    agent: Agent = ""
    since: Since = ""
    limit: Limit = 10

    def answer(self, talk: Conversation) -> Answer:
        asked = {"query": self.query, "agent": self.agent, "since": self.since, "rows": True}
        cwd = None if self.all_projects else talk.cwd
        found = talk.ask("search", **asked, limit=self.limit, cwd=cwd)
        if not found["hits"] and cwd:
            cwd, found = None, talk.ask("search", **asked, limit=self.limit)
        rows = found.get("rows") or {}
        of_row = "agent cwd modifiedAt description"
        hits = [one | _only(rows.get(one["sessionId"], {}), of_row) for one in found["hits"]]
        answer = {"scope": "project" if cwd else "all", "hits": hits, "warnings": _warnings(found)}
        return _rendered(talk, f"Names and snippets are from the sessions named: {DATA}.", answer)


class ListSessions(Tool, kw_only=True, rename=_as_is):
    """List the sessions of this project, newest first, with names and descriptions.

    Call it to see what was worked on lately (with `limit` 1: the most recent one), or to find a
    session whose words you do not know. A fork names its `parentSessionId`. Next: get_session for
    more of one; search_sessions if you know a word of it.
    """

    title = "List past sessions"
    verbatim = False
    all_projects: Everywhere = False
    agent: Agent = ""
    since: Since = ""
    archived: Annotated[bool, said("True: archived and lost ones, too.")] = False
    subagents: Annotated[bool, said("True: those of sub-agents, too.")] = False
    limit: Limit = 10
    cursor: Annotated[str, said("nextCursor of the page before.", max_length=400)] = ""

    def answer(self, talk: Conversation) -> Answer:
        cwd = None if self.all_projects else talk.cwd
        narrowing = msgspec.structs.asdict(self)
        del narrowing["all_projects"]
        limit = self.limit
        while True:
            found = talk.ask("list", **narrowing | {"cwd": cwd, "limit": limit})
            rows = [_brief(talk, one) for one in found["sessions"]]
            kept = fitting(rows, BYTES_MAX - _REST, lambda row: row)
            if len(kept) == len(rows):
                break
            limit = len(kept)  # so that the next page begins where this one ends
        answer = {"scope": "project" if cwd else "all", "sessions": rows}
        head = {"provenance": f"Names and descriptions are from the sessions: {DATA}."}
        return head | answer | _only(found, "nextCursor")


class GetSession(Tool, kw_only=True):
    """Get everything known of one past session without reading its transcript.

    Summary, decisions, files read and modified, tools, models, noted context, the sessions that it
    was forked from, and how to resume it. Call it when you know which session is meant. Next:
    query_session for what the summary leaves out.
    """

    title = "Look at a past session"
    verbatim = False
    session: Session

    def answer(self, talk: Conversation) -> Answer:
        found = talk.ask("get", ref=talk.id_of(self.session))
        row, meta = found["session"], found.get("meta") or {}
        answer = _only(row, _SESSION) | {
            "summary": meta.get("summary") or "",
            "keyDecisions": meta.get("keyDecisions") or [],
            "context": found.get("context") or {},
            "labels": found.get("labels") or {},
            "warnings": _warnings(found),
        }
        if row.get("parentSessionId"):
            answer["forkedFrom"] = _ancestors(talk, row)
        by = f"; summarised by {meta['model']}" if meta.get("model") else ""
        return _rendered(talk, provenance(row, by), answer) | {"resume": _command(talk, row)[0]}


class QuerySession(Tool, kw_only=True):
    """Ask one past session a question, answered from its transcript with citations.

    Call it when a summary is not enough: exact commands, error messages, values, reasons for a
    decision. It may use the model that the user configured, which takes some seconds and may cost
    a little, so ask one good question rather than many. Next: look at the citations before you
    rely on the answer; they name entries that get_tree shows.
    """

    title, hints = "Ask a past session", ASK
    session: Session
    question: Annotated[str, said("One self-contained question.", min_length=1, max_length=4000)]
    leaf: Leaf = ""
    turn_id: Turn = ""

    def answer(self, talk: Conversation) -> Answer:
        session_id, asked = talk.id_of(self.session), {"leaf": self.leaf, "turnId": self.turn_id}
        found = talk.ask("query_session", session=session_id, question=self.question, **asked)
        return bounded(talk.about(found, found, "answered"))


class ResolveSession(Tool, kw_only=True, rename=_as_is):
    """Say which session a name, a part of an id, or a half-remembered name means.

    Call it when the user names a session. Where several fit you get an error with the candidates:
    ask the user, or compare them by get_session; none is ever picked silently. Next: get_session
    or query_session with the id.
    """

    title = "Find the session a name means"
    verbatim = False
    ref: Session
    all_projects: Everywhere = False

    def answer(self, talk: Conversation) -> Answer:
        found = talk.resolve(self.ref, scope="all" if self.all_projects else "project")
        answer: Answer = talk.renderer.render(_only(found, "sessionId name how score"))
        return answer


class ExpandReferences(Tool, kw_only=True):
    """Say what the `@@` references in a text stand for.

    They are `@@name`, `@@id`, `@@"a name"`, `@@name~2` (with two ancestors), and `@@name: a
    question?`. Call it when a message of the user holds one and no quoted summary of that session
    came with it. Gives the quoted summaries, and answers to the questions, which may use the
    user's model; `questions` of a reference says which failed, and why. Next: query_session for
    more of one, or for a question that failed.
    """

    title, hints = "Expand @@ references", ASK
    text: Annotated[str, said("The text with the references, verbatim.", max_length=200_000)]
    turn_id: Turn = ""

    def asks_model(self) -> bool:
        """Only questions cost something."""
        return "?" in self.text

    def answer(self, talk: Conversation) -> Answer:
        asking = {"cwd": talk.cwd, "sessionId": talk.own_id(), "turnId": self.turn_id}
        found = talk.ask("expand", text=self.text, **asking, maxBytes=INJECTED_MAX)
        answer = {
            "references": found["references"],
            "messages": [one["content"] for one in found["messages"]],
            "statusText": found.get("statusText") or [],
        }
        return _rendered(talk, f"Messages quote the sessions that they name: {DATA}.", answer)


class GetTree(Tool, kw_only=True):
    """Look through the messages of one past session, in order, with every branch.

    Gives one short line for each entry, indented by `depth`; `active` marks the path that the
    session is on. Call it to see how a session went, or to find the entry that a question is
    about. Texts are cut, and secrets taken out. A page holds `limit` entries, but no more than fit
    18 kB. Next: go on with `nextOffset` as `offset`, or ask query_session.
    """

    title = "Look through a session's messages"
    session: Session
    show: Annotated[
        Literal["user-only", "no-tools", "default", "labeled-only", "all"],
        said("Which entries; user-only is what the user asked, in order."),
    ] = "user-only"
    search: Annotated[str, said("Only entries that have all these words.", max_length=400)] = ""
    limit: Annotated[int, said("How many at most.", ge=1, le=200)] = 50
    offset: Annotated[int, said("Leave out so many.", ge=0, le=1_000_000)] = 0

    def answer(self, talk: Conversation) -> Answer:
        session_id = talk.id_of(self.session)
        found = talk.ask("tree", ref=session_id, filter=self.show, search=self.search)
        nodes = found["nodes"]
        head = {"leafId": found["leafId"], "warnings": _warnings(found)}
        answer = talk.about(found, head) | {"total": len(nodes), "offset": self.offset}
        wanted = nodes[self.offset : self.offset + self.limit]
        page = fitting(wanted, BYTES_MAX - size(answer) - _REST, talk.renderer.render)
        end = self.offset + len(page)
        answer |= {"nodes": page} | ({"nextOffset": end} if end < len(nodes) else {})
        return answer | ({"truncated": ["nodes"]} if len(page) < len(wanted) else {})


class ListBranches(Tool, kw_only=True):
    """List the branches of one past session, each by its last entry.

    Call it to learn what was tried and left, or to get the `leaf` that other tools take. `gist` is
    what is known of a branch that was left. Next: summarize_branch for one without a gist,
    query_session or session_history with its `leafId` as `leaf`.
    """

    title = "List a session's branches"
    session: Session

    def answer(self, talk: Conversation) -> Answer:
        found = talk.ask("branches", ref=talk.id_of(self.session))
        tips = sorted(found["tips"], key=lambda tip: str(tip.get("lastActivity")), reverse=True)
        tips.sort(key=lambda tip: not tip.get("active"))
        answer = talk.about(found, {"leafId": found["leafId"], "branches": tips})
        return bounded(answer | {"total": len(tips)})


class SetRelevantContext(Tool, kw_only=True):
    """Note what this session is working with, so that a resumed session has it again.

    Central files, a design document, endpoints, ports. Call it when you have read or edited a file
    that the work turns on, when such a thing changes, and before you finish. Gives what was
    stored. The prompt relevant-context-guide says more.
    """

    title, hints = "Note what this session works with", NOTE
    verbatim = False
    set_name: Annotated[
        str,
        said(
            "files, endpoints, ports or applet; others work too, with a warning.",
            min_length=1,
            max_length=NAME_MAX,
        ),
    ]
    items: Annotated[
        list[str],
        said(
            "At most 10 strings; files as absolute paths. With replace, [] clears the set.",
            extra_json_schema={"maxItems": 10},
        ),
    ]
    mode: Annotated[Literal["replace", "merge"], said("Replace the set, or add to it.")] = "replace"
    session: Own = ""

    def answer(self, talk: Conversation) -> Answer:
        which, given = _which(talk, self.session), {"setName": self.set_name, "items": self.items}
        found = talk.ask("set_relevant_context", **which, **given, mode=self.mode)
        answer: Answer = talk.renderer.render({"sessionId": which["session"]} | found)
        return answer

    def shown(self, found: Answer) -> str:
        """What became of a set, in the older tool's words (S4.7), and what else is to be said."""
        return "\n".join([found["text"], *(f"note: {one}" for one in found["warnings"])])


class GetRelevantContext(Tool, kw_only=True):
    """Get what was noted with set_relevant_context: files, endpoints, ports.

    Call it at the beginning of a resumed session, or to learn what files a past session was about.
    Next: read those files before you go on.
    """

    title = "What a session works with"
    verbatim = False
    set_name: Annotated[
        str, said("Only this set; all of them if left out.", max_length=NAME_MAX)
    ] = ""
    session: Own = ""

    def answer(self, talk: Conversation) -> Answer:
        which = _which(talk, self.session)
        found = talk.ask("get_relevant_context", **which, setName=self.set_name)
        session_id = found.get("sessionId") or which["session"]
        noted: dict[str, list[str]] = talk.renderer.render(found["context"], "context")
        kept, most = noted, max(map(len, noted.values()), default=0)
        while size(kept) > BYTES_MAX - _REST and most:  # whole items, as many of each set
            most //= 2
            kept = {key: items[:most] for key, items in noted.items()}
        left = {
            key: len(one) - len(kept[key])
            for key, one in noted.items()
            if len(one) > len(kept[key])
        }
        whose = f"Noted in session {session_id}: {DATA}."
        answer = _rendered(talk, whose, {"sessionId": session_id}) | {"context": kept}
        return answer | ({"leftOut": left} if left else {})

    def shown(self, found: Answer) -> str:
        """The same for a reader; the older tool's words where there is nothing (S4.7)."""
        return compact(reading(found)) if found["context"] else NOTHING


class ResumeCommand(Tool, kw_only=True):
    """Get the shell command that opens a past session again in its own agent.

    Call it when the user wants to go on with an earlier session. Next: show the command to the
    user; do not run it yourself, as it starts an interactive program.
    """

    title = "How to resume a session"
    verbatim = False
    session: Session

    def answer(self, talk: Conversation) -> Answer:
        row = talk.ask("get", ref=talk.id_of(self.session))["session"]
        command, note = _command(talk, row)
        shown: Answer = talk.renderer.render(_only(row, "sessionId name agent cwd"))
        return shown | {"command": command, "note": note}


class SessionHistory(Tool, kw_only=True):
    """Read what one past session came to: summaries of its older parts, then its last messages.

    Call it to go on with a long session's work, or to see in what order things happened. Gives the
    segments that digests made, with files and decisions, and `limit` messages after them, a line
    each; `full` gives more of each text. No more than fit 18 kB. It calls no model. Next:
    `nextBefore` as `before` for what came earlier; query_session for a detail; digest_session if
    many messages are in no segment.
    """

    title = "Read a long session as a page"
    session: Session
    full: Annotated[bool, said("True: texts whole, or nearly so.")] = False
    limit: Limit = 10
    before: Annotated[
        int, said("nextBefore of the page before; 0: the newest.", ge=0, le=100_000_000)
    ] = 0
    leaf: Leaf = ""

    def answer(self, talk: Conversation) -> Answer:
        """Segments, then the messages that are in none, the newest that fit.

        Messages are counted from 0 on the path, and a segment stands for a range of them.
        """
        session_id = talk.id_of(self.session)
        found = talk.ask("history", ref=session_id, full=self.full, leaf=self.leaf)
        answer = talk.about(found, _only(found, "leafId fullMessageCount foldedMessages"))
        before = self.before or int(found["fullMessageCount"]) + 1
        messages = [one for one in found["recent"] if one["n"] < before]
        segments = [one for one in found["segments"] if one["covering_messages"][0] < before]
        room = BYTES_MAX - size(answer) - _REST
        share = room * 2 // 3 if segments else room
        newest = messages[::-1][: self.limit]
        recent = fitting(newest, share, lambda one: self._message(talk, one))[::-1]
        folded: list[Any] = []
        left = room - size(recent)
        if len(recent) == len(messages) or before > int(found["fullMessageCount"]):
            folded = fitting(segments[::-1], left, lambda one: self._segment(talk, one))[::-1]
        answer |= {"segments": folded, "recent": recent}
        if len(recent) < len(messages):
            answer["nextBefore"] = recent[0]["n"]
        elif len(folded) < len(segments):
            answer["nextBefore"] = folded[0]["covering"][0]
        return bounded(answer)

    def _message(self, talk: Conversation, one: Mapping[str, Any]) -> Answer:
        shown: Answer = talk.renderer.render(_only(one, "n role entryId at"))
        text, field = (one["text"][:4000], "content") if self.full else (one["text"], "text")
        return shown | {"text": talk.renderer.render(text, field)}

    def _segment(self, talk: Conversation, one: Mapping[str, Any]) -> Answer:
        segment: Answer = {
            "covering": one["covering_messages"],
            "content": str(one["content"])[: 5000 if self.full else 1000],
            "keyDecisions": one.get("key_decisions") or [],
            "filesModified": (one.get("files_modified") or [])[:30],
            "generatedAt": one.get("generated_at"),
            "model": one.get("model"),
        }
        return dict(talk.renderer.render(segment))


class SessionStats(Tool, kw_only=True):
    """Tell how full a session's context is, and what the session came to so far.

    Tokens of the context as its own agent counts them, the model's window where that is known,
    which agents would compact it now, and totals: messages, tokens, cost, tools, files. Call it
    before you go on with a long session. It calls no model. Next: compact_session with `handoff`
    where `level` is `fold`, digest_session to have its older messages folded.
    """

    title = "How full a session is"
    verbatim = False
    session: Own = ""

    def answer(self, talk: Conversation) -> Answer:
        found = talk.ask("stats", ref=talk.id_of(self.session))
        return bounded(talk.about(found, found))


class CompactSession(Tool, kw_only=True):
    """Sum up a session of any agent, as an agent's own compaction would; it stays as it is.

    Call it when the user wants to go on elsewhere with what a session did, with `handoff` for a
    document that holds all that is needed for it: summary, decisions, files, last messages. It
    uses the model that the user configured, which may take minutes and cost something: call it
    once, and when asked to. Next: read the project's instruction files that a hand-off names, then
    its files as they are now; give the document to whoever goes on.
    """

    title, hints = "Sum up a session, or hand it over", ASK
    session: Own = ""
    strategy: Annotated[
        Literal["own", "pi", "codex", "opencode"],
        said("Whose rules of what is summed up and what stays; own: its agent's."),
    ] = "own"
    instructions: Focus = ""
    handoff: Annotated[bool, said("True: one document to begin a new session with, instead.")] = (
        False
    )
    leaf: Leaf = ""
    keep_recent_tokens: Annotated[
        int, said("Of the newest messages, that pi's rules keep.", ge=0, le=1_000_000)
    ] = 20_000

    def answer(self, talk: Conversation) -> Answer:
        found = talk.ask(
            "compact",
            ref=talk.id_of(self.session),
            strategy=None if self.strategy == "own" else self.strategy,
            instructions=self.instructions,
            handoff=self.handoff,
            leaf=self.leaf,
            keepRecentTokens=self.keep_recent_tokens,
        )
        fields = "strategy tokensBefore firstKeptEntryId messagesSummarized isSplitTurn"
        fields += " alreadyCompacted usage notes"
        figures = _only(found, fields)
        if "handoff" in found:
            answer = talk.about(found, figures, "summarised")
            document = talk.renderer.render(found["handoff"], "handoff")
            room = BYTES_MAX - size(answer) - _REST
            return answer | {"handoff": _shortened(document, room, str(answer["sessionId"]))}
        answer = talk.about(found, figures | _summed_up(found), "summarised")
        if "replacementHistory" in found:  # the last one is the summary
            kept = found["replacementHistory"][:-1][::-1]
            answer["replacementHistory"] = fitting(kept, REPLACED_BYTES, talk.renderer.render)[::-1]
        return bounded(answer)

    def shown(self, found: Answer) -> str:
        """A hand-off as it is, under a line that says whose it is."""
        if "handoff" in found:
            return f"{found['provenance']}\n\n{found['handoff']}"
        return compact(reading(found))


class SummarizeBranch(Tool, kw_only=True):
    """Sum up a branch of a session that was left, back to where it parted from the current one.

    Call it when it matters what was tried there and list_branches, which tells its `leaf`, has no
    gist of it. The summary is kept beside the session, and is the branch's gist from then on. It
    uses the model that the user configured, which may take minutes and cost something. Next:
    query_session with the same `leaf` for a detail.
    """

    title, hints = "Sum up a branch that was left", MAKE
    session: Session
    leaf: Annotated[str, said("The id of its last entry.", min_length=1, max_length=200)]
    instructions: Focus = ""
    replace_instructions: Annotated[bool, said("True: they take the place of the usual ones.")] = (
        False
    )

    def answer(self, talk: Conversation) -> Answer:
        found = talk.ask(
            "branch_summary",
            ref=talk.id_of(self.session, certain=True),
            leaf=self.leaf,
            instructions=self.instructions,
            replaceInstructions=self.replace_instructions,
        )
        shown = _only(found, "leafId usage notes") | _summed_up(found)
        return bounded(talk.about(found, shown, "summarised"))


class DigestSession(Tool, kw_only=True):
    """Fold the older messages of a session into a summary, which session_history shows.

    Call it when session_history shows many messages in no segment, or the user asks for it; long
    sessions are digested by themselves as they grow. What is made is kept beside the session,
    which stays as it is; the newest messages are left out. It uses the model that the user
    configured, which may take minutes and cost something. Gives the summary, and what it saves.
    Next: session_history.
    """

    title, hints = "Fold a session's older messages", MAKE
    session: Own = ""
    dry_run: Annotated[bool, said("True: only the figures as they are; no model is called.")] = (
        False
    )

    def asks_model(self) -> bool:
        """Figures cost nothing."""
        return not self.dry_run

    def answer(self, talk: Conversation) -> Answer:
        session_id = talk.id_of(self.session, certain=not self.dry_run)
        found = talk.ask("digest", ref=session_id, dryRun=self.dry_run)
        segment = found.get("segment")
        left_out = ("segment", "files", "decisions", "model", "costUsd")
        shown = {key: one for key, one in found.items() if key not in left_out} | {
            "made": segment is not None,
            "filesModified": found.get("files") or [],
            "keyDecisions": found.get("decisions") or [],
        }
        if segment is not None:
            shown |= {"covering": segment["covering_messages"], "content": segment["content"]}
        return bounded(talk.about(found, shown, "summarised"))


TOOLS: dict[str, type[Tool]] = {kind.called(): kind for kind in Tool.__subclasses__()}


# -- parts of answers ----------------------------------------------------------------------------


def _only(value: Mapping[str, Any], fields: str) -> Answer:
    return {key: value[key] for key in fields.split() if key in value}


def _warnings(found: Mapping[str, Any]) -> list[str]:
    return list(found.get("warnings") or ())[:10]


def _rendered(talk: Conversation, whose: str, fields: Answer) -> Answer:
    return bounded({"provenance": talk.renderer.line(whose)} | talk.renderer.render(fields))


def _brief(talk: Conversation, row: Mapping[str, Any]) -> Answer:
    shown = {key: one for key, one in _only(row, _BRIEF).items() if one not in (None, False)}
    description = talk.renderer.line(row.get("description") or "", DESCRIPTION_MAX)
    brief: Answer = talk.renderer.render(shown)
    return brief | {"description": description}


def _ancestors(talk: Conversation, row: Mapping[str, Any]) -> list[Answer]:
    """The sessions that one was forked from, its parent first; no name: not known here."""
    members = {one["sessionId"]: one for one in talk.ask("family", ref=row["sessionId"])["members"]}
    found: dict[str, Answer] = {}
    parent = row["parentSessionId"]
    while parent and parent not in found:
        known = members.get(parent, {})
        found[parent] = {"sessionId": parent, "name": known.get("name", "")}
        parent = known.get("parentSessionId")
    return list(found.values())


def _command(talk: Conversation, row: Mapping[str, Any]) -> tuple[str | None, str]:
    """A resume command, never changed: what could act on a terminal is not given."""
    command = str(row.get("resume") or "")
    if row.get("gone") or not command:
        return None, "the session's file is gone: there is nothing to resume"
    if escape_path(command) != command:
        session_id = talk.renderer.render(row["sessionId"], "sessionId")
        return None, f"show the user: run `indexerd resume {session_id}`"
    return command, "for the user to run in a terminal of their own"


def _which(talk: Conversation, ref: str) -> Answer:
    """The session whose context is meant; without a reference, the running one."""
    return {"session": ref, "cwd": talk.cwd} if ref else {"session": talk.running()["sessionId"]}


def _summed_up(found: Mapping[str, Any]) -> Answer:
    details = found.get("details") or {}
    files = {"filesModified": details.get("modifiedFiles"), "filesRead": details.get("readFiles")}
    return {"summary": found["summary"]} | {key: one or [] for key, one in files.items()}


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
