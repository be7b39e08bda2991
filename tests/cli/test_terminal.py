"""What reaches the terminal: colours, widths, encodings, streams that are gone, hostile content."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from rich.cells import cell_len

from indexerd.cli import printing as render
from indexerd.cli.backend import App
from tests.cli.home import HOSTILE, INDEXERD, Home, forbidden, nowhere
from tests.e2e import terminal

ESC = "\x1b"
REMAINS = "]0;pwn"  # of a sequence whose first character alone was taken out
NAMES = ["session", "active", "agent", "asks", "name", "directory"]


def on_terminal(
    home: Home, *argv: str, columns: int = 80, env: Mapping[str, str] | None = None
) -> str:
    """Run a command with its streams on a terminal; what the terminal got."""
    env = {**home.world.env, "TERM": "xterm-256color", **(env or {})}
    command = [*INDEXERD, *argv]
    code, got = terminal.on_terminal(command, env=env, cwd=home.shop, columns=columns)
    assert code == 0
    return got.decode().replace("\r\n", "\n")


# -- colours and widths --------------------------------------------------------------------------


def test_a_terminal_gets_columns_that_fit(home: Home) -> None:
    """Aligned under their headers, cut with an ellipsis; short columns are whole at 80."""
    for columns in (200, 80):
        lines = on_terminal(home, "--color", "never", "list", "--all", columns=columns).split("\n")
        assert lines[0].split() == NAMES
        assert max(map(len, lines)) <= columns
        assert lines[1][lines[0].index("active") :].split()[:4] == ["1d", "ago", "pi", "5"]
    assert "Design the f" in lines[1]
    assert lines[1].startswith("c0ffee01-0000…  ")
    at_home = on_terminal(home, "list", columns=200, env={"HOME": str(home.shop.parent)})
    assert " ~/shop/api\n" in at_home


def test_a_terminal_too_narrow_for_anything_is_no_error(home: Home) -> None:
    """A width of one column, or a nonsensical COLUMNS."""
    on_terminal(home, "list", columns=1)
    assert "forecast" in on_terminal(home, "list", env={"COLUMNS": "wide"})


def test_colours_are_for_terminals_that_want_them(home: Home) -> None:
    """NO_COLOR, a dumb terminal and --color never go without; tables stay tables."""
    assert ESC in on_terminal(home, "list")
    assert ESC in on_terminal(home, "show", "tune")
    for argv, env in (
        (["show", "tune"], {"NO_COLOR": "1"}),
        (["list"], {"NO_COLOR": "1"}),
        (["list"], {"TERM": "dumb"}),
        (["--color", "never", "list"], {}),
    ):
        assert ESC not in (plain := on_terminal(home, *argv, env=env)), (argv, env)
        assert plain.split()[:6] == NAMES or argv[0] == "show"


def test_a_pipe_gets_colours_only_when_told(home: Home) -> None:
    """Plain columns with tabs, unless --color always, which NO_COLOR does not overrule."""
    assert ESC not in home.ix("list", "--all").stdout + home.ix("search", "tuned").stdout
    always = home.ix("--color", "always", "list", "--all", env={"NO_COLOR": "1"}).stdout
    assert ESC in always
    assert "\t" not in always
    assert ESC in home.ix("--color", "always", "show", "tune").stdout


# -- tables ----------------------------------------------------------------------------------------

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


# -- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [["complete"], ["list", "--all"], ["list", "--json"], ["-h"]])
def test_a_reader_that_has_gone_is_no_error(home: Home, argv: list[str]) -> None:
    """`| head -1`: silence on stderr, and exit code 0."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*INDEXERD, *argv],
            env=home.world.env,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("argv", [["complete"], ["list", "--all"]])
def test_output_that_cannot_be_written_is_an_error(home: Home, argv: list[str]) -> None:
    """A full disk: one line on stderr, and not 0."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*INDEXERD, *argv],
            env=home.world.env,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


@pytest.mark.parametrize("front", ["", "--color auto "], ids=["plain", "click"])
@pytest.mark.parametrize("end", ["gone", "/dev/full"])
@pytest.mark.parametrize(
    ("argv", "expected"),
    [("list --all --limit 1", 0), ("search zzzqqq", 0), ("resolve zebra", 3), ("show zebra", 3)],
)
def test_what_nobody_hears_changes_no_exit_code(
    home: Home, argv: str, expected: int, end: str, front: str
) -> None:
    """`2>&1 | head`, a full disk: stderr that cannot be written to is no error, nor 120."""
    if end == "gone":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(end, os.O_WRONLY)
    try:
        done = subprocess.run(
            [*INDEXERD, *f"{front}{argv}".split()],
            env=home.world.env,
            stdout=subprocess.PIPE,
            stderr=writer,
            timeout=30,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == expected
    assert (b"\t" in done.stdout) == argv.startswith("list")


@pytest.mark.parametrize("argv", ["complete", "list --all", "resolve zebra"])
def test_closed_streams_are_borne(home: Home, argv: str) -> None:
    """A command that was started without stdout and stderr ends as it should."""
    expected = 3 if "zebra" in argv else 0
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m indexerd {argv} >&- 2>&-', INDEXERD[0]],
        env=home.world.env,
        timeout=30,
        check=False,
    )
    assert done.returncode == expected


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_that_lacks_characters_is_borne(home: Home, encoding: str) -> None:
    """Lines show what is missing as an escape; JSON stays the same value."""
    env = {"PYTHONIOENCODING": encoding}
    name = "Ümlaut → 東京 🚀"
    assert home.json("rename", home.pet.id, name, env=env)["name"] == name
    try:
        for argv in (["resolve", name], ["show", name], ["--color", "always", "list", "--all"]):
            done = home.ix(*argv, env=env)
            assert (done.returncode, done.stderr) == (0, "")
            assert r"\u2192 \u6771\u4eac \U0001f680" in done.stdout
        assert home.json("resolve", name, env=env)["name"] == name
    finally:
        home.world.call("update", ref=home.pet.id, title=None)


# -- hostile content -----------------------------------------------------------------------------

SHOWN = [
    ["list", "--all"],
    ["show", "e0110001"],
    ["show", "e0110001", "--as-sent"],
    ["resolve", "e0110001"],
    ["complete", "e0"],
    ["search", "poisoned"],
    ["logs", "-n", "1000"],
]


@pytest.mark.parametrize("argv", SHOWN, ids=" ".join)
def test_hostile_content_never_reaches_the_terminal(home: Home, argv: list[str]) -> None:
    """X9: escape sequences, bidi and invisible characters of a session are shown or taken out."""
    done = home.ix(*argv)
    assert (done.returncode, forbidden(done.stdout + done.stderr)) == (0, set())
    assert done.stdout != ""


@pytest.mark.parametrize("argv", [*SHOWN[:3], SHOWN[5]], ids=" ".join)
def test_json_is_harmless_to_look_at_and_exact(home: Home, argv: list[str]) -> None:
    """X9: what could act on a terminal is written as an escape of JSON's."""
    done = home.ix(*argv, "--json")
    assert forbidden(done.stdout) == set()
    if argv[0] == "list":
        rows = json.loads(done.stdout)["sessions"]
        assert home.world.call("list") == {"sessions": rows}
        assert f"{home.other}/{HOSTILE}" in [row["cwd"] for row in rows]


def test_whole_sequences_leave_a_name(home: Home) -> None:
    """X9: a title by pi, by a model, by the user: no part of a sequence stays behind."""
    row = home.json("show", home.evil.id)["session"]
    assert (row["name"], row["agentTitle"]) == ("Red team", "Red team")
    shown = home.ix("show", home.evil.id).stdout.split("session  ")[0]
    assert REMAINS not in shown
    titled = home.json("rename", home.pet.id, f"Title {HOSTILE}")["name"]
    home.world.call("update", ref=home.pet.id, title=None)
    assert titled == "Title Red team"


def test_a_path_is_shown_as_it_is(home: Home) -> None:
    """A directory with an escape sequence in its name cannot pass for another one."""
    shown = home.ix("show", home.evil.id).stdout
    assert rf"{home.other}/\x1b]0;pwn\x07\x1b[31mRed\x9b2J \u202eteam" in shown


def test_an_errors_candidates_are_clean(home: Home, tmp_path: Path) -> None:
    """X9: names in an error, from a meta file made by another hand, without a daemon, too."""
    for number in (1, 2):
        session_id = f"{number}bad0000-0000-4000-8000-000000000000"
        meta = json.loads((home.world.metas / f"{home.cache.id}.meta.json").read_text())
        meta |= {"sessionId": session_id, "name": f"Twofold {HOSTILE}"}
        (home.world.metas / f"{session_id}.meta.json").write_text(json.dumps(meta))
    done = home.ix("resolve", "twofold red team", env=nowhere(home))
    assert forbidden(done.stdout + done.stderr) == set()
