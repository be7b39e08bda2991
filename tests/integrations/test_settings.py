"""Which hooks are ours in settings of others; what an agent writes meanwhile is kept."""

from __future__ import annotations

import json
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
