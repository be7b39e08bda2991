"""Programs that `bench_peers.py` stands beside, and how each is run: one process, one answer.

A process is started by a small one, which measures it: the most memory that the system notes of a
process is never less than what its starter had. Where the system lets us,
all of them run without a network.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PORT = 18_473  # in a network of our own, where that is possible
APART = "INDEXERD_BENCH_APART"
START = """
import os, sys, time
began = time.perf_counter()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
with open(sys.argv[1], "w") as told:
    print(time.perf_counter() - began, used.ru_maxrss, file=told)
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""


@dataclass
class Ran:
    """A process that has ended."""

    seconds: float
    memory_mb: float
    out: str
    code: int


def ran(argv: list[str], env: dict[str, str], where: Path) -> Ran:
    """Run a process to its end."""
    told = where / "ran"
    with (where / "out").open("w+b") as out:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", START, str(told), *argv],
            env=env,
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
        )
        out.seek(0)
        text = out.read(1 << 20).decode("utf-8", "replace")
    seconds, kilobytes = told.read_text().split()
    return Ran(float(seconds), int(kilobytes) / 1024, text, done.returncode)


@dataclass
class Peer:
    """A program: how it indexes and searches; `found` holds what was measured."""

    name: str
    index: list[str]
    search: Callable[[str], list[str]] | None = None  # over what is indexed
    update: list[str] | None = None  # before a search, where that does not look for itself
    fresh: Callable[[str], list[str]] | None = None  # a search that looks for what is new itself
    serve: list[str] = field(default_factory=list)  # a server that follows files itself
    env: dict[str, str] = field(default_factory=dict)
    note: str = ""
    part: bool = False  # it indexes the sessions of some agents only


def failed(peer: Peer, done: Ran) -> bool:
    """Whether a command of a peer did not work, which is told."""
    if done.code:
        print(f"{peer.name} failed with {done.code}: {done.out[-300:]!r}", file=sys.stderr)
    return bool(done.code)


def peers(place: Path) -> list[Peer]:
    """Those that are measured, with their programs below `place`."""

    def at(name: str) -> str:
        return str(place / "bin" / name)

    def said(*argv: str) -> Callable[[str], list[str]]:
        return lambda word: [word if one == "{}" else one for one in argv]

    fr, mnemo, view = at("fr"), at("mnemo"), at("agentsview")
    quiet = {"AGENTSVIEW_NO_DAEMON": "1", "AGENTSVIEW_TELEMETRY_ENABLED": "0"}
    return [
        Peer(
            "fast-resume",
            [fr, "--rebuild", "--json", "--limit", "1"],
            said(fr, "{}", "--json", "--limit", "5", "--no-refresh"),
            fresh=said(fr, "{}", "--json", "--limit", "5"),
            note="what was said, and no results of tools",
        ),
        Peer(
            "mnemo-search",
            [mnemo, "index"],
            said(mnemo, "search", "{}", "--json", "--no-sync"),
            fresh=said(mnemo, "search", "{}", "--json"),
        ),
        Peer(
            "agentsview",
            [view, "sync"],
            serve=[view, "serve", "--no-browser", "--no-update-check", "--port", str(PORT)],
            env=quiet,
        ),
        Peer(
            "claude-code-tools",
            [at("aichat"), "build-index"],
            note="Claude Code and Codex",
            part=True,
        ),
        Peer(
            "claude-session-index",
            [at("session-index"), "--backfill"],
            said(at("session-search"), "search", "{}"),
            update=[at("session-index"), "--incremental"],
            note="Claude Code only",
            part=True,
        ),
    ]


def apart() -> None:
    """Go on without a network, where that is possible: only the loopback is there, and up."""
    if APART in os.environ:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            fcntl.ioctl(one, 0x8914, struct.pack("16sh22x", b"lo", 0x41))  # SIOCSIFFLAGS: up
        return
    unshare = shutil.which("unshare")
    if (
        unshare
        and not subprocess.run(
            [unshare, "-rn", "true"], capture_output=True, check=False
        ).returncode
    ):
        os.environ[APART] = "1"
        os.execv(unshare, [unshare, "-rn", sys.executable, *sys.argv])
