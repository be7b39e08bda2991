"""One path as a new session file, as pi's createBranchedSession makes it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.agents.pi.branch_file import Line, Origin, branch_lines, file_name
from indexerd.events import Kind
from indexerd.sessions.context import context_of
from indexerd.sessions.state import SessionState
from tests.sessions.tree_sessions import answers, entry, line, reader, said, session, state_of

NOW = "2026-02-03T04:05:06.789Z"


def counter() -> Callable[[], str]:
    """Words for ids, one after the other."""
    numbers = itertools.count()
    return lambda: f"ffff{next(numbers):04x}"


def branch(
    data: bytes, leaf: str | None = None, *, fresh: Callable[[], str] | None = None
) -> bytes:
    """The new file of a path."""
    state = state_of(data)
    assert state.header is not None
    origin = Origin("new", NOW, state.header.cwd, "/old.jsonl", state.header.version)
    view = state.still(state.row(leaf)) if leaf else state

    def lines(rows: list[int]) -> list[Line]:
        ends = [(row, state.offsets[row], state.lengths[row]) for row in rows]
        return [Line(state.id(row), state.kind(row), data[at : at + n]) for row, at, n in ends]

    labels = [row for row in range(len(state)) if state.kind(row) is Kind.LABEL]
    made = branch_lines(origin, lines(view.path()), lines(labels), fresh or counter())
    return b"".join(made)


def parsed(data: bytes) -> list[dict[str, Any]]:
    """The records of a file."""
    return [json.loads(one) for one in data.splitlines()]


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


def test_the_new_file_is_a_session_of_the_path_alone() -> None:
    """S1.16: a header of version 3, the path without labels, re-chained, then its labels."""
    header, *rest = parsed(branch(session(*LABELLED), "c"))
    assert header == {
        "type": "session",
        "version": 3,
        "id": "new",
        "timestamp": NOW,
        "cwd": "/w",
        "parentSession": "/old.jsonl",
    }
    assert [(one["id"], one["parentId"]) for one in rest] == [
        ("a", None),
        ("b", "a"),
        ("c", "b"),
        ("ffff0000", "c"),
        ("ffff0001", "ffff0000"),
    ]
    assert [(one["targetId"], one["label"], one["timestamp"][-5:]) for one in rest[3:]] == [
        ("a", "start", ".000Z"),
        ("c", "from the other branch", ".000Z"),
    ]
    assert [one["timestamp"][14:19] for one in rest[3:]] == ["00:01", "00:07"]
    assert file_name(Origin("new", NOW, "", "")) == "2026-02-03T04-05-06-789Z_new.jsonl"


def test_labels_are_in_the_order_in_which_they_were_first_set() -> None:
    """formats.md 1.6: as a JavaScript Map keeps it: cleared and set again is last."""
    marks = [
        ("a", "one"),
        ("b", "two"),
        ("a", "changed"),
        ("b", ""),
        ("c", "three"),
        ("b", "again"),
    ]
    talk = [said("a", None, "user"), said("b", "a", "user"), said("c", "b", "user")]
    lines = [
        entry("label", f"l{n}", "c", n, targetId=target, label=text)
        for n, (target, text) in enumerate(marks)
    ]
    made = parsed(branch(session(*talk, *lines), "c"))[4:]
    assert [(one["targetId"], one["label"]) for one in made] == [
        ("a", "changed"),
        ("c", "three"),
        ("b", "again"),
    ]


def test_what_need_not_change_stays_byte_by_byte() -> None:
    """A line keeps its bytes; one that moves keeps those of every other field."""
    same = b'{"type":"message", "id":"a","parentId":null,"n":1e999,"x":"\\ud83d",  "big":9e400}'
    moved = b'{"type":"custom","data":{"n": 1.50, "id":"inner"},"id":"b","parentId":"l"}'
    data = session(same + b"\r\n", entry("label", "l", "a", targetId="q", label="x"), moved + b"\n")
    _, first, second = branch(data).splitlines()
    assert same == first
    expected = b'{"type":"custom","data":{"n": 1.50, "id":"inner"},"id":"b","parentId":"a"}'
    assert expected == second


def test_half_a_pair_in_a_line_that_moves_is_kept() -> None:
    """F7: what JSON can say and UTF-8 cannot is said in JSON."""
    label = entry("label", "l", "a", targetId="q", label="x")
    odd = b'{"id":"b","parentId":"l","x":"\\ud83d","n":1e999}\n'
    found = branch(session(said("a", None, "user"), label, odd)).splitlines()[-1]
    assert json.loads(found) == {"id": "b", "parentId": "a", "x": "\ud83d", "n": None}
    assert b"\\ud83d" in found


def test_an_orphan_becomes_the_root() -> None:
    """formats.md 1.6: the path begins where its parents are unknown, and there is nothing above."""
    found = parsed(branch(session(said("a", "nobody", "user"), said("b", "a", "user"))))
    assert [one["parentId"] for one in found[1:]] == [None, "a"]


def test_a_compaction_that_kept_from_a_label_keeps_from_what_follows_it() -> None:
    """formats-observed.md: since the label goes, the entry after it takes its place."""
    lines = [
        said("a", None, "user", "one"),
        entry("label", "l", "a", targetId="q", label="x"),
        said("b", "l", "user", "two"),
        entry("compaction", "c", "b", summary="S", firstKeptEntryId="l", tokensBefore=1),
        entry("compaction", "d", "c", summary="S", firstKeptEntryId="d", tokensBefore=1),
    ]
    found = parsed(branch(session(*lines)))
    assert [one.get("firstKeptEntryId") for one in found[3:]] == ["b", "d"]


def test_versions_1_and_2_are_migrated() -> None:
    """S1.8, S1.9: ids as we show them, indices as ids, hook messages under their new name."""
    talk = [
        line(type="message", timestamp="t", message={"role": role, "content": "x"})
        for role in ("user", "hookMessage")
    ]
    last = line(type="compaction", summary="S", firstKeptEntryIndex=2, tokensBefore=1)
    early = line(type="compaction", summary="S", firstKeptEntryIndex=9, tokensBefore=1)
    found = parsed(branch(session(*talk, last, early, version=1)))[1:]
    assert [(one["id"], one["parentId"]) for one in found] == [
        ("00000000", None),
        ("00000001", "00000000"),
        ("00000002", "00000001"),
        ("00000003", "00000002"),
    ]
    assert found[1]["message"] == {"role": "custom", "content": "x"}
    assert found[2]["firstKeptEntryId"] == "00000001"
    assert not {"firstKeptEntryIndex", "firstKeptEntryId"} & found[3].keys()
    assert "firstKeptEntryIndex" not in found[2]

    hook = said("a", None, "hookMessage", "hookMessage", customType="h")
    made = parsed(branch(session(hook, said("b", "a", "user", "hookMessage"), version=2)))
    assert [one["message"]["role"] for one in made[1:]] == ["custom", "user"]
    assert made[1]["message"]["content"][0]["text"] == "hookMessage"
    (new,) = parsed(branch(session(hook, version=3)))[1:]
    assert new["message"]["role"] == "hookMessage"


def test_an_id_is_never_given_twice() -> None:
    """Pi's generateId: a word that an entry has is not taken again."""
    words = iter(["a", "b", "x1", "x1", "x2"])
    marks = [entry("label", f"l{one}", "b", targetId=one, label=one) for one in ("a", "b")]
    data = session(said("a", None, "user"), said("b", "a", "user"), *marks)
    made = parsed(branch(data, "b", fresh=lambda: next(words)))
    assert [one["id"] for one in made[1:]] == ["a", "b", "x1", "x2"]
    stuck = parsed(branch(data, "b", fresh=lambda: "a"))
    assert [one["id"] for one in stuck[1:]] == ["a", "b", "aa", "aaa"]


def test_a_line_that_is_none_is_an_error() -> None:
    """What was taken on its looks and is no JSON must be read anew, not copied."""
    lines = [Line("a", Kind.USER, b'{"type":"message","id":"a"'), Line("b", Kind.USER, b"[]")]
    for one in lines:
        with pytest.raises(ValueError, match="not an object"):
            list(branch_lines(Origin("s", NOW, "", ""), [one], [], counter()))


STEPS = st.lists(
    st.tuples(st.sampled_from(["user", "label", "compaction"]), st.integers(0, 20), st.booleans()),
    min_size=1,
    max_size=20,
)


def grown(steps: list[tuple[str, int, bool]]) -> bytes:
    """A session of messages, labels and compactions, each below some earlier entry."""
    lines = []
    for n, (kind, back, flag) in enumerate(steps):
        above, target = (str(max(0, n - 1 - one)) if n else None for one in (back % 3, back))
        if kind == "user":
            lines.append(said(str(n), above, "user", f"text {n}", at=n))
        elif kind == "label":
            text = f"label {n}" if flag else ""
            lines.append(entry("label", str(n), above, n, targetId=target, label=text))
        else:
            more = {"summary": "S", "firstKeptEntryId": target, "tokensBefore": n}
            lines.append(entry("compaction", str(n), above, n, **more))
    return session(*lines)


@given(STEPS)
def test_a_branch_is_the_same_conversation(steps: list[tuple[str, int, bool]]) -> None:
    """S1.16: the same path, labels and context, in one chain; again, and nothing changes."""
    data = grown(steps)
    old = state_of(data)
    made = branch(data)
    new = state_of(made)

    def kept(state: SessionState) -> list[str]:
        return [state.id(row) for row in state.path() if state.kind(row) is not Kind.LABEL]

    assert kept(old) == kept(new)
    assert new.labels == {key: text for key, text in old.labels.items() if key in kept(old)}
    assert all(new.parent(row) == row - 1 for row in range(1, len(new)))
    assert not new.bad_lines
    if kept(new) and not new.labels:
        assert branch(made) == made
    was, now = (context_of(*pair) for pair in ((old, reader(old, data)), (new, reader(new, made))))
    assert [one.text for one in was.messages] == [one.text for one in now.messages]


@pytest.mark.parametrize("number", range(3))
def test_real_files_branch_at_every_tip(number: int) -> None:
    """S1.16, S1.36: every branch of every real file, whatever its version, reads as in its file."""
    for file, _ in list(answers())[number::3]:
        data = file.read_bytes()
        old = state_of(data)
        for tip in old.tips():
            made = branch(data, old.id(tip))
            new, view = state_of(made), old.still(tip)
            assert not new.bad_lines
            found = context_of(new, reader(new, made))
            expected = context_of(view, reader(view, data))
            assert expected == found, file


def test_half_a_character_and_a_bad_index_are_written_as_they_can_be() -> None:
    """What no UTF-8 can say is escaped; an index that is none keeps nothing from anywhere."""
    held = {
        "type": "session",
        "id": "s1",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": "/w",
    }
    old = line(**held) + b"".join(
        [
            line(type="message", timestamp=NOW, message={"role": "user", "content": "one"}),
            line(type="compaction", timestamp=NOW, summary="S", firstKeptEntryIndex="two"),
            line(type="compaction", timestamp=NOW, summary="S", firstKeptEntryIndex=1),
            line(type="compaction", timestamp=NOW, summary="S", firstKeptEntryIndex=9),
        ]
    )
    state = state_of(old)
    made = parsed(branch(old))
    kept = [(one.get("firstKeptEntryIndex"), one.get("firstKeptEntryId")) for one in made[2:]]
    assert kept == [("two", None), (None, state.id(0)), (None, None)]
    half = Origin("new", NOW, "/w\ud800", "/old.jsonl", 3)
    (header,) = branch_lines(half, [], [], counter())
    assert json.loads(header)["cwd"] == "/w\ud800"
    assert b"\\ud800" in header
