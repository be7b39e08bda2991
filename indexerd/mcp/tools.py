"""The tools of the MCP server as a model sees them: names, descriptions, parameters, schemas.

A tool's docstring is its description: when to call it, what it gives, what to do next. What it
does is in `mcp_answers`, `mcp_trees`, `mcp_questions` and `mcp_contexts`; what may be given to
it, in `mcp_params`; how it is offered, and tells, in `mcp_teller`. What goes wrong and is no error
of the tree is an error of kind `internal`, without its text. Tools that sum up: `mcp_summing`.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult
from pydantic import Field

from indexerd.mcp import answers, contexts, questions, shapes
from indexerd.mcp.daemon import in_thread
from indexerd.mcp.params import (
    Agent,
    Asked,
    Cwd,
    Everywhere,
    Items,
    Leaf,
    Limit,
    Nodes,
    Offset,
    Own,
    Session,
    SetName,
    Since,
    Turn,
)
from indexerd.mcp.teller import ASK, LOOK, NOTE, Teller, offered
from indexerd.mcp.trees import branches, tree
from indexerd.meta.context_sets import NAME_MAX


class Tools(Teller):
    """The tools that find sessions, look at them, ask them, and note what they work with."""

    def all(self) -> list[Tool]:
        """Every one of these."""
        return [
            offered(self.search_sessions, "Search past sessions", LOOK),
            offered(self.list_sessions, "List past sessions", LOOK),
            offered(self.get_session, "Look at a past session", LOOK),
            offered(self.query_session, "Ask a past session", ASK),
            offered(self.resolve_session, "Find the session a name means", LOOK),
            offered(self.expand_references, "Expand @@ references", ASK),
            offered(self.get_tree, "Look through a session's messages", LOOK),
            offered(self.list_branches, "List a session's branches", LOOK),
            offered(self.set_relevant_context, "Note what this session works with", NOTE),
            offered(self.get_relevant_context, "What a session works with", LOOK),
            offered(self.resume_command, "How to resume a session", LOOK),
        ]

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
        archived: Annotated[bool, Field(description="True: archived and lost ones, too.")] = False,
        subagents: Annotated[bool, Field(description="True: those of sub-agents, too.")] = False,
        limit: Limit = 10,
        cursor: Annotated[
            str, Field(max_length=400, description="nextCursor of the page before.")
        ] = "",
    ) -> Annotated[CallToolResult, shapes.ListAnswer]:
        """List the sessions of this project, newest first, with names and descriptions.

        Call it to see what was worked on lately (with `limit` 1: the most recent one), or to find
        a session whose words you do not know. A fork names its `parentSessionId`. Next:
        get_session for more of one; search_sessions if you know a word of it.
        """
        work = partial(
            answers.sessions,
            everywhere=all_projects,
            agent=agent or None,
            since=since or None,
            archived=archived or None,
            subagents=subagents or None,
            limit=limit,
            cursor=cursor or None,
        )
        return await self._answer(ctx, work, cwd=cwd)

    async def get_session(
        self, ctx: Context[Any, Any], *, session: Session, cwd: Cwd = ""
    ) -> Annotated[CallToolResult, shapes.SessionAnswer]:
        """Get everything known of one past session without reading its transcript.

        Summary, decisions, files read and modified, tools, models, noted context, the sessions
        that it was forked from, and how to resume it. Call it when you know which session is
        meant. Next: query_session if the summary does not say what you need; session_history for
        the course of a long one; get_tree to look through its messages.
        """
        return await self._answer(ctx, partial(answers.session, ref=session), cwd=cwd)

    async def query_session(
        self,
        ctx: Context[Any, Any],
        *,
        session: Session,
        question: Asked,
        leaf: Leaf = "",
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

    async def list_branches(
        self, ctx: Context[Any, Any], *, session: Session, cwd: Cwd = ""
    ) -> Annotated[CallToolResult, shapes.BranchesAnswer]:
        """List the branches of one past session, each by its last entry.

        Call it to learn what was tried and left, or to get the `leaf` that other tools take.
        `gist` is what is known of a branch that was left. Next: summarize_branch for one without a
        gist, query_session or session_history with its `leafId` as `leaf`.
        """
        return await self._answer(ctx, partial(branches, ref=session), cwd=cwd, verbatim=True)

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
