"""A home of its own for the real program: sessions, daemon, command line, all as processes."""

from __future__ import annotations

import hashlib
import json
import os
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
from indexerd.errors import IndexerdError, NotFoundError
from tests.sessions.opencode_rows import Rows

PATIENCE = 20.0  # seconds any one thing may take before a test fails
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests/fixtures"
REAL = FIXTURES / "real"
SHARED = ROOT.parent / "shared/fixtures"  # public data beside the checkout, where it is there


def until(found: Callable[[], Any], what: str = "it", patience: float = PATIENCE) -> Any:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {patience} s")


@contextmanager
def ends_well(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
        process.terminate()
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Session:
    def __init__(self, folder: Path, cwd: str = "/w", session_id: str | None = None) -> None:
        self.id = session_id or str(uuid.uuid4())
        self.path = folder / f"2026-11-21T10-00-00-000Z_{self.id}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.last: str | None = None
        self.turns = 0
        self._append(
            {"type": "session", "version": 3, "id": self.id, "timestamp": _iso(), "cwd": cwd}
        )

    def entry(self, kind: str, **fields: Any) -> str:
        entry = {"type": kind, "id": uuid.uuid4().hex[:8], "parentId": self.last}
        self._append({**entry, "timestamp": _iso(), **fields})
        self.last = str(entry["id"])
        return self.last

    def say(self, role: str, text: str, **more: Any) -> str:
        said = {"role": role, "content": [{"type": "text", "text": text}], **more}
        return self.entry("message", message=said | {"timestamp": int(time.time() * 1000)})

    def turn(self, question: str | None = None, answer: str = "Done.", stop: str = "stop") -> str:
        self.turns += 1
        asked = f"Question {self.turns}: please adjust widget number {self.turns}."
        text = question or f"{asked} Session: {self.id}"
        self.say("user", text)
        return self.say("assistant", answer, stopReason=stop)

    def tool(self, name: str, output: str = "ok", **arguments: Any) -> str:
        """A call of a tool, and its result; the call's entry."""
        call = {"type": "toolCall", "id": f"c{self.last}", "name": name, "arguments": arguments}
        said = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
        entry = self.entry("message", message=said)
        self.say("toolResult", output, toolCallId=call["id"], toolName=name, isError=False)
        return entry

    def talk(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")


def _iso() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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

    # -- set-up --------------------------------------------------------------------------

    def session(self, turns: int = 0, **options: Any) -> Session:
        session = Session(self.sessions, **options)
        session.talk(turns)
        return session

    def scripted(self, *lines: dict[str, Any], remote: bool = True) -> None:
        rows = [{"remote": remote, "session": "Session: (\\S+)"}, *lines]
        self.script.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.env["INDEXERD_SCRIPTED"] = str(self.script)
        self.env["INDEXERD_MODEL_KEYS"] = '["scripted/test"]'

    def calls(self) -> list[dict[str, Any]]:
        path = Path(f"{self.script}.calls")
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    # -- running -------------------------------------------------------------------------

    def run(self, *argv: str, code: int | None = 0, cwd: Path | None = None) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "indexerd", *argv],
            env=self.env,
            cwd=cwd or self.root,
            capture_output=True,
            timeout=50,
            check=False,
        )
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        self.stderr = done.stderr.decode()
        self.code = done.returncode
        text = done.stdout.decode()
        return json.loads(text) if "--json" in argv else text

    @contextmanager
    def daemon(
        self, *argv: str, ready: bool = True, under: Sequence[str] = ()
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A running daemon; ended, and its exit code checked, when the block ends.

        `under`: a command that becomes the daemon, which is given to it as further words.
        """
        log = (self.root / "stderr").open("ab")
        process = subprocess.Popen(
            [*under, sys.executable, "-m", "indexerd", "run", *argv],
            env=self.env,
            stderr=log,
            cwd=self.root,
        )
        try:
            if ready:
                until(lambda: self._answers(process), "the daemon's start")
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0
        finally:
            log.close()
            if process.poll() is None:
                process.kill()
                process.wait()

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, (self.root / "stderr").read_text()
        try:
            self.call("hello")
        except IndexerdError:
            return False
        return True

    def call(self, method: str, **params: Any) -> Any:
        with Client(self.socket, timeout=20) as client:
            return client.call(method, params)

    # -- looking -------------------------------------------------------------------------

    def meta(self, session_id: str) -> dict[str, Any] | None:
        path = self.metas / f"{session_id}.meta.json"
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return found

    def row(self, session_id: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.call("get", ref=session_id)["session"]
        except NotFoundError:
            return {}
        return found

    def wait_meta(self, session_id: str, check: Callable[[dict[str, Any]], Any] = bool) -> Any:
        def found() -> Any:
            meta = self.meta(session_id)
            return meta if meta and check(meta) else None

        return until(found, f"the meta file of {session_id}")

    def telemetry(self) -> list[dict[str, Any]]:
        path = self.state / "telemetry.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def fingerprint(self) -> dict[str, tuple[str, int]]:
        return {
            str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in sorted(self.pi.glob("sessions/**/*.jsonl"))
        }


def wait(world: World, session_id: str, **wanted: Any) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        row = world.row(session_id)
        return row if row and all(row.get(key) == one for key, one in wanted.items()) else None

    try:
        row: dict[str, Any] = until(found, f"{wanted} of {session_id}")
    except AssertionError:
        raise AssertionError(f"{wanted}, but {world.row(session_id)}") from None
    return row


def scanned(world: World, times: int = 2) -> None:
    for _ in range(times):
        before = world.call("status")["lastScanAt"]
        until(lambda last=before: world.call("status")["lastScanAt"] != last, "a scan")


def logged(world: World, event: str) -> list[dict[str, Any]]:
    path = world.state / "log.jsonl"
    lines = map(json.loads, path.read_text().splitlines() if path.exists() else ())
    return [line for line in lines if line["event"] == event]


def hit_by(world: World, query: str) -> set[str]:
    return {one["sessionId"] for one in world.call("search", query=query)["hits"]}


def problems(world: World) -> dict[str, str]:
    return {one["code"]: one["cause"] for one in world.call("status")["problems"]}


def hooked(world: World, code: str) -> None:
    (world.root / "sitecustomize.py").write_text(code)
    world.env["PYTHONPATH"] = f"{world.root}:{world.env['PYTHONPATH']}"


def opencode_rows(world: World) -> Rows:
    data = world.root / "data/opencode"
    data.mkdir(parents=True)
    return Rows(data / "opencode.db")
