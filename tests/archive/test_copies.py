"""Copies of one file, whatever happens to it and to them."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.archive.copies import Archive, Source
from indexerd.errors import SessionUnreadableError

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=9000)),
        st.tuples(st.just("line"), st.binary(max_size=9000)),
        st.tuples(st.just("cut"), st.integers(0, 9000)),
        st.tuples(st.just("replace"), st.binary(max_size=9000)),
        st.tuples(st.just("copy"), st.just(0)),
        st.tuples(st.just("tear"), st.integers(0, 9000)),
    ),
    max_size=12,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_a_copy_has_the_whole_lines_that_it_was_made_of(
    steps: list[tuple[str, bytes | int]],
) -> None:
    """After any changes of the file, and torn writes of the copy, which the next one mends."""
    with tempfile.TemporaryDirectory() as name:
        root, archive = Path(name, "root"), Archive(Path(name, "archive"))
        root.mkdir()
        path = root / "s.jsonl"
        path.write_bytes(b"")
        source, torn, wanted = Source(str(root), str(path)), False, b""
        for step, value in [*steps, ("copy", 0)] if len(steps) % 2 else steps:
            data = path.read_bytes()
            match step, value:
                case "append", bytes():
                    path.write_bytes(data + value)
                case "line", bytes():
                    path.write_bytes(data + value.replace(b"\n", b" ") + b"\n")
                case "cut", int():
                    os.truncate(path, min(value, len(data)))
                case "replace", bytes():
                    path.write_bytes(value)
                case "copy", _:
                    archive.copy(source)
                    wanted, torn = data[: data.rfind(b"\n") + 1], False
                case "tear", int():
                    for place in archive.copies(source):
                        os.truncate(place, min(value, place.stat().st_size))
                        torn = True
        path.unlink()
        if not archive.publish(source):
            return
        target = str(root / "restored")
        with suppress(SessionUnreadableError):
            archive.restore(source, target)
        restored = Path(target).read_bytes() if os.path.exists(target) else b""
        assert wanted.startswith(restored) if torn else restored == wanted
