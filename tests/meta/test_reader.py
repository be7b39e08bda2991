"""meta/reader: whatever lies in a meta directory, reading it gives a value or an error of ours."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import AccessError, InvalidMetaError
from indexerd.meta import reader as metas
from indexerd.meta.model import MetaFile, parse_meta

FIELDS: dict[str, Any] = {
    "sessionId": "a1",
    "sessionFile": "/s/a1.jsonl",
    "parentSessionFile": "/s/a0.jsonl",
    "name": "Mend the lock",
    "description": "It was oiled.",
    "summary": "## Goal",
    "tags": ["lock"],
    "cwd": "/p",
    "createdAt": "2026-01-11T10:00:00.123Z",
    "updatedAt": "2026-01-12T10:00:00.123Z",
    "model": "google/gemini-3.5-flash-lite",
    "lastIndexedLeafId": "b2",
    "schemaVersion": 1,
    "usage": {"inputTokens": 10, "outputTokens": 2, "costUsd": 0.01, "calls": 1},
    "filesRead": ["a.py"],
    "toolsUsed": {"read": 3},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a meta file may be."""
    return tmp_path / "a1.meta.json"


@pytest.mark.parametrize("kind", ["link", "loop", "directory", "fifo", "socket"])
def test_what_is_not_a_regular_file_is_an_access_error(path: Path, kind: str) -> None:
    """S0.40, X2, X3: no link is followed, no FIFO waited for; not even a link to a valid file."""
    other = path.with_name("other")
    other.write_text(json.dumps(FIELDS))
    with contextlib.ExitStack() as stack:
        if kind == "link":
            path.symlink_to(other)
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            bound = stack.enter_context(socket.socket(socket.AF_UNIX))
            stack.enter_context(contextlib.chdir(path.parent))  # the path may be too long to bind
            bound.bind(path.name)
        for read in (metas.read_meta, metas.read_user, metas.read_digest):
            with pytest.raises(AccessError, match=re.escape(str(path))):
                read(path)
        assert list(metas.scan(path.parent)) == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["\x1b[31m", "\u202e", "\ud83d", "1e999", "a" * 5000]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from([*FIELDS, "session_id", "model_dump", "__class__", "to_json"]) | st.text(
    max_size=8
)
EDITS = st.lists(
    st.tuples(st.just("set"), KEYS, JSON)
    | st.tuples(st.just("drop"), KEYS, st.none())
    | st.tuples(st.just("nest"), KEYS, st.integers(1, 400)),
    max_size=4,
)
DAMAGE = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), st.binary(max_size=6)), max_size=2)


def edited(edits: list[tuple[str, str, Any]], damage: list[tuple[float, int, bytes]]) -> bytes:
    """Edit a meta file as hands and editors do: first its fields, then its bytes."""
    fields = copy.deepcopy(FIELDS)
    for how, key, value in edits:
        if how == "drop":
            fields.pop(key, None)
        elif how == "set":
            fields[key] = value
        else:
            for _ in range(value):
                fields[key] = [fields.get(key)]
    data = json.dumps(fields, indent=2).encode()
    for where, length, put in damage:
        at = int(where * len(data))
        data = data[:at] + put + data[at + length :]
    return data


@pytest.mark.faults
@given(edits=EDITS, damage=st.just([]) | DAMAGE)
@settings(max_examples=500, deadline=None)
def test_edited_by_any_hand(edits: list[Any], damage: list[Any]) -> None:
    """X12: a hand-edited file gives a meta file that can be written again, or our error."""
    data = edited(edits, damage)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a1.meta.json"
        path.write_bytes(data)
        try:
            held = metas.read_meta(path)
        except InvalidMetaError:
            return
        finally:
            assert path.read_bytes() == data
    assert isinstance(held, MetaFile)
    assert parse_meta(held.to_json(), "again") == held
