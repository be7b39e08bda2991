"""Relevant context in the real program: restarts, forks, events, commands (S4)."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import ContextTooLargeError, NotFoundError, UsageError
from tests.e2e.world import Session, World, until

HEAD = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before continuing.\n\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A home with pi in it."""
    world = World(tmp_path)
    world.install_pi()
    return world


def known(world: World, **options: Any) -> Session:
    """A session of one turn, once the daemon knows it."""
    session = world.session(turns=1, **options)
    until(lambda: world.row(session.id), "the session")
    return session


def put(world: World, session: str, name: str, *items: str, **more: Any) -> Any:
    """Set one set."""
    asked = {"session": session, "setName": name, "items": list(items)}
    return world.call("set_relevant_context", **asked, **more)


def connect(path: Path) -> socket.socket:
    """A connection of which each line is read as it comes."""
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(20)
    line.connect(str(path))
    return line


def changed_files(world: World, session: str) -> Any:
    """What a session's tool calls have changed."""
    return world.row(session)["filesModified"]


def context(world: World, session: str) -> Any:
    """All sets of a session."""
    return world.call("get_relevant_context", session=session)["context"]


def test_context_comes_back_after_a_restart_and_after_indexing(world: World) -> None:
    """S4.1, S4.18, S4.28: indexing leaves it alone; its block is given once for each resume."""
    with world.daemon():
        session = known(world, cwd=str(world.root))
        (world.root / "a.py").touch()
        put(world, session.id, "files", "a.py", "/nowhere/b.md")
        put(world, session.id, "endpoints", "http://localhost:1/x")
        world.call("update", ref=session.id, envHint="source .venv/bin/activate", title="Ticket 5")
        world.call("index", ref=session.id, force=True, wait=True)
        first = world.call("resume_context", session=session.id, resumeId="r1")
    text = (
        f"{HEAD}Session directory: {world.root}\nEnvironment hint: source .venv/bin/activate\n\n"
        "Relevant files:\n- a.py\n(1 file(s) no longer exist)\n\n"
        "endpoints: http://localhost:1/x\n---\n\n"
    )
    assert first == {"sessionId": session.id, "text": text, "missingFiles": 1}

    session.entry("compaction", summary="All of it.", firstKeptEntryId=session.last)
    with world.daemon():
        until(lambda: world.row(session.id).get("state") == "compacted", "the compaction")
        again = world.call("resume_context", session="Ticket 5", resumeId="r1")
        assert again["text"] is None
        assert world.call("resume_context", session="Ticket 5", resumeId="r2")["text"] == text
        whole = {"files": ["a.py", "/nowhere/b.md"], "endpoints": ["http://localhost:1/x"]}
        assert context(world, session.id) == whole
        assert world.call("get", ref=session.id)["context"] == whole


def test_a_fork_of_pi_starts_with_a_copy(world: World) -> None:
    """S4.28: and goes its own way from then on, whichever of the two is changed first."""
    with world.daemon():
        session = known(world)
        put(world, session.id, "files", "/w/a")
        fork = Session(world.sessions)
        lines = fork.path.read_text().splitlines()
        header = json.loads(lines[0]) | {"parentSession": str(session.path)}
        fork.path.write_text(json.dumps(header) + "\n")
        fork.talk(1)
        until(lambda: world.row(fork.id).get("parentSessionId") == session.id, "the fork")
        assert context(world, fork.id) == {"files": ["/w/a"]}
        assert world.call("get", ref=fork.id)["context"] == {"files": ["/w/a"]}
    begun = {"files": ["/w/a"]}
    assert world.run("context-get", fork.id, "--json")["context"] == begun  # from its parent's file
    with world.daemon():
        until(lambda: world.row(fork.id).get("parentSessionId") == session.id, "the fork")
        put(world, session.id, "files", "/w/c")
        assert context(world, fork.id) == world.call("get", ref=fork.id)["context"] == begun
        assert world.call("footer", ref=fork.id)["text"] == "a"
        assert "(1 file(s) no" in world.call("resume_context", session=fork.id)["text"]
        put(world, fork.id, "files", "/w/b", mode="merge")
        assert context(world, fork.id) == {"files": ["/w/a", "/w/b"]}
        assert context(world, session.id) == {"files": ["/w/c"]}


def test_a_new_session_may_be_named_before_it_is_known(world: World) -> None:
    """An agent's tool call of the first turn; a session that does not come is an error (S4.21)."""
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "30"
    with world.daemon():
        world.call("list")  # after the first scan
        session = world.session(turns=1)
        assert put(world, session.id, "files", "/w/a")["text"] == "Set files: 1 items"
        for ref in ("nobody", "ffffffff-0000-4000-8000-000000000000"):
            with pytest.raises(NotFoundError):
                put(world, ref, "files", "/w/a")
        assert sorted(one.name for one in world.metas.glob("*.user.json")) == [
            f"{session.id}.user.json"
        ]


def test_subscribers_hear_of_changes_and_resumes(world: World) -> None:
    """S4.12, S4.13, S4.14: full context, the name, the reason; a refused write is no event."""
    with world.daemon():
        session = known(world)
        with Client(world.socket, timeout=20) as ear, Client(world.socket, timeout=20) as older:
            events = ear.events(["context.changed", "context.resume"], timeout=20)
            alias = older.events(["caco.context"], timeout=20)
            put(world, session.id, "files", "/w/a")
            heard = next(events)
            with pytest.raises(UsageError):
                put(world, session.id, "files", *map(str, range(11)))
            with pytest.raises(ContextTooLargeError) as caught:
                world.call(
                    "update",
                    ref=session.id,
                    context={f"s{n}": [str(m) for m in range(10)] for n in range(6)},
                )
            assert "Context too large (60 items, max 50)." in str(caught.value)
            world.call("resume_context", session=session.id, resumeId="r")
            world.call("resume_context", session=session.id, resumeId="r")
            world.call("update", ref=session.id, setContext={"setName": "files", "items": []})
            resumed, changed = next(events), next(events)
            put(world, session.id, "ports", "80")
            world.call("history", ref=session.id)
            told = [next(alias) for _ in range(5)]
        assert told[:3] == [heard, resumed, changed]
        assert [one["reason"] for one in told[3:]] == ["changed", "load"]
    base = {"sessionId": session.id}
    held = {"files": ["/w/a"]}
    for event, expected in (
        (heard, {"event": "context.changed", "context": held, "setName": "files"}),
        (resumed, {"event": "context.resume", "context": held, "reason": "resume"}),
        (changed, {"event": "context.changed", "context": {}, "reason": "changed"}),
    ):
        assert event.items() >= (base | expected).items()


def test_who_opens_a_history_hears_of_its_sets(world: World) -> None:
    """S4.13: after the reply, never before; not of a session without sets, nor of a mistake."""
    with world.daemon():
        bare, noted = known(world), known(world)
        put(world, noted.id, "files", "/w/a")
        asked: list[tuple[str, dict[str, Any]]] = [
            ("subscribe", {"events": ["context.load", "context.changed"]}),
            ("history", {"ref": bare.id}),
            ("history", {"ref": "nobody-of-this-name"}),
            ("history", {"ref": noted.id, "leaf": "no-such-entry"}),
            ("history", {"ref": noted.id}),
        ]
        with Client(world.socket, timeout=20) as other, closing(connect(world.socket)) as line:
            events = other.events(["context.load"], timeout=20)
            for number, (method, params) in enumerate(asked):
                request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile("rb") as replies:
                told = [json.loads(replies.readline()) for _ in range(6)]
                assert [one.get("id") for one in told] == [0, 1, 2, 3, 4, None]
                put(world, noted.id, "files", "/w/b")
                changed = json.loads(replies.readline())["params"]
            heard = next(events)
        loaded = told[5]["params"]
        sets = {"context": {"files": ["/w/a"]}, "reason": "load", "sessionId": noted.id}
        assert loaded.items() >= ({"event": "context.load"} | sets).items()
        assert "setName" not in loaded
        assert (changed["event"], changed["setName"]) == ("context.changed", "files")
        assert heard == loaded, "all who listen hear it"


def test_what_tools_read_and_write_is_no_context(world: World) -> None:
    """S4.11, S4.1: an agent's tool calls are facts of its session; its sets stay as they were."""
    with world.daemon():
        sessions = [known(world, cwd=str(world.root)) for _ in range(2)]
        put(world, sessions[1].id, "files", "/w/mine.md")
        for session in sessions:
            session.say("user", "Please mend it.")
            for name, path in (("read", "read.py"), ("edit", "edited.py")):
                call = {"type": "toolCall", "id": name, "name": name, "arguments": {"path": path}}
                said = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
                session.entry("message", message=said)
                session.say("toolResult", "Done.", toolCallId=name, toolName=name, isError=False)
            session.say("assistant", "Mended.", stopReason="stop")
            until(partial(changed_files, world, session.id), "the tool calls")
            assert world.row(session.id)["filesRead"] == [f"{world.root}/read.py"]
            world.call("index", ref=session.id, force=True, wait=True)
            assert world.wait_meta(session.id)["filesModified"] == [f"{world.root}/edited.py"]
        assert [context(world, one.id) for one in sessions] == [{}, {"files": ["/w/mine.md"]}]
    assert [one.name for one in world.metas.glob("*.user.json")] == [f"{sessions[1].id}.user.json"]


def test_view_state_lands_in_the_applet_set(world: World) -> None:
    """S4.25, S4.26: on navigation and on idle, by the session it is of; the last one stays."""
    with world.daemon():
        one, other = known(world), known(world)
        with Client(world.socket, timeout=20) as ear:
            events = ear.events(["context.changed"], timeout=20)
            for items in (["git-diff", "path=/w"], ["editor", "file=a&b=<c>"]):  # navigation
                world.call("update", ref=one.id, setContext={"setName": "applet", "items": items})
            put(world, other.id, "files", "/w/o")  # its user has gone to another session
            put(world, one.id, "applet", *items)  # the first one is idle now: a late write
            heard = [next(events) for _ in range(4)]
        sets = [(event["sessionId"], event["setName"], event["context"]) for event in heard]
        views: list[Any] = [["git-diff", "path=/w"], items, {"files": ["/w/o"]}, items]
        for (session, name, held), view in zip(sets, views, strict=True):
            expected = (other.id, "files", view) if isinstance(view, dict) else None
            assert (session, name, held) == (expected or (one.id, "applet", {"applet": view}))
        applet = {"slug": "editor", "params": ["file=a&b=<c>"]}
        assert world.call("footer", ref=one.id)["applet"] == applet
        assert "applet" not in world.call("footer", ref=other.id)


def test_a_footer_of_nothing_is_empty(world: World) -> None:
    """S4.23: of a session without sets, and of one that has only just begun."""
    with world.daemon():
        begun, talked = world.session(), known(world)
        until(lambda: world.row(begun.id), "the header alone")
        for session in (begun, talked):
            empty = {"sessionId": session.id, "files": [], "more": 0, "text": ""}
            assert world.call("footer", ref=session.id) == empty
            assert world.run("footer", session.id) == ""


def test_the_commands_say_what_the_methods_do(world: World) -> None:
    """S4.4, S4.6, S4.9: the same limits and texts; relative paths for people, data on stdout."""
    with world.daemon():
        session = known(world, cwd=str(world.root))
        ref = session.id[:8]
        inside = f"{world.root}/src/a.py"
        said = world.run("context-set", ref, "files", inside, "/x/b.md")
        assert (said, world.stderr) == ("Set files: 2 items\n", "")
        assert world.run("context-set", ref, "fles", "c", "--merge") == "Merged fles: 1 items\n"
        assert "unknown set 'fles'" in world.stderr
        assert world.run("context-set", ref, "fles") == "Cleared fles\n"

        assert world.run("context-get", ref) == "files\tsrc/a.py\nfiles\t/x/b.md\n"
        asked = {"session": session.id}
        assert world.run("context-get", ref, "--json") == world.call(
            "get_relevant_context", **asked
        )
        assert world.run("context-get", ref, "ports") == ""
        assert world.run("footer", ref) == "a.py · b.md\n"
        assert world.run("footer", ref, "--json") == world.call("footer", ref=session.id)

        for more in ((), ("--resume-id", "r"), ("--config", str(world.config), "--resume-id", "s")):
            before, after = more[:2] if more[:1] == ("--config",) else (), more[-2:]
            told = world.run(*before, "resume-context", ref, *after)
            assert told.startswith(f"{HEAD}Session directory: {world.root}\n\nRelevant files:\n")
            assert told.endswith("(2 file(s) no longer exist)\n---\n\n")
            assert world.run(*before, "resume-context", ref, *after) == ""

        world.run("context-set", ref, "files", *map(str, range(11)), code=2)
        assert "at most 10" in world.stderr
        error = world.run("context-set", "nobody-of-this-name", "files", "x", "--json", code=3)
        assert error["error"]["code"] == "not_found"
        answers = world.run("context-get", ref, "--json"), world.run("footer", ref, "--json")
    for argv in (("context-set", ref, "files"), ("resume-context", ref)):
        assert world.run(*argv, code=69) == ""
    told = "indexerd: no daemon runs; answering from what is stored\n"
    assert world.run("context-get", ref) == "files\tsrc/a.py\nfiles\t/x/b.md\n"
    assert world.stderr == told
    assert world.run("context-get", ref, "ports") == ""
    assert world.run("footer", ref) == "a.py · b.md\n"
    assert world.stderr == told
    assert (world.run("context-get", ref, "--json"), world.run("footer", ref, "--json")) == answers
    world.run("footer", "nobody-of-this-name", code=3)
    sidecar = world.metas / f"{session.id}.user.json"
    sidecar.write_text("{")
    world.run("context-get", ref, code=1)
    assert "move it away" in world.stderr
    assert str(sidecar) in world.stderr


SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"


def test_a_secret_in_a_set_is_told_of_and_written_nowhere_else(world: World) -> None:
    """S2.21: stored to the letter, with a warning; no telemetry, log or answer names it."""
    told = " looks like it holds a secret (anthropic-key); it goes into prompts at a resume"
    items = ["http://h/", f"http://h/?key={SECRET}"]
    with world.daemon():
        session = known(world)
        done = put(world, session.id, "endpoints", *items)
        assert done["warnings"] == [f"item 2 of endpoints{told}"]
        assert SECRET not in json.dumps(done)
        for asked in (
            {"context": {"endpoints": items}},
            {"setContext": {"setName": "endpoints", "items": items}},
            {"setContext": {"endpoints": items}},
        ):
            updated = world.call("update", ref=session.id, **asked)
            assert updated["warnings"] == [f"item 2 of endpoints{told}"]
        hinted = world.call("update", ref=session.id, envHint=f"export KEY={SECRET}")
        assert hinted["warnings"] == [f"envHint{told}"]
        assert context(world, session.id) == {"endpoints": items}
        world.run("context-set", session.id, "ports", SECRET)
        assert f"item 1 of ports{told}" in world.stderr
        assert SECRET not in world.stderr
        assert any(one.get("setName") == "endpoints" for one in world.telemetry())
    held = {
        path.name
        for place in (world.state, world.metas, world.root)
        for path in place.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    }
    assert held == {f"{session.id}.user.json"}
