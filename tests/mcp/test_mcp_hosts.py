"""What MCP hosts are told of the server, and what the program costs those who do without it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from mcp import Client

from indexerd.mcp import hosts as mcp_hosts
from tests.mcp.mcp_world import Daemon, desk, talk

ROOT = Path(__file__).parents[2]


def test_the_prompt_is_the_instruction_text(tmp_path: Path) -> None:
    """S4.27: agents get the text that says when to note context."""

    async def scene(client: Client) -> tuple[str, str]:
        listed = (await client.list_prompts()).prompts
        got = await client.get_prompt(listed[0].name)
        return listed[0].name, got.messages[0].content.text

    name, text = talk(desk(Daemon(tmp_path / "s")), scene)
    assert name == "relevant-context-guide"
    assert text == (ROOT / "indexerd/integrations/instructions.md").read_text()
    assert "set_relevant_context" in text


@pytest.mark.parametrize("host", mcp_hosts.HOSTS)
def test_snippets_are_in_the_hosts_shape(host: str) -> None:
    command, env = ["/opt/my tools/indexerd", "mcp"], {"INDEXERD_SOCKET": '/r/"s'}
    found = mcp_hosts.snippet(host, command, env)
    held = tomllib.loads(found) if host == "codex" else json.loads(found)
    table = {"codex": "mcp_servers", "opencode": "mcp", "vscode": "servers"}
    entry = held[table.get(host, "mcpServers")]["indexerd"]
    if host == "opencode":
        assert entry["command"] == command
        assert entry["environment"] == env
        assert entry["type"] == "local"
    else:
        assert [entry["command"], *entry["args"]] == command
        assert entry["env"] == env
    assert host in ("cursor", "codex", "opencode") or entry["type"] == "stdio"
