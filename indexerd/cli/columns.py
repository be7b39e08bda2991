"""How wide text is on a terminal, and tables that fit it.

In: cells that are fit to print. Out: lines. A character may take two columns, or none; which, says
rich, but it is asked only about those that are not of one column anyway: to load it costs a
command more than all else.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence

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
