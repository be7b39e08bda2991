"""Tables and facts for people: on a terminal they fit it; pipes get plain columns."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from indexerd.cli.streams import put, safe

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from typing import Any

    from indexerd.cli.main import App

_BOLD, _DIM, _YELLOW, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"))
_NARROW = 12  # columns up to this width are never cut: the wide ones share the rest
_ID = 14  # columns for a session's id where space is short: its beginning is reference enough
_LEAST = 10  # columns that a wide one needs to say anything
# What a narrow terminal goes without, the least important first: never ids, names and gists.
_OPTIONAL = ("parts at", "directory", "source", "entries", "asks", "agent", "active", "current")


def aligned(app: App) -> bool:
    """Whether tables are for a person at a terminal, and cut to its width."""
    return app.color == "always" or sys.stdout.isatty()


def coloured(app: App) -> bool:
    """Whether escape sequences of ours are wanted."""
    if app.color != "auto":
        return app.color == "always"
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def table(app: App, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: aligned and coloured on a terminal, tab-separated elsewhere."""
    cells = [[safe(cell) for cell in row] for row in rows]
    if not aligned(app):
        put("\t".join(row) for row in cells)
        return
    from indexerd.cli.printing import GAP, cut, fitted, padded, space, width_of

    width = space()
    widths = [max(map(width_of, column)) for column in zip(headers, *cells, strict=True)]
    tight = sum(widths) + len(GAP) * len(widths) > width
    kept = _kept(dict(zip(headers, widths, strict=True)), width)
    whole = {n for n, at in enumerate(kept) if widths[at] <= _NARROW or headers[at] == "leaf"}
    if tight and "session" in headers:
        at = headers.index("session")
        widths[at] = min(widths[at], _ID)
        whole |= {kept.index(at)}
    sizes = fitted([widths[at] for at in kept], whole, width)
    lines = [
        GAP.join(padded(cut(row[at], size), size) for at, size in zip(kept, sizes, strict=True))
        for row in (headers, *cells)
    ]
    head, *rest = (line.rstrip() for line in lines)
    put([_styled(head, _DIM) if coloured(app) else head, *rest])


def _kept(widths: dict[str, int], space: int) -> list[int]:
    """The columns for which there is space, by their places."""
    needs = {
        header: width if width <= _NARROW or header == "leaf" else _LEAST
        for header, width in widths.items()
    }
    if "session" in needs:
        needs["session"] = min(widths["session"], _ID)
    for header in _OPTIONAL:
        if sum(needs.values()) + 2 * (len(needs) - 1) <= space:
            break
        needs.pop(header, None)
    return [at for at, header in enumerate(widths) if header in needs]


def heading(app: App, name: str, more: str = "") -> None:
    """Print a name that stands out, and what belongs beside it."""
    text = _styled(safe(name), _BOLD) if coloured(app) else safe(name)
    put([text + more])


def yellow(text: str) -> str:
    """A text in that colour, for a line that `plain` may be asked about."""
    return _styled(text, _YELLOW)


def plain(line: str) -> str:
    """A line without the colours that it was given here."""
    return line.replace(_YELLOW, "").replace(_BOLD, "").replace(_RESET, "")


def _styled(text: str, how: str) -> str:
    return f"{how}{text}{_RESET}"


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print named facts, one a line; empty ones are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    put(f"{name.ljust(width)}  {safe(value, 4000)}" for name, value in shown)


def paragraph(text: str, indent: str = "") -> None:
    """Print text of somebody else's making: without escape sequences."""
    from indexerd.privacy.sanitize import clean_text

    lines = clean_text(text, 20_000).split("\n")
    put(indent + line if line.strip() else line for line in lines)


def exact(text: str) -> str:
    """Text that must stay true: what could act on a terminal is shown; lines and tabs stay."""
    if text.isprintable():
        return text
    from indexerd.privacy.sanitize import escape_path

    return "\n".join("\t".join(map(escape_path, line.split("\t"))) for line in text.split("\n"))


def place(app: App, path: str) -> str:
    """A directory for a list: on a terminal with `~` for the user's home, else as it is."""
    home = os.environ.get("HOME", "").rstrip("/")
    if home and aligned(app) and f"{path}/".startswith(f"{home}/"):
        path = "~" + path[len(home) :]
    return exact(path)


def for_people(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what is shown in place of paths that hold secrets."""
    return {**row, **row.get("shown", {})}


def age(iso: str) -> str:
    """How long ago, in one unit."""
    from indexerd.times import iso_ms

    seconds = max(0.0, time.time() - iso_ms(iso) / 1000)
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return "now"


GAP = "  "
_USUAL = 80  # columns, where nobody knows
_MARKS = "\u0300"  # before it, all that can be printed takes one column
_DASHES, _DOTS = "\u2010", "\u2027"  # from one to the other, too: dashes, quotes, the ellipsis


def space() -> int:
    """How many columns there are."""
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told[:6]):
        return int(told[:6])
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        try:
            found = os.get_terminal_size(stream.fileno()).columns
        except (AttributeError, OSError, ValueError):  # no terminal, closed, or no file at all
            continue
        if found:
            return found
    return _USUAL


def width_of(text: str) -> int:
    """How many columns a text takes."""
    if _is_plain(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """A text of at most `width` columns; one that is longer says so."""
    if width_of(text) <= width:
        return text
    mark = "…" if _utf8() else "~"
    if _is_plain(text):
        return text[: max(0, width - 1)] + mark
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - 1)) + mark


def padded(text: str, width: int) -> str:
    """A text with spaces up to a width."""
    return text + " " * (width - width_of(text))


def fitted(widths: Sequence[int], whole: Container[int], space: int) -> list[int]:
    """Widths of columns that fit: the widest gives way first, and those in `whole` last of all."""
    found = list(widths)
    over = sum(found) + len(GAP) * (len(found) - 1) - space
    for able in ([at for at in range(len(found)) if at not in whole], range(len(found))):
        while over > 0 and able:
            widest = max(able, key=found.__getitem__)
            if found[widest] <= 1:
                break
            found[widest] -= 1
            over -= 1
    return found


def _is_plain(text: str) -> bool:
    """Whether each character takes one column, as far as can be said at a glance."""
    return text.isascii() or all(char < _MARKS or _DASHES <= char <= _DOTS for char in set(text))


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
