"""`indexerd integrate` among what is not ours or broken: not touched, and nothing is kept by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.integrated import Machine


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    """A fresh home."""
    return Machine(tmp_path, capsys)


REFUSED = {
    "a plugin of theirs": ("opencode", "plugin", "export default 1\n", 2),
    "settings with comments": ("claude", "settings", "{ // mine\n}\n", 78),
    "broken settings": ("claude", "settings", '{"a": 1,', 78),
    "settings that are a list": ("claude", "settings", "[]", 78),
    "hooks that are a list": ("claude", "settings", '{"hooks": []}', 78),
    "broken state": ("claude", "state", "oops", 78),
    "a server of theirs": ("claude", "state", '{"mcpServers": {"indexerd": {"url": "x"}}}', 2),
    "broken TOML": ("codex", "toml", "[x", 78),
    "a table of theirs": ("codex", "toml", '[mcp_servers.indexerd]\ncommand = "x"\n', 2),
    "servers in one line": ("codex", "toml", "mcp_servers = {}\n", 78),
    "broken hooks": ("codex", "hooks", "{]", 78),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_ours_or_broken_is_not_touched(machine: Machine, what: str) -> None:
    """An error that says which file and what to do; no file of the agent is changed by it."""
    agent, name, text, code = REFUSED[what]
    path: Path = getattr(machine, name)
    path.write_text(text)
    before = machine.tree()
    error = machine.run(agent, code=code)["error"]
    assert str(path) in error["message"]
    assert error["hint"]
    assert machine.tree() == before


def test_what_to_do_by_hand_where_there_are_comments(machine: Machine) -> None:
    """A file that we could not write again with its comments: the hint has all of our entry."""
    machine.settings.write_text("{ // mine\n}\n")
    hint = machine.run("claude", code=78)["error"]["hint"]
    entry, _ = json.JSONDecoder().raw_decode(hint[hint.index("{") :])
    machine.settings.write_text("{}")
    machine.did("claude")
    assert json.loads(machine.settings.read_text()) == entry


def test_an_agent_that_is_not_there(machine: Machine, tmp_path: Path) -> None:
    """Nothing is made for it; taking it out is no error."""
    env = {"HOME": str(tmp_path / "empty")}
    (tmp_path / "empty").mkdir()
    for agent in ("pi", "claude", "codex", "opencode"):
        error = machine.run(agent, code=3, env=env)["error"]
        assert error["code"] == "not_found"
        assert agent in error["message"]
        assert set(machine.did(agent, "--remove", env=env).values()) <= {"absent"}
    assert list((tmp_path / "empty").iterdir()) == []


PLACES = {
    "pi": ".pi/agent/skills/indexerd/SKILL.md",
    "claude": ".claude/skills/indexerd/SKILL.md",
    "codex": ".codex/skills/indexerd/SKILL.md",
    "opencode": ".config/opencode/skills/indexerd/SKILL.md",
}


@pytest.mark.parametrize("agent", PLACES)
@pytest.mark.parametrize("force", [False, True])
def test_a_skill_of_the_users_is_never_written_over(
    machine: Machine, agent: str, force: bool
) -> None:
    """The rest is installed all the same, and taken out again; they hear that it was left alone."""
    skill = machine.home / PLACES[agent]
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: indexerd\ndescription: mine\n---\nMine.\n")
    before = machine.tree()
    done = machine.run(agent, *(["--force"] if force else []))
    did = {one["path"]: one["did"] for one in done["changes"]}
    assert did.pop(str(skill)) == "kept: not ours"
    assert set(did.values()) <= {"created", "updated"}
    assert did
    assert any(str(skill) in note for note in done["notes"])
    assert machine.tree()[PLACES[agent]] == before[PLACES[agent]]
    machine.did(agent, "--remove")
    assert machine.tree() == before
