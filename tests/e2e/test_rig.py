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
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import NotFoundError
from tests.e2e.world import World, until

RIG = Path(os.environ.get("INDEXERD_RIG") or "/nonexistent")
NODE = RIG / "node/node_modules/node/bin/node"
PI = RIG / "clients/pi/node_modules/@earendil-works/pi-coding-agent/dist/index.js"
FIXTURES = Path(__file__).parents[1] / "fixtures/real"
TREE = re.compile(rb'^( +)"tree": \[.*?^\1\],\n', re.MULTILINE | re.DOTALL)
QUIET = 0.3  # seconds, as in world.py

pytestmark = pytest.mark.skipif(
    not os.environ.get("INDEXERD_RIG"), reason="INDEXERD_RIG names no directory with the real pi"
)


# -- the rig ---------------------------------------------------------------------------------


def command(world: World, *argv: str | Path, **options: Any) -> subprocess.Popen[str]:
    """A node process in the world's own home."""
    env = {"PATH": os.environ["PATH"], "HOME": world.env["HOME"], "RIG": str(RIG)}
    whole = [str(NODE), *map(str, argv)]
    return subprocess.Popen(whole, env=env, cwd=world.root, text=True, **options)


class Live:
    """pi's own session writer at work; what it appended is told entry by entry."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = (json.loads(line) for line in process.stdout)
        first = next(self._lines)
        self.id, self.path = str(first["id"]), Path(first["file"])
        self.seen: list[dict[str, Any]] = []

    def entries(self) -> Iterator[dict[str, Any]]:
        """Entries as pi writes them, to the end."""
        for entry in self._lines:
            if "done" not in entry:
                self.seen.append(entry)
                yield entry

    def turns(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each answer with its number; pi stands still while the caller looks at it."""
        number = 0
        for entry in self.entries():
            if entry.get("role") == "assistant":
                number += 1
                self.hold()
                yield number, entry
                self._process.send_signal(signal.SIGCONT)

    def hold(self) -> None:
        """Stop pi where it stands."""
        self._process.send_signal(signal.SIGSTOP)

    @property
    def ended(self) -> bool:
        """Whether pi has written its last."""
        return self._process.poll() is not None

    def users(self, leaf: str, since: str | None) -> int:
        """User messages on the path to `leaf`, after `since` where that is on it."""
        by_id = {entry["id"]: entry for entry in self.seen}
        path: list[dict[str, Any]] = []
        at: str | None = leaf
        while at is not None:
            path.insert(0, by_id[at])
            at = by_id[at]["parentId"]
        ids = [entry["id"] for entry in path]
        start = ids.index(since) + 1 if since in ids else 0
        return sum(1 for entry in path[start:] if entry.get("role") == "user")


@contextmanager
def live(world: World, *options: str) -> Iterator[Live]:
    """Run pi_live in pi's own directory; it is ended with the block."""
    argv = [RIG / "pi_live.mjs", "--agent-dir", world.pi, "--cwd", "/w", *options]
    with command(world, *argv, stdout=subprocess.PIPE) as process:
        try:
            yield Live(process)
        finally:
            process.kill()


def oracle(world: World, *files: Path) -> list[dict[str, Any]]:
    """What pi itself makes of session files."""
    answer = world.root / "oracle.json"
    with answer.open("w") as out:
        assert command(world, RIG / "pi_oracle.mjs", *files, stdout=out).wait(50) == 0
    flat = TREE.sub(b"", answer.read_bytes())  # nested as deep as the session is long
    found = json.loads(flat)
    return found if isinstance(found, list) else [found]


# A number written by hand into a test may be wrong twice; so pi alone says what is right.
def expected(said: dict[str, Any]) -> dict[str, Any]:
    """The row's fields as pi's list and its reading of the branch have them."""
    listed, files, cwd = said["list"], said["fileListsAll"], said["header"]["cwd"]
    return {
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


def agree(world: World, said: dict[str, Any]) -> None:
    """Wait until the daemon says of a session what pi says."""
    wanted, session_id = expected(said), said["header"]["id"]

    def found() -> dict[str, Any]:
        row = world.row(session_id)
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


def asked(world: World) -> list[int]:
    """The newest answer of each call's prompt."""
    return [int(call["session"]) for call in world.calls()]


def logged(world: World, event: str) -> Counter[str]:
    """How often the log names an event, by session."""
    lines = (json.loads(line) for line in (world.state / "log.jsonl").read_text().splitlines())
    return Counter(line["session"] for line in lines if line["event"] == event)


# -- turns -----------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [1, 3])
def test_each_due_turn_of_the_real_pi_is_one_call(world: World, least: int) -> None:
    """S0.1, S0.6 to S0.10, S1.13: one call a due turn, counted on the current branch alone."""
    count_turns(world)
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = str(least)
    due: list[int] = []
    since: str | None = None
    lags: list[float] = []
    options = ("--k", "12", "--delay", "1000", "--branch-every", "5")
    with world.daemon(), live(world, *options) as pi:
        for number, entry in pi.turns():
            leaf = entry["id"]
            if pi.users(leaf, since) < least:
                over = time.monotonic() + QUIET * 2
                until(lambda over=over: time.monotonic() > over, "the quiet time")
                continue
            meta = world.wait_meta(pi.id, lambda one, leaf=leaf: one["lastIndexedLeafId"] == leaf)
            seen = (world.metas / f"{pi.id}.meta.json").stat().st_mtime
            lags.append(seen - entry["t"] / 1000)
            due.append(number)
            since = leaf
        said = oracle(world, pi.path)[0]
        agree(world, said)
        listed = [row for row in world.call("list")["sessions"] if row["sessionId"] == pi.id]
        assert [(row["indexed"], row["name"]) for row in listed] == [(True, meta["name"])]
    assert due == asked(world)
    assert len(due) > 12 // (2 * least)
    if due[-1] == 12:
        assert said["leafId"] == meta["lastIndexedLeafId"]
        assert said["userMessagesOnBranch"] == meta["userMessageCount"]
    print(f"\nturn end to meta file, {len(lags)} turns, quiet time {QUIET} s included:")
    print(f"  p50 {statistics.median(lags):.3f} s, max {max(lags):.3f} s")


VARIANTS = {
    "plain": (),
    "tools": ("--tools", "--big", "3000"),
    "compact": ("--compact-every", "3"),
    "label": ("--label-every", "2"),
    "name": ("--name-every", "3"),
    "all": ("--tools", "--compact-every", "4", "--label-every", "3", "--name-every", "3"),
}


def test_rows_are_what_pi_lists(world: World) -> None:
    """S0.7, S1.1, S1.4, S1.13: six pis at once, each resumed by another: rows as pi lists them."""
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1000"
    with world.daemon():
        files = _together(world, [(*more, "--k", "8") for more in VARIANTS.values()])
        for said in oracle(world, *files):
            agree(world, said)
        again = zip(VARIANTS.values(), files, strict=True)
        _together(world, [(*more, "--k", "5", "--resume", str(file)) for more, file in again])
        rows = []
        for said in oracle(world, *files):
            agree(world, said)
            row = world.row(said["header"]["id"])
            rows.append((row["name"], said["sessionName"] or said["list"]["firstMessage"]))
        assert [named for _, named in rows] == [name for name, _ in rows]
        assert len(world.call("list", archived=True)["sessions"]) == len(VARIANTS)
    assert not world.metas.exists() or not list(world.metas.iterdir())


def _together(world: World, runs: list[tuple[str, ...]]) -> list[Path]:
    """Run several pi_lives at once, to their ends."""
    argv = [RIG / "pi_live.mjs", "--agent-dir", world.pi, "--cwd", "/w", "--delay", "20"]
    started = [
        command(world, *argv, "--branch-every", "4", "--seed", str(n), *run, stdout=subprocess.PIPE)
        for n, run in enumerate(runs)
    ]
    told = [process.communicate(timeout=40)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(runs)
    return [Path(json.loads(one.splitlines()[0])["file"]) for one in told]


# -- migration -------------------------------------------------------------------------------

OPEN = f"""
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
        before = {one: world.meta(one) for one in ids}
        process = command(world, "--input-type=module", "-e", OPEN, str(pause), *rewritten)

        def done() -> bool:
            assert ids == {row["sessionId"] for row in world.call("list")["sessions"]}
            return process.poll() is not None

        until(done, "the migration")
        assert process.returncode == 0
        said = oracle(world, *rewritten)
        for one in said:
            agree(world, one)
        indexed = [one for one in said if before[one["header"]["id"]]]
        wanted = 3 + calls_each * len(indexed)
        over = time.monotonic() + QUIET * 3
        until(lambda: time.monotonic() > over and _resting(world), "the last runs")
        assert wanted == len(world.calls())
        for one in indexed if calls_each else ():
            meta = world.meta(one["header"]["id"])
            assert meta
            assert one["leafId"] == meta["lastIndexedLeafId"]
        assert ids == {row["sessionId"] for row in world.call("list", archived=True)["sessions"]}
        for one in ids:
            was, now = before[one], world.meta(one)
            assert (was and was["createdAt"]) == (now and now["createdAt"])
    assert Counter(one["header"]["id"] for one in said) == logged(world, "session.reset")
    assert not logged(world, "session.removed")


def _resting(world: World) -> bool:
    status = world.call("status")
    return not status["queued"] and not status["indexing"]


def test_an_emptied_file_is_a_new_session_of_pi(world: World) -> None:
    """S1.3, F12: an emptied file keeps its session, until pi makes another one of it."""
    with world.daemon():
        with live(world, "--k", "6", "--delay", "20", "--branch-every", "0") as pi:
            list(pi.entries())
        world.wait_meta(pi.id)
        pi.path.write_bytes(b"")
        until(lambda: world.row(pi.id).get("newUserMessages") == 0, "the empty file")
        assert not world.row(pi.id)["gone"]
        assert command(world, "--input-type=module", "-e", OPEN, "0", pi.path).wait(20) == 0
        until(lambda: world.row(pi.id)["gone"], "the old session to be gone")
        new = json.loads(pi.path.read_bytes())["id"]
        assert new == world.row(new)["sessionId"]


# -- bursts and kills ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [("2000",), ("600", "--tools", "--big", "20000")], ids=["small", "big"]
)
def test_a_burst_is_right_in_the_end(world: World, options: tuple[str, ...]) -> None:
    """S0.11, W10: turns without a pause: pi's leaf and counts in the end, and one call."""
    count_turns(world)
    with world.daemon() as process:
        read = Path(f"/proc/{process.pid}/io")
        before = _rchar(read)
        with live(world, "--delay", "0", "--branch-every", "50", "--k", *options) as pi:
            list(pi.entries())
        said = oracle(world, pi.path)[0]
        agree(world, said)
        taken = _rchar(read) - before
        meta = world.wait_meta(pi.id)
        assert said["leafId"] == meta["lastIndexedLeafId"]
        assert said["userMessagesOnBranch"] == meta["userMessageCount"]
    assert asked(world) == [int(options[0])]
    size, count = pi.path.stat().st_size, len(pi.seen)
    print(f"\n{count} appends, {size / 1e6:.1f} MB; the daemon read {taken / 1e6:.1f} MB")


def _rchar(io: Path) -> int:
    return int(io.read_text().split()[1]) if io.exists() else 0


def test_killed_while_pi_writes(world: World) -> None:
    """S0.36, F2: kill -9 at any moment of a live session: nothing stored is asked for again."""
    count_turns(world, delay=0.15)
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1"
    dice = random.Random(11)
    stored: list[tuple[int, str]] = []  # calls until a kill, and the leaf that was stored then
    with live(world, "--k", "12", "--delay", "1200", "--branch-every", "4") as pi:
        while not pi.ended:
            count = len(world.calls())
            with world.daemon() as process:
                until(lambda count=count: len(world.calls()) > count or pi.ended, "a call")
                end = time.monotonic() + dice.random() * 0.6
                until(lambda end=end: time.monotonic() > end, "the moment")
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
        meta = world.wait_meta(pi.id, lambda one: one["lastIndexedLeafId"] == said["leafId"])
        assert said["userMessagesOnBranch"] == meta["userMessageCount"]
    answers = [entry["id"] for entry in pi.seen if entry.get("role") == "assistant"]
    calls = asked(world)
    for count, leaf in stored:
        assert answers.index(leaf) + 1 not in calls[count:]
    assert calls == sorted(calls)
    assert len(calls) - len(set(calls)) <= len(stored) + 1
    print(f"\n{len(stored)} kills, calls for turns {calls}")


def test_a_forced_run_whose_file_vanishes_is_answered(world: World) -> None:
    """S0.4: who waits for the end of a turn is told when the session is deleted instead."""
    with world.daemon(), live(world, "--k", "3", "--delay", "600") as pi:
        next(entry for entry in pi.entries() if entry.get("role") == "user" and entry["bytes"])
        pi.hold()
        until(lambda: world.row(pi.id).get("userMessageCount") == 2, "the open turn")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(world.call, "index", ref=pi.id, force=True, wait=True)
            until(waiting.running, "the request")
            world.call("as_sent", ref=pi.id)
            pi.path.unlink()
            with pytest.raises(NotFoundError):
                waiting.result(15)
    assert world.meta(pi.id) is None
