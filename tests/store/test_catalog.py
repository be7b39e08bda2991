"""io/catalog: rows and messages go in, rows and pages come out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.search.names import Names
from indexerd.store.catalog import Catalog, SearchText
from indexerd.store.write import TEXT_MAX
from indexerd.times import iso_of_ms
from tests.store.catalog_rows import BASE_MS, SHOP, fill, hits, ids, row, say, scratch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the catalog is."""
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    """An empty catalog."""
    found = Catalog.open(path)
    yield found
    found.close()


# Rows.


def test_a_row_comes_back_whole(catalog: Catalog) -> None:
    """A row is kept as it is, with fields that this module knows nothing of."""
    whole = row("a", extra={"deep": [1, None, "検索", "\ud800"]}, toolsUsed={"read": 3})
    fill(catalog, whole)
    assert catalog.get("a") == whole
    assert catalog.get("b") is None
    assert catalog.get_many(["b", "a", "a"]) == {"a": whole}
    assert catalog.by_file("/sessions/a.jsonl") == (whole,)
    assert catalog.by_file("/sessions/%.jsonl") == ()
    assert catalog.count() == 1


def test_several_sessions_may_share_a_file(catalog: Catalog) -> None:
    """An agent that keeps a database has many sessions in one file."""
    fill(catalog, row("b", sessionFile="/x.db"), row("a", sessionFile="/x.db"))
    assert [one["sessionId"] for one in catalog.by_file("/x.db")] == ["a", "b"]


def test_what_has_not_changed_is_not_written(catalog: Catalog, path: Path) -> None:
    """Putting the same again costs no write: the file's own change counter stands still."""
    text = SearchText("summary", ("Alias",))
    assert catalog.put([(row("a"), text), (row("b"), text)]) == 2
    with sqlite3.connect(path) as watcher:
        before = watcher.execute("PRAGMA data_version").fetchone()
        assert catalog.put([(row("b"), text), (row("a"), text)]) == 0
        assert watcher.execute("PRAGMA data_version").fetchone() == before
        assert catalog.put([(row("a", messageCount=3), text)]) == 1
        assert watcher.execute("PRAGMA data_version").fetchone() != before
    watcher.close()


def test_a_failed_put_changes_nothing(catalog: Catalog) -> None:
    """Rows of one call, and calls of one batch, come in together or not at all."""
    with pytest.raises(KeyError):
        fill(catalog, row("a"), {"name": "without an id"})
    assert catalog.count() == 0

    def put_then_fail() -> None:
        with catalog.batch():
            fill(catalog, row("a"))
            with pytest.raises(KeyError):
                fill(catalog, row("b"), {"name": "without an id"})
            raise TimeoutError

    with pytest.raises(TimeoutError):
        put_then_fail()
    assert catalog.count() == 0
    with catalog.batch():
        fill(catalog, row("a"))
        with pytest.raises(KeyError):
            fill(catalog, row("b"), {"name": "without an id"})
    assert ids(catalog) == ["a"]


def test_a_forgotten_session_leaves_nothing(catalog: Catalog) -> None:
    """S0.68: row, names, texts, messages and mark of a forgotten session are gone."""
    fill(catalog, row("a", tags=["zebra"]), summary="zebra")
    say(catalog, "a", "zebra")
    catalog.set_messages_mark("a", "7")
    catalog.forget("a")
    catalog.forget("unknown")
    assert catalog.count() == 0
    assert catalog.get("a") is None
    assert catalog.messages_mark("a") is None
    fill(catalog, row("a"), row("b"))
    assert hits(catalog, "zebra") == []
    assert catalog.known() != ()


def test_names_come_from_the_catalog(catalog: Catalog) -> None:
    """What `search.names` gets answers to the name, the agent's title and every alias."""
    catalog.put([(row("a", agentTitle="Agent's own"), SearchText("", ("My title",)))])
    fill(catalog, row("gone", gone=True, name="Gone one"), row("plain", nameSource="file"))
    say(catalog, "unknown", "messages without a row")
    names = Names.load(catalog.known())
    for ref in ("Name of a", "agent's own", "my title"):
        assert names.resolve(ref).session_id == "a"
    held = {one.session_id: (one.live, one.named) for one in catalog.known()}
    assert held == {"a": (True, True), "gone": (False, True), "plain": (True, False)}


# Lists.


def test_a_list_is_newest_first(catalog: Catalog) -> None:
    """S1.43, S3.12: by last change, then by id."""
    fill(catalog, row("b", 5), row("a", 5), row("old", 1), row("new", 9))
    assert ids(catalog) == ["new", "a", "b", "old"]
    fill(catalog, row("old", 10))
    assert ids(catalog, limit=2) == ["old", "new"]


def test_hidden_sessions_are_shown_when_asked_for(catalog: Catalog) -> None:
    """Archived and gone ones, and sub-agents', come in addition, each only when asked for."""
    fill(
        catalog,
        row("plain", 4),
        row("archived", 3, archived=True),
        row("gone", 2, gone=True),
        row("sub", 1, subagent=True),
        row("both", 0, subagent=True, gone=True),
    )
    assert ids(catalog) == ["plain"]
    assert ids(catalog, archived=True) == ["plain", "archived", "gone"]
    assert ids(catalog, subagents=True) == ["plain", "sub"]
    assert ids(catalog, archived=True, subagents=True)[-1] == "both"


@pytest.mark.parametrize("cwd", [SHOP, SHOP + "/"])
def test_a_directory_stands_for_what_is_below_it(catalog: Catalog, cwd: str) -> None:
    """S3.12: directories are compared word by word; a name's beginning is not enough."""
    places = [SHOP, SHOP + "/", SHOP + "/web", SHOP + "-2", "/home/user/src", SHOP + "0", ""]
    fill(catalog, *(row(str(n), cwd=place) for n, place in enumerate(places)))
    assert sorted(ids(catalog, cwd=cwd)) == ["0", "1", "2"]
    assert len(ids(catalog, cwd="/")) == 6


@pytest.mark.parametrize("odd", ["/src/100%", "/src/a_b", "/src/a'b", "/src/検索", "/src/a\\b"])
def test_signs_in_a_directory_mean_themselves(catalog: Catalog, odd: str) -> None:
    """No character of a path is a wildcard."""
    fill(
        catalog, row("it", cwd=odd + "/x"), row("other", cwd="/src/axb/x"), row("o2", cwd="/src/1")
    )
    assert ids(catalog, cwd=odd) == ["it"]
    assert hits(catalog, "name", cwd=odd) == [("it", "name")]


def test_lists_filter_by_agent_and_time(catalog: Catalog) -> None:
    """S3.12: agent and time narrow a list, and both together narrow it further."""
    fill(catalog, row("a", 1), row("b", 2), row("c", 3, agent="codex"))
    moment = iso_of_ms(BASE_MS + 2 * 60_000)
    assert ids(catalog, agent="pi") == ["b", "a"]
    assert ids(catalog, since=moment) == ["c", "b"]
    assert ids(catalog, since=moment, agent="pi") == ["b"]
    assert ids(catalog, since=moment[:10]) == ["c", "b", "a"]
    with pytest.raises(UsageError):
        catalog.list(since="yesterday")
    with pytest.raises(UsageError):
        catalog.list(limit=0)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from(["/a", "/a/b", "/c"])),
        max_size=25,
    ),
    st.integers(1, 7),
    st.sampled_from([{}, {"cwd": "/a"}, {"archived": True}, {"archived": True, "cwd": "/a"}]),
)
def test_pages_show_each_row_once(
    made: list[tuple[int, bool, str]], limit: int, filters: dict[str, Any]
) -> None:
    """S3.12: whatever is in the catalog, following the cursors shows each row exactly once."""
    with scratch() as catalog:
        rows = [row(f"s{n}", m, gone=g, cwd=c) for n, (m, g, c) in enumerate(made)]
        fill(catalog, *rows)
        seen: list[str] = []
        cursor = None
        for _ in range(len(rows) + 2):
            page = catalog.list(limit=limit, cursor=cursor, **filters)
            assert len(page.rows) <= limit
            seen += [one["sessionId"] for one in page.rows]
            cursor = page.next_cursor
            if cursor is None:
                break
        below = ("/a", "/a/b") if "cwd" in filters else ("/a", "/a/b", "/c")
        wanted = [r for r in rows if r["cwd"] in below and ("archived" in filters or not r["gone"])]
        wanted.sort(key=lambda r: r["sessionId"])
        wanted.sort(key=lambda r: r["modifiedAt"], reverse=True)
        assert seen == [r["sessionId"] for r in wanted]
        assert cursor is None


def test_a_row_that_comes_while_paging_disturbs_nothing(catalog: Catalog) -> None:
    """S3.12: the second page goes on where the first ended, whatever came before it since."""
    fill(catalog, *(row(f"s{n}", n) for n in range(6)))
    first = catalog.list(limit=3)
    fill(catalog, row("new", 99), row("s4", 98))
    rest = catalog.list(limit=9, cursor=first.next_cursor)
    assert [one["sessionId"] for one in rest.rows] == ["s2", "s1", "s0"]


def test_a_forged_cursor_is_refused(catalog: Catalog) -> None:
    """A cursor that was not given out for this very list is a UsageError, never a wrong page."""
    fill(catalog, row("a", 1), row("b", 2))
    good = catalog.list(limit=1).next_cursor
    assert good is not None
    bad = [
        "",
        "x",
        "=",
        "é",
        "\ud800",
        good[:-4],
        good[4:],
        good.swapcase(),
        good + "AAAA",
        "A" * 99,
    ]
    for cursor in bad:
        with pytest.raises(UsageError):
            catalog.list(limit=1, cursor=cursor)
    with pytest.raises(UsageError):
        catalog.list(limit=1, cursor=good, agent="pi")


# Messages.


def test_messages_and_their_mark_go_together(catalog: Catalog) -> None:
    """A mark is kept in the transaction of the messages that it stands for."""
    fill(catalog, row("a"))
    assert catalog.messages_mark("a") is None
    assert catalog.add_messages("a", [("1", "user", "", "hello world")], mark="m1") == 1

    def broken() -> Iterator[tuple[str, str, str, str]]:
        yield ("2", "user", "", "second hello")
        raise TimeoutError

    with pytest.raises(TimeoutError):
        catalog.add_messages("a", broken(), mark="m2")
    assert catalog.messages_mark("a") == "m1"
    assert hits(catalog, "second") == []
    catalog.drop_messages("a")
    assert catalog.messages_mark("a") is None
    assert hits(catalog, "world") == []


def test_words_of_dropped_messages_are_forgotten(catalog: Catalog) -> None:
    """A message that takes the place of a dropped one is not found by the words of that one."""
    fill(catalog, row("a"))
    say(catalog, "a", "walrus here", "walrus there")
    catalog.drop_messages("a")
    say(catalog, "a", "carpenter here", "carpenter there")
    assert hits(catalog, "walrus") == []
    assert hits(catalog, "carpenter there") == [("a", "message")]


def test_a_message_told_twice_is_kept_once(catalog: Catalog) -> None:
    """A caller that begins again after a crash does no harm."""
    fill(catalog, row("a"))
    items = [("1", "user", "", "hello"), ("2", "assistant", "", "hello"), ("3", "user", "", " ")]
    assert catalog.add_messages("a", items + items) == 2
    assert catalog.add_messages("a", items) == 0
    assert catalog.add_messages("a", [("1", "user", "", "hello, edited")]) == 1


def test_messages_may_come_before_their_row(catalog: Catalog) -> None:
    """A session without a row is not shown; with it, its messages are found."""
    say(catalog, "a", "early bird")
    assert hits(catalog, "early") == []
    assert ids(catalog) == []
    assert catalog.count() == 0
    fill(catalog, row("a"))
    assert hits(catalog, "early bird") == [("a", "message")]


def test_only_the_beginning_of_a_huge_message_is_indexed(catalog: Catalog) -> None:
    """One message cannot fill the catalog: what is beyond 64 KiB is not found."""
    fill(catalog, row("a"), row("b"))
    say(catalog, "a", "first " + "x " * (TEXT_MAX // 2) + "behind")
    say(catalog, "b", "erste " + "検" * (TEXT_MAX // 2) + " hinten")
    assert hits(catalog, "first") == [("a", "message")]
    assert hits(catalog, "behind") == []
    assert hits(catalog, "erste") == [("b", "message")]
    assert hits(catalog, "hinten") == []


def test_a_copied_message_is_shown_once_in_the_oldest_session(catalog: Catalog) -> None:
    """A fork repeats its parent's messages: a hit is the parent's, once."""
    items = [("e1", "user", "", "the walrus argument"), ("e2", "user", "", "more talk")]
    fill(catalog, row("fork", 9), row("parent", 1), row("fork-2", 5))
    for session_id in ("fork", "fork-2", "parent"):
        catalog.add_messages(session_id, items)
    catalog.add_messages("fork", [("e3", "user", "", "the walrus again, only here")])
    found = catalog.search("walrus").hits
    assert sorted((hit["sessionId"], hit["entryId"]) for hit in found) == [
        ("fork", "e3"),
        ("parent", "e1"),
    ]
    assert {hit["entryId"] for hit in catalog.search("re:walrus arg").hits} == {"e1"}
    assert [hit["sessionId"] for hit in catalog.search("re:walrus arg").hits] == ["parent"]
    catalog.forget("parent")
    assert ("fork-2", "message") in hits(catalog, "walrus argument")


def test_a_name_that_is_a_copied_message_is_shown_once(catalog: Catalog) -> None:
    """A fork that nobody named goes by its parent's first message: no hit of its own."""
    first = [("e1", "user", "", "The walrus argument, of which there is more to say")]
    unnamed = {"name": "The walrus argument, of which…", "nameSource": "first-message"}
    fill(catalog, row("parent", 1, cwd="/a", **unnamed), row("fork", 9, cwd="/b", **unnamed))
    fill(catalog, row("named", 9, cwd="/b", name="My walrus"), row("own", 5, **unnamed))
    for session_id in ("fork", "named", "parent"):
        catalog.add_messages(session_id, first)
    catalog.add_messages("own", [("e9", "user", "", first[0][3])])
    expected = {("parent", "name"), ("parent", "message"), ("own", "name"), ("own", "message")}
    for query in ("walrus", "re:[Ww]alrus"):
        assert set(hits(catalog, query)) == expected | {("named", "name")}
    assert set(hits(catalog, "wallrus argumment")) == {("parent", "name"), ("own", "name")}
    assert ("fork", "name") in hits(catalog, "walrus", cwd="/b")
    catalog.forget("parent")
    assert ("fork", "name") in hits(catalog, "walrus")


def test_the_same_words_in_other_entries_are_other_messages(catalog: Catalog) -> None:
    """Two people who say the same thing are two hits."""
    fill(catalog, row("a"), row("b"))
    say(catalog, "a", "yes please")
    say(catalog, "b", "yes please")
    assert sorted(hits(catalog, "yes please")) == [("a", "message"), ("b", "message")]
