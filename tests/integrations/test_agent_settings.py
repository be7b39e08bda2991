"""Hooks and servers of ours in settings of others: in and out again, whatever else is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.integrations import agent_settings

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
    edited = after.replace('"env": {"A": "b"}', '"env": { "A": "b" /* mine */ }')
    assert edited != after
    assert agent_settings.with_server(SERVER, edited.replace("/x/bin", "/o")) == edited


def test_every_hook_of_ours_goes_and_no_other() -> None:
    """Doubled ones and ones in a group of the user's go, too; a group of theirs stays."""
    ours, theirs = {"command": COMMAND}, {"command": "indexerd status"}
    groups = [{"hooks": [ours]}, {"hooks": [theirs, ours]}, {"hooks": [ours, ours]}, {}]
    hooks = {"SessionStart": groups, "PreToolUse": [{"hooks": [ours]}]}
    left = agent_settings.without_hooks("claude", json.dumps({"hooks": hooks}))
    assert left is not None
    assert json.loads(left)["hooks"] == hooks | {"SessionStart": [{"hooks": [theirs]}, {}]}


THEIRS = (
    "cat > /tmp/log; indexerd hook claude",
    "tee log | indexerd hook claude",
    "echo run indexerd hook claude",
    "echo '# indexerd hook claude'",
    "timeout 5 indexerd hook claude || notify-send failed",
    "bash -c 'indexerd hook claude; ./mine.sh'",
    "INDEXERD_SOCKET=/x indexerd hook claude",
    "myindexerd hook claude",
    "a;/x/indexerd hook claude",
    "/opt/notindexerd/bin/foo hook claude",
    "/x/indexerd hook claude --mine",
    "/x/indexerd hook claude > log",
    "/x/indexerd hook claude &",
    "/x/indexerd hook claude\n./mine.sh",
    "/x/indexerd hook\nclaude",
    "/x/indexerd hook codex",
    "/x/indexerd hook 'claude",
    "uvx indexerd hook claude",
    "ruby -m indexerd hook claude",
    "python -m indexerd hook claude || true; ./audit.sh || true",
    "",
)
CALLS = (
    "indexerd hook claude",
    "/x/indexerd hook claude || true",
    "'/my venv $x '\"'\"'q'\"'\"' é/indexerd' hook claude || true",
    "/x/python3.13 -m indexerd hook claude || true",
    "/x/pypy3 -P -m indexerd hook claude",
)


@pytest.mark.parametrize("command", THEIRS)
def test_a_command_that_does_anything_else_is_the_users(command: str) -> None:
    """Only a bare call of our program is ours; the user's own are neither changed nor removed."""
    before = json.dumps(
        {"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": command}]}]}}
    )
    after = agent_settings.with_hooks("claude", OURS, before)
    (theirs, ours) = json.loads(after)["hooks"]["UserPromptSubmit"]
    assert theirs["hooks"][0]["command"] == command
    assert ours == OURS["UserPromptSubmit"]
    assert agent_settings.without_hooks("claude", after) == before


@pytest.mark.parametrize("command", CALLS)
def test_a_call_of_ours_is_known_in_every_form(command: str) -> None:
    """By any path, by any Python; it gets the command of now, and goes."""
    held = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": command}]}]}}
    before = json.dumps(held, indent=2)
    after = agent_settings.with_hooks("claude", OURS, before)
    assert json.loads(after)["hooks"]["SessionStart"] == [
        {"hooks": [{"type": "command", "command": COMMAND}]}
    ]
    assert agent_settings.without_hooks("claude", before) is None


def test_limits_and_matchers_of_a_hook_are_the_users() -> None:
    """An update brings the command alone; the rest of the hook, and its text, stay."""
    after = agent_settings.with_hooks("claude", OURS, "{}")
    edited = after.replace("40", '99, /* mine */ "async": false').replace("resume", "resume|x")
    assert agent_settings.with_hooks("claude", OURS, edited) == edited
    older = edited.replace("/x/bin", "/old")
    assert agent_settings.with_hooks("claude", OURS, older) == edited


def test_doubled_hooks_become_one() -> None:
    """Of several of ours in one event the first stays, as it is, with the command of now."""
    one, two = ({"command": f"/{n}/indexerd hook claude", "timeout": n} for n in (1, 2))
    theirs = {"command": "mine"}
    groups = [{"hooks": [theirs, one]}, {"hooks": [two]}, {"hooks": [two, theirs]}]
    text = json.dumps({"hooks": {"UserPromptSubmit": groups}}, indent=2)
    held = json.loads(agent_settings.with_hooks("claude", OURS, text))["hooks"]
    assert held["UserPromptSubmit"] == [
        {"hooks": [theirs, {"command": COMMAND, "timeout": 1}]},
        {"hooks": [theirs]},
    ]


@given(OTHER, st.sampled_from([None, 2, 3, "\t"]), st.booleans())
def test_nothing_is_left_in_a_file_written_anew(other: Any, indent: Any, resorted: bool) -> None:
    """Another program has re-sorted the file: hooks and server go with all that was around them."""
    text = agent_settings.with_hooks("claude", OURS, json.dumps(other | {"z": 1}))
    text = agent_settings.with_server(SERVER, text)
    text = json.dumps(json.loads(text), indent=indent, sort_keys=resorted)
    left = agent_settings.without_hooks("claude", text)
    assert left is not None
    left = agent_settings.without_server(left)
    assert left is not None
    assert json.loads(left) == other | {"z": 1}


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
