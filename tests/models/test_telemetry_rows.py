"""The audit trail read back: the newest rows of one session, and nothing that is no row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexerd.models import telemetry
from indexerd.models.telemetry import ROWS_MAX, Telemetry, digest_row, index_row, rows_of

WHEN = "2026-11-21T10:00:00Z"


def row(number: int, session_id: str = "s1", **more: Any) -> dict[str, Any]:
    """One attempt."""
    return index_row(
        session_id=session_id, model=f"m{number}", success=True, timestamp=WHEN, **more
    )


def models(path: Path, session_id: str = "s1") -> list[str]:
    """Which attempts are found."""
    return [one["model"] for one in rows_of(path, session_id)]


def test_the_newest_come_first(tmp_path: Path) -> None:
    """S2.24: those of the session alone, with what is known of them; those of a digest, too."""
    path = tmp_path / "telemetry.jsonl"
    assert rows_of(path, "s1") == []
    trail = Telemetry(path)
    usage = {"inputTokens": 10, "outputTokens": 2, "costUsd": 0.01}
    trail.append(row(1, usage=usage, redactions={"api-key": 2}, by="user", ms=12, bytes=99))
    trail.append(row(2, "s10"))
    trail.append({"customType": "relevant-context:set", "sessionId": "s1", "success": True})
    trail.append(
        digest_row(
            task="segment", by="daemon", covering=(0, 7), session_id="s1", model="d", success=False,
            timestamp=WHEN, error="busy",
        )
    )  # fmt: skip
    digest, index = rows_of(path, "s1")
    assert digest == {
        "customType": "digest:segment", "success": False, "model": "d", "timestamp": WHEN,
        "error": "busy", "task": "segment", "by": "daemon", "coveringMessages": [0, 7],
    }  # fmt: skip
    assert index == {
        "customType": "session-index:index", "success": True, "model": "m1", "timestamp": WHEN,
        "by": "user", "usage": usage, "redactions": {"api-key": 2}, "ms": 12, "bytes": 99,
    }  # fmt: skip


def test_no_more_is_read_than_so_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both files together; at most fifty rows; the older file after the newer one."""
    path = tmp_path / "telemetry.jsonl"
    old = "".join(json.dumps(row(n)) + "\n" for n in range(3))
    path.with_name("telemetry.jsonl.1").write_text(old)
    path.write_text(json.dumps(row(3)) + "\n" + json.dumps(row(4)) + "\n")
    assert models(path) == ["m4", "m3", "m2", "m1", "m0"]
    size = len(json.dumps(row(0))) + 1
    monkeypatch.setattr(telemetry, "READ_MAX", 3 * size + 5)
    assert models(path) == ["m4", "m3", "m2"]
    path.write_text("".join(json.dumps(row(n)) + "\n" for n in range(80)))
    monkeypatch.undo()
    assert len(models(path)) == ROWS_MAX


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"s1",
        b'["s1"]',
        b"[" * 100_000 + b'"s1"',
        b'{"sessionId":"s1","customType":"s1:else","model":"x"}',
        b'{"sessionId":"s1","customType":["x"],"model":"x"}',
        b'{"sessionId":"s2","customType":"session-index:index","error":"s1"}',
        b'{"sessionId":"s1","customType":"session-index:index","x":"' + b"y" * 70_000 + b'"}',
        b"\xff\xfe s1",
    ],
)
def test_what_is_no_row_is_passed_over(tmp_path: Path, odd: bytes) -> None:
    """Whoever writes there may write anything: the rows around it are found all the same."""
    path = tmp_path / "telemetry.jsonl"
    first, last = (json.dumps(row(n)).encode() for n in (1, 2))
    path.write_bytes(b"\n".join([first, odd, last]))
    assert models(path) == ["m2", "m1"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """What is no file of ours is not read."""
    path = tmp_path / "telemetry.jsonl"
    (tmp_path / "else").write_text(json.dumps(row(1)))
    path.symlink_to(tmp_path / "else")
    assert rows_of(path, "s1") == []
