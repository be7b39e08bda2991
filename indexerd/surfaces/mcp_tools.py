"""The tools of the MCP server as a model sees them: names, descriptions, parameters, schemas.

A tool's docstring is its description: when to call it, what it gives, what to do next. What it
does is in `mcp_answers`. An error of the tree becomes a tool error whose text is JSON; all else
that goes wrong is an error of kind `internal`, without its text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from indexerd.errors import IndexerdError
from indexerd.surfaces import mcp_answers as answers
from indexerd.surfaces import mcp_shapes as shapes
from indexerd.surfaces.mcp_daemon import Desk, Talk
from indexerd.surfaces.mcp_pick import agent_of
from indexerd.surfaces.mcp_texts import Safe, compact

REFS_MAX = 3  # questions that one text may ask, by default

Session = Annotated[
    str,
    Field(
        min_length=1,
        max_length=400,
        description="The past session: its id, an id's beginning (6 characters or more), its"
        " name, or nearly its name.",
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
        description="The project: a directory, its sub-directories included. Leave it out to"
        " mean the one this server was started in.",
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
Limit = Annotated[int, Field(ge=1, le=50, description="How many at most.")]
Nodes = Annotated[int, Field(ge=1, le=answers.NODES_MAX, description="How many at most.")]
SetName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=120,
        description="files, endpoints, ports or applet; other names work too, with a warning.",
    ),
]
Items = Annotated[
    list[str],
    Field(
        description="At most 10 strings; files as absolute paths. With replace, [] clears the set.",
        json_schema_extra={"maxItems": 10},
    ),
]
Asked = Annotated[
    str,
    Field(min_length=1, max_length=4000, description="One self-contained question."),
]


class Tools:
    """The tools, over one desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def register(self, server: MCPServer[Any]) -> None:
        """Offer every tool on a server."""
        look = ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        )
        ask = look.model_copy(update={"idempotent_hint": False, "open_world_hint": True})
        note = look.model_copy(update={"read_only_hint": False})
        tools: list[tuple[Callable[..., Any], str, ToolAnnotations]] = [
            (self.search_sessions, "Search past sessions", look),
            (self.list_sessions, "List past sessions", look),
            (self.get_session, "Look at a past session", look),
            (self.query_session, "Ask a past session", ask),
            (self.resolve_session, "Find the session a name means", look),
            (self.expand_references, "Expand @@ references", ask),
            (self.get_tree, "Look through a session's messages", look),
            (self.set_relevant_context, "Note what this session works with", note),
            (self.get_relevant_context, "What a session works with", look),
            (self.resume_command, "How to resume a session", look),
        ]
        for tool, title, hints in tools:
            told = " ".join(inspect.cleandoc(tool.__doc__ or "").split())
            server.add_tool(tool, title=title, description=told, annotations=hints)

    async def _answer(
        self,
        ctx: Context[Any, Any],
        work: Callable[[Talk], answers.Answer],
        *,
        plain: bool = False,
        **how: Any,
    ) -> CallToolResult:
        """Do a tool's work. `plain`: its text is the text that the daemon made for it."""
        try:
            found = await self._desk.talk(work, agent=agent_of(_client(ctx)), **how)
        except IndexerdError as bad:
            return failed(answers.failure(bad, Safe()))
        text = found["text"] if plain else compact(found)
        return CallToolResult(
            content=[TextContent(type="text", text=text)], structured_content=found
        )

    async def search_sessions(
        self,
        ctx: Context[Any, Any],
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
    ) -> Annotated[CallToolResult, shapes.SearchAnswer]:
        """Search the past sessions of every coding agent on this machine.

        What was said, summarised, named or tagged is searched. Call it when the user speaks of
        earlier work ("as we did with…", "where did I…", "why did we decide…"), or before you work
        out anew what may have been worked out already. Gives the best places first, each with its
        session, a snippet and the entry's id; the current project is searched first, and the
        others only if nothing is found in it. Next: get_session for the summary of a hit's
        session, or query_session to ask it.
        """
        work = partial(
            answers.search,
            query=query,
            everywhere=all_projects,
            agent=agent or None,
            since=since or None,
            limit=limit,
        )
        return await self._answer(ctx, work, cwd=cwd, verbatim=True)

    async def list_sessions(
        self,
        ctx: Context[Any, Any],
        *,
        cwd: Cwd = "",
        all_projects: Everywhere = False,
        agent: Agent = "",
        since: Since = "",
        limit: Limit = 10,
        cursor: Annotated[
            str, Field(max_length=400, description="nextCursor of the page before.")
        ] = "",
    ) -> Annotated[CallToolResult, shapes.ListAnswer]:
        """List the sessions of this project, newest first, with names and descriptions.

        Call it to see what was worked on lately, or to find a session whose words you do not
        know. Next: get_session for more of one; search_sessions if you know a word of it.
        """
        work = partial(
            answers.sessions,
            everywhere=all_projects,
            agent=agent or None,
            since=since or None,
            limit=limit,
            cursor=cursor or None,
        )
        return await self._answer(ctx, work, cwd=cwd)

    async def get_session(
        self, ctx: Context[Any, Any], *, session: Session, cwd: Cwd = ""
    ) -> Annotated[CallToolResult, shapes.SessionAnswer]:
        """Get everything known of one past session without reading its transcript.

        Summary, decisions, files read and modified, tools, models, noted context, and how to
        resume it. Call it when you know which session is meant. Next: query_session if the
        summary does not say what you need; get_tree to look through its messages.
        """
        return await self._answer(ctx, partial(answers.session, ref=session), cwd=cwd)

    async def query_session(
        self,
        ctx: Context[Any, Any],
        *,
        session: Session,
        question: Asked,
        leaf: Annotated[
            str, Field(max_length=200, description="Ask another branch: the id of its last entry.")
        ] = "",
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.QueryAnswer]:
        """Ask one past session a question, answered from its transcript with citations.

        Call it when a summary is not enough: exact commands, error messages, values, reasons for
        a decision. It may use the model that the user configured, which takes some seconds and
        may cost a little, so ask one good question rather than many. Next: look at the citations
        before you rely on the answer; they name entries that get_tree shows.
        """
        work = partial(answers.query, ref=session, question=question, leaf=leaf or None)
        return await self._answer(ctx, work, cwd=cwd, questions=1, verbatim=True)

    async def resolve_session(
        self,
        ctx: Context[Any, Any],
        *,
        ref: Session,
        cwd: Cwd = "",
        all_projects: Everywhere = False,
    ) -> Annotated[CallToolResult, shapes.ResolveAnswer]:
        """Say which session a name, a part of an id, or a half-remembered name means.

        Call it when the user names a session. Where several fit you get an error with the
        candidates: ask the user, or compare them by get_session; none is ever picked silently.
        Next: get_session or query_session with the id.
        """
        work = partial(answers.resolve, ref=ref, everywhere=all_projects)
        return await self._answer(ctx, work, cwd=cwd)

    async def expand_references(
        self,
        ctx: Context[Any, Any],
        *,
        text: Annotated[
            str, Field(max_length=200_000, description="The text with the references, verbatim.")
        ],
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.ExpandAnswer]:
        """Say what the `@@` references in a text stand for.

        They are `@@name`, `@@id`, `@@"a name"`, `@@name~2` (with two ancestors), and
        `@@name: a question?`. Call it when a message of the user holds one and no quoted summary
        of that session came with it. Gives the quoted summaries, and answers to the questions,
        which may use the user's model. Next: query_session for more of one.
        """
        work = partial(answers.expand, text=text)
        return await self._answer(ctx, work, cwd=cwd, questions=REFS_MAX, verbatim=True)

    async def get_tree(
        self,
        ctx: Context[Any, Any],
        *,
        session: Session,
        show: Annotated[
            Literal["user-only", "no-tools", "default", "labeled-only", "all"],
            Field(description="Which entries; user-only is what the user asked, in order."),
        ] = "user-only",
        search: Annotated[
            str, Field(max_length=400, description="Only entries that have all these words.")
        ] = "",
        limit: Nodes = 50,
        offset: Annotated[int, Field(ge=0, le=1_000_000, description="Leave out so many.")] = 0,
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.TreeAnswer]:
        """Look through the messages of one past session, in order, with every branch.

        Gives one short line for each entry, indented by `depth`; `active` marks the path that the
        session is on. Call it to see how a session went, or to find the entry that a question is
        about. Texts are cut, and secrets taken out. Next: go on with `offset`, or ask
        query_session.
        """
        work = partial(
            answers.tree,
            ref=session,
            limit=limit,
            offset=offset,
            filter=show,
            search=search or None,
        )
        return await self._answer(ctx, work, cwd=cwd, verbatim=True)

    async def set_relevant_context(
        self,
        ctx: Context[Any, Any],
        *,
        setName: SetName,  # noqa: N803 - the older tool's schema, which agents know (S4.9)
        items: Items,
        mode: Annotated[
            Literal["replace", "merge"], Field(description="Replace the set, or add to it.")
        ] = "replace",
        session: Own = "",
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.SetContextAnswer]:
        """Note what this session is working with, so that a resumed session has it again.

        Central files, a design document, endpoints, ports. Call it when you have read or edited a
        file that the work turns on, when such a thing changes, and before you finish. Gives what
        was stored. The prompt relevant-context-guide says more.
        """
        work = partial(answers.set_context, ref=session, name=setName, items=items, mode=mode)
        return await self._answer(ctx, work, cwd=cwd, plain=True)

    async def get_relevant_context(
        self,
        ctx: Context[Any, Any],
        *,
        setName: Annotated[  # noqa: N803 - as above
            str, Field(max_length=120, description="Only this set; all of them if left out.")
        ] = "",
        session: Own = "",
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.GetContextAnswer]:
        """Get what was noted with set_relevant_context: files, endpoints, ports.

        Call it at the beginning of a resumed session, or to learn what files a past session was
        about. Next: read those files before you go on.
        """
        work = partial(answers.get_context, ref=session, name=setName or None)
        return await self._answer(ctx, work, cwd=cwd, plain=True)

    async def resume_command(
        self, ctx: Context[Any, Any], *, session: Session, cwd: Cwd = ""
    ) -> Annotated[CallToolResult, shapes.ResumeAnswer]:
        """Get the shell command that opens a past session again in its own agent.

        Call it when the user wants to go on with an earlier session. Next: show the command to
        the user; do not run it yourself, as it starts an interactive program.
        """
        return await self._answer(ctx, partial(answers.resume, ref=session), cwd=cwd)


def _client(ctx: Context[Any, Any]) -> str | None:
    """What the host calls itself."""
    params = ctx.request_context.session.client_params
    return params.client_info.name if params else None


def failed(told: answers.Answer) -> CallToolResult:
    """A tool error."""
    return CallToolResult(content=[TextContent(type="text", text=compact(told))], is_error=True)
