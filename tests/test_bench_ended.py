"""`make bench` that is ended in the middle leaves nothing behind: no process, no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
RUN = """
import sys
from pathlib import Path
bench, scripts = sys.argv[1:3]
sys.path.insert(0, bench)
import run
run.HERE = Path(scripts)
sys.argv[1:] = ["--only", "endless"]
try:
    sys.exit(run.main())
except KeyboardInterrupt:
    sys.exit(130)
"""
ENDLESS = """
import signal, sys, tempfile
sys.path.insert(0, {bench!r})
from measure import Bench
bench = Bench("endless", "Endless")
bench.smoke
with tempfile.TemporaryDirectory():
    print("at work", flush=True)
    while True:
        signal.pause()
"""


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_ends_its_script(told: signal.Signals, tmp_path: Path) -> None:
    """Issue 9: a signal to the run alone, or Ctrl-C, ends what it has started, and clears up."""
    scripts, scratch = tmp_path / "scripts", tmp_path / "scratch"
    scripts.mkdir()
    scratch.mkdir()
    (scripts / "bench_endless.py").write_text(ENDLESS.format(bench=str(BENCH)))
    env = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": ""}
    argv = [sys.executable, "-c", RUN, str(BENCH), str(scripts)]
    with subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            assert run.stdout is not None
            while run.stdout.readline() != "at work\n":
                assert run.poll() is None
            assert any(scratch.iterdir())
            os.killpg(run.pid, told) if told is signal.SIGINT else run.send_signal(told)
            assert run.stdout.read() == ""  # nobody holds the pipe any more
            assert run.wait(50) != 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert list(scratch.iterdir()) == []
