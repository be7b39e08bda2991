"""Every agent's real sessions, through the real program: counts, names, parents, files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import World

SHARED = Path(__file__).parents[3] / "shared" / "fixtures" / "real"
OWN = Path(__file__).parents[1] / "fixtures" / "real"
AGENTS = {"pi", "claude", "codex", "opencode"}
Row = dict[str, Any]


def truth(store: Path) -> list[Row]:
    """What the drivers sent, session by session, as far as it is there."""
    names = ("truth.json", "truth-pi.json")
    held = [json.loads((store / name).read_text()) for name in names if (store / name).exists()]
    return [one for rows in held for one in rows if _exists(one) and _is_in(store, one)]


def _is_in(store: Path, one: Row) -> bool:
    return "session_id" in one or (store / (one.get("file") or one["files"][0])).exists()


def cases() -> list[Any]:
    """Every session of our own fixtures, and of the shared ones where they are at hand."""
    own = [pytest.param((OWN, one), id=f"{one['agent']}-{one['label']}") for one in truth(OWN)]
    shared = [
        pytest.param(
            (SHARED, one), id=f"shared-{one['agent']}-{one['label']}", marks=pytest.mark.shared
        )
        for one in (truth(SHARED) if SHARED.exists() else [])
    ]
    return [*own, *shared]


def _exists(one: Row) -> bool:
    kept = one.get("exists", True) and one["label"] != "deleted"
    return kept or one["agent"] == "codex-0.120.0"  # which could not delete


def session_id(store: Path, one: Row) -> str:
    """The session's id, from its header or the name of its file."""
    if "session_id" in one:
        return str(one["session_id"])
    file = one.get("file") or one["files"][0]
    if one["agent"].startswith("pi"):
        return str(json.loads((store / file).read_text().partition("\n")[0])["id"])
    return str(Path(file).stem[-36:])


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], dict[str, Row]]:
    """What the program makes of all sessions of a place at once."""

    @cache
    def found(store: Path) -> dict[str, Row]:
        return everything(tmp_path_factory.mktemp("agents"), store)

    return found


def everything(root: Path, real: Path) -> dict[str, Row]:
    """Every row, after one pass over a copy."""
    world = World(root)
    store = root / "stores"
    shutil.copytree(real, store, ignore=shutil.ignore_patterns("pi-oracle", "*checkpointed"))
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


@pytest.mark.parametrize("case", cases())
def test_a_session_is_what_its_driver_sent(
    known: Callable[[Path], dict[str, Row]], case: tuple[Path, Row]
) -> None:
    """Done when: user messages on the current path, name, parent and files equal the truth."""
    store, one = case
    row = known(store)[session_id(store, one)]

    assert row["userMessageCount"] == one["n_user"]
    if one.get("name"):
        assert row["agentTitle"] == one["name"]
    assert row["archived"] == (one["label"] == "archived")
    assert row["subagent"] is False
    wrote = {*one["files_edited"], *one["files_written"]}
    if one.get("files_visible", True):
        assert {path.removeprefix(row["cwd"] + "/") for path in row["filesModified"]} == wrote
    if one["agent"].startswith("pi"):
        read = {path.removeprefix(row["cwd"] + "/") for path in row["filesRead"]}
        assert read == {*one["files_read"]} - wrote


@pytest.mark.parametrize("case", cases())
def test_a_fork_knows_its_parent(
    known: Callable[[Path], dict[str, Row]], case: tuple[Path, Row]
) -> None:
    """S1.16: linked to the session it came from; also in opencode, which stores no link."""
    store, one = case
    label = (one.get("parent") or "").partition(" (")[0]
    parents = [
        session_id(store, other)
        for other in truth(store)
        if (other["agent"], other["label"]) == (one["agent"], label)
    ]
    told = known(store)[session_id(store, one)].get("parentSessionId")
    assert told == (parents[0] if parents else None)


def test_there_is_one_row_a_session(known: Callable[[Path], dict[str, Row]]) -> None:
    """S3.1: no duplicates by reverts, forks and copies; every agent is there, sub-agents, too."""
    rows = known(OWN).values()
    assert {row["agent"] for row in rows} == AGENTS
    helpers = [row for row in rows if row["subagent"]]
    assert {row["agent"] for row in helpers} == {"claude", "codex", "opencode"}
    assert all(row["userMessageCount"] == 0 and row["parentSessionId"] for row in helpers)


def test_tokens_models_and_cost_are_told_where_they_are_recorded(
    known: Callable[[Path], dict[str, Row]],
) -> None:
    """Issue's fifth point: of every agent; only pi and opencode record what it cost."""
    for row in known(OWN).values():
        if row["userMessageCount"] and row["state"] != "active" and row["durationMs"]:
            assert row["models"], row["sessionId"]
    spent = {row["agent"] for row in known(OWN).values() if row["tokens"]["output"]}
    assert spent == AGENTS
    assert {row["agent"] for row in known(OWN).values() if row["costUsd"]} <= {"pi", "opencode"}
