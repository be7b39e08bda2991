"""Tables and trees on narrow terminals: what they go without, and how wide characters count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from indexerd.cli import printing as render
from indexerd.cli import tree
from indexerd.cli.main import App
from indexerd.cli.printing import cut, fitted, padded, space, width_of

LEAVES = ("leaf", "current", "entries", "asks", "active", "parts at", "gist")
TIP = ("1a2b3c4d", "*", "12", "3", "5m ago", "9f8e7d6c", "Redis is too big for a small service.")
SESSIONS = ("session", "active", "agent", "asks", "name", "directory")
ROW = (
    "c0ffee01-0000-4000-8000-000000000000",
    "1d ago",
    "claude",
    "5",
    "Design the forecast cache",
    "/home/somebody/work/shop",
)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets how wide the terminal is."""
    monkeypatch.setenv("COLUMNS", "80")
    return monkeypatch


def table(
    capsys: pytest.CaptureFixture[str], heads: tuple[str, ...], row: tuple[str, ...]
) -> list[str]:
    """The lines of a table with one row, without the spaces at their ends."""
    app = App(config=None, json=False, color="never")
    render.table(app, heads, [row])
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are for a person, without colours."""
    monkeypatch.setattr(render, "aligned", lambda _app: True)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_a_narrow_table_keeps_ids_and_names(
    width: int, columns: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leaf is whole, a session can be told by its id, and names can be read."""
    columns.setenv("COLUMNS", str(width))
    for heads, row, whole, name in (
        (LEAVES, TIP, "1a2b3c4d", "Redis is "),
        (SESSIONS, ROW, "c0ffee01-0", "Des" if width == 20 else "Design t"),
    ):
        head, shown = table(capsys, heads, row)
        assert head.split()[0] == heads[0]
        assert max(map(len, (head, shown))) <= width
        assert shown.startswith(whole[: 8 if width == 20 else None])
        assert name in shown
    if width >= 80:
        assert head.split() == list(SESSIONS)


@pytest.mark.usefixtures("terminal")
def test_the_least_important_columns_go_first(
    columns: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which branch is the current one is said longer than where it parts."""
    heads = {}
    for width in (30, 40, 80):
        columns.setenv("COLUMNS", str(width))
        heads[width] = table(capsys, LEAVES, TIP)[0].split()
    assert heads[80] == " ".join(LEAVES).split()
    assert heads[30] == ["leaf", "current", "gist"]
    assert heads[40] == ["leaf", "current", "active", "gist"]


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "text", ["日本語の文章" * 20, "e\u0301" * 60, "a" * 300, "一a" * 70, "\u2713 ok"]
)
def test_lines_of_a_tree_fit_the_terminal(
    text: str, columns: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wide characters take two columns, marks none; ids stand below each other."""
    columns.setenv("COLUMNS", "40")
    app = App(config=None, json=False, color="never")
    tree._columns(app, [("12345678", "5m ago", text), ("日本", "now", "short")])
    first, second = capsys.readouterr().out.splitlines()
    assert cell_len(first) <= 40
    assert cell_len(first) >= 39 or text in first
    assert first.endswith(("…", "~")) == (cell_len(text) > 40 - 18)
    assert cell_len(second.partition("short")[0]) == 18


# -- widths --------------------------------------------------------------------------------------


def test_what_is_taken_for_one_column_is_one() -> None:
    """Every character that rich is not asked about."""
    for point in (*range(0x300), *range(0x2010, 0x2028)):
        if chr(point).isprintable():
            assert width_of(chr(point)) == cell_len(chr(point)) == 1, hex(point)


FIT_TO_PRINT = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")


@given(st.text(FIT_TO_PRINT, max_size=30), st.integers(1, 40))
def test_what_is_cut_fits(text: str, width: int) -> None:
    """Whatever it is made of; what fits is left as it is."""
    short = cut(text, width)

    assert width_of(text) == cell_len(text)
    assert width_of(short) <= width
    assert (short == text) == (width_of(text) <= width)
    assert width_of(padded(short, 40)) == 40


@given(st.lists(st.integers(1, 60), min_size=1, max_size=7), st.integers(1, 200), st.data())
def test_columns_fit_where_they_can(widths: list[int], width: int, data: st.DataObject) -> None:
    """The widest gives way; what is to be whole is, unless all others are at their end."""
    whole = data.draw(st.sets(st.sampled_from(range(len(widths)))))
    found = fitted(widths, whole, width)

    total = sum(found) + 2 * (len(found) - 1)
    assert total <= width or found == [1] * len(found)
    assert all(now <= before for now, before in zip(found, widths, strict=True))
    assert found == widths or total >= width
    others = [now for at, now in enumerate(found) if at not in whole]
    cut_down = [at for at in whole if found[at] < widths[at]]
    assert not cut_down or all(now == 1 for now in others)


def test_a_width_that_is_none_is_not_taken(columns: pytest.MonkeyPatch) -> None:
    """A number of columns, or what the terminal says, or 80."""
    for told, width in (("81", 81), ("0", 80), ("wide", 80), ("-3", 80), ("٣", 80), ("", 80)):
        columns.setenv("COLUMNS", told)
        assert space() == width


@pytest.mark.usefixtures("terminal")
def test_wide_characters_keep_columns_in_line(
    columns: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands behind a name of wide characters stands below its header."""
    columns.setenv("COLUMNS", "100")
    for name in ("日本語の文章", "Ümlaut \u2013 “quoted”", "e\u0301e\u0301", "🚀 launch"):
        head, shown = table(capsys, SESSIONS, (*ROW[:4], name, "/home/x"))
        before = shown.partition("/home/x")[0]
        assert width_of(before) == head.index("directory")
