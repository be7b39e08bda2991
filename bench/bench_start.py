"""Starts: again, with nothing changed, and for the first time; beside what the disk alone costs.

    python bench/bench_start.py [--smoke] [--rounds N]

Again: a home of 10,000 small sessions that is known already. From the daemon's exec to READY, to
the first answered question, and to the end of catching up, each round beside a bare scandir + stat
of the same files. For the first time: 3,000 sessions of 41 KB, equal parts pi, Claude Code and
Codex, from exec until the last word is searchable, beside reading and parsing every line of them.
Nothing is described in either, and no digest made; the built-in model is the only one.

What is checked: every session is known, a name leads to its own session, and words that were put
into one file alone, in the place of what its user said, find that session and no other.
"""

from __future__ import annotations

import os
import random
import re
import sys
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from corpus import make
from home import QUIET, Home, Small, Writer
from measure import Bench, Target, in_turns, percentile, ratio, wall

from indexerd.io.scan import scan

TOLD = "nothing described, no digests"
PARTS = {"pi": ".pi/agent", "claude": ".claude", "codex": ".codex"}
CORPUS_BYTES = 124_000_000
CORPUS_FILES = 3_000
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


def main() -> int:
    bench = Bench("start", "Start: again with nothing changed, and for the first time")
    bench.options.add_argument("--rounds", type=int, default=3)
    count = 200 if bench.smoke else 10_000
    with Home() as home:
        again(bench, home, home.small(count))
    with Home() as home:
        first(bench, home, CORPUS_FILES // (100 if bench.smoke else 1))
    return bench.end()


# -- again ---------------------------------------------------------------------------------------


def again(bench: Bench, home: Home, made: list[Small]) -> None:
    """Restarts of a home that is known."""
    with home.daemon(**QUIET) as daemon:
        daemon.settled(len(made))
    ready, answered, scanned, spent = [], [], [], []
    asked = random.Random(1)

    def start() -> float:
        wanted = asked.choice(made)
        with home.daemon(**QUIET) as daemon:
            ready.append(daemon.ready())
            found = daemon.ask("resolve", {"ref": wanted.name, "scope": "all"})
            answered.append(daemon.since())
            bench.check("a name leads to its session", ok=found["sessionId"] == wanted.id)
            scanned.append(daemon.scanned())
            daemon.settled(len(made))
            spent.append(daemon.cpu())
        return scanned[-1] - ready[-1]

    top = str(home.sessions)
    rounds = 1 if bench.smoke else bench.asked.rounds
    methods = {"ours": start, "bare": lambda: wall(lambda: stats(top)), "empty": empty_start}
    found = in_turns(methods, rounds, warm=0)
    late = Writer(made[len(made) // 2])
    late.append()  # a start that compared nothing would be quick, and miss it
    with home.daemon(**QUIET) as daemon:
        daemon.settled(len(made))
        told = daemon.ask("get", {"ref": late.id})["session"]["messageCount"]
        bench.check("a restart sees what was appended meanwhile", ok=told == 2 + late.entries)
    name = f"restart, {len(made)} sessions"
    bench.check("all files are there", ok=stats(top) == len(made) == len(scan([top]).files))
    about: dict[str, Any] = {"limit": "with no sessions", "floor": 1000 * median(found["empty"])}
    about |= {"ratio": ratio(ready, found["empty"]), "target": Target(500), "note": TOLD}
    bench.add(f"{name}: exec to READY", 1000 * median(ready), "ms", **about)
    bench.add(f"{name}: exec to the first answer", 1000 * median(answered), "ms")
    bench.add(f"{name}: exec to caught up", 1000 * median(scanned), "ms")
    bench.add(
        f"{name}: READY to caught up",
        1000 * median(found["ours"]),
        "ms",
        limit="scandir + stat",
        floor=1000 * median(found["bare"]),
        ratio=ratio(found["ours"], found["bare"]),
    )
    over = [
        (ours - bare) / len(made) for ours, bare in zip(found["ours"], found["bare"], strict=True)
    ]
    bench.add(f"{name}: over scandir + stat, a file", 1e6 * median(over), "us", target=Target(15))
    bench.add(f"{name}: processor, exec to caught up", 1000 * median(spent), "ms")


def empty_start() -> float:
    """A daemon that has nothing to know: seconds from exec to READY."""
    with Home() as home, home.daemon(**QUIET) as daemon:
        return daemon.ready()


def stats(top: str) -> int:
    """List all directories, and stat every file; how many there are."""
    count, stack = 0, [top]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                elif entry.name.endswith(".jsonl"):
                    entry.stat(follow_symlinks=False)
                    count += 1
    return count


# -- for the first time --------------------------------------------------------------------------


def first(bench: Bench, home: Home, files: int) -> None:
    """A cold start on a corpus of three agents, and what reading and parsing it costs."""
    each = CORPUS_BYTES * files // CORPUS_FILES // len(PARTS)
    made = [
        make(home.root / part, agent, files // len(PARTS), each, seed=number)
        for number, (agent, part) in enumerate(PARTS.items())
    ]
    paths = [Path(path) for one in made for path in one.files]
    size = sum(one.bytes for one in made)
    hide(paths[-1])
    words = planted(paths)
    bench.check("there are words to look for", ok=len(words) > 2)
    done = [path for path in paths if PARTS["pi"] in str(path)][:20]
    taken, peak, bare, plain = [], [], [], []
    for _ in range(1 if bench.smoke else 2):
        home.forget()
        plain.append(wall(lambda: parse(paths)))
        bare.append(wall(lambda: [one.read_bytes() for one in paths]))
        with home.daemon(**QUIET) as daemon:
            scanned = daemon.scanned()
            taken.append(daemon.settled(len(paths)))
            spent = daemon.cpu()
            peak.append(daemon.memory("VmHWM"))
            known = daemon.ask("status")["sessions"]
            bench.check(f"{len(paths)} sessions are known, not {known}", ok=known == len(paths))
            bench.check(
                "no secret is found", ok=not daemon.ask("search", {"query": SECRET})["hits"]
            )
            for path in done:
                row = daemon.ask("get", {"ref": path.stem.rpartition("_")[2]})["session"]
                told = {one.removeprefix(row["cwd"] + "/") for one in row["filesModified"]}
                bench.check(f"what was changed in {path.name}", ok=changed(path, told))
            for word, path in words:
                hits = daemon.ask("search", {"query": word, "limit": 50})["hits"]
                found = {one["sessionId"] for one in hits}
                right = len(found) == 1 and found.pop() in path.name
                bench.check(f"{word} is found in {path.name} alone", ok=right)
    name = f"first start, {len(paths)} sessions, {size / 1e6:.0f} MB"
    bench.add(
        f"{name}: exec to all words searchable",
        median(taken),
        "s",
        limit="read + parse",
        floor=median(plain),
        ratio=ratio(taken, plain),
        note=TOLD,
    )
    bench.add(f"{name}: exec to all sessions known", scanned, "s", note="the last round")
    bench.add(f"{name}: processor", spent, "s", note="the last round")
    bench.add(f"{name}: only reading", median(bare), "s")
    bench.add(f"{name}: most memory", percentile(peak, 1), "MB", target=Target(90))


def parse(paths: list[Path]) -> int:
    """Every line of every file, as plain values."""
    decode = msgspec.json.decode
    count = 0
    for path in paths:
        for one in path.read_bytes().splitlines():
            decode(one)
            count += 1
    return count


def planted(paths: list[Path]) -> list[tuple[str, Path]]:
    """Give some files a word that no other has, in the place of one that their user said."""
    chosen = random.Random(2)
    found: list[tuple[str, Path]] = []
    for number, path in enumerate(chosen.sample(paths, min(len(paths), 30))):
        data = path.read_bytes()
        words = set(re.findall(r"\b[a-z]{6,14}\b", " ".join(asked(data))))
        for word in sorted(words):
            if f'"{word}"'.encode() not in data:  # it may be a key
                new = f"quokka{chr(97 + number % 26) * (1 + number // 26)}lith"
                path.write_bytes(re.sub(rb"\b%s\b" % word.encode(), new.encode(), data))
                found.append((new, path))
                break
    return found


def hide(path: Path) -> None:
    """Have a user say a secret: what is searchable must be without it."""
    data = path.read_bytes()
    word = max(re.findall(r"\b[a-z]{3,14}\b", asked(data)[0]), key=len)
    path.write_bytes(re.sub(rb"\b%s\b" % word.encode(), SECRET.encode(), data))


def changed(path: Path, told: set[str]) -> bool:
    """Whether files are told of as changed in a session of pi, and none that were not."""
    wrote = {
        part["arguments"].get("path")
        for one in path.read_bytes().splitlines()
        for part in msgspec.json.decode(one).get("message", {}).get("content", ())
        if isinstance(part, dict) and part.get("name") in ("edit", "write")
    }
    return told <= wrote and bool(told) == bool(wrote)


def asked(data: bytes) -> list[str]:
    """What the user typed, by any of the three agents, every line parsed in full."""
    found: list[str] = []
    for one in data.splitlines():
        held = msgspec.json.decode(one)
        said = held.get("message") or held.get("payload", {}).get("item") or {}
        if "user" not in (said.get("role"), said.get("type", "")[:4].lower()):
            continue
        content = said["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        found += [part["text"] for part in parts if part.get("text")]
    return found


if __name__ == "__main__":
    sys.exit(main())
