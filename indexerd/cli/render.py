"""Tables and facts for people. rich is imported only for a terminal; pipes get plain columns."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from indexerd.core.clean import clean_line, clean_text
from indexerd.core.times import iso_ms

if TYPE_CHECKING:
    from indexerd.cli.main import App

_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"))


def pretty(app: App) -> bool:
    """Whether the output is for a person at a terminal."""
    if app.color != "auto":
        return app.color == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def table(app: App, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: aligned and coloured on a terminal, tab-separated elsewhere."""
    cleaned = [[clean_line(str(cell), 400) for cell in row] for row in rows]
    if not pretty(app):
        for row in cleaned:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, header_style="dim", pad_edge=False)
    for header in headers:
        grid.add_column(header, overflow="ellipsis", no_wrap=True)
    for row in cleaned:
        grid.add_row(*(Text(cell) for cell in row))
    Console(no_color=app.color == "never", highlight=False).print(grid)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print named facts, one a line; empty ones are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {clean_line(str(value), 2000)}")


def paragraph(text: str) -> None:
    """Print text of somebody else's making: without escape sequences."""
    click.echo(clean_text(text, 20_000))


def age(iso: str) -> str:
    """How long ago, in one unit."""
    seconds = max(0.0, time.time() - iso_ms(iso) / 1000)
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return "now"
