"""A temporary home in which sessions, the daemon and the command line run as real processes."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexerd.client import Client
from indexerd.errors import AmbiguousError, IndexerdError, NotFoundError
from tests.e2e.forked import Forked, completed
from tests.e2e.terminal import on_terminal
from tests.fakes.gemini_server import GeminiServer
from tests.fakes.openai_server import OpenAIServer
from tests.sessions.opencode_rows import Rows

PATIENCE = 40.0  # seconds that `until` waits before a test fails
GOOGLE_KEY = "AIza" + "Sy-this-key-must-stay-here-012345"
NOWHERE = "http://127.0.0.1:9"
NEW_PYTHON = ("env",)  # starts a new Python, whose memory and umask are its own
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests/fixtures"
REAL = FIXTURES / "real"
RECORDED = """
[agents.pi]
roots = ["{0}/pi", "{0}/pi-0.30.2-v1", "{0}/pi-0.32.3-v2"]
[agents.claude]
roots = ["{0}/claude"]
[agents.codex]
roots = ["{0}/codex", "{0}/codex-0.120.0"]
[agents.opencode]
roots = ["{0}/opencode"]
"""
SEMANTIC = Path(sys.prefix) / "semantic"  # the packages of that extra


def until(found: Callable[[], Any], what: str = "it", patience: float = PATIENCE) -> Any:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {patience} s")


Process = subprocess.Popen[bytes] | Forked


@contextmanager
def ends_well(process: Process) -> Iterator[None]:
    try:
        yield
        process.terminate()
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Clock:
    now: datetime | None = None  # if set, the stand-ins for clients write this time


clock = Clock()


def stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso() -> str:
    return stamp(clock.now or datetime.now(UTC))


def append(path: Path, *lines: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for line in lines:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


# Ids never repeat. With random ids of this length, 40,000 of them often contain a duplicate.
entry_ids = (f"{number * 2_654_435_761 % 2**32:08x}" for number in itertools.count(1))


class Session:
    def __init__(
        self, folder: Path, cwd: str = "/w", session_id: str | None = None, **header: Any
    ) -> None:
        self.id = session_id or str(uuid.uuid4())
        self.path = folder / f"2026-11-21T10-00-00-000Z_{self.id}.jsonl"
        self.last: str | None = None
        self.turns = 0
        known = {"type": "session", "version": 3, "id": self.id, "timestamp": iso(), "cwd": cwd}
        append(self.path, known | header)

    def entry(self, kind: str, **fields: Any) -> str:
        entry = {"type": kind, "id": next(entry_ids), "parentId": self.last}
        append(self.path, {**entry, "timestamp": iso(), **fields})
        self.last = str(entry["id"])
        return self.last

    def said(self, role: str, *content: dict[str, Any], **more: Any) -> str:
        at = int((clock.now or datetime.now(UTC)).timestamp() * 1000)
        message = {"role": role, "content": list(content), "timestamp": at}
        return self.entry("message", message=message | more)

    def say(self, role: str, text: str, **more: Any) -> str:
        return self.said(role, {"type": "text", "text": text}, **more)

    def answer(self, text: str = "Done.", **more: Any) -> str:
        return self.say("assistant", text, stopReason="stop", **more)

    def turn(self, question: str | None = None, answer: str = "Done.", stop: str = "stop") -> str:
        self.turns += 1
        asked = f"Question {self.turns}: please adjust widget number {self.turns}."
        text = question or f"{asked} Session: {self.id}"
        self.say("user", text)
        return self.say("assistant", answer, stopReason=stop)

    def tool(self, name: str, output: str = "ok", **arguments: Any) -> str:
        call = {"type": "toolCall", "id": f"c{self.last}", "name": name, "arguments": arguments}
        entry = self.said("assistant", call, stopReason="toolUse")
        self.say("toolResult", output, toolCallId=call["id"], toolName=name, isError=False)
        return entry

    def talk(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    def fork(self, folder: Path | None = None, *, copied: bool = False, **options: Any) -> Session:
        fork = Session(folder or self.path.parent, parentSession=str(self.path), **options)
        if copied:
            with fork.path.open("ab") as file:
                file.write(self.path.read_bytes().partition(b"\n")[2])
            fork.last = self.last
        return fork


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.pi = root / "home/.pi/agent"
        self.sessions = self.pi / "sessions/--w--"
        self.metas = self.pi / "sessions-meta"
        self.state = root / "state/indexerd"
        self.config = root / "config/indexerd/indexerd.toml"
        self.socket = root / "s.sock"
        self.script = root / "script.jsonl"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "home"),
            "XDG_CONFIG_HOME": str(root / "config"),
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_DATA_HOME": str(root / "data"),
            "INDEXERD_SOCKET": str(self.socket),
            "INDEXERD_MODEL_KEYS": '["local/extractive"]',
            "INDEXERD_INDEX__QUIET_SECONDS": "0.3",
            "INDEXERD_INDEX__ERROR_QUIET_SECONDS": "4.0",
            "INDEXERD_WATCH__RESCAN_SECONDS": "1.0",
            "PYTHONPATH": str(ROOT),
        }
        (root / "home").mkdir(parents=True)

    def install_pi(self) -> None:
        self.sessions.mkdir(parents=True)

    def session(self, turns: int = 0, **options: Any) -> Session:
        session = Session(self.sessions, **options)
        session.talk(turns)
        return session

    def scripted(self, *lines: dict[str, Any], remote: bool = True) -> None:
        rows = [{"remote": remote, "session": "Session: (\\S+)"}, *lines]
        self.script.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.env["INDEXERD_SCRIPTED"] = str(self.script)
        self.env["INDEXERD_MODEL_KEYS"] = '["scripted/test"]'

    def openai(self, server: OpenAIServer, key: str = "sk-not-one") -> None:
        self.env |= {
            "INDEXERD_OPENAI_API_KEY": key,
            "INDEXERD_MODEL_KEYS": '["openai/gpt-test"]',
            "INDEXERD_PROVIDERS__OPENAI__BASE_URL": json.dumps(server.url),
        }

    def google(self, server: GeminiServer, *keys: str) -> None:
        self.env |= {
            "INDEXERD_GOOGLE_API_KEY": GOOGLE_KEY,
            "INDEXERD_MODEL_KEYS": json.dumps(["google/gemini-3.5-flash-lite", *keys]),
            "INDEXERD_PROVIDERS__GOOGLE__BASE_URL": json.dumps(server.url),
            "INDEXERD_MODEL__TIMEOUT_SECONDS": "20",  # the first call includes loading the SDK
            # Variables of other programs must not be used.
            **dict.fromkeys(("GOOGLE_GEMINI_BASE_URL", "HTTPS_PROXY", "HTTP_PROXY"), NOWHERE),
        }

    def configure(self, text: str) -> None:
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)

    def listen(self, address: str = "127.0.0.1:0") -> None:
        """Let the daemon run the web view there."""
        self.configure(f'[web]\nlisten = "{address}"\n')

    def calls(self) -> list[dict[str, Any]]:
        return _lines(Path(f"{self.script}.calls"))

    def run(self, *argv: str, code: int | None = 0, cwd: Path | None = None) -> Any:
        done = completed(argv, self.env, cwd or self.root)
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        self.stderr = done.stderr.decode()
        self.code = done.returncode
        text = done.stdout.decode()
        return json.loads(text) if "--json" in argv else text

    def on_terminal(
        self, *argv: str, columns: int | None = None, typed: str = "", **env: str
    ) -> str:
        """Return what a command shows on a terminal, in one colour."""
        words = [sys.executable, "-m", "indexerd", "--color", "never", *argv]
        self.code, got = on_terminal(
            words, env=self.env | env, cwd=self.root, columns=columns, typed=typed
        )
        return got.decode().replace("\r\n", "\n")

    def read_once(self, *options: str) -> dict[str, dict[str, Any]]:
        """Have all sessions read once, and return the rows that `list` then shows, by id."""
        self.run("run", "--once", "--json")
        found = self.run("list", "--all", "--json", *options)["sessions"]
        return {row["sessionId"]: row for row in found}

    @contextmanager
    def daemon(
        self, *argv: str, ready: bool = True, under: Sequence[str] = ()
    ) -> Iterator[Process]:
        """Run the daemon for the block, then stop it and check its exit code.

        `under` is a command that becomes the daemon, for example `sh -c '... exec "$@"'`.
        """
        process = self._start("run", *argv, under=under)
        try:
            if ready:
                until(lambda: self._answers(process), "the daemon's start")
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                code = process.wait(30)
                assert code == 0, (code, (self.root / "stderr").read_text())
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, *argv: str, under: Sequence[str]) -> Process:
        errors = self.root / "stderr"
        if not under and self.env["PYTHONPATH"] == str(ROOT):
            return Forked(argv, self.env, self.root, out=None, err=errors)
        command = [*under, sys.executable, "-m", "indexerd", *argv]
        with errors.open("ab") as log:
            return subprocess.Popen(command, env=self.env, stderr=log, cwd=self.root)

    def _answers(self, process: Process) -> bool:
        assert process.poll() is None, (self.root / "stderr").read_text()
        try:
            self.call("hello")
        except IndexerdError:
            return False
        return True

    def call(self, method: str, **params: Any) -> Any:
        with Client(self.socket, timeout=20) as client:
            return client.call(method, params)

    def meta_path(self, session_id: str, agent: str = "pi") -> Path:
        elsewhere = self.root / "data/indexerd/sessions-meta" / agent
        return (self.metas if agent == "pi" else elsewhere) / f"{session_id}.meta.json"

    def meta(self, session_id: str, agent: str = "pi") -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self.meta_path(session_id, agent).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return found

    def row(self, session_id: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.call("get", ref=session_id)["session"]
        except (NotFoundError, AmbiguousError):  # not known yet
            return {}
        return found

    def seen(self, session: Session) -> dict[str, Any]:
        return wait(self, session.id, leafId=session.last)

    def wait_meta(self, session_id: str, check: Callable[[dict[str, Any]], Any] = bool) -> Any:
        def found() -> Any:
            meta = self.meta(session_id)
            return meta if meta and check(meta) else None

        return until(found, f"the meta file of {session_id}")

    def telemetry(self) -> list[dict[str, Any]]:
        return _lines(self.state / "telemetry.jsonl")

    def fingerprint(self) -> dict[str, tuple[str, int]]:
        return {
            str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in sorted(self.pi.glob("sessions/**/*.jsonl"))
        }


def _lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # the last line may still be incomplete
    return [json.loads(line) for line in whole.splitlines()]


def wait(world: World, session_id: str, **wanted: Any) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        row = world.row(session_id)
        return row if row and all(row.get(key) == value for key, value in wanted.items()) else None

    try:
        row: dict[str, Any] = until(found, f"{wanted} of {session_id}")
    except AssertionError:
        raise AssertionError(f"{wanted}, but {world.row(session_id)}") from None
    return row


def scanned(world: World, times: int = 2) -> None:
    for _ in range(times):
        before = world.call("status")["lastScanAt"]
        until(lambda last=before: world.call("status")["lastScanAt"] != last, "a scan")


def let_pass(seconds: float) -> None:
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, "the time")


def logged(world: World, event: str) -> list[dict[str, Any]]:
    return [line for line in _lines(world.state / "log.jsonl") if line["event"] == event]


def listed(world: World, **params: Any) -> list[str]:
    return [row["sessionId"] for row in world.call("list", **params)["sessions"]]


def index_state(world: World, session_id: str) -> str | None:
    """Return how a session's last index run ended, or that it goes on."""
    if not world.row(session_id):
        return None
    status = world.call("get", ref=session_id).get("indexing") or {}
    state: str | None = status.get("state")
    return state


def hit_by(world: World, query: str) -> set[str]:
    return {hit["sessionId"] for hit in world.call("search", query=query)["hits"]}


def pages(world: World, **params: Any) -> Iterator[list[str]]:
    """Yield the ids of each page of a list."""
    page: dict[str, Any] = {"nextCursor": None}
    while "nextCursor" in page:
        page = world.call("list", cursor=page["nextCursor"], **params)
        yield [row["sessionId"] for row in page["sessions"]]


def holding(text: str, *places: Path) -> set[str]:
    """Return the names of the files in these directories that contain a text, in any case."""
    files = (path for place in places for path in place.rglob("*") if path.is_file())
    return {path.name for path in files if text.lower().encode() in path.read_bytes().lower()}


def problems(world: World) -> dict[str, str]:
    return {problem["code"]: problem["cause"] for problem in world.call("status")["problems"]}


def proc(pid: int, file: str, field: str) -> int:
    """Return a figure that the kernel has of a process."""
    found = re.search(rf"(?m)^{field}:\s+(\d+)", Path(f"/proc/{pid}/{file}").read_text())
    assert found, field
    return int(found[1])


def hooked(world: World, code: str) -> None:
    (world.root / "sitecustomize.py").write_text(code)
    world.env["PYTHONPATH"] = f"{world.root}:{world.env['PYTHONPATH']}"


def copy_recorded(world: World) -> Path:
    """Give a world the recorded sessions of every agent; return the directory with the stores."""
    stores = world.root / "stores"
    shutil.copytree(REAL, stores, ignore=shutil.ignore_patterns("pi-oracle", "*checkpointed"))
    world.configure(RECORDED.format(stores))
    return stores


def opencode_rows(world: World) -> Rows:
    path = world.root / "data/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    return Rows(path)


def chat(rows: Rows, session_id: str, text: str) -> str:
    prompt = f"msg_{rows.tick():x}"
    rows.said(session_id, prompt, "user", text)
    rows.said(session_id, f"msg_{rows.tick():x}", "assistant", f"Done: {text}", parentID=prompt)
    return prompt


def forget(rows: Rows, session_id: str) -> None:
    for table, key in (("part", "session_id"), ("message", "session_id"), ("session", "id")):
        rows.run(f"DELETE FROM {table} WHERE {key} = ?", session_id)  # noqa: S608 - ours
