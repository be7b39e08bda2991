"""Recorded sessions of every agent have the right counts, names, parents and files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import REAL, World, copy_recorded

AGENTS = {"pi", "claude", "codex", "opencode"}
COSTS = ("costUsd", "costEstimatedUsd")
Row = dict[str, Any]


def recorded() -> list[Row]:
    names = ("truth.json", "truth-pi.json")
    rows = [truth for name in names for truth in json.loads((REAL / name).read_text())]
    return [row for row in rows if _exists(row)]


def _exists(truth: Row) -> bool:
    kept = truth.get("exists", True) and truth["label"] != "deleted"
    there = "session_id" in truth or (REAL / (truth.get("file") or truth["files"][0])).exists()
    return there and (kept or truth["agent"] == "codex-0.120.0")  # that release could not delete


RECORDED = [pytest.param(truth, id=f"{truth['agent']}-{truth['label']}") for truth in recorded()]
OF_PI = [param for param in RECORDED if str(param.id).startswith("pi")]


def session_id(truth: Row) -> str:
    if "session_id" in truth:
        return str(truth["session_id"])
    file = truth.get("file") or truth["files"][0]
    if truth["agent"].startswith("pi"):
        return str(json.loads((REAL / file).read_text().partition("\n")[0])["id"])
    return str(Path(file).stem[-36:])


def prints(store: Path) -> dict[str, tuple[int, int]]:
    files = (
        path for path in store.rglob("*") if path.is_file() and "sessions-meta" not in path.parts
    )
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("agents"))
    store = copy_recorded(world)
    before = prints(store)
    world.run("run", "--once", "--json", code=None)
    assert prints(store) == before, "S1.10: a file of an agent changed"
    return world


@pytest.fixture(scope="module")
def rows(read: World) -> dict[str, Row]:
    found = read.run("list", "--all", "--archived", "--subagents", "--limit", "500", "--json")
    return {row["sessionId"]: row for row in found["sessions"]}


@pytest.mark.parametrize("truth", RECORDED)
def test_a_row_matches_what_was_sent(rows: dict[str, Row], truth: Row) -> None:
    """S1.16, S3.3: message count, name, parent and files are those of the script that drove it."""
    row = rows[session_id(truth)]
    assert row["userMessageCount"] == truth["n_user"]
    if truth.get("name"):
        by = None if truth["agent"] == "opencode" else "user"  # its log is not in the fixture
        assert (row["agentTitle"], row.get("agentTitleBy")) == (truth["name"], by)
    assert (row["archived"], row["subagent"]) == (truth["label"] == "archived", False)
    wrote = {*truth["files_edited"], *truth["files_written"]}
    if truth.get("files_visible", True):
        assert {path.removeprefix(row["cwd"] + "/") for path in row["filesModified"]} == wrote
    if truth["agent"].startswith("pi"):
        read = {path.removeprefix(row["cwd"] + "/") for path in row["filesRead"]}
        assert read == {*truth["files_read"]} - wrote
    parent = truth["agent"], (truth.get("parent") or "").partition(" (")[0]
    parents = [
        session_id(other) for other in recorded() if (other["agent"], other["label"]) == parent
    ]
    assert row.get("parentSessionId") == (parents[0] if parents else None)


@pytest.mark.parametrize("truth", OF_PI)
def test_a_meta_file_matches_what_was_sent(read: World, rows: dict[str, Row], truth: Row) -> None:
    """S0.6, S0.31, S0.33: from five prompts on, with what the file's own header says."""
    file = read.root / "stores" / truth["file"]
    path = file.parents[2] / f"sessions-meta/{session_id(truth)}.meta.json"
    assert path.exists() is (truth["n_user"] >= 5)
    if not path.exists():
        return
    meta = json.loads(path.read_text())
    header, *entries = map(json.loads, file.read_bytes().splitlines())
    assert (meta["sessionFile"], meta["cwd"]) == (str(file.resolve()), header["cwd"])
    parent = header.get("parentSession", header.get("branchedFrom"))
    assert (meta.get("parentSessionFile"), meta["userMessageCount"]) == (parent, truth["n_user"])
    # Entries of version 1 have no ids, so indexerd derives stable ones.
    assert meta["lastIndexedLeafId"] == entries[-1].get("id", meta["lastIndexedLeafId"])
    assert meta["model"] == "local/extractive"
    assert 3 <= len(meta["tags"]) <= 12
    reads = {f"{meta['cwd']}/{path}" for path in truth["files_read"]}
    assert reads - {*meta["filesModified"]} == {*meta["filesRead"]}
    assert rows[session_id(truth)]["newUserMessages"] == 0
    # `show` counts prompts; a description has no figure that could differ.
    assert not re.search(r"\d+ (requests?|prompts?|messages?)", meta["description"])


def test_every_agent_has_rows(rows: dict[str, Row]) -> None:
    """S3.1, S3.11: sessions and sub-agents of all agents; only pi and opencode record a cost."""
    assert {row["agent"] for row in rows.values()} == AGENTS
    below = [row for row in rows.values() if row["subagent"]]
    assert {row["agent"] for row in below} == {"claude", "codex", "opencode"}
    assert all(row["userMessageCount"] == 0 and row["parentSessionId"] for row in below)
    assert all(row["firstUserMessage"] for row in below)
    assert {row["name"] for row in below if row["agent"] == "claude"} == {"cache review"}
    for row in rows.values():
        if row["userMessageCount"] and row["state"] != "active" and row["durationMs"]:
            assert row["models"], row["sessionId"]
    assert {row["agent"] for row in rows.values() if row["tokens"]["output"]} == AGENTS
    assert {row["agent"] for row in rows.values() if row["costUsd"]} <= {"pi", "opencode"}
    estimated = {row["agent"] for row in rows.values() if row["costEstimatedUsd"]}
    assert estimated & {"claude", "codex"}


def test_use_by_day_agent_model_and_project_adds_up_to_the_sessions(
    read: World, rows: dict[str, Row]
) -> None:
    """S1.13: no token, prompt or cent is lost or counted twice, whatever they are grouped by."""
    usage = read.run("stats", "--json")
    for group in ("days", "agents", "models", "projects"):
        for key in ("input", "output", "cacheRead", "cacheWrite"):
            assert sum(one["tokens"][key] for one in usage[group]) == usage["totals"]["tokens"][key]
        assert sum(one["prompts"] for one in usage[group]) == usage["totals"]["prompts"]
        for key in COSTS:
            cost = sum(one[key] or 0 for one in usage[group])
            assert cost == pytest.approx(usage["totals"][key] or 0)
    for used in usage["agents"]:
        own = [row for row in rows.values() if row["agent"] == used["agent"]]
        assert used["sessions"] <= sum(not row["subagent"] for row in own)
        for key, number in used["tokens"].items():
            assert number == sum(row["tokens"][key] for row in own), (used["agent"], key)
        for key in COSTS:
            cost = sum(row[key] or 0 for row in own)
            assert (used[key] or 0) == pytest.approx(cost, abs=1e-4)
    tenths, unknown = usage["context"]["tenths"], usage["context"]["unknown"]
    assert 0 < sum(tenths) + unknown <= sum(not row["subagent"] for row in rows.values())
