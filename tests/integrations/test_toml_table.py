"""One table of ours in somebody else's TOML: in, brought up to date, out, and nothing else."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.integrations.toml_table import put, take

TABLE, MARKER = "mcp_servers.indexerd", "indexerd: made by `indexerd install`"
LINES = ('command = "/bin/indexerd"', 'args = ["mcp"]')
OURS = f'# {MARKER}\n[{TABLE}]\ncommand = "/bin/indexerd"\nargs = ["mcp"]\n'
OTHERS = (
    "",
    "\n",
    "a = 1",
    "a = 1\n",
    "a = 1\r\n",
    "# only a remark",
    '[mcp_servers.other]\ncommand = "x"\n',
    "[[list]]\na = [\n 1,\n 2,\n]\n\n\n",
    'text = """\n[mcp_servers.indexerd]\n"""\n',
)


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_put_in_stands_at_the_end_and_comes_out_again(text: str) -> None:
    """What was there before stays to the letter, and is all that is left afterwards."""
    newline = "\r\n" if "\r\n" in text else "\n"
    after = put(text, TABLE, MARKER, LINES)
    assert after == text + newline + OURS.replace("\n", newline)
    assert tomllib.loads(after)["mcp_servers"]["indexerd"]["args"] == ["mcp"]
    assert put(after, TABLE, MARKER, LINES) == after
    assert take(after, TABLE, MARKER, LINES) == text


def test_a_file_of_ours_alone_goes() -> None:
    """Where there was no file there is none afterwards."""
    assert put(None, TABLE, MARKER, LINES) == OURS
    assert take(OURS, TABLE, MARKER, LINES) is None


def test_an_update_writes_the_command_anew_and_leaves_the_rest_of_the_table() -> None:
    """Keys of the user's, remarks and lists over several lines stay; ours are those of now."""
    text = (
        f"a = 1\n\n# {MARKER}\n[{TABLE}]\n# slow here\n"
        'command = "/old/indexerd"\nargs = [\n  "mcp",\n  "--old",\n]\n'
        'startup_timeout_sec = 40\n\n[mcp_servers.indexerd.env]\nA = "b"\n\n[other]\nc = 2\n'
    )
    after = put(text, TABLE, MARKER, LINES)
    assert after == (
        f"a = 1\n\n# {MARKER}\n[{TABLE}]\n# slow here\n"
        'command = "/bin/indexerd"\nargs = ["mcp"]\n'
        'startup_timeout_sec = 40\n\n[mcp_servers.indexerd.env]\nA = "b"\n\n[other]\nc = 2\n'
    )
    assert take(after, TABLE, MARKER, LINES) == "a = 1\n\n\n[other]\nc = 2\n"


def test_the_marker_is_known_by_its_first_words() -> None:
    """An earlier version's remark, which ended otherwise, is ours too."""
    old = OURS.replace("made by `indexerd install`", "made by an older one")
    assert take("a = 1\n\n" + old, TABLE, MARKER, LINES) == "a = 1\n"


def test_a_table_without_our_marker_is_ours_if_it_says_just_that() -> None:
    """A program that rewrote the file has taken our remark away; a user's own table stays."""
    bare = OURS.partition("\n")[2]
    assert put("a = 1\n" + bare, TABLE, MARKER, LINES) == "a = 1\n" + bare
    assert take("a = 1\n" + bare, TABLE, MARKER, LINES) == "a = 1"
    theirs = f'a = 1\n[{TABLE}]\ncommand = "/their/own"\n'
    assert take(theirs, TABLE, MARKER, LINES) == theirs
    with pytest.raises(UsageError, match="not ours") as caught:
        put(theirs, TABLE, MARKER, LINES)
    assert TABLE in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = ", "not TOML"),
        ("mcp_servers = 1\n", "cannot be written into it"),
        ("mcp_servers = {a = {}}\n", "cannot be written into it"),
    ],
)
def test_a_text_without_room_for_it_is_refused(text: str, words: str) -> None:
    """What is no TOML, or would be none with our table, is left alone."""
    with pytest.raises(ValueError, match=words):
        put(text, TABLE, MARKER, LINES)


def test_tables_that_came_to_stand_around_ours_keep_their_lines() -> None:
    """A table right behind ours begins on a line of its own, when ours is gone."""
    text = "a = 1\n" + OURS + "[z]\nb = 2\n"
    assert take(text, TABLE, MARKER, LINES) == "a = 1\n[z]\nb = 2\n"
    assert take(OURS + "[z]\nb = 2\n", TABLE, MARKER, LINES) == "[z]\nb = 2\n"


KEYS = st.sampled_from(["a", "b", "mcp_servers.x", "'c d'"])
VALUES = st.sampled_from(["1", '"x"', "[1, 2]", "[\n 1,\n]", "{d = 1}", '"""\n[t]\n"""'])
TEXTS = st.lists(
    st.tuples(st.sampled_from(["", "\n", "# told\n", "[t]\n", "[[l]]\n"]), KEYS, VALUES),
    max_size=5,
).map(lambda parts: "".join(f"{head}{key} = {value}\n" for head, key, value in parts))


@given(TEXTS)
def test_in_and_out_again_is_nothing(text: str) -> None:
    """Any text that takes the table is, without it, what it was."""
    try:
        after = put(text, TABLE, MARKER, LINES)
    except ValueError:
        return
    assert tomllib.loads(after)["mcp_servers"]["indexerd"]["command"] == "/bin/indexerd"
    assert take(after, TABLE, MARKER, LINES) == text
