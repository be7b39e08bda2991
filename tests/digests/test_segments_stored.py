"""Segments as they are stored: read again as written, and by any hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.digests.segments import (
    CONTENT_MAX,
    DECISION_MAX,
    POSITION_MAX,
    Segment,
    ToolUse,
    encode,
    parse,
)

LINE: dict[str, Any] = {
    "id": "s1",
    "covering_messages": [0, 3],
    "content": "- a\n- b",
    "leafId": "x3",
}


def test_what_is_not_said_is_empty() -> None:
    """A line by another hand needs id, range, content and leaf; unknown fields are passed over."""
    made = parse(LINE | {"unknown": [1], "model": None})
    assert made == Segment("s1", 0, 3, "- a\n- b", (), (), (), "", 0, "", "x3")
    assert made is not None
    assert made.messages == 4
    for key in LINE:
        assert parse({name: held for name, held in LINE.items() if name != key}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"covering_messages": held}
        for held in (
            [3, 0],
            [0],
            [0, 1, 2],
            [-1, 3],
            [0, 1.5],
            [False, 3],
            "03",
            [0, POSITION_MAX + 1],
        )
    ]
    + [
        {"id": ""},
        {"id": 7},
        {"content": " \n\x00"},
        {"leafId": ["x"]},
        {"key_decisions": "all"},
        {"key_decisions": [1]},
        {"files_modified": {"a": 1}},
        {"tools_used": [["bash", 1]]},
        {"tools_used": [{"tool": "bash", "count": "1"}]},
        {"tools_used": [{"tool": "bash", "count": -1}]},
        {"token_count": 1.5},
        {"kind": "chapter"},
        {7: 7},
    ],
)
def test_wrong_types_make_a_line_unusable(wrong: dict[Any, Any]) -> None:
    """It is passed over, and nothing raises."""
    assert parse(LINE) is not None
    assert parse(LINE | wrong) is None


@pytest.mark.parametrize("held", [None, [], "x", 3, {}])
def test_what_is_no_object_is_no_segment(held: Any) -> None:
    """Whatever a line holds."""
    assert parse(held) is None


def test_texts_by_another_hand_are_cut_and_cleaned() -> None:
    """A sidecar is anyone's: too long, terminal escapes, newlines where one line is meant."""
    made = parse(
        LINE
        | {
            "content": "\x1b[31mred\x1b[0m " + "word " * CONTENT_MAX,
            "key_decisions": ["a\nb", "", "c" * 9 * DECISION_MAX, *["d"] * 9],
            "files_modified": ["/a\nb", "/a\nb", "", "/ok"],
            "tools_used": [{"tool": "ba\x07sh", "count": 2, "notable_uses": list("uvwx")}],
            "model": "m\u202e",
        }
    )
    assert made is not None
    assert made.content.startswith("red word")
    assert len(made.content) <= CONTENT_MAX
    assert made.key_decisions == ("a b", "c" * DECISION_MAX, "d", "d")
    assert made.files_modified == ("/a\\nb", "/ok")
    assert made.tools_used == (ToolUse("bash", 2, ("u", "v", "w")),)
    assert made.model == "m"


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=5,
)
lines = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=4) | json_like,
        "covering_messages": st.lists(st.integers(-1, 5), min_size=2, max_size=2) | json_like,
        "content": st.text(max_size=20) | json_like,
        "leafId": st.text(max_size=4) | json_like,
        "key_decisions": st.lists(st.text(max_size=9), max_size=7) | json_like,
        "files_modified": st.lists(st.text(max_size=9), max_size=4) | json_like,
        "tools_used": json_like,
        "token_count": st.integers(-1, 9) | json_like,
        "kind": st.sampled_from(["segment", "branch"]) | json_like,
    },
)


@settings(max_examples=80)
@given(lines)
def test_what_was_read_is_written_and_read_again(held: dict[str, Any]) -> None:
    """S2.8: any line is read or refused; what is read stays the same from then on."""
    made = parse(LINE | held)
    if made is not None:
        stored = json.dumps(encode(made), ensure_ascii=False).encode()  # no lone surrogates
        assert parse(json.loads(stored)) == made
        assert (made.kind == "branch") == ("kind" in encode(made))
