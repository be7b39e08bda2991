"""Relevant-context sets: limits, answers, telemetry, events and restarts."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import ContextTooLargeError, UsageError
from tests.e2e.world import World, holding, wait

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


A, B, C = "/w/a", "/w/b", "/w/c"
OTHER = "unknown set 'fles'; the known ones are files, applet, endpoints, ports"
FULL_SET = "not stored, because a set has at most 10 items: /x, /y"
# Set, items and mode; the answer, its warning, and what the set then has.
CHANGES: list[tuple[str, list[str], str, str, str, list[str]]] = [
    ("files", [A, B], "", "Set files: 2 items", "", [A, B]),
    ("files", [C, A, C], "merge", "Merged files: 3 items", "", [A, B, C]),
    ("files", [C], "merge", "Merged files: 3 items", "", [A, B, C]),
    ("files", [], "merge", "Nothing to merge into files: 3 items", "", [A, B, C]),
    ("files", TEN, "replace", "Set files: 10 items", "", TEN),
    ("files", [*TEN[:2], "/x", "/y"], "merge", "Merged files: 10 items", FULL_SET, TEN),
    ("files", [], "", "Cleared files", "", []),
    ("applet", ["/80"], "", "Set applet: 1 items", "", ["/80"]),
    ("endpoints", ["/80"], "", "Set endpoints: 1 items", "", ["/80"]),
    ("ports", ["web 80", "h:1"], "", "Set ports: 2 items", "", ["web 80", "h:1"]),
    ("fles", [A], "", "Set fles: 1 items", OTHER, [A]),
]
REFUSED: list[tuple[str, list[str], Any, str]] = [
    *(("files", [*TEN, "/x"], mode, "at most 10") for mode in ("replace", "merge")),
    *(("files", [A], mode, "replace or merge") for mode in ("append", "", 1)),
    ("ports", ["web 8080", "notaport"], "replace", "not a port: notaport"),
    ("files", [A, "no/such.py"], "replace", "no such file: no/such.py"),
]


def test_each_change_is_answered_stored_and_recorded(running: World, session: str) -> None:
    """S4.2, S4.3, S4.4, S4.6, S4.7: with the original's texts, and a warning where one is due."""
    changed = []
    for name, items, mode, text, warning, then in CHANGES:
        before = stored_sets(running, session)
        answer = put(running, session, name, items, **({"mode": mode} if mode else {}))
        assert (answer["text"], answer["warnings"]) == (text, [warning] if warning else [])
        assert stored_sets(running, session, setName=name) == {name: then}
        assert answer["contextChanged"] is (stored_sets(running, session) != before)
        changed += [name] * answer["contextChanged"]
    for name, items, mode, why in REFUSED:
        with pytest.raises(UsageError, match=why):
            put(running, session, name, items, mode=mode)
    rows = records(running, session)
    assert [(row["contextChanged"], row["setName"]) for row in rows] == [
        (True, name) for name in changed
    ]
    assert "/w/" not in json.dumps(rows)


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


def test_a_footer_has_five_files_and_the_applet(running: World, session: str) -> None:
    """Five base names, the number of further files and the view's state (S4.22, S4.23, S4.25)."""
    empty = {"sessionId": session, "files": [], "more": 0, "text": ""}
    assert (running.call("footer", ref=session), running.run("footer", session)) == (empty, "")
    paths = ["/w/a.py", "C:\\w\\b.py", "/w/c d.md", "/w/e.py", "/w/f.py", "/w/g.py", "/w/h.py"]
    put(running, session, "files", paths)
    for items in (["editor"], ["git-diff", "path=/w", "file=a&b=<c>"]):  # the user navigates
        running.call("update", ref=session, setContext={"setName": "applet", "items": items})
    found = running.call("footer", ref=session)
    names = ["a.py", "b.py", "c d.md", "e.py", "f.py"]
    assert [file["basename"] for file in found["files"]] == names
    assert [file["path"] for file in found["files"]] == paths[:5]
    assert (found["more"], found["applet"]) == (2, {"slug": "git-diff", "params": items[1:]})
    line = " · ".join([*names, "+2 more", "[git-diff]"])
    assert (found["text"], running.run("footer", session)) == (line, f"{line}\n")


def test_sets_survive_indexing_compaction_weeks_and_lost_state(world: World) -> None:
    """S4.1, S4.11, S4.18, S4.28: as they are, whatever tools edit; a resume gets them once."""
    sets = {"files": ["a.py", "/nowhere/b.md"], "endpoints": ["http://localhost:1/x"]}
    with world.daemon():
        session = world.session(turns=1, cwd=str(world.root))
        wait(world, session.id, messageCount=2)
        world.call("update", ref=session.id, context=sets, title="Ticket 5")
        session.tool("edit", path="edited.py")
        session.answer()
        wait(world, session.id, filesModified=[f"{world.root}/edited.py"])
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


def test_changes_and_resumes_reach_subscribers(running: World, session: str) -> None:
    """S4.12, S4.13, S4.14: events have context, set name and reason; a refused write sends none."""
    client = Client(running.socket, timeout=20)
    older = Client(running.socket, timeout=20)
    with client, older:
        events = client.events(["context.changed", "context.resume"], timeout=20)
        alias = older.events(["caco.context"], timeout=20)
        put(running, session, "files", ["/w/a"])
        with pytest.raises(UsageError):
            put(running, session, "applet", list(map(str, range(11))))
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
        world.run("context-set", ref, "applet", *map(str, range(11)), code=2)
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
    assert holding(SECRET, world.root) == {f"{session}.user.json"}


def test_merges_of_two_clients_lose_nothing(running: World, session: str) -> None:
    """S4.10: each of two clients that merge at the same time finds its items and the other's."""

    def merge(who: str) -> None:
        for number in range(50):
            assert put(running, session, who, [f"{number}"], mode="merge")["contextChanged"]
            if number % 10 == 9:  # a set has at most ten items
                own = [f"{n}" for n in range(number - 9, number + 1)]
                assert stored_sets(running, session, setName=who) == {who: own}
                put(running, session, "both", [f"{who}{number}"], mode="merge")
                put(running, session, who, [])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(merge, "xy"))
    both = [f"{who}{number}" for who in "xy" for number in range(9, 50, 10)]
    found = stored_sets(running, session)
    assert {name: sorted(items) for name, items in found.items()} == {"both": sorted(both)}
