"""`indexerd family`: a tree for people, from what is stored."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.world import World
from tests.store.rows import fill, row, texts

USUAL = {"state": "idle", "userMessageCount": 7, "subagent": False, "parentSessionId": None}


def stored(tmp_path: Path, **sessions: dict[str, object]) -> World:
    world = World(tmp_path)
    world.state.mkdir(parents=True)
    index = texts(world.state)
    rows = enumerate(sessions.items())
    fill(index, *(row(name, minute, **USUAL | more) for minute, (name, more) in rows))
    index.close()
    index.store.close()
    return world


def test_a_family_is_drawn_as_a_tree(tmp_path: Path) -> None:
    """S1.16: each below the one that it came from; without a daemon, which stderr says."""
    world = stored(
        tmp_path,
        a={},
        d={"parentSessionId": "b", "archived": True, "gone": True},
        b={"parentSessionId": "a"},
        c={"parentSessionId": "b", "subagent": True, "name": "\x1b[2JName\tof c"},
        e={"parentSessionId": "a", "archived": True},
    )
    lines = [line.split("\t") for line in world.run("family", "b").splitlines()]
    assert [(one[0], one[1], one[3], one[4]) for one in lines[:3]] == [
        ("a", "pi", "7", ""),
        ("b", "pi", "7", "*"),
        ("d", "pi", "7", ""),
    ]
    assert [one[5] for one in lines] == [
        "Name of a",
        "  resumed: Name of b",
        "    fork: Name of d (gone)",
        "    sub-agent: Name of c",
        "  resumed: Name of e (archived)",
    ]
    assert world.stderr == "indexerd: no daemon runs; answering from what is stored\n"


def test_what_is_not_shown_is_said(tmp_path: Path) -> None:
    chain = {f"s{n:03}": {"parentSessionId": f"s{n - 1:03}"} for n in range(510)}
    world = stored(tmp_path, **chain)
    assert world.run("family", "s509").count("\n") == 500
    assert "came from is not known\n" in world.stderr
    assert "10 more" in world.stderr
