"""One table of ours in a TOML text that belongs to somebody else.

In: the text, the table's name (`a.b`), its lines. Out: the text with that table at its end, or
without it; the rest stays to the letter, comments too, and a table put in and taken out again
leaves what was there before. Whatever would change the meaning of anything else is refused.

The table is known by the comment at its head, and ends with its last line of a key and a value.
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

_KEY_LINE = re.compile(r"[A-Za-z0-9_-]+[ \t]*=")


def put(text: str, table: str, marker: str, lines: Sequence[str]) -> str:
    """The text with our table; one that is there is brought up to date where it stands."""
    held = _value(text)
    span = _span(text, table, marker)
    there = _lookup(held, table)
    if span is None and there is not None:
        if there == _lookup(tomllib.loads("\n".join((f"[{table}]", *lines))), table):
            return text
        raise UsageError(
            f"there is a [{table}] that is not ours",
            hint=f"remove [{table}] from the file if you do not need it, then try again",
        )
    newline = "\r\n" if "\r\n" in text else "\n"
    start, end = span or (len(text), len(text))
    kept = _added(text[start:end], lines)
    block = "".join(one + newline for one in (f"# {marker}", f"[{table}]", *lines, *kept))
    # One line break of ours before the table, whatever the text ends with.
    lead = newline if text and span is None else ""
    after = text[:start] + lead + block + text[end:]
    _refuse_other_meaning(table, held, after)
    return after


def take(text: str, table: str, marker: str) -> str | None:
    """The text without our table and those below it; None where nothing else was ever there."""
    span = _span(text, table, marker)
    if span is None:
        return text
    start, end = span
    below = rf"^[ \t]*\[\[?{re.escape(table)}\.[^\n]*\n(?:[^\s\[#][^\n]*(?:\n|\Z))*"
    tail = re.sub(below, "", text[end:], flags=re.MULTILINE)
    if not start and not tail:
        return None
    after = text[: max(0, start - (2 if text[:start].endswith("\r\n") else 1))] + tail
    _refuse_other_meaning(table, _value(text), after)
    return after


def _span(text: str, table: str, marker: str) -> tuple[int, int] | None:
    """Where our table is, its marker included; a marker is known by its first words."""
    known = re.escape(" ".join(marker.split()[:2]))
    head = rf"^# {known}[^\n]*\n\[{re.escape(table)}\][ \t]*\r?(?:\n|\Z)"
    found = re.search(head, text, re.MULTILINE)
    if found is None:
        return None
    end = found.end()
    for line in text[end:].split("\n"):
        if not _KEY_LINE.match(line):
            break
        end = min(end + len(line) + 1, len(text))
    return found.start(), end


def _added(block: str, lines: Sequence[str]) -> list[str]:
    """What the user, or the program itself, has added to our table."""
    ours = {one.partition("=")[0].strip() for one in lines}
    there = [one.removesuffix("\r") for one in block.split("\n")[2:] if one.strip()]
    return [one for one in there if one.partition("=")[0].strip() not in ours]


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


def _refuse_other_meaning(table: str, before: dict[str, Any], text: str) -> None:
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise ValueError(f"[{table}] cannot be written into it, or taken out of it") from None
    if _others(before, table) != _others(after, table):
        raise ValueError(f"[{table}] cannot be told from the rest of it")


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
