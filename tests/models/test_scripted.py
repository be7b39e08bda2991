"""The fake model that ships: rules, counts, and answers that are always the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import ConfigError
from indexerd.events import Prompt
from indexerd.meta.model import Metadata
from indexerd.models.base import Finish, Reply, Tokens
from indexerd.models.scripted import Scripted

PROMPT = Prompt("system", "Session: s-1\nhello", Metadata.model_json_schema())


def script(directory: Path, *lines: dict[str, Any]) -> str:
    path = directory / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def ask(path: str) -> Reply:
    return asyncio.run(Scripted(path, "scripted/m").generate(PROMPT, timeout=10))


def test_rules_answer_in_order_and_are_used_up(tmp_path: Path) -> None:
    """A rule with `times` gives way to the next; what no rule answers is made up, and valid."""
    path = script(
        tmp_path,
        {"session": r"Session: (\S+)"},
        {"match": "hell", "times": 1, "text": "first", "model": "m2", "tokens": [5, 6]},
        {"match": "hell", "times": 1, "text": "second", "finish": "length", "tokens": []},
        {"match": "absent", "text": "never"},
    )
    found = [ask(path) for _ in range(4)]
    assert found[0] == Reply("first", "m2", Finish.STOP, Tokens(5, 6))
    assert found[1] == Reply("second", "m", Finish.LENGTH, Tokens())
    Metadata.model_validate_json(found[2].text)
    assert found[2] == found[3]
    calls = [json.loads(line) for line in Path(f"{path}.calls").read_text().splitlines()]
    assert [call["rule"] for call in calls] == [1, 2, None, None]
    assert {call["session"] for call in calls} == {"s-1"}


@pytest.mark.parametrize("content", ["not json", "[1]", '{"error": "no such error"}', None])
def test_a_bad_script_is_a_problem_of_the_configuration(
    tmp_path: Path, content: str | None
) -> None:
    """A test with a bad script must not pass by accident."""
    path = tmp_path / "script.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="not a script"):
        Scripted(str(path), "scripted/m")
