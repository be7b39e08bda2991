"""Lines for people: tables fit a terminal; pipes get columns with tabs, and nothing is cut."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from indexerd.cli.command import current
from indexerd.cli.streams import safe, utf8

_BOLD, _YELLOW, _RESET = "\x1b[1m", "\x1b[33m", "\x1b[0m"
_NARROW = 12  # columns up to this width are never cut: the wide ones share the rest
_ID = 14  # columns for a session's id where space is short: its beginning is reference enough
_LEAST = 10  # columns that a wide one needs to say anything
# What a narrow terminal goes without, the least important first: never ids, names and gists.
_OPTIONAL = ("parts at", "directory", "source", "entries", "asks", "agent", "active", "current")
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"))
_SPANS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_ROUND = ("├─ ", "└─ ", "│  ")
_PLAIN = ("|- ", "`- ", "|  ")
PREFIX_MAX = 36  # columns of the lines before an entry of a tree


def aligned() -> bool:
    """Whether tables are for a person at a terminal, and cut to its width."""
    return current().color == "always" or sys.stdout.isatty()


def coloured() -> bool:
    """Whether escape sequences of ours are wanted."""
    if current().color != "auto":
        return current().color == "always"
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows: aligned under their headers on a terminal, tab-separated elsewhere."""
    return _rows(headers, [[safe(cell) for cell in row] for row in rows], heads=True)


def entries(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Id, age and text of entries, which are clean already; without headers."""
    return _rows(("leaf", "active", "text"), list(rows), heads=False)


def _rows(
    headers: Sequence[str], rows: list[Sequence[str]] | list[list[str]], *, heads: bool
) -> Iterator[str]:
    if not aligned():
        yield from map("\t".join, rows)
        return
    import shutil

    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    space = shutil.get_terminal_size().columns
    cells = [
        [Text.from_ansi(cell, no_wrap=True, overflow="ellipsis") for cell in row] for row in rows
    ]
    columns = [[row[at] for row in cells] for at in range(len(headers))]
    widths = {
        head: max([cell_len(head) * heads, *(cell.cell_len for cell in column)])
        for head, column in zip(headers, columns, strict=True)
    }
    kept = _kept(widths, space)
    tight = sum(widths.values()) + 2 * len(widths) > space
    grid = Table(
        box=None, pad_edge=False, padding=(0, 0, 0, 2), show_header=heads, header_style="dim"
    )
    for head in kept:
        whole = widths[head] <= _NARROW or head in ("leaf", "session")
        most = _ID if tight and head == "session" else None
        grid.add_column(head, no_wrap=whole, max_width=most, overflow="ellipsis")
    shown = [at for at, head in enumerate(headers) if head in kept]
    for row in cells:
        grid.add_row(*(row[at] for at in shown))
    console = Console(
        width=space,
        color_system="standard" if coloured() else None,
        no_color=False,
        force_terminal=coloured(),
        highlight=False,
    )
    with console.capture() as printed:
        console.print(grid)
    yield from (line.rstrip() for line in printed.get().split("\n")[:-1])


def _kept(widths: Mapping[str, int], space: int) -> list[str]:
    """The columns for which there is space."""
    least = {
        head: width if width <= _NARROW or head == "leaf" else _LEAST
        for head, width in widths.items()
    }
    if "session" in least:
        least["session"] = min(widths["session"], _ID)
    for head in _OPTIONAL:
        if sum(least.values()) + 2 * (len(least) - 1) <= space:
            break
        least.pop(head, None)
    return list(least)


def heading(name: str, more: str = "") -> str:
    """A name that stands out, and what belongs beside it."""
    return (f"{_BOLD}{safe(name)}{_RESET}" if coloured() else safe(name)) + more


def yellow(text: str) -> str:
    """A text in that colour, where colours are wanted."""
    return f"{_YELLOW}{text}{_RESET}" if text and coloured() else text


def facts(pairs: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Named facts, one a line; empty ones are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    return (f"{name.ljust(width)}  {safe(value, 4000)}" for name, value in shown)


def paragraph(text: str, indent: str = "", limit: int = 20_000) -> Iterator[str]:
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
