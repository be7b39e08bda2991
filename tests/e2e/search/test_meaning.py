"""Search in other words than a session's, with the extra `semantic` (a real model, no fake)."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from indexerd.search.index import About
from indexerd.search.meaning import TEXTS_MAX, texts_of
from tests.e2e.world import SEMANTIC, Session, World, until

pytestmark = pytest.mark.skipif(not SEMANTIC.is_dir(), reason=f"{SEMANTIC} is not there")
ASKED = "how do we keep people from being logged out every night"
OTHER = "people kicked from their account each morning"


@pytest.fixture
def sessions(world: World) -> Iterator[list[Session]]:
    """A daemon with three sessions, whose vectors are made."""
    world.env["PYTHONPATH"] += f":{SEMANTIC}"
    world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "1"
    made = []
    for question, answer in (
        (ASKED, "Their sessions expired at midnight. Tokens are refreshed now."),
        ("rename the parser's module and run its tests", "Renamed the module."),
        ("draw the water level of the harbour as a chart", "Drew the chart of the harbour."),
    ):
        session = world.session()
        session.turn(question, answer)
        made.append(session)
    world.run("run", "--once")
    with world.daemon():
        until(lambda: vectors(world) == {each.id for each in made}, "their vectors")
        yield made


def vectors(world: World) -> set[str]:
    """Return the sessions in the file of vectors."""
    path = world.root / "state/indexerd/vectors.sqlite"
    if not path.exists():
        return set()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        try:
            return {str(row[0]) for row in db.execute("SELECT session FROM vectors")}
        except sqlite3.DatabaseError:  # it is damaged, or the table is being made
            return set()


def found(world: World, query: str, **where: str) -> list[str]:
    return [hit["sessionId"] for hit in world.call("search", query=query, **where)["hits"]]


def helper_of(world: World) -> int:
    """Return the id of the process that compares."""
    ours = f"{world.root}/state/indexerd/vectors.sqlite".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if ours in path.read_bytes():
                return int(path.parent.name)
        except OSError:
            continue
    return 0


def test_a_session_is_found_in_other_words(world: World, sessions: list[Session]) -> None:
    """The nearest comes first and is marked; words alone decide where a session has all."""
    answer = world.call("search", query=OTHER)
    first = answer["hits"][0]
    assert first["sessionId"] == sessions[0].id
    assert first["words"].endswith(" of 4")
    assert "found by their meaning" in answer["warnings"][0]
    assert {*found(world, "harbour chart")} == {sessions[2].id}  # it has all words
    assert "meaning" not in str(world.call("search", query="harbour chart").get("warnings"))
    assert found(world, '"kicked from" account') == []
    assert found(world, "kicked") == []  # one word says too little
    assert found(world, OTHER, cwd="/nowhere") == []
    assert world.call("status")["meaning"] == {"sessions": 3, "pending": 0}


def test_hidden_and_purged_sessions_are_not_found(world: World, sessions: list[Session]) -> None:
    world.run("hide", sessions[0].id)
    assert sessions[0].id not in found(world, OTHER)
    world.run("purge", sessions[1].id, "--yes")
    until(lambda: sessions[1].id not in vectors(world), "the end of its vectors")
    assert sessions[1].id not in found(world, "change the name of the component that reads syntax")


def test_the_process_may_end_and_its_file_may_be_damaged(
    world: World, sessions: list[Session]
) -> None:
    """A search that meets a damaged file has what words find; then the vectors are made anew."""
    assert found(world, OTHER)[0] == sessions[0].id
    os.kill(helper_of(world), signal.SIGKILL)
    assert found(world, OTHER)[0] == sessions[0].id
    helper = helper_of(world)
    (world.root / "state/indexerd/vectors.sqlite").write_bytes(b"no database" * 1000)
    os.kill(helper, signal.SIGKILL)
    assert sessions[1].id in found(world, "reader of syntax, a module")  # it has a word
    until(lambda: vectors(world) == {each.id for each in sessions}, "new vectors")


def test_it_is_off_unless_installed(world: World) -> None:
    """A daemon without the packages drops the vectors of one that had them; a command does not."""
    session, file = world.session(), world.root / "state/indexerd/vectors.sqlite"
    session.turn(ASKED, "Their sessions expired at midnight.")
    world.run("run", "--once")
    file.touch()
    world.run("search", OTHER)
    assert file.exists()
    with world.daemon():
        world.seen(session)
        world.call("search", query=OTHER)
        assert (world.call("status")["meaning"], helper_of(world)) == (None, 0)
        until(lambda: not file.exists(), "the end of its vectors")


def test_the_process_ends_with_the_daemon(world: World) -> None:
    world.env["PYTHONPATH"] += f":{SEMANTIC}"
    session = world.session()
    session.turn(ASKED, "Their sessions expired at midnight.")
    stray = world.root / "numpy/__init__.py"  # nothing is imported from where it is started
    stray.parent.mkdir()
    stray.write_text("open('imported', 'w')")
    with world.daemon():
        world.seen(session)
        until(lambda: vectors(world), "vectors")
    until(lambda: not helper_of(world), "its end")
    assert not (world.root / "imported").exists()


def test_names_descriptions_and_summaries_are_compared() -> None:
    """One sentence a vector, in this order, and not too many."""
    summary = "## Goal\n- Fix it\n\n## Outcome\n- Fixed."
    about = About("A name\nan alias", "", "It is done. All of it!", summary, "", "", named=True)
    assert texts_of(about) == [
        ("name", "A name"),
        ("description", "It is done."),
        ("description", "All of it!"),
        ("summary", "Fix it"),
        ("summary", "Fixed."),
    ]
    long = About("n", "", "It is. " * 50, "", "", "", named=True)
    assert len(texts_of(long)) == TEXTS_MAX
