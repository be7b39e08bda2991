"""Measure a cold index of 3,000 sessions of all agents, next to two similar programs.

`make peers` installs these. They run in the same home, in turns with indexerd, each from an empty
index and, if the system allows it, without a network. An index is complete when a word that only
one message has finds its session; agents for which a peer does not find such words are named.
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

PEERS = Path(__file__).resolve().parent.parent / ".venv-peers/bin"
TARGETS = {"fast-resume": "≤ 3 x", "mnemo-search": "≤ 0.2 x"}  # times their time
INDEX = {
    "fast-resume": ["fr", "--rebuild", "--json", "--limit", "1"],
    "mnemo-search": ["mnemo", "index"],
}
SEARCH = {
    "fast-resume": ["fr", "--json", "--no-refresh"],
    "mnemo-search": ["mnemo", "search", "--json", "--no-sync"],
}
SIZES = {"pi": 40, "claude": 40, "codex": 40, "opencode": 20}  # MB


def run(bench: Bench) -> None:
    each, listed, lacks = bench.size(750, 12), list[float](), dict[str, list[str]]()
    with Home() as home:
        made: list[Session] = []
        for seed, (agent, size) in enumerate(SIZES.items()):
            made += make(home.root, agent, each, size * each * 1_000_000 // 750, seed)
        ways: dict[str, Callable[[], float]] = {
            "read": lambda: wall(partial(read, home)),
            "ours": partial(ours, home, made, listed),
        }
        for name in INDEX:
            if (PEERS / INDEX[name][0]).exists():
                ways[name] = partial(theirs, home, made, name, lacks)
        found = in_turns(ways, bench.size(3, 1))
    bench.heading(f"Cold index, {len(made):,} sessions, {sum(SIZES.values()) * each // 750} MB")
    bare = Beside("reading", found["read"])
    bench.amount("all listed", listed, "s", bare, "≤ 1.5 s")
    for name, target in TARGETS.items():
        less = f", without {', '.join(lacks[name])}" if lacks.get(name) else ""
        limit = name + (less if name in found else ": not installed")
        beside = Beside(limit, found.get(name, ()))
        bench.amount(f"whole, beside {name}", found["ours"], "s", beside, target)


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


def theirs(home: Home, made: list[Session], name: str, lacks: dict[str, list[str]]) -> float:
    """Return the seconds of a peer's cold index, and the agents whose last session it lacks."""
    home.forget()
    took = wall(partial(peer, home, INDEX[name]))
    last = {one.agent: one for one in made}.values()
    lacks[name] = [one.agent for one in last if one.id not in peer(home, [*SEARCH[name], one.word])]
    return took


def peer(home: Home, argv: list[str]) -> str:
    """Run a peer's program; return its output."""
    apart = ["unshare", "-rn"] if shutil.which("unshare") else []
    if apart and subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        apart = []
    command = [*apart, str(PEERS / argv[0]), *argv[1:]]
    done = subprocess.run(command, env=home.env(), cwd=home.root, capture_output=True, check=False)
    check(f"{argv}: {done.stderr[-500:]!r}", ok=done.returncode == 0)
    return done.stdout.decode()
