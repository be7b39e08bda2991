"""Edits of other programs' settings: indexerd's own hooks are recognised, other changes kept."""

import json
import tomllib
from functools import partial
from pathlib import Path

import pytest

from indexerd.integrations import agent_settings as settings
from indexerd.integrations import changes
from indexerd.integrations.changes import Edit

OURS = "indexerd hook claude"


@pytest.mark.parametrize("command", [
    "", "hook claude", f"timeout 5 {OURS}", f"{OURS} | tee x", f"{OURS}; date", f"{OURS}\ndate",
    f"X=1 {OURS}", "indexerd hook 'claude", f"python3 -c {OURS}", f"{OURS} || date", f"not{OURS}",
])  # fmt: skip
def test_a_command_that_does_more_is_the_users(command: str) -> None:
    """A command that only contains a call of indexerd is not removed."""
    assert not settings.is_hook_command("claude", command)


def test_what_the_agent_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    """A file that changed after the edit was planned is read again."""
    path = tmp_path / "state.json"
    path.write_text('{"a": 0}')

    def raced(text: str | None) -> str:
        held = json.loads(text or "")
        path.write_text('{"a": 1}')
        return json.dumps(held | {"ours": 1})

    assert [change["did"] for change in changes.apply([Edit(str(path), raced)])] == ["updated"]
    assert json.loads(path.read_text()) == {"a": 1, "ours": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_servers_in_one_line_of_toml_are_changed_there(tmp_path: Path) -> None:
    path, theirs = tmp_path / "config.toml", 'mcp_servers = { x = { command = "y" } }\n[a]\n'
    path.write_text(theirs)
    server = {"command": "/bin/indexerd", "args": ["mcp"]}
    put = partial(settings.put_server, "mcp_servers", server)
    take = partial(settings.take_server, "mcp_servers")
    for _ in range(2):
        changes.apply(settings.settings_edits(str(path), put, take, remove=False))
        held = tomllib.loads(path.read_text())
        assert held == {"mcp_servers": {"x": {"command": "y"}, "indexerd": server}, "a": {}}
    path.write_text(path.read_text() + "b = 1\n")
    changes.apply(settings.settings_edits(str(path), put, take, remove=True))
    assert path.read_text() == theirs + "b = 1\n"
