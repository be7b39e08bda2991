"""Tables on narrow terminals: what they go without, and how wide characters count."""

from __future__ import annotations

import click
import pytest
from rich.cells import cell_len

from indexerd.cli import printing as render
from indexerd.cli.backend import App

SESSIONS = ("session", "active", "agent", "asks", "name", "directory")
ROW = (
    "c0ffee01-0000-4000-8000-000000000000",
    *("1d ago", "claude", "5", "Design the forecast cache", "/home/somebody/work/shop"),
)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets how wide the terminal is; tables are for a person, without colours."""
    monkeypatch.setattr(render, "aligned", lambda: True)
    return monkeypatch


def table(heads: tuple[str, ...], *rows: tuple[str, ...]) -> list[str]:
    """The lines of a table."""
    context = click.Context(click.Command("table"), obj=App(color="never"))
    with context.scope():
        return list(render.table(heads, rows) if heads else render.entries(rows))


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_table_fits_the_terminal(width: int, columns: pytest.MonkeyPatch) -> None:
    """Wide columns are cut, a session can be told by its id; what is left over is not shown."""
    columns.setenv("COLUMNS", str(width))
    head, shown = table(SESSIONS, ROW)
    assert max(map(len, (head, shown))) <= width
    assert shown.startswith("c0ffee01-0")
    if width >= 60:
        assert head.split() == list(SESSIONS)
        assert "Desig" in shown


@pytest.mark.parametrize(
    "text", ["日本語の文章" * 20, "e\u0301" * 60, "a" * 300, "一a" * 70, "\u2713 ok"]
)
def test_lines_of_a_tree_fit_the_terminal(text: str, columns: pytest.MonkeyPatch) -> None:
    """Wide characters take two columns, marks none; ids stand below each other."""
    columns.setenv("COLUMNS", "40")
    first, second = table((), ("12345678", "5m ago", text), ("日本", "now", "short"))
    assert cell_len(first) <= 40
    assert cell_len(first) >= 39 or text in first
    assert first.endswith("…") == (cell_len(text) > 40 - 18)
    assert cell_len(second.partition("short")[0]) == 18


@pytest.mark.parametrize(
    "name", ["日本語の文章", "Ümlaut \u2013 “quoted”", "e\u0301e\u0301", "🚀 launch"]
)
def test_wide_characters_keep_columns_in_line(name: str, columns: pytest.MonkeyPatch) -> None:
    """What stands behind a name of wide characters stands below its header."""
    columns.setenv("COLUMNS", "100")
    head, shown = table(SESSIONS, (*ROW[:4], name, "/home/x"))
    assert cell_len(shown.partition("/home/x")[0]) == head.index("directory")
