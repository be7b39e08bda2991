"""`indexerd integrate AGENT`: once, however often it runs; and taken out without a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import indexerd
from indexerd.cli import main
from indexerd.cli.program import command
from indexerd.core.agent_settings import is_hook_command
from indexerd.io import installs
from indexerd.service.installs import hook_command
from tests.cli.home import INDEXERD

SETTINGS = """{
    // mine
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
    """A home with all four agents, as their users have them."""

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
        self.settings.write_text(SETTINGS)
        self.state.write_text(STATE)
        self.state.chmod(0o600)
        self.toml.write_text(TOML)

    def process(self, *argv: str) -> dict[str, Any]:
        """One `indexerd integrate … --json`, as a process."""
        done = subprocess.run(
            [*INDEXERD, "integrate", *argv, "--json"],
            env=self.env,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=50,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def run(self, *argv: str, code: int = 0, env: dict[str, str] | None = None) -> Any:
        """The same within this process."""
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
        """What was done with each file of the home."""
        changes = self.run(*argv, env=env)["changes"]
        assert len({one["path"] for one in changes}) == len(changes)
        return {os.path.relpath(one["path"], self.home): one["did"] for one in changes}

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Every file, with its mode and its bytes; every directory."""
        found = {}
        for path in sorted(self.home.rglob("*")):
            held = b"" if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(self.home))] = (path.stat().st_mode, held)
        return found


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    """A fresh home."""
    return Machine(tmp_path, capsys)


@pytest.mark.parametrize("agent", ["pi", "claude", "codex", "opencode"])
def test_put_in_and_taken_out(machine: Machine, agent: str) -> None:
    """Twice is as once; `--remove` gives every byte and mode back, and says so once."""
    before = machine.tree()
    first = machine.process(agent)
    assert {"created", "updated"} >= {one["did"] for one in first["changes"]}
    assert first["agent"] == agent
    assert first["notes"]
    after = machine.tree()
    assert set(machine.did(agent).values()) == {"unchanged"}
    assert machine.tree() == after
    assert set(machine.did(agent, "--remove").values()) == {"removed"}
    assert machine.tree() == before
    assert set(machine.did(agent, "--remove").values()) == {"absent"}
    assert machine.tree() == before


def test_the_hooks_of_claude(machine: Machine) -> None:
    """Ours stand beside the user's; the user's comment and order stay; the command never blocks."""
    assert machine.did("claude") == {
        ".claude/settings.json": "updated",
        ".claude.json": "updated",
        ".claude/skills/indexerd/SKILL.md": "created",
    }
    text = machine.settings.read_text()
    assert "    // mine\n" in text
    held = json.loads(text.replace("// mine", ""))
    assert list(held["hooks"]) == ["Stop", "UserPromptSubmit", "SessionStart"]
    theirs, ours = held["hooks"]["UserPromptSubmit"]
    assert theirs["hooks"][0]["command"] == "date"
    (hook,) = ours["hooks"]
    assert hook["timeout"] > 30
    assert hook["command"].endswith("hook claude || true")
    (resumed,) = held["hooks"]["SessionStart"]
    assert resumed["matcher"] == "resume"
    done = subprocess.run(
        ["sh", "-c", hook["command"]],
        input='{"hook_event_name": "UserPromptSubmit", "prompt": "@@x"}',
        env=machine.env | {"INDEXERD_SOCKET": "/nonexistent", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    server = json.loads(machine.state.read_text())["mcpServers"]["indexerd"]
    assert (server["type"], server["args"][-1], server["env"]) == ("stdio", "mcp", {})
    assert Path(server["command"]).is_absolute()


def test_another_place_of_claudes(machine: Machine, tmp_path: Path) -> None:
    """CLAUDE_CONFIG_DIR holds settings and state, as Claude has it; its older file is met, too."""
    place = tmp_path / "my claude"
    place.mkdir()
    env = {"CLAUDE_CONFIG_DIR": str(place)}
    assert set(machine.did("claude", env=env).values()) == {"created"}
    names = [".claude.json", "settings.json", "skills"]
    assert sorted(one.name for one in place.iterdir()) == names
    assert machine.settings.read_text() == SETTINGS
    machine.did("claude", "--remove", env=env)
    assert list(place.iterdir()) == []
    (machine.home / ".claude/.config.json").write_text("{}")
    machine.did("claude")
    assert machine.state.read_text() == STATE
    assert "indexerd" in (machine.home / ".claude/.config.json").read_text()


def test_an_older_installation_is_brought_up(machine: Machine) -> None:
    """Entries of another path are brought up where they stand, never doubled; limits stay."""
    machine.did("claude")
    text = machine.settings.read_text()
    current = json.loads(machine.state.read_text())
    hook = json.loads(text.replace("// mine", ""))["hooks"]["SessionStart"][0]["hooks"][0]
    edited = text.replace('"timeout": 40', '"timeout": 3').replace('"resume"', '"resume|startup"')
    old = edited.replace(hook["command"], "/old/bin/indexerd hook claude || true")
    assert old.count("/old/bin") == 2
    machine.settings.write_text(old)
    state = json.loads(machine.state.read_text())
    state["mcpServers"]["indexerd"] |= {"command": "/old/bin/indexerd", "args": ["mcp"]}
    machine.state.write_text(json.dumps(state))
    skill = machine.home / ".claude/skills/indexerd/SKILL.md"
    present = skill.read_text()
    installs.apply([installs.own_file(str(skill), "---\nname: indexerd\n---\nOlder.\n")])
    assert set(machine.did("claude").values()) == {"updated"}
    assert skill.read_text() == present
    assert machine.settings.read_text() == edited
    assert json.loads(machine.state.read_text()) == current


def test_what_the_user_set_in_codexs_table_stays(machine: Machine) -> None:
    """Running it again resets no limit of theirs, and takes no key away; the program is ours."""
    machine.did("codex")
    text = machine.toml.read_text()
    program = tomllib.loads(text)["mcp_servers"]["indexerd"]["command"]
    edited = text.replace(
        "tool_timeout_sec = 60", "# mine\ntool_timeout_sec = 300\nenabled = false"
    )
    assert edited != text
    machine.toml.write_text(edited.replace(f'"{program}"', '"/old/indexerd"'))
    assert machine.did("codex")[".codex/config.toml"] == "updated"
    assert machine.toml.read_text() == edited
    machine.did("codex", "--remove")
    assert machine.toml.read_text() in (TOML, TOML + "\n# mine\n")


def test_what_the_user_changed_since_stays(machine: Machine) -> None:
    """A hook of theirs put beside ours, and a server of theirs, outlive ours."""
    machine.did("claude")
    held = json.loads(machine.settings.read_text().replace("// mine", ""))
    held["hooks"]["SessionStart"][0]["hooks"].append({"type": "command", "command": "mine"})
    machine.settings.write_text(json.dumps(held, indent=2))
    state = json.loads(machine.state.read_text())
    state["mcpServers"]["other"] = {"command": "other", "args": []}
    machine.state.write_text(json.dumps(state, indent=2))
    assert set(machine.did("claude").values()) == {"unchanged"}
    machine.did("claude", "--remove")
    left = json.loads(machine.settings.read_text())["hooks"]
    assert left["SessionStart"] == [
        {"matcher": "resume", "hooks": [{"type": "command", "command": "mine"}]}
    ]
    assert len(left["UserPromptSubmit"]) == 1
    assert list(json.loads(machine.state.read_text())["mcpServers"]) == ["other"]


def test_codex_gets_a_table_and_hooks(machine: Machine) -> None:
    """The server is told which of our variables to pass on; the user hears of trust."""
    done = machine.run("codex")
    assert [one["did"] for one in done["changes"]] == ["created", "updated", "created"]
    assert any("trust" in note for note in done["notes"])
    text = machine.toml.read_text()
    assert text.startswith(TOML + "\n")
    server = tomllib.loads(text)["mcp_servers"]["indexerd"]
    assert server["args"][-1] == "mcp"
    assert {"INDEXERD_SOCKET", "XDG_RUNTIME_DIR"} <= set(server["env_vars"])
    held = json.loads(machine.hooks.read_text())["hooks"]
    assert sorted(held) == ["SessionStart", "UserPromptSubmit"]
    assert "hook codex" in held["UserPromptSubmit"][0]["hooks"][0]["command"]


def test_pi_and_opencode_get_files_of_ours(machine: Machine) -> None:
    """Every packaged file, marked; one of an older version goes; the plugin knows our program."""
    machine.did("pi")
    folder = machine.extension.parent
    assert machine.extension.exists()
    older = folder / "older.ts"
    older.write_bytes(machine.extension.read_bytes())
    assert machine.did("pi")["/".join(older.parts[-5:])] == "removed"
    assert not older.exists()
    (folder / "mine.ts").write_text("mine")
    machine.did("pi", "--remove")
    assert [one.name for one in folder.iterdir()] == ["mine.ts"]
    machine.did("opencode")
    text = machine.plugin.read_text()
    assert "__INDEXERD_COMMAND__" not in text
    assert text.startswith("// indexerd integration")


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        ("pi", ".pi/agent"),
        ("claude", ".claude"),
        ("codex", ".codex"),
        ("opencode", ".config/opencode"),
    ],
)
def test_every_agent_gets_the_instructions(machine: Machine, agent: str, place: str) -> None:
    """S4.27: as a skill: a head that says what for, and the text that MCP's prompt has, too."""
    machine.did(agent)
    skill = machine.home / place / "skills/indexerd/SKILL.md"
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


def test_directories_that_were_made_go(machine: Machine) -> None:
    """What was not there before is not there afterwards; one that a user has used since stays."""
    extensions, plugins = machine.extension.parents[1], machine.plugin.parent
    for directory in (extensions, plugins, plugins.parent):
        directory.rmdir()
    (machine.home / ".local/share/opencode").mkdir(parents=True)
    before = machine.tree()
    for agent in ("pi", "opencode"):
        machine.did(agent)
        assert set(machine.did(agent).values()) == {"unchanged"}
        machine.did(agent, "--remove")
    assert machine.tree() == before
    machine.did("pi")
    (extensions / "mine.ts").write_text("mine")
    machine.did("pi", "--remove")
    assert [one.name for one in extensions.iterdir()] == ["mine.ts"]


def test_all_of_it_or_nothing(machine: Machine) -> None:
    """Where the server's file cannot be written, no hook is installed; the error names the file."""
    machine.state.unlink()
    other = machine.home / ("x" * 245 + ".json")  # no room for the name of a file beside it
    other.write_text(STATE)
    machine.state.symlink_to(other)
    before = machine.settings.read_text(), machine.settings.stat().st_ctime_ns
    error = machine.run("claude", code=75)["error"]
    assert "xxx.json" in error["message"]
    assert error["hint"] == "nothing was changed"
    assert (machine.settings.read_text(), machine.settings.stat().st_ctime_ns) == before


def test_the_other_place_of_claudes(machine: Machine) -> None:
    """`~/.config/claude` is a root as well (interfaces §1), where `~/.claude` is not there."""
    (machine.home / ".config/claude").mkdir()
    assert ".config/claude/settings.json" not in machine.did("claude")
    machine.did("claude", "--remove")
    machine.settings.unlink()
    machine.settings.parent.rmdir()
    before = machine.tree()
    expected = {
        ".config/claude/settings.json": "created",
        ".claude.json": "updated",
        ".config/claude/skills/indexerd/SKILL.md": "created",
    }
    assert machine.did("claude") == expected
    machine.settings.parent.mkdir()  # its user has moved it back: ours is still found
    assert set(machine.did("claude", "--remove").values()) == {"removed", "absent"}
    machine.settings.parent.rmdir()
    assert machine.tree() == before


def test_opencode_users_hear_what_a_plugin_costs(machine: Machine) -> None:
    """Once there is a plugin, it waits for the network at every start: said at once."""
    assert any("74 s" in note for note in machine.run("opencode")["notes"])


def _script(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_program_is_that_of_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script beside the interpreter; never another one, merely because PATH has it."""
    other = _script(tmp_path / "other/indexerd")
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    assert command() == (sys.executable, "-P", "-m", "indexerd")
    own = _script(tmp_path / "venv/bin/indexerd")
    assert command() == (str(own),)


def test_the_program_of_a_user_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install --user`: the script is in its scheme's directory, not beside the interpreter."""
    own = _script(tmp_path / "scripts/indexerd")
    _script(tmp_path / "usr/bin/indexerd")  # the system's, of another version
    package = Path(indexerd.__file__).resolve().parent.parent

    def path(name: str, _scheme: str) -> str:
        return str({"purelib": package, "scripts": own.parent}[name])

    monkeypatch.setattr(sysconfig, "get_path", path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "usr/bin/python"))
    assert command() == (str(own),)


def test_a_projects_own_package_is_not_run(machine: Machine) -> None:
    """Without a script: an agent that works in a directory with an `indexerd/` runs ours."""
    project = machine.home / "project"
    (project / "indexerd").mkdir(parents=True)
    (project / "indexerd/__init__.py").write_text("")
    (project / "indexerd/__main__.py").write_text("print('not ours')\n")
    words = [sys.executable, "-P", "-m", "indexerd"]
    line = hook_command("claude", words)
    assert is_hook_command("claude", line)
    done = subprocess.run(
        ["sh", "-c", line],
        input=b'{"hook_event_name": "UserPromptSubmit", "prompt": "@@x"}',
        env=machine.env | {"INDEXERD_SOCKET": "/nonexistent", "PYTHONPATH": os.getcwd()},
        cwd=project,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


REFUSED = {
    "a plugin of theirs": ("opencode", "plugin", "export default 1\n", 2),
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


def test_an_edited_file_of_ours(machine: Machine) -> None:
    """What somebody wrote into a file of ours is not overwritten, but by force."""
    machine.did("opencode")
    machine.plugin.write_text(machine.plugin.read_text() + "// mine\n")
    for words in (("opencode",), ("opencode", "--remove")):
        assert "--force" in machine.run(*words, code=2)["error"]["hint"]
    assert sorted(machine.did("opencode", "--force").values()) == ["unchanged", "updated"]
    assert "// mine" not in machine.plugin.read_text()


PLACES = {
    "pi": ".pi/agent/skills/indexerd/SKILL.md",
    "claude": ".claude/skills/indexerd/SKILL.md",
    "codex": ".codex/skills/indexerd/SKILL.md",
    "opencode": ".config/opencode/skills/indexerd/SKILL.md",
}
OWN_PLACES = [
    *PLACES.items(),
    ("pi", ".pi/agent/extensions/indexerd/index.ts"),
    ("opencode", ".config/opencode/plugins/indexerd.js"),
]


def untouched(path: Path) -> tuple[int, ...]:
    """What a write, a copy or a rename would change; reading a file may change its atime."""
    now = path.lstat()
    return now.st_ino, now.st_mode, now.st_size, now.st_mtime_ns, now.st_ctime_ns


@pytest.mark.parametrize(("agent", "place"), OWN_PLACES)
@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_is_not_ours_keeps_nothing_from_being_removed(
    machine: Machine, agent: str, place: str, what: str
) -> None:
    """The user's own file in the place of ours stays, and its line says so; the rest goes."""
    before = machine.tree()
    for force in ((), ("--force",)):
        machine.did(agent)
        path = machine.home / place
        path.unlink()
        if what == "file":
            path.write_text("---\nname: indexerd\ndescription: mine\n---\nMine.\n")
        else:
            path.mkdir()
        mine = untouched(path)
        done = machine.did(agent, "--remove", *force)
        assert done.pop(place) == "kept: not ours"
        assert set(done.values()) == {"removed"}
        assert untouched(path) == mine
        left = machine.tree()
        assert {name: left.get(name) for name in before} == before
        assert {*left} - {*before} <= {place, *map(str, Path(place).parents)}
        if what == "file":
            path.unlink()
        else:
            path.rmdir()


def test_a_line_says_what_was_left_alone(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people, too: a line like the others."""
    skill = machine.home / PLACES["claude"]
    skill.parent.mkdir(parents=True)
    skill.write_text("mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(machine.home))
        patch.delenv("CLAUDE_CONFIG_DIR", raising=False)
        assert main.run(["integrate", "claude", "--remove"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"kept: not ours  {skill}" in lines
    assert f"absent          {machine.settings}" in lines


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


@pytest.mark.parametrize("agent", PLACES)
def test_files_of_ours_with_other_line_ends_go(machine: Machine, agent: str) -> None:
    """What git's autocrlf or an editor made of our skill is still ours."""
    before = machine.tree()
    machine.did(agent)
    skill = machine.home / PLACES[agent]
    skill.write_bytes(b"\xef\xbb\xbf" + skill.read_bytes().replace(b"\n", b"\r\n"))
    assert set(machine.did(agent, "--remove").values()) == {"removed"}
    assert machine.tree() == before


@pytest.mark.parametrize("agent", PLACES)
def test_a_link_to_nowhere_is_refused(machine: Machine, agent: str) -> None:
    """By name, before anything is written; `--remove` has nothing to do there."""
    link = machine.home / PLACES[agent].removesuffix("/indexerd/SKILL.md")
    link.symlink_to(machine.home / "gone/skills")
    before = {*machine.home.rglob("*")}
    settings = machine.settings.read_text()
    error = machine.run(agent, code=2)["error"]
    assert str(link) in error["message"]
    assert "nothing was changed" in error["hint"]
    assert set(machine.did(agent, "--remove").values()) == {"absent"}
    assert {*machine.home.rglob("*")} == before
    assert machine.settings.read_text() == settings
