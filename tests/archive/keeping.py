"""A home whose sessions are archived, and sessions of each agent to archive."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import World, until

OFTEN = {  # what is gone is noticed by a scan
    "INDEXERD_ARCHIVE__QUIET_SECONDS": "0.1",
    "INDEXERD_WATCH__RESCAN_SECONDS": "0.2",
}


class Archived:
    def __init__(self, world: World, *, on: bool = True) -> None:
        self.world = world
        self.directory = world.root / "data/indexerd/archive"
        world.env |= OFTEN
        world.configure(f"[archive]\nenabled = {str(on).lower()}\n")

    def copies(self, kind: str = "*", name: str = "") -> list[Path]:
        """List copies of a kind ("live", "gone") whose names begin so."""
        found = (path for path in self.directory.glob(f"{kind}/**/*.zst"))
        return sorted(path for path in found if path.name.startswith(name))

    def copied(self, *paths: Path) -> None:
        """Wait until the archive has exactly these bytes of files that are there."""

        def same() -> bool:
            found = (self.copies("live", path.name) for path in paths)
            return all(
                copies and content(copies[-1]) == path.read_bytes()
                for copies, path in zip(found, paths, strict=True)
            )

        until(same, "the copies")

    def taken_over(self, session_id: str) -> dict[str, Any]:
        """Wait until a session is read from the archive; return its row."""
        return self.at(session_id, "/archive/gone/")

    def at(self, session_id: str, place: object) -> dict[str, Any]:
        def row() -> dict[str, Any] | None:
            row = self.world.row(session_id)
            return row if str(place) in row.get("sessionFile", "") else None

        found: dict[str, Any] = until(row, f"the session at {place}")
        return found


def content(copy: Path) -> bytes:
    with copy.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return reader.read()


AGENTS: dict[str, Callable[[World], Any]] = {
    "pi": lambda world: world.session(),
    "claude": lambda world: ClaudeSession(world.root / "home"),
    "codex": lambda world: CodexThread(world.root / "home"),
}
RESUMES = {
    "pi": "pi --session {path}",
    "claude": "claude --resume {id}",
    "codex": "codex resume {id}",
}


def with_company(session: ClaudeSession) -> list[Path]:
    """Give a session of Claude Code a large output and a sub-agent; return their files."""
    below = session.path.with_suffix("")
    output = below / "tool-results/toolu_1.txt"
    output.parent.mkdir(parents=True)
    output.write_text("A large output.\n" * 50 + "and no newline")
    (output.parent / "empty.txt").touch()
    helper = ClaudeSession(below, folder=below / "subagents", session_id="agent-a1b2c3d4")
    helper.prompt("Please look for quaggas.", isSidechain=True)
    helper.path.with_suffix(".meta.json").write_text('{"agentType":"Explore"}')
    return [*(path for path in below.rglob("*") if path.is_file())]


def clean_up(session: ClaudeSession) -> None:
    """Delete a session as Claude Code does once it is older than cleanupPeriodDays."""
    session.path.unlink()
    shutil.rmtree(session.path.with_suffix(""), ignore_errors=True)
