"""Relevant-context sets: limits, answers, telemetry, events, restarts and forks."""

import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import ContextTooLargeError, NotFoundError, UsageError
from tests.e2e.world import World, wait

KNOWN = ("files", "applet", "endpoints", "ports")
TEN = [f"/w/{number}" for number in range(10)]
FULL = {f"s{number}": TEN for number in range(5)}
SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"


def new_session(world: World, **options: Any) -> str:
    session = world.session(turns=1, **options)
    world.seen(session)
    return session.id


@pytest.fixture
def session(running: World) -> str:
    return new_session(running, cwd=str(running.root))


def put(world: World, session: str, name: str, items: list[str], **more: Any) -> dict[str, Any]:
    asked = {"session": session, "setName": name, "items": items}
    answer: dict[str, Any] = world.call("set_relevant_context", **asked, **more)
    return answer


def stored_sets(world: World, session: str, **named: str) -> Any:
    return world.call("get_relevant_context", session=session, **named)["context"]


def sidecar(world: World, session: str) -> bytes:
    path = world.metas / f"{session}.user.json"
    return path.read_bytes() if path.exists() else b""


def records(world: World, session: str) -> list[dict[str, Any]]:
    rows = [row for row in world.telemetry() if row["sessionId"] == session]
    return [row for row in rows if row["customType"] == "relevant-context:set"]


def block(world: World, session: str, resume: str) -> str:
    text = world.call("resume_context", session=session, resumeId=resume)["text"]
    return str(text.split("\n", 4)[4].removesuffix("---\n\n").strip())


def test_an_unknown_set_name_is_stored_with_a_warning(running: World, session: str) -> None:
    """files, applet, endpoints and ports cause no warning; another name does (S4.2)."""
    for name in KNOWN:
        assert put(running, session, name, ["/80"])["warnings"] == []
    (warning,) = put(running, session, "fles", ["/w/a"])["warnings"]
    assert warning == "unknown set 'fles'; the known ones are files, applet, endpoints, ports"
    assert stored_sets(running, session) == {name: ["/80"] for name in KNOWN} | {"fles": ["/w/a"]}
    found = put(running, session, "files", ["stderr", "/w/a", "no/such.py"])
    assert found["warnings"] == ["no such file: no/such.py"]
    with pytest.raises(UsageError, match="not a port: notaport"):
        put(running, session, "ports", ["web 8080", "notaport"])
    put(running, session, "ports", ["web 8080", "127.0.0.1:5432"])


def test_a_set_is_replaced_or_merged(running: World, session: str) -> None:
    """Replacing is the default, merging is an ordered union, other modes are errors (S4.3)."""
    put(running, session, "files", ["/w/old"])
    put(running, session, "files", ["/w/b", "/w/a"])
    put(running, session, "files", ["/w/c", "/w/a", "/w/c"], mode="merge")
    assert stored_sets(running, session) == {"files": ["/w/b", "/w/a", "/w/c"]}
    for mode in ("append", "", 1):
        with pytest.raises(UsageError, match="replace or merge"):
            put(running, session, "files", ["/w/d"], mode=mode)
    put(running, session, "files", ["/w/d"], mode="replace")
    assert stored_sets(running, session) == {"files": ["/w/d"]}


def test_a_set_has_at_most_ten_items(running: World, session: str) -> None:
    """Eleven items in a call are an error; a merge reports the items beyond ten (S4.4)."""
    for mode in ("replace", "merge"):
        with pytest.raises(UsageError, match="at most 10"):
            put(running, session, "files", [*TEN, "x"], mode=mode)
    assert stored_sets(running, session) == {}
    put(running, session, "files", TEN[:8])
    found = put(running, session, "files", [*TEN[:2], "x", "y", "z", "q"], mode="merge")
    assert found["text"] == "Merged files: 10 items"
    assert found["warnings"][0] == "not stored, because a set has at most 10 items: z, q"
    assert stored_sets(running, session) == {"files": [*TEN[:8], "x", "y"]}


def test_a_session_has_at_most_fifty_items(running: World, session: str) -> None:
    """Both methods refuse more with the original's message and store nothing (S4.5)."""
    for name, items in FULL.items():
        put(running, session, name, items)
    before = sidecar(running, session)
    with pytest.raises(ContextTooLargeError) as caught:
        put(running, session, "files", ["/w/a"])
    assert str(caught.value) == "Context too large (51 items, max 50). Remove some items first."
    with pytest.raises(ContextTooLargeError, match="60 items"):
        running.call("update", ref=session, context=FULL | {"more": TEN})
    assert (sidecar(running, session), stored_sets(running, session)) == (before, FULL)
    assert len(records(running, session)) == len(FULL)


def test_each_change_is_answered_and_recorded(running: World, session: str) -> None:
    """The answers have the original's texts; each change adds one telemetry row (S4.6, S4.7)."""
    answers = [
        put(running, session, "files", ["/w/a", "/w/b"]),
        put(running, session, "files", ["/w/c"], mode="merge"),
        put(running, session, "files", ["/w/c"], mode="merge"),
        put(running, session, "files", [], mode="merge"),
        put(running, session, "files", []),
    ]
    assert [
        (answer["text"], answer["contextChanged"], answer["setName"]) for answer in answers
    ] == [
        ("Set files: 2 items", True, "files"),
        ("Merged files: 3 items", True, "files"),
        ("Merged files: 3 items", False, "files"),
        ("Nothing to merge into files: 3 items", False, "files"),
        ("Cleared files", True, "files"),
    ]
    rows = records(running, session)
    assert [(row["contextChanged"], row["setName"]) for row in rows] == [(True, "files")] * 3
    assert "/w/" not in json.dumps(rows)


def test_reading_one_set_all_sets_or_none(running: World, session: str) -> None:
    """All sets come as JSON, one set by its name, a missing one as an empty list (S4.8)."""
    nothing = running.call("get_relevant_context", session=session)
    assert (nothing["text"], nothing["context"]) == ("No context stored for this session", {})
    put(running, session, "files", ["/w/é"])
    put(running, session, "ports", ["80"])
    found = running.call("get_relevant_context", session=session)
    assert found["text"] == '{\n  "files": [\n    "/w/é"\n  ],\n  "ports": [\n    "80"\n  ]\n}'
    assert json.loads(found["text"]) == found["context"] == stored_sets(running, session)
    assert stored_sets(running, session, setName="ports") == {"ports": ["80"]}
    assert stored_sets(running, session, setName="applet") == {"applet": []}


def test_a_resume_counts_missing_files(running: World, session: str) -> None:
    """Missing files are counted, also when all are missing (S4.16)."""
    (running.root / "here.py").touch()
    put(running, session, "files", ["/nowhere/a", "here.py", "/nowhere/b"])
    shown = "Relevant files:\n- here.py\n(2 file(s) no longer exist)"
    assert block(running, session, "some") == shown
    put(running, session, "files", ["/nowhere/a", "/nowhere/b", "/nowhere/c"])
    assert block(running, session, "none") == "Relevant files:\n(3 file(s) no longer exist)"


def test_a_footer_has_five_files_and_the_applet(running: World, session: str) -> None:
    """It has five base names, the number of further files and the applet (S4.22, S4.23)."""
    empty = {"sessionId": session, "files": [], "more": 0, "text": ""}
    assert (running.call("footer", ref=session), running.run("footer", session)) == (empty, "")
    paths = ["/w/a.py", "C:\\w\\b.py", "/w/c d.md", "/w/e.py", "/w/f.py", "/w/g.py", "/w/h.py"]
    put(running, session, "files", paths)
    put(running, session, "applet", ["git-diff", "path=/w"])
    found = running.call("footer", ref=session)
    names = ["a.py", "b.py", "c d.md", "e.py", "f.py"]
    assert [file["basename"] for file in found["files"]] == names
    assert [file["path"] for file in found["files"]] == paths[:5]
    assert (found["more"], found["applet"]) == (2, {"slug": "git-diff", "params": ["path=/w"]})
    line = " · ".join([*names, "+2 more", "[git-diff]"])
    assert (found["text"], running.run("footer", session)) == (line, f"{line}\n")


def test_sets_survive_indexing_compaction_weeks_and_lost_state(world: World) -> None:
    """S4.1, S4.18, S4.28: the sets stay, and each resume gets the same block, once."""
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
        assert world.call("get", ref=session.id)["context"] == sets
    then, stored = time.time() - 45 * 86_400, sidecar(world, session.id)
    for path in (session.path, world.metas / f"{session.id}.user.json"):
        os.utime(path, (then, then))
    shutil.rmtree(world.state)
    with world.daemon():
        world.seen(session)
        assert stored_sets(world, session.id) == sets
        late = world.call("resume_context", session=session.id, resumeId="r3")
    assert (late["text"], sidecar(world, session.id)) == (text, stored)


def test_a_fork_starts_without_sets(world: World) -> None:
    """S4.28: later changes of either affect only itself."""
    with world.daemon():
        session = world.session(turns=1)
        wait(world, session.id)
        put(world, session.id, "files", ["/w/a"])
        fork = session.fork()
        fork.talk(1)
        wait(world, fork.id, parentSessionId=session.id)
        assert stored_sets(world, fork.id) == {}
        put(world, fork.id, "files", ["/w/b"])
        assert stored_sets(world, session.id) == {"files": ["/w/a"]}


def test_a_set_can_be_stored_before_the_session_is_read(world: World) -> None:
    """S4.21: the call waits for a new session; an id that never appears is an error."""
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "30"
    with world.daemon():
        world.call("list")  # after the first scan
        session = world.session(turns=1)
        assert put(world, session.id, "files", ["/w/a"])["text"] == "Set files: 1 items"
        with pytest.raises(NotFoundError):
            put(world, "ffffffff-0000-4000-8000-000000000000", "files", ["/w/a"])
        left = [path.name for path in world.metas.glob("*.user.json")]
        assert left == [f"{session.id}.user.json"]


def test_changes_and_resumes_reach_subscribers(running: World, session: str) -> None:
    """S4.12, S4.13, S4.14: events have context, set name and reason; a refused write sends none."""
    client = Client(running.socket, timeout=20)
    older = Client(running.socket, timeout=20)
    with client, older:
        events = client.events(["context.changed", "context.resume"], timeout=20)
        alias = older.events(["caco.context"], timeout=20)
        put(running, session, "files", ["/w/a"])
        with pytest.raises(UsageError):
            put(running, session, "files", list(map(str, range(11))))
        for _ in range(2):
            running.call("resume_context", session=session, resumeId="r")
        running.call("update", ref=session, setContext={"setName": "files", "items": []})
        received = [next(events) for _ in range(3)]
        put(running, session, "ports", ["80"])
        running.call("history", ref=session)
        by_alias = [next(alias) for _ in range(5)]
    files = {"files": ["/w/a"]}
    assert [(event["event"], event["reason"], event["context"]) for event in received] == [
        ("context.changed", "changed", files),
        ("context.resume", "resume", files),
        ("context.changed", "changed", {}),
    ]
    assert {event["sessionId"] for event in received} == {session}
    assert received[0]["setName"] == "files"
    assert by_alias[:3] == received
    assert [event["reason"] for event in by_alias[3:]] == ["changed", "load"]


def test_tool_calls_do_not_change_sets(running: World) -> None:
    """S4.1, S4.11: files that tools read or changed are facts of the session, not its sets."""
    session = running.session(turns=1, cwd="/w")
    wait(running, session.id)
    put(running, session.id, "files", ["/w/mine.md"])
    session.say("user", "Please mend it.")
    for name, path in (("read", "read.py"), ("edit", "edited.py")):
        session.tool(name, path=path)
    session.answer("Mended.")
    wait(running, session.id, filesModified=["/w/edited.py"], filesRead=["/w/read.py"])
    running.call("index", ref=session.id, force=True, wait=True)
    assert stored_sets(running, session.id) == {"files": ["/w/mine.md"]}


def test_view_state_is_stored_in_the_applet_set(running: World) -> None:
    """S4.25, S4.26: a late write goes to its own session, and the last write wins."""
    first, other = new_session(running), new_session(running)
    for items in (["git-diff", "path=/w"], ["editor", "file=a&b=<c>"]):  # the user navigates
        running.call("update", ref=first, setContext={"setName": "applet", "items": items})
    put(running, other, "files", ["/w/o"])  # the user switches to another session
    put(running, first, "applet", items)  # a late write for the first session
    applet = {"slug": "editor", "params": ["file=a&b=<c>"]}
    assert running.call("footer", ref=first)["applet"] == applet
    assert stored_sets(running, other) == {"files": ["/w/o"]}


def test_the_commands_match_the_methods(world: World) -> None:
    """S4.4, S4.6, S4.9: commands have the same limits and texts, and print data to stdout."""
    with world.daemon():
        ref = new_session(world, cwd=str(world.root))
        answers = world.run("context-set", ref[:8], "files", f"{world.root}/src/a.py", "/x/b.md")
        assert (answers, world.stderr) == ("Set files: 2 items\n", "")
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


def test_a_secret_in_a_set_causes_a_warning(world: World) -> None:
    """S2.21: it is stored verbatim with a warning, but appears in no log, answer or telemetry."""
    warning = " seems to contain a secret (anthropic-key); it is put into prompts on resume"
    items = ["http://h/", f"http://h/?key={SECRET}"]
    with world.daemon():
        session = new_session(world)
        done = put(world, session, "endpoints", items)
        assert done["warnings"] == [f"item 2 of endpoints{warning}"]
        assert SECRET not in json.dumps(done)
        updated = world.call("update", ref=session, context={"endpoints": items})
        assert updated["warnings"] == [f"item 2 of endpoints{warning}"]
        hinted = world.call("update", ref=session, envHint=f"export KEY={SECRET}")
        assert hinted["warnings"] == [f"envHint{warning}"]
        assert stored_sets(world, session) == {"endpoints": items}
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
        if number % 10 == 9:  # a set has at most ten items
            context = daemon.call("get_relevant_context", {"session": session})["context"]
            assert context[who] == [f"{who} {n}" for n in range(number - 9, number + 1)]
            put("both", [f"{who} {number // 10}"])
            put(who, [], "replace")
"""


def test_merges_of_two_clients_lose_nothing(running: World, session: str) -> None:
    """S4.10: each merge of two concurrent processes is stored, and none undoes another."""
    argv = (sys.executable, "-c", CLIENT, str(running.socket), session)
    clients = [
        subprocess.Popen([*argv, who, "50"], env=running.env, stderr=subprocess.PIPE, text=True)
        for who in "xy"
    ]
    assert [client.communicate(timeout=50)[1] for client in clients] == ["", ""]
    found = stored_sets(running, session)
    assert {name: sorted(items) for name, items in found.items()} == {
        "both": [f"{who} {number}" for who in "xy" for number in range(5)]
    }
