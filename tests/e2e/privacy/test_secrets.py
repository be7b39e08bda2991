"""Every kind of secret in every place, and every kind of failure: no secret gets out."""

import json
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from indexerd.client import Client
from indexerd.errors import IndexerdError
from tests.e2e.clients import ClaudeSession
from tests.e2e.world import Session, World, holding, until
from tests.fakes.gemini_server import CANARY
from tests.fakes.openai_server import OpenAIServer
from tests.sessions.canaries import CANARIES, WORD, pem

pytestmark = pytest.mark.faults

# Every place in a session that can contain a secret.
PLACES: dict[str, Callable[[Session, str], object]] = {
    "user": lambda session, text: session.say("user", text),
    "assistant": lambda session, text: session.say("assistant", text, stopReason="stop"),
    "tool": lambda session, text: session.tool("bash", text, command=text),
    "shell": lambda session, text: session.said(
        "bashExecution", command=text, output=text, exitCode=0
    ),
    "label": lambda session, text: session.entry("label", targetId=session.last, label=text),
    "note": lambda session, text: session.entry(
        "custom_message", customType="note", content=text, display=True
    ),
    "name": lambda session, text: session.entry("session_info", name=text),
    "compaction": lambda session, text: session.entry(
        "compaction", summary=text, firstKeptEntryId=session.last, tokensBefore=9
    ),
    "left": lambda session, text: session.entry(
        "branch_summary", fromId=session.last, summary=text
    ),
    "thought": lambda session, text: session.said(
        "assistant", {"type": "thinking", "thinking": text}, stopReason="stop"
    ),
}


PATIENCE = 40.0
KEY = "sk-proj-Quagga0123456789abcdefABCDEF"
SAID = "xylophone"  # part of every sentence in sessions and requests
FAULTS = ("500_json", "401", "403_flagged", "400_format", "200_error")


def write_hostile_sessions(world: World, places: list[str]) -> None:
    for place in places:
        session = Session(world.sessions, session_id=f"place-{place}")
        session.turn(f"Please tune the {SAID}.")
        for text in CANARIES.values():
            PLACES[place](session, f"The {SAID} has {text}")
        for _ in range(5):
            session.turn(f"Tune the {SAID} again.", f"The {SAID} is tuned.")
    word = SAID.encode()
    junk = [
        b'{"type":"message","id":"' + word + b"\n",
        b"\x00" * 40 + word + b"\xff\xfe\n",
        b'{"type":"' + word + b'","id":7,"parentId":{}}\n',
        b"[" * 5000 + word + b"\n",
        b'{"type":"message","message":{"role":"user","content":"' + word * 100_000 + b'"}\n',
    ]
    damaged = next(world.sessions.glob(f"*place-{places[0]}.jsonl"))
    data = damaged.read_bytes()
    damaged.write_bytes(data + b"".join(junk) + data[-300:])
    (world.sessions / f"{SAID}-no-header.jsonl").write_bytes(data[200:900])
    header = {"type": "session", "version": 3, "id": f"../{SAID}", "cwd": f"/{SAID}"}
    (world.sessions / "bad-id.jsonl").write_text(json.dumps(header) + "\n")


def use_provider(world: World, server: OpenAIServer) -> None:
    world.env["INDEXERD_LOG__LEVEL"] = '"debug"'
    world.openai(server, KEY)
    world.env["INDEXERD_MODEL__TIMEOUT_SECONDS"] = "5"


def send_bad_requests(world: World) -> None:
    lines = [
        f'{{"jsonrpc":"2.0","id":1,"method":"{SAID}","params":{{"q":"{WORD}"}}}}',
        f'{{"id":{{}},"method":"search","params":"{SAID} {WORD}"}}',
        f"{SAID} {WORD}",
        f'["{SAID}"',
    ]
    for line in lines:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(str(world.socket))
            sock.sendall(line.encode() + b"\n")
            assert b"error" in sock.recv(65536)
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
            with suppress(IndexerdError):
                client.call(method, params)


def assert_nothing_leaked(world: World) -> None:
    logs = [path for path in world.state.glob("*.jsonl*") if path.is_file()]
    assert world.state / "log.jsonl" in logs
    contents = {path: path.read_bytes().lower() for path in [*logs, world.root / "stderr"]}
    for word in (KEY, WORD, CANARY, "tune the", f"the {SAID}", f"{SAID} is"):
        low = word.lower().encode()
        assert [path.name for path, data in contents.items() if low in data] == [], word
    for word in (KEY, WORD):
        assert holding(word, world.metas, world.root / "data", world.state) == set(), word


def test_no_secret_leaves_its_session(world: World) -> None:
    """All kinds in all places, and many failures: in no request, log at level debug or cache."""
    write_hostile_sessions(world, list(PLACES))
    last = Session(world.sessions)
    with OpenAIServer() as server:
        use_provider(world, server)
        server.script("valid", "malformed", "500_json")
        with world.daemon() as process:
            until(lambda: world.row("place-user").get("userMessageCount"), "the rows")
            places = {f"place-{place}" for place in PLACES}
            until(lambda: {row["sessionId"] for row in world.telemetry()} >= places, "calls")
            send_bad_requests(world)
            nonsense = f'[providers.openai]\napi_key = "{KEY}"\n"{SAID}" = "{WORD}"\n'
            log = world.state / "log.jsonl"
            for text, event in (
                (f"{nonsense}[redact\n", "config.invalid"),
                (nonsense, "config.invalid"),
                ("", "daemon.config_reloaded"),
            ):
                before = log.read_text().count(event)
                world.configure(text)
                process.send_signal(signal.SIGHUP)
                until(lambda e=event, n=before: log.read_text().count(e) > n, "it")
                last.turn(f"And the {SAID}?", f"The {SAID} is fine.")
            send_bad_requests(world)
            until(lambda: world.call("status")["textPending"] == 0, "the texts")
            assert process.poll() is None
        bodies = [request.body.lower() for request in server.requests]
    assert [body for body in bodies if WORD.lower().encode() in body] == []
    assert any(b"[redacted:" in body for body in bodies)
    assert any((world.meta(ref) or {}).get("redactions") for ref in places)
    assert_nothing_leaked(world)


@pytest.mark.parametrize("fault", FAULTS)
def test_failures_of_a_provider_leak_nothing(world: World, fault: str) -> None:
    """Nor do error messages of a provider that quote the key or the session."""
    write_hostile_sessions(world, ["tool"])
    with OpenAIServer() as server:
        use_provider(world, server)
        server.script(*[fault] * 3)
        world.run("run", "--once", "--json", code=None)
        assert server.hits
    (world.root / "stderr").write_text(world.stderr)
    assert_nothing_leaked(world)


BADGE = "zq4417xkcd"


def test_a_new_pattern_removes_its_text_from_the_index(world: World) -> None:
    """The text is neither found nor shown until the pattern is removed again."""
    session = world.session()
    session.turn(f"The badge is {BADGE}, said the porter.")
    asking = ClaudeSession(world.root / "home", cwd=f"/w/{BADGE}/door")
    asking.prompt("Open the door.")
    asking.call("AskUserQuestion", questions=[{"question": f"Is {BADGE} the badge?"}])

    def found(word: str) -> int:
        contents = world.call("search", query=f'"{word}"')
        return (
            -1 if contents.get("warnings") else len(contents["hits"])
        )  # the index is being rebuilt

    with world.daemon() as process:
        until(lambda: found(BADGE) > 0, "the word")
        world.configure('[redact]\nextra_patterns = ["zq[0-9]+[a-z]+"]\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: found(BADGE) == 0 and found("badge") > 0, "an index without it")
        world.call("update", ref=asking.id, tags=[BADGE])
        for row in (world.row(session.id), world.row(asking.id)):
            assert BADGE not in json.dumps(row | row.get("shown", {}))
        assert "[redacted:" in row["question"] + row["ownTags"][0]
        world.configure("")
        process.send_signal(signal.SIGHUP)
        until(lambda: found(BADGE) > 0, "the word again")


JOINED = [
    *(" ", "    ", "\t", "\\n", "\\t", "\r\n", "\r", "\n    ", "\n> ", " > ", "\n# "),
    *("\n// ", '\\n" +\n  "', "\\n'\n  b'", "\nid_rsa:7:", "\n  7→", "\n 7 + ", "\x1b[0m\n\x1b[1m"),
    *("\\" * 40, "<br>", "&#10;", "%0A", " ↵ ", "\n: ", "\n│ ", ". ", "_", "</line>"),
]
ASKED = (
    ("digest", {}),
    ("query_session", {"question": "How is it deployed with way 0?"}),
    ("compact", {"strategy": "codex"}),
    ("compact", {"strategy": "opencode"}),
    ("compact", {"handoff": True}),
)


def test_a_truncated_private_key_is_in_no_prompt(world: World) -> None:
    """S2.21: in a user's message, in cut tool output, or continued in the answer."""
    lines = pem().split("\n")[:-1]
    session = world.session()
    for name, end in enumerate(JOINED):
        session.turn(f"Deploy with way {name}: {end.join(lines)} as I always do.")
        cut = end.join([*lines[:-1], lines[-1][:14]])
        session.tool("bash", f"$ cat key\n{cut}\n\nAnd {end.join(lines)}", command="cat key")
        session.turn(f"The other one: {end.join(lines[:9])}", f"{end.join(lines[9:])} is its end.")
    session.talk(12)
    with OpenAIServer() as server:

        def contents() -> list[bytes]:
            return [
                request.body for request in server.requests if b"as I always do." in request.body
            ]

        world.openai(server)
        with world.daemon():
            world.wait_meta(session.id)
            for method, more in ASKED:
                before = len(contents())
                ref = {"session" if method == "query_session" else "ref": session.id}
                with suppress(IndexerdError):  # the fake always answers an index prompt
                    world.call(method, **ref, **more)
                assert len(contents()) > before, method
        leaked = [request.body for request in server.requests if WORD.encode() in request.body]
    assert leaked == []


LOGS = (
    "2024-01-01 12:00:{n:02} INFO  {line}",
    "2024-01-01 12:00:00,{n:03} info {line}",
    "web-1  | {line}",
    "Jan 01 12:00:00 host app[{n}]: {line}",
)


@pytest.mark.parametrize("lost", ["the first", "the last", "neither"])
def test_a_logged_private_key_is_redacted_to_its_last_line(world: World, lost: str) -> None:
    """S2.21: also without its first or last line; later log lines stay."""
    first, *data, last = pem().split("\n")
    short = "Zq8kXf5uW4A=="
    lines = [*data, short] if lost == "the first" else [first, *data, short]
    lines += [] if lost == "the last" else [last]
    session = world.session()
    for log in LOGS:
        shown = [log.format(n=n, line=line) for n, line in enumerate([*lines, "It is ready."])]
        session.turn("\n".join(["What does it log?", "", *shown]))
    with world.daemon():
        world.seen(session)
        sent = world.call("as_sent", ref=session.id)["user"]
    assert sent.count("It is ready.") == len(LOGS)
    assert sent.count("[redacted:private-key]") == len(LOGS)
    assert WORD not in sent
    assert short not in sent
