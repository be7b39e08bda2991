"""The tools of the MCP server as a model sees them: names, descriptions, parameters, schemas.

A tool's docstring is its description: when to call it, what it gives, what to do next. What it
does is in `mcp_answers`, `mcp_trees`, `mcp_questions` and `mcp_contexts`; what may be given to
it, in `mcp_params`. The text of an answer is made of the same values as its data. An error of
the tree becomes a tool error whose text is JSON; all else that goes wrong is an error of kind
`internal`, without its text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from indexerd.core.sets import NAME_MAX
from indexerd.errors import IndexerdError
from indexerd.service.query_codes import coded
from indexerd.surfaces import mcp_answers as answers
from indexerd.surfaces import mcp_contexts as contexts
from indexerd.surfaces import mcp_questions as questions
from indexerd.surfaces import mcp_shapes as shapes
from indexerd.surfaces.mcp_daemon import Desk, Talk, in_thread
from indexerd.surfaces.mcp_params import (
    Agent,
    Asked,
    Cwd,
    Everywhere,
    Items,
    Limit,
    Nodes,
    Offset,
    Own,
    Session,
    SetName,
    Since,
    Turn,
    strict,
)
from indexerd.surfaces.mcp_pick import agent_of
from indexerd.surfaces.mcp_texts import Safe, compact, reading
from indexerd.surfaces.mcp_trees import tree


class Tools:
    """The tools, over one desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def all(self) -> list[Tool]:
        """Every tool."""
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
        return [_tool(one, title, hints) for one, title, hints in tools]

    async def _answer(
        self,
        ctx: Context[Any, Any],
        work: Callable[[Talk], answers.Answer],
        *,
        text: Callable[[answers.Answer], str] = lambda found: compact(reading(found)),
        codes: bool = False,
        **how: Any,
    ) -> CallToolResult:
        """Do a tool's work.

        `text` makes the answer's text of its data; `codes`: errors bear the older tool's codes.
        """
        try:
            with coded() if codes else nullcontext():
                found = await self._desk.talk(work, agent=agent_of(_client(ctx)), **how)
        except IndexerdError as bad:
            return failed(answers.failure(bad, Safe()))
        return CallToolResult(
            content=[TextContent(type="text", text=text(found))], structured_content=found
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
        turnId: Turn = "",  # noqa: N803 - the socket's name of it
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.QueryAnswer]:
        """Ask one past session a question, answered from its transcript with citations.

        Call it when a summary is not enough: exact commands, error messages, values, reasons for
        a decision. It may use the model that the user configured, which takes some seconds and
        may cost a little, so ask one good question rather than many: two are under way at once,
        and more than twenty in a minute are refused. Next: look at the citations
        before you rely on the answer; they name entries that get_tree shows.
        """
        work = partial(
            questions.query,
            ref=session,
            question=question,
            leaf=leaf or None,
            turn_id=turnId or None,
        )
        return await self._answer(ctx, work, cwd=cwd, questions=1, codes=True, verbatim=True)

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
        turnId: Turn = "",  # noqa: N803 - the socket's name of it
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.ExpandAnswer]:
        """Say what the `@@` references in a text stand for.

        They are `@@name`, `@@id`, `@@"a name"`, `@@name~2` (with two ancestors), and
        `@@name: a question?`. Call it when a message of the user holds one and no quoted summary
        of that session came with it. Gives the quoted summaries, and answers to the questions,
        which may use the user's model; `questions` of a reference says which failed, and why.
        Next: query_session for more of one, or for a question that failed.
        """
        asked = await in_thread(partial(questions.questions_in, text))
        work = partial(questions.expand, text=text, turn_id=turnId or None)
        return await self._answer(ctx, work, cwd=cwd, questions=asked, verbatim=True)

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
        offset: Offset = 0,
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.TreeAnswer]:
        """Look through the messages of one past session, in order, with every branch.

        Gives one short line for each entry, indented by `depth`; `active` marks the path that the
        session is on. Call it to see how a session went, or to find the entry that a question is
        about. Texts are cut, and secrets taken out. A page holds `limit` entries, but no more than
        fit 18 kB: some 45 where they are long. Next: go on with `nextOffset` as `offset`, or ask
        query_session.
        """
        work = partial(
            tree,
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
        work = partial(contexts.set_context, ref=session, name=setName, items=items, mode=mode)
        return await self._answer(ctx, work, cwd=cwd, text=contexts.set_text)

    async def get_relevant_context(
        self,
        ctx: Context[Any, Any],
        *,
        setName: Annotated[  # noqa: N803 - as above
            str, Field(max_length=NAME_MAX, description="Only this set; all of them if left out.")
        ] = "",
        session: Own = "",
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.GetContextAnswer]:
        """Get what was noted with set_relevant_context: files, endpoints, ports.

        Call it at the beginning of a resumed session, or to learn what files a past session was
        about. Next: read those files before you go on.
        """
        work = partial(contexts.get_context, ref=session, name=setName or None)
        return await self._answer(ctx, work, cwd=cwd, text=contexts.get_text)

    async def resume_command(
        self, ctx: Context[Any, Any], *, session: Session, cwd: Cwd = ""
    ) -> Annotated[CallToolResult, shapes.ResumeAnswer]:
        """Get the shell command that opens a past session again in its own agent.

        Call it when the user wants to go on with an earlier session. Next: show the command to
        the user; do not run it yourself, as it starts an interactive program.
        """
        return await self._answer(ctx, partial(answers.resume, ref=session), cwd=cwd)


def _tool(does: Callable[..., Any], title: str, hints: ToolAnnotations) -> Tool:
    told = " ".join(inspect.cleandoc(does.__doc__ or "").split())
    return strict(Tool.from_function(does, title=title, description=told, annotations=hints))


def _client(ctx: Context[Any, Any]) -> str | None:
    """What the host calls itself."""
    params = ctx.request_context.session.client_params
    return params.client_info.name if params else None


def failed(told: answers.Answer) -> CallToolResult:
    """A tool error."""
    return CallToolResult(content=[TextContent(type="text", text=compact(told))], is_error=True)
