"""The audit trail, read back: no more than is asked for, and only valid rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexerd.models import telemetry
from indexerd.models.telemetry import INDEX, ROWS_MAX, rows_of


def line(number: int) -> str:
    return json.dumps({"customType": INDEX, "sessionId": "s1", "model": f"m{number}"}) + "\n"


def test_the_newest_rows_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most fifty rows; the older file after the newer one; invalid rows are skipped."""
    path = tmp_path / "telemetry.jsonl"

    def models() -> list[str]:
        return [one["model"] for one in rows_of(path, "s1")]

    path.with_name("telemetry.jsonl.1").write_text("".join(map(line, range(3))))
    odd = 's1\n["s1"]\n{"sessionId":"s1","customType":["x"],"model":"x"}\n'
    path.write_text(line(3) + odd + line(4))
    assert models() == ["m4", "m3", "m2", "m1", "m0"]
    monkeypatch.setattr(telemetry, "READ_MAX", len(line(0)) + 4)
    assert models() == ["m4", "m2"]
    monkeypatch.undo()
    path.write_text("".join(map(line, range(80))))
    assert len(models()) == ROWS_MAX
