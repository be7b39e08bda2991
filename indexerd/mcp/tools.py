"""The tools of the MCP server as a model sees them: names, descriptions, parameters, hints.

A tool's docstring is its description: when to call it, what it gives, what to do next. Each is one
call of a function in `answers.py`. To add one: a method here, its line in `all`, its answer there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BeforeValidator, ConfigDict, Field

from indexerd.errors import IndexerdError
from indexerd.mcp import answers
from indexerd.mcp.daemon import Conversation, DaemonAccess
from indexerd.mcp.rendering import Answer, Renderer, compact, reading
from indexerd.meta.context_sets import NAME_MAX, NOTHING
from indexerd.references.query_codes import coded

LOOK = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
ASK = LOOK.model_copy(update={"idempotent_hint": False, "open_world_hint": True})  # a model
NOTE = LOOK.model_copy(update={"read_only_hint": False})  # writes what it is given
MAKE = ASK.model_copy(update={"read_only_hint": False})  # writes what a model makes

Ctx = Context[Any, Any]
Told = Annotated[CallToolResult, dict[str, Any]]  # an object; each tool's description says of what
# JSON has one kind of number, and some hosts write whole ones as 10.0. The check comes after the
# bounds, since before them it would keep them out of the schema.
WHOLE = BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)

Session = Annotated[
    str,
    Field(
        min_length=1,
        max_length=400,
        description="The past session: its id, an id's beginning (6 characters or more), its name,"
        " or nearly its name.",
    ),
]
Own = Annotated[
    str,
    Field(
        max_length=400,
        description="Which session: id or name. Leave it out to mean the one you are running in;"
        " where that cannot be told for certain you get an error with the candidates.",
    ),
]
Cwd = Annotated[
    str,
    Field(
        max_length=4096,
        description="The project: a directory, its sub-directories included. Leave it out to mean"
        " the one this server was started in.",
    ),
]
Everywhere = Annotated[bool, Field(description="True: look in every project at once.")]
Agent = Annotated[
    str,
    Field(max_length=64, description="Only sessions of this agent: pi, claude, codex, opencode."),
]
Since = Annotated[
    str,
    Field(max_length=64, description="Only sessions active since then: an ISO-8601 date or time."),
]
Limit = Annotated[int, Field(ge=1, le=50, description="How many at most."), WHOLE]
Leaf = Annotated[
    str,
    Field(max_length=200, description="Another branch: the id of its last entry (list_branches)."),
]
Focus = Annotated[str, Field(max_length=4000, description="What the summary should dwell on.")]
Turn = Annotated[
    str,
    Field(
        max_length=200,
        description="For hosts: their name of the user's turn; its questions are counted together.",
    ),
]
Question = Annotated[
    str, Field(min_length=1, max_length=4000, description="One self-contained question.")
]


class Tools:
    """Every tool, over one way to the daemon."""

    def __init__(self, daemon: DaemonAccess) -> None:
        self._daemon = daemon

    def all(self) -> list[Tool]:
        """The tools as the SDK takes them."""
        return [
            _offered(self.search_sessions, "Search past sessions", LOOK),
            _offered(self.list_sessions, "List past sessions", LOOK),
            _offered(self.get_session, "Look at a past session", LOOK),
            _offered(self.query_session, "Ask a past session", ASK),
            _offered(self.resolve_session, "Find the session a name means", LOOK),
            _offered(self.expand_references, "Expand @@ references", ASK),
            _offered(self.get_tree, "Look through a session's messages", LOOK),
            _offered(self.list_branches, "List a session's branches", LOOK),
            _offered(self.set_relevant_context, "Note what this session works with", NOTE),
            _offered(self.get_relevant_context, "What a session works with", LOOK),
            _offered(self.resume_command, "How to resume a session", LOOK),
            _offered(self.session_history, "Read a long session as a page", LOOK),
            _offered(self.session_stats, "How full a session is", LOOK),
            _offered(self.compact_session, "Sum up a session, or hand it over", ASK),
            _offered(self.summarize_branch, "Sum up a branch that was left", MAKE),
            _offered(self.digest_session, "Fold a session's older messages", MAKE),
        ]

    async def _answer(
        self,
        ctx: Ctx,
        cwd: str,
        work: Callable[[Conversation], Answer],
        *,
        calls_model: bool = False,
        text: Callable[[Answer], str] = lambda found: compact(reading(found)),
        codes: bool = False,
        verbatim: bool = True,
    ) -> Told:
        """Do a tool's work; `codes`: errors bear the codes of the tool it follows (S0.64)."""
        params = ctx.request_context.session.client_params
        client = params.client_info.name if params else None
        try:
            with coded() if codes else nullcontext():
                found = await self._daemon.converse(
                    work, cwd=cwd, client=client, calls_model=calls_model, verbatim=verbatim
                )
        except IndexerdError as bad:
            return failed(bad)
        return CallToolResult(
            content=[TextContent(type="text", text=text(found))], structured_content=found
        )

    async def search_sessions(
        self,
        ctx: Ctx,
        *,
        query: Annotated[
            str,
            Field(
                min_length=1,
                max_length=1000,
                description='Words, a "phrase in quotes", or re:pattern.',
            ),
        ],
        cwd: Cwd = "",
        all_projects: Everywhere = False,
        agent: Agent = "",
        since: Since = "",
        limit: Limit = 10,
    ) -> Told:
        """Search the past sessions of every coding agent on this machine.

        What was said, summarised, named or tagged is searched. Call it when the user speaks of
        earlier work ("as we did with…", "where did I…", "why did we decide…"), or before you work
        out anew what may have been worked out already. Gives the best places first, each with its
        session, a snippet and the entry's id; the current project is searched first, and the
        others only if nothing is found in it. Next: get_session for the summary of a hit's
        session, or query_session to ask it.
        """
        narrowing = {"agent": agent or None, "since": since or None, "limit": limit}
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.search(talk, query, everywhere=all_projects, **narrowing),
        )

    async def list_sessions(
        self,
        ctx: Ctx,
        *,
        cwd: Cwd = "",
        all_projects: Everywhere = False,
        agent: Agent = "",
        since: Since = "",
        archived: Annotated[bool, Field(description="True: archived and lost ones, too.")] = False,
        subagents: Annotated[bool, Field(description="True: those of sub-agents, too.")] = False,
        limit: Limit = 10,
        cursor: Annotated[
            str, Field(max_length=400, description="nextCursor of the page before.")
        ] = "",
    ) -> Told:
        """List the sessions of this project, newest first, with names and descriptions.

        Call it to see what was worked on lately (with `limit` 1: the most recent one), or to find
        a session whose words you do not know. A fork names its `parentSessionId`. Next:
        get_session for more of one; search_sessions if you know a word of it.
        """
        narrowing = {
            "agent": agent or None,
            "since": since or None,
            "archived": archived or None,
            "subagents": subagents or None,
            "cursor": cursor or None,
        }
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.sessions(talk, everywhere=all_projects, limit=limit, **narrowing),
            verbatim=False,
        )

    async def get_session(self, ctx: Ctx, *, session: Session, cwd: Cwd = "") -> Told:
        """Get everything known of one past session without reading its transcript.

        Summary, decisions, files read and modified, tools, models, noted context, the sessions
        that it was forked from, and how to resume it. Call it when you know which session is
        meant. Next: query_session for what the summary leaves out.
        """
        return await self._answer(
            ctx, cwd, lambda talk: answers.session(talk, session), verbatim=False
        )

    async def query_session(
        self,
        ctx: Ctx,
        *,
        session: Session,
        question: Question,
        leaf: Leaf = "",
        turnId: Turn = "",  # noqa: N803 - the socket's name of it
        cwd: Cwd = "",
    ) -> Told:
        """Ask one past session a question, answered from its transcript with citations.

        Call it when a summary is not enough: exact commands, error messages, values, reasons for
        a decision. It may use the model that the user configured, which takes some seconds and
        may cost a little, so ask one good question rather than many. Next: look at the citations
        before you rely on the answer; they name entries that get_tree shows.
        """
        asked = {"question": question, "leaf": leaf or None, "turnId": turnId or None}
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.query(talk, session, **asked),
            calls_model=True,
            codes=True,
        )

    async def resolve_session(
        self, ctx: Ctx, *, ref: Session, cwd: Cwd = "", all_projects: Everywhere = False
    ) -> Told:
        """Say which session a name, a part of an id, or a half-remembered name means.

        Call it when the user names a session. Where several fit you get an error with the
        candidates: ask the user, or compare them by get_session; none is ever picked silently.
        Next: get_session or query_session with the id.
        """
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.resolve(talk, ref, everywhere=all_projects),
            verbatim=False,
        )

    async def expand_references(
        self,
        ctx: Ctx,
        *,
        text: Annotated[
            str, Field(max_length=200_000, description="The text with the references, verbatim.")
        ],
        turnId: Turn = "",  # noqa: N803 - the socket's name of it
        cwd: Cwd = "",
    ) -> Told:
        """Say what the `@@` references in a text stand for.

        They are `@@name`, `@@id`, `@@"a name"`, `@@name~2` (with two ancestors), and
        `@@name: a question?`. Call it when a message of the user holds one and no quoted summary
        of that session came with it. Gives the quoted summaries, and answers to the questions,
        which may use the user's model; `questions` of a reference says which failed, and why.
        Next: query_session for more of one, or for a question that failed.
        """
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.expand(talk, text, turn_id=turnId or None),
            calls_model="?" in text,
        )

    async def get_tree(
        self,
        ctx: Ctx,
        *,
        session: Session,
        show: Annotated[
            Literal["user-only", "no-tools", "default", "labeled-only", "all"],
            Field(description="Which entries; user-only is what the user asked, in order."),
        ] = "user-only",
        search: Annotated[
            str, Field(max_length=400, description="Only entries that have all these words.")
        ] = "",
        limit: Annotated[int, Field(ge=1, le=200, description="How many at most."), WHOLE] = 50,
        offset: Annotated[
            int, Field(ge=0, le=1_000_000, description="Leave out so many."), WHOLE
        ] = 0,
        cwd: Cwd = "",
    ) -> Told:
        """Look through the messages of one past session, in order, with every branch.

        Gives one short line for each entry, indented by `depth`; `active` marks the path that the
        session is on. Call it to see how a session went, or to find the entry that a question is
        about. Texts are cut, and secrets taken out. A page holds `limit` entries, but no more than
        fit 18 kB. Next: go on with `nextOffset` as `offset`, or ask query_session.
        """
        narrowing = {"filter": show, "search": search or None}
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.tree(talk, session, limit=limit, offset=offset, **narrowing),
        )

    async def list_branches(self, ctx: Ctx, *, session: Session, cwd: Cwd = "") -> Told:
        """List the branches of one past session, each by its last entry.

        Call it to learn what was tried and left, or to get the `leaf` that other tools take.
        `gist` is what is known of a branch that was left. Next: summarize_branch for one without a
        gist, query_session or session_history with its `leafId` as `leaf`.
        """
        return await self._answer(ctx, cwd, lambda talk: answers.branches(talk, session))

    async def set_relevant_context(
        self,
        ctx: Ctx,
        *,
        setName: Annotated[  # noqa: N803 - the older tool's schema, which agents know (S4.9)
            str,
            Field(
                min_length=1,
                max_length=NAME_MAX,
                description="files, endpoints, ports or applet; others work too, with a warning.",
            ),
        ],
        items: Annotated[
            list[str],
            Field(
                description="At most 10 strings; files as absolute paths. With replace, [] clears"
                " the set.",
                json_schema_extra={"maxItems": 10},
            ),
        ],
        mode: Annotated[
            Literal["replace", "merge"], Field(description="Replace the set, or add to it.")
        ] = "replace",
        session: Own = "",
        cwd: Cwd = "",
    ) -> Told:
        """Note what this session is working with, so that a resumed session has it again.

        Central files, a design document, endpoints, ports. Call it when you have read or edited a
        file that the work turns on, when such a thing changes, and before you finish. Gives what
        was stored. The prompt relevant-context-guide says more.
        """
        given = {"setName": setName, "items": items, "mode": mode}
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.set_context(talk, session, **given),
            text=_stored,
            verbatim=False,
        )

    async def get_relevant_context(
        self,
        ctx: Ctx,
        *,
        setName: Annotated[  # noqa: N803 - as above
            str, Field(max_length=NAME_MAX, description="Only this set; all of them if left out.")
        ] = "",
        session: Own = "",
        cwd: Cwd = "",
    ) -> Told:
        """Get what was noted with set_relevant_context: files, endpoints, ports.

        Call it at the beginning of a resumed session, or to learn what files a past session was
        about. Next: read those files before you go on.
        """
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.get_context(talk, session, setName or None),
            text=lambda found: compact(reading(found)) if found["context"] else NOTHING,
            verbatim=False,
        )

    async def resume_command(self, ctx: Ctx, *, session: Session, cwd: Cwd = "") -> Told:
        """Get the shell command that opens a past session again in its own agent.

        Call it when the user wants to go on with an earlier session. Next: show the command to
        the user; do not run it yourself, as it starts an interactive program.
        """
        return await self._answer(
            ctx, cwd, lambda talk: answers.resume(talk, session), verbatim=False
        )

    async def session_history(
        self,
        ctx: Ctx,
        *,
        session: Session,
        full: Annotated[bool, Field(description="True: texts whole, or nearly so.")] = False,
        limit: Limit = 10,
        before: Annotated[
            int,
            Field(
                ge=0, le=100_000_000, description="nextBefore of the page before; 0: the newest."
            ),
            WHOLE,
        ] = 0,
        leaf: Leaf = "",
        cwd: Cwd = "",
    ) -> Told:
        """Read what one past session came to: summaries of its older parts, then its last messages.

        Call it to go on with a long session's work, or to see in what order things happened. Gives
        the segments that digests made, with files and decisions, and `limit` messages after them,
        a line each; `full` gives more of each text. No more than fit 18 kB. It calls no model.
        Next: `nextBefore` as `before` for what came earlier; query_session for a detail;
        digest_session if many messages are in no segment.
        """
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.history(
                talk, session, full=full, limit=limit, before=before, leaf=leaf
            ),
        )

    async def session_stats(self, ctx: Ctx, *, session: Own = "", cwd: Cwd = "") -> Told:
        """Tell how full a session's context is, and what the session came to so far.

        Tokens of the context as its own agent counts them, the model's window where that is known,
        which agents would compact it now, and totals: messages, tokens, cost, tools, files. Call
        it before you go on with a long session. It calls no model. Next: compact_session with
        `handoff` where `level` is `fold`, digest_session to have its older messages folded.
        """
        return await self._answer(
            ctx, cwd, lambda talk: answers.stats(talk, session), verbatim=False
        )

    async def compact_session(
        self,
        ctx: Ctx,
        *,
        session: Own = "",
        strategy: Annotated[
            Literal["own", "pi", "codex", "opencode"],
            Field(description="Whose rules of what is summed up and what stays; own: its agent's."),
        ] = "own",
        instructions: Focus = "",
        handoff: Annotated[
            bool, Field(description="True: one document to begin a new session with, instead.")
        ] = False,
        leaf: Leaf = "",
        keepRecentTokens: Annotated[  # noqa: N803 - the socket's name of it
            int,
            Field(ge=0, le=1_000_000, description="Of the newest messages, that pi's rules keep."),
            WHOLE,
        ] = 20_000,
        cwd: Cwd = "",
    ) -> Told:
        """Sum up a session of any agent, as an agent's own compaction would; it stays as it is.

        Call it when the user wants to go on elsewhere with what a session did, with `handoff` for
        a document that holds all that is needed for it: summary, decisions, files, last messages.
        It uses the model that the user configured, which may take minutes and cost something: call
        it once, and when asked to. Next: read the project's instruction files that a hand-off
        names, then its files as they are now; give the document to whoever goes on.
        """
        given = {
            "strategy": None if strategy == "own" else strategy,
            "instructions": instructions or None,
            "handoff": handoff or None,
            "leaf": leaf or None,
            "keepRecentTokens": keepRecentTokens,
        }
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.compact(talk, session, **given),
            calls_model=True,
            text=_document,
        )

    async def summarize_branch(
        self,
        ctx: Ctx,
        *,
        session: Session,
        leaf: Annotated[
            str,
            Field(min_length=1, max_length=200, description="The id of its last entry."),
        ],
        instructions: Focus = "",
        replaceInstructions: Annotated[  # noqa: N803 - the socket's name of it
            bool, Field(description="True: they take the place of the usual ones.")
        ] = False,
        cwd: Cwd = "",
    ) -> Told:
        """Sum up a branch of a session that was left, back to where it parted from the current one.

        Call it when it matters what was tried there and list_branches, which tells its `leaf`, has
        no gist of it. The summary is kept beside the session, and is the branch's gist from then
        on. It uses the model that the user configured, which may take minutes and cost something.
        Next: query_session with the same `leaf` for a detail.
        """
        given = {
            "leaf": leaf,
            "instructions": instructions or None,
            "replaceInstructions": replaceInstructions or None,
        }
        return await self._answer(
            ctx, cwd, lambda talk: answers.branch(talk, session, **given), calls_model=True
        )

    async def digest_session(
        self,
        ctx: Ctx,
        *,
        session: Own = "",
        dryRun: Annotated[  # noqa: N803 - the socket's name of it
            bool, Field(description="True: only the figures as they are; no model is called.")
        ] = False,
        cwd: Cwd = "",
    ) -> Told:
        """Fold the older messages of a session into a summary, which session_history shows.

        Call it when session_history shows many messages in no segment, or the user asks for it;
        long sessions are digested by themselves as they grow. What is made is kept beside the
        session, which stays as it is; the newest messages are left out. It uses the model that the
        user configured, which may take minutes and cost something. Gives the summary, and what it
        saves. Next: session_history.
        """
        return await self._answer(
            ctx,
            cwd,
            lambda talk: answers.digest(talk, session, dry=dryRun),
            calls_model=not dryRun,
        )


def failed(bad: IndexerdError) -> CallToolResult:
    """A tool error, whose text is JSON."""
    told = compact(answers.failure(bad, Renderer()))
    return CallToolResult(content=[TextContent(type="text", text=told)], is_error=True)


def _offered(does: Callable[..., Any], title: str, hints: ToolAnnotations) -> Tool:
    """A tool that takes its own parameters only, and those as its schema says.

    A parameter that no tool has is refused, too: `merge: true` for `mode: "merge"` would replace
    what its caller wanted to keep.
    """
    description = " ".join(inspect.cleandoc(does.__doc__ or "").split())
    tool = Tool.from_function(does, title=title, description=description, annotations=hints)
    model = tool.fn_metadata.arg_model
    rules = {"model_config": ConfigDict(extra="forbid", strict=True), "__module__": __name__}
    exact: type[ArgModelBase] = type(model.__name__, (model,), rules)
    metadata = tool.fn_metadata.model_copy(update={"arg_model": exact})
    schema = _untitled(exact.model_json_schema(by_alias=True))
    return tool.model_copy(update={"fn_metadata": metadata, "parameters": schema})


def _untitled(schema: Any) -> Any:
    """A schema without pydantic's titles, for which a model would pay; no field is called so."""
    if isinstance(schema, dict):
        return {key: _untitled(one) for key, one in schema.items() if key != "title"}
    return [_untitled(one) for one in schema] if isinstance(schema, list) else schema


def _stored(answer: Answer) -> str:
    """What became of a set, in the older tool's words (S4.7), and what else is to be said."""
    return "\n".join([answer["text"], *(f"note: {one}" for one in answer["warnings"])])


def _document(answer: Answer) -> str:
    """A hand-off as it is, under a line that says whose it is."""
    if "handoff" in answer:
        return f"{answer['provenance']}\n\n{answer['handoff']}"
    return compact(reading(answer))
