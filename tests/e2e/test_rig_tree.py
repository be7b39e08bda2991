"""Trees of sessions that the real pi wrote, and branches that the real pi reads.

Only where `INDEXERD_RIG` names a directory with the rig, as in test_rig.py. What the daemon says
of a session is compared with pi's own answers, and a branch that we make with the one that pi
makes of the same file: but for chance and time they are the same entries.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig_live import PI, RIG, command, live, package
from tests.e2e.world import World, until
from tests.sessions.tree_sessions import REAL

pytestmark = pytest.mark.skipif(
    not os.environ.get("INDEXERD_RIG"), reason="INDEXERD_RIG names no directory with the real pi"
)

BRANCH = f"""
const {{ SessionManager }} = await import({json.dumps(str(PI))});
const [file, ...leaves] = process.argv.slice(1);
for (const leaf of leaves) console.log(SessionManager.open(file).createBranchedSession(leaf));
"""

RUNS: list[tuple[str, ...]] = [
    ("--k", "14", "--branch-every", "3", "--label-every", "2", "--tools"),
    ("--k", "16", "--branch-every", "4", "--label-every", "3", "--compact-every", "5"),
    ("--k", "10", "--branch-every", "2", "--name-every", "3", "--label-every", "1"),
]


def oracle(world: World, *files: Path) -> list[dict[str, Any]]:
    """What pi makes of session files, their trees and whole texts included."""
    answer = world.root / "whole.json"
    env = {"PATH": os.environ["PATH"], "HOME": world.env["HOME"], "RIG": str(RIG), "PI_FULL": "1"}
    env["PI_PKG"] = str(package(world))
    node = str(RIG / "node/node_modules/node/bin/node")
    with answer.open("w") as out:
        argv = [node, str(RIG / "pi_oracle.mjs"), *map(str, files)]
        assert subprocess.run(argv, env=env, stdout=out, timeout=50, check=False).returncode == 0
    found = json.loads(answer.read_bytes())
    return found if isinstance(found, list) else [found]


def messages(world: World, session_id: str, leaf: str | None = None) -> list[list[str]]:
    """The context, as the oracle lists it."""
    more = {"leaf": leaf} if leaf else {}
    found = world.call("context", ref=session_id, **more)["messages"]
    return [[one["role"], one["text"]] for one in found]


def flat(roots: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """The nested tree, depth first."""
    found, stack = [], roots[::-1]
    while stack:
        node = stack.pop()
        found.append((node["id"], node.get("label")))
        stack += node.get("children", [])[::-1]
    return found


def written(world: World, seed: int, run: tuple[str, ...]) -> tuple[str, Path]:
    """A session that pi wrote, known to the daemon."""
    options = (*run, "--delay", "0", "--seed", str(seed))
    with live(world, *options) as pi:
        last = [entry["id"] for entry in pi.entries()][-1]
        assert pi.process.wait(20) == 0
    until(lambda: world.row(pi.id).get("leafId") == last, "the session")
    return pi.id, pi.path


def agree(world: World, session_id: str, said: dict[str, Any]) -> None:
    """Every view of a session is pi's own."""
    tree = world.call("tree", ref=session_id)
    assert [(node["id"], node.get("label")) for node in tree["nodes"]] == flat(said["tree"])
    assert {node["id"] for node in tree["nodes"] if node["active"]} == set(said["branch"])
    found = world.call("branches", ref=session_id)["tips"]
    tips = {(one["leafId"], one["entries"], one["userMessages"]) for one in found}
    leaves = ((one["id"], one["pathLength"], one["userMessages"]) for one in said["leaves"])
    assert tips == set(leaves)
    assert {one["branchPointId"] for one in found if one["branchPointId"]} <= set(
        said["branchPoints"]
    )
    for leaf, expected in said["contextPerLeaf"].items():
        assert expected == messages(world, session_id, leaf)
    context = world.call("context", ref=session_id)
    assert context["model"] == said["context"]["model"]
    assert context["thinkingLevel"] == said["context"]["thinkingLevel"]
    path = world.call("path", ref=session_id)["entries"]
    assert [one["id"] for one in path] == said["branch"]


def pis_branches(world: World, file: Path, leaves: list[str]) -> list[list[dict[str, Any]]]:
    """What pi itself writes for branches: from a copy, since it rewrites older files."""
    place = world.root / "copies"
    place.mkdir(exist_ok=True)
    copy = Path(shutil.copy(file, place))
    argv: list[str | Path] = ["--input-type=module", "-e", BRANCH, copy, *leaves]
    with command(world, *argv, stdout=subprocess.PIPE) as process:
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return [records(Path(path)) for path in said.splitlines()]


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def alike(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what chance and time put into them, and without the file's own place."""
    header, *entries = records
    names = {one["id"]: f"label {n}" for n, one in enumerate(entries) if one["type"] == "label"}
    same = [
        {key: names.get(value, value) if isinstance(value, str) else value for key, value in one}
        for one in (entry.items() for entry in entries)
    ]
    return [{key: header[key] for key in ("type", "version", "cwd")}, *same]


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_sessions_of_the_real_pi_are_seen_and_branched_as_pi_does(
    world: World, number: int
) -> None:
    """Views, and every branch of them.

    S1.4, S1.5, S1.6, S1.13, S1.14, S1.15, S1.16, S1.18, S1.19, S1.20, S1.30, S1.36.
    """
    with world.daemon():
        session_id, file = written(world, number, RUNS[number])
        check(world, session_id, file)


def test_a_session_of_many_kinds_of_entries_is_branched_as_pi_does(world: World) -> None:
    """S1.16: system messages, a compaction, edits, summaries, notes: a session of pi's own SDK."""
    (file,) = (REAL / "pi/sessions").glob("*/*_01a1fff1-4515-*.jsonl")
    copy = Path(shutil.copy(file, world.sessions))
    with world.daemon():
        session_id = json.loads(copy.read_bytes().partition(b"\n")[0])["id"]
        until(lambda: world.row(session_id), "the session")
        check(world, session_id, copy)


def check(world: World, session_id: str, file: Path) -> None:
    """All views of a session, and every branch of it."""
    (said,) = oracle(world, file)
    agree(world, session_id, said)
    leaves = [one["id"] for one in said["leaves"]]
    made = [world.call("branch", ref=session_id, leaf=leaf) for leaf in leaves]
    files = [Path(one["sessionFile"]) for one in made]
    for branch, path, theirs in zip(made, files, pis_branches(world, file, leaves), strict=True):
        assert alike(theirs) == alike(records(path))
        assert len(theirs) == branch["entries"] + 1
    for leaf, branch, read in zip(leaves, made, oracle(world, *files), strict=True):
        new = branch["sessionId"]
        assert (read["header"]["id"], read["fileRewrittenOnOpen"]) == (new, False)
        assert read["header"]["parentSession"] == str(file)
        context = [[one["role"], one["text"]] for one in read["context"]["messages"]]
        assert context == said["contextPerLeaf"][leaf]
        until(lambda: world.row(new), "the new session")  # noqa: B023 - asked at once
        agree(world, new, read)


@pytest.mark.parametrize("version", ["pi-0.30.2-v1", "pi-0.32.3-v2"])
def test_older_files_branch_into_what_pi_opens(world: World, version: str) -> None:
    """S1.8, S1.9: a branch of a file of version 1 or 2 is of version 3, the source untouched."""
    shutil.copytree(REAL / version / "sessions", world.pi / "sessions", dirs_exist_ok=True)
    files = sorted(world.pi.glob("sessions/*/*.jsonl"))
    before = world.fingerprint()
    with world.daemon():
        made = []
        for file in files:
            session_id = json.loads(file.read_bytes().partition(b"\n")[0])["id"]
            until(lambda: world.row(session_id), "the session")  # noqa: B023 - asked at once
            leaf = world.call("tree", ref=session_id)["leafId"]
            made.append(world.call("branch", ref=session_id, leaf=leaf))
        assert before.items() <= world.fingerprint().items()
    new = oracle(world, *(Path(one["sessionFile"]) for one in made))
    for was, now in zip(oracle(world, *files), new, strict=True):
        assert (now["versionOnDisk"], now["fileRewrittenOnOpen"]) == (3, False)
        assert was["branchTypes"] == now["branchTypes"]
        assert was["context"] == now["context"]
