"""Many processes that merge into one session's sets at once lose nothing (S4.10).

In a set is room for ten items, and in all sets for fifty, so a thousand merges cannot be looked
at together when all is over. Each client looks at its own sets after every twenty merges, finds
each item in its place, and clears them; what another one's write had undone would be missing
there, and what it had brought back would be there once more. One set belongs to both clients.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.world import World, until

MERGES = 500  # of each client
SHARED = 5  # items of each client in the set of both

CLIENT = """
import sys
from indexerd.client import Client

socket, session, who, merges, shared = sys.argv[1:]
each = int(merges) // int(shared)
with Client(socket, timeout=30) as daemon:
    def put(name, items, mode="merge"):
        asked = {"session": session, "setName": name, "items": items, "mode": mode}
        return daemon.call("set_relevant_context", asked)

    for number in range(int(merges)):
        answer = put(f"{who}{number % 2}", [f"{who} {number}"])
        assert answer["contextChanged"], (number, answer)
        if number % each == 0:
            put("both", [f"{who} {number // each}"])
        if number % 20 == 19:
            context = daemon.call("get_relevant_context", {"session": session})["context"]
            for half in (0, 1):
                expected = [f"{who} {one}" for one in range(number - 19, number + 1)][half::2]
                assert context[f"{who}{half}"] == expected, (who, number, context)
                put(f"{who}{half}", [], "replace")
"""


def known(world: World) -> str:
    """A session that the daemon knows."""
    session = world.session(turns=1)
    until(lambda: world.row(session.id), "the session")
    return session.id


def context(world: World, session: str) -> Any:
    """All sets of a session."""
    return world.call("get_relevant_context", session=session)["context"]


def ended(*started: subprocess.Popen[str]) -> list[str]:
    """Wait for processes, each of which must end well: what they said."""
    said = []
    for one in started:
        out, error = one.communicate(timeout=50)
        assert one.returncode == 0, error
        said.append(out)
    return said


def start(world: World, *argv: str) -> subprocess.Popen[str]:
    """An interpreter of ours with these arguments."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *argv], env=world.env, stdout=pipe, stderr=pipe, text=True
    )


@pytest.mark.faults
def test_a_thousand_merges_of_two_clients_lose_nothing(world: World) -> None:
    """S4.10: every merge of two processes is there, and nothing of one is undone by the other."""
    with world.daemon():
        session = known(world)
        told = ("-c", CLIENT, str(world.socket), session)
        ended(*(start(world, *told, who, str(MERGES), str(SHARED)) for who in "xy"))
        found = context(world, session)
    assert found.keys() == {"both"}
    for who in "xy":
        mine = [one for one in found["both"] if one.startswith(who)]
        assert mine == [f"{who} {number}" for number in range(SHARED)]
    rows = [one for one in world.telemetry() if one["customType"] == "relevant-context:set"]
    assert len(rows) == 2 * (MERGES + MERGES // 20 * 2 + SHARED)  # merges, clears, and `both`
    written = [one["setName"][0] for one in rows if one["setName"] != "both"]
    turns = sum(one != other for one, other in pairwise(written))
    assert turns > 10, "they were at it at the same time"


def test_commands_that_merge_at_once_lose_nothing(world: World) -> None:
    """S4.10: processes of `context-set`, in one set; whatever the order, each item is there."""
    with world.daemon():
        session = known(world)
        command = ("-m", "indexerd", "context-set", session, "--merge", "files")
        pairs = [(f"/w/{number}", f"/w/{number}.md") for number in range(4)]
        said = ended(*(start(world, *command, *pair) for pair in pairs))
        found = context(world, session)["files"]
    assert sorted(said) == [f"Merged files: {count} items\n" for count in (2, 4, 6, 8)]
    assert sorted(found) == sorted(path for pair in pairs for path in pair)
    for first, second in pairs:
        assert found.index(second) == found.index(first) + 1, "one merge is one write"
