"""The real pi writes, the daemon reads, and pi's own reading of the file is the judge.

Only where `INDEXERD_RIG` names a directory in which the rig is installed: its `node`, its pi,
`pi_live.mjs` (a session written by pi's SessionManager) and `pi_oracle.mjs` (what pi makes of
a session file). Figures are printed (`pytest -s`), never asserted.

What surprised us: the oracle ends with `process.exit`, which cuts what a pipe has not yet
taken, so its answer goes to a file; pi_live halves its delay, so the pause after an answer is
half of it; and a turn is only its own when pi waits, so pi is stopped while we look.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import NotFoundError
from tests.e2e.rig_live import PI, Live, _pi_live, command, live, oracle
from tests.e2e.world import World, until

FIXTURES = Path(__file__).parents[1] / "fixtures/real"
QUIET = 0.3  # seconds, as in world.py
pytestmark = pytest.mark.skipif(
    not os.environ.get("INDEXERD_RIG"), reason="INDEXERD_RIG names no directory with the real pi"
)


def agree(world: World, said: dict[str, Any]) -> None:
    """Wait until the daemon says of a session what pi's list and its reading of the branch say."""
    listed, files, cwd = said["list"], said["fileListsOnBranch"], said["header"]["cwd"]
    wanted = {
        "agentTitle": listed["name"],
        "messageCount": listed["messageCount"],
        "firstUserMessage": " ".join(listed["firstMessage"].split())[:200],
        "modifiedAt": listed["modified"],
        "createdAt": listed["created"],
        "cwd": cwd,
        "userMessageCount": said["userMessagesOnBranch"],
        "leafId": said["leafId"],
        "filesRead": [f"{cwd}/{path}" for path in files["readFiles"]],
        "filesModified": [f"{cwd}/{path}" for path in files["modifiedFiles"]],
    }

    def found() -> dict[str, Any]:
        row = world.row(said["header"]["id"])
        return {key: row.get(key) for key in wanted}

    try:
        until(lambda: found() == wanted, "agreement")
    except AssertionError:
        assert wanted == found()


def count_turns(world: World, **rule: Any) -> None:
    """A local scripted model whose calls name the newest answer in their prompt."""
    world.scripted()
    head = {"remote": False, "session": r"(?s).*Live answer (\d+)"}
    world.script.write_text(f"{json.dumps(head)}\n{json.dumps(rule)}\n")


def wait_leaf(world: World, session_id: str, leaf: str) -> Any:
    """Wait for the meta file that covers a leaf."""
    return world.wait_meta(session_id, lambda meta: meta["lastIndexedLeafId"] == leaf)


def let_pass(seconds: float) -> None:
    """Wait for something that must not happen."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, "the time")


def asked(world: World) -> list[int]:
    """The newest answer of each call's prompt."""
    return [int(call["session"]) for call in world.calls()]


def logged(world: World, event: str) -> Counter[str]:
    """How often the log names an event, by session."""
    lines = (json.loads(line) for line in (world.state / "log.jsonl").read_text().splitlines())
    return Counter(line["session"] for line in lines if line["event"] == event)


@pytest.mark.parametrize("least", [1, 3])
def test_each_due_turn_of_the_real_pi_is_one_call(world: World, least: int) -> None:
    """S0.1, S0.6, S0.7, S0.8, S0.9, S0.10, S1.13: one call a due turn; the branch counts."""
    count_turns(world)
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = str(least)
    due: list[int] = []
    since: str | None = None
    lags: list[float] = []
    options = ("--k", "12", "--delay", "1000", "--branch-every", "5")
    with world.daemon(), live(world, *options) as pi:
        for number, entry in enumerate(pi.answers(), 1):
            leaf = entry["id"]
            if pi.users(leaf, since) < least:
                let_pass(QUIET * 2)
                continue
            meta = wait_leaf(world, pi.id, leaf)
            seen = (world.metas / f"{pi.id}.meta.json").stat().st_mtime
            lags.append(seen - entry["t"] / 1000)
            due.append(number)
            since = leaf
            assert meta["userMessageCount"] == pi.users(leaf, None)
        said = oracle(world, pi.path)[0]
        agree(world, said)
        listed = [row for row in world.call("list")["sessions"] if row["sessionId"] == pi.id]
        assert [(row["indexed"], row["name"]) for row in listed] == [(True, meta["name"])]
    assert due == asked(world)
    assert len(due) > 12 // (2 * least)
    if due[-1] == 12:
        judged = said["leafId"], said["userMessagesOnBranch"]
        assert judged == (meta["lastIndexedLeafId"], meta["userMessageCount"])
    print(f"\nturn end to meta file, {len(lags)} turns, quiet time {QUIET} s included:")
    print(f"  p50 {statistics.median(lags):.3f} s, max {max(lags):.3f} s")


VARIANTS: list[tuple[str, ...]] = [
    (),
    ("--tools", "--big", "3000"),
    ("--compact-every", "3"),
    ("--label-every", "2"),
    ("--name-every", "3"),
    ("--tools", "--compact-every", "4", "--label-every", "3", "--name-every", "3"),
]


def test_rows_are_what_pi_lists(world: World) -> None:
    """S0.7, S1.1, S1.4, S1.13: six pis at once, each resumed by another: rows as pi lists them."""
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1000"
    with world.daemon():
        files = _together(world, [(*more, "--k", "8") for more in VARIANTS])
        for said in oracle(world, *files):
            agree(world, said)
        again = zip(VARIANTS, files, strict=True)
        _together(world, [(*more, "--k", "5", "--resume", str(file)) for more, file in again])
        for said in oracle(world, *files):
            agree(world, said)
            name = said["sessionName"] or said["list"]["firstMessage"]
            assert name == world.row(said["header"]["id"])["name"]
        assert len(world.call("list", archived=True)["sessions"]) == len(VARIANTS)
    assert not world.metas.exists() or not list(world.metas.iterdir())


def _together(world: World, runs: list[tuple[str, ...]]) -> list[Path]:
    """Run several pi_lives at once, to their ends."""
    argv = (*_pi_live(world), "--delay", "20", "--branch-every", "4", "--seed")
    started = [
        command(world, *argv, str(seed), *run, stdout=subprocess.PIPE)
        for seed, run in enumerate(runs)
    ]
    told = [process.communicate(timeout=40)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(runs)
    return [Path(json.loads(one.splitlines()[0])["file"]) for one in told]


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
OPEN = ("--input-type=module", "-e", SLOWLY)  # then: ms before each line of a rewriting, files


@pytest.mark.parametrize("pause", [0, 100], ids=["quick", "slow"])
@pytest.mark.parametrize(
    ("version", "calls_each"), [("pi-0.30.2-v1", 1), ("pi-0.32.3-v2", 0)], ids=["v1", "v2"]
)
def test_pi_migrates_files_in_place(
    world: World, version: str, calls_each: int, pause: int
) -> None:
    """S1.8, S1.9, S1.11, S0.9: one resync, the same sessions, their meta files; v1 counts anew.

    Slow is the same rewriting with a pause before each line, so that the daemon meets the file
    empty, with a header alone, and half written.
    """
    world.scripted(remote=False)
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "3"
    shutil.copytree(FIXTURES / version / "sessions", world.pi / "sessions", dirs_exist_ok=True)
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
        said = oracle(world, *rewritten)
        for one in said:
            agree(world, one)
        let_pass(QUIET * 3)
        until(lambda: _resting(world), "the last runs")
        assert ids == {row["sessionId"] for row in world.call("list", archived=True)["sessions"]}
    leaves = {one["header"]["id"]: one["leafId"] for one in said if one["header"]["id"] in before}
    assert 3 + calls_each * len(leaves) == len(world.calls())
    after = _metas(world)
    assert leaves.items() <= {key: one["lastIndexedLeafId"] for key, one in after.items()}.items()
    kept = [after[key]["createdAt"] for key in before]
    assert kept == [one["createdAt"] for one in before.values()]
    assert Counter(one["header"]["id"] for one in said) == logged(world, "session.reset")
    assert not logged(world, "session.removed")


def _metas(world: World) -> dict[str, dict[str, Any]]:
    found = (json.loads(path.read_bytes()) for path in world.metas.glob("*.meta.json"))
    return {meta["sessionId"]: meta for meta in found}


def _resting(world: World) -> bool:
    status = world.call("status")
    return not status["queued"] and not status["indexing"]


def test_an_emptied_file_is_a_new_session_of_pi(world: World) -> None:
    """S1.3: an emptied file keeps its session, until pi makes another one of it."""
    with world.daemon():
        with live(world, "--k", "6", "--delay", "20", "--branch-every", "0") as pi:
            list(pi.entries())
        world.wait_meta(pi.id)
        pi.path.write_bytes(b"")
        until(lambda: logged(world, "session.reset")[pi.id], "the empty file")
        assert not world.row(pi.id)["gone"]
        assert command(world, *OPEN, "0", pi.path).wait(20) == 0
        until(lambda: world.row(pi.id)["gone"], "the old session to be gone")
        new = str(json.loads(pi.path.read_bytes())["id"])
        assert new == world.row(new)["sessionId"]


@pytest.mark.parametrize(
    "options", [("2000",), ("600", "--tools", "--big", "20000")], ids=["small", "big"]
)
def test_a_burst_is_right_in_the_end(world: World, options: tuple[str, ...]) -> None:
    """S0.11, W10: turns without a pause: pi's leaf and counts in the end, and one call."""
    count_turns(world)
    world.env["INDEXERD_DIGEST__ENABLED"] = "false"  # that is a call of its own
    with world.daemon() as process:
        read = Path(f"/proc/{process.pid}/io")
        before = _rchar(read)
        with live(world, "--delay", "0", "--branch-every", "50", "--k", *options) as pi:
            list(pi.entries())
        said = oracle(world, pi.path)[0]
        agree(world, said)
        meta = wait_leaf(world, pi.id, said["leafId"])
        taken = _rchar(read) - before
        assert said["userMessagesOnBranch"] == meta["userMessageCount"]
    assert asked(world) == [int(options[0])]
    size, count = pi.path.stat().st_size, len(pi.seen)
    print(f"\n{count} appends, {size / 1e6:.1f} MB; the daemon read {taken / 1e6:.1f} MB")
    assert taken < 3 * size + 32_768 * count  # fingerprints, text and caches; never the file again


def _rchar(io: Path) -> int:
    return int(io.read_text().split()[1]) if io.exists() else 0


def test_killed_while_pi_writes(world: World) -> None:
    """S0.36, F2: kill -9 at any moment of a live session: nothing stored is asked for again."""
    count_turns(world, delay=0.15)
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1"
    dice = random.Random(11)
    stored: list[tuple[int, str]] = []  # calls until a kill, and the leaf that was stored then
    with live(world, "--k", "12", "--delay", "1200", "--branch-every", "4") as pi:
        while pi.process.poll() is None:
            with world.daemon() as process:
                until(partial(_more_calls, world, pi, len(world.calls())), "a call")
                let_pass(dice.random() * 0.6)
                process.send_signal(signal.SIGKILL)
                process.wait()
            meta = world.meta(pi.id)
            if meta:
                stored.append((len(world.calls()), meta["lastIndexedLeafId"]))
        list(pi.entries())
    assert len(stored) > 2
    said = oracle(world, pi.path)[0]
    with world.daemon():
        agree(world, said)
        meta = wait_leaf(world, pi.id, said["leafId"])
        assert said["userMessagesOnBranch"] == meta["userMessageCount"]
    answers = [entry["id"] for entry in pi.seen if entry.get("role") == "assistant"]
    calls = asked(world)
    for count, leaf in stored:
        assert answers.index(leaf) + 1 not in calls[count:]
    assert calls == sorted(calls)
    assert len(calls) - len(set(calls)) <= len(stored) + 1
    print(f"\n{len(stored)} kills, calls for turns {calls}")


def _more_calls(world: World, pi: Live, count: int) -> bool:
    return len(world.calls()) > count or pi.process.poll() is not None


def test_a_forced_run_whose_file_vanishes_is_answered(world: World) -> None:
    """S0.4: who waits for the end of a turn is told when the session is deleted instead."""
    with world.daemon(), live(world, "--k", "3", "--delay", "600") as pi:
        asked = (entry for entry in pi.entries() if entry.get("role") == "user")
        next(asked), next(asked)  # the first may not be in the file yet: that is up to the version
        pi.process.send_signal(signal.SIGSTOP)
        until(lambda: world.row(pi.id).get("userMessageCount") == 2, "the open turn")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(world.call, "index", ref=pi.id, force=True, wait=True)
            until(waiting.running, "the request")
            world.call("as_sent", ref=pi.id)
            pi.path.unlink()
            with pytest.raises(NotFoundError):
                waiting.result(15)
    assert world.meta(pi.id) is None
