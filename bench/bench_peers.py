"""indexerd beside others that make sessions findable: the same files, the same questions.

3,000 sessions, 124 MB, a third each of pi, Claude Code and Codex. Into five of Claude Code's a
word is put that no other has. Of each program: from nothing to a whole index (wall time and the
most memory that it took), what its index takes on the disk, a search for such a word and for two
common ones, and how long after a message was appended it is found. Those that run no daemon are
asked as processes, as their users ask them; ours is asked as a process, and on its socket.

The peers come from the package registry, into a place of their own: `make peers`. Without them
this measures nothing, and says so. All run in a home that is made for this, and where the system
lets us, without a network.

    python bench/bench_peers.py [--smoke] [--peers DIR] [--sessions 3000] [--size 124000000]
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from corpus import make
from home import Daemon, Home, wait
from measure import ROOT, Bench, Target, memory_mb, wall

AGENTS = {"pi": ".pi/agent", "claude": ".claude", "codex": ".codex"}
PLANTED = [f"quokka{number}lith" for number in range(5)]
COMMON = "file test"
APART = "INDEXERD_BENCH_APART"
PORT = 18_473  # in a network of our own, where that is possible
BESIDE = {"fast-resume": 3.0, "mnemo-search": 0.2}  # times their time for a whole index, at most
PATIENCE = 30.0  # seconds within which something appended must be found
PROGRAM = "import sys; from indexerd.__main__ import main; sys.exit(main())"


@dataclass
class Ran:
    """A process that has ended."""

    seconds: float
    memory_mb: float
    out: str
    code: int


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
        Peer("claude-code-tools", [at("aichat"), "build-index"], note="Claude Code and Codex"),
        Peer(
            "claude-session-index",
            [at("session-index"), "--backfill"],
            said(at("session-search"), "search", "{}"),
            update=[at("session-index"), "--incremental"],
            note="Claude Code only",
        ),
    ]


def ran(argv: list[str], env: dict[str, str], where: Path) -> Ran:
    """Run a process to its end."""
    with (where / "out").open("w+b") as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, env=env, cwd=where, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read(1 << 20).decode("utf-8", "replace")
    return Ran(seconds, used.ru_maxrss / 1024, text, process.returncode)


def size_mb(root: Path) -> float:
    """Megabytes of all files but those of the agents."""
    own = [root / one for one in AGENTS.values()]
    total = 0
    for folder, _, names in os.walk(root):
        if not any(Path(folder).is_relative_to(one) for one in own):
            total += sum((Path(folder) / name).lstat().st_size for name in names)
    return total / 1e6


def plant(files: list[str], words: list[str]) -> list[str]:
    """Append a request with a word of its own to as many sessions of Claude Code; their ids."""
    ids = []
    for path, word in zip(files, words, strict=True):
        with Path(path).open("r+b") as file:
            rows = [json.loads(row) for row in file.read().splitlines()[-40:]]
            last = [row for row in rows if row.get("uuid")][-1]
            said = {"role": "user", "content": f"Please look for the {word} again."}
            more = {"type": "user", "message": said, "parentUuid": last["uuid"]}
            more["uuid"] = f"{abs(hash(word)) % 16**8:08x}-0000-4000-8000-000000000000"
            kept = {key: value for key, value in last.items() if key not in {"message", "type"}}
            file.write(json.dumps(kept | more, separators=(",", ":")).encode() + b"\n")
        ids.append(last["sessionId"])
    return ids


def theirs(bench: Bench, home: Home, peer: Peer, ids: list[str], files: list[str]) -> None:
    """Measure one peer, from nothing."""
    env = home.env() | peer.env | {"XDG_RUNTIME_DIR": str(home.root)}
    before = size_mb(home.root)
    first = ran(peer.index, env, home.root)
    if first.code:
        print(f"{peer.name} did not index: {first.out[-300:]!r}", file=sys.stderr)
        return
    told(bench, peer.name, first.seconds, first.memory_mb, size_mb(home.root) - before, peer.note)
    if peer.serve:
        served(bench, home, peer, ids, files)
    if peer.search is None:
        return
    rare = [ran(peer.search(word), env, home.root) for word in PLANTED]
    right = sum(one in done.out for one, done in zip(ids, rare, strict=True))
    bench.add(
        f"{peer.name}: search, a rare word",
        1000 * median(one.seconds for one in rare),
        "ms",
        note=f"a process each; {right} of {len(ids)} found",
    )
    common = median(ran(peer.search(COMMON), env, home.root).seconds for _ in range(5))
    bench.add(f"{peer.name}: search, two common words", 1000 * common, "ms")
    word = f"late{peer.name.replace('-', '')}"
    plant(files[-1:], [word])
    began = time.perf_counter()
    found = False
    while not found and time.perf_counter() < began + PATIENCE:
        if peer.update:
            ran(peer.update, env, home.root)
        done = ran((peer.fresh or peer.search)(word), env, home.root)
        found = done.out.replace(word, "", 1).count(word) > 0 or Path(files[-1]).stem in done.out
    told_after = 1000 * (time.perf_counter() - began)
    note = "by the next search" if found else "not found"
    bench.add(f"{peer.name}: appended, until it is found", told_after, "ms", note=note)


def served(bench: Bench, home: Home, peer: Peer, ids: list[str], files: list[str]) -> None:
    """The questions, over HTTP, to a server that follows the files."""
    address = f"http://127.0.0.1:{PORT}/api/v1/search?q="

    def asked(words: str) -> str:
        with urlopen(address + quote(words), timeout=PATIENCE) as answer:  # loopback only
            return str(answer.read().decode("utf-8", "replace"))

    def answers() -> bool:
        with suppress(OSError):
            return bool(asked("ready"))
        return False

    env = {key: one for key, one in (home.env() | peer.env).items() if not key.endswith("_DAEMON")}
    with (home.root / "served").open("wb") as out:
        server = subprocess.Popen(peer.serve, env=env, cwd=home.root, stdout=out, stderr=out)
        try:
            wait(answers, f"{peer.name}'s server", 0.05)
            found: list[str] = []
            took = [wall(lambda w=word: found.append(asked(w))) for word in PLANTED]
            right = sum(one in text for one, text in zip(ids, found, strict=True))
            note = f"over HTTP; {right} of {len(ids)} found"
            bench.add(f"{peer.name}: search, a rare word", 1000 * median(took), "ms", note=note)
            common = median(wall(lambda: asked(COMMON)) for _ in range(5))
            bench.add(f"{peer.name}: search, two common words", 1000 * common, "ms")
            plant(files[-1:], ["lateserved"])
            stem = Path(files[-1]).stem
            began = time.perf_counter()
            while stem not in asked("lateserved") and time.perf_counter() < began + PATIENCE:
                time.sleep(0.02)
            late = time.perf_counter() - began
            note = "" if late < PATIENCE else "not found"
            bench.add(f"{peer.name}: appended, until it is found", 1000 * late, "ms", note=note)
            bench.add(
                f"{peer.name}: the most memory, serving", memory_mb(server.pid, "VmHWM"), "MB"
            )
        finally:
            server.terminate()
            server.wait(20)


def told(bench: Bench, name: str, *what: Any) -> None:
    """The figures that all have."""
    seconds, memory, disk, note = what
    bench.add(f"{name}: from nothing to a whole index", seconds, "s", note=note)
    bench.add(f"{name}: the most memory", memory, "MB")
    bench.add(f"{name}: its files", disk, "MB")


def beside(bench: Bench) -> None:
    """Our time to a whole index, beside that of those who are to be measured against."""
    took = {
        one.name.partition(":")[0]: one.value
        for one in bench.figures
        if one.name.endswith("from nothing to a whole index")
    }
    for name, most in BESIDE.items():
        if name in took:
            bench.add(
                f"indexerd: whole index, beside {name}",
                took["indexerd"],
                "s",
                limit=name,
                floor=took[name],
                ratio=took["indexerd"] / took[name],
                target=Target(most, of="ratio"),
            )


def ours(bench: Bench, home: Home, ids: list[str], files: list[str], sessions: int) -> None:
    """Measure indexerd, from nothing, beside the same files."""
    before = size_mb(home.root)
    quiet = {"INDEXERD_MIN_NEW_USER_MESSAGES": "10000", "INDEXERD_DIGEST__ENABLED": "false"}
    with home.daemon(**quiet) as daemon:
        seconds = daemon.settled(sessions)
        told(bench, "indexerd", seconds, daemon.memory("VmHWM"), size_mb(home.root) - before, "")
        env = home.env()
        argv = [sys.executable, "-c", PROGRAM, "search", "{}", "--json"]
        for kind, words in (("a rare word", PLANTED), ("two common words", [COMMON] * 5)):
            asked = [[word if one == "{}" else one for one in argv] for word in words]
            done = [ran(one, env, home.root).seconds for one in asked]
            bench.add(f"indexerd: search, {kind}", 1000 * median(done), "ms", note="a process each")
            on_socket = [seconds_of(daemon, word) for word in words]
            bench.add(f"indexerd: search, {kind}, on the socket", 1000 * median(on_socket), "ms")
        for word, session_id in zip(PLANTED, ids, strict=True):
            hits = daemon.ask("search", {"query": word})["hits"]
            bench.check(
                f"{word} is where it is", ok=[one["sessionId"] for one in hits] == [session_id]
            )
        took = []
        with daemon.client() as client:
            for n in range(5):
                word = f"lateours{n}"
                plant(files[-1:], [word])
                began = time.perf_counter()
                wait(lambda w=word: client.call("search", {"query": w})["hits"], "the new word")
                took.append(time.perf_counter() - began)
        bench.add("indexerd: appended, until it is found", 1000 * median(took), "ms")


def seconds_of(daemon: Daemon, word: str) -> float:
    """How long one search takes on a connection that is open."""
    with daemon.client() as client:
        client.call("search", {"query": "warm"})
        began = time.perf_counter()
        client.call("search", {"query": word})
        return time.perf_counter() - began


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
        os.execv(unshare, [unshare, "-rn", sys.executable, __file__, *sys.argv[1:]])


def main() -> int:
    bench = Bench("peers", "Beside others, on the same 3,000 sessions")
    bench.options.add_argument("--peers", type=Path, default=ROOT / ".venv-peers")
    bench.options.add_argument("--sessions", type=int, default=3000)
    bench.options.add_argument("--size", type=int, default=124_000_000)
    asked = bench.asked
    there = [one for one in peers(asked.peers) if Path(one.index[0]).exists()]
    if not there:
        print("not measured: `make peers` installs them")
        return bench.end()
    apart()
    sessions, size = (90, 2_000_000) if bench.smoke else (asked.sessions, asked.size)
    with Home() as home:
        files = {}
        for seed, (agent, place) in enumerate(AGENTS.items()):
            files[agent] = make(home.root / place, agent, sessions // 3, size // 3, seed).files
        ids = plant(files["claude"][: len(PLANTED)], PLANTED)
        for peer in there:
            theirs(bench, home, peer, ids, files["claude"])
        ours(bench, home, ids, files["claude"], sessions // 3 * 3)
    beside(bench)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
