"""Changes in agents' configuration: nothing of the user's is ever lost, and all can be undone."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.core import jsonc, toml_table
from indexerd.errors import AccessError, ConfigError, UsageError, WriteError
from indexerd.io import installs, own_files
from indexerd.io.installs import Change, Edit

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
LINES = ['command = "/x/indexerd"', 'args = ["mcp"]']


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
    array = jsonc.parse(before).member("a").member("b")  # type: ignore[union-attr]
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


# -- files ---------------------------------------------------------------------------------------


def add(text: str) -> str:
    """A change of a JSON file."""
    root = jsonc.parse(text)
    return text if root.member("ours") else jsonc.insert(text, root, {"x": 1}, "ours")


def take(text: str) -> str | None:
    """What undoes it."""
    root = jsonc.parse(text)
    at = [n for n, one in enumerate(root.children) if one.key == "ours"]
    return jsonc.remove(text, [(root, at[0])]) if at else text


def both(path: Path) -> tuple[Edit, Edit]:
    """The two edits of a path."""
    return (
        installs.json_edit(str(path), add),
        installs.json_edit(str(path), take, removing=True),
    )


@settings(max_examples=20)
@given(
    st.sampled_from(
        [
            *(b"{}", b'{"a":1}', b'{\n\t"a": 1\n}\n', b'\xef\xbb\xbf{"a": [ ]}', b"{ }"),
            *(b"", b"\n", b" \r\n \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"),  # count as {}
            *(b"// mine\n{}\n", b"{ // mine\n}"),
        ]
    )
)
def test_a_file_is_changed_and_changed_back(
    tmp_path_factory: pytest.TempPathFactory, held: bytes
) -> None:
    """Twice is as once; taken out, the bytes are what they were."""
    path = tmp_path_factory.mktemp("f") / "settings.json"
    path.write_bytes(held)
    put, gone = both(path)
    assert [installs.apply([put])[0].did for _ in range(2)] == ["updated", "unchanged"]
    assert installs.apply([gone]) == [Change(str(path), "removed")]
    assert path.read_bytes() == held
    assert installs.apply([gone])[0].did == "absent"


def test_a_file_that_was_not_there_goes_again(tmp_path: Path) -> None:
    """A created file is readable by its user alone, and is removed with the last of ours in it."""
    path = tmp_path / "new" / "settings.json"
    put, gone = both(path)
    assert installs.apply([put])[0].did == "created"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == '{\n  "ours": {\n    "x": 1\n  }\n}\n'
    assert installs.apply([gone])[0].did == "removed"
    assert not path.exists()
    assert list(path.parent.iterdir()) == []


def test_mode_and_links_stay(tmp_path: Path) -> None:
    """A link to a dotfile elsewhere stays a link, and its target keeps its mode."""
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    put, gone = both(link)
    installs.apply([put])
    assert link.is_symlink()
    assert "ours" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    installs.apply([gone])
    assert link.is_symlink()
    assert real.read_text() == "{}"


@settings(max_examples=20)
@given(st.sampled_from([b"", b"\n", b"a = 1", b"\xef\xbb\xbf", b"\xef\xbb\xbfa = 1\r\n", None]))
def test_a_toml_file_is_changed_and_changed_back(
    tmp_path_factory: pytest.TempPathFactory, held: bytes | None
) -> None:
    """The same for TOML: an empty file is not the same as none, and a byte order mark stays."""
    path = tmp_path_factory.mktemp("f") / "config.toml"
    if held is not None:
        path.write_bytes(held)
    put = installs.toml_edit(str(path), "s.ours", LINES)
    did = [installs.apply([put])[0].did for _ in range(2)]
    assert did == ["created" if held is None else "updated", "unchanged"]
    assert tomllib.loads(path.read_text("utf-8-sig"))["s"]["ours"]["args"] == ["mcp"]
    gone = installs.no_toml_table(str(path), "s.ours", LINES)
    assert [installs.apply([gone])[0].did for _ in range(2)] == ["removed", "absent"]
    assert (path.read_bytes() if path.exists() else None) == held


@pytest.mark.parametrize("indent", [None, 3])
def test_what_another_program_wrote_anew_is_taken_out(indent: int | None) -> None:
    """No empty container of ours is left, whatever form the file has by now."""
    text = jsonc.insert("{}", jsonc.parse("{}"), {"list": [{"x": 1}]}, "ours")
    rewritten = json.dumps({"a": 1} | json.loads(text), indent=indent)
    root = jsonc.parse(rewritten)
    ours = root.children[1].node
    array = ours.children[0].node
    left = jsonc.remove(rewritten, [(root, 1), (ours, 0), (array, 0)])
    assert left is not None
    assert json.loads(left) == {"a": 1}


def test_a_comment_beside_ours_stays() -> None:
    """A container that somebody has written a comment into is not ours alone any more."""
    for text in ('{\n  "ours": {\n    "x": 1 // mine\n  }\n}', '{"ours": { // mine\n"x": 1}}'):
        root = jsonc.parse(text)
        left = jsonc.remove(text, [(root, 0), (root.children[0].node, 0)])
        assert left is not None
        assert "// mine" in left
        assert jsonc.parse(left).value == {"ours": {}}


@pytest.mark.parametrize("held", [b'{"a": 1,}', b"[]", b"{", b"\xff{}", b"{} {}"])
def test_a_broken_file_stops_everything(tmp_path: Path, held: bytes) -> None:
    """Nothing at all is written where one of the files cannot be understood."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    bad.write_bytes(held)
    edits = [both(good)[0], both(bad)[0]]
    if held == b"[]":
        edits[1] = installs.json_edit(str(bad), _object)
    with pytest.raises(ConfigError) as caught:
        installs.apply(edits)
    assert caught.value.problems[0]["file"] == str(bad)
    assert str(caught.value).startswith(f"{bad}: ")
    assert ": :" not in str(caught.value)
    assert not good.exists()
    assert bad.read_bytes() == held


def _object(text: str) -> str:
    if not isinstance(jsonc.parse(text).value, dict):
        raise ValueError("it holds no object")
    return text


def test_what_the_agent_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    """A file that changes between reading and renaming is read again; for ever, it is an error."""
    path = tmp_path / "state.json"
    path.write_text('{"a": 1}')
    calls: list[str] = []

    def raced(text: str) -> str:
        calls.append(text)
        if len(calls) == 2:  # the first is the trial
            path.write_text('{"a": 2}')
        return add(text)

    assert installs.apply([installs.json_edit(str(path), raced)])[0].did == "updated"
    assert json.loads(path.read_text()) == {"a": 2, "ours": {"x": 1}}

    def always(text: str) -> str:
        path.write_text(json.dumps({"n": len(calls)}))
        calls.append(text)
        return add(text)

    with pytest.raises(WriteError, match="keeps changing"):
        installs.apply([installs.json_edit(str(path), always)])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["state.json"]


def test_a_directory_in_the_way_is_named(tmp_path: Path) -> None:
    """What cannot be read is an error of ours, with its path."""
    (tmp_path / "settings.json").mkdir()
    with pytest.raises(AccessError, match=r"settings\.json"):
        installs.apply([both(tmp_path / "settings.json")[0]])


UNWRITABLE = "x" * 245 + ".json"  # a name that leaves no room for that of a file beside it


def test_all_of_it_or_nothing(tmp_path: Path) -> None:
    """Where one file cannot be written, none is, and the error names that one."""
    good, bad = tmp_path / "good.json", tmp_path / UNWRITABLE
    good.write_text("{}")
    before = good.stat().st_ino, good.stat().st_ctime_ns
    with pytest.raises(WriteError, match=r"xxx\.json"):
        installs.apply([both(good)[0], both(bad)[0]])
    assert (good.stat().st_ino, good.stat().st_ctime_ns) == before
    assert [one.name for one in tmp_path.iterdir()] == ["good.json"]


def test_what_was_done_is_undone(tmp_path: Path) -> None:
    """Where a later change fails after all, the earlier ones are taken back, and directories go."""
    good, new, own = tmp_path / "good.json", tmp_path / "new.json", tmp_path / "a/b/own.ts"
    good.write_text('{"a": [ 1 ]}')
    calls: list[str] = []

    def fails(text: str) -> str:
        calls.append(text)
        if len(calls) > 1:  # the first is the trial
            raise UsageError("no more")
        return add(text)

    edits = [both(good)[0], both(new)[0], installs.own_file(str(own), "x\n")]
    with pytest.raises(UsageError, match="no more"):
        installs.apply([*edits, installs.json_edit(str(tmp_path / "last.json"), fails)])
    assert len(calls) == 2
    assert good.read_text() == '{"a": [ 1 ]}'
    assert [one.name for one in tmp_path.iterdir()] == ["good.json"]


# -- files of ours -------------------------------------------------------------------------------


def test_a_file_of_ours_knows_which_directories_were_made(tmp_path: Path) -> None:
    """So that they can go with it, also after an update; one that was there is not among them."""
    path = tmp_path / "a/b/own.ts"
    installs.apply([installs.own_file(str(path), "one\n")])
    installs.apply([installs.own_file(str(path), "two\n")])
    assert own_files.directories(str(path)) == [str(path.parent), str(tmp_path / "a")]
    other = tmp_path / "a/other.ts"
    installs.apply([installs.own_file(str(other), "one\n")])
    assert own_files.directories(str(other)) == []


@pytest.mark.parametrize("name", ["index.ts", "indexerd.js", "notes.md"])
def test_our_own_file_comes_and_goes(tmp_path: Path, name: str) -> None:
    """Written, brought up to date, removed; marked in its first line, as a comment."""
    path = tmp_path / name
    first, second = (installs.own_file(str(path), body) for body in ("one\n", "two\n"))
    did = [installs.apply([one])[0].did for one in (first, first, second)]
    assert did == ["created", "unchanged", "updated"]
    head, _, body = path.read_text().partition("\n")
    assert body == "two\n"
    assert head.startswith("<!--" if name.endswith(".md") else "//")
    assert own_files.owned(str(tmp_path)) == [str(path)]
    gone = installs.no_own_file(str(path))
    assert [installs.apply([gone])[0].did for _ in range(2)] == ["removed", "absent"]


def test_a_skill_of_ours_begins_with_its_rule(tmp_path: Path) -> None:
    """Agents want `---` first: the marker is below it, and knows what was made and what follows."""
    path = tmp_path / "skills/ours/SKILL.md"
    first, second = (
        installs.own_file(str(path), f"---\nname: ours\n---\n{text}\n") for text in ("one", "two")
    )
    did = [installs.apply([one])[0].did for one in (first, first, second)]
    assert did == ["created", "unchanged", "updated"]
    rule, marker, rest = path.read_text().split("\n", 2)
    assert (rule, rest) == ("---", "name: ours\n---\ntwo\n")
    assert marker.startswith("# indexerd integration, ")
    assert own_files.owned(str(path.parent)) == [str(path)]
    made = own_files.directories(str(path))
    assert made == [str(path.parent), str(path.parents[1])]
    path.write_text(path.read_text() + "Mine.\n")
    with pytest.raises(UsageError, match="was edited"):
        installs.apply([first])
    assert installs.apply([installs.no_own_file(str(path), force=True)])[0].did == "removed"


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """S-rule of the contract: no marker, no touch; an edited one only by force."""
    path = tmp_path / "index.ts"
    path.write_text("// indexerd integration, of my own\n")
    for force in (False, True):
        with pytest.raises(UsageError, match="not ours"):
            installs.apply([installs.own_file(str(path), "x", force=force)])
    assert path.read_text() == "// indexerd integration, of my own\n"
    path.unlink()
    installs.apply([installs.own_file(str(path), "x\n")])
    path.write_text(path.read_text() + "mine\n")
    for edit in (installs.own_file(str(path), "y\n"), installs.no_own_file(str(path))):
        with pytest.raises(UsageError, match="edited"):
            installs.apply([edit])
    assert path.read_text().endswith("mine\n")
    assert installs.apply([installs.own_file(str(path), "y\n", force=True)])[0].did == "updated"
    assert path.read_text().endswith("\ny\n")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """A FIFO in the place of a settings file does not hold us up."""
    os.mkfifo(tmp_path / "settings.json")
    with pytest.raises(UsageError, match="no file"):
        installs.apply([both(tmp_path / "settings.json")[0]])


FOREIGN = ("a file", "no text", "empty", "a directory", "a pipe", "no directory")


def stand(path: Path, what: str) -> None:
    """Put something that is not ours in the place of a file of ours."""
    if what == "no directory":
        path.parent.write_text("mine")
        return
    path.parent.mkdir()
    if what == "a directory":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    else:
        path.write_bytes({"a file": b"---\nname: mine\n", "no text": b"\xff\xfe-"}.get(what, b""))


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_ours_is_nothing_to_take_away(tmp_path: Path, what: str, force: bool) -> None:
    """It is left alone, and said to be; the rest is taken out, or put in where we may yield."""
    path, settings_ = tmp_path / "ours/SKILL.md", tmp_path / "settings.json"
    settings_.write_text("{}")
    stand(path, what)
    put, gone = both(settings_)
    kept = Change(str(path), "kept: not ours")
    before = [(str(one), one.lstat()) for one in sorted(tmp_path.rglob("ours*"))]
    own = installs.own_file(str(path), "---\nname: ours\n", force=force, yields=True)
    assert installs.apply([own, put]) == [kept, Change(str(settings_), "updated")]
    own = installs.no_own_file(str(path), force=force)
    assert installs.apply([own, gone]) == [kept, Change(str(settings_), "removed")]
    assert settings_.read_text() == "{}"
    assert [(str(one), one.lstat()) for one in sorted(tmp_path.rglob("ours*"))] == before
    assert own_files.directories(str(path)) == []


def test_what_cannot_be_read_is_not_taken_for_somebody_elses(tmp_path: Path) -> None:
    """Whether it is ours cannot be known: an error that names it, and nothing is done."""
    good = tmp_path / "good.json"
    gone = installs.no_own_file(str(tmp_path / ("x" * 300)))  # which root cannot open, either
    with pytest.raises(AccessError, match="xxx: "):
        installs.apply([both(good)[0], gone])
    assert not good.exists()


@pytest.mark.parametrize("name", ["index.ts", "SKILL.md"])
@pytest.mark.parametrize(("bom", "ends"), [("", "\r\n"), ("\ufeff", "\n"), ("\ufeff", "\r\n")])
def test_other_line_ends_are_no_edit(tmp_path: Path, name: str, bom: str, ends: str) -> None:
    """What git or an editor wrote anew is ours: brought up, and taken away with its directory."""
    path = tmp_path / "new" / name
    body = ("---\n" if name == "SKILL.md" else "") + "name: ours\n\nText.\n"
    put = installs.own_file(str(path), body)
    for again in (put, installs.own_file(str(path), body)):
        installs.apply([again])
        ours = path.read_text()
        path.write_bytes((bom + ours.replace("\n", ends)).encode())
        assert own_files.owned(str(path.parent)) == [str(path)]
        assert own_files.directories(str(path)) == [str(path.parent)]
        assert installs.apply([put])[0].did == "updated"
        assert path.read_bytes() == ours.encode()
    path.write_bytes((bom + ours.replace("\n", ends)).encode())
    assert installs.apply([installs.no_own_file(str(path))])[0].did == "removed"
    installs.apply([put])
    path.write_bytes((bom + ours.replace("\n", ends) + "mine").encode())
    with pytest.raises(UsageError, match="edited"):
        installs.apply([installs.no_own_file(str(path))])


# -- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", ["new/skills", "new/skills/ours", "new/skills/ours/SKILL.md"])
@pytest.mark.parametrize("yields", [False, True])
def test_nothing_is_written_through_a_dangling_link(
    tmp_path: Path, linked: str, yields: bool
) -> None:
    """Refused by name before anything is written; taken out, it counts as nothing."""
    link, path = tmp_path / linked, tmp_path / "new/skills/ours/SKILL.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "gone/deep")
    good = tmp_path / "good.json"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=f"{linked} is a symbolic link to .*gone/deep") as caught:
        installs.apply([both(good)[0], installs.own_file(str(path), "x\n", yields=yields)])
    assert caught.value.hint
    with pytest.raises(UsageError, match=f"{linked} is a symbolic link"):
        installs.apply([both(good)[0], both(path)[0]])
    for gone in (installs.no_own_file(str(path), force=True), both(path)[1]):
        assert installs.apply([gone])[0].did == "absent"
    assert sorted(tmp_path.rglob("*")) == before


def test_made_directories_are_counted_on_the_real_path(tmp_path: Path) -> None:
    """Below a link, and behind `..`; a directory that its user made a link of since is theirs."""
    real = tmp_path / "dotfiles"
    real.mkdir()
    (tmp_path / "skills").symlink_to(real)
    path = tmp_path / "skills/a/b/own.ts"
    installs.apply([installs.own_file(str(path), "x\n")])
    assert own_files.directories(str(path)) == [str(real / "a/b"), str(real / "a")]
    (real / "a").rename(tmp_path / "moved")
    (real / "a").symlink_to(tmp_path / "moved")
    assert own_files.directories(str(path)) == [str(tmp_path / "moved/b")]
    other = tmp_path / "none" / ".." / "c/own.ts"
    installs.apply([installs.own_file(str(other), "x\n")])
    assert own_files.directories(str(tmp_path / "c/own.ts")) == [str(tmp_path / "c")]
    assert not (tmp_path / "none").exists()
