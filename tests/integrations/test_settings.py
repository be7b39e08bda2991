"""Our entries in settings of others come and go; what an agent writes meanwhile is kept."""

from __future__ import annotations

import copy
import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.integrations import agent_settings as settings
from indexerd.integrations import changes
from indexerd.integrations.changes import Edit

EVENTS = ("UserPromptSubmit", "SessionStart", "Stop")
HOOK = st.fixed_dictionaries({"type": st.just("command"), "command": st.text(max_size=5)})
GROUP = st.fixed_dictionaries(
    {"hooks": st.lists(HOOK, max_size=2)}, optional={"matcher": st.text(max_size=3)}
)
HOOKS = st.dictionaries(st.sampled_from(EVENTS), st.lists(GROUP, min_size=1, max_size=2))
OTHER = st.dictionaries(st.sampled_from(["p", "q"]), st.integers() | st.lists(st.text(max_size=2)))
SERVERS = st.dictionaries(st.sampled_from(["a", "b"]), st.just({"command": "x"}), min_size=1)
COMMAND = "/x/bin/indexerd hook claude || true"
GROUPS: dict[str, dict[str, Any]] = {
    "UserPromptSubmit": {"hooks": [{"type": "command", "command": COMMAND, "timeout": 40}]},
    "SessionStart": {"matcher": "resume", "hooks": [{"type": "command", "command": COMMAND}]},
}
SERVER = {"command": "/x/bin/indexerd", "args": ["mcp"], "tool_timeout_sec": 60}


@given(OTHER, HOOKS.filter(bool) | st.none(), SERVERS | st.none())
def test_they_come_and_go(other: dict[str, Any], hooks: Any, servers: Any) -> None:
    """Ours are the last of each event; twice is as once; taken out, all is as it was."""
    value = copy.deepcopy(other)
    value |= {} if hooks is None else {"hooks": copy.deepcopy(hooks)}
    value |= {} if servers is None else {"mcpServers": dict(servers)}
    before = copy.deepcopy(value)
    for _ in range(2):
        settings.put_hooks("claude", GROUPS, value)
        settings.put_server("mcpServers", SERVER, value)
        for event, group in GROUPS.items():
            assert value["hooks"][event] == [*(hooks or {}).get(event, []), group]
        assert value["mcpServers"] == {**(servers or {}), "indexerd": SERVER}
    settings.take_hooks("claude", value)
    settings.take_server("mcpServers", value)
    assert value == before


@pytest.mark.parametrize(
    "text",
    ["", "a = 1", "a = 1 # mine\n\n\n", "[[a]]\nb = 1\n[c] # c", "[mcp_servers.b]\nx = 'x'\n"],
)
def test_a_table_comes_and_goes(text: str) -> None:
    """Comments and layout of the rest stay."""
    put = partial(settings.change_toml, partial(settings.put_server, "mcp_servers", SERVER))
    take = partial(settings.change_toml, partial(settings.take_server, "mcp_servers"))
    after = put(text)
    assert tomllib.loads(after)["mcp_servers"]["indexerd"] == SERVER
    assert after.startswith(text)
    assert put(after) == after
    assert take(after).rstrip() == text.rstrip()
    assert take(text) == text


OURS = "indexerd hook claude"


@pytest.mark.parametrize("command", [COMMAND, f"'/x y/'{OURS}", f"python3 -P -m {OURS}"])
def test_a_hook_of_ours(command: str) -> None:
    """Our program, wherever it is, and nothing else."""
    assert settings.is_hook_command("claude", command)
    assert not settings.is_hook_command("codex", command)


@pytest.mark.parametrize("command", [
    "", "hook claude", f"timeout 5 {OURS}", f"{OURS} | tee x", f"{OURS}; date", f"{OURS}\ndate",
    f"X=1 {OURS}", "indexerd hook 'claude", f"python3 -c {OURS}", f"{OURS} || date", f"not{OURS}",
])  # fmt: skip
def test_a_command_that_does_more_is_the_users(command: str) -> None:
    """Whatever is written around a call of ours is not taken for ours."""
    assert not settings.is_hook_command("claude", command)


def test_what_the_agent_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    """A file that changed after the edits were planned is read again."""
    path = tmp_path / "state.json"
    path.write_text('{"a": 0}')

    def raced(text: str | None) -> str:
        held = json.loads(text or "")
        path.write_text('{"a": 1}')
        return json.dumps(held | {"ours": 1})

    assert [one["did"] for one in changes.apply([Edit(str(path), raced)])] == ["updated"]
    assert json.loads(path.read_text()) == {"a": 1, "ours": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]
