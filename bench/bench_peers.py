"""indexerd beside others that make sessions findable: the same files, the same questions.

3,000 sessions, 158 MB, a third each of pi, Claude Code and Codex. Into five of Claude Code's a
word is put that no other has. Of each program: from nothing to a whole index (wall time and the
most memory that it took), what its index takes on the disk, a search for such a word and for two
common ones, and how long after a message was appended it is found. Those that run no daemon are
asked as processes, as their users ask them, in turns with ours; ours is asked on its socket, too,
which stands beside a peer's server.

What a peer does is itself a limit, and has none; what it fails at is told, and has no figure. Ours
stands beside every peer where it is the whole index, and else beside the best of those that index
all three agents. What is checked: words that were put into one message each, of either side and any
of the agents, lead to its session alone, on the socket and as a process, and so do those that were
appended; and what has two common words has them.

The peers come from the package registry, into a place of their own: `make peers`. Without them
this measures nothing, and says so. All run in a home that is made for this, and where the system
lets us, without a network.

    python bench/bench_peers.py [--smoke] [--peers DIR] [--sessions 3000] [--size 124000000]
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from corpus import make
from home import QUIET, Daemon, Home, wait
from measure import ROOT, Bench, Target, memory_mb, ratio, wall
from rivals import PORT, Peer, Ran, apart, failed, peers, ran

AGENTS = {"pi": ".pi/agent", "claude": ".claude", "codex": ".codex"}
PLANTED = [f"quokka{number}lith" for number in range(5)]
COMMON = "file test"
WHOLE = "whole index"
INDEX, MEMORY, DISK = "from nothing to a whole index", "the most memory", "its files"
SERVING = "the most memory, serving"
RARE, COMMON_TWO = "search, a rare word", "search, two common words"
RARE_SERVED, COMMON_SERVED = "a rare word, of a server", "two common words, of a server"
LATE = "appended, until it is found"
UNITS = {
    WHOLE: "s",
    INDEX: "s",
    MEMORY: "MB",
    SERVING: "MB",
    DISK: "MB",
    RARE: "ms",
    COMMON_TWO: "ms",
}
UNITS |= {RARE_SERVED: "ms", COMMON_SERVED: "ms", LATE: "ms"}
SAYS = ("message", "user", "assistant", "event_msg")  # types of lines in which something is said
BESIDE = {"fast-resume": 3.0, "mnemo-search": 0.2}  # times their time for a whole index, at most
PATIENCE = 30.0  # seconds within which something appended must be found
PROGRAM = "import sys; from indexerd.__main__ import main; sys.exit(main())"


@dataclass(frozen=True)
class Hidden:
    """A word that one message of one session has, and nothing else."""

    word: str
    id: str  # of the session
    agent: str


class Sheet:
    """What was measured of each program: values by what it is, and by whom."""

    def __init__(self, bench: Bench, peers: list[Peer]) -> None:
        self.bench, self.peers = bench, peers
        self.found: dict[str, dict[str, list[float]]] = {}

    def theirs(self, name: str, what: str, took: list[float], note: str = "") -> None:
        """Tell of a peer."""
        self.found.setdefault(what, {})[name] = took
        value, unit = median(took), UNITS[what]
        self.bench.add(f"{name}: {what}", value, unit, alone="a peer", note=note)

    def ours(self, what: str, took: list[float], **more: Any) -> None:
        """Tell of us, beside the best peer of all that index every session."""
        whole = {one.name for one in self.peers if not one.part}
        held = self.found.get(what, {})
        best = min(whole & held.keys(), key=lambda name: median(held[name]), default="")
        if best:
            self.beside(f"{what}, beside the best ({best})", took, best, held[best], **more)

    def beside(
        self, what: str, took: list[float], name: str, held: list[float], **more: Any
    ) -> None:
        """Tell of us, beside one peer; `what` says which."""
        told = {"limit": name, "floor": median(held)} | more
        if len(held) == len(took):
            told["ratio"] = ratio(took, held)
        unit = next(unit for start, unit in UNITS.items() if what.startswith(start))
        self.bench.add(f"indexerd: {what}", median(took), unit, **told)


@dataclass(frozen=True)
class Case:
    """A home with sessions of all agents, and what was put into them."""

    home: Home
    files: dict[str, list[str]]  # by agent
    ids: list[str]  # of the sessions that got the planted words
    hidden: list[Hidden]


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


def hide(files: dict[str, list[str]], each: int) -> list[Hidden]:
    """Put words of their own in the place of some that were said, in sessions of each agent."""
    chosen = random.Random(2)
    found: list[Hidden] = []
    for agent, paths in files.items():
        some = (one for one in chosen.sample(paths, len(paths)) if one not in paths[-1:])
        made = (hidden(Path(one), agent, len(found), chosen) for one in some)
        for _ in range(each):
            found += islice(filter(None, made), 1)
    return found


def hidden(path: Path, agent: str, number: int, chosen: random.Random) -> Hidden | None:
    """Replace one word of one message, if there is one that stands in no other."""
    lines = path.read_bytes().decode().split("\n")
    texts = [text for line in lines[:-1] for text in said(json.loads(line))]
    for text in chosen.sample(texts, min(len(texts), 9)):
        whole = json.dumps(text, ensure_ascii=False)[1:-1]
        for old in re.findall(r"\b[a-z]{6,14}\b", text):
            holders = [n for n, line in enumerate(lines) if old in line]
            if all(whole in lines[n] and lines[n].count(whole) == 1 for n in holders):
                new = "zebu" + "".join(chr(97 + int(digit)) for digit in f"{number:04}") + "lith"
                for n in holders:
                    lines[n] = lines[n].replace(whole, re.sub(rf"\b{old}\b", new, whole))
                path.write_bytes("\n".join(lines).encode())
                return Hidden(new, path.stem[-36:], agent)
    return None


def said(entry: dict[str, Any]) -> list[str]:
    """What a human or a model said in a line of any of the three agents."""
    held = entry.get("message") or entry.get("payload", {}).get("item") or {}
    who = held.get("role") or held.get("type")
    if entry["type"] not in SAYS or who not in ("user", "assistant", "UserMessage", "AgentMessage"):
        return []
    parts = held["content"] if isinstance(held["content"], list) else [{"text": held["content"]}]
    return [one["text"] for one in parts if isinstance(one.get("text"), str)]


def theirs(sheet: Sheet, case: Case, peer: Peer) -> bool:
    """Measure one peer, from nothing; whether it can be asked."""
    home, files = case.home, case.files["claude"]
    env = home.env() | peer.env | {"XDG_RUNTIME_DIR": str(home.root)}
    before = size_mb(home.root)
    first = ran(peer.index, env, home.root)
    if failed(peer, first):
        return False
    sheet.theirs(peer.name, INDEX, [first.seconds], peer.note)
    sheet.theirs(peer.name, MEMORY, [first.memory_mb])
    sheet.theirs(peer.name, DISK, [size_mb(home.root) - before])
    if peer.serve:
        try:
            served(sheet, case, peer)
        except OSError as fault:
            print(f"{peer.name} failed: {fault}", file=sys.stderr)
    if peer.search is None:
        return False
    word = f"late{peer.name.replace('-', '')}"
    plant(files[-1:], [word])
    began = time.perf_counter()
    found = False
    while not found and time.perf_counter() < began + PATIENCE:
        if peer.update and failed(peer, ran(peer.update, env, home.root)):
            return True
        done = ran((peer.fresh or peer.search)(word), env, home.root)
        if failed(peer, done):
            return True
        found = done.out.replace(word, "", 1).count(word) > 0 or Path(files[-1]).stem in done.out
    note = "by the next search" if found else "not found"
    sheet.theirs(peer.name, LATE, [1000 * (time.perf_counter() - began)], note)
    return True


def served(sheet: Sheet, case: Case, peer: Peer) -> None:
    """The questions, over HTTP, to a server that follows the files."""
    home, ids, files = case.home, case.ids, case.files["claude"]
    address = f"http://127.0.0.1:{PORT}/api/v1/search?q="

    def asked(words: str) -> str:
        with urlopen(address + quote(words), timeout=PATIENCE) as answer:  # loopback only
            return str(answer.read().decode("utf-8", "replace"))

    def answers() -> bool:
        if server.poll() is not None:
            raise ChildProcessError(f"its server ended with {server.returncode}")
        with suppress(OSError):
            return bool(asked("ready"))
        return False

    env = {key: one for key, one in (home.env() | peer.env).items() if not key.endswith("_DAEMON")}
    with (home.root / "served").open("wb") as out:
        server = subprocess.Popen(peer.serve, env=env, cwd=home.root, stdout=out, stderr=out)
        try:
            wait(answers, f"{peer.name}'s server", 0.05)
            found: list[str] = []
            took = [1000 * wall(lambda w=word: found.append(asked(w))) for word in PLANTED]  # type: ignore[misc]
            right = sum(one in text for one, text in zip(ids, found, strict=True))
            sheet.theirs(peer.name, RARE_SERVED, took, f"over HTTP; {right} of {len(ids)} found")
            common = [1000 * wall(lambda: asked(COMMON)) for _ in PLANTED]
            sheet.theirs(peer.name, COMMON_SERVED, common)
            plant(files[-1:], ["lateserved"])
            stem = Path(files[-1]).stem
            began = time.perf_counter()
            while stem not in asked("lateserved") and time.perf_counter() < began + PATIENCE:
                time.sleep(0.02)
            late = time.perf_counter() - began
            sheet.theirs(peer.name, LATE, [1000 * late], "" if late < PATIENCE else "not found")
            sheet.theirs(peer.name, SERVING, [memory_mb(server.pid, "VmHWM")])
        finally:
            server.terminate()
            server.wait(20)


def searches(sheet: Sheet, case: Case, peers: list[Peer], daemon: Daemon) -> None:
    """The same questions to all, in turns, as processes; and to us on the socket, too."""
    home, ids = case.home, case.ids
    argv = [sys.executable, "-c", PROGRAM, "search"]
    us = Peer("indexerd", [], lambda words: [*argv, words, "--json"])
    for what, words in ((RARE, PLANTED), (COMMON_TWO, [COMMON] * len(PLANTED))):
        done: dict[str, list[Ran]] = {one.name: [] for one in (*peers, us)}
        on_socket = []
        for word in words:
            for one in (*peers, us):
                done[one.name].append(searched(one, word, home))
            on_socket.append(1000 * seconds_of(daemon, word))
        for one in peers:
            if not any(failed(one, each) for each in done[one.name]):
                took = [1000 * each.seconds for each in done[one.name]]
                note = known(one, case, done[one.name]) if what is RARE else ""
                sheet.theirs(one.name, what, took, note)
        for word, session_id, each in zip(words, ids, done[us.name], strict=True):
            hits = [] if each.code else json.loads(each.out)["hits"]
            right = {hit["sessionId"] for hit in hits}
            ok = right == {session_id} if what is RARE else len(right) > 5
            sheet.bench.check(f"a process finds {word}: {each.out[:200]!r}", ok=ok)
        sheet.ours(what, [1000 * each.seconds for each in done[us.name]])
        served = RARE_SERVED if what is RARE else COMMON_SERVED
        sheet.ours(served, on_socket, note="on the socket")


def searched(one: Peer, words: str, home: Home) -> Ran:
    """A search, as a process."""
    assert one.search is not None
    return ran(one.search(words), home.env() | one.env, home.root)


def known(one: Peer, case: Case, done: list[Ran]) -> str:
    """How many of the planted words a peer found, and of those that are hidden in all agents."""
    right = sum(of in each.out for of, each in zip(case.ids, done, strict=True))
    note = f"{right} of {len(case.ids)} found"
    if one.part:
        return note
    some = case.hidden[:: max(1, len(case.hidden) // 6)]
    right = sum(of.id in searched(one, of.word, case.home).out for of in some)
    return f"{note}, and {right} of {len(some)} of all agents"


def ours(sheet: Sheet, case: Case, peers: list[Peer]) -> None:
    """Measure indexerd, from nothing, on the same files; `peers` are those that can be asked."""
    home, last = case.home, case.files["claude"][-1:]
    before, count = size_mb(home.root), sum(map(len, case.files.values()))
    with home.daemon(**QUIET) as daemon:
        seconds = daemon.settled(count)
        memory, disk = daemon.memory("VmHWM"), size_mb(home.root) - before
        for one in sheet.peers:
            if one.name in sheet.found.get(INDEX, {}):
                promise = BESIDE.get(one.name)
                told = {"target": Target(promise, of="ratio") if promise else None}
                told |= {"note": one.note if one.part else ""}
                took = sheet.found[INDEX][one.name]
                sheet.beside(f"{WHOLE}, beside {one.name}", [seconds], one.name, took, **told)
        sheet.ours(MEMORY, [memory])
        sheet.ours(DISK, [disk])
        right(sheet.bench, daemon, case)
        searches(sheet, case, peers, daemon)
        took = []
        with daemon.client() as client:
            for n in range(5):
                word = f"lateours{n}"
                plant(last, [word])
                began = time.perf_counter()
                found = False
                while not found and time.perf_counter() < began + PATIENCE:
                    time.sleep(0.001)
                    found = bool(client.call("search", {"query": word})["hits"])
                took.append(1000 * (time.perf_counter() - began))
                sheet.bench.check(f"{word}, appended, is found", ok=found)
                if not found:
                    break
        sheet.ours(SERVING, [daemon.memory("VmHWM")])
        sheet.ours(LATE, took, note="on the socket")


def right(bench: Bench, daemon: Daemon, case: Case) -> None:
    """Whether words that one message has, of whatever agent, lead to its session alone."""
    files, hid, count = case.files, case.hidden, sum(map(len, case.files.values()))
    known = daemon.ask("status")["sessions"]
    bench.check(f"{count} sessions are known, not {known}", ok=known == count)
    bench.check("words are hidden in all", ok={one.agent for one in hid} == files.keys())
    words = {one.word: one.id for one in hid} | dict(zip(PLANTED, case.ids, strict=True))
    with daemon.client() as client:
        for word, session_id in words.items():
            hits = client.call("search", {"query": word})["hits"]
            found = {one["sessionId"] for one in hits}
            bench.check(f"{word} is where it is", ok=found == {session_id})
        places = {path[-42:-6]: path for paths in files.values() for path in paths}
        hits = client.call("search", {"query": COMMON})["hits"]
        bench.check("common words are found", ok=len(hits) > 5)
        for one in hits:
            data = Path(places[one["sessionId"]]).read_text().lower()
            has = all(word in data for word in COMMON.split())
            bench.check(f"{COMMON} is in {one['sessionId']}", ok=has)


def seconds_of(daemon: Daemon, word: str) -> float:
    """How long one search takes on a connection that is open."""
    with daemon.client() as client:
        client.call("search", {"query": "warm"})
        began = time.perf_counter()
        client.call("search", {"query": word})
        return time.perf_counter() - began


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
    sheet = Sheet(bench, there)
    with Home() as home:
        files = {
            agent: make(home.root / place, agent, sessions // 3, size // 3, seed).files
            for seed, (agent, place) in enumerate(AGENTS.items())
        }
        hid = hide(files, 3 if bench.smoke else 20)
        ids = plant(files["claude"][: len(PLANTED)], PLANTED)
        case = Case(home, files, ids, hid)
        ours(sheet, case, [one for one in there if theirs(sheet, case, one)])
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
