"""The MCP server where something is wrong: the daemon, the arguments, or the server itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp import Client

from tests.mcp.mcp_world import HOSTILE, ID, Daemon, call, desk, error_of, strings, talk


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "s")


def test_errors_of_the_socket_are_tool_errors(daemon: Daemon) -> None:
    """isError, and JSON with code, message, hint, retryable, candidates, upstream (S0.64)."""
    data = {"kind": "ambiguous_reference", "hint": "use the id", "retryable": False}
    data |= {"candidates": [{"sessionId": ID, "name": HOSTILE}], "upstream": "ambiguous"}
    daemon.answers["resolve"] = lambda params: {"code": 1002, "message": HOSTILE, "data": data}
    with daemon.running():
        told = error_of(call(desk(daemon), "resolve_session", ref="b"))
    assert told["code"] == "ambiguous_reference"
    assert told["hint"] == "use the id"
    assert told["retryable"] is False
    assert told["upstream"] == "ambiguous"
    assert told["candidates"][0]["sessionId"] == ID
    assert not [one for one in strings(told) if "<system>" in one or "\n" in one]


def test_wrong_arguments_are_usage_errors(daemon: Daemon) -> None:
    for name, secret in (
        ("limit", {"query": "hush", "limit": 0}),
        ("query", {"query": {"k": "hush"}}),
        ("merge", {"query": "hush", "merge": True}),
    ):
        told = error_of(call(desk(daemon), "search_sessions", **secret))
        assert told["code"] == "usage"
        assert name in told["message"]
        assert "hush" not in json.dumps(told)
    assert error_of(call(desk(daemon), "drop_tables"))["code"] == "usage"


def test_a_fault_of_our_own_tells_nothing_of_a_session(daemon: Daemon) -> None:
    daemon.answers["get"] = lambda params: {"session": [HOSTILE]}
    with daemon.running():
        told = error_of(call(desk(daemon), "get_session", session=ID))
    assert told["code"] == "internal"
    assert told["message"] == "get_session failed"


def test_the_daemon_may_come_and_go(daemon: Daemon) -> None:
    async def scene(client: Client) -> None:
        for _ in range(2):
            down = error_of(await client.call_tool("list_sessions", {}))
            assert down["code"] == "daemon_down"
            assert "indexerd service install" in down["hint"]
            assert down["retryable"]
            with daemon.running():
                assert not (await client.call_tool("list_sessions", {})).is_error

    talk(desk(daemon), scene)
