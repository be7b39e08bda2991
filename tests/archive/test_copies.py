"""Copies follow any change of a file, survive a torn write, and come back whole or not at all."""

import os
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.archive.copies import LIVE, Archive, Source
from indexerd.errors import SessionUnreadableError
from tests.archive.keeping import content

LINES = st.lists(st.binary(max_size=60), min_size=1, max_size=8).map(
    lambda rows: b"".join(row.translate(None, b"\n\0") + b"\n" for row in rows)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), LINES),
        st.tuples(st.just("half"), st.binary(min_size=1, max_size=60)),
        st.tuples(st.just("rewrite"), LINES),
        st.tuples(st.just("replace"), LINES),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("copy"), st.none()),
        st.tuples(st.just("tear"), st.floats(0, 1)),
    ),
    max_size=25,
)


def files(place: Path) -> tuple[Archive, Source, Path]:
    path = place / "root/-w/s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}\n")
    return Archive(place / "archive"), Source(str(place / "root"), str(path)), path


def change(path: Path, kind: str, value: bytes | float) -> None:
    if isinstance(value, float):
        os.truncate(path, int(value * path.stat().st_size))
    elif kind in ("append", "half"):
        with path.open("ab") as file:
            file.write(value.translate(None, b"\n\0") if kind == "half" else value)
    elif kind == "rewrite":
        path.write_bytes(value)
    else:
        new = path.with_name("new")
        new.write_bytes(value)
        new.replace(path)


@settings(max_examples=40)
@given(STEPS)
def test_what_was_copied_last_comes_back(steps: list[tuple[str, bytes | float]]) -> None:
    """A write torn at any byte leaves what was copied before it, whole."""
    with tempfile.TemporaryDirectory() as where:
        archive, source, path = files(Path(where))
        copied, torn = [b""], False
        for kind, value in steps:
            if kind == "copy":
                archive.copy(source)
                data = path.read_bytes()
                stays = copied[-1].startswith(data)  # of a file that was only cut short
                copied, torn = [*copied, copied[-1] if stays else data], torn and stays
            elif kind == "tear" and isinstance(value, float):
                for copy in archive.copies(source):
                    os.truncate(copy, int(value * copy.stat().st_size))
                    torn = True
            else:
                change(path, kind, value)
        path.unlink()
        if archive.publish(source):
            try:
                archive.restore(source, source.path)
            except SessionUnreadableError:
                assert torn
                assert not path.exists()
            else:
                data = path.read_bytes()
                assert data == copied[-1] or (torn and any(c.startswith(data) for c in copied))
                assert not [*archive.entries(LIVE)]
        else:
            assert copied == [b""] or torn


def test_names_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    archive, source, path = files(tmp_path)
    folder = path.with_suffix("") / "tool-results"
    folder.mkdir(parents=True)
    for name in ("n" * 252, "short"):
        (folder / name).write_text("output")
    assert [Path(side.path).name for side in archive.sides(source)] == ["short"]
    assert archive.has_room(source)
    assert not archive.has_room(Source(f"/{'録' * 84}", f"/{'録' * 84}/s.jsonl"))


@pytest.mark.parametrize("how", ["replace", "overwrite"])
def test_an_early_line_that_was_replaced_does_not_come_back(tmp_path: Path, how: str) -> None:
    """The new file is as long and ends as before, as after `sed -i`, or an edit in place."""
    archive, source, path = files(tmp_path)
    path.write_bytes(b'{"a": "SECRET"}\n' + b"{}\n" * 4000)
    archive.copy(source)
    if how == "replace":
        change(path, how, path.read_bytes().replace(b"SECRET", b"XXXXXX"))
    else:
        with path.open("r+b") as file:
            file.write(b'{"a": "XXXXXX"}')
    change(path, "append", b"{}\n")
    archive.copy(source)
    whole = path.read_bytes()
    path.unlink()
    archive.publish(source)
    archive.restore(source, source.path)
    assert path.read_bytes() == whole


def test_a_damaged_file_does_not_replace_its_copy(tmp_path: Path) -> None:
    """A power failure leaves null bytes; a full disk, half of a file that was compressed."""
    archive, source, path = files(tmp_path)
    whole = b'{"a": 1}\n' * 4000
    path.write_bytes(whole)
    archive.copy(source)
    for blank in (len(whole), 3000):
        path.write_bytes(whole[:-blank] + b"\0" * blank)
        with pytest.raises(SessionUnreadableError):
            archive.copy(source)
    packed = Path(f"{path}.zst")
    packed.write_bytes(zstandard.compress(whole)[:20])
    path.unlink()
    with pytest.raises(SessionUnreadableError):
        archive.copy(source._replace(path=str(packed)))
    packed.unlink()
    archive.restore(source, source.path)
    assert path.read_bytes() == whole


def test_damage_is_noticed_at_any_byte(tmp_path: Path) -> None:
    """Then nothing is restored, and the copy stays as it is, since some of it can be read."""
    archive, source, path = files(tmp_path)
    whole = b'{"a": 1}\n' * 40
    path.write_bytes(whole)
    archive.copy(source)
    path.unlink()
    archive.publish(source)
    (copy,) = archive.copies(source)
    good, refused = copy.read_bytes(), 0
    flipped = [good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :] for at in range(len(good))]
    for bad in (*flipped, *(good[:size] for size in range(len(good)))):
        copy.write_bytes(bad)
        try:
            archive.restore(source, source.path)
        except SessionUnreadableError:
            assert not path.exists()
            refused += 1
        else:  # a few bits of a header do not matter
            assert path.read_bytes() == whole
            path.unlink()
        assert copy.read_bytes() == bad
    assert refused > 1.8 * len(good)


def test_an_interrupted_publication_loses_nothing(tmp_path: Path) -> None:
    """After a kill between the two steps there are two copies, until the next time."""
    archive, source, path = files(tmp_path)
    archive.copy(source)
    (live,) = archive.copies(source)
    data = live.read_bytes()
    path.unlink()
    archive.publish(source)
    live.write_bytes(data)
    archive.publish(source)
    (copy,) = archive.copies(source)
    assert content(copy) == b"{}\n"
