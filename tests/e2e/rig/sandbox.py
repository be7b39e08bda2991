"""Run the real clients in a network that contains only a scripted model.

In a `Sandbox` a client works in a world's home while its daemon watches. `Observer` has the checks
of rows, meta files and calls that all clients share. These tests run only as root and if
`INDEXERD_RIG` names a directory with the clients. A sandbox ends the processes it started.

A network namespace belongs to a thread, so one thread starts every process and sends every request.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import World, until, wait

RIG = Path(os.environ.get("INDEXERD_RIG") or "/nonexistent").absolute()
PORT = 8931
MODEL = f"http://127.0.0.1:{PORT}"
PROJECT = "import sys, lib; lib.make_project(sys.argv[1])"
CLONE_NEWNET = 0x40000000
needed = pytest.mark.skipif(
    not os.environ.get("INDEXERD_RIG"), reason="INDEXERD_RIG names no directory with the clients"
)
# Prompts that the scripted model can answer (scenarios.py of the rig).
FIVE = (
    "Let us design a cache for the forecast results.",
    "Why fifteen minutes?",
    "What about eviction?",
    "Should we persist it to SQLite?",
    "How do we test expiry without sleeping?",
)
FIX = "There is an off-by-one in the moving average. Please fix it and note the change."
FIXED = ("docs/CHANGES.md", "src/forecast.py")  # files that the client then edits
MODES = "Name three failure modes."
LINE = "Summarise the design in one line."
PICK = "Pick a storage layer for alerts."
REDIS = "Branch A: use Redis streams instead."
GROW = "Branch A: how large may a stream grow?"
HELPER = "Ask a helper to review the cache."


def program(client: str, path: str) -> str:
    found = RIG / "clients" / client / "node_modules" / path
    if not found.exists():
        pytest.skip(f"{client} is not installed in {RIG}")
    return str(found)


class Sandbox:
    def __init__(self, world: World, thread: ThreadPoolExecutor) -> None:
        self.world = world
        self.project = world.root / "weathercli"
        self.errors = world.root / "client.err"
        home = {key: world.env[key] for key in world.env if key == "HOME" or key[:4] == "XDG_"}
        self.env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb", **home}
        self._thread = thread
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        with self.errors.open("a") as errors:
            begin = partial(
                subprocess.Popen,
                argv,
                env=self.env | env,
                cwd=self.project,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
            process: subprocess.Popen[str] = self._thread.submit(begin).result()
        self._started.append(process)
        return process

    def run(self, *argv: str, **env: str) -> str:
        process = self.start(*argv, **env)
        output, _ = process.communicate("", timeout=50)
        assert process.returncode == 0, self.errors.read_text()[-2000:]
        return output

    def ask(self, method: str, port: int, path: str, body: Any = None, seconds: float = 50) -> Any:
        return self._thread.submit(_ask, method, port, path, body, seconds).result()

    def answers(self, port: int, path: str) -> bool:
        try:
            self.ask("GET", port, path, seconds=1)
        except OSError:
            return False
        return True

    def prepare(self) -> None:
        subprocess.run(
            [sys.executable, "-B", "-c", PROJECT, self.project], cwd=RIG, check=True, timeout=20
        )
        self.run("ip", "link", "set", "lo", "up")
        logs = self.world.root / "model"
        server = f"{sys.executable} -B {RIG / 'fake_server.py'} {PORT}"
        model = ("sh", "-c", f"exec {server} 2>/dev/null")  # the file of errors is the client's
        self.start(*model, FAKE_CWD=str(self.project), FAKE_LOG=str(logs))
        until(lambda: self.answers(PORT, "/health"), "the scripted model")

    def bodies(self) -> list[dict[str, Any]]:
        dumps = sorted((self.world.root / "model").glob("*.json"))
        bodies = [json.loads(path.read_text())["body"] for path in dumps]
        return [body for body in bodies if body.get("tools")]

    def close(self) -> None:
        for process in self._started:
            with process, suppress(ProcessLookupError):  # the process group may have ended
                os.killpg(process.pid, signal.SIGKILL)


def _ask(method: str, port: int, path: str, body: Any, seconds: float) -> Any:
    data = None if body is None else json.dumps(body)
    with closing(HTTPConnection("127.0.0.1", port, timeout=seconds)) as server:
        server.request(method, path, data, {"content-type": "application/json"})
        answer = server.getresponse()
        content = answer.read()
    assert answer.status < 400, (method, path, answer.status, content[:500])
    return json.loads(content) if content else None


def _leave_network() -> bool:
    return bool(ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0)


@contextmanager
def sandbox(world: World) -> Iterator[Sandbox]:
    with ThreadPoolExecutor(1) as thread:
        if not thread.submit(_leave_network).result():
            pytest.skip("a network namespace needs root")
        created = Sandbox(world, thread)
        try:
            created.prepare()
            yield created
        finally:
            created.close()


class Observer:
    def __init__(self, world: World, agent: str) -> None:
        self.world = world
        self.agent = agent

    def sees(self, session_id: str, **wanted: Any) -> dict[str, Any]:
        return wait(self.world, session_id, **wanted)

    def indexed(self, session_id: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def covered() -> bool:
            row = self.world.row(session_id)
            found.update(self.world.meta(session_id) or {})
            titled = row.get("name") in {row.get("agentTitle"), found.get("name")}
            shown = (row.get("userMessageCount"), row.get("newUserMessages"))
            return titled and shown == (found.get("userMessageCount"), 0)

        until(covered, f"the whole meta file of {session_id}")
        assert (found["agent"], found["sessionId"]) == (self.agent, session_id)
        return found

    def paid(self, **calls: int) -> None:
        def idle() -> bool:
            status = self.world.call("status")
            return not status["queued"] and not status["indexing"]

        until(idle, "rest")
        rows = [row for row in self.world.telemetry() if row["customType"] == "session-index:index"]
        assert all(row["success"] for row in rows)
        sent = [row["sessionId"] for row in rows]
        assert calls == {prompt: sent.count(prompt) for prompt in sorted({*sent})}


@contextmanager
def watched(world: World, agent: str) -> Iterator[tuple[Sandbox, Observer]]:
    world.metas = world.root / "data/indexerd/sessions-meta" / agent
    with sandbox(world) as client_box, world.daemon():
        assert not any((world.root / "home").iterdir()), (
            "the daemon must create nothing in the agents' home"
        )
        yield client_box, Observer(world, agent)
