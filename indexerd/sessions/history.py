"""What a path keeps of its past: compactions, an extension's records, files read and modified.

In: entries of one path, root first, read in full. Out: lists for whoever compacts next, resumes
an extension's state, or shows what was done. What an extension stored stays as it stored it;
only file lists that the agent itself made are taken from it (S1.21 to S1.23, S1.33).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from indexerd.events import Entry, Kind

NESTING_MAX = 64


def compactions(entries: Iterable[Entry]) -> list[Entry]:
    """The compactions of a path, newest first; the first one's text is the previous summary."""
    return [one for one in entries if one.kind is Kind.COMPACTION][::-1]


def records(entries: Iterable[Entry], custom_type: str) -> Iterator[Entry]:
    """What an extension stored under a name of its own, oldest first; no model ever sees it."""
    for one in entries:
        if one.type == "custom" and one.custom_type == custom_type:
            yield one


@dataclass(frozen=True, slots=True)
class FileLists:
    """Paths verbatim, in pi's order. What was modified is not listed as read, too."""

    read: tuple[str, ...]
    modified: tuple[str, ...]


def file_lists(entries: Iterable[Entry]) -> FileLists:
    """Files that the calls of these entries read or wrote, and those that summaries remember."""
    read: set[str] = set()
    modified: set[str] = set()
    for entry in entries:
        for call in entry.tools:
            read.update(call.reads)
            modified.update(call.writes)
        if entry.kind in (Kind.COMPACTION, Kind.BRANCH_SUMMARY) and not entry.from_hook:
            read.update(_paths(entry.stored, "readFiles"))
            modified.update(_paths(entry.stored, "modifiedFiles"))
    return FileLists(_sorted(read - modified), _sorted(modified))


def merged(*lists: FileLists) -> FileLists:
    """What all of these lists hold."""
    modified = {path for one in lists for path in one.modified}
    read = {path for one in lists for path in one.read}
    return FileLists(_sorted(read - modified), _sorted(modified))


def _paths(stored: Any, key: str) -> Iterator[str]:
    listed = stored.get(key) if isinstance(stored, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, str):
            yield one


def _sorted(paths: set[str]) -> tuple[str, ...]:
    """By UTF-16 units, as JavaScript sorts."""
    return tuple(sorted(paths, key=lambda path: path.encode("utf-16-be", "surrogatepass")))


def opaque(value: Any, depth: int = 0) -> Any:
    """What somebody else stored, as it is; what is nested beyond reason is left out."""
    if depth > NESTING_MAX:
        return None
    if isinstance(value, list):
        return [opaque(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {str(key): opaque(one, depth + 1) for key, one in value.items()}
    return value
