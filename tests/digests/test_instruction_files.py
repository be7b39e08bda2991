"""Names of a project's instruction files, found as the agents find them."""

from __future__ import annotations

from pathlib import Path

import pytest

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
