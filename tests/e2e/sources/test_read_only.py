"""The kernel's view of what the daemon does to the agents' files: it only reads them.

The daemon runs under strace while all four agents write. It must not open a file of theirs for
writing, nor create, rename, remove, truncate or write-lock one. `sessions-meta` is indexerd's own.

Four calls are allowed. SQLite opens a database's log O_RDWR|O_CREAT even read-only; if its owner
deletes the log at that very moment, SQLite gives the empty one the database's mode; on closing it
tries a write lock that its read-only descriptor cannot get (EBADF); and as root it sets the log's
owner to the database's, which it already is.
"""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import REAL, World, opencode_rows, until, wait

OPENS = "open,openat,openat2,creat"
LOCKS = "fcntl,flock"
CHANGES = (
    "unlink,unlinkat,rmdir,rename,renameat,renameat2,link,linkat,symlink,symlinkat,truncate,"
    "ftruncate,fallocate,write,writev,pwrite64,pwritev,mkdir,mkdirat,mknodat,chmod,fchmod,"
    "fchmodat,chown,fchown,fchownat,lchown,utimensat,fsetxattr,setxattr"
)
TRACE = ["strace", "--seccomp-bpf", "-f", "-qq", "-y", "-s", "1", "-e", "signal=none"]
TRACE += ["-e", f"trace={OPENS},{LOCKS},{CHANGES}"]
CALL = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (?:-1 (\w+)|\S+)")
PATHS = re.compile(r'<(/[^>]*)>|"(/[^"]*)"')
FOR_WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")
WRITE_LOCK = re.compile(r"F_WRLCK|LOCK_EX|LOCK_SH")
REFS = ("get", "tree", "branches", "path", "context", "history", "stats", "footer", "as_sent")


def may_trace() -> bool:
    if not shutil.which("strace"):
        return False
    return subprocess.run([*TRACE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not may_trace(), reason="needs strace, and the right to trace"),
]


def changes(name: str, arguments: str, error: str | None) -> bool:
    if name in OPENS.split(","):
        wrote = name == "creat" or FOR_WRITING.search(arguments)
        return bool(wrote) and not error and "-wal" not in arguments
    if name in LOCKS.split(","):
        return error != "EBADF" and bool(WRITE_LOCK.search(arguments))
    if name == "fchmod" and "-wal>" in arguments:
        return False
    return not (name == "fchown" and arguments.endswith(f", {os.geteuid()}, {os.getegid()}"))


def analyse(
    trace: Path, agent_roots: tuple[str, ...], metas: str
) -> tuple[set[str], bool, set[str]]:
    opened, wrote_meta, violations = set[str](), False, set[str]()
    for line in trace.read_text("utf-8", "replace").splitlines():
        if found := CALL.match(line):
            name, arguments, error = found.groups()
            paths = [first or second for first, second in PATHS.findall(arguments)]
            if not any(path.startswith(agent_roots) for path in paths):
                continue
            opened |= set(paths) if name in OPENS.split(",") else set()
            is_meta = any(path.startswith(metas) for path in paths)
            if changes(name, arguments, error):
                wrote_meta |= is_meta
                violations |= set() if is_meta else {line}
    return opened, wrote_meta, violations


@pytest.mark.parametrize("mode", ["auto", "poll"])
def test_no_file_of_an_agent_is_written_or_locked(world: World, mode: str) -> None:
    """S1.10, S3.9: through start, turns, lookups, renames, undo and deletion."""
    home, trace = world.root / "home", world.root / "trace"
    shutil.copytree(REAL / "pi/sessions", world.pi / "sessions", dirs_exist_ok=True)
    pi, claude, codex = world.session(turns=2), ClaudeSession(home), CodexThread(home)
    rows = opencode_rows(world)
    rows.session("ses_one", directory="/w")
    world.env |= {"INDEXERD_WATCH__MODE": mode, "INDEXERD_MIN_NEW_USER_MESSAGES": "1"}
    with (
        world.daemon(under=[*TRACE, "-o", str(trace)]) as process,
        closing(sqlite3.connect(rows.path)) as owner,
    ):
        owner.execute("SELECT * FROM session").fetchall()  # keeps the log open, as a server does
        for number in range(5):
            for session in (pi, claude, codex):
                session.turn()
            prompt = f"msg_{number}a"
            rows.said("ses_one", prompt, "user", f"Step {number}")
            rows.said("ses_one", f"msg_{number}b", "assistant", "Done.", parentID=prompt)
        for ref in (pi.id, claude.id, codex.id, "ses_one"):
            wait(world, ref, newUserMessages=0)
            for method in REFS:
                world.call(method, ref=ref)
            world.call("update", ref=ref, title=f"Mine {ref}")
            world.call("index", ref=ref, force=True, wait=True)
            world.call("compact", ref=ref, strategy="codex")
            world.call("digest", ref=ref)
        owner.close()  # now each writer that closes deletes the log
        codex.roll_back(1)
        codex.rename("The steps")
        claude.title("The widget")
        forks = claude.fork(), codex.fork()
        for fork in forks:
            fork.turn()
            until(lambda fork=fork: world.row(fork.id), "the fork")
        revert = '{"messageID": "msg_4a"}'
        rows.run("UPDATE session SET revert = ?, time_updated = ?", revert, rows.tick())
        for ref in ("ses_one", codex.id):
            wait(world, ref, userMessageCount=4)
        codex.archive()
        with pi.path.open("r+b") as file:
            file.truncate(0)
        claude.path.unlink()
        rows.run("DELETE FROM session")
        for ref in (claude.id, "ses_one"):
            wait(world, ref, gone=True)
        wait(world, codex.id, archived=True)
        os.kill(world.call("hello")["pid"], signal.SIGTERM)
        until(lambda: process.poll() is not None, "the daemon's end")
    agent_roots = (str(home), str(rows.path.parent))
    opened, wrote_meta, violations = analyse(trace, agent_roots, str(world.metas))
    assert not violations, "\n".join(sorted(violations))
    assert wrote_meta
    read = {str(path) for path in home.rglob("*.jsonl") if {"sessions", "projects"} & {*path.parts}}
    assert {*read, str(rows.path)} <= opened
