"""Words and facts equal those of a read from scratch, after any move of the leaf."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexerd.agents.claude.parse_entry import read
from indexerd.entries import Header, Kind, Turn, code
from indexerd.privacy.redact import OwnSecrets
from indexerd.search.index import TextIndex
from indexerd.search.text_indexer import TextIndexer
from indexerd.sessions.facts import ActivityStats, RowFacts, SessionUsage
from indexerd.sessions.info import SessionInfo, info_of
from indexerd.sessions.state import SessionState
from tests.store.rows import emptied, scratch

CODES = {
    "user": code(Kind.USER, message=True),
    "assistant": code(Kind.ASSISTANT, message=True),
    "failed": code(Kind.TOOL, turn=Turn.FAILED),
}


class Session:
    """A tree of Claude's lines, as `Files` hands it out; `read` counts the lines asked for."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.tree = SessionState("/s.jsonl")
        self.tree.header = Header("s1", "/w", "2026-01-01T00:00:00.000Z", 1)
        self.read = 0

    def turn(self, parent: str | None, role: str = "assistant", name: str = "") -> str:
        """A message below another one; an answer edits its own file and costs tokens."""
        name = name or f"e{len(self.tree)}"
        content: list[dict[str, Any]] = [{"type": "text", "text": f"word{len(self.tree)}"}]
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            call: dict[str, Any] = {
                "type": "tool_use",
                "id": name,
                "name": "Edit",
                "input": {"file_path": name},
            }
            content.append(call)
            usage = {"input_tokens": 1, "output_tokens": 2}
            message |= {"id": f"m{len(self.tree)}", "model": "claude-x", "usage": usage}
        elif role == "failed":
            message["role"] = "user"
            content[0] = {"type": "tool_result", "tool_use_id": parent, "is_error": True}
        kind = message["role"]
        held = {
            "type": kind,
            "uuid": name,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": message,
        }
        line = json.dumps(held, separators=(",", ":")).encode() + b"\n"
        above = parent or None
        self.tree.add(name, above, CODES[role], len(self.data), len(line) - 1)
        self.data += line
        return name

    def drop_tree(self, _session_id: str) -> None:
        pass

    def info(self, _session_id: str) -> SessionInfo:
        made = info_of(self.tree, agent="claude", path="/s.jsonl", mtime_ms=0, since=None)
        assert made is not None
        return made

    def state(self, _session_id: str) -> SessionState:
        return self.tree

    def lines(self, _session_id: str) -> Any:
        return nullcontext(self)

    def row(self, row: int) -> bytes:
        self.read += 1
        start = self.tree.offsets[row]
        return bytes(self.data[start : start + self.tree.lengths[row]])

    def afresh(self) -> RowFacts:
        """The facts of the path, gathered from scratch, and the totals of every branch."""
        deeds = ActivityStats()
        for row in sorted(self.tree.path()):
            deeds.add(read(self.row(row), self.tree.id(row)), "/w")
        for row in range(len(self.tree)):
            deeds.spent.add(read(self.row(row), self.tree.id(row)))
        return deeds.facts()


class Watch:
    """A catalog, and the facts last published."""

    def __init__(self, held: Session, index: TextIndex) -> None:
        self.facts = RowFacts()
        emptied(index)
        files: Any = held
        self.texts = TextIndexer(
            files, index, self._publish, lambda _: False, secrets=OwnSecrets(tuple)
        )

    def _publish(self, _session_id: str, facts: RowFacts, _usage: SessionUsage) -> None:
        self.facts = facts

    def all_read(self, limit: int = 500) -> RowFacts:
        """The facts when nothing is left to read, which must happen in the end."""
        for _ in range(1000):
            if self.texts.index_session("s1", limit):
                return self.facts
        pytest.fail("it never ends")


@pytest.fixture(scope="module")
def index() -> Iterator[TextIndex]:
    with scratch() as index:
        yield index


ROLES = st.sampled_from(["user", "assistant", "assistant", "failed"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40), ROLES),
        st.tuples(st.just("add"), st.just(-1), ROLES),
        st.tuples(st.just("move"), st.integers(0, 40), st.just("")),
        st.tuples(st.just("read"), st.integers(1, 5), st.just("")),
        st.tuples(st.just("settle"), st.integers(0, 4), st.just("")),
        st.tuples(st.just("repeat"), st.integers(0, 40), st.just("assistant")),
    ),
    max_size=40,
)
REDONE = [("add", -1, "assistant")] * 4 + [
    *[("move", 2, ""), ("read", 5, ""), ("move", 4, ""), ("read", 5, "")]
]


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 7))
@example(REDONE, 3)
def test_facts_equal_those_gathered_from_scratch(
    index: TextIndex, steps: list[tuple[str, int, str]], limit: int
) -> None:
    """S1.13: however the tree grew, the leaf moved, and the reading was split."""
    held = Session()
    watch = Watch(held, index)
    for what, number, role in steps:
        ids = [None, *(held.tree.id(row) for row in range(len(held.tree)))]
        place = ids[number % len(ids)] if number >= 0 else held.tree.leaf_id
        if what == "add":
            held.turn(place, role)
        elif what == "move":
            held.tree.leaf = held.tree.index[place] if place else -1
        elif what == "settle":
            held.tree.unsettled = min(number, len(held.tree))
        elif what == "repeat" and place:
            held.turn(held.tree.leaf_id, role, name=place)
        elif what == "read":
            watch.texts.index_session("s1", number)
    held.tree.unsettled = 0
    watch.texts.index_session("s1", limit)
    assert watch.all_read(limit) == held.afresh()
    said = {row for row in range(len(held.tree)) if held.tree.kind(row) is not Kind.TOOL}
    index.commit()
    stored = {message.text for message in index.messages("s1", 0)}
    assert {f"word{row}" for row in said} <= stored


def test_a_session_that_grows_is_read_once(index: TextIndex) -> None:
    """S1.38: only new lines are read, each once for words and facts."""
    held = Session()
    watch = Watch(held, index)
    for _ in range(20):
        held.turn(held.tree.leaf_id)
        watch.all_read()
    assert held.read == 20
    for limit in (1, 7):
        held.turn(held.tree.leaf_id, "user")
        watch.all_read(limit)
    assert held.read == 22
