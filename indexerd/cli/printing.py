"""Lines for people: tables fit a terminal; pipes get columns with tabs, and nothing is cut."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from indexerd.cli.backend import safe, utf8
from indexerd.cli.main import current

_BOLD, _DIM, _YELLOW, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"
_COLOUR = re.compile("\x1b\\[[0-9]+m")
_ID = 14  # columns for a session's id where space is short: its beginning is reference enough
_LEAST = 4  # columns of any cell
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"))
_SPANS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_ROUND = ("├─ ", "└─ ", "│  ")
_PLAIN = ("|- ", "`- ", "|  ")
PREFIX_MAX = 36  # columns of the lines before an entry of a tree


def aligned() -> bool:
    """Whether tables are for a person at a terminal, and cut to its width."""
    return current().color == "always" or sys.stdout.isatty()


def coloured(text: str, colour: str = _YELLOW) -> str:
    """A text in a colour, where those are wanted."""
    wanted = current().color == "always"
    if current().color == "auto":
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        wanted = sys.stdout.isatty() and not plain
    return f"{colour}{text}{_RESET}" if text and wanted else text


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows: aligned under their headers on a terminal, tab-separated elsewhere."""
    return entries([[safe(cell) for cell in row] for row in rows], headers)


def entries(rows: Iterable[Sequence[str]], headers: Sequence[str] = ()) -> Iterator[str]:
    """Rows of clean cells; without headers, the last column alone is cut to fit."""
    rows = list(rows)
    if not aligned() or not (rows or headers):
        yield from map("\t".join, rows)
        return
    import shutil

    from rich.cells import cell_len, set_cell_size

    def fitted(cell: str, width: int) -> str:
        plain = _COLOUR.sub("", cell)
        if cell_len(plain) > width:
            return set_cell_size(plain, max(width - 1, 0)) + "…"
        return cell + " " * (width - cell_len(plain))

    space = shutil.get_terminal_size().columns
    columns = zip(*([headers] if headers else []), *rows, strict=True)
    widths = [max(cell_len(_COLOUR.sub("", cell)) for cell in column) for column in columns]
    room = space - 2 * (len(widths) - 1)
    if sum(widths) > room and headers[:1] == ("session",):
        widths[0] = min(widths[0], _ID)
    shrinking = range(1, len(widths)) if headers else (len(widths) - 1,)
    while sum(widths) > room:
        widest = max(shrinking, key=lambda at: widths[at])
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    for at, row in enumerate([headers, *rows] if headers else rows):
        line = "  ".join(map(fitted, row, widths)).rstrip()
        line = line if sum(widths) <= room else fitted(line, space).rstrip()
        yield coloured(line, _DIM) if headers and not at else line


def heading(name: str, more: str = "") -> str:
    """A name that stands out, and what belongs beside it."""
    return coloured(safe(name), _BOLD) + more


def facts(pairs: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Named facts, one a line; empty ones are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    return (f"{name.ljust(width)}  {safe(value, 4000)}" for name, value in shown)


def paragraph(text: str, indent: str = "", limit: int = 100_000) -> Iterator[str]:
    """The lines of somebody else's text, without escape sequences."""
    from indexerd.privacy.sanitize import clean_text

    lines = clean_text(text, limit).split("\n")
    return (indent + line if line.strip() else line for line in lines)


def exact(text: str) -> str:
    """Text that must stay true: what could act on a terminal is shown; lines and tabs stay."""
    if text.isprintable():
        return text
    from indexerd.privacy.sanitize import escape_path

    return "\n".join("\t".join(map(escape_path, line.split("\t"))) for line in text.split("\n"))


def place(path: str) -> str:
    """A directory for a list: on a terminal with `~` for the user's home, else as it is."""
    home = os.environ.get("HOME", "").rstrip("/")
    if home and aligned() and f"{path}/".startswith(f"{home}/"):
        path = "~" + path[len(home) :]
    return exact(path)


def for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what is shown in place of paths that hold secrets."""
    return {**row, **row.get("shown", {})}


def some(names: Sequence[str], most: int = 20) -> str:
    """The first names of a list, and how many there are more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def age(timestamp: str) -> str:
    """How long ago, in one unit; empty for what is no time."""
    from indexerd.times import iso_ms

    moment = iso_ms(timestamp)
    seconds = max(0.0, time.time() - moment / 1000)
    for size, unit in _UNITS if moment else ():
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return "now" if moment else ""


def span(ms: int) -> str:
    """How long, in the largest two units: `3 h 20 min`."""
    seconds, parts = ms // 1000, []
    for size, unit in _SPANS:
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    return " ".join(parts[:2])


def branches(depths: Sequence[int], *, single: bool) -> Iterator[str]:
    """The lines before each entry of a tree that is given depth first, by its depth.

    What follows alone stays in its parent's column, unless `single` ones are to move right, too.
    """
    tee, corner, bar = _ROUND if utf8() else _PLAIN
    above: list[int] = []  # by depth: the newest entry
    children: dict[int, list[int]] = {}
    levels = []
    for at, depth in enumerate(depths):
        del above[depth:]  # of a gap in the depths nothing is left out: the entry moves up
        levels.append(len(above))
        children.setdefault(above[-1] if above else -1, []).append(at)
        above.append(at)
    groups = [group for group in children.values() if single or len(group) > 1]
    last = {at: at == group[-1] for group in groups for at in group}
    below: list[str] = []  # by depth: what stands before the children of the newest entry
    for at, level in enumerate(levels):
        del below[level:]
        here = after = below[-1] if below else ""
        if level and at in last:
            here, after = here + (corner if last[at] else tee), here + ("   " if last[at] else bar)
        below.append(after[-PREFIX_MAX:])
        yield here[-PREFIX_MAX:]
