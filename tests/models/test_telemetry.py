"""The audit trail, read back: no more than is asked for, and nothing that is no row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.models import telemetry
from indexerd.models.telemetry import (
    INDEX,
    ROWS_MAX,
    audit_row,
    rows_of,
)

WHEN = "2026-11-21T10:00:00Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


def row(number: int, session_id: str = "s1", kind: str = INDEX, **more: Any) -> dict[str, Any]:
    who = {"session_id": session_id, "model": f"m{number}", "timestamp": WHEN}
    return audit_row(kind, **who, success=True, **more)


def models(path: Path) -> list[str]:
    return [one["model"] for one in rows_of(path, "s1")]


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
