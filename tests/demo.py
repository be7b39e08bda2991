"""`make demo` shows the daemon's main job from end to end in a temporary home, then removes it."""

import json
import shlex
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.world import Session, World, until

CACHE = """
Design a cache for the forecast results in src/forecast.py.|A dictionary by city and day.
How long does an entry live?|Fifteen minutes: the grid is refreshed every quarter of an hour.
What about eviction?|We decided to evict the least recently used entry, and to keep at most 512.
Should it survive a restart?|Yes: we will use one SQLite table behind it, in write-ahead mode.
How do we test expiry without sleeping?|With an injected clock that the test moves past the limit.
"""
SHORT = "What does this repository do?|It serves weather forecasts."
LIVE = """
Let us move the confirm button into its own component.|Moved to src/ui/ConfirmButton.tsx.
Make the destructive variant red.|Done: it takes a tone, and danger is red.
Keyboard: Enter must not confirm a deletion.|Agreed; only a click or Space does now.
Add tests for that.|Three tests, in src/ui/ConfirmButton.test.tsx.
Rename the prop to intent.|Renamed in the component, its users and its tests.
"""


def write_session(world: World, cwd: str, talk: str) -> str:
    """Write a session as pi does, from lines of `question|answer`, and return its id."""
    session = Session(world.pi / f"sessions/-{cwd.replace('/', '-')}--", cwd)
    for line in talk.strip().splitlines():
        session.turn(*line.split("|"))
    return session.id


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show(world: World) -> None:
    """Run the commands that people use against a running daemon."""

    def run(*argv: str) -> None:
        say(f"$ indexerd {shlex.join(argv)}\n{world.run(*argv)}{world.stderr}")

    until(lambda: list(world.metas.glob("*.meta.json")), "the first index run")
    say("\n# One of the three sessions is long enough to be named (5 messages from you).")
    run("list", "--all")
    say("\n# A session appears while the daemon watches.")
    session_id = write_session(world, "/work/shop", LIVE)
    meta = world.wait_meta(session_id)
    say(f"{world.meta_path(session_id)}:")
    say(
        json.dumps({key: meta[key] for key in ("name", "description", "tags", "summary")}, indent=2)
    )
    name = "confirm-button"
    say("\n# Find it by a part of its name, or by its words.")
    run("resolve", name)
    run("search", '"quarter of an hour"')
    say("\n# In a prompt, @@ adds its summary as data, or an answer from it.")
    run("expand", f"Do the same for the invoices as in @@{name}.", "--cwd", "/work/shop")
    run("ask", name, "Which key confirms a deletion?")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="indexerd-demo-") as folder:
        world = World(Path(folder))
        for cwd, talk in (("/work/weather", CACHE), ("/work", SHORT), ("/work/shop", SHORT)):
            write_session(world, cwd, talk)
        say(f"A home directory with three pi sessions: {world.root / 'home'}")
        with world.daemon():
            show(world)
        say("\n# The daemon has ended; everything is removed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
