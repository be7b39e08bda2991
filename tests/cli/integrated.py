"""A machine with agents whose configuration `indexerd integrate` edits."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from indexerd.cli import main

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
