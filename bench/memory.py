"""Measure restarts and memory with 10,000 sessions, and with one session of 200 MB.

The long session has lines of a megabyte: tool results, answers, pictures. Digests are on. It is
indexed repeatedly, each time after another turn, in turns with a session of 1 MB in its own home.
Memory is resident memory.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from corpus import LINES, NOW, Draw, Session, Writer, letters, talks
from home import Daemon, Home, check
from live import append, entry
from measure import Bench, Beside, in_turns

# A request to index waits for the quiet time, which costs no processor time.
ENV = {"INDEXERD_DIGEST__ENABLED": "true", "INDEXERD_INDEX__QUIET_SECONDS": "0"}


def restart(bench: Bench) -> None:
    count, rounds = bench.size(10_000, 100), bench.size(5, 1)
    with Home() as home, Home() as empty:
        made = talks(home.root, count, 2 * count, Draw(1, 1 << 18))
        memory: dict[str, list[float]] = {"first": [], "ours": [], "empty": []}
        started(home, made, memory["first"])
        restarts = partial(started, home, made, memory["ours"])
        ways = {"ours": restarts, "empty": partial(started, empty, [], memory["empty"])}
        found = in_turns(ways, rounds)
    bench.heading(f"Daemon, {count:,} sessions")
    limit = Beside("empty", found["empty"])
    bench.amount("restart to READY", found["ours"], "s", limit, "≤ 0.5 s")
    for what, key in (("first index", "first"), ("restart", "ours")):
        limit = Beside("empty", memory["empty"][: len(memory[key])])
        bench.amount(f"memory after {what}", memory[key], "MB", limit, "≤ 90 MB")


def started(home: Home, made: list[Session], memory: list[float]) -> float:
    """Return the seconds to READY; a restart must also see what was appended meanwhile."""
    grown = random.sample(made, min(1, len(made)))
    for one in grown:
        append(one.path, entry(one.leaf, "While nobody looked."))
    with Daemon(home) as daemon:
        ready = daemon.ready()
        daemon.listed(len(made))
        daemon.caught_up(made[:: len(made) // 50 + 1])
        for one in grown:
            daemon.counted(one)
        memory.append(daemon.memory())
    return ready


def long(bench: Bench) -> None:
    megabytes, rounds, settle = bench.size(200, 3), bench.size(5, 1), bench.size(60, 0)
    with ExitStack() as stack:
        daemons, ways = [], {}
        for name, lines in (("ours", megabytes), ("1 MB", 0)):
            home = stack.enter_context(Home())
            one = long_session(home.root, lines)
            daemons.append(stack.enter_context(Daemon(home, **ENV)))
            daemons[-1].caught_up([one])
            ways[name] = partial(again, daemons[-1], one, [one.leaf])
        in_turns(ways, 1)  # the first may make a digest, which takes time
        time.sleep(settle)
        first = [one.memory() for one in daemons]
        spent = in_turns(ways, rounds)
        time.sleep(settle)
        last, peaks = ([one.memory(of) for one in daemons] for of in ("VmRSS", "VmHWM"))
    bench.heading(f"Session of {megabytes} MB in lines of 1 MB")
    for what, (ours, theirs), target in (
        ("a minute after one index", first, "≤ 120 MB"),
        ("a minute after five more", last, "≤ 120 MB"),
        ("at most", peaks, ""),
    ):
        bench.amount(f"memory {what}", [ours], "MB", Beside("1 MB", [theirs]), target)
    limit = Beside("1 MB", [sum(spent["1 MB"])])
    bench.amount("five indexes, processor", [sum(spent["ours"])], "s", limit, "≤ 2 x")


def long_session(home: Path, megabytes: int) -> Session:
    """Make a session with so many lines of a megabyte; for 0, a megabyte of ordinary lines."""
    draw = Draw(2)
    writer = Writer("pi", draw, NOW, letters(megabytes, "ibex"))
    writer.event("begin")
    for number in range(megabytes):
        writer.clear()
        writer[b"tool"], writer[b"?picture"] = b"read", b""
        writer[b"text"] = writer[b"output"] = draw.prose(1_000_000)
        if number % 3 == 2:
            writer[b"text"], writer[b"base64"] = b"See this.", draw.base64(1_000_000)
            writer[b"?picture"] = LINES["pi", "picture"][0] % writer
        writer.event(("result", "answer", "ask")[number % 3])
    writer.fill(1_000_000 - writer.size, begun=True)
    return writer.save(home)


def again(daemon: Daemon, one: Session, leaves: list[str]) -> float:
    """Append a turn and index the session; return the seconds of processor time."""
    spent = daemon.cpu()
    for role in ("user", "assistant"):
        own = os.urandom(4).hex()
        append(one.path, entry(leaves[-1], "The spring of the door was rusty.", own, role))
        leaves.append(own)
    daemon.counted(one)
    reply = daemon.ask("index", ref=one.id, force=True, wait=True)
    spent = daemon.cpu() - spent
    meta = daemon.ask("get", ref=one.id)["meta"]
    check(f"{reply}: up to its last turn", ok=meta["lastIndexedLeafId"] == leaves[-1])
    return spent
