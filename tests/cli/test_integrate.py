"""`indexerd integrate AGENT` installs once however often it runs, and removes itself completely."""

import json
import os
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from indexerd.cli import main, serve
from indexerd.integrations import changes
from indexerd.integrations.changes import Edit
from tests.e2e.forked import ran

SETTINGS = """{
    "permissions": {"allow": ["Bash"]},
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "date"}]}]
    }
}
"""
STATE = '{"numStartups": 7, "mcpServers": {}, "projects": {"/w": {"x": 1.50}}}'
TOML = 'model = "gpt-5.5" # mine\n\n[projects."/w"]\ntrust_level = "trusted"'


class Machine:
    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.home = root / "home"
        self.settings = self.home / ".claude/settings.json"
        self.state = self.home / ".claude.json"
        self.toml = self.home / ".codex/config.toml"
        self.hooks = self.home / ".codex/hooks.json"
        self.extension = self.home / ".pi/agent/extensions/indexerd/index.ts"
        self.plugin = self.home / ".config/opencode/plugins/indexerd.js"
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)}
        for name in (".claude", ".codex", ".pi/agent/extensions", ".config/opencode/plugins"):
            (self.home / name).mkdir(parents=True)
        for name in (".claude", ".codex", ".pi/agent", ".config/opencode"):
            (self.home / name / "skills").mkdir()
        self.settings.write_text(SETTINGS)
        self.state.write_text(STATE)
        self.state.chmod(0o600)
        self.toml.write_text(TOML)

    def run(self, *argv: str, code: int = 0, env: dict[str, str] | None = None) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name in [*os.environ]:
                patch.delenv(name)
            for name, value in (self.env | (env or {})).items():
                patch.setenv(name, value)
            done = main.run(["integrate", *argv, "--json"])
        out, err = self._capsys.readouterr()
        assert done == code, (out, err)
        return json.loads(out)

    def did(self, *argv: str, env: dict[str, str] | None = None) -> dict[str, str]:
        changes = self.run(*argv, env=env)["changes"]
        assert len({change["path"] for change in changes}) == len(changes)
        return {os.path.relpath(change["path"], self.home): change["did"] for change in changes}

    def tree(self) -> dict[str, tuple[int, bytes]]:
        found = {}
        for path in sorted(self.home.rglob("*")):
            held = b"" if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(self.home))] = (path.stat().st_mode, held)
        return found


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, capsys)


SKILL = "skills/indexerd/SKILL.md"
SKILLS = {
    "pi": f".pi/agent/{SKILL}",
    "claude": f".claude/{SKILL}",
    "codex": f".codex/{SKILL}",
    "opencode": f".config/opencode/{SKILL}",
}


IN_ONE_LINE = 'mcp_servers = { x = { command = "y" } }\n[a]\n'


@pytest.mark.parametrize(
    ("agent", "toml"), [*((agent, TOML) for agent in SKILLS), ("codex", IN_ONE_LINE)]
)
def test_installing_and_removing(machine: Machine, agent: str, toml: str) -> None:
    machine.toml.write_text(toml)
    before = machine.tree()
    first = machine.run(agent)
    assert {"created", "updated"} >= {change["did"] for change in first["changes"]}
    assert first["agent"] == agent
    assert first["notes"]
    after = machine.tree()
    servers = tomllib.loads(machine.toml.read_text()).get("mcp_servers", {})
    assert ("indexerd" in servers, "x" in servers) == (agent == "codex", toml == IN_ONE_LINE)
    assert set(machine.did(agent).values()) == {"unchanged"}
    assert machine.tree() == after
    for file, did in machine.did(agent, "--remove").items():
        assert did == ("updated" if file in before else "removed")
    assert machine.tree() == before
    assert set(machine.did(agent, "--remove").values()) == {"absent"}
    assert machine.tree() == before


def test_the_hooks_of_claude(machine: Machine) -> None:
    assert machine.did("claude") == {
        ".claude/settings.json": "updated",
        ".claude.json": "updated",
        ".claude/skills/indexerd/SKILL.md": "created",
    }
    text = machine.settings.read_text()
    held = json.loads(text)
    assert list(held["hooks"]) == ["Stop", "UserPromptSubmit", "SessionStart"]
    theirs, ours = held["hooks"]["UserPromptSubmit"]
    assert theirs["hooks"][0]["command"] == "date"
    (hook,) = ours["hooks"]
    assert hook["timeout"] > 30
    assert hook["command"].endswith("hook claude || true")
    (resumed,) = held["hooks"]["SessionStart"]
    assert resumed["matcher"] == "resume"
    env = machine.env | {"INDEXERD_SOCKET": "/nonexistent", "PYTHONPATH": os.getcwd()}
    event = '{"hook_event_name": "UserPromptSubmit", "prompt": "@@x"}'
    done = ran(["sh", "-c", hook["command"]], event, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    server = json.loads(machine.state.read_text())["mcpServers"]["indexerd"]
    assert (server["type"], server["args"][-1], server["env"]) == ("stdio", "mcp", {})
    assert Path(server["command"]).is_absolute()


OURS = "indexerd hook claude"
THEIRS = [
    "mine", "", "hook claude", f"timeout 5 {OURS}", f"{OURS} | tee x", f"{OURS}; date",
    f"{OURS}\ndate", f"X=1 {OURS}", "indexerd hook 'claude", f"python3 -c {OURS}",
    f"{OURS} || date", f"not{OURS}",
]  # fmt: skip


def test_later_changes_of_the_user_stay(machine: Machine) -> None:
    """Also hooks that do more than ours, or only look like it."""
    machine.did("claude")
    held = json.loads(machine.settings.read_text())
    mine = [{"type": "command", "command": command} for command in THEIRS]
    held["hooks"]["SessionStart"][0]["hooks"] += mine
    machine.settings.write_text(json.dumps(held, indent=2))
    state = json.loads(machine.state.read_text())
    state["mcpServers"]["other"] = {"command": "other", "args": []}
    machine.state.write_text(json.dumps(state, indent=2))
    assert set(machine.did("claude").values()) == {"unchanged"}
    machine.did("claude", "--remove")
    left = json.loads(machine.settings.read_text())["hooks"]
    assert left["SessionStart"] == [{"matcher": "resume", "hooks": mine}]
    assert len(left["UserPromptSubmit"]) == 1
    assert list(json.loads(machine.state.read_text())["mcpServers"]) == ["other"]


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


def test_codex_gets_a_table_and_hooks(machine: Machine) -> None:
    done = machine.run("codex")
    assert [change["did"] for change in done["changes"]] == ["created", "updated", "created"]
    assert any("trust" in note for note in done["notes"])
    text = machine.toml.read_text()
    assert text.startswith(TOML + "\n")
    server = tomllib.loads(text)["mcp_servers"]["indexerd"]
    assert server["args"][-1] == "mcp"
    assert {"INDEXERD_SOCKET", "XDG_RUNTIME_DIR"} <= set(server["env_vars"])
    held = json.loads(machine.hooks.read_text())["hooks"]
    assert sorted(held) == ["SessionStart", "UserPromptSubmit"]
    assert "hook codex" in held["UserPromptSubmit"][0]["hooks"][0]["command"]


def test_pi_and_opencode_get_their_files(machine: Machine) -> None:
    machine.did("pi")
    folder = machine.extension.parent
    assert machine.extension.exists()
    (folder / "mine.ts").write_text("mine")
    machine.did("pi", "--remove")
    assert [path.name for path in folder.iterdir()] == ["mine.ts"]
    machine.did("opencode")
    text = machine.plugin.read_text()
    assert "__INDEXERD_COMMAND__" not in text
    assert text.startswith("// indexerd integration")


@pytest.mark.parametrize("agent", SKILLS)
def test_every_agent_gets_the_instructions(machine: Machine, agent: str) -> None:
    """S4.27: as a skill with a description and the same text as MCP's prompt."""
    machine.did(agent)
    skill = machine.home / SKILLS[agent]
    nothing, head, text = skill.read_text().split("---\n", 2)
    assert nothing == ""
    assert head.startswith("# indexerd integration, ")
    assert "\nname: indexerd\ndescription: >-\n  When to call set_relevant_context" in head
    assert len(head.partition("description: ")[2]) < 1024
    instructions = files("indexerd") / "integrations/instructions.md"
    assert text == "\n" + instructions.read_text(encoding="utf-8")
    edited = skill.read_text() + "Mine.\n"
    skill.write_text(edited)
    assert "was edited" in machine.run(agent, code=2)["error"]["message"]
    assert skill.read_text() == edited


def _script(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_program_is_that_of_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _script(tmp_path / "other/indexerd")
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    assert serve.program() == (sys.executable, "-P", "-m", "indexerd")
    own = _script(tmp_path / "venv/bin/indexerd")
    assert serve.program() == (str(own),)


REFUSED = {
    "a plugin of theirs": ("opencode", "plugin", "export default 1\n", 2),
    "settings with comments": ("claude", "settings", "{ // mine\n}\n", 78),
    "broken settings": ("claude", "settings", '{"a": 1,', 78),
    "hooks that are a list": ("claude", "settings", '{"hooks": []}', 78),
    "broken state": ("claude", "state", "oops", 78),
    "a server of theirs": ("claude", "state", '{"mcpServers": {"indexerd": {"url": "x"}}}', 2),
    "broken TOML": ("codex", "toml", "[x", 78),
    "a table of theirs": ("codex", "toml", '[mcp_servers.indexerd]\ncommand = "x"\n', 2),
}


@pytest.mark.parametrize("what", REFUSED)
def test_foreign_or_broken_files_are_not_changed(machine: Machine, what: str) -> None:
    agent, name, text, code = REFUSED[what]
    path: Path = getattr(machine, name)
    path.write_text(text)
    before = machine.tree()
    error = machine.run(agent, code=code)["error"]
    assert f"{path}: " in error["message"]
    assert error["hint"]
    assert machine.tree() == before


def test_an_agent_that_is_not_there(machine: Machine, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path / "empty")}
    (tmp_path / "empty").mkdir()
    for agent in SKILLS:
        error = machine.run(agent, code=3, env=env)["error"]
        assert error["code"] == "not_found"
        assert agent in error["message"]
        assert set(machine.did(agent, "--remove", env=env).values()) <= {"absent"}
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("agent", SKILLS)
@pytest.mark.parametrize("force", [False, True])
def test_a_users_own_skill_is_never_overwritten(machine: Machine, agent: str, force: bool) -> None:
    skill = machine.home / SKILLS[agent]
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: indexerd\ndescription: mine\n---\nMine.\n")
    before = machine.tree()
    done = machine.run(agent, *(["--force"] if force else []))
    did = {change["path"]: change["did"] for change in done["changes"]}
    assert did.pop(str(skill)) == "kept: not ours"
    assert set(did.values()) <= {"created", "updated"}
    assert did
    assert any(str(skill) in note for note in done["notes"])
    assert machine.tree()[SKILLS[agent]] == before[SKILLS[agent]]
    machine.did(agent, "--remove")
    assert machine.tree() == before
