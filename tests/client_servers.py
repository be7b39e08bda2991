"""Servers for the blocking client: scripted ones, and real ones in processes of their own."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 20.0  # after which a test gives up; nothing here takes a tenth of it


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


SERVER = """
import asyncio, os, sys
from pathlib import Path
from indexerd.daemon.unix_server import UnixServer

path = Path(sys.argv[1])
os.umask(int(sys.argv[2]))

async def main():
    server = UnixServer(path, lambda request, peer: request.params, lambda why: None)
    await server.start()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Process:
    def __init__(self, path: Path, made: "subprocess.Popen[str]") -> None:
        self.path = path
        self.pid = made.pid
        self._made = made

    def kill(self) -> None:
        self._made.kill()
        self._made.wait(SECONDS)

    def resident(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()


@contextlib.contextmanager
def process(directory: Path, *, path: Path | None = None, umask: int = 0o022) -> Iterator[Process]:
    path = path or directory / "d" / "s.sock"
    command = [sys.executable, "-c", SERVER, os.fspath(path), str(umask)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as made:
        try:
            assert made.stdout is not None
            assert made.stdout.readline() == "ready\n"
            yield Process(path, made)
        finally:
            made.kill()
