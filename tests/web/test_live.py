"""Sessions that are looked at while they grow: what a page is told is what is there (issue 7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.agents import pi
from indexerd.daemon import views
from indexerd.settings import Settings
from indexerd.web import export as exports
from indexerd.web import live, live_told
from indexerd.web.live import LiveSessions
from tests.indexing.agent_bench import Opencode
from tests.sessions.tree_sessions import entry, said
from tests.web.live_world import Document, World, _go_on


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A home with a session."""
    found = World(tmp_path)
    found.write(said("a", None, "user", "Go."), said("b", "a", "assistant", "Gone."))
    yield found
    found.live.close()


def applied(page: Document, told: Document) -> Document:
    """What a page makes of an answer: the contract, in the words of its script."""
    if "base" not in told:
        return told
    assert told["base"] == page["version"]
    if told.keys() == {"version", "base"}:
        assert told["version"] == page["version"]
        return page
    old, order = page["nodes"], [node["row"] for node in page["nodes"]]
    known: dict[int, Document] = {node["row"]: node for node in old}
    over = {node["row"]: order[node["above"]] if node["above"] >= 0 else -1 for node in old}
    rows = spliced(order, told["rows"])
    places = {row: place for place, row in enumerate(rows)} | {-1: -1}
    brought = {node["row"]: node for node in told["nodes"]}
    nodes = [
        dict(brought[row]) if row in brought else known[row] | {"above": places[over[row]]}
        for row in rows
    ]
    for node in nodes:
        node.pop("active", None)
    beats, by = told["beats"], len(rows) - len(order)
    held = page["beats"]
    stay = len(held) - beats["end"]
    held = held[:stay] + [moved(beat, by) for beat in held[stay:]]
    found: Document = page | told | {"nodes": nodes, "beats": spliced(held, beats)}
    place = found["leaf"]
    while place >= 0:
        nodes[place]["active"] = True
        place = nodes[place]["above"]
    return {key: value for key, value in found.items() if key not in ("base", "rows")}


def spliced(held: list[Any], told: dict[str, Any]) -> list[Any]:
    """A list, patched."""
    assert told["keep"] + told["end"] <= len(held)
    return [*held[: told["keep"]], *told["put"], *held[len(held) - told["end"] :]]


def moved(beat: dict[str, Any], by: int) -> dict[str, Any]:
    """A beat, so many places further on."""
    found = beat | {"first": beat["first"] + by, "last": beat["last"] + by}
    labels = [place + by for place in beat.get("labels", ())]
    return found | ({"labels": labels} if labels else {})


def content(found: Document) -> Document:
    """A document without what is another for everybody who asks."""
    return {key: one for key, one in found.items() if key not in ("version", "exportedAt")}


# -- patches -------------------------------------------------------------------------------------


IDS = st.sampled_from("abcdefgh")
STEPS = st.one_of(
    st.tuples(st.just("say"), IDS, st.none() | IDS, st.sampled_from(["user", "assistant"])),
    st.tuples(st.just("fail"), IDS, IDS),
    st.tuples(st.just("label"), IDS, IDS, st.sampled_from(["", "one", "two"])),
    st.tuples(st.just("edit"), IDS),
    st.tuples(st.just("rewrite"), st.integers(0, 6)),
    st.tuples(st.just("half"), IDS),
    st.tuples(st.just("nothing")),
)


class Writer:
    """An agent, or another hand, that does as it is told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lines: list[bytes] = []
        self._rest = b""
        self._count = 0

    def do(self, step: tuple[Any, ...]) -> None:
        """Change the file in one of many ways."""
        kind, *what = step
        self._count += 1
        told = f"{kind} {self._count}"
        if kind == "rewrite":
            self._lines, self._rest = self._lines[: what[0]], b""
            self._world.write(*self._lines)
        elif kind == "edit":
            self._lines = [said(what[0], None, "user", told), *self._lines[1:]]
            self._rest = b""
            self._world.write(*self._lines)
        elif kind != "nothing":
            self._append(kind, told, *what)

    def _append(self, kind: str, told: str, one: str, *what: Any) -> None:
        made = {
            "say": lambda: said(one, what[0], what[1], told),
            "fail": lambda: said(one, what[0], "toolResult", told, isError=True, toolCallId="1"),
            "label": lambda: entry("label", f"l{self._count}", one, 0, targetId=one, label=what[1]),
            "half": lambda: said(one, None, "user", told),
        }[kind]()
        whole, cut = self._rest + made, len(self._rest)
        if kind == "half" and not self._rest:
            self._world.append(made[:20])
            self._rest = made
            return
        self._world.append(whole[20 if cut else 0 :])
        self._rest = b""
        self._lines += [whole[:cut], made] if cut else [made]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 5)), min_size=1, max_size=9))
def test_a_page_that_is_patched_shows_what_a_new_one_shows(
    steps: list[tuple[tuple[Any, ...], int]],
) -> None:
    """Whatever is appended, labelled, branched or rewritten, and however old the page's version."""
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.write()
        pages = [world.ask()]
        writer = Writer(world)
        for step, age in steps:
            writer.do(step)
            page = pages[-1 - age % len(pages)]
            pages.append(applied(page, world.ask(page["version"])))
            assert content(pages[-1]) == content(world.fresh())
        world.live.close()


def test_only_what_is_new_is_told(world: World) -> None:
    """An append is one node; what stays has its row, the version counts on."""
    first = world.ask()
    assert [(node["row"], node["id"]) for node in first["nodes"]] == [(0, "a"), (1, "b")]
    assert all("parentId" not in node for node in first["nodes"])
    world.append(said("c", "b", "user", "On."))
    told = world.ask(first["version"])
    assert [node["id"] for node in told["nodes"]] == ["c"]
    assert (told["rows"], told["leaf"]) == ({"keep": 2, "put": [2], "end": 0}, 2)
    assert [node["above"] for node in told["nodes"]] == [1]
    assert (told["beats"]["keep"], len(told["beats"]["put"])) == (2, 1)
    assert told["base"] == first["version"] != told["version"]
    assert told["version"].split(".")[0] == first["version"].split(".")[0]
    assert world.ask(told["version"]) == {"version": told["version"], "base": told["version"]}
    assert {node["id"] for node in world.ask(first["version"])["nodes"]} == {"c"}
    assert len(world.ask("0.0")["nodes"]) == len(world.ask("nonsense")["nodes"]) == 3


def test_what_is_stored_of_it_is_told_when_it_changes(world: World) -> None:
    """A new name, a label of the user's, or the daemon's coming back: a patch without nodes."""
    version = world.ask(live={"daemon": True})["version"]
    told = world.ask(version, live={"daemon": False})
    assert (told["live"], told["nodes"]) == ({"daemon": False}, [])
    named = world.stored(meta={"name": "x", "summary": "All of it."}, live={"daemon": False})
    told = world.live.document(named, told["version"], _go_on)
    assert (told["meta"]["summary"], told["nodes"]) == ("All of it.", [])
    home = world.home / ".pi/agent/sessions-meta"
    home.mkdir()
    (home / "s1.user.json").write_text(json.dumps({"labels": {"a": "start"}}))
    told = world.live.document(named, told["version"], _go_on)
    assert [(node["id"], node["label"]) for node in told["nodes"]] == [("a", "start")]


def test_an_append_reads_nothing_old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read once is kept: only the new entry is parsed, however long the session is."""
    many = [said(f"m{n}", f"m{n - 1}" if n else "b", "user", "x") for n in range(300)]
    world.append(*many)
    first = world.ask()
    parsed: list[str] = []
    read = pi.read

    def counted(line: bytes, entry_id: str) -> Any:
        parsed.append(entry_id)
        return read(line, entry_id)

    monkeypatch.setattr(pi, "read", counted)
    world.append(said("new", "m299", "assistant", "y"))
    told = world.ask(first["version"])
    assert [node["id"] for node in told["nodes"]] == ["new"]
    assert set(parsed) == {"new"}


def test_nothing_new_reads_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as no file has changed, and nothing that is stored, no story is made again."""
    first = world.ask()
    made: list[int] = []

    def counted(*given: Any) -> Any:
        made.append(1)
        return views.take(*given)

    monkeypatch.setattr(live, "take", counted)
    version = first["version"]
    assert world.ask(version) == {"version": version, "base": version}
    assert content(world.ask()) == content(first)  # somebody else looks
    assert not made
    world.append(said("c", "b", "user", "On."))
    told = world.ask(version)
    assert len(told["nodes"]) == len(made) == 1
    notes = world.home / ".pi/agent/sessions-meta"
    notes.mkdir()
    (notes / "s1.user.json").write_text(json.dumps({"labels": {"c": "here"}}))
    told = world.ask(told["version"])
    assert [node["label"] for node in told["nodes"]] == ["here"]
    world.ask(told["version"], live={"daemon": False})
    assert len(made) == 3


def test_what_comes_between_moves_what_stands_after_it(world: World) -> None:
    """A branch goes on that is not the last: of what is below it only the places are others."""
    world.append(said("c", "b", "user", "Left."), said("d", "b", "user", "Right.", at=2))
    world.append(entry("label", "l", "d", targetId="d", label="here"))
    page = world.ask()
    world.append(said("e", "c", "assistant", "Further left."), said("f", "e", "user", "On."))
    told = world.ask(page["version"])
    assert told["rows"] == {"keep": 3, "put": [5, 6], "end": 2}
    assert told["beats"]["end"] >= 0
    assert content(applied(page, told)) == content(world.fresh())
    page = applied(page, told)
    world.append(said("g", "f", "assistant", "Still."), said("h", "f", "user", "Left."))
    assert content(applied(page, world.ask(page["version"]))) == content(world.fresh())


def test_of_an_old_version_the_lists_come_whole(world: World) -> None:
    """Only so many versions' lists are kept; the nodes are patched all the same."""
    page = world.ask()
    for n in range(live_told.KEPT + 1):
        world.append(said(f"n{n}", f"n{n - 1}" if n else "b", "user", "On."))
        newest = world.ask()
    told = world.ask(page["version"])
    assert (told["rows"]["keep"], told["rows"]["end"], told["beats"]["keep"]) == (0, 0, 0)
    assert len(told["nodes"]) == live_told.KEPT + 1
    assert content(applied(page, told)) == content(newest)


def test_a_patch_is_as_long_as_what_is_new(world: World) -> None:
    """However long the session is: its lists are told by what differs."""
    many = [said(f"m{n}", f"m{n - 1}" if n else "b", "user", "x") for n in range(300)]
    world.append(*many)
    page = world.ask()
    world.append(said("new", "m299", "assistant", "y"))
    told = world.ask(page["version"])
    assert (told["rows"]["put"], len(told["beats"]["put"]), len(told["nodes"])) == ([302], 1, 1)
    assert not {"session", "meta", "digests", "live"} & told.keys()
    assert content(applied(page, told)) == content(world.fresh())


def test_a_rewritten_file_is_told_whole(world: World) -> None:
    """Its rows are no longer those that the page knows, though some look the same."""
    version = world.ask()["version"]
    world.write(said("a", None, "user", "Go!"), said("b", "a", "assistant", "Gone."))
    told = world.ask(version)
    assert "base" not in told
    assert [node["text"] for node in told["nodes"]] == ["Go!", "Gone."]
    assert told["version"].split(".")[0] != version.split(".")[0]


def test_a_line_that_is_no_json_is_read_around(world: World) -> None:
    """F4: it looked like an entry until it was read in full; then all lines are parsed."""
    version = world.ask()["version"]
    good = said("c" * 8, "b", "user", "On.")
    bad = said("d" * 8, "c" * 8, "user", "Off.").replace(b"Off.", b'Off." "')
    world.append(good, bad)
    told = world.ask(version)
    assert "base" not in told
    assert [node["text"] for node in told["nodes"]] == ["Go.", "Gone.", "On."]
    assert content(told) == content(world.fresh())
    world.append(said("e" * 8, "c" * 8, "user", "Further."))
    assert [node["text"] for node in world.ask(told["version"])["nodes"]] == ["Further."]


def test_how_much_is_told_of_each_follows_from_how_much_there_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of an export hold: when there is more, each entry says less, also an old one."""
    world.append(said("c", "b", "user", "x" * 5000))
    page = world.ask()
    assert len(page["nodes"][2]["text"]) == 5000
    monkeypatch.setattr(exports, "TOTAL_MAX", 5300)
    world.append(said("d", "c", "user", "y" * 3000))
    page = applied(page, world.ask(page["version"]))
    assert [len(node["text"]) for node in page["nodes"]] == [3, 5, 1000, 1000]
    assert content(page) == content(world.fresh())


# -- other storage -------------------------------------------------------------------------------


def test_a_database_tells_what_it_changed(tmp_path: Path) -> None:
    """There a text grows in place, and messages go: rows stay, unless one in the middle went."""
    chat = Opencode(tmp_path / "home/opencode")
    env = {"OPENCODE_DB": str(chat.rows.path)}
    row = {"sessionId": chat.id, "agent": "opencode", "sessionFile": chat.file, "cwd": "/w"}
    live = LiveSessions(Settings, env, tmp_path)

    def ask(since: str | None, of: LiveSessions = live) -> Document:
        return of.document({"session": row}, since, _go_on)

    def fresh() -> Document:
        other = LiveSessions(Settings, env, tmp_path)
        try:
            return ask(None, other)
        finally:
            other.close()

    chat.say("user", "Go.")
    answer = chat.say("assistant", "G" * 3000)
    page = ask(None)
    chat.part(answer, type="text", text="One more text.")
    told = ask(page["version"])
    assert [node["row"] for node in told["nodes"]] == [1]
    page = applied(page, told)
    chat.say("user", "On.")
    told = ask(page["version"])
    assert [node["text"] for node in told["nodes"]] == ["On."]
    page = applied(page, told)
    assert content(page) == content(fresh())
    chat.rows.run("DELETE FROM message WHERE id = ?", answer)
    told = ask(page["version"])
    assert "base" not in told
    assert [node["text"] for node in told["nodes"]] == ["Go.", "On."]
    live.close()
