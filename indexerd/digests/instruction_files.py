"""Which files of a project tell an agent how to work there: their names, never what they say.

Names of files and of directories of rules, relative to a session's directory, the outermost first,
so that what is nearest comes last and counts most. The only file that is read is opencode's
configuration, for the names in its `instructions`. What is missing or unreadable has no names.

What agents read, by their documentation and sources:

    pi           AGENTS.override.md, else AGENTS.md, else CLAUDE.md in each directory from the
                 cwd up; .pi/SYSTEM.md and .pi/APPEND_SYSTEM.md of the cwd alone (pi-mono,
                 packages/coding-agent, resource-loader: loadProjectContextFiles)
    Codex        AGENTS.override.md, else AGENTS.md, from the repository's root down to the cwd;
                 outside of one the cwd alone (developers.openai.com/codex/guides/agents-md)
    Claude Code  CLAUDE.md, .claude/CLAUDE.md, .claude/rules/, CLAUDE.local.md in each directory
                 from the cwd up (docs.claude.com, claude-code/memory)
    opencode     AGENTS.md, else CLAUDE.md, up to the worktree's root; and the files that
                 `instructions` of opencode.json or opencode.jsonc names (opencode.ai/docs/rules)
    others       GEMINI.md; .github/copilot-instructions.md; .cursor/rules/, .cursorrules

We name all that are there: whoever goes on may be another agent. Outside of a repository the walk
ends below the home directory, and outside of both at once: a file that some stranger put into
/tmp is no project's. For the same reason a configuration names only what is below its directory.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from indexerd.meta.reader import OPEN_FLAGS

LEVELS_MAX = 40  # directories that are looked at
NAMES_MAX = 40  # names in all
LISTED_MAX = 1000  # entries of a directory that a pattern is compared with
CONFIG_MAX = 256 * 1024  # bytes of a configuration; a larger one is not read
_NAME_MAX = 4096

_EVERYWHERE = (
    "AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", ".claude/rules",
    "CLAUDE.local.md", "GEMINI.md", ".github/copilot-instructions.md", ".cursor/rules",
    ".cursorrules",
)  # fmt: skip
_HERE = (".pi/SYSTEM.md", ".pi/APPEND_SYSTEM.md")  # of the cwd alone
_CONFIGS = ("opencode.json", "opencode.jsonc")
_WILD = re.compile(r"[*?\[\]{}]")
_STRING_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def instruction_files(cwd: str, home: Path | None = None) -> list[str]:
    """Names of a project's instruction files, relative to `cwd` (`../AGENTS.md`), none twice.

    Of a file that has several names (a link) only the first is listed. `home` is where the walk
    up ends outside of a repository, by default the user's.
    """
    if not cwd.startswith("/") or "\0" in cwd or len(cwd) > _NAME_MAX:
        return []
    start = "/" + os.path.normpath(cwd).lstrip("/")
    seen: set[tuple[int, int]] = set()
    names: list[str] = []
    for directory in reversed(_levels(start, str(home or Path.home()))):
        for name in _candidates(directory, here=directory == start):
            path = f"{directory.rstrip('/')}/{name}"
            found = _stat(path)
            if found is None or (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            mark = "/" if stat.S_ISDIR(found.st_mode) else ""
            names.append(os.path.relpath(path, start) + mark)
    return names[-NAMES_MAX:]


def _levels(start: str, home: str) -> list[str]:
    """The directories to look in, from the inside out."""
    above = [start, *map(str, Path(start).parents)][:LEVELS_MAX]
    root = next((at for at, one in enumerate(above) if _stat(f"{one}/.git")), None)
    if root is not None:
        return above[: root + 1]
    return above[: above.index(home)] or [start] if home in above else [start]


def _candidates(directory: str, *, here: bool) -> Iterator[str]:
    """What to look for in a directory."""
    yield from _EVERYWHERE
    yield from _HERE if here else ()
    for config in _CONFIGS:
        yield from islice(_named(directory, _configured(f"{directory}/{config}")), NAMES_MAX)


def _stat(path: str) -> os.stat_result | None:
    """What is at a path, links followed, if that is a file or a directory."""
    try:
        found = os.stat(path)  # noqa: PTH116 - strings throughout
    except (OSError, ValueError):  # not there, not allowed, links in a circle, no name at all
        return None
    return found if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None


def _configured(path: str) -> list[Any]:
    """The `instructions` of a configuration, which may have comments."""
    try:
        with open(os.open(path, OPEN_FLAGS), "rb") as file:  # noqa: PTH123 - a descriptor
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return []
            text = file.read(CONFIG_MAX + 1).decode("utf-8-sig")
        held = json.loads(_STRING_OR_COMMENT.sub(lambda found: found[1] or " ", text))
        found = held["instructions"] if len(text) <= CONFIG_MAX else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _named(directory: str, entries: list[Any]) -> Iterator[str]:
    """The names that entries of `instructions` mean, below the directory; addresses mean none.

    Of patterns those are followed whose last part alone is one.
    """
    for one in entries[:NAMES_MAX]:
        if not isinstance(one, str) or "\0" in one or len(one) > _NAME_MAX or "://" in one:
            continue
        name = os.path.normpath(one)
        if name.startswith(("/", "~", "..")) or name == ".":
            continue
        above, _, last = name.rpartition("/")
        if not _WILD.search(name):
            yield name
        elif not _WILD.search(above) and "**" not in last:
            matching = (each for each in _listed(f"{directory}/{above}") if fnmatchcase(each, last))
            yield from (f"{above}/{each}".lstrip("/") for each in matching)


def _listed(directory: str) -> list[str]:
    """The names in a directory, in order."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in islice(entries, LISTED_MAX))
    except OSError:
        return []
