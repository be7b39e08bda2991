"""A command that adds to a prompt or replaces it: real processes and every failure (S3.29)."""

from typing import Any

import pytest

from indexerd.digests.prompts import Advice, consult
from indexerd.errors import IndexerdError

PATIENCE = 20.0  # seconds
PAYLOAD = {"task": "segment", "sessionId": "s1", "covering": [0, 9], "prompt": "Sum up \ud800."}
BAD = "its output is invalid: see docs/CLI.md"


def shell(script: str, *, seconds: float = PATIENCE) -> Any:
    try:
        return consult(["/bin/sh", "-c", script], PAYLOAD, seconds)
    except IndexerdError as failed:
        return str(failed)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('echo \'{"prompt": "Say \\u001b[1mit"}\'', Advice([], "Say it")),
        ("echo '{}'; exit 3", "it exited with code 3"),
        ("true", BAD),
        ('echo \'{"context": "all of it"}\'', BAD),
    ],
)
def test_failures_have_a_reason(script: str, reason: str) -> None:
    """The reason contains nothing of the command's output."""
    assert shell(script) == reason


@pytest.mark.parametrize("script", ["sleep 5 & wait", "sleep 5 &"])
def test_the_deadline_is_kept(script: str) -> None:
    """Also if a child keeps the hook's output open after the hook has ended."""
    assert shell(script, seconds=0.4) == "it took longer than 0.4 s"
