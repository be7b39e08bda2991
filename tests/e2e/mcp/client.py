"""Run `indexerd mcp` as hosts do: with the official client or with plain pipes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any

import jsonschema
from mcp import Client, StdioServerParameters

from tests.e2e.world import World

ASK = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "claude-code", "version": "1"},
}


def serve(world: World, *argv: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "indexerd", *argv, "mcp"],
        env=world.env,
        cwd=str(world.root),
    )


def play(world: World, scene: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Client(serve(world)) as client:
            return await scene(client)

    return asyncio.run(run())


async def call_tool(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    jsonschema.validate(found.structured_content, tools[tool].output_schema)
    answer: dict[str, Any] = found.structured_content
    return answer


@contextmanager
def process(world: World, *argv: str):
    started = subprocess.Popen(
        [sys.executable, "-m", "indexerd", *argv, "mcp"],
        env=world.env,
        cwd=world.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()
        for stream in (started.stdin, started.stdout, started.stderr):
            stream.close()


def greet(server: subprocess.Popen[bytes]) -> dict[str, Any]:
    server.stdin.write(json.dumps(ASK | {"params": HELLO}).encode() + b"\n")
    server.stdin.flush()
    found: dict[str, Any] = json.loads(server.stdout.readline())
    return found


def send(server: subprocess.Popen[bytes], *messages: dict[str, Any]) -> None:
    server.stdin.writelines(json.dumps(message).encode() + b"\n" for message in messages)
    server.stdin.flush()
