"""Chains of segments under random append, branch, return and restart.

The session is a pi tree whose leaf may move anywhere. Each message has a name, and a segment's
content is the names of its messages, so a chain is right if its contents are the path's messages.
"""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from indexerd.digests.segments import Segment, chain, covered, encode, parse
from indexerd.entries import Kind, Turn, code
from indexerd.sessions.state import NOWHERE, SessionState, message_rows, name_at, rows_between

USER = code(Kind.USER, message=True)
ANSWER = code(Kind.ASSISTANT, turn=Turn.ENDED, message=True)
TOOL, SETTING = code(Kind.TOOL, message=True), code(Kind.SETTING)
COMPACTION, LABEL = code(Kind.COMPACTION), code(Kind.LABEL)
keeps = st.integers(0, 6)
thresholds = st.integers(2, 8)
few = settings(max_examples=40, stateful_step_count=30, deadline=None)


class Session(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = SessionState()
        self.said: list[str] = []  # text of each row, independent of its id
        self.stored: list[str] = []  # lines of the sidecar
        self.keep = 3

    def add(self, packed: int, *, row_id: str) -> int:
        """Add a row below the leaf; a growing path never has fewer messages (S2.6)."""
        state = self.state
        before = message_rows(state)
        above = state.ids[state.leaf] if state.leaf != NOWHERE else None
        row = state.add(row_id, above, packed, 0, 1)
        assert message_rows(state)[: len(before)] == before
        return row

    def segments(self) -> list[Segment]:
        found = [parse(json.loads(line)) for line in self.stored]
        assert None not in found
        return [segment for segment in found if segment is not None]

    def spoken(self, rows: Sequence[int]) -> list[str]:
        return [self.said[row] for row in rows]

    @rule(keep=keeps, threshold=thresholds, asked=st.booleans())
    def digest(self, keep: int, threshold: int, asked: bool) -> None:
        """Make a digest as the service does, on request or at the threshold (S2.3, S2.4, S2.16)."""
        self.keep = keep
        rows = message_rows(self.state)
        had = chain(self.state, rows, self.segments())
        if not asked and len(rows) - covered(had) <= threshold:
            return
        first, last = covered(had), len(rows) - keep - 1
        if last < first:
            return
        made = Segment(
            id=f"s{len(self.stored)}",
            covering=(first, last),
            content=" ".join(self.spoken(rows[first : last + 1])),
            token_count=1,
            model="local/extractive",
            leaf_id=name_at(self.state, rows[last]),
        )
        self.stored.append(json.dumps(encode(made)))
        assert chain(self.state, rows, self.segments()) == [*had, made]

    @rule()
    def summed_up_elsewhere(self) -> None:
        rows = message_rows(self.state)
        if rows:
            last = len(rows) - 1
            name = name_at(self.state, rows[last])
            one = Segment(id="b", covering=(0, last), content="branch", leaf_id=name, kind="branch")
            self.stored.append(json.dumps(encode(one)))

    @invariant()
    def chain_is_true(self) -> None:
        """Contiguous from 0 in original positions, with this path's own messages (S2.5)."""
        rows = message_rows(self.state)
        at = 0
        for one in chain(self.state, rows, self.segments()):
            assert one.covering[0] == at
            at = one.covering[1] + 1
            assert at <= len(rows)
            assert one.content.split() == self.spoken(rows[one.covering[0] : at])

    @invariant()
    def shared_is_reused(self) -> None:
        rows = message_rows(self.state)
        assert covered(chain(self.state, rows, self.segments())) == self.reach(self.spoken(rows))

    def reach(self, said: list[str]) -> int:
        true = [
            segment
            for segment in self.segments()
            if segment.kind == "segment"
            and segment.content.split() == said[segment.covering[0] : segment.covering[1] + 1]
        ]
        got = {0}
        for one in sorted(true, key=lambda one: one.covering[0]):
            if one.covering[0] in got:
                got.add(one.covering[1] + 1)
        return max(got)

    @invariant()
    def every_row_belongs_to_one_message(self) -> None:
        path, rows = list(self.state.path()), message_rows(self.state)
        found = [row for n in range(len(rows)) for row in rows_between(path, rows, n, n)]
        assert found == path * bool(rows)

    @rule(packed=st.sampled_from([USER, ANSWER, ANSWER, TOOL, SETTING, COMPACTION, LABEL]))
    def append(self, packed: int) -> None:
        name = f"{len(self.said):08x}"
        self.said.append(name)
        self.add(packed, row_id=name)

    @rule(count=st.integers(1, 3))
    def talk(self, count: int) -> None:
        for packed in (USER, ANSWER, TOOL, ANSWER) * count:
            self.append(packed)

    @precondition(lambda self: self.said)
    @rule(data=st.data(), talks=st.integers(0, 3))
    def go_to(self, data: Any, talks: int) -> None:
        row = data.draw(st.integers(-1, len(self.said) - 1))
        self.state.leaf = row
        self.talk(talks)


TestSession = Session.TestCase
TestSession.settings = few
