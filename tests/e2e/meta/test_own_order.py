"""A user's own order: pinned and hidden sessions, and tags."""

from itertools import chain
from typing import Any

import pytest

from indexerd.errors import AmbiguousError, NotFoundError, UsageError
from tests.e2e.references.expanding import add
from tests.e2e.world import World, listed, pages, until, wait

NAMES = ("Orchid greenhouse watering", "Foghorn beacon repair", "Harbour crane inspection")


def test_pins_tags_and_hidden_sessions_survive_everything(world: World) -> None:
    """S4.1: `update` and the commands change the sidecar alone; indexing and caches do not."""
    orchid, beacon, crane = (add(world, name, turns=5) for name in NAMES)
    with world.daemon():
        until(lambda: len(listed(world)) == 3, "the sessions")
        until(lambda: world.call("search", query="orchid")["hits"], "the index")
        newest = listed(world)
        last = newest[-1]
        world.run("pin", last)
        assert listed(world) == [*chain.from_iterable(pages(world, limit=1))]
        assert listed(world) == [last, *newest[:-1]]
        assert world.run("list", "--all", cwd=world.root).splitlines()[0].startswith(last)
        world.run("pin", last, "--off")
        assert listed(world) == newest
        world.run("pin", last)

        assert world.run("tag", orchid, "Night shift", "VALVES") == "Night shift, VALVES\n"
        assert world.run("tag", orchid, "valves", "extra", "--remove", "EXTRA") != ""
        assert world.row(orchid)["tags"] == ["Night shift", "VALVES"]  # one is the model's, too
        assert listed(world, tag="night SHIFT") == [orchid]
        assert listed(world, tag="night") == []
        found = until(lambda: world.call("search", query='"night shift"')["hits"], "the tag")
        assert [(hit["sessionId"], hit["field"]) for hit in found] == [(orchid, "tags")]

        world.run("hide", beacon)
        assert beacon not in listed(world)
        assert beacon in listed(world, hidden=True)
        assert world.call("search", query="foghorn beacon")["hits"] == []
        assert world.call("search", query="re:beacon")["hits"] == []
        assert world.call("complete", prefix="fogh")["items"] == []
        assert world.call("resolve", ref=NAMES[1].upper())["how"] == "name"
        for near in ("beacon repair", "Foghron beacon repair"):
            with pytest.raises((NotFoundError, AmbiguousError)) as failure:
                world.call("resolve", ref=near)
            assert beacon not in str(vars(failure.value))

        for session_id in (orchid, crane):
            world.run("index", session_id, "--force", "--wait")
        tags = world.call("counts")["tags"]  # the user's own first
        assert [*tags.items()][:3] == [("night shift", 1), ("valves", 1), ("adjust", 2)]
    before = {row["sessionId"]: row for row in marked(world)}
    for file in world.state.glob("store.sqlite*"):
        file.unlink()
    with world.daemon():
        until(lambda: len(listed(world, hidden=True)) == 3, "the sessions")
        rows = {row["sessionId"]: row for row in marked(world)}
        assert rows == before
        assert rows[last]["pinned"] is rows[beacon]["hidden"] is True
        assert rows[orchid]["tags"][:2] == ["Night shift", "VALVES"]
        assert "pinned" not in rows[next(key for key in (orchid, crane) if key != last)]
        world.run("hide", beacon, "--off")
        assert until(lambda: world.call("search", query="foghorn")["hits"], "its words")
        world.call("update", ref=last, pinned=None)
        assert listed(world) == newest


def marked(world: World) -> list[dict[str, Any]]:
    keys = ("sessionId", "pinned", "hidden", "tags")
    rows = world.run("list", "--all", "--hidden", "--json")["sessions"]
    return [{key: row[key] for key in keys if key in row} for row in rows]


def test_a_fork_keeps_its_own_order(world: World) -> None:
    """S4.1, S4.28: neither pin, tags, hiding nor sets are inherited; changes need the session."""
    session = world.session(1)
    fork = session.fork()
    fork.turn("Go on elsewhere.")
    with world.daemon():
        until(lambda: len(listed(world)) == 2, "the sessions")
        own_order = {"pinned": True, "hidden": True, "tags": ["one", "", "One"]}
        world.call("update", ref=session.id, context={"files": ["/w/a"]}, **own_order)
        world.call("update", ref=fork.id, tags=["two"])
        own, other = world.row(session.id), world.row(fork.id)
        assert (own["tags"], own["pinned"], own["hidden"]) == (["one"], True, True)
        assert (own["ownTags"], other["ownTags"]) == (["one"], ["two"])
        assert world.call("counts", hidden=True)["tags"] == {"one": 1, "two": 1}
        assert " #two" in world.run("list", "--all")
        assert (other["tags"], other.get("pinned"), other.get("hidden")) == (["two"], None, None)
        assert other["parentSessionId"] == session.id
        found = world.call("get", ref=fork.id)
        assert (found["tags"], found.get("context") or {}) == (["two"], {})
        for wrong in ({"tags": ["x"] * 13}, {"pinned": 1}, {"tags": "x"}):
            with pytest.raises(UsageError):
                world.call("update", ref=fork.id, **wrong)
        world.run("tag", fork.id, *map(str, range(13)), code=2)
        assert "tags: at most 12 are allowed\n" in world.stderr
        world.run("pin", "no such session", code=3)


def test_a_sidecar_made_invalid_changes_nothing(world: World) -> None:
    """A hidden session stays hidden while its sidecar, edited by hand, has an invalid field."""
    session = world.session(turns=1)
    with world.daemon():
        wait(world, session.id)
        world.call("update", ref=session.id, title="Mine", hidden=True)
        path = world.metas / f"{session.id}.user.json"
        sidecar = path.read_text()
        path.write_text(sidecar.replace('"Mine"', "[7]"))
    session.turn()
    with world.daemon():
        row = wait(world, session.id, userMessageCount=2)
        assert (row["name"], row["hidden"]) == ("Mine", True)
        path.write_text(sidecar.replace("Mine", "Yours"))
        wait(world, session.id, name="Yours")
