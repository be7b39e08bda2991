"""What opencode's user is told of references that came to nothing; node runs the plugin.

Skipped where there is no node. The host and the daemon are those of opencode_host.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integrations.opencode_host import (
    ANSWERS,
    MESSAGES,
    TYPED,
    daemon,
    needs_node,
    prompt,
    run,
    scripted,
)


@pytest.fixture
def env(socket: Path, tmp_path: Path) -> dict[str, str]:
    """What the plugin's process is told."""
    return {"HOME": str(tmp_path), "INDEXERD_SOCKET": str(socket)}


FAILED: list[Any] = [
    {"raw": "@@ok", "status": "resolved", "questions": [{"question": "a?", "status": "answered"}]},
    {"raw": "@@nope\x1b[31m", "status": "not_found", "notes": ["try\nagain"]},
    {
        "raw": "@@two",
        "status": "ambiguous",
        "candidates": [{"name": f"n {n}", "sessionId": f"s-{n}"} for n in range(6)],
    },
    {"raw": "@@bad", "status": "invalid_meta"},
    {"raw": "@@many", "status": "over_limit"},
    {
        "raw": "@@asked",
        "status": "resolved",
        "questions": [{"question": "b?", "status": "failed", "code": "c", "message": "no model"}],
    },
]
TOLD = [
    "✅ resolved 2 reference(s)",
    "@@nope [31m: no such session",
    "@@nope [31m: try again",
    "@@two is ambiguous: n 0 (@@s-0); n 1 (@@s-1); n 2 (@@s-2); n 3 (@@s-3)",
    "@@bad: its meta file is invalid",
    "@@many: one reference too many",
    "@@asked: no model",
]


@needs_node
def test_what_failed_is_told_and_why(env: dict[str, str], socket: Path) -> None:
    """S0.51, S0.64: each reference and question that failed has a line, long enough to be read."""
    expanded = {"messages": MESSAGES, "references": FAILED, "statusText": TOLD[:1]}
    with daemon(socket, scripted(ANSWERS | {"expand": expanded})):
        (toast,) = run(env, prompt(TYPED))["toasts"]
    assert toast["message"].splitlines() == TOLD
    assert (toast["variant"], toast["duration"]) == ("warning", 8000)


@needs_node
def test_what_is_told_is_bounded(env: dict[str, str], socket: Path) -> None:
    """X9: few and short lines, whatever the answer holds; nothing where nothing failed."""
    long = [{"raw": f"@@{n}" + "x" * 999, "status": "not_found"} for n in range(50)]
    wide = [{"raw": "@@a", "status": "resolved", "notes": ["y" * 9999]}]
    odd: list[Any] = [None, 5, {}, {"raw": "@@a", "questions": 5, "notes": 5, "status": "resolved"}]
    toasts = []
    for references in (long + wide, wide, odd, "odd", [FAILED[0]], None):
        with daemon(socket, scripted(ANSWERS | {"expand": {"references": references}})):
            toasts += run(env, prompt(TYPED))["toasts"]
        socket.unlink()
    many, one = (toast["message"].splitlines() for toast in toasts)
    assert (len(many), many[-1]) == (6, "… and 46 more")
    assert max(map(len, many + one)) == 300
