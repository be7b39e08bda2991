"""What the daemon does to the agents' own files, as the kernel sees it: it reads them.

The daemon runs under strace beside writers of all four agents, over copies of real stores where
these are at hand. No file there may be opened for writing or created, renamed, removed, cut
short or locked for writing; pi's sessions-meta, and our own state and data, are ours.

What surprised us: SQLite asks for a database's log O_RDWR whatever it is told, and only the
kernel's refusal makes it ask again; closing, it tries for a write lock that a descriptor opened
for reading cannot get (EBADF); and as root it gives the log to the owner of the database, whose
it is already. So what was refused is no opening and no lock, and a gift to the owner no change.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from indexerd.sources.foreign_db import forbid_writing
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import World, until
from tests.sessions.opencode_rows import Rows

FIXTURES = Path(__file__).parents[1] / "fixtures/real"
SHARED = Path(__file__).parents[3] / "shared/fixtures/real"
OPENS = ("open", "openat", "openat2", "creat")
LOCKS = ("fcntl", "flock")
CHANGES = (
    "unlink,unlinkat,rmdir,rename,renameat,renameat2,link,linkat,symlink,symlinkat,truncate,"
    "ftruncate,fallocate,write,writev,pwrite64,pwritev,mkdir,mkdirat,mknodat,chmod,fchmod,"
    "fchmodat,chown,fchown,fchownat,lchown,utimensat,fsetxattr,setxattr"
)
TRACE = ("strace", "--seccomp-bpf", "-f", "-ff", "-qq", "-y", "-s", "1", "-e", "signal=none")
CALL = re.compile(r"(\w+)\((.*)\) += (?:-1 (\w+)|\S+)")
PATHS = re.compile(r'<(/[^>]*)>|"(/[^"]*)"')
FOR_WRITING = re.compile(r"creat |O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")
OWNER = f"{os.geteuid()}, {os.getegid()}"
WRITE_LOCK = re.compile(r"F_WRLCK|LOCK_EX|LOCK_SH")
REFS = ("get", "tree", "branches", "path", "context", "history", "stats", "footer", "as_sent")


def _may_trace() -> bool:
    if not shutil.which("strace"):
        return False
    tried = subprocess.run([*TRACE, "true"], capture_output=True, timeout=20, check=False)
    return tried.returncode == 0


pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not _may_trace(), reason="needs strace, and the right to trace"),
]


class Call:
    """One system call, as strace writes it."""

    def __init__(self, line: str) -> None:
        found = CALL.match(line)
        self.line = line
        self.name, self.given = (found[1], found[2]) if found else ("", line)
        self.error = found[3] if found else None
        self.paths = [one or other for one, other in PATHS.findall(self.given)]

    def concerns(self, places: list[Path]) -> bool:
        """Whether it names something in one of these places."""
        return any(Path(path).is_relative_to(place) for path in self.paths for place in places)

    @property
    def changes(self) -> bool:
        """Whether a file is other than before, or may become so, or others must wait for it."""
        if self.name in OPENS:
            return not self.error and bool(FOR_WRITING.search(f"{self.name} {self.given}"))
        if self.name in LOCKS:
            return self.error != "EBADF" and bool(WRITE_LOCK.search(self.given))
        return not (self.name == "fchown" and self.given.endswith(f", {OWNER}"))


class Stores:
    """The agents' stores of a world: what is there already, and what is written meanwhile."""

    def __init__(self, world: World) -> None:
        self.world = world
        home, data = world.root / "home", world.root / "data/opencode"
        copies = world.root / "copies"
        data.mkdir(parents=True)
        self.agents = [home / ".pi", home / ".claude", home / ".codex", data, copies]
        self.ours = [world.metas, copies / "pi/sessions-meta"]
        shutil.copytree(FIXTURES / "pi", copies / "pi")
        if SHARED.exists():
            for agent in ("claude", "codex", "codex-0.120.0", "opencode", "opencode-checkpointed"):
                shutil.copytree(SHARED / agent, copies / agent, copy_function=_copy)
        self._configure(copies, home, data)
        self.pi = world.session(turns=2)
        self.claude, self.codex = ClaudeSession(home), CodexThread(home)
        self.rows = Rows(data / "opencode.db")
        self.rows.session("ses_one", directory="/w")

    def _configure(self, copies: Path, home: Path, data: Path) -> None:
        roots = {
            "pi": [self.world.pi, copies / "pi"],
            "claude": [home / ".claude", copies / "claude"],
            "codex": [home / ".codex", copies / "codex", copies / "codex-0.120.0"],
            "opencode": [data, copies / "opencode", copies / "opencode-checkpointed"],
        }
        self.world.config.parent.mkdir(parents=True)
        lines = (f"[agents.{one}]\nroots = {[*map(str, paths)]}\n" for one, paths in roots.items())
        self.world.config.write_text("".join(lines))

    @property
    def ids(self) -> list[str]:
        """The sessions that are written while the daemon looks on."""
        return [self.pi.id, self.claude.id, self.codex.id, "ses_one"]

    def turn(self, number: int) -> None:
        """One turn of each agent."""
        self.pi.turn()
        self.claude.turn()
        self.codex.turn(edits="/w/a.py")
        prompt = f"msg_{number}a"
        self.rows.said("ses_one", prompt, "user", f"Step {number}")
        self.rows.said("ses_one", f"msg_{number}b", "assistant", "Done.", parentID=prompt)

    def undo(self) -> None:
        """What agents do besides writing on."""
        self.codex.roll_back(1)
        self.codex.rename("The steps")
        self.claude.title("The widget")
        self.claude.fork().turn()
        self.codex.fork().turn()
        revert = '{"messageID": "msg_4a"}'
        self.rows.run("UPDATE session SET revert = ?, time_updated = ?", revert, self.rows.tick())

    def clear(self) -> None:
        """Archive, cut short and delete."""
        self.codex.archive()
        with self.pi.path.open("r+b") as file:
            file.truncate(0)
        self.claude.path.unlink()
        self.rows.run("DELETE FROM session")


def _copy(source: str, target: str) -> None:
    """The shared files may be read-only; these copies are an agent's own."""
    shutil.copyfile(source, target)


@contextmanager
def traced(world: World) -> Iterator[list[Call]]:
    """A daemon under strace; the list holds its system calls once the block has ended."""
    trace = world.root / "trace"
    trace.mkdir()
    names = ",".join((*OPENS, *LOCKS, CHANGES))
    argv = [*TRACE, "-o", str(trace / "t"), "-e", f"trace={names}"]
    argv += [sys.executable, "-m", "indexerd", "run"]
    calls: list[Call] = []
    with (world.root / "stderr").open("ab") as log:
        process = subprocess.Popen(argv, env=world.env, stderr=log, cwd=world.root)
        try:
            until(lambda: world._answers(process), "the daemon's start")
            yield calls
            os.kill(world.call("hello")["pid"], signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()
    for file in sorted(trace.iterdir()):
        calls += map(Call, file.read_text("utf-8", "replace").splitlines())


@pytest.mark.parametrize("mode", ["auto", "poll"])
def test_nothing_of_the_agents_is_written_or_locked(world: World, mode: str) -> None:
    """W13, S1.10, S3.9: started, followed, looked up, renamed, undone, deleted: all by reading."""
    stores = Stores(world)
    world.env |= {"INDEXERD_WATCH__MODE": mode, "INDEXERD_MIN_NEW_USER_MESSAGES": "2"}
    with traced(world) as calls, closing(sqlite3.connect(stores.rows.path)) as owner:
        owner.execute("SELECT * FROM session").fetchall()  # holds the log open, as a server does
        for number in range(5):
            stores.turn(number)
        for one in stores.ids:
            until(partial(_shows, world, one, newUserMessages=0), f"the run of {one}")
            _look_up(world, one)
        owner.close()  # from now on each commit is its writer's last, and takes the log away
        stores.undo()
        for one in ("ses_one", stores.codex.id):
            until(partial(_shows, world, one, userMessageCount=4), f"the undo in {one}")
        stores.clear()
        for one in (stores.claude.id, "ses_one"):
            until(partial(_shows, world, one, gone=True), f"the end of {one}")
        until(partial(_shows, world, stores.codex.id, archived=True), "the archived thread")
    theirs = [one for one in calls if one.concerns(stores.agents)]
    trespasses = [one for one in theirs if one.changes and not one.concerns(stores.ours)]
    if not _landlock():  # then that one opening remains: foreign_db.py
        trespasses = [one for one in trespasses if "-wal" not in one.given or one.name not in OPENS]
    assert not trespasses, "\n".join(sorted({one.line for one in trespasses}))
    read = {path for one in theirs if one.name in OPENS for path in one.paths}
    expected = {str(path) for place in stores.agents for path in _sessions(place)}
    assert expected <= read
    assert any(one.changes and one.concerns(stores.ours) for one in theirs)


def _landlock() -> bool:
    with ThreadPoolExecutor(1) as thread:  # which may not write from then on
        return thread.submit(forbid_writing).result()


def _shows(world: World, session_id: str, **wanted: object) -> bool:
    row = world.row(session_id)
    return {key: row.get(key) for key in wanted} == wanted


def _sessions(place: Path) -> list[Path]:
    """Files that hold sessions and must have been opened, or else nothing was put to the test."""
    kept = ("rollout-", "opencode.db")
    return [
        path
        for path in place.rglob("*")
        if path.suffix in (".jsonl", ".db")
        and (path.name.startswith(kept) or {"projects", "sessions"} & {*path.parts})
    ]


def _look_up(world: World, session_id: str) -> None:
    """Every question that may need the session's file."""
    known = world.call("hello")["capabilities"]
    for method in REFS:
        if method in known:
            world.call(method, ref=session_id)
    world.call("search", query="step")
    world.call("update", ref=session_id, title=f"Mine {session_id}")
    world.call("index", ref=session_id, force=True, wait=True)
