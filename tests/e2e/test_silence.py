"""The whole program at its most talkative, with everything going wrong: no word of it is told."""

from __future__ import annotations

import json
import signal
import socket
from functools import partial
from pathlib import Path

import pytest

from indexerd.client import Client
from indexerd.errors import IndexerdError
from tests.e2e.test_secrets import PLACES
from tests.e2e.world import Session, World, until
from tests.fakes.gemini_server import CANARY
from tests.fakes.openai_server import OpenAIServer
from tests.sessions.canaries import CANARIES, WORD

pytestmark = pytest.mark.faults

PATIENCE = 40.0
KEY = "sk-proj-Quagga0123456789abcdefABCDEF"
SAID = "xylophone"  # in every sentence of every session, question and request
FAULTS = ("500_json", "401", "403_flagged", "400_format", "200_error")


def hostile(world: World, places: list[str]) -> None:
    """Sessions with secrets everywhere, the first of them damaged; others of the wrong form."""
    for place in places:
        session = Session(world.sessions, session_id=f"place-{place}")
        session.turn(f"Please tune the {SAID}.")
        for text in CANARIES.values():
            PLACES[place](session, f"The {SAID} has {text}")
        for _ in range(5):
            session.turn(f"Tune the {SAID} again.", f"The {SAID} is tuned.")
    said = SAID.encode()
    junk = [
        b'{"type":"message","id":"' + said + b"\n",
        b"\x00" * 40 + said + b"\xff\xfe\n",
        b'{"type":"' + said + b'","id":7,"parentId":{}}\n',
        b"[" * 5000 + said + b"\n",
        b'{"type":"message","message":{"role":"user","content":"' + said * 100_000 + b'"}\n',
    ]
    damaged = next(world.sessions.glob(f"*place-{places[0]}.jsonl"))
    data = damaged.read_bytes()
    damaged.write_bytes(data + b"".join(junk) + data[-300:])
    (world.sessions / f"{SAID}-no-header.jsonl").write_bytes(data[200:900])
    header = {"type": "session", "version": 3, "id": f"../{SAID}", "cwd": f"/{SAID}"}
    (world.sessions / "bad-id.jsonl").write_text(json.dumps(header) + "\n")


def provided(world: World, server: OpenAIServer) -> None:
    """Configure the fake, with a key."""
    world.env["INDEXERD_LOG__LEVEL"] = '"debug"'
    world.env["INDEXERD_OPENAI_API_KEY"] = KEY
    world.env["INDEXERD_MODEL_KEYS"] = json.dumps(["openai/gpt-test"])
    world.env["INDEXERD_PROVIDERS__OPENAI__BASE_URL"] = json.dumps(server.url)
    world.env["INDEXERD_MODEL__TIMEOUT_SECONDS"] = "5"


def pester(world: World) -> None:
    """Requests that are no JSON, of no known method, with wrong parameters; then known ones."""
    lines = [
        f'{{"jsonrpc":"2.0","id":1,"method":"{SAID}","params":{{"q":"{WORD}"}}}}',
        f'{{"id":{{}},"method":"search","params":"{SAID} {WORD}"}}',
        f"{SAID} {WORD}",
        f'["{SAID}"',
    ]
    for line in lines:
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(PATIENCE)
            one.connect(str(world.socket))
            one.sendall(line.encode() + b"\n")
            assert b"error" in one.recv(65536)
    with Client(world.socket, timeout=PATIENCE) as client:
        for method, params in (
            ("search", {"query": f"{SAID} {CANARIES['openai-key']}"}),
            ("search", {"query": SAID * 1000}),
            ("resolve", {"ref": f"{SAID} {WORD}"}),
            ("get", {"ref": f"{SAID}\x1b[31m"}),
            ("expand", {"prompt": f"@@{SAID} {WORD}", "cwd": "/w"}),
            ("query_session", {"session": "place-user", "question": f"Which {SAID}?"}),
            ("tree", {"ref": "place-user"}),
            ("update", {"ref": "place-user", "title": {SAID: WORD}}),
            ("label", {"ref": "place-user", "entryId": SAID, "text": WORD}),
        ):
            try:
                client.call(method, params)
            except IndexerdError:
                continue


def assert_silent(world: World) -> None:
    """No log, audit or stream holds a sentence, and nothing of ours a secret or a key."""
    logs = [path for path in world.state.glob("*.jsonl*") if path.is_file()]
    assert world.state / "log.jsonl" in logs
    told = {path: path.read_bytes().lower() for path in [*logs, world.root / "stderr"]}
    for word in (KEY, WORD, CANARY, "tune the", f"the {SAID}", f"{SAID} is"):
        low = word.lower().encode()
        assert [path.name for path, data in told.items() if low in data] == [], word
    ours = [world.metas, world.root / "data", world.state]
    kept = [path for place in ours for path in place.rglob("*") if path.is_file()]
    for word in (KEY, WORD):
        low = word.lower().encode()
        assert [path for path in kept if low in path.read_bytes().lower()] == [], word


def test_no_fault_of_a_daemon_tells_what_was_said(world: World) -> None:
    """X11: at level debug, whatever goes wrong: no key, secret or sentence in a log or stream.

    And no secret in anything that we keep. Sessions are damaged and full of secrets, an answer is
    bad, requests are junk, and a reload finds nonsense with a key in it.
    """
    hostile(world, list(PLACES))
    last = Session(world.sessions)
    with OpenAIServer() as server:
        provided(world, server)
        server.script("valid", "malformed", "500_json")
        with world.daemon() as process:
            until(lambda: world.row("place-user").get("userMessageCount"), "the rows", PATIENCE)
            until(lambda: server.hits >= 2, "calls", PATIENCE)
            pester(world)
            world.config.parent.mkdir(parents=True, exist_ok=True)
            nonsense = f'[providers.openai]\napi_key = "{KEY}"\n"{SAID}" = "{WORD}"\n'
            log = world.state / "log.jsonl"
            for text, event in (
                (f"{nonsense}[redact\n", "config.invalid"),
                (nonsense, "config.invalid"),
                ("", "daemon.config_reloaded"),
            ):
                before = log.read_text().count(event)
                world.config.write_text(text)
                process.send_signal(signal.SIGHUP)
                until(partial(told_again, log, event, before), "the reload", PATIENCE)
                last.turn(f"And the {SAID}?", f"The {SAID} is fine.")
            pester(world)
            until(lambda: world.call("status")["textPending"] == 0, "the texts", PATIENCE)
            assert process.poll() is None
    assert_silent(world)


def told_again(log: Path, event: str, before: int) -> bool:
    """Whether an event is in the log once more."""
    return log.read_text().count(event) > before


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_a_provider_tells_what_was_said(world: World, fault: str) -> None:
    """X11: the same where a provider fails, with words of its own, or of the session, to say so."""
    hostile(world, ["tool"])
    with OpenAIServer() as server:
        provided(world, server)
        server.script(*[fault] * 3)
        world.run("run", "--once", "--json", code=None)
        assert server.hits
    (world.root / "stderr").write_text(world.stderr)
    assert_silent(world)
