"""Codex's rollouts on disk: any split, any damage, lines too long to hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.agents import codex
from indexerd.agents.codex.oversize import mended
from indexerd.agents.codex.shape import Item
from indexerd.events import Kind, Turn
from indexerd.sessions.state import SessionState
from indexerd.sources import lines as lines_module
from tests.agents.codex_files import (
    OTHER,
    THREAD,
    answer,
    call,
    entries,
    event,
    item,
    line,
    meta,
    output,
    said,
    state_of,
    talk,
    texts,
    turn,
    undone,
    user,
)

ENVIRONMENT = "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"


def session() -> bytes:
    """Two turns with events, a rollback of one, and two more, the last with a failed tool."""
    return b"".join(
        (
            meta(git={"branch": "main"}),
            item("message", role="developer", content=[{"type": "input_text", "text": "rules"}]),
            user(ENVIRONMENT),
            talk("t1", "öne"),
            talk("t2", "two"),
            event("thread_rolled_back", num_turns=1),
            talk("t3", "three"),
            turn("t4", user("four"), said("four"), call(cmd="false"), output("Exit code: 1\n")),
        )
    )


@given(st.lists(st.integers(0, len(session())), max_size=8))
def test_any_split_gives_the_same_state(cuts: list[int]) -> None:
    """F1: however the bytes arrive, and through the ledger in between, each record counts once."""
    assert state_of(session()).encode() == state_of(session(), cuts=cuts, stored=True).encode()


def test_ids_hold_when_read_anew_and_in_a_copy() -> None:
    """S3.6: an item's own id, else `L` and the ordinal, else `L` and its place; never one twice."""
    body = talk("t1", "one") + user("q", id="msg_1") + user("q", id="msg_1")
    own, copied = state_of(meta(), body), state_of(meta(OTHER), meta(), body)
    assert own.ids == copied.ids
    assert own.ids[-2:] == [b"msg_1", b"L7"]
    numbered = [line("turn_context", {"model": "m"}, ordinal=n) for n in (40, 41, 41, -1)]
    assert state_of(meta(), *numbered).ids == [b"L40", b"L41", b"L41.2", b"L3"]
    kept = state_of(meta(), user("q", id="x\ud83d" + "ü" * 300))
    assert kept.row(kept.id(0)) == 0


def test_lines_that_are_no_entries_are_counted_and_skipped() -> None:
    """F3, F4, F5, F6, F7: damage loses its own line only; foreign line ends do no harm."""
    bad = [
        b"{not json\n",
        b"[" * 100_000 + b"\n",
        b"null\n",
        b"[]\n",
        b'"x"\n',
        b"\x00" * 99 + b"\n",
        b"\xef\xbb\xbf" * 9999 + b"\n",
    ]
    glued = user("lost")[:-9] + user("with it")
    crlf = user("cut \ud83d").replace(b"\n", b"\r\n")
    assert state_of(b"\xef\xbb\xbf" * 9999 + b"\n").bad_lines == 1
    data = b"\xef\xbb\xbf" + meta() + b"".join(bad) + b"\n  \n" + glued + crlf
    state = state_of(data)
    assert state.bad_lines == len(bad) + 1
    assert state.first_user == "cut \ufffd"
    assert texts(state, data) == ["cut \ufffd"]


_FIELD = st.sampled_from([*Item.__struct_fields__, "text", "query", "command", "timestamp"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELD, inner, max_size=4),
    max_leaves=12,
)
_WORDS = [
    "message",
    "function_call",
    "function_call_output",
    "user_message",
    "item_completed",
    "turn_aborted",
    "task_complete",
    "task_started",
    "token_count",
    "thread_rolled_back",
    "patch_apply_end",
    "exec_command_end",
    "error",
    "user",
    "assistant",
    "UserMessage",
]
_TYPES = ["session_meta", "response_item", "event_msg", "turn_context", "compacted", None]


@given(st.lists(st.tuples(st.sampled_from(_TYPES), st.sampled_from(_WORDS), _JSON), max_size=12))
def test_nothing_in_a_file_raises(odd: list[tuple[str | None, str, object]]) -> None:
    """F4: wrong types anywhere read as absent; what became a row can be read in full."""
    lines = []
    for kind, word, held in odd:
        payload = held | {"type": word} if isinstance(held, dict) else held
        lines.append(line(kind, payload) if kind else json.dumps(payload).encode() + b"\n")
    data = meta() + b"".join(lines)
    state = state_of(data)
    assert len(entries(state, data)) == len(state.path())
    for one in lines:
        codex.base(one)
    SessionState.decode(state.encode())


def test_a_line_too_long_to_hold_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: what a long line is, stands at its beginning; counts, turns and failures hold."""
    monkeypatch.setattr(lines_module, "LINE_MAX", 5000)
    monkeypatch.setattr(lines_module, "READ_MAX", 6000)
    monkeypatch.setattr(lines_module, "END_KEPT", 600)
    long = "x" * 20_000
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{long}"}
    asked = item(
        "message", role="user", content=[{"type": "input_text", "text": 'see "it"'}, image]
    )
    told = event("user_message", message='see "it"', images=[long])
    again = item("message", role="user", content=[image])
    data = b"".join(
        (
            meta(base_instructions={"text": long}, git={"branch": "b"}),
            turn("t1", asked, told, call(), output(f"Exit code: 1\n{long}"), answer(long)),
            turn("t2", again, event("user_message", message="", images=[long]), answer("b")),
            line("compacted", {"message": long}),
        )
    )
    state = state_of(data, cuts=range(0, len(data), 700))
    assert state.header is not None
    assert (state.header.session_id, state.header.cwd, state.oversized) == (THREAD, "/w", 8)
    kinds = [state.kind(row).name for row in state.path() if state.kind(row) is not Kind.SETTING]
    assert kinds == ["USER", "CALL", "TOOL", "ASSISTANT", "USER", "ASSISTANT", "COMPACTION"]
    assert (state.first_user, state.turn, state.bad_lines) == ('see "it"', Turn.ENDED, 0)
    assert [row for row in state.path() if undone(state, row)] == [4]
    assert [state.lengths[row] for row in (2, 4, 5)] == [0, 0, 0]
    assert state.encode() == state_of(data, cuts=range(0, len(data), 333)).encode()


def test_a_prompt_of_many_megabytes_is_read_in_full() -> None:
    """F8: its place is kept with its length, and its text without the picture."""
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * (9 << 20)}
    asked = item("message", role="user", content=[{"type": "input_text", "text": "See"}, image])
    data = meta() + turn("t1", asked, said("See"), answer("A cat."))
    state = state_of(data, cuts=range(0, len(data), 1 << 20))
    assert (state.oversized, state.first_user, 0 in state.lengths) == (0, "See", False)
    assert data.index(asked) in state.offsets
    assert len(asked) - 1 in state.lengths
    assert texts(state, data) == ["See"]


_VALUES = st.dictionaries(st.text(max_size=4), _JSON, max_size=4)


@given(_VALUES, st.integers(0, 400))
def test_the_beginning_of_a_document_is_mended(held: dict[str, object], length: int) -> None:
    """F8: wherever a document is cut, what is left of it is a document, with what came before."""
    data = json.dumps({"first": 1, "then": held}).encode()
    head = data[: max(length, 12)]
    found = json.loads(mended(head))
    assert found["first"] == 1
    assert set(found.get("then") or {}) <= set(held)


def test_bytes_that_are_no_text_are_replaced() -> None:
    """F4: bad UTF-8 costs the character it stands in, and not the line, wherever it is."""
    asked = user("caf?", id="msg?").replace(b"?", b"\xe9")
    data = meta(cwd="/w?").replace(b"?", b"\xff") + asked + call(cmd="?").replace(b"?", b"\xff")
    state = state_of(data)
    assert state.header is not None
    assert (state.header.cwd, state.bad_lines) == ("/w\ufffd", 0)
    assert texts(state, data) == ["caf\ufffd"]
    assert entries(state, data)[1].tools[0].detail == "\ufffd"
    assert codex.base(data.partition(b"\n")[0]) is None
