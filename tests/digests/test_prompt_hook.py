"""A command that adds to a prompt, or replaces it: real processes, every way to fail (S3.29)."""

from __future__ import annotations

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
def test_what_fails_says_why(script: str, reason: str) -> None:
    """The reason holds nothing of what was printed."""
    assert shell(script) == reason


@pytest.mark.parametrize("script", ["sleep 5 & wait", "sleep 5 &"])
def test_the_deadline_is_kept(script: str) -> None:
    """Also where a child holds the hook's output after its own end."""
    assert shell(script, seconds=0.4) == "it took longer than 0.4 s"
