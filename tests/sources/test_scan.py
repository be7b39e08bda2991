"""The reconciling scan, on real files."""

from pathlib import Path

from indexerd.sources.scan import scan


def touch(path, text="{}\n"):
    """Create a file and its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def paths(result):
    return set(map(Path, result.files))


def test_a_watcher_watches_before_a_directory_is_listed(tmp_path):
    """A file created in between is seen; links and hidden directories are skipped."""
    for name in ("a/b", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    seen = scan([str(tmp_path)], (".jsonl",), lambda path: touch(Path(path) / "late.jsonl"))
    assert paths(seen) == {tmp_path / f"{folder}late.jsonl" for folder in ("", "a/", "a/b/")}


def test_missing_or_unreadable_directories_are_no_deletion(tmp_path):
    """S3.27: files below them do not count as deleted."""
    result = scan([str(tmp_path), f"{tmp_path}/no"], (".jsonl",))
    assert result.missing == [f"{tmp_path}/no"]
    assert result.unseen(f"{tmp_path}/no/s.jsonl")
    assert not result.unseen(f"{tmp_path}/s.jsonl")
