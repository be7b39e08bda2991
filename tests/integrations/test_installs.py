"""Changes in agents' configuration: nothing of the user's is ever lost, and all can be undone."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.errors import AccessError, ConfigError, UsageError, WriteError
from indexerd.integrations import edits as installs
from indexerd.integrations import jsonc
from indexerd.integrations.edits import Change
from tests.integrations.installing import LINES, add, both


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
