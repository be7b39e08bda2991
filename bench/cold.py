"""Measure a cold index of 3,000 sessions of all agents, next to fast-resume.

`make peers` installs it. It runs in the same home, in turns with indexerd, each from an empty index
and, if the system allows it, without a network. An index is complete when a word that only one
message has finds its session.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from corpus import Session, make
from home import Daemon, Home, check
from measure import Bench, Beside, in_turns, wall

PEER = Path(__file__).resolve().parent.parent / ".venv-peers/bin/fr"
INDEX, SEARCH = ("--rebuild", "--json", "--limit", "1"), ("--json", "--no-refresh")
SIZES = {"pi": 40, "claude": 40, "codex": 40, "opencode": 20}  # MB


def run(bench: Bench) -> None:
    each, listed = bench.size(750, 12), list[float]()
    with Home() as home:
        made: list[Session] = []
        for seed, (agent, size) in enumerate(SIZES.items()):
            made += make(home.root, agent, each, size * each * 1_000_000 // 750, seed)
        ways: dict[str, Callable[[], float]] = {
            "read": lambda: wall(partial(read, home)),
            "ours": partial(ours, home, made, listed),
        }
        if PEER.exists():
            ways["fast-resume"] = partial(theirs, home, made)
        found = in_turns(ways, bench.size(3, 1))
    bench.heading(f"Cold index, {len(made):,} sessions, {sum(SIZES.values()) * each // 750} MB")
    bare = Beside("reading", found["read"])
    bench.amount("all listed", listed, "s", bare, "≤ 1.5 s")
    values = found.get("fast-resume", ())
    beside = Beside("fast-resume" if values else "fast-resume: not installed", values)
    bench.amount("whole", found["ours"], "s", beside, "≤ 3 x")


def read(home: Home) -> int:
    """Read every byte of the agents' files."""
    home.forget()
    return sum(len(one.read_bytes()) for one in home.root.rglob("*") if one.is_file())


def ours(home: Home, made: list[Session], listed: list[float]) -> float:
    """Return the seconds from the daemon's exec to a complete index."""
    home.forget()
    with Daemon(home) as daemon:
        listed.append(daemon.listed(len(made)))
        return daemon.caught_up(made[:: max(1, len(made) // 80)])


def theirs(home: Home, made: list[Session]) -> float:
    """Return the seconds of the peer's cold index."""
    home.forget()
    took = wall(partial(peer, home, *INDEX))
    for one in {one.agent: one for one in made}.values():
        found = one.id in peer(home, *SEARCH, one.word)
        check(f"the peer does not find a session of {one.agent}", ok=found)
    return took


def peer(home: Home, *argv: str) -> str:
    """Run the peer's program; return its output."""
    apart = ["unshare", "-rn"] if shutil.which("unshare") else []
    if apart and subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        apart = []
    command = [*apart, str(PEER), *argv]
    done = subprocess.run(command, env=home.env(), cwd=home.root, capture_output=True, check=False)
    check(f"{argv}: {done.stderr[-500:]!r}", ok=done.returncode == 0)
    return done.stdout.decode()
