"""A real process that writes meta files, to be traced, limited and killed by the tests.

`Driver` is the tests' side of it. The process imports once and then forks a child for each job,
so that a kill at every system call costs milliseconds instead of a start of the interpreter.
One JSON document a line:

    {"start": JOB}  ->  {"pid": N}                        the child runs, or stands still ("stop")
    {"wait": N}     ->  {"status": S, "result": ...}      S as of waitpid; result null if killed

Each line has a number `n`, which its answer has, too.

A JOB has `do` (the name of a function here, or of one that another driver hands to `main`), `dir`,
and what that function takes.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexerd.errors import WriteError
from indexerd.meta import reader as metas
from indexerd.meta.model import MetaFile
from indexerd.meta.writer import Conflict, MetaWriter

STRACE = shutil.which("strace")
ROOT = Path(__file__).parents[2]
PR_SET_PTRACER = 0x59616D61
SYSCALLS = (
    "openat",
    "mkdir",
    "newfstatat",
    "fstat",
    "flock",
    "read",
    "write",
    "fsync",
    "close",
    "rename",
    "renameat",
    "renameat2",
    "unlinkat",
)
Jobs = Mapping[str, Callable[[dict[str, Any]], Any]]
SESSION = "4f6c0a52-6f0e-4c0e-9d54-2d5f3f0a0001"


def meta(generation: int = 0, size: int = 200) -> MetaFile:
    """Make a meta file whose length tells its generation."""
    return MetaFile(
        session_id=SESSION,
        session_file="/home/u/.pi/agent/sessions/p/s.jsonl",
        name="Mend the lock of the cellar door",
        description="The lock was rusty. It was oiled.",
        summary="s" * (size + generation),
        tags=["lock", "door", "oil"],
        cwd="/home/u/p",
        created_at="2026-11-01T10:00:00Z",
        updated_at="2026-11-01T10:00:00Z",
        model="local/extractive",
        last_indexed_leaf_id=str(generation),
    )


def path_in(directory: Path) -> Path:
    """Name the file that `meta` is written to."""
    return directory / f"{SESSION}.meta.json"


def files(directory: Path) -> list[str]:
    """All names in a directory, hidden ones too."""
    return sorted(os.listdir(directory))


def assert_intact(directory: Path, generation: int = 0) -> None:
    """Only the one file is there, whole and of this generation."""
    assert files(directory) == [path_in(directory).name]
    assert path_in(directory).read_bytes() == meta(generation).to_json()


class Driver:
    """The driver process: forks a child a job, each of which can be traced and killed."""

    def __init__(self, *under: str, script: str = __file__) -> None:
        """`under`: what the process runs under; `script`: a file that calls `main` as this does."""
        self.running: set[int] = set()
        self.asked = 0
        self.process = subprocess.Popen(
            [*under, sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and read its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.asked += 1
        print(json.dumps(request | {"n": self.asked}), file=self.process.stdin, flush=True)
        while True:  # a test that was interrupted may have left its answer behind
            answer: dict[str, Any] = json.loads(self.process.stdout.readline())
            if answer.pop("n") == self.asked:
                return answer

    def start(self, do: str, directory: Path, **job: Any) -> int:
        """Start a job in a child and return its pid."""
        pid: int = self.ask(start={"do": do, "dir": str(directory), **job})["pid"]
        self.running.add(pid)
        return pid

    def wait(self, pid: int) -> dict[str, Any]:
        """Wait for a job's end; return its status and its result."""
        answer = self.ask(wait=pid)
        self.running.discard(pid)
        return answer

    def run(self, do: str, directory: Path, **job: Any) -> Any:
        """Run a job to its end and return its result."""
        answer = self.wait(self.start(do, directory, **job))
        assert answer["status"] == 0
        return answer["result"]

    def traced(
        self,
        inject: str | None,
        do: str,
        directory: Path,
        calls: Sequence[str] = SYSCALLS,
        **job: Any,
    ) -> tuple[dict[str, Any], list[str]]:
        """Run a job under strace, with one injection; return its end and its system calls."""
        import pytest  # here, so that the driver itself starts without it

        if STRACE is None:
            pytest.skip("strace is not installed")
        pid = self.start(do, directory, stop=True, **job)
        with tempfile.NamedTemporaryFile("r") as log:
            traced = ",".join(f"?{name}" for name in calls)
            command = [STRACE, "-p", str(pid), "-o", log.name, "-e", f"trace={traced}"]
            command += ["-s", "500", *(["-e", f"inject={inject}"] if inject else [])]
            tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            assert tracer.stderr is not None
            said = tracer.stderr.readline()
            os.kill(pid, signal.SIGCONT)
            try:
                answer = self.wait(pid)
            except BaseException:  # the time is over: the next test shall not wait for this child
                os.kill(pid, signal.SIGKILL)
                raise
            said += tracer.communicate()[1]
            if "attached" not in said:
                pytest.skip(f"strace cannot trace here: {said.strip()}")
            return answer, [line for line in log if not line.startswith(("---", "+++"))]

    def close(self) -> None:
        """End the driver, and children that a failing test left standing still."""
        for pid in self.running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


def write(job: dict[str, Any]) -> dict[str, Any]:
    """Write one generation and say how it went."""
    return attempt(MetaWriter(), job)


def attempt(writer: MetaWriter, job: dict[str, Any]) -> dict[str, Any]:
    """Write with the given writer; an error of ours becomes data."""
    content = meta(job.get("generation", 0), job.get("size", 200))
    try:
        written = writer.write_meta(Path(job["dir"]), content)
    except WriteError as bad:
        return {"error": str(bad), "upstream": bad.upstream, "hint": bad.hint}
    return {"changed": written.changed, "bytes": written.bytes}


def again(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Write the same content three times with one writer."""
    writer = MetaWriter()
    return [attempt(writer, job) for _ in range(3)]


def insist(job: dict[str, Any]) -> list[str]:
    """Write the same content twice, expecting each time the version seen at the start."""
    directory, writer = Path(job["dir"]), MetaWriter()
    expect, said = metas.stamp(path_in(directory)), []
    for _ in range(2):
        try:
            said.append(type(writer.write_meta(directory, meta(1), expect=expect)).__name__)
        except WriteError:
            said.append("WriteError")
    return said


def full(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Fill the disk, write, make room, and write the kept content again."""
    directory, writer = Path(job["dir"]), MetaWriter()
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    first = attempt(writer, job)
    left = {"left": sorted(os.listdir(directory)), "generation": read(job)}
    ballast.unlink()
    return [first, left, attempt(writer, job)]


def read(job: dict[str, Any]) -> str | None:
    """Read the generation that is there."""
    held = metas.read_meta(path_in(Path(job["dir"])))
    return held.last_indexed_leaf_id if held else None


def grow(job: dict[str, Any]) -> int:
    """Raise the file's generation by one, many times, in several threads; count the conflicts."""
    directory, writer, conflicts = Path(job["dir"]), MetaWriter(), []

    def raise_often() -> None:
        for _ in range(job["times"]):
            while True:
                expect = metas.stamp(path_in(directory))
                held = metas.read_meta(path_in(directory))
                generation = int(held.last_indexed_leaf_id) + 1 if held else 1
                # Signed, because equal content of two writers would be no conflict.
                by = f"{os.getpid()}-{threading.get_ident()}"
                signed = meta(generation).model_copy(update={"name": by})
                result = writer.write_meta(directory, signed, expect=expect)
                if not isinstance(result, Conflict):
                    break
                conflicts.append(result)

    threads = [threading.Thread(target=raise_often) for _ in range(job["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(conflicts)


def start(job: dict[str, Any], jobs: Jobs) -> tuple[int, int]:
    """Fork a child for a job; return its pid and the pipe that its result comes through."""
    reader, pipe = os.pipe()
    pid = os.fork()
    if pid:
        os.close(pipe)
        if job.get("stop"):
            os.waitpid(pid, os.WUNTRACED)
        return pid, reader
    try:
        os.close(reader)
        limit(job)
        if job.get("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        os.write(pipe, json.dumps(jobs[job["do"]](job)).encode())
    finally:
        os._exit(0)


def limit(job: dict[str, Any]) -> None:
    """Put a child under the limits that its job names."""
    if sys.platform == "linux":  # where only a parent may trace, let anyone
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1))
    os.umask(job.get("umask", 0o022))
    if "fsize" in job:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["fsize"], job["fsize"]))
    if "spare" in job:  # so many more files may be opened
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + job["spare"],) * 2)


def _warm() -> None:
    """Write and read once: what is loaded at a first use is loaded here, and by no child."""
    with tempfile.TemporaryDirectory() as place:
        MetaWriter().write_meta(Path(place), meta(0))
        MetaWriter().write_meta(Path(place), meta(1))


def main(jobs: Jobs) -> None:
    """Serve jobs until the end of the input."""
    pipes: dict[int, int] = {}
    _warm()
    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            pid, pipe = start(asked["start"], jobs)
            pipes[pid] = pipe
            answer: dict[str, Any] = {"pid": pid}
        else:
            with os.fdopen(pipes.pop(asked["wait"])) as file:
                text = file.read()
            status = os.waitpid(asked["wait"], 0)[1]
            answer = {"status": status, "result": json.loads(text) if text else None}
        print(json.dumps(answer | {"n": asked["n"]}), flush=True)


if __name__ == "__main__":
    main(globals())
