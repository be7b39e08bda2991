"""One table of ours in a TOML text that belongs to somebody else.

In: the text, the table's name (`a.b`), its lines. Out: the text with that table at its end, or
without it; the rest stays to the letter, comments too, and a table put in and taken out again
leaves what was there before. Whatever would change the meaning of anything else is refused.

The table is known by the comment at its head, and ends where taking it out changes nothing else.
There is no second comment at its end: programs that edit TOML put new tables before a comment
that ends the text, and in time tables of the user's would stand between the two.

UsageError: a table of that name is there, and is not ours. ValueError: the text is not TOML, or
has no room for the table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from indexerd.errors import UsageError

_KEY_LINE = re.compile(r"[ \t]*[A-Za-z0-9_-]+[ \t]*=")
_OURS = ("command", "args")  # what an update writes anew
_LINES_MAX = 200  # of our table


def put(text: str | None, table: str, marker: str, lines: Sequence[str]) -> str:
    """The text with our table; of one that is there, `command` and `args` are brought up to date.

    `text` is None where there is no file: one that is there, empty, is told from that again.
    """
    before = text or ""
    held = _value(before)
    span = _span(before, table, held, marker)
    if span is None and _lookup(held, table) is not None:
        if _is(held, table, lines):
            return before
        raise UsageError(
            f"there is a [{table}] that is not ours",
            hint=f"remove [{table}] from the file if you do not need it, then try again",
        )
    newline = "\r\n" if "\r\n" in before else "\n"
    if span is None:
        # One line break of ours before the table, whatever the text ends with.
        lead = "" if text is None else newline
        after = (
            before + lead + "".join(one + newline for one in (f"# {marker}", f"[{table}]", *lines))
        )
    else:
        start, end = span
        after = before[:start] + _renewed(before[start:end], lines, newline) + before[end:]
    _refuse_other_meaning(table, held, after)
    return after


def take(text: str, table: str, marker: str, lines: Sequence[str]) -> str | None:
    """The text without our table and those below it; None where there was no file before.

    A table is ours by its marker; one without a marker is, where it says exactly these lines.
    """
    held = _value(text)
    span = _span(text, table, held, marker)
    if span is None and _is(held, table, lines):
        span = _span(text, table, held)
    if span is None:
        return text
    start, end = span
    below = rf"^[ \t]*\[\[?{re.escape(table)}\.[^\n]*\n(?:[^\s\[#][^\n]*(?:\n|\Z))*"
    tail = re.sub(below, "", text[end:], flags=re.MULTILINE)
    if not start and not tail:
        return None
    kept = text[: max(0, start - (2 if text[:start].endswith("\r\n") else 1))]
    if kept and not kept.endswith("\n") and tail and not tail.startswith(("\n", "\r\n")):
        kept = text[:start]  # the next table needs a line of its own
    _refuse_other_meaning(table, held, kept + tail)
    return kept + tail


def _span(
    text: str, table: str, held: dict[str, Any], marker: str | None = None
) -> tuple[int, int] | None:
    """Where a table is, with its marker; a marker is known by its first words.

    The end is the first line's at which all else still means what it did: whatever was written
    into the table is found so, comments and lists of several lines too.
    """
    known = "" if marker is None else rf"# {re.escape(' '.join(marker.split()[:2]))}[^\n]*\n"
    head = rf"^{known}[ \t]*\[{re.escape(table)}\][^\n]*(?:\n|\Z)"
    for found in re.finditer(head, text, re.MULTILINE):
        end = found.end()
        for line in [*text[end:].split("\n")[:_LINES_MAX], ""]:
            if _is_gone(table, held, text[: found.start()] + text[end:]):
                return found.start(), end
            end = min(end + len(line) + 1, len(text))
    return None


def _renewed(block: str, lines: Sequence[str], newline: str) -> str:
    """A table of ours with `command` and `args` of now; whatever else is in it stays."""
    ours = {one.partition("=")[0].strip(): one for one in lines}
    told, dropping = [], False
    for line in block.splitlines(keepends=True):
        key = line.partition("=")[0].strip()
        if _KEY_LINE.match(line):
            dropping = key in _OURS
            told.append(ours[key] + newline if dropping else line)
        elif not dropping or not line.strip() or line.lstrip().startswith(("#", "[")):
            told.append(line)
    return "".join(told)


def _value(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise ValueError("it is not TOML") from None


def _lookup(held: dict[str, Any], table: str) -> Any:
    found: Any = held
    for word in table.split("."):
        found = found.get(word) if isinstance(found, dict) else None
    return found


def _is(held: dict[str, Any], table: str, lines: Sequence[str]) -> bool:
    """Whether a table says exactly these lines."""
    wanted = tomllib.loads("\n".join((f"[{table}]", *lines)))
    return bool(_lookup(held, table) == _lookup(wanted, table))


def _refuse_other_meaning(table: str, before: dict[str, Any], text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise ValueError(f"[{table}] cannot be written into it, or taken out of it") from None
    if not _same_others(table, before, text):
        raise ValueError(f"[{table}] cannot be told from the rest of it")


def _is_gone(table: str, before: dict[str, Any], text: str) -> bool:
    """Whether a text says all that was said before, but for a table; those below may be there."""
    if not _same_others(table, before, text):
        return False
    was, left = (_lookup(held, table) for held in (before, tomllib.loads(text)))
    return left is None or all(was.get(key) == value for key, value in left.items())


def _same_others(table: str, before: dict[str, Any], text: str) -> bool:
    """Whether a text says all that was said before, but for one table."""
    try:
        return _others(before, table) == _others(tomllib.loads(text), table)
    except tomllib.TOMLDecodeError:
        return False


def _others(held: dict[str, Any], table: str) -> dict[str, Any]:
    """A document without one table, and without the table around it if that is then empty."""
    outer, _, name = table.partition(".")
    around = held.get(outer)
    if not isinstance(around, dict):
        return held
    rest = {key: value for key, value in around.items() if key != name}
    return {key: value for key, value in held.items() if key != outer} | (
        {outer: rest} if rest else {}
    )
