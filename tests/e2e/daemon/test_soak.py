"""An hour's worth of events in less than a minute must not grow the daemon.

The stored size of the sessions stays level, so growth is a leak. As memory swings (a purge or a
large answer needs some for a moment), the medians of the first and the last third are compared.
`INDEXERD_SOAK_SECONDS` runs it for longer; `-s` shows the figures.
"""

import json
import os
import random
import re
import signal
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import DaemonDownError, IndexerdError
from indexerd.logs import LIMIT_BYTES
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import NEW_PYTHON, Process, Session, World, chat, forget, opencode_rows, until
from tests.sessions.opencode_rows import Rows

LONG = 12  # turns after which a session is replaced
REMEMBERED = 20  # deleted sessions to keep; older ones are purged
WORDS_A_SIDE = 300  # words per message: about 2 KB


class Pi(Session):
    agent = "pi"

    def alter(self, name: str) -> None:
        if self.turns % 2:
            self.entry("session_info", name=name)
        else:  # rename the file
            self.path = self.path.rename(self.path.with_name(f"moved-{self.turns}_{self.id}.jsonl"))


class Claude(ClaudeSession):
    agent = "claude"

    def alter(self, name: str) -> None:
        self.title(name)


class Codex(CodexThread):
    agent = "codex"

    def alter(self, name: str) -> None:
        if self.turns % 3 == 0:
            self.roll_back(1)
        elif self.turns % 3 == 1 or "archived" in str(self.path):
            self.rename(name)
        else:
            self.archive()


class Opencode:
    agent = "opencode"

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.id, self.turns = f"ses_{rows.tick():x}", 0
        self._asked: list[str] = []
        rows.session(self.id, directory="/w")

    def turn(self, text: str) -> None:
        self._asked.append(chat(self._rows, self.id, text))
        self._change("time_updated = time_updated")
        self.turns += 1

    def alter(self, name: str) -> None:
        self._change("title = ?", name)
        if self._asked:
            revert = json.dumps({"messageID": self._asked[-1]}) if self.turns % 2 else None
            self._change("revert = ?", revert)

    def _change(self, what: str, *params: Any) -> None:
        statement = f"UPDATE session SET {what}, time_updated = ? WHERE id = ?"  # noqa: S608 - constant names
        self._rows.run(statement, *params, self._rows.tick(), self.id)


Actor = Pi | Claude | Codex | Opencode
# Events of each kind per 1,000.
SHARES = {"turn": 400, "ask": 440, "alter": 50, "edit_meta": 40, "delete_file": 30}
SHARES |= {"disconnect": 30, "listen": 20, "purge": 8, "reload": 2}
ABOUT = ("tree", "path", "context", "stats", "branches", "family", "footer", "compact", "digest")


class Traffic:
    def __init__(self, world: World, daemon: Process, sessions: int) -> None:
        self.world = world
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._daemon = daemon
        self._random = random.Random(8)
        self._words = [f"{self._random.randrange(16**6):06x}" for _ in range(3000)]
        self._rows = opencode_rows(world)
        self._client = Client(world.socket, timeout=30)
        self._subscribers: list[Client] = []
        self._dead: list[str] = []  # session file deleted, meta file and text kept
        self.actors = [self._new_actor() for _ in range(sessions)]

    def step(self) -> None:
        (kind,) = self._random.choices([*SHARES], [*SHARES.values()])
        self.done[kind] += 1
        try:
            getattr(self, kind)()
        except DaemonDownError:
            raise
        except IndexerdError as bad:  # the session may be gone, busy or ambiguous
            self.refused[bad.kind] += 1

    def turn(self) -> None:
        actor = self._any_actor()
        actor.turn(self._text())
        if actor.turns > LONG:
            self._replace(actor)

    def alter(self) -> None:
        self._any_actor().alter(f"Name {self._text(3)}")

    def delete_file(self) -> None:
        self._replace(self._any_actor())

    def purge(self) -> None:
        actor = self._any_actor()
        if actor.agent != "opencode":  # indexerd never deletes from opencode's database
            self._ask("purge", ref=actor.id, transcript=True)
            self.actors[self.actors.index(actor)] = self._new_actor()

    def edit_meta(self) -> None:
        actor = self._any_actor()
        path = self.world.meta_path(actor.id, actor.agent)
        with suppress(FileNotFoundError, ValueError):
            stored = json.loads(path.read_bytes())
            changed = json.dumps(stored | {"summary": self._text(200)})
            path.write_text(self._random.choice(["{broken", changed, changed]))

    def ask(self) -> None:
        session_id, other = self._any_actor().id, self._any_actor().id
        prompt = f"as in @@{session_id} and @@{other}: which steps?"
        asked = {"question": "Which widget?", "turnId": str(self._random.random())}
        questions: list[tuple[str, dict[str, Any]]] = [
            *((method, {"ref": session_id}) for method in ABOUT),
            ("resolve", {"ref": session_id[:10]}),
            ("history", {"ref": session_id, "full": True}),
            ("list", {"limit": 50, "archived": True}),
            ("expand", {"text": prompt, "sessionId": session_id}),
            ("complete", {"prefix": "name", "cwd": "/w"}),
            ("search", {"query": self._random.choice(self._words)}),
            ("query_session", {"session": session_id} | asked),
            ("index", {"ref": session_id, "force": True}),
            ("update", {"ref": session_id, "title": f"Mine {self._text(2)}"}),
        ]
        method, params = self._random.choice(questions)
        self._ask(method, **params)

    def listen(self) -> None:
        self._subscribers.append(Client(self.world.socket, timeout=30))
        self._subscribers[-1].call("subscribe")
        if len(self._subscribers) > 3:
            self._subscribers.pop(0).close()

    def disconnect(self) -> None:
        request = {"jsonrpc": "2.0", "id": 1, "method": "tree"}
        line = json.dumps(request | {"params": {"ref": self._any_actor().id}}).encode() + b"\n"
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.connect(str(self.world.socket))
            sock.sendall(line[: self._random.choice([len(line), len(line) // 2])])

    def reload(self) -> None:
        self.world.configure(f"[index]\nconcurrency = {self._random.randrange(1, 4)}\n")
        self._daemon.send_signal(signal.SIGHUP)

    def close(self) -> None:
        for client in (*self._subscribers, self._client):
            client.close()

    def _ask(self, method: str, **params: Any) -> Any:
        return self._client.call(method, params)

    def _any_actor(self) -> Actor:
        return self._random.choice(self.actors)

    def _new_actor(self) -> Actor:
        home = self.world.root / "home"
        begin: list[Callable[[], Actor]] = [
            lambda: Pi(self.world.sessions),
            lambda: Claude(home),
            lambda: Codex(home),
            lambda: Opencode(self._rows),
        ]
        actor = self._random.choice(begin)()
        actor.turn(self._text())
        return actor

    def _replace(self, actor: Actor) -> None:
        if isinstance(actor, Opencode):
            forget(self._rows, actor.id)
        else:
            actor.path.unlink()
        self.actors[self.actors.index(actor)] = self._new_actor()
        self._dead.append(actor.id)
        if len(self._dead) > REMEMBERED:
            self._ask("purge", ref=self._dead.pop(0))

    def _text(self, words: int = WORDS_A_SIDE) -> str:
        return " ".join(self._random.choices(self._words, k=words))


pytestmark = [pytest.mark.faults, pytest.mark.timeout(600 + 2 * 3600)]

SESSIONS = 60
WARM, EVENTS, STEP = 1800, 2100, 25  # until memory has settled, measured, and of one sample
SECONDS = float(os.environ.get("INDEXERD_SOAK_SECONDS", "0"))
MB = 1 << 20
GROWTH = 2 * MB  # resident memory per 1,000 events
SWING = 16 * MB  # difference of medians under the same traffic
IDLE_SECONDS, IDLE_TICKS, IDLE_WAKES = 6.0, 30, 240  # CPU ticks of 10 ms, wake-ups of all threads


Sample = dict[str, int]


class Seen:
    """What the kernel shows of the daemon and of its files."""

    def __init__(self, pid: int, state: Path) -> None:
        self._proc = Path(f"/proc/{pid}")
        self._state = state

    def sample(self) -> Sample:
        status = dict(line.split(":", 1) for line in _read(self._proc / "status").splitlines())
        return {
            "rss": int(status["VmRSS"].split()[0]) * 1024,
            "descriptors": len(os.listdir(self._proc / "fd")),
            "threads": int(status["Threads"]),
            "children": sum(len(_read(task / "children").split()) for task in self._tasks()),
            "store": _size(self._state / "store.sqlite"),
            "store's log": _size(self._state / "store.sqlite-wal"),
        }

    def work(self) -> tuple[int, int]:
        ticks = _read(self._proc / "stat").rpartition(")")[2].split()[11:13]
        statuses = "".join(_read(task / "status") for task in self._tasks())
        wakes = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", statuses, re.MULTILINE)
        return sum(map(int, ticks)), sum(map(int, wakes))

    def _tasks(self) -> list[Path]:
        return list((self._proc / "task").iterdir())


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_an_hour_of_traffic_leaks_nothing(world: World) -> None:
    """Memory, descriptors, threads, children, logs and caches stay level, and CPU use ends."""
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "10"
    world.state.mkdir(parents=True)
    line = json.dumps({"ts": "2026-01-01T00:00:00.000Z", "level": "info", "event": "old"}) + "\n"
    (world.state / "log.jsonl").write_text(line * ((LIMIT_BYTES - 50_000) // len(line)))
    with world.daemon(under=NEW_PYTHON) as daemon:
        seen = Seen(daemon.pid, world.state)
        traffic = Traffic(world, daemon, SESSIONS)
        samples = _worked(traffic, seen)
        traffic.close()
        _at_rest(world, traffic, seen)
        _level(samples)
        assert set(traffic.refused) <= {
            "already_running", "ambiguous_reference", "not_found", "session_empty",
            "session_unreadable", "timeout", "write_failed",
        }, traffic.refused  # fmt: skip
        assert traffic.done.keys() >= {"turn", "ask", "purge", "reload"}
        problems = {problem["code"] for problem in world.call("status")["problems"]}
        assert problems <= {"invalid_meta"}
    kept = [*world.root.glob("home/**/*.tmp"), *world.root.glob("data/**/*.tmp")]
    assert kept == []
    _log_is_bounded(world, traffic.done.total())


def _worked(traffic: Traffic, seen: Seen) -> list[Sample]:
    for _ in range(WARM):
        traffic.step()
    end = time.monotonic() + SECONDS
    samples = list[Sample]()
    while len(samples) * STEP < EVENTS or time.monotonic() < end:
        for _ in range(STEP):
            traffic.step()
        samples.append(seen.sample())
    return samples


def _level(samples: list[Sample]) -> None:
    third = len(samples) // 3
    events = (len(samples) - third) * STEP  # from the middle of the first third to that of the last

    def grown(name: str, of: Callable[[list[int]], float]) -> float:
        values = [sample[name] for sample in samples]
        return of(values[-third:]) - of(values[:third])

    rss = grown("rss", statistics.median)
    print(f"\n{rss / events * 1000 / MB:+.2f} MB in 1,000 events; {samples[-1]}")
    assert rss < SWING + GROWTH * events / 1000
    for name, room in {"descriptors": 6, "threads": 2, "store": 2 * MB}.items():
        assert grown(name, max) <= room, name
    assert max(sample["children"] for sample in samples) == 0
    assert max(sample["store's log"] for sample in samples) < 32 * MB


def _at_rest(world: World, traffic: Traffic, seen: Seen) -> None:
    def known() -> bool:
        status = world.call("status")
        rows = world.call("list", archived=True, limit=500)["sessions"]
        there = {row["sessionId"] for row in rows}
        busy = status["queued"] or status["indexing"] or status["textPending"]
        return not busy and {actor.id for actor in traffic.actors if actor.turns} <= there

    until(known, "all sessions in the list, and an empty queue", 60.0)
    until(lambda: _rested(seen), "rest", 60.0)


def _rested(seen: Seen) -> bool:
    before, end = seen.work(), time.monotonic() + IDLE_SECONDS
    until(lambda: time.monotonic() > end, "some seconds")
    ticks, wakes = (after - was for was, after in zip(before, seen.work(), strict=True))
    return ticks <= IDLE_TICKS and wakes <= IDLE_WAKES


def _log_is_bounded(world: World, events: int) -> None:
    logs = sorted(world.state.glob("log.jsonl*"))
    assert [path.name for path in logs] == ["log.jsonl", "log.jsonl.1"]
    assert max(map(_size, logs)) <= LIMIT_BYTES
    assert 0 < _size(logs[0]) < events * 500
    stamps = [json.loads(line)["ts"] for line in logs[0].read_text().splitlines()]
    assert all(earlier <= later for earlier, later in pairwise(stamps))
