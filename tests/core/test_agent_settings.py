"""Hooks and servers of ours in settings of others: in and out again, whatever else is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.core import agent_settings
from indexerd.errors import UsageError

EVENTS = ("UserPromptSubmit", "SessionStart", "Stop")
HOOK = st.fixed_dictionaries({"type": st.just("command"), "command": st.text(max_size=5)})
GROUP = st.fixed_dictionaries(
    {"hooks": st.lists(HOOK, max_size=2)}, optional={"matcher": st.text(max_size=3)}
)
HOOKS = st.dictionaries(st.sampled_from(EVENTS), st.lists(GROUP, max_size=2), max_size=3)
SERVERS = st.dictionaries(st.sampled_from(["a", "b"]), st.just({"command": "x"}), max_size=2)
OTHER = st.dictionaries(st.sampled_from(["p", "q"]), st.integers() | st.lists(st.text(max_size=2)))
INDENT = st.sampled_from([None, 2, 4, "\t"])
COMMAND = "/x/bin/indexerd hook claude || true"
OURS: dict[str, dict[str, Any]] = {
    "UserPromptSubmit": {"hooks": [{"type": "command", "command": COMMAND, "timeout": 40}]},
    "SessionStart": {"matcher": "resume", "hooks": [{"type": "command", "command": COMMAND}]},
}
SERVER: dict[str, Any] = {
    "type": "stdio",
    "command": "/x/bin/indexerd",
    "args": ["mcp"],
    "env": {},
}


@given(OTHER, st.none() | HOOKS, INDENT)
def test_hooks_come_and_go(other: dict[str, Any], hooks: Any, indent: Any) -> None:
    """Ours are the last of each event; twice is as once; taken out, every byte is as it was."""
    held = other if hooks is None else other | {"hooks": hooks}
    before = json.dumps(held, indent=indent)
    after = agent_settings.with_hooks("claude", OURS, before)
    value = json.loads(after)
    for event in EVENTS:
        wanted = [*(hooks or {}).get(event, []), *([OURS[event]] if event in OURS else [])]
        assert value["hooks"].get(event, []) == wanted
    assert {key: value[key] for key in other} == other
    assert agent_settings.with_hooks("claude", OURS, after) == after
    assert agent_settings.without_hooks("codex", after) == after
    left = agent_settings.without_hooks("claude", after)
    assert left == before
    assert agent_settings.without_hooks("claude", before) == before


@given(OTHER, st.none() | SERVERS, INDENT)
def test_a_server_comes_and_goes(other: dict[str, Any], servers: Any, indent: Any) -> None:
    """The same for the MCP server; what the user gave ours besides is kept by an upgrade."""
    held = other if servers is None else other | {"mcpServers": servers}
    before = json.dumps(held, indent=indent)
    after = agent_settings.with_server(SERVER, before)
    assert json.loads(after)["mcpServers"] == (servers or {}) | {"indexerd": SERVER}
    assert agent_settings.with_server(SERVER, after) == after
    assert agent_settings.without_server(after) == before
    assert agent_settings.without_server(before) == before


def test_an_upgrade_keeps_what_the_user_added() -> None:
    """Program and arguments are ours; variables and a time limit are the user's."""
    old = SERVER | {"command": "/old/indexerd", "env": {"A": "b"}, "timeout": 9}
    after = agent_settings.with_server(SERVER, json.dumps({"mcpServers": {"indexerd": old}}))
    new = json.loads(after)["mcpServers"]["indexerd"]
    assert new == old | {"command": SERVER["command"]}


def test_every_hook_of_ours_goes_and_no_other() -> None:
    """Doubled ones and ones in a group of the user's go, too; a group of theirs stays."""
    ours, theirs = {"command": COMMAND}, {"command": "indexerd status"}
    groups = [{"hooks": [ours]}, {"hooks": [theirs, ours]}, {"hooks": [ours, ours]}, {}]
    left = agent_settings.without_hooks("claude", json.dumps({"hooks": {"Stop": groups}}))
    assert left is not None
    assert json.loads(left) == {"hooks": {"Stop": [{"hooks": [theirs]}, {}]}}


@pytest.mark.parametrize(
    "held", ["[]", "3", '{"hooks": 1}', '{"hooks": {"UserPromptSubmit": {}}}', '{"hooks": null}']
)
def test_another_shape_is_refused(held: str) -> None:
    """Settings that are no settings are an error, and not mended."""
    with pytest.raises(ValueError, match="is no"):
        agent_settings.with_hooks("claude", OURS, held)


def test_a_server_of_the_users_is_left_alone() -> None:
    """One of our name that starts something else is neither replaced nor removed."""
    for other in ({"url": "https://x"}, {"command": "indexerd-of-mine", "args": ["mcp"]}, 3):
        held = json.dumps({"mcpServers": {"indexerd": other}})
        with pytest.raises(UsageError, match="not ours"):
            agent_settings.with_server(SERVER, held)
        assert agent_settings.without_server(held) == held
