"""The tools of the MCP server for long sessions, as a model sees them: see `mcp_tools`.

What they do is in `mcp_histories` and `mcp_summaries`. Those that call a model count as a question
each, wait in places of their own, and say in their description that they may cost something.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult
from pydantic import Field

from indexerd.mcp import histories, summaries
from indexerd.mcp import summing_shapes as shapes
from indexerd.mcp.answers import Answer
from indexerd.mcp.params import Before, Cwd, Focus, Kept, Leaf, Limit, Own, Session
from indexerd.mcp.teller import ASK, LOOK, MAKE, Teller, offered
from indexerd.mcp.texts import compact, reading

SECONDS = 600.0  # that a summary may take: a long session needs several calls of the model
KEEP_TOKENS = 20_000  # as pi does


class SummingTools(Teller):
    """The tools for long sessions: their history and size, and what sums them up."""

    def all(self) -> list[Tool]:
        """Every one of these."""
        return [
            offered(self.session_history, "Read a long session as a page", LOOK),
            offered(self.session_stats, "How full a session is", LOOK),
            offered(self.compact_session, "Sum up a session, or hand it over", ASK),
            offered(self.summarize_branch, "Sum up a branch that was left", MAKE),
            offered(self.digest_session, "Fold a session's older messages", MAKE),
        ]

    async def session_history(
        self,
        ctx: Context[Any, Any],
        *,
        session: Session,
        full: Annotated[bool, Field(description="True: texts whole, or nearly so.")] = False,
        limit: Limit = 10,
        before: Before = 0,
        leaf: Leaf = "",
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.HistoryAnswer]:
        """Read what one past session came to: summaries of its older parts, then its last messages.

        Call it to go on with a long session's work, or to see in what order things happened. Gives
        the segments that digests made, with files and decisions, and `limit` messages after them,
        a line each; `full` gives more of each text. No more than fit 18 kB. It calls no model.
        Next: `nextBefore` as `before` for what came earlier; query_session for a detail;
        digest_session if many messages are in no segment.
        """
        work = partial(
            histories.history, ref=session, full=full, limit=limit, before=before, leaf=leaf
        )
        return await self._answer(ctx, work, cwd=cwd, verbatim=True)

    async def session_stats(
        self, ctx: Context[Any, Any], *, session: Own = "", cwd: Cwd = ""
    ) -> Annotated[CallToolResult, shapes.StatsAnswer]:
        """Tell how full a session's context is, and what the session came to so far.

        Tokens of the context as its own agent counts them, the model's window where that is known,
        which agents would compact it now, and totals: messages, tokens, cost, tools, files. Call
        it before you go on with a long session. It calls no model. Next: compact_session with
        `handoff` where `level` is `fold`, digest_session to have its older messages folded.
        """
        return await self._answer(ctx, partial(histories.stats, ref=session), cwd=cwd)

    async def compact_session(
        self,
        ctx: Context[Any, Any],
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
        keepRecentTokens: Kept = KEEP_TOKENS,  # noqa: N803 - the socket's name of it
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.CompactAnswer]:
        """Sum up a session of any agent, as an agent's own compaction would; it stays as it is.

        Call it when the user wants to go on elsewhere with what a session did, with `handoff` for
        a document that holds all that is needed for it: summary, decisions, files, last messages.
        It uses the model that the user configured, which may take minutes and cost something: call
        it once, and when asked to. Next: read the project's instruction files that a hand-off
        names, then its files as they are now; give the document to whoever goes on.
        """
        work = partial(
            summaries.compact,
            ref=session,
            strategy=None if strategy == "own" else strategy,
            instructions=instructions,
            handoff=handoff,
            leaf=leaf,
            keep=keepRecentTokens,
        )
        return await self._answer(
            ctx, work, text=_text, cwd=cwd, questions=1, seconds=SECONDS, verbatim=True
        )

    async def summarize_branch(
        self,
        ctx: Context[Any, Any],
        *,
        session: Session,
        leaf: Annotated[
            str,
            Field(
                min_length=1,
                max_length=200,
                description="The id of its last entry: list_branches tells it.",
            ),
        ],
        instructions: Focus = "",
        replaceInstructions: Annotated[  # noqa: N803 - the socket's name of it
            bool, Field(description="True: they take the place of the usual ones.")
        ] = False,
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.BranchAnswer]:
        """Sum up a branch of a session that was left, back to where it parted from the current one.

        Call it when it matters what was tried there and list_branches has no gist of it. The
        summary is kept beside the session, and is the branch's gist from then on; the session stays
        as it is. It uses the model that the user configured, which may take minutes and cost
        something. Next: query_session with the same `leaf` for a detail.
        """
        work = partial(
            summaries.branch,
            ref=session,
            leaf=leaf,
            instructions=instructions,
            replace=replaceInstructions,
        )
        return await self._answer(ctx, work, cwd=cwd, questions=1, seconds=SECONDS, verbatim=True)

    async def digest_session(
        self,
        ctx: Context[Any, Any],
        *,
        session: Own = "",
        dryRun: Annotated[  # noqa: N803 - the socket's name of it
            bool, Field(description="True: only the figures as they are; no model is called.")
        ] = False,
        cwd: Cwd = "",
    ) -> Annotated[CallToolResult, shapes.DigestAnswer]:
        """Fold the older messages of a session into a summary, which session_history shows.

        Call it when session_history shows many messages in no segment, or the user asks for it;
        long sessions are digested by themselves as they grow. What is made is kept beside the
        session, which stays as it is; the newest messages are left out. It uses the model that the
        user configured, which may take minutes and cost something. Gives the summary, and what it
        saves. Next: session_history.
        """
        work = partial(summaries.digest, ref=session, dry=dryRun)
        asks: dict[str, Any] = {} if dryRun else {"questions": 1, "seconds": SECONDS}
        return await self._answer(ctx, work, cwd=cwd, verbatim=True, **asks)


def _text(answer: Answer) -> str:
    return summaries.compact_text(answer) or compact(reading(answer))
