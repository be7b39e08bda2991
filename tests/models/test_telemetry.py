"""The audit trail: rows written, rotated, read back, and nothing that is no row."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from indexerd.models import telemetry
from indexerd.models.telemetry import (
    DIGEST,
    ERROR_MAX,
    INDEX,
    ROWS_MAX,
    Telemetry,
    audit_row,
    rows_of,
)

WHEN = "2026-11-21T10:00:00Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


def row(number: int, session_id: str = "s1", kind: str = INDEX, **more: Any) -> dict[str, Any]:
    """One attempt."""
    who = {"session_id": session_id, "model": f"m{number}", "timestamp": WHEN}
    return audit_row(kind, **who, success=True, **more)


def models(path: Path) -> list[str]:
    """Which attempts are found."""
    return [one["model"] for one in rows_of(path, "s1")]


def test_a_row_holds_what_the_audit_asks_for(path: Path) -> None:
    """S0.44, S2.22, S2.24: upstream's names; an unknown cost is said; private, newest first."""
    usage = {"inputTokens": 8000, "outputTokens": 300, "costUsd": None}
    error = "schema:\nname\x1b[31m missing \ud800" + "x" * 2000
    made = row(1, usage=usage, error=error, redactions={"jwt": 2}, attempt=3, bytes=51200, ms=812)
    assert made | {"error": ""} == {
        "customType": "session-index:index", "success": True, "sessionId": "s1", "model": "m1",
        "timestamp": WHEN, "usage": usage, "redactions": {"jwt": 2}, "attempt": 3, "bytes": 51200,
        "ms": 812, "error": "",
    }  # fmt: skip
    assert made["error"].startswith("schema: name missing xxx")
    assert len(made["error"]) == ERROR_MAX
    for one in (
        row(1, by="user"),
        row(2, "s10"),
        {"customType": "relevant-context:set", "sessionId": "s1", "success": True},
        row(3, kind=DIGEST, task="segment", covering_messages=(0, 7)),
    ):
        Telemetry(path).append(one)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    digest, index = rows_of(path, "s1")
    assert (digest["model"], digest["coveringMessages"], digest["task"]) == (
        "m3",
        [0, 7],
        "segment",
    )
    assert (index["model"], index["by"]) == ("m1", "user")


def test_no_more_is_read_than_so_much(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most fifty rows; the older file after the newer one; what is no row is passed over."""
    old = "".join(json.dumps(row(n)) + "\n" for n in range(3))
    path.with_name("telemetry.jsonl.1").write_text(old)
    odd = 's1\n["s1"]\n{"sessionId":"s1","customType":["x"],"model":"x"}\n'
    path.write_text(json.dumps(row(3)) + "\n" + odd + json.dumps(row(4)) + "\n")
    assert models(path) == ["m4", "m3", "m2", "m1", "m0"]
    monkeypatch.setattr(telemetry, "READ_MAX", len(json.dumps(row(0))) + 5)
    assert models(path) == ["m4", "m2"]
    monkeypatch.undo()
    path.write_text("".join(json.dumps(row(n)) + "\n" for n in range(80)))
    assert len(models(path)) == ROWS_MAX
