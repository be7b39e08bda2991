"""Measure the time from an append to its being visible on the socket, idle and under load.

The load is 2,000 appends a second. Lines are appended as pi does it: open, write, close. Visible
means: `list` has the session first, with the message counted; an event names it; `search` finds a
word of it. The limit is to wait for inotify and read the new bytes. Each session is used once, so
that no earlier append is seen.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from corpus import Draw, Session, iso, letters, talks
from home import Daemon, Home, check
from measure import Bench, Beside

RATE, BUSY = 2000, 500  # appends a second, and number of files
LONGEST = 10  # seconds to wait for an append
IN_MODIFY = 2
TARGETS = {  # ms; the first are for an idle daemon
    "listed": ({"p50": 3, "p99": 10}, {"p99": 50}),
    "event": ({"p50": 3, "p99": 10}, {"p99": 50}),
    "searchable": ({"p50": 50}, {}),
}
Probe = Callable[[Session], bool]  # whether an append to a session is visible; polled


def run(bench: Bench) -> None:
    count, probes, seconds = bench.size(10_000, 200), bench.size(250, 3), bench.size(8, 1)
    with Home() as home, Home() as other:
        made = talks(home.root, count, 2 * count, Draw(1, 1 << 18))
        bare = talks(other.root, count // 5, 2 * count // 5, Draw(1, 1 << 18))
        busy, sees = min(BUSY, count // 20), watcher(bare)
        ours, theirs = iter(made[:-busy]), iter(bare[:-busy])
        with Daemon(home) as daemon:
            daemon.listed(count)
            daemon.caught_up(made[:: count // 20])
            for on, name in enumerate(("idle", f"{RATE:,} a second over {busy} files")):
                with appending(other, bare[-busy:], smoke=bench.smoke) if on else nullcontext():
                    limit = probed(theirs, sees, probes, seconds / 2)
                with appending(home, made[-busy:], smoke=bench.smoke) if on else nullcontext():
                    found = measured(daemon, ours, probes, seconds)
                bench.heading(f"Append to client, {name}")
                bare_read = Beside("inotify", limit)
                for what, targets in TARGETS.items():
                    bench.latency(what, found[what], bare_read, **targets[on])
            for one in made[-busy :: max(1, busy // 20)]:
                daemon.counted(one)


def measured(
    daemon: Daemon, sessions: Iterator[Session], probes: int, seconds: float
) -> dict[str, list[float]]:
    """Return the milliseconds of appends for each probe."""
    with daemon.connect() as asking:

        def listed(one: Session) -> bool:
            row = asking.ask("list", cwd=one.cwd, limit=1)["sessions"][0]
            return row["sessionId"] == one.id and row["messageCount"] == 3

        def searchable(one: Session) -> bool:
            return one.id in asking.found(unique_word(one))

        ways = {"listed": listed, "searchable": searchable}
        found = {what: probed(sessions, way, probes, seconds) for what, way in ways.items()}
    with daemon.connect() as events:
        events.ask("subscribe", events=["session.updated"])

        def announced(one: Session) -> bool:
            return json.loads(events.receive()).get("params", {}).get("sessionId") == one.id

        return found | {"event": probed(sessions, announced, probes, seconds)}


def probed(sessions: Iterator[Session], probe: Probe, most: int, seconds: float) -> list[float]:
    """Return the milliseconds from appends to their being visible: `most` within `seconds`."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    while len(took) < most and (time.perf_counter() < end or not took):
        one = next(sessions)
        line = entry(one.leaf, f"{unique_word(one)} was said.")
        began = time.perf_counter()
        append(one.path, line)
        while not probe(one) and time.perf_counter() < began + LONGEST:
            pass
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(0.003 * (len(took) % 5))
    return took


def unique_word(one: Session) -> str:
    """Return a word that only a session's appended message has."""
    return letters(int(one.id[:6], 16), "emu")


def entry(parent: str, text: str, own: str = "", role: str = "assistant") -> bytes:
    """Make a line with a message, as pi writes it."""
    ms = 1000 * time.time()
    said = {"role": role, "content": [{"type": "text", "text": text}], "stopReason": "stop"}
    line = {"type": "message", "id": own or os.urandom(4).hex(), "parentId": parent}
    line |= {"timestamp": iso(ms), "message": said | {"timestamp": int(ms)}}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def append(path: str, data: bytes) -> None:
    place = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(place, data)
    os.close(place)


@contextmanager
def appending(home: Home, sessions: list[Session], *, smoke: bool) -> Iterator[None]:
    """Run a process that appends lines to sessions until the block ends."""
    plan = home.root / "plan"
    plan.write_text(json.dumps([(one.path, one.leaf) for one in sessions]))
    command = [sys.executable, __file__, str(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            time.sleep(0.5)
            yield
        finally:
            process.terminate()
            rate, _ = process.communicate()
        check(f"{rate!r} appends/s were made, not {RATE}", ok=smoke or float(rate) > 0.8 * RATE)


def load(plan: Path) -> None:
    """Append at RATE to the files in turn until SIGTERM; print the actual rate."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    leaves, count, began = json.loads(plan.read_text()), 0, time.perf_counter()
    try:
        while True:
            session, own = leaves[count % len(leaves)], f"{count:08x}"
            append(session[0], entry(session[1], "x" * 300, own))
            session[1], count = own, count + 1
            time.sleep(max(0.0, began + count / RATE - time.perf_counter()))
    finally:
        print(count / (time.perf_counter() - began))


def watcher(sessions: list[Session]) -> Probe:
    """The least work that notices an append: wait for inotify, and read the new bytes."""
    libc = ctypes.CDLL(None)
    fd, read = libc.inotify_init1(0), {one.path: os.stat(one.path).st_size for one in sessions}
    paths = {libc.inotify_add_watch(fd, os.fsencode(path), IN_MODIFY): path for path in read}

    def sees(one: Session) -> bool:
        data = os.read(fd, 1 << 16)
        changed = {paths[watch] for watch, *_ in struct.iter_unpack("iIII", data)}
        for path in changed:
            with open(path, "rb", buffering=0) as file:
                read[path] += len(os.pread(file.fileno(), 1 << 20, read[path]))
        return one.path in changed

    return sees


if __name__ == "__main__":
    load(Path(sys.argv[1]))
