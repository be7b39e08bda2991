"""Changes to files in agents' directories: nothing of the user's is lost, and all can be undone."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from indexerd.errors import ConfigError, UsageError, WriteError
from indexerd.integrations import changes
from indexerd.integrations.agent_settings import change_json
from indexerd.integrations.changes import Edit


def put(text: str | None) -> str:
    """Add a member to a JSON file."""
    return change_json(lambda value: value.setdefault("ours", 1) and None, text)


def take(text: str) -> str:
    """Remove it."""
    return change_json(lambda value: value.pop("ours", None) and None, text)


def settings(path: Path, *, remove: bool = False) -> list[Edit]:
    """The edits of a settings file."""
    return changes.settings_edits(str(path), put, take, remove=remove)


def did(edits: list[Edit]) -> list[str]:
    """What was done with each."""
    return [one["did"] for one in changes.apply(edits)]


SHAPES = (
    '{"a": 1.50, "b": 10000000000000000000000}', '{\n\t"a": [ 1 ]\n}\n', '\ufeff{"a":  1}', "{ }",
    "", " \n", '{\r\n   "a": "\\u00e9"\r\n}', '{"a": 1, "a": 2}',
)  # fmt: skip


@pytest.mark.parametrize("text", SHAPES)
def test_settings_are_changed_and_given_back_to_the_byte(tmp_path: Path, text: str) -> None:
    """Twice is as once; taken out, the bytes are what they were, and no copy stays."""
    path = tmp_path / "settings.json"
    path.write_bytes(text.encode())
    assert [did(settings(path)) for _ in range(2)] == [["updated"], ["unchanged"]]
    assert json.loads(path.read_text("utf-8-sig"))["ours"] == 1
    assert did(settings(path, remove=True)) == ["removed"]
    assert path.read_bytes() == text.encode()
    assert did(settings(path, remove=True)) == ["absent"]
    assert [one.name for one in tmp_path.iterdir()] == ["settings.json"]


def test_what_was_written_since_stays(tmp_path: Path) -> None:
    """The copy is no longer what the file would be without us: only our entry goes."""
    path = tmp_path / "settings.json"
    path.write_text('{"a": 1.50}')
    did(settings(path))
    path.write_text(json.dumps({"a": 1.5, "ours": 1, "later": [1]}, indent=3))
    assert did(settings(path, remove=True)) == ["removed"]
    assert path.read_text() == json.dumps({"a": 1.5, "later": [1]}, indent=3)
    assert [one.name for one in tmp_path.iterdir()] == ["settings.json"]


def test_mode_and_links_stay(tmp_path: Path) -> None:
    """A link to a dotfile elsewhere stays a link, and its target keeps its mode."""
    real, link = tmp_path / "dotfiles/settings.json", tmp_path / "settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link.symlink_to(real)
    did(settings(link))
    assert link.is_symlink()
    assert "ours" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    did(settings(link, remove=True))
    assert (link.is_symlink(), real.read_text()) == (True, "{}")


@pytest.mark.parametrize("held", [b'{"a": 1,}', b"[]", b"{", b"\xff{}", b"{} {}", b'{"a": 1e999}'])
def test_a_broken_file_stops_everything(tmp_path: Path, held: bytes) -> None:
    """Nothing at all is written where one of the files cannot be understood, or kept."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    bad.write_bytes(held)
    with pytest.raises(ConfigError) as caught:
        changes.apply([*settings(good), *settings(bad)])
    assert caught.value.problems[0]["file"] == str(bad)
    assert str(caught.value).startswith(f"{bad}: ")
    assert not good.exists()
    assert bad.read_bytes() == held


def test_what_the_agent_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    """A file that changes before it is replaced is read again; for ever, it is an error."""
    path, other = tmp_path / "state.json", tmp_path / "other.json"
    path.write_text('{"a": 1}')
    calls: list[str] = []

    def raced(text: str | None) -> str:
        calls.append(text or "")
        if len(calls) == 1:
            path.write_text('{"a": 2}')
        return put(text)

    assert did([*settings(other), Edit(str(path), raced)]) == ["created", "updated"]
    assert json.loads(path.read_text()) == {"a": 2, "ours": 1}

    other.write_text("{}")

    def always(text: str | None) -> str:
        other.write_text(json.dumps({"n": len(calls)}))
        calls.append(text or "")
        return put(text)

    with pytest.raises(WriteError, match="keeps changing"):
        changes.apply([Edit(str(other), always)])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other.json", "state.json"]


@pytest.mark.parametrize("what", ["file", "no text", "directory", "pipe", "no directory"])
def test_what_is_not_ours_does_not_stop_the_rest(tmp_path: Path, what: str) -> None:
    """It is left alone, and reported; the rest is done."""
    path, other = tmp_path / "ours/SKILL.md", tmp_path / "settings.json"
    if what == "no directory":
        path.parent.write_text("mine")
    else:
        path.parent.mkdir()
        make = {"directory": path.mkdir, "pipe": lambda: os.mkfifo(path)}
        make.get(what, lambda: path.write_bytes(b"\xff-" if what == "no text" else b"---\nx\n"))()
    before = [(str(one), one.lstat()) for one in sorted(tmp_path.rglob("ours*"))]
    own = changes.own_file(str(path), "---\nname: ours\n", skip_foreign=True)
    assert did([own, *settings(other)]) == [changes.NOT_OURS, "created"]
    gone = changes.no_own_file(str(path), force=True)
    assert did([gone, *settings(other, remove=True)]) == [changes.NOT_OURS, "removed"]
    assert [(str(one), one.lstat()) for one in sorted(tmp_path.rglob("ours*"))] == before


@pytest.mark.parametrize("linked", ["new/skills", "new/skills/ours", "new/skills/ours/SKILL.md"])
def test_nothing_is_written_through_a_dangling_link(tmp_path: Path, linked: str) -> None:
    """Refused by name before anything is written; taken out, it counts as nothing."""
    link, path = tmp_path / linked, tmp_path / "new/skills/ours/SKILL.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "gone/deep")
    before = sorted(tmp_path.rglob("*"))
    own = changes.own_file(str(path), "x\n", skip_foreign=True)
    with pytest.raises(UsageError, match=f"{linked} is a symbolic link to .*gone/deep"):
        changes.apply([*settings(tmp_path / "good.json"), own])
    assert did([changes.no_own_file(str(path))]) == ["absent"]
    assert sorted(tmp_path.rglob("*")) == before
