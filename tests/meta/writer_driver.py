"""Write meta files in a child process, to be traced or killed."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import WriteError
from indexerd.meta import model as metas
from indexerd.meta import writer as writer_module
from indexerd.meta.model import MetaFile
from indexerd.meta.writer import MetaWriter
from tests.store import rows

STRACE = shutil.which("strace")
ROOT = Path(__file__).parents[2]
PR_SET_PTRACER = 0x59616D61
CALLS = "openat mkdir newfstatat fstat flock read write fsync close rename renameat renameat2"
SESSION = "4f6c0a52-6f0e-4c0e-9d54-2d5f3f0a0001"
Child = tuple[int, int]  # pid and result pipe of a child


def meta(generation: int = 0) -> MetaFile:
    """A meta file whose length shows its generation."""
    told, leaf = "s" * (200 + generation), str(generation)
    return rows.meta(session_id=SESSION, summary=told, last_indexed_leaf_id=leaf)


def path_in(directory: Path) -> Path:
    """The path of the file that `meta` is written to."""
    return directory / f"{SESSION}.meta.json"


def files(directory: Path) -> list[str]:
    """All names in a directory, including hidden ones."""
    return sorted(os.listdir(directory))


def assert_intact(directory: Path, generation: int = 0) -> None:
    """The directory has only that file, whole and of this generation."""
    assert files(directory) == [path_in(directory).name]
    assert path_in(directory).read_bytes() == meta(generation).to_json()


def write(directory: Path, generation: int) -> dict[str, Any]:
    """Write a generation; return a typed error as data."""
    try:
        MetaWriter().write_meta(directory, meta(generation))
    except WriteError as bad:
        return {"error": str(bad), "upstream": bad.upstream, "hint": bad.hint}
    return {}


def grow(directory: Path, threads: int, times: int) -> None:
    """Raise the file's generation by one, many times, in several threads."""
    writer_module.LOCK_WAIT_SECONDS = 50  # on a busy machine ten writers may wait for long
    writer = MetaWriter()

    def raise_often() -> None:
        for _ in range(times):
            written = False
            while not written:
                expect = metas.stamp(path_in(directory))
                held = metas.read_meta(path_in(directory))
                generation = int(held.last_indexed_leaf_id) + 1 if held else 1
                # Each writer signs its content, since equal content would be no conflict.
                by = f"{os.getpid()}-{threading.get_ident()}"
                signed = meta(generation).model_copy(update={"name": by})
                written = writer.write_meta(directory, signed, expect=expect)

    running = [threading.Thread(target=raise_often) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def start(do: str, directory: Path, *, stop: bool = False, **job: Any) -> Child:
    """Fork a child for a job; with `stop` it first stops itself."""
    reader, pipe = os.pipe()
    pid = os.fork()
    if pid:
        os.close(pipe)
        if stop:
            os.waitpid(pid, os.WUNTRACED)
        return pid, reader
    try:
        if sys.platform == "linux":  # allow any process to trace, if only a parent may
            ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1))
        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        os.write(pipe, json.dumps(globals()[do](directory, **job)).encode())
    finally:
        os._exit(0)


def wait(child: Child) -> tuple[int, Any]:
    """Wait for a job's end; return its status and its result (None if it was killed)."""
    with os.fdopen(child[1]) as file:
        text = file.read()
    return os.waitpid(child[0], 0)[1], json.loads(text) if text else None


def traced(inject: str | None, do: str, directory: Path, **job: Any) -> tuple[int, Any, list[str]]:
    """Run a job under strace with one injected fault; return status, result and calls."""
    if STRACE is None:
        pytest.skip("strace is not installed")
    child = start(do, directory, stop=True, **job)
    with tempfile.NamedTemporaryFile("r") as log:
        names = ",".join(f"?{name}" for name in [*CALLS.split(), "unlinkat"])
        command = [STRACE, "-p", str(child[0]), "-o", log.name, "-e", f"trace={names}"]
        command += ["-s", "500", *(["-e", f"inject={inject}"] if inject else [])]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
        os.kill(child[0], signal.SIGCONT)
        try:
            status, result = wait(child)
        except BaseException:  # timed out: do not leave this child to the next test
            os.kill(child[0], signal.SIGKILL)
            raise
        said += tracer.communicate()[1]
        if "attached" not in said:
            pytest.skip(f"strace cannot trace here: {said.strip()}")
        return status, result, [line for line in log if not line.startswith(("---", "+++"))]
