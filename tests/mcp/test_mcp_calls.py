"""Calls of the MCP server's tools: what they take, how many there may be, what they leave out."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from indexerd.errors import CallLimitError
from indexerd.mcp.contexts import fitting
from indexerd.mcp.limits import KEPT_SECONDS, PER_MINUTE, TREES_KEPT, Shelf, Window
from indexerd.mcp.lines import mended, unsound
from indexerd.mcp.texts import BYTES_MAX, size
from tests.mcp.mcp_world import (
    HOSTILE,
    ID,
    Daemon,
    call,
    desk,
    error_of,
    nodes,
    talk,
    text_of,
)


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    """A fake daemon that does not listen yet."""
    return Daemon(tmp_path / "s")


# -- arguments -----------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("set_relevant_context", {"setName": "files", "items": ["/c"], "merge": True}, "merge"),
    ("set_relevant_context", {"setName": "files", "items": ["/c"], "Mode": "merge"}, "Mode"),
    ("set_relevant_context", {"setName": "files", "items": "/c"}, "items"),
    ("search_sessions", {"query": "x", "limit": "3"}, "limit"),
    ("list_sessions", {"limit": True}, "limit"),
    ("list_sessions", {"limit": 1.5}, "limit"),
    ("list_sessions", {"limit": 51}, "limit"),
    ("list_sessions", {"all_projects": "yes"}, "all_projects"),
    ("get_tree", {"session": ID, "offset": "1"}, "offset"),
    ("query_session", {"session": ID, "question": "x", "turnid": "1"}, "turnid"),
    ("query_session", {"session": ID}, "question"),
    ("query_session", {"session": 5, "question": "x"}, "session"),
    ("session_history", {"session": ID, "full": "yes"}, "full"),
    ("session_history", {"session": ID, "before": -1}, "before"),
    ("compact_session", {"session": ID, "strategy": "claude"}, "strategy"),
    ("compact_session", {"session": ID, "keepRecentTokens": "9"}, "keepRecentTokens"),
    ("compact_session", {"session": ID, "instructions": "x" * 4001}, "instructions"),
    ("summarize_branch", {"session": ID}, "leaf"),
    ("digest_session", {"session": ID, "dry": True}, "dry"),
]


def test_what_the_schema_does_not_allow_is_refused(daemon: Daemon) -> None:
    """Unknown parameters and wrong types are usage errors that name them; nothing is asked.

    Where they are `query_session`'s they bear the older tool's code (S0.64).
    """

    async def scene(client: Client) -> None:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        for name, arguments, parameter in REFUSED:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(arguments, tools[name].input_schema)
            told = error_of(await client.call_tool(name, arguments))
            assert told["code"] == "usage"
            assert parameter in told["message"]
            assert told.get("upstream") == ("INVALID_ARGS" if name == "query_session" else None)
        assert not (await client.call_tool("list_sessions", {"limit": 10.0})).is_error

    with daemon.running():
        talk(desk(daemon), scene)
    assert [method for method, _ in daemon.asked] == ["list"]


@pytest.mark.parametrize("cwd", ["~nosuchuser/x", "a\0b"])
def test_a_directory_that_cannot_be_is_a_usage_error(daemon: Daemon, cwd: str) -> None:
    """What can be no directory is the caller's mistake, and no fault of ours."""
    with daemon.running():
        told = error_of(call(desk(daemon), "list_sessions", cwd=cwd))
    assert told["code"] == "usage"
    assert told["message"].startswith("cwd ")


def test_a_directory_means_what_the_command_line_means(daemon: Daemon, tmp_path: Path) -> None:
    """`..` goes; what a link leads to is meant where nothing is known of the link, and told."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    known = {str(real)}
    daemon.answers["list"] = lambda params: {
        "sessions": daemon.rows if params["cwd"] in known else []
    }

    async def scene(client: Client) -> None:
        async def scope(cwd: str) -> str:
            found = (await client.call_tool("list_sessions", {"cwd": cwd})).structured_content
            assert found["sessions"]
            return str(found["scope"])

        assert await scope(f"{real}/../real/") == "project"
        assert daemon.params("list")[-1]["cwd"] == str(real)
        assert await scope("real") == "project"  # from the server's own directory
        assert await scope(str(link)) == "realpath"
        known.add(str(link))
        assert await scope(str(link)) == "project"
        assert daemon.params("list")[-1]["cwd"] == str(link)

    with daemon.running():
        talk(desk(daemon, cwd=os.path.realpath(tmp_path)), scene)


# -- questions -----------------------------------------------------------------------------------


def test_a_question_that_failed_is_told(daemon: Daemon) -> None:
    """S0.60: what became of every question of a text comes back, with how its session was found."""
    questions = [
        {"question": "Why?", "status": "answered"},
        {"question": HOSTILE, "status": "failed", "code": "timeout", "message": HOSTILE},
    ]
    one = {"raw": "@@x", "status": "resolved", "sessionId": ID, "how": "fuzzy"}
    daemon.answers["expand"] = lambda params: {
        "references": [one | {"questions": questions, "notes": ["ancestors end here"]}],
        "messages": [],
        "statusText": ["resolved 1 reference(s)"],
    }
    with daemon.running():
        found = call(desk(daemon), "expand_references", text="@@x: why?", turnId="t1")
    reference = found.structured_content["references"][0]
    assert reference["how"] == "fuzzy"
    assert reference["notes"] == ["ancestors end here"]
    good, bad = reference["questions"]
    assert good == {"question": "Why?", "status": "answered"}
    assert (bad["status"], bad["code"]) == ("failed", "timeout")
    assert "<system>" not in bad["message"] + bad["question"]
    assert found.structured_content["statusText"][-1] == "failed to answer 1 question(s)"
    assert daemon.params("expand")[0]["turnId"] == "t1"


def test_a_turn_is_passed_on_and_time_is_the_daemons(daemon: Daemon) -> None:
    """S0.64: the turn goes along; how long an answer may take, the daemon says."""
    daemon.answers["hello"] = lambda params: {"settings": {"queryTimeoutSeconds": -4.95}}
    free = threading.Event()

    def slow(params: dict[str, Any]) -> Any:
        free.wait(10)
        return {}

    with daemon.running():
        where = desk(daemon)
        good = daemon.answers["query_session"]
        daemon.answers["query_session"] = slow
        late = call(where, "query_session", session=ID, question="Why?", turnId="t1")
        free.set()
        daemon.answers["hello"] = lambda params: {}  # an older daemon
        daemon.answers["query_session"] = good
        told = call(where, "query_session", session=ID, question="Why?")
    assert daemon.params("query_session")[0]["turnId"] == "t1"
    assert "turnId" not in daemon.params("query_session")[1]
    assert error_of(late)["code"] == "timeout"
    assert error_of(late)["upstream"] == "QUERY_TRANSPORT_FAILED"
    assert not told.is_error


def test_slow_questions_hold_no_other_tool_up(daemon: Daemon) -> None:
    """Two questions are under way at once; others wait, and quick tools do not wait for them."""
    free, lock = threading.Event(), threading.Lock()
    under_way = [0, 0]  # now, and at most
    good = daemon.answers["query_session"]

    def slow(params: dict[str, Any]) -> Any:
        with lock:
            under_way[0] += 1
            under_way[1] = max(under_way)
        free.wait(20)
        with lock:
            under_way[0] -= 1
        return good(params)

    daemon.answers["query_session"] = slow

    async def scene(client: Client) -> None:
        arguments = {"session": ID, "question": "Why?"}
        waiting = [
            asyncio.ensure_future(client.call_tool("query_session", arguments)) for _ in range(12)
        ]
        quick = await asyncio.wait_for(client.call_tool("list_sessions", {}), 10)
        assert not quick.is_error
        plain = {"text": f"see @@{ID}"}  # asks nothing
        assert not (
            await asyncio.wait_for(client.call_tool("expand_references", plain), 10)
        ).is_error
        assert not any(one.done() for one in waiting)
        free.set()
        assert not [one for one in await asyncio.gather(*waiting) if one.is_error]

    with daemon.running():
        talk(desk(daemon), scene)
    assert under_way == [0, 2]


def test_a_loop_of_questions_ends(daemon: Daemon) -> None:
    """So many questions in a minute, whatever turn they are of: then an error says when again."""
    now = [100.0]
    where = desk(daemon, clock=lambda: now[0])

    async def scene(client: Client) -> None:
        async def ask() -> Any:
            return await client.call_tool("query_session", {"session": ID, "question": "Why?"})

        for _ in range(PER_MINUTE):
            assert not (await ask()).is_error
        now[0] += 20
        told = error_of(await ask())
        assert (told["code"], told["upstream"]) == ("call_limit_exceeded", "CALL_LIMIT_EXCEEDED")
        assert told["retryable"]
        assert "in 40 s" in told["hint"]
        asking = {"text": f"@@{ID}: why?"}
        assert error_of(await client.call_tool("expand_references", asking))["code"] == told["code"]
        plain = {"text": f"see @@{ID}"}
        assert not (await client.call_tool("expand_references", plain)).is_error
        now[0] += 40
        assert not (await ask()).is_error

    with daemon.running():
        talk(where, scene)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 2)), max_size=80))
def test_no_minute_has_more_questions(steps: list[tuple[int, int]]) -> None:
    """In no 60 s are there more than are allowed, and what is refused is not counted."""
    now, taken = 0.0, []
    window = Window(lambda: now)
    for wait, count in steps:
        now += wait
        lately = [one for one in taken if one > now - 60]
        try:
            window.take(count)
        except CallLimitError:
            assert len(lately) + count > PER_MINUTE
        else:
            assert len(lately) + count <= PER_MINUTE
            taken += [now] * count


# -- trees and sets ------------------------------------------------------------------------------


def test_pages_of_a_tree_are_of_one_tree(daemon: Daemon) -> None:
    """It is fetched once, however many pages it has; a first page is always fetched anew."""
    daemon.answers["tree"] = lambda params: {
        "sessionId": ID,
        "leafId": "e1",
        "nodes": nodes(120, "x" * 150),
    }

    async def scene(client: Client) -> None:
        seen: list[str] = []
        offset: int | None = 0
        for _ in range(50):
            arguments = {"session": ID, "limit": 200, "offset": offset}
            found = (await client.call_tool("get_tree", arguments)).structured_content
            seen += [one["id"] for one in found["nodes"]]
            offset = found.get("nextOffset")
            if offset is None:
                break
            assert offset == len(seen)
        assert seen == [f"e{n}" for n in range(120)]
        assert len(daemon.params("tree")) == 1
        await client.call_tool("get_tree", {"session": ID, "offset": 5, "show": "all"})
        assert len(daemon.params("tree")) == 2
        await client.call_tool("get_tree", {"session": ID})
        assert len(daemon.params("tree")) == 3

    with daemon.running():
        talk(desk(daemon), scene)


def test_a_shelf_is_small_and_forgets() -> None:
    """A few trees, for some seconds after each was last looked at."""
    now = [0.0]
    shelf = Shelf(lambda: now[0])
    for name in range(TREES_KEPT + 1):
        shelf.put(name, {"nodes": []})
    assert shelf.get(0) is None
    now[0] = KEPT_SECONDS
    assert shelf.get(1) is not None
    now[0] += KEPT_SECONDS
    assert shelf.get(1) is not None
    assert shelf.get(2) is None
    shelf.put("large", {"nodes": [{}] * 100_001})
    assert shelf.get("large") is None


def test_large_sets_lose_whole_items_and_say_which(daemon: Daemon) -> None:
    """What is shown is whole, in text and data; what is not is named by its set."""
    context = {f"set{n}": [f"/{n}{m}" + "p" * 990 for m in range(9)] for n in range(5)}
    daemon.answers["get_relevant_context"] = lambda params: {"context": context}
    with daemon.running():
        found = call(desk(daemon), "get_relevant_context", session=ID)
    data, words = found.structured_content, text_of(found)
    assert size(data) <= BYTES_MAX
    assert set(data["context"]) == set(context)
    for name, items in data["context"].items():
        assert items == context[name][: len(items)]
        assert data["leftOut"][name] == 9 - len(items)
    quoted = [line[2:] for line in words.split("\n") if line.startswith("> ")]
    assert json.loads("\n".join(quoted)) == data["context"]
    assert words.split("\n")[-1].endswith(json.dumps(data["leftOut"], separators=(",", ":")))


def test_an_empty_context_is_said_in_words(daemon: Daemon) -> None:
    """No braces where there is nothing."""
    daemon.answers["get_relevant_context"] = lambda params: {"context": {}}
    with daemon.running():
        found = call(desk(daemon), "get_relevant_context", session=ID)
    assert text_of(found) == "No context stored for this session"


@given(
    st.dictionaries(st.text(max_size=20), st.lists(st.text(max_size=200), max_size=10), max_size=8),
    st.integers(800, 4000),
)
def test_fitting_holds_its_bound(context: dict[str, list[str]], room: int) -> None:
    """Whatever the sets: the first items of each, within the room, and every other is counted."""
    kept, left = fitting(context, room)
    assert size(kept) <= room
    assert kept.keys() == context.keys()
    for name, items in context.items():
        assert kept[name] == items[: len(kept[name])]
        assert left.get(name, 0) == len(items) - len(kept[name])


# -- the wire ------------------------------------------------------------------------------------

_PIECES = st.sampled_from(["\\", "u", "ud83d", "ude00", '"', "\ud83d", "\ude00"])
_TEXTS = st.lists(_PIECES | st.characters(), max_size=20).map("".join)


@given(_TEXTS)
def test_lines_are_mended_and_nothing_else_changes(text: str) -> None:
    """Lone surrogates become U+FFFD, and each other character stays what it was."""
    held = json.loads(mended(json.dumps([text])))[0]
    utf16 = text.encode("utf-16-le", "surrogatepass")
    assert held == utf16.decode("utf-16-le", "replace")
    assert json.loads(mended(json.dumps([text], ensure_ascii=False))) == [text]


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ('{"jsonrpc":"2.0","id":7,"method":"ping"}', []),
        ('{"jsonrpc":"2.0","id":7,"method":5}', [7]),
        ('{"jsonrpc":"2.0","id":"a","method":"x","params":[1]}', ["a"]),
        ('[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","id":6,"result":{}}]', [5]),
        ('{"jsonrpc":"2.0","id":true,"method":5}', []),
        ('{"jsonrpc":"2.0","id":7}', []),
        ("garbage", []),
        ("[" * 100_000, []),
        ("", []),
    ],
)
def test_requests_that_are_none_are_known_by_their_ids(line: str, ids: list[int | str]) -> None:
    """Each request gets an answer, be it an error; what asks nothing gets none."""
    assert unsound(line) == ids
