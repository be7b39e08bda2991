"""Whole files of ours among an agent's: they come, they go, and nobody else's does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexerd.errors import AccessError, UsageError
from indexerd.integrations import edits as installs
from indexerd.integrations import own_files
from indexerd.integrations.edits import Change
from tests.integrations.installing import both

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
