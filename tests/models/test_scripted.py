"""The fake that ships, in one process and over several."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import (
    ConfigError,
)
from indexerd.meta.model import Metadata
from indexerd.models.base import Finish, Model, Prompt, Reply, Tokens
from indexerd.models.scripted import Scripted, load

PROMPT = Prompt("system", "Session: s-1\nhello", Metadata.model_json_schema())


def ask(model: Model, prompt: Prompt = PROMPT, timeout: float = 10.0) -> Reply:
    """Make one call."""
    return asyncio.run(model.generate(prompt, timeout=timeout))


def script(directory: Path, *lines: dict[str, Any]) -> Path:
    """Write a script file."""
    path = directory / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def calls(path: Path) -> list[dict[str, Any]]:
    """Read the calls that a script recorded."""
    record = Path(f"{path}.calls")
    return [json.loads(line) for line in record.read_text().splitlines()]


def recorded(path: Path) -> bool:
    """Say whether a call stands in the record."""
    record = Path(f"{path}.calls")
    return record.exists() and record.stat().st_size > 0


def test_made_up_answers_are_valid_and_always_the_same() -> None:
    """S0.19: they fit the schema, and differ from prompt to prompt only."""
    other = Prompt("system", "another", PROMPT.schema)

    first, again, different = (ask(Scripted(), one).text for one in (PROMPT, PROMPT, other))

    Metadata.model_validate_json(first)
    assert first == again != different
    assert ask(Scripted(), Prompt("s", "u")).text.startswith("Scripted answer ")


def test_rules_answer_in_order_and_are_used_up(tmp_path: Path) -> None:
    """A rule with `times` gives way to the next; counts hold over new instances."""
    path = script(
        tmp_path,
        {"match": "hell", "times": 1, "text": "first", "model": "m2", "tokens": [5, 6]},
        {"match": "hell", "times": 1, "text": "second", "finish": "length", "tokens": []},
        {"match": "absent", "text": "never"},
    )

    found = [ask(load(str(path), "scripted/m")) for _ in range(3)]

    assert found[0] == Reply("first", "m2", Finish.STOP, Tokens(5, 6))
    assert found[1] == Reply("second", "m", Finish.LENGTH, Tokens())
    Metadata.model_validate_json(found[2].text)
    assert [call["rule"] for call in calls(path)] == [0, 1, None]


def test_calls_are_recorded_with_hash_and_session(tmp_path: Path) -> None:
    """One line a call: when, who, which prompt, which session."""
    path = script(tmp_path, {"session": r"Session: (\S+)"}, {"remote": False})
    model = load(str(path), "scripted/m")

    ask(model)
    ask(model, Prompt("s", "no session here"))

    first, second = calls(path)
    assert first["sha256"] == hashlib.sha256(PROMPT.user.encode()).hexdigest()
    assert [first["session"], second["session"]] == ["s-1", None]
    assert first["t"] <= second["t"]
    assert model.remote is False
    assert load(str(script(tmp_path, {"text": "x"})), "scripted/m").remote is True


def test_a_call_is_counted_though_its_process_is_killed(tmp_path: Path) -> None:
    """M15: the record is written before the answer, so kill -9 in between loses no count."""
    path = script(tmp_path, {"delay": 60, "text": "late"})
    code = (
        "import asyncio, sys; from indexerd.models.scripted import load;"
        "from indexerd.models.base import Prompt;"
        "asyncio.run(load(sys.argv[1], 'scripted/m').generate(Prompt('s', 'u'), timeout=60))"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)])
    try:
        deadline = time.monotonic() + 20
        while not recorded(path) and time.monotonic() < deadline:
            assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)

    (call,) = calls(path)
    assert call["pid"] == child.pid


@pytest.mark.parametrize("content", ["not json", "[1]", '{"error": "no such error"}'])
def test_a_bad_script_is_a_problem_of_the_configuration(tmp_path: Path, content: str) -> None:
    """A test with a bad script must not pass by accident."""
    path = tmp_path / "script.jsonl"
    path.write_text(content)

    with pytest.raises(ConfigError, match="not a script"):
        load(str(path), "scripted/m")
    with pytest.raises(ConfigError, match="not a script"):
        load(str(tmp_path / "nothing"), "scripted/m")
