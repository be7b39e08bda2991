"""`indexerd family`: a tree for people, the method's result for programs; a daemon or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from indexerd.cli.backend import App
from indexerd.cli.printing import PREFIX_MAX
from indexerd.cli.sessions import family
from tests.cli.home import HOSTILE
from tests.e2e.world import World
from tests.store.rows import fill, row, texts


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A home without a daemon; this process is at home there, too."""
    world = World(tmp_path)
    world.state.mkdir(parents=True)
    for key, value in world.env.items():
        monkeypatch.setenv(key, value)
    return world


def store(world: World, *rows: dict[str, Any]) -> None:
    """What a daemon left."""
    index = texts(world.state)
    fill(index, *rows)
    index.close()
    index.store.close()


def born(session_id: str, parent: str = "", minute: int = 0, **more: Any) -> dict[str, Any]:
    """A row of a session that came from another one."""
    usual = {"state": "idle", "userMessageCount": 7, "subagent": False}
    return row(session_id, minute, **usual | {"parentSessionId": parent or None} | more)


def ran(ref: str, *, as_json: bool = False) -> Result:
    """The command, in this process."""
    done = CliRunner().invoke(family, [ref], obj=App(None, as_json, "never"))
    assert done.exception is None, done.output
    return done


def names(done: Result) -> list[str]:
    """The last column: the tree."""
    return [line.split("\t")[-1] for line in done.stdout.splitlines()]


def test_a_family_is_drawn_as_a_tree(world: World) -> None:
    """S1.16: each below the one that it came from; without a daemon, which stderr says."""
    store(
        world,
        born("a"),
        born("b", "a", 1),
        born("c", "b", 2, subagent=True),
        born("d", "b", -9, archived=True, gone=True),
        born("e", "a", 3, archived=True),
    )
    done = ran("b")
    assert names(done) == [
        "Name of a",
        "├─ resumed: Name of b",
        "│  ├─ fork: Name of d (gone)",
        "│  └─ sub-agent: Name of c",
        "└─ resumed: Name of e (archived)",
    ]
    cells = [line.split("\t") for line in done.stdout.splitlines()]
    assert [line[4] for line in cells] == ["", "*", "", "", ""]
    assert cells[1][:2] + cells[1][3:4] == ["b", "pi", "7"]
    assert done.stderr == "indexerd: no daemon runs; answering from what is stored\n"


def test_what_is_not_shown_is_said(world: World) -> None:
    """A parent that nobody met, and members beyond the limit; deep ones keep their lines short."""
    chain = [born(f"s{n:03}", f"s{n - 1:03}", n) for n in range(510)]
    store(world, *chain)
    done = ran("s509")
    assert "not known: s-01\n" in done.stderr
    assert "10 more" in done.stderr
    drawn = names(done)
    assert len(drawn) == 500
    assert max(map(len, drawn)) == PREFIX_MAX + len("resumed: Name of s100")


def test_hostile_names_are_harmless(world: World) -> None:
    """S4.22: no escape sequence, line break or tab of theirs reaches the terminal."""
    evil = f"{HOSTILE}\n\tline"
    store(world, born("a", "\x1b[2Jlost", name=evil, agent=evil), born("b", "a", name=evil))
    done = ran("a")
    assert (done.stdout + done.stderr).replace("\n", "").replace("\t", "").isprintable()
    assert [line.count("\t") for line in done.stdout.splitlines()] == [5, 5]
