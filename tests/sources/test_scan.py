"""The reconciling scan, on real files."""

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.sources import scan as module
from indexerd.sources.scan import resolve, scan, tree


def touch(path, text="{}\n"):
    """Make a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def paths(result):
    """The paths of a result, each once."""
    found = [one.path for one in result.files]
    assert len(found) == len(set(found))
    return {Path(path) for path in found}


def test_suffixes(tmp_path):
    """One suffix, or several."""
    plain, packed = touch(tmp_path / "a.jsonl"), touch(tmp_path / "b.jsonl.zst")
    assert paths(scan([str(tmp_path)], suffix=".jsonl.zst")) == {packed}
    assert paths(scan([str(tmp_path)], suffix=(".jsonl", ".jsonl.zst"))) == {plain, packed}


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
        result = scan([directory])
        assert {os.fsencode(one.path) for one in result.files} == {
            os.path.join(root, name + b".jsonl") for name in names
        }
        for one in result.files:
            assert os.stat(one.path).st_ino == one.ino


def test_the_longest_name(tmp_path):
    """255 bytes are a name like any other (W14)."""
    long = touch(tmp_path / ("n" * 249 + ".jsonl"))
    assert paths(scan([str(tmp_path)])) == {long}


def test_root_may_be_a_link(tmp_path):
    """Paths are real paths then (W6)."""
    path = touch(tmp_path / "real" / "s.jsonl")
    (tmp_path / "link").symlink_to("real")
    assert paths(scan([str(tmp_path / "link")])) == {path}


def test_overlapping_roots(tmp_path):
    """Nested, doubled and linked roots yield each file once (C6)."""
    deep = touch(tmp_path / "root" / "a" / "b" / "s.jsonl")
    (tmp_path / "link").symlink_to("root/a")
    root = str(tmp_path / "root")
    roots = [f"{root}/a/b", root, f"{root}/", f"{root}/a/../a", str(tmp_path / "link"), root]
    for given_roots in (roots, roots[::-1]):
        assert paths(scan(given_roots)) == {deep}
        assert list(resolve(given_roots).real) == [root]


def test_neighbours_are_not_nested(tmp_path):
    """`/a/bc` does not lie in `/a/b`."""
    both = {touch(tmp_path / name / "s.jsonl") for name in ("b", "bc")}
    assert paths(scan([str(tmp_path / "b"), str(tmp_path / "bc")])) == both


def test_a_root_where_the_outer_one_does_not_go(tmp_path):
    """A root in a hidden directory of another root is a root of its own (C6)."""
    hidden = touch(tmp_path / ".pi" / "sessions" / "s.jsonl")
    plain = touch(tmp_path / "s.jsonl")
    assert paths(scan([str(tmp_path), str(hidden.parent)])) == {hidden, plain}


def test_roots_that_are_refused(tmp_path, monkeypatch):
    """`/`, the home directory, nothing at all, and files are no roots, and it says why (C6)."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    inner = touch(tmp_path / "home" / "sessions" / "s.jsonl")
    (tmp_path / "link").symlink_to("home")
    refused = ["/", "//", "", str(tmp_path / "home"), str(tmp_path / "link"), str(inner)]
    result = scan(refused)
    assert result.files == []
    assert [root for root, _ in result.refused] == refused
    assert all(why for _, why in result.refused)
    assert paths(scan([str(inner.parent)])) == {inner}


STIR = """
import os, sys
os.chdir(sys.argv[1])
print(flush=True)
while True:
    for name in "abcdefgh":
        os.mkdir(name)
        for n in range(8):
            os.close(os.open(f"{name}/{n}.jsonl", os.O_CREAT))
    for name in "abcdefgh":
        for n in range(8):
            os.unlink(f"{name}/{n}.jsonl")
        os.rmdir(name)
"""


def test_numbers_are_bounded(tmp_path, monkeypatch):
    """More files, or more unreadable directories, than are kept: partial."""
    for n in range(10):
        touch(tmp_path / f"d{n}" / "s.jsonl")
        (tmp_path / f"loop{n}").symlink_to(f"loop{n}")
    loops = [str(tmp_path / f"loop{n}") for n in range(10)]
    monkeypatch.setattr(module, "MAX_NAMED", 10)
    assert not scan([str(tmp_path), *loops]).partial
    monkeypatch.setattr(module, "MAX_NAMED", 9)
    result = scan([str(tmp_path), *loops])
    assert (len(result.unreadable), result.partial) == (9, True)
    monkeypatch.setattr(module, "MAX_FILES", 5)
    result = scan([str(tmp_path)])
    assert (len(result.files), result.partial) == (5, True)


def test_tree_asks_before_it_looks(tmp_path):
    """A watcher watches first and lists second; a file that comes between is seen (W7)."""
    for name in ("a/b", "a/no/c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    asked = []

    def before(path):
        asked.append(Path(path))
        touch(Path(path) / "late.jsonl")
        return not path.endswith("no")

    seen = {Path(path): names for path, names in tree(str(tmp_path), before)}
    assert set(asked) == {tmp_path, tmp_path / "a", tmp_path / "a/b", tmp_path / "a/no"}
    assert set(seen) == {tmp_path, tmp_path / "a", tmp_path / "a/b"}
    assert sorted(seen[tmp_path]) == ["late.jsonl", "link"]
    assert seen[tmp_path / "a/b"] == ["late.jsonl"]
