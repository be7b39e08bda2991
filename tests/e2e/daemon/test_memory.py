"""What a large session costs the daemon: little while it is read, nothing a minute later."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from indexerd.client import Client
from indexerd.errors import ContextTooLargeError, SessionEmptyError
from tests.e2e.world import World, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc"),
]

RESULTS, SIZE = 200, 1_000_000  # of a tool, and characters of each
MORE_MB = 60  # that any one operation may take
BACK_MB = 20  # that may stay, of all of them: what is free between what is in use
MANY_BACK_MB = 40  # the same of very many small entries: pages that some small thing is left on
LINE = "src/importer/feed.py:120:    amount = checked(row)  # a line that a tool printed\n"
OUTPUT = (LINE * (SIZE // len(LINE) + 1))[:SIZE]
AT = "2026-11-21T10:00:00.000Z"
Line = dict[str, Any]


class Pi:
    def __init__(self, world: World, session_id: str) -> None:
        self.path = world.sessions / f"2026-11-21T10-00-00-000Z_{session_id}.jsonl"
        self.head = {"type": "session", "version": 3, "id": session_id, "timestamp": AT}
        self.head |= {"cwd": "/w"}
        self.rows = 0

    def turn(self, output: str) -> Iterator[Line]:
        call = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "make"}}
        yield self._said("user", [_text(f"Please adjust row {self.rows}.")])
        if output:
            yield self._said("assistant", [call], stopReason="toolUse")
            yield self._said("toolResult", [_text(output)], toolCallId="c", toolName="bash")
        yield self._said("assistant", [_text("We decided to adjust it.")], stopReason="stop")

    def _said(self, role: str, content: list[Line], **more: Any) -> Line:
        self.rows += 1
        above = f"{self.rows - 1:08x}" if self.rows > 1 else None
        message = {"role": role, "content": content, **more}
        known = {"type": "message", "id": f"{self.rows:08x}", "parentId": above, "timestamp": AT}
        return known | {"message": message}


class Claude:
    """The output stands twice on its line."""

    def __init__(self, world: World, session_id: str) -> None:
        self.path = world.root / f"home/.claude/projects/-w/{session_id}.jsonl"
        self.head: Line = {}
        self.id, self.last, self.turns = session_id, "", 0

    def turn(self, output: str) -> Iterator[Line]:
        call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make"}}
        result = {"tool_use_id": "toolu_1", "type": "tool_result", "content": output}
        self.turns += 1
        yield self._line("user", f"Please adjust row {self.turns}.")
        if output:
            yield self._line("assistant", [call], stop_reason="tool_use")
            stdout = {"toolUseResult": {"stdout": output, "stderr": ""}}
            yield self._line("user", [result]) | stdout
        yield self._line("assistant", [_text("We decided to adjust it.")], stop_reason="end_turn")

    def _line(self, role: str, content: Any, **more: str) -> Line:
        above, self.last = self.last or None, str(uuid.uuid4())
        message = {"role": role, "content": content, "id": f"msg_{self.last}", **more}
        known = {"parentUuid": above, "isSidechain": False, "cwd": "/w", "sessionId": self.id}
        known |= {"version": "2.1.0", "type": role, "message": message}
        return known | {"uuid": self.last, "timestamp": AT}


class Codex:
    def __init__(self, world: World, session_id: str) -> None:
        folder = world.root / "home/.codex/sessions/2026/11/21"
        self.path = folder / f"rollout-2026-11-21T10-00-00-{session_id}.jsonl"
        about = {"id": session_id, "timestamp": AT, "cwd": "/w", "cli_version": "0.140.0"}
        self.head = _codex("session_meta", about | {"originator": "codex_cli_rs", "source": "cli"})

    def turn(self, output: str) -> Iterator[Line]:
        asked, answer = "Please adjust the importer.", "We decided to adjust it."
        call = {"type": "function_call", "name": "shell", "arguments": '{"command":["make"]}'}
        yield _codex("response_item", _message("user", "input_text", asked))
        yield _codex("event_msg", {"type": "user_message", "message": asked})
        if output:
            yield _codex("response_item", call | {"call_id": "c"})
            result = {"type": "function_call_output", "call_id": "c", "output": output}
            yield _codex("response_item", result)
        yield _codex("response_item", _message("assistant", "output_text", answer))
        yield _codex("event_msg", {"type": "task_complete", "last_agent_message": answer})


def _text(text: str) -> Line:
    return {"type": "text", "text": text}


def _codex(kind: str, payload: Line) -> Line:
    return {"timestamp": AT, "type": kind, "payload": payload}


def _message(role: str, kind: str, text: str) -> Line:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


Agent = Pi | Claude | Codex


def grow(session: Agent, turns: int, output: str = "") -> None:
    session.path.parent.mkdir(parents=True, exist_ok=True)
    with session.path.open("a", encoding="utf-8") as file:
        if session.head:
            file.write(json.dumps(session.head) + "\n")
            session.head = {}
        for _ in range(turns):
            file.writelines(json.dumps(line) + "\n" for line in session.turn(output))


class Memory:
    def __init__(self, pid: int) -> None:
        self._of = Path(f"/proc/{pid}")

    def now(self) -> float:
        return self._field("VmRSS")

    def most_of(self, work: Callable[[], Any]) -> float:
        before = self.now()
        (self._of / "clear_refs").write_text("5")
        work()
        return self._field("VmHWM") - before

    def _field(self, name: str) -> float:
        found = re.search(rf"{name}:\s+(\d+)", (self._of / "status").read_text())
        assert found
        return int(found[1]) / 1024


def wait_turns(world: World, session_id: str, count: int) -> None:
    until(lambda: world.row(session_id).get("userMessageCount") == count, "the turns", patience=60)


ASKED: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in ("stats", "digest", "tree", "branches", "path", "context")),
    *(("compact", {"strategy": strategy}) for strategy in ("pi", "codex", "opencode")),
    ("compact", {"handoff": True}),
    ("index", {"force": True, "wait": True}),
    ("history", {"full": True}),
    ("context", {"serialize": True}),
    ("query_session", {"question": "What was decided?"}),
]


def ask(world: World, session_id: str, method: str, params: dict[str, Any]) -> None:
    key = "session" if method == "query_session" else "ref"
    with Client(world.socket, timeout=60) as client:
        client.call(method, params | {key: session_id})


@pytest.mark.parametrize("agent", [Pi, Claude, Codex])
def test_a_session_of_200_mb_takes_no_more_memory_than_a_small_one(
    world: World, agent: type[Agent]
) -> None:
    """F8: a digest by itself, summaries, questions, views: bounded, and given back."""
    small_id, large_id = str(uuid.uuid4()), str(uuid.uuid4())
    small, large = agent(world, small_id), agent(world, large_id)
    grow(small, 40, "a few words")
    grow(large, RESULTS, OUTPUT)
    with world.daemon() as process:
        memory, counts = Memory(process.pid), dict[str, float]()
        wait_turns(world, small_id, 40)
        wait_turns(world, large_id, RESULTS)
        for method, params in ASKED:  # loads what is loaded when it is asked for
            with suppress(SessionEmptyError):
                ask(world, small_id, method, params)
        started = memory.now()

        def digested() -> None:
            for _ in range(10):
                grow(large, 1)
            until(lambda: world.call("get", ref=large_id)["digest"]["segments"], "a digest")

        counts["a digest by itself"] = memory.most_of(digested)
        grow(large, 30)
        wait_turns(world, large_id, RESULTS + 40)
        for method, params in ASKED:
            with suppress(ContextTooLargeError):
                work = partial(ask, world, large_id, method, params)
                counts[f"{method} {params}"] = memory.most_of(work)
        assert not {name: more for name, more in counts.items() if more > MORE_MB}
        until(lambda: memory.now() < started + BACK_MB, "giving it back", patience=60)


def test_a_context_of_very_many_entries_takes_no_more(world: World) -> None:
    """F8: a context of more entries than any model takes is refused, and the rest is given back."""
    small_id, large_id = str(uuid.uuid4()), str(uuid.uuid4())
    small, large = Pi(world, small_id), Pi(world, large_id)
    grow(small, 40, "a few words")
    grow(large, 9_000, "a few words")
    with world.daemon() as process:
        memory, counts = Memory(process.pid), dict[str, float]()
        wait_turns(world, small_id, 40)
        wait_turns(world, large_id, 9_000)
        for method, params in ASKED:
            with suppress(SessionEmptyError):
                ask(world, small_id, method, params)
        started = memory.now()
        refused = list[str]()
        for method, params in ASKED:
            try:
                work = partial(ask, world, large_id, method, params)
                counts[f"{method} {params}"] = memory.most_of(work)
            except ContextTooLargeError:
                refused.append(method)
        assert set(refused) == {"compact", "context", "stats"}  # of `context` the serialized one
        assert not {name: more for name, more in counts.items() if more > MORE_MB}
        until(lambda: memory.now() < started + MANY_BACK_MB, "giving it back", patience=60)
