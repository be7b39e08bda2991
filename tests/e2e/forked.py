"""Run `indexerd` in a process that is forked from one in which its modules are loaded.

Starting Python and importing the modules takes longer than most commands. All else is as of
`python -m indexerd`: an own process, with its environment, directory, streams and exit code.
Variables for Python itself have no effect; tests that set one start a new Python.
"""

import fcntl
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMANDS = sorted((ROOT / "indexerd/cli").glob("[a-z]*.py"))
# Modules that most processes load late: here once for all.
LATE = ("genai_prices", "indexerd.models.http", "indexerd.web.session_page", "re2")
LATE += ("rapidfuzz.fuzz", "snowballstemmer", "stopwordsiso")
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["indexerd.daemon.daemon", *(f"indexerd.cli.{path.stem}" for path in COMMANDS), *LATE]
)


class Forked:
    """A process with the methods of `Popen` that tests use; streams are appended to files."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        out: Path | None,
        err: Path,
        terminal: bool = False,
    ) -> None:
        streams = (out if terminal else None, out, err)
        self._process = _server.Process(target=_run, args=(argv, dict(env), cwd, streams))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("indexerd", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    argv: Sequence[str], env: dict[str, str], cwd: Path, streams: Sequence[Path | None]
) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for number, path in enumerate(streams):
        if path is not None:
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
            descriptor = os.open(path, how, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
    if streams[0] is not None:  # a terminal, which is written line by line, and interrupts
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - until exit
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - until exit
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - until exit
    sys.argv[:] = [str(ROOT / "indexerd/__main__.py"), *argv]
    sys.orig_argv[:] = [sys.executable, "-m", "indexerd", *argv]
    runpy.run_module("indexerd", run_name="__main__")


def ran(
    argv: Sequence[str | Path], stdin: str = "", **where: Any
) -> subprocess.CompletedProcess[str]:
    """Run any program to its end."""
    pipes: Any = {"input": stdin, "capture_output": True, "text": True, "timeout": 50}
    return subprocess.run(argv, check=False, **pipes, **where)


def completed(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as name:
        out, err = Path(name, "out"), Path(name, "err")
        process = Forked(argv, env, cwd, out=out, err=err)
        try:
            code = process.wait(50)
        finally:
            process.kill()
        return subprocess.CompletedProcess(argv, code, out.read_bytes(), err.read_bytes())
