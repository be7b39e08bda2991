"""A turn that went on after it was indexed: its messages are counted, and what is new is sent."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.indexing.again_bench import Bench, paid


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A session in a home of its own."""
    return Bench(tmp_path)


class CodexFile:
    """A codex session, written line by line as codex does."""

    id = "01a1ffff-17d6-74a3-9995-235feb502001"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.path = folder / f"rollout-2026-11-22T09-00-00-{self.id}.jsonl"
        self._ordinals = count()
        self._line("session_meta", id=self.id, timestamp="2026-11-22T09:00:00Z", cwd="/w")

    def _line(self, kind: str, **payload: Any) -> None:
        number = next(self._ordinals)
        line = {
            "timestamp": f"2026-11-22T09:00:{number:02}.000Z",
            "ordinal": number,
            "type": kind,
            "payload": payload,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def begin(self, turn: str) -> None:
        """A turn begins."""
        self._line("event_msg", type="task_started", turn_id=turn)
        self._line("turn_context", turn_id=turn, cwd="/w")

    def end(self, turn: str) -> None:
        """A turn ends."""
        self._line("event_msg", type="task_complete", turn_id=turn)

    def error(self) -> None:
        """The work ends in an error; the turn may go on."""
        self._line("event_msg", type="error", message="stream disconnected")

    def call(self) -> None:
        """A tool is called, and gives something back: none of it is sent."""
        self._line("response_item", type="function_call", name="sh", arguments="{}", call_id="c")
        self._line("response_item", type="function_call_output", call_id="c", output="ok")

    def say(self, role: str, text: str) -> None:
        """A message."""
        kind = "input_text" if role == "user" else "output_text"
        content = [{"type": kind, "text": text}]
        self._line("response_item", type="message", role=role, content=content)

    def turn(self, number: int) -> None:
        """A whole turn."""
        self.begin(f"turn-{number}")
        self.say("user", f"Ask number{number}: add part{number}.")
        self.say("assistant", f"Part{number} is in.")
        self.end(f"turn-{number}")


class CodexBench(Bench):
    """The same for a codex session."""

    agent = "codex"

    def __init__(self, root: Path, **index: Any) -> None:
        super().__init__(root, **index)
        self.session = CodexFile(root / ".codex/sessions/2026/11/22")
        self.metas = root / ".local/share/indexerd/sessions-meta/codex"


@pytest.mark.parametrize("broken", [False, True])
def test_what_a_turn_says_after_it_was_indexed_is_sent(tmp_path: Path, *, broken: bool) -> None:
    """S3.15, S0.35: codex names a leaf by its turn, which goes on after a run in its middle."""
    bench = CodexBench(tmp_path)
    session = bench.session
    for number in range(3):
        session.turn(number)
    session.begin("turn-3")
    session.say("user", "Ask number3: which database?")
    session.say("assistant", "Half an answer.")
    if broken:
        session.error()
    bench.index(paid())
    assert bench.meta["lastIndexedLeafId"] == "turn-3"
    session.call()
    session.say("user", "STEERING: not Postgres.")
    session.say("assistant", "We decided to take SQLite.")
    for later in (False, True):
        run = bench.prepared()
        for words in ("Ask number3", "Half an answer", "STEERING", "We decided to take SQLite"):
            assert words in run.prompt.user
        assert "number2" not in run.prompt.user
        assert "previous_summary" in run.prompt.user
        assert run.snap.since_id == "turn-2"
        if not later:
            session.end("turn-3")
            session.turn(4)
    bench.index(paid())
    session.turn(5)
    assert "number3" not in bench.prepared().prompt.user


def test_a_turn_that_had_ended_is_not_sent_again(tmp_path: Path) -> None:
    """S3.15: nothing was said in it since; its end, and calls of tools, are no words."""
    bench = CodexBench(tmp_path)
    bench.session.turn(0)
    bench.session.begin("turn-1")
    bench.session.say("user", "Ask number1: add part1.")
    bench.session.say("assistant", "Part1 is in.")
    bench.index(paid())
    bench.session.call()
    bench.session.end("turn-1")
    bench.session.turn(2)
    run = bench.prepared()
    assert "number2" in run.prompt.user
    assert "number1" not in run.prompt.user
    assert run.snap.since_id == "turn-1"


def test_a_first_turn_that_went_on_is_sent_whole(tmp_path: Path) -> None:
    """S3.15: there is nothing before it that a summary could stand for."""
    bench = CodexBench(tmp_path)
    bench.session.begin("turn-0")
    bench.session.say("user", "Ask number0: add part0.")
    bench.session.say("assistant", "Half an answer.")
    bench.index(paid())
    bench.session.say("assistant", "The other half.")
    prompt = bench.prepared().prompt.user
    assert "number0" in prompt
    assert "The other half." in prompt
    assert "previous_summary" not in prompt


def test_without_a_count_of_messages_a_turn_may_have_gone_on(tmp_path: Path) -> None:
    """S3.15: a meta file need not say how many there were: nothing is proved then."""
    bench = CodexBench(tmp_path)
    for number in range(2):
        bench.session.turn(number)
    bench.index(paid())
    bench.session.turn(2)
    assert "number1" not in bench.prepared().prompt.user
    bench.amend(messageCount=None)
    prompt = bench.prepared().prompt.user
    assert "number1" in prompt
    assert "number0" not in prompt
