"""Relevant-context sets: limits, texts, records, events, restarts, forks."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import ContextTooLargeError, NotFoundError, UsageError
from tests.e2e.world import World, wait

KNOWN = ("files", "applet", "endpoints", "ports")
TEN = [f"/w/{number}" for number in range(10)]
FULL = {f"s{number}": TEN for number in range(5)}
SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"


def known(world: World, **options: Any) -> str:
    session = world.session(turns=1, **options)
    world.seen(session)
    return session.id


@pytest.fixture
def session(running: World) -> str:
    return known(running, cwd=str(running.root))


def put(world: World, session: str, name: str, items: list[str], **more: Any) -> dict[str, Any]:
    asked = {"session": session, "setName": name, "items": items}
    answer: dict[str, Any] = world.call("set_relevant_context", **asked, **more)
    return answer


def held(world: World, session: str, **named: str) -> Any:
    return world.call("get_relevant_context", session=session, **named)["context"]


def sidecar(world: World, session: str) -> bytes:
    path = world.metas / f"{session}.user.json"
    return path.read_bytes() if path.exists() else b""


def records(world: World, session: str) -> list[dict[str, Any]]:
    rows = [one for one in world.telemetry() if one["sessionId"] == session]
    return [one for one in rows if one["customType"] == "relevant-context:set"]


def block(world: World, session: str, resume: str) -> str:
    text = world.call("resume_context", session=session, resumeId=resume)["text"]
    return str(text.split("\n", 4)[4].removesuffix("---\n\n").strip())


def test_any_set_is_taken_and_an_unknown_one_is_warned_of(running: World, session: str) -> None:
    """Files, applet, endpoints and ports are known; another set is stored with a warning (S4.2)."""
    for name in KNOWN:
        assert put(running, session, name, ["1"])["warnings"] == []
    (warning,) = put(running, session, "fles", ["/w/a"])["warnings"]
    assert warning == "unknown set 'fles'; the known ones are files, applet, endpoints, ports"
    assert held(running, session) == {name: ["1"] for name in KNOWN} | {"fles": ["/w/a"]}


def test_a_set_is_replaced_or_merged_and_nothing_else(running: World, session: str) -> None:
    """Replacing is the default, merging is an ordered union, other modes are errors (S4.3)."""
    put(running, session, "files", ["/w/old"])
    put(running, session, "files", ["/w/b", "/w/a"])
    put(running, session, "files", ["/w/c", "/w/a", "/w/c"], mode="merge")
    assert held(running, session) == {"files": ["/w/b", "/w/a", "/w/c"]}
    for mode in ("append", "", 1):
        with pytest.raises(UsageError, match="replace or merge"):
            put(running, session, "files", ["/w/d"], mode=mode)
    put(running, session, "files", ["/w/d"], mode="replace")
    assert held(running, session) == {"files": ["/w/d"]}


def test_an_eleventh_item_is_refused_or_named(running: World, session: str) -> None:
    """Eleven items in a call are an error; a merge names what found no room in ten (S4.4)."""
    for mode in ("replace", "merge"):
        with pytest.raises(UsageError, match="at most 10"):
            put(running, session, "files", [*TEN, "x"], mode=mode)
    assert held(running, session) == {}
    put(running, session, "files", TEN[:8])
    found = put(running, session, "files", [*TEN[:2], "x", "y", "z", "q"], mode="merge")
    assert found["text"] == "Merged files: 10 items"
    assert found["warnings"] == ["not stored, because a set has at most 10 items: z, q"]
    assert held(running, session) == {"files": [*TEN[:8], "x", "y"]}


def test_fifty_items_are_all_a_session_has(running: World, session: str) -> None:
    """More is refused in the original's words, by either method, and nothing is saved (S4.5)."""
    for name, items in FULL.items():
        put(running, session, name, items)
    before = sidecar(running, session)
    with pytest.raises(ContextTooLargeError) as caught:
        put(running, session, "files", ["/w/a"])
    assert str(caught.value) == "Context too large (51 items, max 50). Remove some items first."
    with pytest.raises(ContextTooLargeError, match="60 items"):
        running.call("update", ref=session, context=FULL | {"more": TEN})
    assert (sidecar(running, session), held(running, session)) == (before, FULL)
    assert len(records(running, session)) == len(FULL)


def test_what_was_set_is_said_and_on_record(running: World, session: str) -> None:
    """The original's texts; a row of telemetry where anything changed (S4.6, S4.7)."""
    said = [
        put(running, session, "files", ["/w/a", "/w/b"]),
        put(running, session, "files", ["/w/c"], mode="merge"),
        put(running, session, "files", ["/w/c"], mode="merge"),
        put(running, session, "files", [], mode="merge"),
        put(running, session, "files", []),
    ]
    assert [(one["text"], one["contextChanged"], one["setName"]) for one in said] == [
        ("Set files: 2 items", True, "files"),
        ("Merged files: 3 items", True, "files"),
        ("Merged files: 3 items", False, "files"),
        ("Nothing to merge into files: 3 items", False, "files"),
        ("Cleared files", True, "files"),
    ]
    rows = records(running, session)
    assert [(one["contextChanged"], one["setName"]) for one in rows] == [(True, "files")] * 3
    assert "/w/" not in json.dumps(rows)


def test_one_set_or_all_or_none_are_told(running: World, session: str) -> None:
    """All sets as JSON, one of them, an empty list for one that is not there, or none (S4.8)."""
    nothing = running.call("get_relevant_context", session=session)
    assert (nothing["text"], nothing["context"]) == ("No context stored for this session", {})
    put(running, session, "files", ["/w/é"])
    put(running, session, "ports", ["80"])
    found = running.call("get_relevant_context", session=session)
    assert found["text"] == '{\n  "files": [\n    "/w/é"\n  ],\n  "ports": [\n    "80"\n  ]\n}'
    assert json.loads(found["text"]) == found["context"] == held(running, session)
    assert held(running, session, setName="ports") == {"ports": ["80"]}
    assert held(running, session, setName="applet") == {"applet": []}


def test_a_resume_counts_files_that_are_gone(running: World, session: str) -> None:
    """Even where all of them are (S4.16)."""
    (running.root / "here.py").touch()
    put(running, session, "files", ["/nowhere/a", "here.py", "/nowhere/b"])
    told = "Relevant files:\n- here.py\n(2 file(s) no longer exist)"
    assert block(running, session, "some") == told
    put(running, session, "files", ["/nowhere/a", "/nowhere/b", "/nowhere/c"])
    assert block(running, session, "none") == "Relevant files:\n(3 file(s) no longer exist)"


def test_a_footer_has_five_files_and_the_applet(running: World, session: str) -> None:
    """Five by basename, how many more, the applet; or nothing (S4.22, S4.23)."""
    empty = {"sessionId": session, "files": [], "more": 0, "text": ""}
    assert (running.call("footer", ref=session), running.run("footer", session)) == (empty, "")
    paths = ["/w/a.py", "C:\\w\\b.py", "/w/c d.md", "/w/e.py", "/w/f.py", "/w/g.py", "/w/h.py"]
    put(running, session, "files", paths)
    put(running, session, "applet", ["git-diff", "path=/w"])
    found = running.call("footer", ref=session)
    names = ["a.py", "b.py", "c d.md", "e.py", "f.py"]
    assert [one["basename"] for one in found["files"]] == names
    assert [one["path"] for one in found["files"]] == paths[:5]
    assert (found["more"], found["applet"]) == (2, {"slug": "git-diff", "params": ["path=/w"]})
    line = " · ".join([*names, "+2 more", "[git-diff]"])
    assert (found["text"], running.run("footer", session)) == (line, f"{line}\n")


def test_indexing_restarts_and_compaction_leave_sets_alone(world: World) -> None:
    """S4.1, S4.18, S4.28: the same sets afterwards, and one block for each resume."""
    sets = {"files": ["a.py", "/nowhere/b.md"], "endpoints": ["http://localhost:1/x"]}
    with world.daemon():
        session = world.session(turns=1, cwd=str(world.root))
        wait(world, session.id, messageCount=2)
        world.call("update", ref=session.id, context=sets, title="Ticket 5")
        world.call("index", ref=session.id, force=True, wait=True)
        text = world.call("resume_context", session=session.id, resumeId="r1")["text"]
    session.entry("compaction", summary="All of it.", firstKeptEntryId=session.last)
    with world.daemon():
        wait(world, session.id, state="compacted")
        again = {"session": "Ticket 5", "resumeId": "r2"}
        assert world.call("resume_context", **again)["text"] == text
        assert world.call("resume_context", **again)["text"] is None
        assert held(world, session.id) == world.call("get", ref=session.id)["context"] == sets


def test_a_fork_of_pi_starts_with_its_parents_sets(world: World) -> None:
    """S4.28: and goes its own way once it has its own."""
    begun = {"files": ["/w/a"]}
    with world.daemon():
        session = world.session(turns=1)
        wait(world, session.id)
        put(world, session.id, "files", ["/w/a"])
        fork = session.fork()
        fork.talk(1)
        wait(world, fork.id, parentSessionId=session.id)
        assert held(world, fork.id) == begun
        assert held(world, fork.id) == world.call("get", ref=fork.id)["context"] == begun
        assert world.call("footer", ref=fork.id)["text"] == "a"
        put(world, fork.id, "files", ["/w/b"], mode="merge")
        put(world, session.id, "files", ["/w/c"])
        assert held(world, fork.id) == {"files": ["/w/a", "/w/b"]}
        assert held(world, session.id) == {"files": ["/w/c"]}


def test_a_new_session_may_be_named_before_it_is_known(world: World) -> None:
    """S4.21: a tool's call of the first turn; a session that does not come is an error."""
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "30"
    with world.daemon():
        world.call("list")  # after the first scan
        session = world.session(turns=1)
        assert put(world, session.id, "files", ["/w/a"])["text"] == "Set files: 1 items"
        with pytest.raises(NotFoundError):
            put(world, "ffffffff-0000-4000-8000-000000000000", "files", ["/w/a"])
        left = [one.name for one in world.metas.glob("*.user.json")]
        assert left == [f"{session.id}.user.json"]


def test_subscribers_hear_of_changes_and_resumes(running: World, session: str) -> None:
    """S4.12, S4.13, S4.14: full context, the name, the reason; a refused write is no event."""
    ear = Client(running.socket, timeout=20)
    older = Client(running.socket, timeout=20)
    with ear, older:
        events = ear.events(["context.changed", "context.resume"], timeout=20)
        alias = older.events(["caco.context"], timeout=20)
        put(running, session, "files", ["/w/a"])
        with pytest.raises(UsageError):
            put(running, session, "files", list(map(str, range(11))))
        for _ in range(2):
            running.call("resume_context", session=session, resumeId="r")
        running.call("update", ref=session, setContext={"setName": "files", "items": []})
        heard = [next(events) for _ in range(3)]
        put(running, session, "ports", ["80"])
        running.call("history", ref=session)
        told = [next(alias) for _ in range(5)]
    files = {"files": ["/w/a"]}
    assert [(one["event"], one["reason"], one["context"]) for one in heard] == [
        ("context.changed", "changed", files),
        ("context.resume", "resume", files),
        ("context.changed", "changed", {}),
    ]
    assert {one["sessionId"] for one in heard} == {session}
    assert heard[0]["setName"] == "files"
    assert told[:3] == heard
    assert [one["reason"] for one in told[3:]] == ["changed", "load"]


def test_who_opens_a_history_hears_of_its_sets(running: World) -> None:
    """S4.13: after the reply, never before; not of a session without sets, nor of a mistake."""
    bare, noted = known(running), known(running)
    put(running, noted, "files", ["/w/a"])
    asked: list[tuple[str, dict[str, Any]]] = [
        ("subscribe", {"events": ["context.load"]}),
        ("history", {"ref": bare}),
        ("history", {"ref": "nobody-of-this-name"}),
        ("history", {"ref": noted, "leaf": "no-such-entry"}),
        ("history", {"ref": noted}),
    ]
    with closing(socket.socket(socket.AF_UNIX)) as line:
        line.settimeout(20)
        line.connect(str(running.socket))
        for number, (method, params) in enumerate(asked):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            line.sendall(json.dumps(request).encode() + b"\n")
        with line.makefile("rb") as replies:
            told = [json.loads(replies.readline()) for _ in range(6)]
    assert [one.get("id") for one in told] == [0, 1, 2, 3, 4, None]
    sets = {"context": {"files": ["/w/a"]}, "reason": "load", "sessionId": noted}
    assert told[5]["params"].items() >= ({"event": "context.load"} | sets).items()


def test_what_tools_read_and_write_is_no_context(running: World) -> None:
    """S4.11, S4.1: an agent's tool calls are facts of its session; its sets stay as they were."""
    session = running.session(turns=1, cwd="/w")
    wait(running, session.id)
    put(running, session.id, "files", ["/w/mine.md"])
    session.say("user", "Please mend it.")
    for name, path in (("read", "read.py"), ("edit", "edited.py")):
        session.tool(name, path=path)
    session.answer("Mended.")
    wait(running, session.id, filesModified=["/w/edited.py"], filesRead=["/w/read.py"])
    running.call("index", ref=session.id, force=True, wait=True)
    assert held(running, session.id) == {"files": ["/w/mine.md"]}


def test_view_state_lands_in_the_applet_set(running: World) -> None:
    """S4.25, S4.26: on navigation and on idle, by the session it is of; the last one stays."""
    one, other = known(running), known(running)
    for items in (["git-diff", "path=/w"], ["editor", "file=a&b=<c>"]):  # navigation
        running.call("update", ref=one, setContext={"setName": "applet", "items": items})
    put(running, other, "files", ["/w/o"])  # its user has gone to another session
    put(running, one, "applet", items)  # the first one is idle now: a late write
    applet = {"slug": "editor", "params": ["file=a&b=<c>"]}
    assert running.call("footer", ref=one)["applet"] == applet
    assert held(running, other) == {"files": ["/w/o"]}


def test_the_commands_say_what_the_methods_do(world: World) -> None:
    """S4.4, S4.6, S4.9: the same limits and texts; relative paths for people, data on stdout."""
    with world.daemon():
        ref = known(world, cwd=str(world.root))
        said = world.run("context-set", ref[:8], "files", f"{world.root}/src/a.py", "/x/b.md")
        assert (said, world.stderr) == ("Set files: 2 items\n", "")
        assert world.run("context-set", ref, "fles", "c", "--merge") == "Merged fles: 1 items\n"
        assert "unknown set 'fles'" in world.stderr
        assert world.run("context-set", ref, "fles") == "Cleared fles\n"
        shown = f"files\t{world.root}/src/a.py\nfiles\t/x/b.md\n"
        assert world.run("context-get", ref) == shown
        found = world.run("context-get", ref, "--json")
        assert found == world.call("get_relevant_context", session=ref)
        assert world.run("footer", ref, "--json") == world.call("footer", ref=ref)
        world.run("context-set", ref, "files", *map(str, range(11)), code=2)
        assert "at most 10" in world.stderr
    assert world.run("context-set", ref, "files", code=69) == ""
    assert world.run("context-get", ref, "--json") == found
    (path,) = world.metas.glob("*.user.json")
    path.write_text("{")
    world.run("context-get", ref, code=1)
    assert "move it away" in world.stderr
    assert str(path) in world.stderr


def test_a_secret_in_a_set_is_told_of_and_written_nowhere_else(world: World) -> None:
    """S2.21: stored to the letter, with a warning; no telemetry, log or answer names it."""
    told = " seems to contain a secret (anthropic-key); it is put into prompts on resume"
    items = ["http://h/", f"http://h/?key={SECRET}"]
    with world.daemon():
        session = known(world)
        done = put(world, session, "endpoints", items)
        assert done["warnings"] == [f"item 2 of endpoints{told}"]
        assert SECRET not in json.dumps(done)
        updated = world.call("update", ref=session, context={"endpoints": items})
        assert updated["warnings"] == [f"item 2 of endpoints{told}"]
        hinted = world.call("update", ref=session, envHint=f"export KEY={SECRET}")
        assert hinted["warnings"] == [f"envHint{told}"]
        assert held(world, session) == {"endpoints": items}
    files = {path for path in world.root.rglob("*") if path.is_file()}
    holding = {path.name for path in files if SECRET.encode() in path.read_bytes()}
    assert holding == {f"{session}.user.json"}


CLIENT = """
import sys
from indexerd.client import Client

socket, session, who, merges = sys.argv[1:]
with Client(socket, timeout=30) as daemon:
    def put(name, items, mode="merge"):
        asked = {"session": session, "setName": name, "items": items, "mode": mode}
        return daemon.call("set_relevant_context", asked)

    for number in range(int(merges)):
        assert put(who, [f"{who} {number}"])["contextChanged"]
        if number % 10 == 9:  # a set has room for ten
            context = daemon.call("get_relevant_context", {"session": session})["context"]
            assert context[who] == [f"{who} {one}" for one in range(number - 9, number + 1)]
            put("both", [f"{who} {number // 10}"])
            put(who, [], "replace")
"""


def test_merges_of_two_clients_lose_nothing(running: World, session: str) -> None:
    """S4.10: every merge of two processes is there, and none is undone by the other."""
    argv = (sys.executable, "-c", CLIENT, str(running.socket), session)
    clients = [
        subprocess.Popen([*argv, who, "50"], env=running.env, stderr=subprocess.PIPE, text=True)
        for who in "xy"
    ]
    assert [one.communicate(timeout=50)[1] for one in clients] == ["", ""]
    found = held(running, session)
    assert {name: sorted(items) for name, items in found.items()} == {
        "both": [f"{who} {number}" for who in "xy" for number in range(5)]
    }
