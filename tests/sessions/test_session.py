"""The session's tree against a naive one: paths, counts, cycles, leaf moves, the ledger's bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.events import MESSAGE, Header, Kind, Turn, code
from indexerd.sessions.state import NOWHERE, ROOT, SessionState

USER = code(Kind.USER, message=True)
ANSWER = code(Kind.ASSISTANT, turn=Turn.ENDED, message=True)
CODES = [
    USER,
    ANSWER,
    code(Kind.ASSISTANT, turn=Turn.OPEN, message=True),
    code(Kind.ASSISTANT, turn=Turn.FAILED, message=True),
    code(Kind.TOOL, message=True),
    code(Kind.CUSTOM),
    code(Kind.BASH, message=True),
    code(Kind.LABEL),
    code(Kind.COMPACTION),
]
few = settings(max_examples=60, deadline=None)
IDS = [b"a", b"b", b"c", b"d"]


@dataclass
class Naive:
    """The same session as a list, every answer worked out from scratch."""

    entries: list[tuple[bytes, bytes | None, int]] = field(default_factory=list)
    leaf: int | None = None

    def add(self, entry_id: bytes, parent: bytes | None, packed: int) -> None:
        """Take in one entry; one without an id is no place to be."""
        self.entries.append((entry_id, parent, packed))
        if entry_id:
            self.leaf = len(self.entries) - 1

    def find(self, entry_id: bytes | None) -> int | None:
        """The last row of that id."""
        rows = [n for n, one in enumerate(self.entries) if one[0] == entry_id and entry_id]
        return rows[-1] if rows else None

    def parent(self, row: int) -> int | None:
        """The row above."""
        above = self.find(self.entries[row][1])
        return None if above == row else above

    def path(self, leaf: int | None) -> list[int]:
        """Root first."""
        rows: list[int] = []
        while leaf is not None and leaf not in rows:
            rows.append(leaf)
            leaf = self.parent(leaf)
        return rows[::-1]

    def users(self, rows: list[int]) -> int:
        """Human messages among them."""
        return sum(self.entries[row][2] & 0x0F == Kind.USER for row in rows)

    def new_users(self, since: bytes | None) -> int:
        """Those after `since`, or all (S0.8, S0.9)."""
        rows, mark = self.path(self.leaf), self.find(since)
        return self.users(rows[rows.index(mark) + 1 :] if mark in rows else rows)

    def on_cycle(self, row: int) -> bool:
        """Whether the way up from a row leads back to it."""
        at = self.parent(row)
        for _ in self.entries:
            if at is None or at == row:
                break
            at = self.parent(at)
        return at == row

    def turn(self) -> Turn:
        """By the last thing said on the path."""
        for row in reversed(self.path(self.leaf)):
            packed = self.entries[row][2]
            if packed & 0x0F in (Kind.USER, Kind.ASSISTANT, Kind.TOOL):
                return Turn(packed >> 4 & 3) if packed & 0x0F == Kind.ASSISTANT else Turn.OPEN
        return Turn.OPEN


Step = tuple[str, bytes, bytes | None, int]
adds = st.tuples(
    st.just("add"),
    st.sampled_from([*IDS, b""]),
    st.sampled_from([None, b"gone", *IDS]),
    st.sampled_from(CODES),
)
moves = st.tuples(st.just("move"), st.just(b""), st.sampled_from([None, b"gone", *IDS]), st.just(0))
wild = st.lists(st.one_of(adds, adds, adds, moves), max_size=14)


@st.composite
def orderly(draw: st.DrawFn) -> list[Step]:
    """What pi writes: fresh ids, each parent before its child, now and then a leaf moved back."""
    steps: list[Step] = []
    ids: list[bytes | None] = [None]
    for n in range(draw(st.integers(0, 16))):
        if draw(st.integers(0, 5)) == 0:
            steps.append(("move", b"", draw(st.sampled_from(ids)), 0))
        name = b"%08x" % n
        steps.append(("add", name, draw(st.sampled_from(ids)), draw(st.sampled_from(CODES))))
        ids.append(name)
    if draw(st.booleans()):
        steps.append(("move", b"", draw(st.sampled_from(ids)), 0))
    return steps


def built(steps: list[Step]) -> tuple[SessionState, Naive]:
    """Both trees after the same steps."""
    state, naive = SessionState(), Naive()
    for n, (what, entry_id, other, packed) in enumerate(steps):
        if what == "add":
            assert state.add(entry_id, other, packed, 100 * n, 90) == len(naive.entries)
            naive.add(entry_id, other, packed)
        else:
            state.move_leaf(other)
            found = naive.find(other)
            naive.leaf = None if other is None else naive.leaf if found is None else found
    return state, naive


def agree(state: SessionState, naive: Naive) -> None:
    """Every question has the naive answer."""
    assert state.leaf == (NOWHERE if naive.leaf is None else naive.leaf)
    assert state.path() == naive.path(naive.leaf)
    assert state.user_messages() == naive.users(naive.path(naive.leaf))
    assert state.turn is naive.turn()
    rows = range(len(naive.entries))
    for row in rows:
        above = naive.parent(row)
        assert state.parent(row) == (ROOT if above is None else above)
        assert state.path(row) == naive.path(row)
        assert list(state.up(row)) == naive.path(row)[::-1]
        assert state.user_messages(row) == naive.users(naive.path(row))
        assert state.on_path(row) == (row in naive.path(naive.leaf))
    for since in (None, "", "gone", *(one[0].decode() for one in naive.entries)):
        assert state.new_user_messages(since) == naive.new_users(since.encode() if since else None)
    above_any = {naive.parent(row) for row in rows}
    assert state.tips() == [
        row
        for row in rows
        if row not in above_any and naive.find(naive.entries[row][0]) in (row, None)
    ]
    looped = {naive.entries[row][0].decode() for row in rows if naive.on_cycle(row)}
    assert set(state.cycles()) == looped
    assert len(state.cycles()) == len(looped)


def test_an_empty_session_has_no_path_and_is_still_a_session() -> None:
    """S1.5: nothing to count, nowhere to be; and a state without entries is not nothing."""
    state = SessionState()

    assert (state.path(), state.leaf_id, state.tips(), state.cycles()) == ([], None, [], [])
    assert (state.user_messages(), state.new_user_messages("a"), state.turn) == (0, 0, Turn.OPEN)
    assert len(state) == 0
    assert state


@few
@given(orderly())
def test_what_agents_write_is_counted_as_by_hand(steps: list[Step]) -> None:
    """S0.8 to S0.10, S1.4, S1.5, S1.13: orderly files, branches and leaf moves."""
    state, naive = built(steps)

    assert state.orderly
    agree(state, naive)


@few
@given(wild)
def test_whatever_is_written_is_counted_as_by_hand(steps: list[Step]) -> None:
    """S1.6, S1.7: repeated ids, own parents, parents that come late or never, cycles."""
    agree(*built(steps))


@few
@given(st.permutations(IDS), st.integers(0, 3), st.integers(1, 4))
def test_on_a_cycle_it_is_counted_as_by_hand(order: list[bytes], into: int, tail: int) -> None:
    """S1.7: a ring, and a path that runs into it, written in any order."""
    ring = dict(zip(IDS, [*IDS[1:], IDS[0]], strict=True))
    steps: list[Step] = [("add", name, ring[name], USER) for name in order]
    names = [IDS[into], *(b"t%d" % n for n in range(tail))]
    steps += [("add", name, above, USER) for above, name in pairwise(names)]
    agree(*built(steps))


@few
@given(wild, wild)
def test_counting_in_between_changes_no_later_count(first: list[Step], second: list[Step]) -> None:
    """S0.8: sums that were kept for a part of the file hold when more of it comes."""
    state, _ = built(first)
    state.user_messages()
    state.new_user_messages("a")
    naive = built(first)[1]
    for n, (what, entry_id, other, packed) in enumerate(second):
        if what == "add":
            state.add(entry_id, other, packed, 10**6 + n, 9)
            naive.add(entry_id, other, packed)
            state.user_messages()
    state.move_leaf(None)
    naive.leaf = None
    agree(state, naive)


@few
@given(st.one_of(orderly(), wild), st.one_of(orderly(), wild))
def test_the_ledgers_bytes_hold_all_of_it(first: list[Step], second: list[Step]) -> None:
    """S0 truth order: a state that slept answers, and grows, as one that stayed awake."""
    state, naive = built(first)
    state.header = Header("id", "/cwd", "2026-01-01T00:00:00Z", 3, None)
    state.labels = {"a": "label"}
    state.name, state.first_user, state.activity_ms = "name", "first", 12
    state.bad_lines, state.oversized = 2, 1

    woken = SessionState.decode(state.encode())

    assert woken.encode() == state.encode()
    assert (woken.header, woken.labels, woken.name) == (state.header, state.labels, "name")
    assert (woken.messages, woken.users, woken.assistants) == (
        state.messages,
        state.users,
        state.assistants,
    )
    assert (list(woken.offsets), list(woken.lengths)) == (list(state.offsets), list(state.lengths))
    agree(woken, naive)
    for what, entry_id, other, packed in second:
        if what == "add":
            assert woken.add(entry_id, other, packed, 1, 1) == state.add(
                entry_id, other, packed, 1, 1
            )
    assert woken.encode() == state.encode()
    assert woken.path() == state.path()


@few
@given(orderly(), st.sampled_from(CODES), st.booleans(), st.booleans())
def test_an_entry_taken_back_leaves_only_a_bad_line(
    steps: list[Step], packed: int, late: bool, counted: bool
) -> None:
    """F4: a line that turned out to be no JSON was never an entry; the leaf is where it was."""
    state, naive = built(steps)
    before = state.encode()
    state.add(b"torn", b"never" if late else None, packed, 10**6, 50)
    if counted:
        state.user_messages()
    state.take_back()

    assert state.bad_lines == 1
    state.bad_lines = 0
    assert state.encode() == before
    agree(state, naive)
    state.add(b"next", None, USER, 10**6, 50)
    naive.add(b"next", None, USER)
    agree(state, naive)


@pytest.mark.parametrize("late", [False, True])
def test_ten_thousand_deep(*, late: bool) -> None:
    """S1.6: neither a chain nor one in reverse, where every parent comes late, recurses."""
    depth = 10_000
    state = SessionState()
    for n in reversed(range(depth)) if late else range(depth):
        state.add(b"%d" % n, b"%d" % (n - 1) if n else None, USER, n, 1)
    state.move_leaf(b"%d" % (depth - 1))

    assert [state.id(row) for row in state.path()] == [str(n) for n in range(depth)]
    assert state.user_messages() == depth
    assert state.new_user_messages(str(depth - 6)) == 5
    assert state.cycles() == []
    assert [state.id(row) for row in state.tips()] == [str(depth - 1)]


def test_a_branch_switch_counts_the_new_path_alone() -> None:
    """S0.9, S1.13: the leaf that was indexed is on the old branch, so the whole new one counts."""
    state = SessionState()
    for n in range(6):
        state.add(b"old%d" % n, b"old%d" % (n - 1) if n else None, USER, n, 1)
    assert state.new_user_messages("old5") == 0

    state.add(b"new", b"old1", USER, 9, 1)

    assert [state.id(row) for row in state.path()] == ["old0", "old1", "new"]
    assert state.left("old5")
    assert not state.left("old1")
    assert not state.left("never was")
    assert not state.left(None)
    assert state.new_user_messages("old5") == 3
    assert state.new_user_messages("old1") == 1


def test_two_nodes_that_are_each_others_parents_end_every_walk() -> None:
    """S1.7: reported by their ids, once each; what hangs on them is not on the cycle."""
    state = SessionState()
    state.add(b"a", b"b", USER, 0, 1)  # its parent comes late
    state.add(b"b", b"a", USER, 1, 1)
    state.add(b"c", b"b", USER, 2, 1)

    assert sorted(state.cycles()) == ["a", "b"]
    assert [state.id(row) for row in state.path()] == ["a", "b", "c"]
    assert state.user_messages() == 3


def test_only_humans_count() -> None:
    """S0.7: custom messages, bash and tool results do not; totals are of the whole file."""
    state = SessionState()
    for n, packed in enumerate(CODES):
        state.add(b"%d" % n, b"%d" % (n - 1) if n else None, packed, n, 1)

    assert state.user_messages() == 1
    assert (state.users, state.assistants) == (1, 3)
    assert state.messages == sum(bool(packed & MESSAGE) for packed in CODES)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("turn", list(Turn))
@pytest.mark.parametrize("message", [False, True])
def test_a_code_holds_what_was_packed(kind: Kind, turn: Turn, *, message: bool) -> None:
    """One byte: kind, turn, message flag."""
    state = SessionState()
    row = state.add(b"a", None, code(kind, turn=turn, message=message), 0, 1)

    assert state.kind(row) is kind
    assert state.messages == message
    assert state.turn is (turn if kind is Kind.ASSISTANT else Turn.OPEN)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_state_are_a_value_error(data: bytes) -> None:
    """V6: the ledger may hold anything."""
    with pytest.raises(ValueError):
        SessionState.decode(data)


@few
@given(orderly(), st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_state_is_refused_or_has_its_parts_together(
    steps: list[Step], at: int, flip: int
) -> None:
    """V6: whatever byte is wrong, nothing but ValueError comes, and no array is too short."""
    good = bytearray(built(steps)[0].encode())
    good[at % len(good)] ^= flip
    try:
        state = SessionState.decode(bytes(good))
    except ValueError:
        return
    parts = (state.ids, state.parents, state.offsets, state.lengths, state.codes)
    assert {len(part) for part in parts} == {len(state)}
    assert NOWHERE <= state.leaf < max(len(state), 1)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, {"session_id": "a", "cwd": "/"}),  # a header of another build
        (0, {"session_id": 5, "cwd": "/", "created_at": "", "version": 3, "parent": None}),
        (3, b"\x00" * 4),  # parents without entries
        (3, b"\x00"),  # no whole number
        (6, b"\x01"),
        (7, 0),  # a leaf in an empty tree
        (7, -2),
        (8, [None, "", 0, 0, 0, 0, 0]),
        (8, [None, "", "x", 0, 0, 0, 0, 0]),
    ],
)
def test_a_state_of_another_build_is_refused(place: int, value: object) -> None:
    """V6: a ledger that an older or newer program wrote costs a re-read, not a crash."""
    held = msgspec.msgpack.decode(SessionState().encode())
    held[place] = value

    with pytest.raises(ValueError):
        SessionState.decode(msgspec.msgpack.encode(held))
