"""No meta file or reference makes indexerd read outside the sessions' directories."""

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.cli.main import run
from indexerd.client import Client
from indexerd.errors import IndexerdError
from tests.e2e.references.expanding import meta
from tests.e2e.world import Session, World

SECRET = "xylophone"
COMMANDS = [("show", "--as-sent"), ("export", "-o", "out.html"), ("tree",), ("context",)]
ASK = ("ask", "Which widget?")


def lure(world: World, path: str, session_id: str) -> None:
    stored = meta(session_id, f"Lure {session_id}", sessionFile=path)
    world.metas.mkdir(exist_ok=True, parents=True)
    world.meta_path(session_id).write_text(json.dumps(stored))


def test_a_meta_file_cannot_point_outside(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`..` in `sessionFile`: no command opens that file, also without a daemon."""
    outside = Session(world.root / "outside")
    outside.turn(f"Where is the {SECRET}?", f"The {SECRET} is here.")
    outside.talk(5)
    hidden = Session(world.pi / "sessions/--hidden--", cwd="/hidden")
    hidden.turn(f"Where is the {SECRET}?", f"The {SECRET} is here.")
    world.env["INDEXERD_PRIVACY__EXCLUDE"] = json.dumps([str(hidden.path)])
    up = f"{world.sessions}/../../../../../outside/{outside.path.name}"
    assert Path(up).samefile(outside.path)
    lure(world, up, outside.id)
    # Nor does a path with `..` evade an exclusion.
    lure(world, f"{world.sessions}/../--hidden--/{hidden.path.name}", hidden.id)
    world.session(turns=5)
    world.run("run", "--once")
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(world.root)
    runs = [(command, outside.id) for command in (*COMMANDS, ASK)] + [(COMMANDS[2], hidden.id)]
    for command, session_id in runs:
        assert run([command[0], session_id, *command[1:]]) != 0, command
        output = capfd.readouterr()
        assert SECRET not in output.out + output.err, command
        assert output.err
    assert not (world.root / "out.html").exists()


HOSTILE: list[Any] = [
    *("../../../../etc/passwd", "/etc/passwd", "a\x00b", "x" * 5000, "%2e%2e%2f", "*", "", ".."),
    *("'; DROP TABLE sessions; --", "\u202e\x1b]0;pwn\x07", 7, None, ["a"], {"$ne": ""}),
    *("\ud800", "\ufdfa" * 500),
]
ENTRIES = [
    value for value in HOSTILE if value not in (None, "")
]  # None and "" mean the current leaf
BY_REF = (
    "as_sent branches context digest family footer get history index path purge resolve stats "
    "tree update compact"
)
BY_SESSION: dict[str, dict[str, Any]] = {
    "query_session": {"question": "why?"},
    "set_relevant_context": {"setName": "files", "items": ["a"]},
    "get_relevant_context": {},
    "resume_context": {},
}
KINDS = {"not_found", "ambiguous_reference", "usage"}


def error_kind(client: Client, method: str, **params: Any) -> str:
    try:
        client.call(method, params)
    except IndexerdError as bad:
        return bad.kind
    return ""


def test_hostile_references_are_refused(world: World) -> None:
    """Every method with a reference or entry id answers with a typed error."""
    session = world.session(turns=5)
    files = {path: path.read_bytes() for path in world.pi.rglob("*.jsonl")}
    with world.daemon() as process:
        world.wait_meta(session.id)
        known = set(world.call("hello")["capabilities"])
        with Client(world.socket, timeout=20) as client:
            for ref in HOSTILE:
                for method in BY_REF.split():
                    assert method in known
                    more = {"title": "x"} if method == "update" else {}
                    assert error_kind(client, method, ref=ref, **more) in KINDS, (method, ref)
                for method, params in BY_SESSION.items():
                    assert error_kind(client, method, session=ref, **params) in KINDS, (method, ref)
            for entry in ENTRIES:
                for method in ("branch", "branch_summary", "compact", "context", "path", "history"):
                    kind = error_kind(client, method, ref=session.id, leaf=entry)
                    assert kind in KINDS, (method, entry)
                kind = error_kind(client, "label", ref=session.id, entryId=entry, text="x")
                assert kind in KINDS, entry
            for ref in ("", " \n", "x" * 5000):
                assert error_kind(client, "resolve", ref=ref) == "usage", ref
            assert client.call("resolve", {"ref": session.id})["sessionId"] == session.id
        assert process.poll() is None
    assert files == {path: path.read_bytes() for path in world.pi.rglob("*.jsonl")}
    log = (world.state / "log.jsonl").read_text()
    assert '"defect"' not in log
