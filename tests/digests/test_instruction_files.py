"""Names of a project's instruction files, found as the agents find them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from indexerd.digests import instruction_files as instructions
from indexerd.digests.instruction_files import instruction_files


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository below a home directory."""
    root = tmp_path / "home/u/repo"
    (root / ".git").mkdir(parents=True)
    (root / "pkg/deep").mkdir(parents=True)
    return root


def put(path: Path, text: str = "x") -> None:
    """Make a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(path: Path, home: Path | None = None) -> list[str]:
    """What is found from a directory."""
    return instruction_files(str(path), home or path.parent)


def test_every_agents_files_are_named_up_to_the_repositorys_root(repo: Path) -> None:
    """S3.19: outermost first; nothing above the repository is the project's."""
    put(repo.parent / "AGENTS.md")
    put(repo / "AGENTS.md")
    put(repo / ".github/copilot-instructions.md")
    put(repo / ".pi/SYSTEM.md")  # pi reads that of the cwd alone
    put(repo / "pkg/GEMINI.md")
    put(repo / "pkg/deep/CLAUDE.local.md")
    put(repo / "pkg/deep/.claude/rules/a.md")
    put(repo / "pkg/deep/.pi/APPEND_SYSTEM.md")
    assert names(repo / "pkg/deep", repo.parent.parent) == [
        "../../AGENTS.md",
        "../../.github/copilot-instructions.md",
        "../GEMINI.md",
        ".claude/rules/",
        "CLAUDE.local.md",
        ".pi/APPEND_SYSTEM.md",
    ]


def test_a_worktree_is_a_repository_as_well(repo: Path) -> None:
    """S3.19: its `.git` is a file."""
    put(repo / "AGENTS.md")
    put(repo / "pkg/.git", "gitdir: elsewhere")
    put(repo / "pkg/CLAUDE.md")
    assert names(repo / "pkg/deep", repo.parent) == ["../CLAUDE.md"]


def test_outside_of_a_repository_the_walk_ends_below_home(tmp_path: Path) -> None:
    """S3.19: the user's own files are no project's; strangers' files in /tmp even less."""
    home, deep = tmp_path / "u", tmp_path / "u/a/b"
    for one in (tmp_path, home, home / "a", deep):
        put(one / "AGENTS.md")
    assert names(deep, home) == ["../AGENTS.md", "AGENTS.md"]
    assert names(home, home) == ["AGENTS.md"]  # who works there has no other place
    assert names(deep, tmp_path / "else") == ["AGENTS.md"]


def test_a_file_of_two_names_is_named_once(repo: Path) -> None:
    """S3.19: CLAUDE.md is often a link to AGENTS.md; a link in a circle is none."""
    put(repo / "AGENTS.md")
    (repo / "CLAUDE.md").symlink_to("AGENTS.md")
    (repo / "GEMINI.md").symlink_to("GEMINI.md")
    assert names(repo) == ["AGENTS.md"]


def test_opencodes_own_list_counts(repo: Path) -> None:
    """S3.19: names and patterns of `instructions`; comments are allowed in it."""
    put(repo / "CONTRIBUTING.md")
    put(repo / "docs/b.md")
    put(repo / "docs/a.md")
    put(repo / "docs/c.txt")
    told = ["CONTRIBUTING.md", "./docs/*.md", "missing.md", 7, "https://example.org/rules.md"]
    put(repo / "opencode.json", f'{{"instructions": {json.dumps(told)} /* ours */}}')
    assert names(repo) == ["CONTRIBUTING.md", "docs/a.md", "docs/b.md"]


@pytest.mark.parametrize(
    "told",
    ["/etc/passwd", "../secret.md", "docs/../../secret.md", "~/secret.md", "**/*.md", ".", "a\0b"],
)
def test_a_configuration_names_only_what_is_below_it(repo: Path, told: str) -> None:
    """X: a repository that was fetched cannot point an agent at the user's other files."""
    put(repo.parent / "secret.md")
    put(repo / "docs/x.md")
    put(repo / "opencode.json", json.dumps({"instructions": [told]}))
    assert names(repo) == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"instructions": {"a": 1}}', "[" * 5000, "\xff"])
def test_a_damaged_configuration_names_nothing(repo: Path, text: str) -> None:
    """S3.19: errors are silence, and the other files are named all the same."""
    (repo / "opencode.json").write_bytes(text.encode("latin-1"))
    put(repo / "AGENTS.md")
    assert names(repo) == ["AGENTS.md"]


def test_what_is_no_plain_configuration_is_not_read(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X2, X3: no FIFO is waited for, no link followed, and none too large is read."""
    put(repo / "a.md")
    put(repo / "real.json", '{"instructions": ["a.md"]}')
    os.mkfifo(repo / "opencode.json")
    (repo / "opencode.jsonc").symlink_to("real.json")
    assert names(repo) == []
    (repo / "opencode.jsonc").unlink()
    (repo / "real.json").rename(repo / "opencode.jsonc")
    assert names(repo) == ["a.md"]
    monkeypatch.setattr(instructions, "CONFIG_MAX", 10)
    assert names(repo) == []


@pytest.mark.parametrize("cwd", ["", "relative", "/no/such/directory", "/a\0b", "/" + "x" * 5000])
def test_a_directory_that_is_not_there_has_none(cwd: str) -> None:
    """S3.19: a cwd is what a session file says."""
    assert instruction_files(cwd) == []


def test_the_list_is_bounded(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern may match any number of files; what is nearest stays."""
    monkeypatch.setattr(instructions, "NAMES_MAX", 5)
    for n in range(9):
        put(repo / f"docs/{n}.md")
    put(repo / "opencode.json", '{"instructions": ["docs/*"]}')
    put(repo / "pkg/AGENTS.md")
    found = names(repo / "pkg", repo.parent)
    assert (len(found), found[-1]) == (5, "AGENTS.md")
