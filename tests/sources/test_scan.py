"""The reconciling scan, on real files."""

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.sources.scan import scan


def touch(path, text="{}\n"):
    """Make a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def paths(result):
    return set(map(Path, result.files))


@settings(max_examples=40, deadline=None)
@given(
    st.sets(
        st.binary(min_size=1, max_size=60).filter(
            lambda name: not set(name) & {0, 0x2F} and not name.startswith(b".")
        ),
        max_size=8,
    )
)
def test_names_of_any_bytes(names):
    """Newlines, escapes and bytes that are no UTF-8 survive, and lead back to the file (W14)."""
    with tempfile.TemporaryDirectory() as directory:
        root = os.path.join(os.fsencode(directory), b"d\xff\n")
        os.mkdir(root)
        for name in names:
            with open(os.path.join(root, name + b".jsonl"), "xb") as out:
                out.write(name)
        result = scan([directory], (".jsonl",))
        assert {os.fsencode(one) for one in result.files} == {
            os.path.join(root, name + b".jsonl") for name in names
        }
        for path, look in result.files.items():
            assert os.stat(path).st_ino == look.ino


def test_a_watcher_watches_before_a_directory_is_listed(tmp_path):
    """A file that comes between is seen; links and hidden directories are not entered."""
    for name in ("a/b", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    seen = scan([str(tmp_path)], (".jsonl",), lambda path: touch(Path(path) / "late.jsonl"))
    assert paths(seen) == {tmp_path / f"{one}late.jsonl" for one in ("", "a/", "a/b/")}


def test_what_is_missing_or_denied_tells_nothing(tmp_path):
    """S3.27: what lies there is not gone."""
    result = scan([str(tmp_path), f"{tmp_path}/no"], (".jsonl",))
    assert result.missing == [f"{tmp_path}/no"]
    assert result.unseen(f"{tmp_path}/no/s.jsonl")
    assert not result.unseen(f"{tmp_path}/s.jsonl")
