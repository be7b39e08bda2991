"""Hooks and servers of ours in settings of others: in and out again, whatever else is there."""

from __future__ import annotations

import copy
import tomllib
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.integrations import agent_settings as settings

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
SERVER = {"type": "stdio", "command": "/x/bin/indexerd", "args": ["mcp"], "env": {}}
put_hooks = partial(settings.put_hooks, "claude", GROUPS)
take_hooks = partial(settings.take_hooks, "claude")


@given(OTHER, HOOKS.filter(bool) | st.none(), SERVERS | st.none())
def test_they_come_and_go(other: dict[str, Any], hooks: Any, servers: Any) -> None:
    """Ours are the last of each event; twice is as once; taken out, all is as it was."""
    value = copy.deepcopy(other)
    value |= {} if hooks is None else {"hooks": copy.deepcopy(hooks)}
    value |= {} if servers is None else {"mcpServers": dict(servers)}
    before = copy.deepcopy(value)
    for _ in range(2):
        put_hooks(value)
        settings.put_server(SERVER, value)
        for event, group in GROUPS.items():
            assert value["hooks"][event] == [*(hooks or {}).get(event, []), group]
        assert value["mcpServers"] == {**(servers or {}), "indexerd": SERVER}
    take_hooks(value)
    settings.take_server(value)
    assert value == before


@pytest.mark.parametrize(
    "command", [COMMAND, "'/x y/indexerd' hook claude", "python3 -P -m indexerd hook claude"]
)
def test_a_hook_of_ours(command: str) -> None:
    """Our program, wherever it is, and nothing else."""
    assert settings.is_hook_command("claude", command)
    assert not settings.is_hook_command("codex", command)


OURS = "indexerd hook claude"


@pytest.mark.parametrize("command", [
    "", "hook claude", f"timeout 5 {OURS}", f"{OURS} | tee x", f"{OURS}; date", f"{OURS}\ndate",
    f"X=1 {OURS}", "indexerd hook 'claude", f"python3 -c {OURS}", f"{OURS} || date", f"not{OURS}",
])  # fmt: skip
def test_a_command_that_does_more_is_the_users(command: str) -> None:
    """Whatever is written around a call of ours is not taken for ours."""
    assert not settings.is_hook_command("claude", command)


@pytest.mark.parametrize("value", [{"hooks": []}, {"hooks": {"SessionStart": {}}}])
def test_another_shape_is_refused(value: dict[str, Any]) -> None:
    """And not replaced."""
    with pytest.raises(ValueError, match="is no"):
        put_hooks(value)
    with pytest.raises(ValueError, match="is no"):
        settings.put_server(SERVER, {"mcpServers": []})


WANTED = {"command": "/x/indexerd", "args": ["mcp"], "tool_timeout_sec": 60}
TOML = ("", "a = 1", "a = 1 # mine\n\n\n", "[[a]]\nb = 1\n[c] # c", "[mcp_servers.b]\nx = 'x'\n")


@pytest.mark.parametrize("text", TOML)
def test_a_table_comes_and_goes(text: str) -> None:
    """The rest stays to the letter."""
    after = settings.put_toml_server(WANTED, text)
    assert tomllib.loads(after)["mcp_servers"]["indexerd"] == WANTED
    assert after.startswith(text)
    assert settings.put_toml_server(WANTED, after) == after
    assert settings.take_toml_server(after) == text
    assert settings.take_toml_server(text) == text


def test_a_table_of_the_users_is_theirs() -> None:
    """One of our name that starts another program."""
    with pytest.raises(UsageError, match="not ours"):
        settings.put_toml_server(WANTED, '[mcp_servers.indexerd]\ncommand = "x"\n')
    with pytest.raises(ValueError, match="TOML"):
        settings.put_toml_server(WANTED, "[x")
