"""A document in little memory: whatever it is cut into, whatever its strings hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from indexerd.agents.lines import parse, shortened

_TEXT = st.text(alphabet='ab"\\\n\t\u00e9\u4e2d\U0001f6a2/u0d', max_size=40)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


def pieces(data: bytes, size: int) -> list[bytes]:
    """A document as it is read."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def told(whole: Any, short: Any) -> bool:
    """Whether one is the other with some strings ended early."""
    if isinstance(whole, str):
        # Half of a pair may be left, which every reader takes for no character.
        return isinstance(short, str) and whole.startswith(short.encode("utf-8", "ignore").decode())
    if isinstance(whole, list):
        return len(whole) == len(short) and all(map(told, whole, short))
    if isinstance(whole, dict):  # keys may be cut, too, and two of them become one
        return isinstance(short, dict) and len(short) <= len(whole)
    return bool(whole == short)


@given(value=_VALUES, size=st.integers(1, 60), string=st.integers(0, 50), ascii_only=st.booleans())
def test_strings_end_early_and_all_else_stays(
    value: Any, size: int, string: int, *, ascii_only: bool
) -> None:
    """F8: the same values in the same places; a string is cut at no half escape or character."""
    data = json.dumps([value], ensure_ascii=ascii_only).encode()
    short = shortened(pieces(data, size), len(data), string)
    assert told([value], parse(short))
    assert short == shortened([data], len(data), string)
    assert shortened(pieces(data, size), len(data), len(data)) == data


@given(value=_VALUES, size=st.integers(1, 60), most=st.integers(8, 60))
def test_what_is_long_even_so_is_its_beginning(value: Any, size: int, most: int) -> None:
    """F8: no more than `most` bytes are taken of it, and it is a document."""
    data = json.dumps({"a": 1, "then": [value] * 5}).encode()
    short = shortened(pieces(data, size), most, 10)
    assert parse(short)["a"] == 1


def test_what_stands_behind_a_picture_stays() -> None:
    """F8: a prompt whose picture comes first keeps its words."""
    content = [{"type": "image", "data": "A" * 100_000}, {"type": "text", "text": "Which quokka?"}]
    short = parse(shortened(pieces(json.dumps(content).encode(), 1000), 5000, 100))
    assert short == [content[0] | {"data": "A" * 100}, content[1]]


@given(st.lists(st.sampled_from([b'"', b"\\", b"{", b"a", b"\xff"])).map(b"".join))
def test_no_bytes_raise(data: bytes) -> None:
    """F4: what is no document comes back as none, whatever it is."""
    for size in (1, 3, 100):
        assert isinstance(shortened(pieces(data, size), 20, 5), bytes)
