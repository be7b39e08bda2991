"""Output for people: tables fit the terminal; in a pipe, columns are tab-separated and uncut."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from indexerd import times
from indexerd.amounts import compact, cost, dollars, duration
from indexerd.cli.backend import safe
from indexerd.cli.main import current

_BOLD, DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_LEAST = 4  # columns of a cell at least
_SHOWN = 20  # values shown of a list
_WORD = 16  # characters of a word at most that is not cut
_TIMES = ("modifiedAt", "lastActivity", "timestamp", "seenAt", "at")
_HEADERS = {"sessionId": "session", "cwd": "directory", "leafId": "leaf", "active": "current"}
_HEADERS |= {"modifiedAt": "age", "lastActivity": "age", "timestamp": "age", "id": "entry"}
_HEADERS |= {"userMessageCount": "prompts", "userMessages": "prompts", "current": "", "text": ""}
_HEADERS |= {"seenAt": "seen", "at": "age", "branchPointId": "branches off at", "gist": "summary"}
_NAMES = {"cwd": "directory", "createdAt": "started", "modifiedAt": "last active"}
_NAMES |= {"messageCount": "messages", "userMessageCount": "prompts", "userMessages": "prompts"}
_NAMES |= {"newUserMessages": "new prompts", "lastScanAt": "last scan", "costUsd": "cost"}
_NAMES |= {"costEstimatedUsd": "estimated cost", "subagents": "sub-agents"}
_NAMES |= {"unpricedTokens": "tokens without a known price"}
_NAMES |= {"durationMs": "duration", "dailyUsd": "daily cap", "spentUsd": "spent"}
_NAMES |= {"fullMessageCount": "prompts and answers", "foldedMessages": "summarised"}
_HEADING = re.compile(r"(?<!\S)#{2,6} ")  # in one line, headings are no lines
_SIGNS = re.compile(r"^[ \t]*(?:#{1,6} |> ?|[-*+] )", re.MULTILINE)
_MARKS = re.compile(  # of Markdown inside a line
    r"\*\*(?P<bold>.{1,300}?)\*\*|`(?P<code>[^`]{1,300})`"
    r"|\[(?P<link>[^\]]{1,300})\]\((?P<url>https?://[^)\s]{1,300})\)"
)
_ITEM = re.compile(r" *(?:[-*+>] |\d+[.)] )?")
NARROW = 60  # columns of a terminal, below which tables have fewer
DEEPEST = 12  # levels of indentation in a tree


def styled(text: str, style: str) -> str:
    """Style a text if colours are on."""
    wanted = current().color == "always"
    if current().color == "auto":
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        wanted = sys.stdout.isatty() and not plain
    return f"{style}{text}{_RESET}" if text and style and wanted else text


def on_terminal() -> bool:
    return current().color == "always" or sys.stdout.isatty()


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lay out rows: aligned under headers on a terminal, otherwise tab-separated."""
    cells = [[safe(cell) for cell in row] for row in rows]
    if not cells:
        return
    if not on_terminal():
        yield from map("\t".join, cells)
        return
    from wcwidth import width

    widths = [max(map(width, column)) for column in zip(headers, *cells, strict=True)]
    room = shutil.get_terminal_size().columns - 2 * (len(widths) - 1)
    while sum(widths) > max(room, _LEAST * len(widths)):
        widths[widths.index(max(widths))] -= 1
    yield styled("  ".join(map(fitted, headers, widths)).rstrip(), DIM)
    yield from ("  ".join(map(fitted, row, widths)).rstrip() for row in cells)


def fitted(cell: str, width: int) -> str:
    """Cut or fill a cell to a width in columns."""
    import wcwidth

    return wcwidth.ljust(cut(cell, width), width)


def cut(cell: str, width: int) -> str:
    """Cut a cell to a width in columns; a plain word is not cut, but Chinese has no spaces."""
    import wcwidth

    if wcwidth.width(cell) > width:
        start = wcwidth.clip(cell, 0, width - 1)
        words, _, part = start.rpartition(" ")
        spaced = wcwidth.width(part) == len(part) <= _WORD
        plain = spaced and (part.lstrip("(") + cell[len(start)]).isalpha()
        cell = f"{(words if words and plain else start).rstrip()}…"
    return cell


def wrapped(line: str, rest: str | None = None, first: str = "") -> list[str]:
    """Break a line between words where a terminal is too narrow; longer words stay whole.

    `rest` is put before all lines but the first, `first` before that one.
    """
    room = columns()
    if math.isinf(room):
        return [first + line]
    from wcwidth import wrap

    rest = " " * len(_ITEM.findall(line)[0]) if rest is None else rest
    words = line.lstrip(" ")
    lines = wrap(
        words,
        int(room),
        initial_indent=first + " " * (len(line) - len(words)),
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [first]


def columns() -> float:
    """Return the width of the terminal; infinity for a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf


def records(columns: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Make a table of objects; `columns` names their fields."""

    def cell(row: Mapping[str, Any], key: str) -> str:
        value = row.get(key)
        if isinstance(value, bool) or value is None:
            return "*" if value else ""
        if key not in _TIMES:
            return str(value)
        return age(value).removesuffix(" ago") if on_terminal() else age(value)

    keys = columns.split()
    headers = [_HEADERS.get(key, key) for key in keys]
    return table(headers, ([cell(row, key) for key in keys] for row in rows))


def fields(values: Mapping[str, Any], names: str = "") -> Iterator[str]:
    """Write the named fields of an answer, or all of them, one per line, without empty ones."""
    shown = _as_texts({name: values.get(name) for name in names.split() or values})
    width = max(map(len, shown), default=0)
    for name, text in zip(shown, map(exact, shown.values()), strict=True):
        head = f"{name.ljust(width)}  "
        # A command's line stays whole, for copying.
        yield from [head + text] if name == "resume" else wrapped(text, " " * len(head), head)


def unpriced(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a field that says that the cost of these tokens is not known, if it is not."""
    known = values.get("costUsd") is not None or values.get("costEstimatedUsd") is not None
    spent = any((values.get("tokens") or {}).values())
    nameless = values.get("models") == []
    why = "its file names no model" if nameless else "indexerd has no price for these models"
    return {"cost": f"not known: {why}"} if spent and not known else {}


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Map the names of non-empty fields, as words, to their values as text."""
    return {
        _NAMES.get(name) or re.sub("[A-Z]", lambda big: f" {big[0].lower()}", name): text
        for name, value in values.items()
        if value not in (None, "", [], {}, False) and (text := _text(value, name))
    }


def _text(value: Any, name: str = "") -> str:
    """Write a value; its name's end says what it is."""
    if name.endswith("Usd"):
        return cost(None, value) if "Estimated" in name else dollars(value)
    if name.endswith("At"):
        return when(value)
    if name.endswith("Ms"):
        return duration(value)
    if value is True:
        return "yes"
    if isinstance(value, int):
        return f"{value:,}"
    if name == "tokens":
        words = {"cacheRead": "cache read", "cacheWrite": "cache write"}
        return ", ".join(f"{compact(n)} {words.get(key, key)}" for key, n in value.items() if n)
    if isinstance(value, Mapping):
        texts = {} if name == "toolsUsed" else _as_texts(value)  # tools' names are no words
        texts = texts or {key: _text(each) for key, each in value.items()}
        return ", ".join(f"{key} {text}" for key, text in texts.items())
    if isinstance(value, list):
        more = f" and {len(value) - _SHOWN} more" if len(value) > _SHOWN else ""
        return ", ".join(map(_text, value[:_SHOWN])) + more
    return " ".join(str(value).split("\n"))


def heading(name: str, more: str = "") -> list[str]:
    return wrapped(styled(safe(name), _BOLD) + more, "  ")


def page(lines: Iterable[str]) -> None:
    """Print lines; if a terminal has too few rows for them, in the user's pager."""
    shown = [f"{line}\n" for line in lines]
    if sys.stdout.isatty() and len(shown) >= shutil.get_terminal_size().lines:
        os.environ.setdefault("LESS", "FRX")
        click.echo_via_pager(shown, color=current().color != "never")
    else:
        sys.stdout.write("".join(shown))
        sys.stdout.flush()  # before a note on stderr


def paragraph(text: str, indent: str = "") -> Iterator[str]:
    for line in exact(text).split("\n"):
        yield from wrapped(indent + line) if line else [""]


def markdown(text: str, indent: str = "") -> Iterator[str]:
    """Write Markdown; a terminal shows emphasis in place of its marks."""
    fenced = False
    for line in exact(text).split("\n") if on_terminal() else ():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if not fenced and (title := re.fullmatch(r"#{1,6} (.*)", line)):
            yield indent + styled(title[1].replace("**", ""), _BOLD)
        else:
            lines = [indent + line] if fenced else wrapped(indent + without_marks(line))
            yield from map(str.rstrip, lines)
    yield from () if on_terminal() else paragraph(text, indent)


def without_marks(line: str, bold: str = _BOLD) -> str:
    """Replace Markdown's marks in a line, if it is for a terminal; emphasis by `bold`."""

    def shown(found: re.Match[str]) -> str:
        if found["link"]:
            return f"{found['link']} ({found['url']})"
        return styled(found["bold"], bold) if found["bold"] else found["code"]

    return _MARKS.sub(shown, _HEADING.sub("", line)) if on_terminal() else line


def without_signs(text: str, bold: str = _BOLD) -> str:
    """Do as `without_marks` for a text that becomes one line: without signs of lists and quotes."""
    return without_marks(_SIGNS.sub("", text), bold) if on_terminal() else text


def exact(text: str) -> str:
    """Show characters that could act on a terminal as escapes; keep lines and tabs."""
    from indexerd.privacy.sanitize import escape_path

    return "\n".join("\t".join(map(escape_path, line.split("\t"))) for line in text.split("\n"))


def when(timestamp: str) -> str:
    """Write a time in the local zone, and how long ago it was."""
    return f"{local} ({age(timestamp)})" if (local := times.local(timestamp)) else ""


def age(timestamp: str) -> str:
    """Return how long ago a time is; empty if it is not a time."""
    moment = times.iso_ms(timestamp)
    return times.age(time.time() - moment / 1000) if moment else ""
