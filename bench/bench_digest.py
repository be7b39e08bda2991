"""A question, a digest, three compactions of a session of 2.4 MB, by the daemon's built-in model.

    python bench/bench_digest.py [--smoke] [--rounds N]

A pi session of a thousand entries is written as many times as there are rounds, since a digest
leaves nothing to do for the next one. The daemon runs in a process of its own; the time is that of
a request over the socket, from the line out to the line in. The limit is what is not to be had any
other way: reading and parsing the file, as its turn comes in each round; that of the longest
request is the longest parse.
What is checked: the answer to a question about one step cites that step; a digest covers all but
the newest messages, and a compaction has something to say.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from home import Daemon, Home, iso, line, wait
from measure import Bench, Target, ratio, wall

PROMISE = 1000  # ms
PARSED = "parsing it"
NEWEST = 60  # entries that may be left as they are
WORDS = ["parser", "cache", "login", "token", "index", "search", "export", "queue", "metrics"]
BEGAN = 1_767_225_600  # seconds since the epoch


def session(made: random.Random, session_id: str, entries: int) -> bytes:
    """A pi session with requests, answers that call tools, and results of some length."""
    head = {"type": "session", "version": 3, "id": session_id, "cwd": "/w", "timestamp": iso(BEGAN)}
    lines: list[dict[str, Any]] = [head]
    parent = None
    for n in range(entries):
        role = ("user", "assistant", "toolResult", "assistant")[n % 4]
        said = " ".join(made.choice(WORDS) for _ in range(30 if role != "toolResult" else 1150))
        text = f"We decided to keep the {made.choice(WORDS)} in step {n}. {said}."
        message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
        if n % 4 == 1:
            call = {"type": "toolCall", "id": f"c{n}", "name": "edit"}
            message["content"].append(call | {"arguments": {"path": f"/w/{made.choice(WORDS)}.py"}})
        if role == "toolResult":
            message |= {"toolCallId": f"c{n - 1}", "toolName": "edit"}
        if role == "assistant":
            message["stopReason"] = "toolUse" if n % 4 == 1 else "stop"
        entry = {"type": "message", "id": f"{n:08x}", "parentId": parent}
        lines.append(entry | {"timestamp": iso(BEGAN + n), "message": message})
        parent = f"{n:08x}"
    return b"".join(map(line, lines))


def copied(file: Path, session_id: str) -> bytes:
    """A session under another id."""
    head, _, rest = file.read_bytes().partition(b"\n")
    return line(json.loads(head) | {"id": session_id}) + rest


def described(daemon: Daemon, count: int) -> list[str]:
    """The sessions' ids, once all of them are known and described."""
    found: list[str] = []

    def done() -> bool:
        rows = daemon.ask("list", {"limit": 500})["sessions"]
        found[:] = [row["sessionId"] for row in rows if row["indexed"]]
        return len(found) == count

    daemon.settled(count)
    wait(done, "a description of each", 0.05)
    return found


def covered(bench: Bench, name: str, told: dict[str, Any], entries: int) -> None:
    """Whether all but the newest messages are in it: by its own count, and by what it says.

    Each message of `session` but the tools' tells of its step.
    """
    if name == "digest":
        said, last = told["segment"]["content"], told["segment"]["covering_messages"][1] + 1
        last += entries // 4  # results of tools are no messages to it
    else:
        said, last = told["summary"], told["messagesSummarized"]
    steps = [int(one) for one in re.findall(r"in step (\d+)", said)]
    bench.check(f"{name} covers all but the newest", ok=last >= entries - NEWEST)
    bench.check(f"{name} has what was first", ok=min(steps, default=entries) < 4)
    bench.check(f"{name} has what was last", ok=max(steps, default=0) >= entries - NEWEST)


def measure(
    bench: Bench, daemon: Daemon, paths: dict[str, Path], entries: int
) -> dict[str, list[float]]:
    """Milliseconds of each request, round by round, and of parsing the session's file."""
    found: dict[str, list[float]] = {}
    asks = [
        ("digest", {}),
        *(("compact", {"strategy": one}) for one in ("pi", "codex", "opencode")),
    ]
    for session_id in described(daemon, len(paths)):
        parsed = wall(lambda path=paths[session_id]: [*map(json.loads, path.open("rb"))])  # type: ignore[misc]
        found.setdefault(PARSED, []).append(1000 * parsed)
        step = random.Random(session_id).randrange(entries)
        question = {"session": session_id, "question": f"What did we decide in step {step}?"}
        began = time.perf_counter()
        told = daemon.ask("query_session", question)
        found.setdefault("question", []).append(1000 * (time.perf_counter() - began))
        cited = [one["entryId"] for one in told["citations"]]
        bench.check(f"the answer is found in step {step}", ok=f"{step:08x}" in cited)
        for method, more in asks:
            began = time.perf_counter()
            told = daemon.ask(method, {"ref": session_id, **more})
            took = time.perf_counter() - began
            found.setdefault(" ".join([method, *more.values()]), []).append(1000 * took)
            said = told["segment"]["content"] if method == "digest" else told["summary"]
            bench.check(f"{method} says something", ok=len(said) > 200)
            covered(bench, " ".join([method, *more.values()]), told, entries)
    return found


def main() -> int:
    bench = Bench("digest", "A question, a digest and compactions of a long session")
    bench.options.add_argument("--rounds", type=int, default=5)
    rounds, entries = (1, 120) if bench.smoke else (bench.asked.rounds, 1000)
    made = random.Random(1)
    with Home() as home:
        where = home.sessions / "--w--"
        where.mkdir(parents=True)
        paths: dict[str, Path] = {}
        for n in range(rounds):
            key = str(uuid.UUID(int=made.getrandbits(128)))
            paths[key] = where / f"2026-01-01T00-00-0{n % 10}-000Z_{key}.jsonl"
            paths[key].write_bytes(session(made, key, entries))
        with home.daemon(INDEXERD_DIGEST__TRIGGER_THRESHOLD="100000") as daemon:
            found = measure(bench, daemon, paths, entries)
        size = paths[key].stat().st_size / 1e6
    parsed = found.pop(PARSED)
    for name, taken in found.items():
        told = {"limit": PARSED, "floor": median(parsed), "ratio": ratio(taken, parsed)}
        target = Target(PROMISE)
        bench.add(f"{name}, {size:.1f} MB", median(taken), "ms", target=target, **told)
        longest = {"limit": "the longest parse", "floor": max(parsed)}
        bench.add(f"{name}, longest", max(taken), "ms", **longest)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
