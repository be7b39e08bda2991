"""A session's lines out of its file, row by row: the long ones, and those that are none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from indexerd.agents import pi
from indexerd.errors import SessionUnreadableError
from indexerd.sessions.state import SessionState
from indexerd.sources import lines as lines_module
from indexerd.sources import session_lines as service_module
from indexerd.sources.lines import LineBuffer, Oversize
from indexerd.sources.session_lines import session_lines
from tests.sessions.tree_sessions import said, session


def taken(path: Path, data: bytes, *, strict: bool = False) -> SessionState:
    """The state of a file with these bytes."""
    path.write_bytes(data)
    state = SessionState(str(path))
    state.strict = strict
    for piece in LineBuffer().feed(data):
        if isinstance(piece, Oversize):
            pi.skim_oversize(state, piece)
        else:
            pi.skim(state, piece.data, piece.offset)
    return state


def rows(state: SessionState) -> list[bytes]:
    """All its lines."""
    with session_lines("pi", state) as lines:
        return [lines.row(row) for row in range(len(state))]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "LINE_MAX", 1000)
    monkeypatch.setattr(service_module, "LINE_MAX", 1000)
    monkeypatch.setattr(lines_module, "READ_MAX", 5000)
    monkeypatch.setattr(service_module, "READ_MAX", 5000)


@pytest.mark.usefixtures("_small")
def test_a_line_is_read_by_its_place_unless_it_is_too_long(tmp_path: Path) -> None:
    """F8: a line that was not held while the file was followed is had in full; a huge one not."""
    held = [said("a", None, "user", "x" * 3000), said("b", "a", "user", "y" * 9000)]
    held.append(said("c", "b", "user", "z"))
    state = taken(tmp_path / "s.jsonl", session(*held))
    assert rows(state) == [held[0].rstrip(), b"", held[2].rstrip()]
    assert state.oversized == 1


@pytest.mark.usefixtures("_small")
def test_a_long_line_that_is_no_json_is_given_up_once_all_was_parsed(
    tmp_path: Path,
) -> None:
    """S1.2: whoever reads it finds out, and asks for a reading anew; that ends there."""
    whole = said("a", None, "user", "x" * 3000)
    bad = whole.replace(b"xxx", b'"', 1)
    data = session(bad, said("b", "a", "assistant", "y" * 3000))
    first = rows(taken(tmp_path / "s.jsonl", data))
    assert first[0] == bad.rstrip()
    with pytest.raises(ValueError, match=r"."):
        pi.read(first[0], "a")
    again = rows(taken(tmp_path / "s.jsonl", data, strict=True))
    assert (again[0], again[1]) == (b"", first[1])


def briefs(state: SessionState, agent: str = "pi") -> list[bytes]:
    """What is read unasked of all its lines."""
    with session_lines(agent, state) as lines:
        return [lines.brief(row) for row in range(len(state))]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("strict", [False, True])
def test_a_line_too_long_to_be_held_is_read_in_brief(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, strict: bool
) -> None:
    """F8: for search and for a model: little memory, an entry all the same, what was said first."""
    for name, size in (("PIECE", 100), ("BRIEF", 900), ("STRING", 400)):
        monkeypatch.setattr(service_module, name, size)
    short = said("a", None, "user", "x" * 800)
    long = said("b", "a", "user", "y" * 3000)
    far = said("c", "b", "assistant", "z" * 9000)
    state = taken(tmp_path / "s.jsonl", session(short, long, far), strict=strict)
    first, brief, none = briefs(state)
    assert (first, none) == (short.rstrip(), b"")
    entry = pi.read(brief, "b")
    assert (entry.role, entry.text) == ("user", "y" * 400)
    assert rows(state)[1] == long.rstrip()


@pytest.mark.usefixtures("_small")
def test_what_is_no_json_in_brief_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8, S1.2: no reading anew is asked for over a line of which only a part is read."""
    monkeypatch.setattr(service_module, "STRING", 600)
    bad = said("a", None, "user", "x" * 3000).replace(b'"content"', b'"content"]', 1)
    state = taken(tmp_path / "s.jsonl", session(bad, said("b", "a", "user", "y")))
    found = briefs(state)
    assert (found[0], pi.read(found[1], "b").text) == (b"", "y")


@pytest.mark.usefixtures("_small")
def test_a_line_that_a_disk_does_not_give_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F21: whoever reads lines knows one error, and not the system's."""
    state = taken(tmp_path / "s.jsonl", session(said("a", None, "user", "x")))

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with session_lines("pi", state) as lines, monkeypatch.context() as broken:
        broken.setattr(os, "pread", fails)
        with pytest.raises(SessionUnreadableError, match="Input/output error"):
            lines.row(0)
