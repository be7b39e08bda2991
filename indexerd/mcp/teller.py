"""How a tool of the MCP server is offered, and how it tells what it found.

In: a tool's docstring and signature, and the work that it does. Out: a tool with its hints, and
answers as data and as text made of the same values. An error of the tree becomes a tool error
whose text is JSON. The hints are promises to hosts, which may run what only reads unasked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from indexerd.errors import IndexerdError
from indexerd.mcp import answers
from indexerd.mcp.daemon import Desk, Talk
from indexerd.mcp.params import strict
from indexerd.mcp.pick import agent_of
from indexerd.mcp.texts import Safe, compact, reading
from indexerd.references.query_codes import coded

LOOK = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
ASK = LOOK.model_copy(update={"idempotent_hint": False, "open_world_hint": True})  # a model
NOTE = LOOK.model_copy(update={"read_only_hint": False})  # writes what it is given
MAKE = ASK.model_copy(update={"read_only_hint": False})  # writes what a model makes


class Teller:
    """Does the work of tools, over one desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

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


def offered(does: Callable[..., Any], title: str, hints: ToolAnnotations) -> Tool:
    """A tool as hosts are told of it: its docstring is its description."""
    told = " ".join(inspect.cleandoc(does.__doc__ or "").split())
    return strict(Tool.from_function(does, title=title, description=told, annotations=hints))


def failed(told: answers.Answer) -> CallToolResult:
    """A tool error."""
    return CallToolResult(content=[TextContent(type="text", text=compact(told))], is_error=True)


def _client(ctx: Context[Any, Any]) -> str | None:
    """What the host calls itself."""
    params = ctx.request_context.session.client_params
    return params.client_info.name if params else None
