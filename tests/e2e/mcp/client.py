"""Run `indexerd mcp` as hosts do, with the official client."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema
from mcp import Client, StdioServerParameters

from tests.e2e.world import World


def play(world: World, scene: Callable[[Client], Awaitable[Any]]) -> Any:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "indexerd", "mcp"], env=world.env, cwd=str(world.root)
    )

    async def run() -> Any:
        async with Client(server) as client:
            return await scene(client)

    return asyncio.run(run())


async def call_tool(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    jsonschema.validate(found.structured_content, tools[tool].output_schema)
    answer: dict[str, Any] = found.structured_content
    return answer
