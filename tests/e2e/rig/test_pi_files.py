"""The real pi writes, the daemon reads, and pi's own reader is the judge.

`pi_live.mjs` is a session written by pi's SessionManager; `pi_oracle.mjs` prints what pi reads from
a file.

The oracle ends with `process.exit`, which truncates output to a pipe, so it writes to a file.
pi_live halves its delay, so the pause after an answer is half as long. pi is stopped during checks,
because a turn is complete only while pi waits.
"""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig.live_pi import PI, _pi_live, command, live, oracle
from tests.e2e.rig.sandbox import needed
from tests.e2e.world import REAL, World, let_pass, logged, until, wait

QUIET = 0.3  # seconds, as in world.py


def agree(world: World, reports: dict[str, Any]) -> None:
    listed, files, cwd = reports["list"], reports["fileListsOnBranch"], reports["header"]["cwd"]
    wanted = {
        "agentTitle": listed["name"],
        "messageCount": listed["messageCount"],
        "firstUserMessage": " ".join(listed["firstMessage"].split())[:200],
        "modifiedAt": listed["modified"],
        "createdAt": listed["created"],
        "cwd": cwd,
        "userMessageCount": reports["userMessagesOnBranch"],
        "leafId": reports["leafId"],
        "filesRead": [f"{cwd}/{path}" for path in files["readFiles"]],
        "filesModified": [f"{cwd}/{path}" for path in files["modifiedFiles"]],
    }
    wait(world, reports["header"]["id"], **wanted)


def count_turns(world: World, **rule: Any) -> None:
    world.scripted()
    head = {"remote": False, "session": r"(?s).*Live answer (\d+)"}
    world.script.write_text(f"{json.dumps(head)}\n{json.dumps(rule)}\n")


def wait_leaf(world: World, session_id: str, leaf: str) -> Any:
    return world.wait_meta(session_id, lambda meta: meta["lastIndexedLeafId"] == leaf)


def asked(world: World) -> list[int]:
    return [int(call["session"]) for call in world.calls()]


pytestmark = needed


@pytest.mark.parametrize("least", [1, 3])
def test_each_due_turn_of_the_real_pi_is_one_call(world: World, least: int) -> None:
    """S0.1, S0.6, S0.7, S0.8, S0.9, S0.10, S1.13: one call per due turn of the branch."""
    count_turns(world)
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = str(least)
    due: list[int] = []
    since: str | None = None
    options = ("--k", "12", "--delay", "1000", "--branch-every", "5")
    with world.daemon(), live(world, *options) as pi:
        for number, entry in enumerate(pi.answers(), 1):
            leaf = entry["id"]
            if pi.users(leaf, since) < least:
                let_pass(QUIET * 2)
                continue
            meta = wait_leaf(world, pi.id, leaf)
            due.append(number)
            since = leaf
            assert meta["userMessageCount"] == pi.users(leaf, None)
        reports = oracle(world, pi.path)[0]
        agree(world, reports)
        listed = [row for row in world.call("list")["sessions"] if row["sessionId"] == pi.id]
        assert [(row["indexed"], row["name"]) for row in listed] == [(True, meta["name"])]
    assert due == asked(world)
    assert len(due) > 12 // (2 * least)
    if due[-1] == 12:
        expected = reports["leafId"], reports["userMessagesOnBranch"]
        assert expected == (meta["lastIndexedLeafId"], meta["userMessageCount"])


VARIANTS: list[tuple[str, ...]] = [
    (),
    ("--tools", "--big", "3000"),
    ("--compact-every", "3"),
    ("--label-every", "2"),
    ("--name-every", "3"),
    ("--tools", "--compact-every", "4", "--label-every", "3", "--name-every", "3"),
]


def test_rows_match_pis_own_list(world: World) -> None:
    """S0.7, S1.1, S1.4, S1.13: six pis write at once, and each session is resumed by another."""
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1000"
    with world.daemon():
        files = _together(world, [(*more, "--k", "8") for more in VARIANTS])
        for reports in oracle(world, *files):
            agree(world, reports)
        again = zip(VARIANTS, files, strict=True)
        _together(world, [(*more, "--k", "5", "--resume", str(file)) for more, file in again])
        for reports in oracle(world, *files):
            agree(world, reports)
            name = reports["sessionName"] or reports["list"]["firstMessage"]
            assert name == world.row(reports["header"]["id"])["name"]
        assert len(world.call("list", archived=True)["sessions"]) == len(VARIANTS)
    assert not world.metas.exists() or not list(world.metas.iterdir())


def _together(world: World, runs: list[tuple[str, ...]]) -> list[Path]:
    argv = (*_pi_live(world), "--delay", "20", "--branch-every", "4", "--seed")
    started = [
        command(world, *argv, str(seed), *run, stdout=subprocess.PIPE)
        for seed, run in enumerate(runs)
    ]
    outputs = [process.communicate(timeout=40)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(runs)
    return [Path(json.loads(text.splitlines()[0])["file"]) for text in outputs]


SLOWLY = f"""
import fs from "node:fs";
import {{ syncBuiltinESMExports }} from "node:module";
const [pause, ...files] = process.argv.slice(1), write = fs.writeFileSync;
const still = new Int32Array(new SharedArrayBuffer(4));
fs.writeFileSync = (to, data) => {{
  if (typeof to === "number" && +pause) Atomics.wait(still, 0, 0, +pause);
  return write(to, data);
}};
syncBuiltinESMExports();
const {{ SessionManager }} = await import({json.dumps(str(PI))});
for (const file of files) SessionManager.open(file);
"""
OPEN = ("--input-type=module", "-e", SLOWLY)  # `pause`: ms before each line is rewritten; files


@pytest.mark.parametrize("pause", [0, 100], ids=["quick", "slow"])
@pytest.mark.parametrize(
    ("version", "calls_each"), [("pi-0.30.2-v1", 1), ("pi-0.32.3-v2", 0)], ids=["v1", "v2"]
)
def test_pi_migrates_files_in_place(
    world: World, version: str, calls_each: int, pause: int
) -> None:
    """S1.8, S1.9, S1.11, S0.9: a migrated file is read again once, as the same session.

    The meta files stay, and v1 is counted from the start. With a pause before each line the daemon
    also meets the file empty, with a header alone, and half written.
    """
    world.scripted(remote=False)
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "3"
    shutil.copytree(REAL / version / "sessions", world.pi / "sessions", dirs_exist_ok=True)
    files = sorted(world.pi.glob("sessions/*/*.jsonl"))
    ids = {json.loads(file.read_bytes().partition(b"\n")[0])["id"] for file in files}
    rewritten = files[1:2] if pause else files
    with world.daemon():
        until(lambda: len(world.calls()) == 3 and _resting(world), "the first runs")
        before = _metas(world)
        with command(world, *OPEN, str(pause), *rewritten) as process:
            while process.poll() is None:
                assert ids == {row["sessionId"] for row in world.call("list")["sessions"]}
        assert process.returncode == 0
        reports = oracle(world, *rewritten)
        for report in reports:
            agree(world, report)
        let_pass(QUIET * 3)
        until(lambda: _resting(world), "the last runs")
        assert ids == {row["sessionId"] for row in world.call("list", archived=True)["sessions"]}
    leaves = {
        report["header"]["id"]: report["leafId"]
        for report in reports
        if report["header"]["id"] in before
    }
    assert 3 + calls_each * len(leaves) == len(world.calls())
    after = _metas(world)
    assert leaves.items() <= {key: meta["lastIndexedLeafId"] for key, meta in after.items()}.items()
    kept = [after[key]["createdAt"] for key in before]
    assert kept == [meta["createdAt"] for meta in before.values()]
    assert Counter(report["header"]["id"] for report in reports) == Counter(
        line["session"] for line in logged(world, "session.reset")
    )
    assert not logged(world, "session.removed")


def _metas(world: World) -> dict[str, dict[str, Any]]:
    found = (json.loads(path.read_bytes()) for path in world.metas.glob("*.meta.json"))
    return {meta["sessionId"]: meta for meta in found}


def _resting(world: World) -> bool:
    status = world.call("status")
    return not status["queued"] and not status["indexing"]
