"""What a command costs: whole processes beside a warm daemon, against the interpreter's start.

Each command runs as the installed program runs it, in turn with a bare `python -c pass`, so that
noise hits all alike. What agents' hooks and prompts call (`resolve`, `expand`, `complete`) may
cost two and a half starts of the interpreter, any other command five. Those that are called
seldom take fewer turns.

    python bench/bench_cli.py [--smoke] [--rounds 20]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from statistics import median

from home import Home, Small
from measure import Bench, Target, in_turns, ratio

PROGRAM = "import sys; from indexerd.__main__ import main; sys.exit(main())"  # as the script has it
BARE = "python -c pass"
SELDOM = 7  # turns of what is called seldom
PAGE = "page.html"  # an export, in the scratch home
NOTED = "/w/p0/door.py"  # what a session, begun in /w/p0, works with


def milliseconds(
    env: dict[str, str], where: Path, told: dict[str, bytes], argv: list[str]
) -> float:
    """Run the interpreter with these arguments; what it prints is kept by its last ones."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *argv],
        env=env,
        cwd=where,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    spent = (time.perf_counter() - started) * 1000
    told[" ".join(argv[2:])] = done.stdout
    return spent


def answers(bench: Bench, told: dict[str, bytes], made: list[Small], one: Small) -> None:
    """Whether the last answers say what was asked for."""
    rows = json.loads(told["list --all --json"])["sessions"]
    newest = [row.id for row in made[-50:]]
    bench.check("the newest are listed", ok=[row["sessionId"] for row in rows] == newest[::-1])
    offered = told[f"complete {one.name[:5]}"].decode().splitlines()
    right = [row.startswith(f"@@{one.id}\t") for row in offered]
    bench.check("a beginning is completed", ok=right == [True])
    for argv, words in (
        (f"expand as in @@{one.id[:8]}", (one.id, one.name, one.word)),
        (f"show {one.id}", (one.id, one.name, str(one.path))),
        (f"tree {one.id}", (one.word, one.leaf[:6] + "b", "the spring was rusty")),
        (f"ask {one.id} Which door?", (one.id, one.word)),
        ("status", (str(len(made)),)),
    ):
        held = told[argv].decode()
        bench.check(f"{argv.split()[0]} says it", ok=all(word in held for word in words))
    bench.check("no reference, no answer", ok=told["expand nothing to see here"] == b"")


def seldom_answers(bench: Bench, told: dict[str, bytes], home: Home, one: Small) -> None:
    """Whether what is called seldom did as it was told; a status that is not 0 ends the script."""
    config = home.root / ".config/indexerd/indexerd.toml"
    for argv, words in (
        ("--help", ("Usage: indexerd", "resolve", "completion")),
        ("config path", (str(config),)),
        ("config show", ("budget.daily_usd", "local/extractive", "INDEXERD_MODEL_KEYS")),
        ("doctor", (str(home.sessions), "daemon: ok")),
        ("completion bash", ("_indexerd_completion", "complete -o nosort")),
        (f"context-get {one.id}", ("files\tdoor.py",)),
    ):
        held = told[argv].decode()
        bench.check(f"{argv.split(one.id)[0]} says it", ok=all(word in held for word in words))
    page = (home.root / PAGE).read_text()
    bench.check("the page has the session", ok=all(word in page for word in (one.id, one.word)))


def questions(one: Small) -> tuple[dict[str, list[str]], ...]:
    """What is run: that of hooks and prompts, any other, and any other that is called seldom."""
    quick = {
        "resolve, by name": ["resolve", one.name],
        "resolve, by id": ["resolve", one.id],
        "expand, a reference": ["expand", f"as in @@{one.id[:8]}"],
        "expand, no reference": ["expand", "nothing to see here"],
        "complete": ["complete", one.name[:5]],
    }
    slow = {
        "--version": ["--version"],
        "status": ["status"],
        "list --json": ["list", "--all", "--json"],
        "search --json": ["search", one.word, "--json"],
        "show": ["show", one.id],
        "tree": ["tree", one.id],
        "ask, the built-in model": ["ask", one.id, "Which door?"],
    }
    seldom = {
        "--help": ["--help"],
        "config path": ["config", "path"],
        "config show": ["config", "show"],
        "doctor": ["doctor"],
        "export, a page of 4 lines": ["export", one.id, "--output", PAGE, "--force"],
        "completion bash": ["completion", "bash"],
        "context-get": ["context-get", one.id],
    }
    return quick, slow, seldom


def main() -> int:
    bench = Bench("cli", "Commands, each a process of its own")
    bench.options.add_argument("--rounds", type=int, default=20)
    rounds = 2 if bench.smoke else bench.asked.rounds
    with Home() as home:
        made = home.small(50 if bench.smoke else 1000)
        one = made[7]
        quick, slow, seldom = questions(one)
        with home.daemon() as daemon:
            daemon.settled(len(made))
            env, told = home.env(), dict[str, bytes]()
            run = partial(milliseconds, env, home.root, told)
            run(["-c", PROGRAM, "context-set", one.id, "files", NOTED])
            for some, turns in ((quick | slow, rounds), (seldom, min(rounds, SELDOM))):
                methods: dict[str, Callable[[], float]] = {BARE: partial(run, ["-c", "pass"])}
                for name, argv in some.items():
                    methods[name] = partial(run, ["-c", PROGRAM, *argv])
                report(bench, in_turns(methods, turns), quick)
        seldom_answers(bench, told, home, one)
    answers(bench, told, made, one)
    by_name, by_id = (told[f"resolve {ref}"] for ref in (one.name, one.id))
    bench.check("a name and an id are the same session", ok=by_name == by_id != b"")
    hits = json.loads(told[f"search {one.word} --json"])["hits"]
    bench.check("a word is found where it is", ok=[hit["sessionId"] for hit in hits] == [one.id])
    return bench.end()


def report(bench: Bench, found: dict[str, list[float]], quick: Container[str]) -> None:
    """Each command beside the interpreter's start, of the same turns."""
    base = found.pop(BARE)
    for name, took in found.items():
        bench.add(
            f"indexerd {name}",
            median(took),
            "ms",
            limit=BARE,
            floor=median(base),
            ratio=ratio(took, base),
            target=Target(2.5 if name in quick else 5, of="ratio"),
        )


if __name__ == "__main__":
    sys.exit(main())
