"""Every agent's real sessions, through the real program: counts, names, parents, files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import REAL, World

AGENTS = {"pi", "claude", "codex", "opencode"}
Row = dict[str, Any]
CONFIG = """
[agents.pi]
roots = ["{0}/pi", "{0}/pi-0.30.2-v1", "{0}/pi-0.32.3-v2"]
[agents.claude]
roots = ["{0}/claude"]
[agents.codex]
roots = ["{0}/codex", "{0}/codex-0.120.0"]
[agents.opencode]
roots = ["{0}/opencode"]
"""


def sent() -> list[Row]:
    names = ("truth.json", "truth-pi.json")
    rows = [one for name in names for one in json.loads((REAL / name).read_text())]
    return [one for one in rows if _exists(one)]


def _exists(one: Row) -> bool:
    kept = one.get("exists", True) and one["label"] != "deleted"
    there = "session_id" in one or (REAL / (one.get("file") or one["files"][0])).exists()
    return there and (kept or one["agent"] == "codex-0.120.0")  # which could not delete


SENT = [pytest.param(one, id=f"{one['agent']}-{one['label']}") for one in sent()]


def session_id(one: Row) -> str:
    if "session_id" in one:
        return str(one["session_id"])
    file = one.get("file") or one["files"][0]
    if one["agent"].startswith("pi"):
        return str(json.loads((REAL / file).read_text().partition("\n")[0])["id"])
    return str(Path(file).stem[-36:])


def prints(store: Path) -> dict[str, tuple[int, int]]:
    files = (one for one in store.rglob("*") if one.is_file() and "sessions-meta" not in one.parts)
    return {str(one): (one.stat().st_size, one.stat().st_mtime_ns) for one in files}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    world = World(tmp_path_factory.mktemp("agents"))
    store = world.root / "stores"
    shutil.copytree(REAL, store, ignore=shutil.ignore_patterns("pi-oracle", "*checkpointed"))
    world.configure(CONFIG.format(store))
    before = prints(store)
    world.run("run", "--once", "--json", code=None)
    assert prints(store) == before, "S1.10: nothing of an agent's own was touched"
    found = world.run("list", "--all", "--archived", "--subagents", "--limit", "500", "--json")
    return {row["sessionId"]: row for row in found["sessions"]}


@pytest.mark.parametrize("one", SENT)
def test_a_session_is_what_its_driver_sent(rows: dict[str, Row], one: Row) -> None:
    """S1.16, S3.3: user messages on the path, name, parent and files; a fork knows its parent."""
    row = rows[session_id(one)]
    assert row["userMessageCount"] == one["n_user"]
    if one.get("name"):
        assert row["agentTitle"] == one["name"]
    assert (row["archived"], row["subagent"]) == (one["label"] == "archived", False)
    wrote = {*one["files_edited"], *one["files_written"]}
    if one.get("files_visible", True):
        assert {path.removeprefix(row["cwd"] + "/") for path in row["filesModified"]} == wrote
    if one["agent"].startswith("pi"):
        read = {path.removeprefix(row["cwd"] + "/") for path in row["filesRead"]}
        assert read == {*one["files_read"]} - wrote
    parent = one["agent"], (one.get("parent") or "").partition(" (")[0]
    parents = [session_id(other) for other in sent() if (other["agent"], other["label"]) == parent]
    assert row.get("parentSessionId") == (parents[0] if parents else None)


def test_there_is_one_row_a_session(rows: dict[str, Row]) -> None:
    """S3.1, S3.11: every agent is there, sub-agents too; only pi and opencode record a cost."""
    assert {row["agent"] for row in rows.values()} == AGENTS
    below = [row for row in rows.values() if row["subagent"]]
    assert {row["agent"] for row in below} == {"claude", "codex", "opencode"}
    assert all(row["userMessageCount"] == 0 and row["parentSessionId"] for row in below)
    for row in rows.values():
        if row["userMessageCount"] and row["state"] != "active" and row["durationMs"]:
            assert row["models"], row["sessionId"]
    assert {row["agent"] for row in rows.values() if row["tokens"]["output"]} == AGENTS
    assert {row["agent"] for row in rows.values() if row["costUsd"]} <= {"pi", "opencode"}
