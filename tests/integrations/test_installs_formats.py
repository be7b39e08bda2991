"""JSON and TOML of a user's: what is put in can be taken out, and all else stays as it was."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.integrations import jsonc, toml_table
from tests.integrations.installing import LINES

SPACES = st.text(" \t\r\n", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
STYLES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"indent": 2}, {"indent": "\t"}, {"indent": 4}, {}]
)
MARK = "indexerd integration; test"


@st.composite
def written(draw: st.DrawFn) -> str:
    """An object as somebody writes it."""
    held = draw(st.dictionaries(st.text(max_size=4).filter(lambda key: key != "ours"), VALUES))
    text = json.dumps(held, **draw(STYLES))
    text = text.replace("\n", "\r\n") if draw(st.booleans()) else text
    return draw(SPACES) + text + draw(SPACES)


# -- JSON ----------------------------------------------------------------------------------------


@given(written(), VALUES)
def test_what_is_put_into_json_can_be_taken_out(before: str, new: Any) -> None:
    """A member put in and taken out leaves the bytes that were there; between, only it is new."""
    held = json.loads(before)
    after = jsonc.insert(before, jsonc.parse(before), new, "ours")
    assert json.loads(after) == held | {"ours": new}
    assert list(json.loads(after)) == [*held, "ours"]
    root = jsonc.parse(after)
    assert jsonc.remove(after, [(root, len(held))]) == before


@given(st.lists(VALUES, max_size=4), VALUES, STYLES, st.integers(0, 4))
def test_items_of_lists_likewise(held: list[Any], new: Any, style: dict[str, Any], at: int) -> None:
    """The same for items, two levels down; any other item can be taken out as well."""
    before = json.dumps({"a": {"b": held}}, **style)
    array = jsonc.parse(before).member("a").member("b")  # type: ignore[union-attr] # it is there
    assert array is not None
    after = jsonc.insert(before, array, new)
    assert json.loads(after) == {"a": {"b": [*held, new]}}
    root = jsonc.parse(after)
    outer = root.children[0].node
    inner = outer.children[0].node
    assert jsonc.remove(after, [(root, 0), (outer, 0), (inner, len(held))]) == before
    if len(held) > at:
        less = jsonc.remove(after, [(root, 0), (outer, 0), (inner, at)])
        assert less is not None
        assert json.loads(less) == {"a": {"b": [*held[:at], *held[at + 1 :], new]}}


@given(VALUES, STYLES)
def test_json_is_read_as_the_library_reads_it(value: Any, style: dict[str, Any]) -> None:
    """Values come out as `json` has them; what it refuses, we refuse."""
    text = json.dumps(value, **style)
    assert jsonc.parse(text).value == value
    for bad in (
        text + ",",
        "[" + text,
        text + text[-1:] + "]",
        '{"a" 1}',
        "[1,]",
        "{,}",
        "",
        "nul",
    ):
        with pytest.raises(ValueError, match="not JSON"):
            jsonc.parse(bad)


def test_comments_stay() -> None:
    """Comments are no part of a value, and are kept by every change, also between two of ours."""
    before = '{ // first\n  "a": 1, /* second */\n  "b": [1] // third\n}\n'
    after = jsonc.insert(before, jsonc.parse(before), 2, "ours")
    assert jsonc.parse(after).value == {"a": 1, "b": [1], "ours": 2}
    for comment in ("// first", "/* second */", "// third"):
        assert comment in after
    assert jsonc.remove(after, [(jsonc.parse(after), 2)]) == before
    between = '{"a": 1, // mine\n "ours": 2,\n "b": 3}'
    left = jsonc.remove(between, [(jsonc.parse(between), 1)])
    assert left is not None
    assert "// mine" in left
    assert jsonc.parse(left).value == {"a": 1, "b": 3}


def test_a_text_nested_without_end_is_refused() -> None:
    """Bounded: deep nesting is an error, not a crash."""
    with pytest.raises(ValueError, match="deep"):
        jsonc.parse("[" * 100_000)


# -- TOML ----------------------------------------------------------------------------------------


@given(
    st.sampled_from(
        ["", "a = 1", "a = 1\n", "[x]\n# c\n\n", "# only\n", '[mcp_servers.y]\ncommand = "z"']
    ),
    st.booleans(),
)
def test_what_is_put_into_toml_can_be_taken_out(before: str, crlf: bool) -> None:
    """A table put in, twice, and taken out leaves the bytes that were there."""
    before = before.replace("\n", "\r\n") if crlf else before
    after = toml_table.put(before, "mcp_servers.ours", MARK, LINES)
    held = tomllib.loads(after)
    assert held["mcp_servers"]["ours"] == {"command": "/x/indexerd", "args": ["mcp"]}
    assert toml_table.put(after, "mcp_servers.ours", MARK, LINES) == after
    assert toml_table.take(after, "mcp_servers.ours", MARK, LINES) == before
    unmarked = "".join(one for one in after.splitlines(keepends=True) if MARK not in one)
    assert toml_table.take(unmarked, "mcp_servers.ours", MARK, LINES) == before


def test_what_came_after_our_table_stays() -> None:
    """Tables that its agent wrote behind ours stay; what it wrote below ours goes with it."""
    text = toml_table.put("a = 1\n", "s.ours", MARK, LINES)
    text += 'enabled = true\n\n[s.ours.tools.x]\nmode = "y"\n# of the next\n[z]\nb = 2\n'
    newer = toml_table.put(text, "s.ours", MARK, ['command = "/y"', 'args = ["mcp"]'])
    assert tomllib.loads(newer)["s"]["ours"]["command"] == "/y"
    assert tomllib.loads(newer)["s"]["ours"]["enabled"] is True
    left = toml_table.take(newer, "s.ours", MARK, LINES)
    assert left is not None
    assert tomllib.loads(left) == {"a": 1, "z": {"b": 2}}
    assert "# of the next" in left


EDITED = """model = "x"
[s.ours.env]
A = "1"

# indexerd integration; an older one
[s.ours]
args = [
    "-m",
    "mcp",
] # as it was
command = "/old/indexerd"
tool_timeout_sec = 300
# mine: off at work
enabled = false
env_vars = [
    "MINE",
]

[z]
b = 2
"""


def test_what_the_user_wrote_into_our_table_stays() -> None:
    """Program and arguments are ours; limits, lists, comments and further keys are the user's."""
    newer = toml_table.put(EDITED, "s.ours", MARK, [*LINES, "tool_timeout_sec = 60"])
    held = tomllib.loads(newer)["s"]["ours"]
    assert held == tomllib.loads(EDITED)["s"]["ours"] | {
        "command": "/x/indexerd",
        "args": ["mcp"],
    }
    assert "# mine: off at work\nenabled = false\n" in newer
    assert newer.count("\n") == EDITED.count("\n") - 3  # a list of four lines is one line now
    assert toml_table.put(newer, "s.ours", MARK, LINES) == newer
    left = toml_table.take(newer, "s.ours", MARK, LINES)
    assert left is not None
    assert tomllib.loads(left) == {"model": "x", "s": {"ours": {"env": {"A": "1"}}}, "z": {"b": 2}}


def test_a_table_right_behind_ours_keeps_its_line() -> None:
    """Where nothing ended the last line of the user's, the break before our table stays."""
    text = toml_table.put("a = 1", "s.ours", MARK, LINES) + "[z]\nb = 2\n"
    assert toml_table.take(text, "s.ours", MARK, LINES) == "a = 1\n[z]\nb = 2\n"


def test_a_table_of_the_users_is_left_alone() -> None:
    """A table of that name that is not ours is refused; one that says the same is enough."""
    with pytest.raises(UsageError, match="not ours"):
        toml_table.put('[s.ours]\ncommand = "other"\n', "s.ours", MARK, LINES)
    same = "[s.ours]\n" + "\n".join(LINES) + "\n"
    assert toml_table.put(same, "s.ours", MARK, LINES) == same
    other = same.replace("/x/", "/y/")
    assert toml_table.take(other, "s.ours", MARK, LINES) == other
    quoted = f"a = '''\n# {MARK}\n{same}'''\n"  # a text that only looks like ours
    assert toml_table.take(quoted, "s.ours", MARK, LINES) == quoted
    for bad in ("[s", "s = { x = 1 }\n", "s = 3\n"):
        with pytest.raises(ValueError, match=r"TOML|cannot"):
            toml_table.put(bad, "s.ours", MARK, LINES)
