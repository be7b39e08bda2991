"""Find the edits of files in tool calls, of all agents, as unified diffs.

Calls hold snippets of files rather than whole ones, so a diff has no line numbers; `@@` separates
its parts. A diff of long texts is not minimal, as difflib's time grows with the square of their
length: all old lines are followed by all new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from itertools import groupby, islice
from typing import Any

import msgspec

from indexerd.agents.json_lines import as_dict, as_list, first_of, string

LINES_MAX = 2000  # of one diff
LINE_MAX = 2000  # characters of a line
CALL_MAX = 100  # edits of one call
_PAIRS_MAX = 250_000  # old lines times new lines that difflib compares
_AROUND = 3  # lines of context
_PATHS = ("file_path", "filePath", "path", "notebook_path")
_OLD = ("old_string", "oldText", "oldString")
_NEW = ("new_string", "newText", "newString", "new_source")
_PATCHES = ("input", "patchText", "patch", "command", "cmd")
_PATCH = re.compile(
    r"(?:^|[ \t'\"])\*\*\* Begin Patch[ \t]*$(.*?)(?:^\*\*\* End Patch|\Z)",
    re.MULTILINE | re.DOTALL,
)
_PATCHING = re.compile(r"(?:^|[\n;&|(]\s*|-l?c\s+)apply_patch\b")  # as a command
_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.{1,4096})")
_MOVE = re.compile(r"\*\*\* Move to: (.{1,4096})")
_KINDS = {"Add": "create", "Update": "edit", "Delete": "delete"}
_LINE_ENDS = re.compile(r"\r\n?|\n")


class FileEdit(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One edit of one file. The path is verbatim."""

    path: str
    kind: str  # edit, write (the whole file), create, delete, rename
    diff: str  # lines that begin with "+", "-", " " or "@"
    added: int = 0  # lines
    removed: int = 0
    moved_to: str = ""
    cut: int = 0  # lines left out of the diff


def edits_of(name: str, arguments: Any) -> list[FileEdit]:
    """List the edits of a call; `arguments` is an object, a patch, or Codex's record of changes."""
    fields, name = as_dict(arguments), name.lower()
    if not name:
        return [*map(_recorded, islice(as_dict(fields.get("changes")).items(), CALL_MAX))]
    if isinstance(arguments, str) or "patch" in name:
        texts = [arguments] if isinstance(arguments, str) else map(fields.get, _PATCHES)
        return list(_patched(texts))[:CALL_MAX]
    path = first_of(fields, _PATHS)
    if path and name == "write":
        lines = [f"+{line}" for line in _lines(string(fields.get("content")))]
        return [_edit(path, "write", lines)]
    if path and name in ("edit", "multiedit", "notebookedit"):
        several = [as_dict(one) for one in as_list(fields.get("edits"))] or [fields]
        if fields.get("edit_mode") == "delete":  # a notebook's cell: its text is not in the call
            several = []
        lines = _joined(map(_changed, several[:CALL_MAX]))
        return [_edit(path, "edit", lines)]  # without lines, if only line ends changed
    commands = [_words(fields.get(key)) for key in ("command", "cmd")]
    return list(_patched(text for text in commands if _PATCHING.search(text)))[:CALL_MAX]


def _recorded(change: tuple[str, Any]) -> FileEdit:
    path, fields = change[0], as_dict(change[1])
    kind = {"add": "create", "delete": "delete"}.get(string(fields.get("type")), "edit")
    sign = "-" if kind == "delete" else "+"
    content = [f"{sign}{line}" for line in _lines(string(fields.get("content")))]
    diff = _lines(string(fields.get("unified_diff")))
    parts = ["@@" if line.startswith("@@") else line for line in diff if line[:1] in "+- @"]
    moved_to = string(fields.get("move_path"))
    return _edit(path, kind, content or parts[parts[:1] == ["@@"] :], moved_to)


def with_patch(edit: FileEdit, patch: Iterable[str]) -> FileEdit:
    """Return an edit with the diff that its agent stored."""
    lines = [line for line in patch if line[:1] in ("+", "-", " ", "@")]
    return _edit(edit.path, edit.kind, lines, edit.moved_to)


def text_of(edit: FileEdit) -> list[str]:
    """Return the lines of a file that an edit wrote whole; none if they are not all known."""
    lines = edit.diff.split("\n")
    whole = edit.kind in ("write", "create") and not edit.cut
    return [line[1:] for line in lines] if whole and all(line[:1] == "+" for line in lines) else []


def since(before: list[str], edit: FileEdit) -> FileEdit:
    """Return an edit that wrote a file whole as what it changed of the file's lines before."""
    return _edit(edit.path, edit.kind, _compared(before, text_of(edit)))


def _words(command: Any) -> str:
    return " ".join(map(string, command)) if isinstance(command, list) else string(command)


def _edit(path: str, kind: str, lines: list[str], moved_to: str = "") -> FileEdit:
    while lines and lines[-1] == " ":
        del lines[-1]
    shown = [line[:LINE_MAX] for line in lines[:LINES_MAX]]
    return FileEdit(
        path=path,
        kind="rename" if moved_to else kind,
        diff="\n".join(shown),
        added=sum(line.startswith("+") for line in lines),
        removed=sum(line.startswith("-") for line in lines),
        moved_to=moved_to,
        cut=len(lines) - len(shown),
    )


def _lines(text: str) -> list[str]:
    """Split a text where an editor would."""
    lines = _LINE_ENDS.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def _joined(parts: Iterable[list[str]]) -> list[str]:
    lines = list[str]()
    for part in parts:
        lines += ["@@", *part] if lines and part else part
    return lines


def _changed(fields: dict[str, Any]) -> list[str]:
    return _compared(_lines(first_of(fields, _OLD)), _lines(first_of(fields, _NEW)))


def _compared(old: list[str], new: list[str]) -> list[str]:
    """Compare the old lines with the new ones."""
    least = min(len(old), len(new))
    same = next((at for at in range(least) if old[at] != new[at]), least)
    left = least - same
    alike = next((at for at in range(left) if old[-1 - at] != new[-1 - at]), left)
    gone, come = old[same : len(old) - alike], new[same : len(new) - alike]
    before, after = old[max(0, same - _AROUND) : same], old[len(old) - alike :][:_AROUND]
    if len(gone) * len(come) > _PAIRS_MAX:
        middle = [*(f"-{line}" for line in gone), *(f"+{line}" for line in come)]
        return [*(f" {line}" for line in before), *middle, *(f" {line}" for line in after)]
    around = ([*before, *gone, *after], [*before, *come, *after])
    compared = list(unified_diff(*around, n=_AROUND, lineterm=""))[3:]  # below the first `@@`
    return ["@@" if line.startswith("@@") else line for line in compared]


def _patched(texts: Iterable[Any]) -> Iterator[FileEdit]:
    """Read the patches of Codex's format in texts."""
    for text in texts:
        for part in _PATCH.findall(_LINE_ENDS.sub("\n", _words(text))):
            yield from _files_of(part)


def _files_of(patch: str) -> Iterator[FileEdit]:
    path, kind, moved_to, lines = "", "", "", list[str]()
    for line in patch.split("\n"):
        if begins := _FILE.fullmatch(line.rstrip()):
            if path:
                yield _edit(path, kind, _compared_parts(lines), moved_to)
            path, kind, moved_to, lines = begins[2].strip(), _KINDS[begins[1]], "", []
        elif moves := _MOVE.fullmatch(line.rstrip()):
            moved_to = moves[1].strip()
        elif line.startswith(("+", "-", " ")) or (
            line.startswith("@@") and (lines or line.strip("@ "))
        ):
            lines.append(line)
        elif not line and lines:  # an empty line of context
            lines.append(" ")
    if path:
        yield _edit(path, kind, _compared_parts(lines), moved_to)


def _compared_parts(patch: list[str]) -> list[str]:
    """Make context of the lines that a part of a patch both removes and adds."""
    lines = list[str]()
    for heading, run in groupby(patch, key=lambda line: line[0] == "@"):
        part = [*run]
        old, new = ([line[1:] for line in part if line[0] in signs] for signs in ("- ", "+ "))
        gone = {line[1:] for line in part if line[0] == "-"}
        again = not heading and any(line[0] == "+" and line[1:] in gone for line in part)
        lines += _compared(old, new) if again else part
    return lines
