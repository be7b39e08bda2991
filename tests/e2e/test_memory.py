"""What a large session costs the daemon: little while it is read, nothing a minute later."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
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
LINE = "src/importer/feed.py:120:    amount = checked(row)  # a line that a tool printed\n"
OUTPUT = (LINE * (SIZE // len(LINE) + 1))[:SIZE]
AT = "2026-11-21T10:00:00.000Z"
Line = dict[str, Any]


class Pi:
    """A session of pi; it grows by turns, with a tool's output in them or none."""

    def __init__(self, world: World, session_id: str) -> None:
        self.path = world.sessions / f"2026-11-21T10-00-00-000Z_{session_id}.jsonl"
        self.head = {"type": "session", "version": 3, "id": session_id, "timestamp": AT}
        self.head |= {"cwd": "/w"}
        self.rows, self.asked = 0, ""

    def turn(self, output: str) -> Iterator[Line]:
        """The lines of one turn."""
        call = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "make"}}
        yield self._said("user", [_text(f"Please adjust row {self.rows}. {self.asked}")])
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
    """One of Claude Code: the output stands twice on its line."""

    def __init__(self, world: World, session_id: str) -> None:
        self.path = world.root / f"home/.claude/projects/-w/{session_id}.jsonl"
        self.head: Line = {}
        self.id, self.last, self.turns = session_id, "", 0

    def turn(self, output: str) -> Iterator[Line]:
        """The lines of one turn."""
        call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make"}}
        result = {"tool_use_id": "toolu_1", "type": "tool_result", "content": output}
        self.turns += 1
        yield self._line("user", {"role": "user", "content": f"Please adjust row {self.turns}."})
        if output:
            yield self._answer([call], "tool_use")
            line = self._line("user", {"role": "user", "content": [result]})
            yield line | {"toolUseResult": {"stdout": output, "stderr": ""}}
        yield self._answer([_text("We decided to adjust it.")], "end_turn")

    def _answer(self, content: list[Line], stop: str) -> Line:
        message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant"}
        return self._line("assistant", message | {"content": content, "stop_reason": stop})

    def _line(self, kind: str, message: Line) -> Line:
        above, self.last = self.last or None, str(uuid.uuid4())
        known = {"parentUuid": above, "isSidechain": False, "cwd": "/w", "sessionId": self.id}
        known |= {"version": "2.1.0", "type": kind, "message": message}
        return known | {"uuid": self.last, "timestamp": AT}


class Codex:
    """One of Codex."""

    def __init__(self, world: World, session_id: str) -> None:
        folder = world.root / "home/.codex/sessions/2026/11/21"
        self.path = folder / f"rollout-2026-11-21T10-00-00-{session_id}.jsonl"
        about = {"id": session_id, "timestamp": AT, "cwd": "/w", "cli_version": "0.140.0"}
        self.head = _line("session_meta", about | {"originator": "codex_cli_rs", "source": "cli"})

    def turn(self, output: str) -> Iterator[Line]:
        """The lines of one turn."""
        asked, answer = "Please adjust the importer.", "We decided to adjust it."
        call = {"type": "function_call", "name": "shell", "arguments": '{"command":["make"]}'}
        yield _line("response_item", _message("user", "input_text", asked))
        yield _line("event_msg", {"type": "user_message", "message": asked})
        if output:
            yield _line("response_item", call | {"call_id": "c"})
            result = {"type": "function_call_output", "call_id": "c", "output": output}
            yield _line("response_item", result)
        yield _line("event_msg", {"type": "agent_message", "message": answer})
        yield _line("response_item", _message("assistant", "output_text", answer))
        yield _line("event_msg", {"type": "task_complete", "last_agent_message": answer})


def _text(text: str) -> Line:
    return {"type": "text", "text": text}


def _line(kind: str, payload: Line) -> Line:
    return {"timestamp": AT, "type": kind, "payload": payload}


def _message(role: str, kind: str, text: str) -> Line:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


Agent = Pi | Claude | Codex
AGENTS: tuple[type[Agent], ...] = (Pi, Claude, Codex)


def grow(session: Agent, turns: int, output: str = "") -> None:
    """Append turns, one write each."""
    session.path.parent.mkdir(parents=True, exist_ok=True)
    with session.path.open("a", encoding="utf-8") as file:
        if session.head:
            file.write(json.dumps(session.head) + "\n")
            session.head = {}
        for _ in range(turns):
            file.writelines(json.dumps(line) + "\n" for line in session.turn(output))


class Memory:
    """A process's memory, in megabytes."""

    def __init__(self, pid: int) -> None:
        self._of = Path(f"/proc/{pid}")

    def now(self) -> float:
        """What it takes."""
        return self._field("VmRSS")

    def most_of(self, work: Callable[[], Any]) -> float:
        """How much more than before it took at most, while that was done."""
        before = self.now()
        (self._of / "clear_refs").write_text("5")
        work()
        return self._field("VmHWM") - before

    def _field(self, name: str) -> float:
        found = re.search(rf"{name}:\s+(\d+)", (self._of / "status").read_text())
        assert found
        return int(found[1]) / 1024


def wait_turns(world: World, session_id: str, count: int) -> None:
    """So many turns of a session are known."""
    until(lambda: world.row(session_id).get("userMessageCount") == count, "the turns", patience=60)


def operations(world: World, session_id: str) -> dict[str, Callable[[], Any]]:
    """All that reads a session for somebody."""

    def asked(method: str, **params: Any) -> Callable[[], Any]:
        def ask() -> Any:
            with Client(world.socket, timeout=60) as client:
                return client.call(method, params)

        return ask

    ref = {"ref": session_id}
    asks = {method: asked(method, **ref) for method in ("stats", "digest", "tree", "branches")}
    for strategy in ("pi", "codex", "opencode"):
        asks[f"compact by {strategy}"] = asked("compact", **ref, strategy=strategy)
    return asks | {
        "index": asked("index", **ref, force=True, wait=True),
        "hand-off": asked("compact", **ref, handoff=True),
        "question": asked("query_session", session=session_id, question="What was decided?"),
        "history": asked("history", **ref, full=True),
        "path": asked("path", **ref),
        "context": asked("context", **ref),
        "serialized": asked("context", **ref, serialize=True),
    }


@pytest.mark.parametrize("agent", AGENTS)
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
        for work in operations(world, small_id).values():  # loads what is loaded when it is asked
            with suppress(SessionEmptyError):
                work()
        started = memory.now()

        def digested() -> None:
            for _ in range(10):
                grow(large, 1)
            until(lambda: world.call("get", ref=large_id)["digest"]["segments"], "a digest")

        counts["a digest by itself"] = memory.most_of(digested)
        grow(large, 30)
        wait_turns(world, large_id, RESULTS + 40)
        for name, work in operations(world, large_id).items():
            with suppress(ContextTooLargeError):
                counts[name] = memory.most_of(work)
        assert not {name: more for name, more in counts.items() if more > MORE_MB}
        until(lambda: memory.now() < started + BACK_MB, "giving it back", patience=60)


def test_a_digest_of_very_much_comes_in_several_segments(world: World) -> None:
    """S2.3-S2.5: each covers what is read at once, and the next goes on there by itself."""
    session_id = str(uuid.uuid4())
    session = Pi(world, session_id)
    with world.daemon():
        grow(session, 1)
        wait_turns(world, session_id, 1)
        session.asked = OUTPUT[:140_000]
        grow(session, 60)

        def segments() -> list[Any]:
            path = world.metas / f"{session_id}.digest.jsonl"
            told = path.read_text().splitlines() if path.exists() else []
            return [json.loads(one)["covering_messages"] for one in told]

        until(lambda: segments() and segments()[-1][1] > 122 - 51, "all segments")
        assert len(segments()) > 1
        assert all(one[1] + 1 == other[0] for one, other in pairwise(segments()))
