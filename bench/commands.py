"""Measure commands as whole processes with a warm daemon, in turns with `python -c pass`."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

from corpus import Draw, talks
from home import PROGRAM, Daemon, Home, check
from measure import Bench, Beside, in_turns, wall

HOOKS, PEOPLE = "≤ 2.5 x", "≤ 10 x"  # the latter is 120 ms if Python takes 12


def run(bench: Bench) -> None:
    bench.heading("Commands, as processes")
    with Home() as home:
        count = bench.size(1000, 50)
        made = talks(home.root, count, 2 * count, Draw(1, 1 << 18))
        one, ref = made[7], f"as in @@{made[7].id[:8]}"
        commands = {  # arguments, a word of the output, target
            "hook": (["hook", "claude"], one.name, HOOKS),
            "expand": (["expand", ref], one.name, HOOKS),
            "resolve": (["resolve", one.id], one.name, HOOKS),
            "complete": (["complete", one.name[:8]], one.id, HOOKS),
            "list": (["list", "--all"], made[-1].id[:12], PEOPLE),
            "show": (["show", one.id], one.name, PEOPLE),
            "search": (["search", one.word], one.id, PEOPLE),
            "status": (["status"], f"{count:,}", PEOPLE),
        }
        event = {"hook_event_name": "UserPromptSubmit", "prompt": ref, "session_id": "s"}
        given = json.dumps(event | {"cwd": one.cwd}).encode()

        def milliseconds(argv: list[str], word: str) -> float:
            options = {"env": home.env(), "cwd": home.root, "capture_output": True, "input": given}
            out: list[bytes] = []
            took = wall(lambda: out.append(subprocess.run(argv, check=True, **options).stdout))
            check(f"{argv} prints {word}: {out[0][-300:]!r}", ok=word.encode() in out[0])
            return 1000 * took

        with Daemon(home) as daemon:
            daemon.listed(count)
            daemon.caught_up(made[::10])
            ways = {"python": partial(milliseconds, [sys.executable, "-c", "pass"], "")}
            for name, (argv, word, _) in commands.items():
                ways[name] = partial(milliseconds, [PROGRAM, *argv], word)
            found = in_turns(ways, bench.size(25, 1), warm=bench.size(2, 0))
    limit = Beside("python", found["python"])
    for name, (_, _, target) in commands.items():
        bench.amount(f"indexerd {name}", found[name], "ms", limit, target)
