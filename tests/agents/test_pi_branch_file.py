"""Write one path as a new session file, as pi's createBranchedSession does."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest

from indexerd.agents.pi.parse import branch_lines
from indexerd.entries import Kind
from indexerd.sessions.context import context_of
from tests.sessions.tree_sessions import answers, entry, line, reader, said, session, state_of

NOW = "2026-02-03T04:05:06.789Z"


def branch(data: bytes, leaf: str | None = None) -> bytes:
    state, numbers = state_of(data), itertools.count()
    assert state.header is not None
    header = {"version": state.header.version, "id": "new", "timestamp": NOW}
    header |= {"cwd": state.header.cwd, "parentSession": "/old.jsonl"}
    view = state.snapshot(state.row(leaf)) if leaf else state

    def lines(rows: Iterable[int]) -> list[tuple[str, bytes]]:
        ends = [(row, state.offsets[row], state.lengths[row]) for row in rows]
        return [(state.ids[row], data[at : at + n]) for row, at, n in ends]

    labels = [row for row in range(len(state)) if state.kind(row) is Kind.LABEL]
    branched = branch_lines(
        header,
        lines(view.path()),
        [label for _, label in lines(labels)],
        lambda: f"ffff{next(numbers):04x}",
    )
    return b"".join(branched)


def parsed(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


LABELLED = [
    said("a", None, "user", "one"),
    entry("label", "l1", "a", 1, targetId="a", label="start"),
    said("b", "l1", "assistant", "1"),
    entry("label", "l2", "b", 2, targetId="b", label="gone"),
    entry("label", "l3", "l2", 3, targetId="b"),
    entry("label", "l4", "l3", 4, targetId="off", label="elsewhere"),
    said("c", "l4", "user", "two", at=5),
    said("off", "b", "user", "another way", at=6),
    entry("label", "l5", "off", 7, targetId="c", label="from the other branch"),
]


def test_the_new_file_has_only_the_path() -> None:
    """S1.16: a version 3 header, the path re-chained without labels, then its labels."""
    header, *rest = parsed(branch(session(*LABELLED), "c"))
    assert header == {
        "type": "session",
        "version": 3,
        "id": "new",
        "timestamp": NOW,
        "cwd": "/w",
        "parentSession": "/old.jsonl",
    }
    assert [(entry["id"], entry["parentId"]) for entry in rest] == [
        ("a", None),
        ("b", "a"),
        ("c", "b"),
        ("ffff0000", "c"),
        ("ffff0001", "ffff0000"),
    ]
    assert [(entry["targetId"], entry["label"], entry["timestamp"][-5:]) for entry in rest[3:]] == [
        ("a", "start", ".000Z"),
        ("c", "from the other branch", ".000Z"),
    ]
    assert [entry["timestamp"][14:19] for entry in rest[3:]] == ["00:01", "00:07"]


def test_unchanged_lines_keep_their_bytes() -> None:
    """A line with a new parent keeps every other field."""
    same = b'{"type":"message", "id":"a","parentId":null,"n":1e999,"x":"\\ud83d",  "big":9e400}'
    moved = b'{"type":"custom","data":{"n":1.5,"id":"inner"},"id":"b","parentId":"l"}'
    data = session(same + b"\r\n", entry("label", "l", "a", targetId="q", label="x"), moved + b"\n")
    _, first, second = branch(data).splitlines()
    assert same == first
    expected = b'{"type":"custom","data":{"n":1.5,"id":"inner"},"id":"b","parentId":"a"}'
    assert expected == second


def test_a_changed_label_keeps_its_place() -> None:
    """formats.md 1.6: labels are written in map order, which a change does not affect."""
    data = session(
        said("a", None, "user", "one"),
        said("b", "a", "assistant", "1"),
        entry("label", "l1", "b", targetId="a", label="x"),
        entry("label", "l2", "l1", targetId="b", label="y"),
        entry("label", "l3", "l2", targetId="a", label="z"),
    )
    assert [entry["label"] for entry in parsed(branch(data))[3:]] == ["z", "y"]


def test_a_compaction_kept_from_a_label_keeps_from_the_next_entry() -> None:
    """formats-observed.md: the label is dropped, so the next entry takes its place."""
    lines = [
        said("a", None, "user", "one"),
        entry("label", "l", "a", targetId="q", label="x"),
        said("b", "l", "user", "two"),
        entry("compaction", "c", "b", summary="S", firstKeptEntryId="l", tokensBefore=1),
        entry("compaction", "d", "c", summary="S", firstKeptEntryId="d", tokensBefore=1),
    ]
    found = parsed(branch(session(*lines)))
    assert [entry.get("firstKeptEntryId") for entry in found[3:]] == ["b", "d"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_branch_keeps_the_version_of_its_session(version: int) -> None:
    """S1.8, S1.9: pi migrates the file when it opens it."""
    message = {"role": "hookMessage", "content": "x"}
    named = {"id": "a", "parentId": None} if version > 1 else {}
    hook = line(type="message", timestamp="t", message=message, **named)
    header, *rest = branch(session(hook, version=version)).splitlines(keepends=True)
    assert (json.loads(header)["version"], rest) == (version, [hook])


@pytest.mark.parametrize("number", range(3))
def test_real_files_branch_at_every_tip(number: int) -> None:
    """S1.16, S1.36: each branch of each real file reads the same as in its own file."""
    for file, _ in list(answers())[number::3]:
        data = file.read_bytes()
        old = state_of(data)
        for tip in old.tips():
            branched = branch(data, old.ids[tip])
            new, view = state_of(branched), old.snapshot(tip)
            assert not new.bad_lines
            found = context_of(new, reader(new, branched))
            expected = context_of(view, reader(view, data))
            assert expected == found, file
