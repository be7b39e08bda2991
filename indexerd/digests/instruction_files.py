"""Which files of a project tell an agent how to work there: their names, never what they say.

We name what any agent reads, as whoever goes on may be another one: pi, Codex, Claude Code,
opencode, Gemini, Copilot and Cursor, by their documentation. Names are relative to a session's
directory, the outermost first, so that what is nearest comes last and counts most. Outside of a
repository the walk up ends below the home directory, and outside of both at once: a file that some
stranger put into /tmp is no project's.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

LEVELS_MAX = 40  # directories that are looked at
NAMES_MAX = 40
_EVERYWHERE = (
    "AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", ".claude/rules",
    "CLAUDE.local.md", "GEMINI.md", ".github/copilot-instructions.md", ".cursor/rules",
    ".cursorrules",
)  # fmt: skip
_HERE = (".pi/SYSTEM.md", ".pi/APPEND_SYSTEM.md")  # of the directory alone


def instruction_files(cwd: str, home: Path | None = None) -> list[str]:
    """Names of a project's instruction files, relative to `cwd` (`../AGENTS.md`).

    Of a file that has several names (a link) only the first is listed.
    """
    if not cwd.startswith("/") or "\0" in cwd:
        return []
    start = "/" + os.path.normpath(cwd).lstrip("/")
    levels = [start, *map(str, Path(start).parents)][:LEVELS_MAX]
    top = str(home or Path.home())
    root = next((at for at, one in enumerate(levels) if _stat(f"{one}/.git")), None)
    if root is not None:
        levels = levels[: root + 1]
    else:
        levels = (levels[: levels.index(top)] if top in levels else []) or [start]
    found: dict[tuple[int, int], str] = {}
    for directory in reversed(levels):
        for name in _EVERYWHERE + (_HERE if directory == start else ()):
            path = f"{directory.rstrip('/')}/{name}"
            if (held := _stat(path)) is not None:
                mark = "/" if stat.S_ISDIR(held.st_mode) else ""
                found.setdefault((held.st_dev, held.st_ino), os.path.relpath(path, start) + mark)
    return list(found.values())[-NAMES_MAX:]


def _stat(path: str) -> os.stat_result | None:
    """What is at a path, links followed, if that is a file or a directory."""
    try:
        found = os.stat(path)  # noqa: PTH116 - strings throughout
    except (OSError, ValueError):  # not there, not allowed, links in a circle, no name at all
        return None
    return found if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None
