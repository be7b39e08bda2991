"""Every agent's real sessions, through the real program: counts, names, parents, files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import World

REAL = Path(__file__).parents[3] / "shared" / "fixtures" / "real"
AGENTS = {"pi": "pi", "claude": "claude", "codex": "codex", "opencode": "opencode"}

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(
        not REAL.exists(), reason="the shared fixtures are not beside this checkout"
    ),
]


def truth() -> list[dict[str, Any]]:
    """What the drivers sent, session by session."""
    rows: list[dict[str, Any]] = json.loads((REAL / "truth.json").read_text())
    return [one for one in rows if _exists(one)]


def _exists(one: dict[str, Any]) -> bool:
    kept = one.get("exists", True) and one["label"] != "deleted"
    return kept or one["agent"] == "codex-0.120.0"  # which could not delete


def session_id(one: dict[str, Any]) -> str:
    """The session's id, from its header or the name of its file."""
    if "session_id" in one:
        return str(one["session_id"])
    file = one.get("file") or one["files"][0]
    if one["agent"].startswith("pi"):
        return str(json.loads((REAL / file).read_text().partition("\n")[0])["id"])
    return str(Path(file).stem[-36:])


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the program makes of all the fixtures at once."""
    root = tmp_path_factory.mktemp("agents")
    world = World(root)
    store = root / "stores"
    shutil.copytree(REAL, store, ignore=shutil.ignore_patterns("pi-oracle", "*checkpointed"))
    world.config.parent.mkdir(parents=True)
    world.config.write_text(
        f"""
[agents.pi]
roots = ["{store}/pi", "{store}/pi-0.30.2-v1", "{store}/pi-0.32.3-v2"]
[agents.claude]
roots = ["{store}/claude"]
[agents.codex]
roots = ["{store}/codex", "{store}/codex-0.120.0"]
[agents.opencode]
roots = ["{store}/opencode"]
"""
    )
    before = fingerprint(store)
    world.run("run", "--once", "--json", code=None)
    assert fingerprint(store) == before, "S1.10: nothing of an agent's own was touched"
    found = world.run("list", "--all", "--archived", "--subagents", "--limit", "500", "--json")
    return {row["sessionId"]: row for row in found["sessions"]}


def fingerprint(store: Path) -> dict[str, tuple[int, int]]:
    """Every file's size and time, but for what is ours."""
    files = (one for one in store.rglob("*") if one.is_file() and "sessions-meta" not in one.parts)
    return {str(one): (one.stat().st_size, one.stat().st_mtime_ns) for one in files}


@pytest.mark.parametrize(
    "one", truth() if REAL.exists() else [], ids=lambda one: f"{one['agent']}-{one['label']}"
)
def test_a_session_is_what_its_driver_sent(
    rows: dict[str, dict[str, Any]], one: dict[str, Any]
) -> None:
    """Done when: user messages on the current path, name, parent and files equal the truth."""
    row = rows[session_id(one)]

    assert row["userMessageCount"] == one["n_user"]
    if one.get("name"):
        assert row["agentTitle"] == one["name"]
    assert row["archived"] == (one["label"] == "archived")
    assert row["subagent"] is False
    if one.get("files_visible", True):
        wanted = {*one["files_edited"], *one["files_written"]}
        modified = {path.removeprefix(row["cwd"] + "/") for path in row["filesModified"]}
        assert modified == wanted
    if one["agent"].startswith("pi"):
        read = {path.removeprefix(row["cwd"] + "/") for path in row["filesRead"]}
        assert read == {*one["files_read"]} - {*one["files_edited"], *one["files_written"]}


@pytest.mark.parametrize(
    "one", truth() if REAL.exists() else [], ids=lambda one: f"{one['agent']}-{one['label']}"
)
def test_a_fork_knows_its_parent(rows: dict[str, dict[str, Any]], one: dict[str, Any]) -> None:
    """S1.16: linked to the session it came from; also in opencode, which stores no link."""
    label = (one.get("parent") or "").partition(" (")[0]
    parent = next(
        (
            session_id(other)
            for other in truth()
            if (other["agent"], other["label"]) == (one["agent"], label)
        ),
        None,
    )
    assert rows[session_id(one)].get("parentSessionId") == parent


def test_there_is_one_row_a_session(rows: dict[str, dict[str, Any]]) -> None:
    """Reverts, forks and copies make no duplicates; every agent is there, sub-agents included."""
    assert {row["agent"] for row in rows.values()} == set(AGENTS.values())
    helpers = [row for row in rows.values() if row["subagent"]]
    assert {row["agent"] for row in helpers} == {"claude", "codex", "opencode"}
    assert all(row["userMessageCount"] == 0 and row["parentSessionId"] for row in helpers)
