"""A pattern of the user's own, added while the daemon runs, empties the index of what fits it."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.world import World, until

pytestmark = pytest.mark.faults

WORD = "zq4417xkcd"


def test_a_reload_takes_what_is_a_secret_now_out_of_the_index(world: World) -> None:
    """X5: it is neither found nor shown, and comes back when the pattern is taken back."""
    session = world.session()
    session.turn(f"The badge is {WORD}, said the porter.")
    world.config.parent.mkdir(parents=True)

    def found(word: str) -> int:
        told = world.call("search", query=f'"{word}"')
        return -1 if told.get("warnings") else len(told["hits"])  # it is made anew just now

    with world.daemon() as process:
        until(lambda: found(WORD) > 0, "the word")
        world.config.write_text('[redact]\nextra_patterns = ["zq[0-9]+[a-z]+"]\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: found("badge") > 0 and found(WORD) == 0, "an index without it")
        row = world.call("get", ref=session.id)["session"]
        assert WORD not in row["name"] + row["firstUserMessage"]
        world.config.write_text("")
        process.send_signal(signal.SIGHUP)
        until(lambda: found(WORD) > 0, "the word again")
