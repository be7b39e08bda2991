"""A file at which the process dies at each start costs three starts, and no other session."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from indexerd.sources.perils import STARTS
from tests.e2e.world import World, until

pytestmark = pytest.mark.faults


def test_a_file_that_ends_the_daemon_is_set_aside(world: World) -> None:
    """V7: three starts end at one file; the fourth lives, names it, and indexes the others.

    When the file has grown it is tried again, and as it does no harm now, it is indexed.
    """
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    good, bad = world.session(turns=5), world.session(turns=5)
    kill = ["strace", "-f", "-qq", "-o", str(world.root / "trace"), "-P", str(bad.path)]
    kill += ["-e", "trace=pread64", "-e", "inject=pread64:signal=KILL:when=1"]
    for _ in range(STARTS):
        died = subprocess.run(
            [*kill, sys.executable, "-m", "indexerd", "run"],
            env=world.env, cwd=world.root, capture_output=True, timeout=30, check=False,
        )  # fmt: skip
        if b"ptrace" in died.stderr:
            pytest.skip("nobody may be traced here")
        assert died.returncode == -9
    with world.daemon():
        world.wait_meta(good.id)
        (problem,) = until(lambda: world.call("status")["problems"], "the problem")
        assert problem["code"] == "unreadable"
        assert "3 times while it was read" in problem["cause"]
        assert bad.path.name in problem["cause"]
        assert world.meta(bad.id) is None
    log = (world.state / "log.jsonl").read_text()
    assert log.count("session.quarantined") == 1
    with world.daemon():
        bad.turn()
        world.wait_meta(bad.id)
        until(lambda: world.call("status")["state"] == "ok", "the end of the problem")
