"""The audit trail and the rotating file beneath it: rows, rotation, and that they stop nothing."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.models.telemetry import ERROR_MAX, Telemetry, index_row

WHO: dict[str, Any] = {
    "session_id": "a1b2",
    "model": "google/x",
    "timestamp": "2026-11-21T10:00:00Z",
}


def rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a file, each of which must be strict JSON."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_a_row_has_upstreams_names() -> None:
    """S0.44: customType, success, sessionId, model, timestamp; usage and error where known."""
    assert index_row(**WHO, success=True) == {
        "customType": "session-index:index",
        "success": True,
        "sessionId": "a1b2",
        "model": "google/x",
        "timestamp": "2026-11-21T10:00:00Z",
    }


def test_a_row_holds_what_the_audit_asks_for() -> None:
    """S0.44, S2.24: usage with an unknown cost said, redactions, attempt, bytes and time."""
    usage = {"inputTokens": 8000, "outputTokens": 300, "costUsd": None}
    row = index_row(
        **WHO,
        success=False,
        usage=usage,
        error="schema:\nname\x1b[31m missing " + "x" * 2000,
        redactions={"jwt": 2},
        attempt=3,
        bytes=51200,
        ms=812,
    )

    assert row["usage"] == usage
    assert row["redactions"] == {"jwt": 2}
    assert (row["attempt"], row["bytes"], row["ms"]) == (3, 51200, 812)
    assert row["error"].startswith("schema: name missing xxx")
    assert len(row["error"]) == ERROR_MAX


def test_rows_are_appended_and_private(tmp_path: Path) -> None:
    """S0.44, S2.22: one line a row, 0600, and what was there stays."""
    path = tmp_path / "telemetry.jsonl"
    for attempt in (1, 2):
        assert Telemetry(path).append(index_row(**WHO, success=attempt == 2, attempt=attempt))

    assert [row["attempt"] for row in rows(path)] == [1, 2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=5), st.text(alphabet=st.characters(exclude_categories=()))))
def test_any_text_makes_one_line(
    tmp_path_factory: pytest.TempPathFactory, row: dict[str, str]
) -> None:
    """F7: line ends, control characters and lone surrogates do not break the file."""
    path = tmp_path_factory.mktemp("t") / "telemetry.jsonl"

    assert Telemetry(path).append({"row": row})
    assert len(path.read_bytes().split(b"\n")) == 2
    assert len(rows(path)) == 1


@pytest.mark.parametrize(
    "row",
    [{"a": float("nan")}, {"a": object()}, {"a": b"x"}, {"a": "x" * 100_000}, {("a",): 1}],
    ids=["NaN", "object", "bytes", "too long", "key"],
)
def test_a_row_that_is_none_is_refused_quietly(tmp_path: Path, row: dict[str, Any]) -> None:
    """F7: what is not JSON is not written, and not raised either."""
    path = tmp_path / "telemetry.jsonl"
    endless: dict[str, Any] = {}
    endless["a"] = endless

    assert Telemetry(path).append(row) is False
    assert Telemetry(path).append(endless) is False
    assert not path.exists()


def test_an_unwritable_file_is_said_and_not_raised(tmp_path: Path) -> None:
    """S0.44: failures never propagate into indexing."""
    assert Telemetry(tmp_path).append({"a": 1}) is False
    assert Telemetry(Path("/dev/null/telemetry.jsonl")).append({"a": 1}) is False
