"""What a terminal gets: colours, widths, encodings, closed streams and hostile content."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from wcwidth import width

from indexerd.cli import printing
from tests.cli.home import HOSTILE, INDEXERD, Home, forbidden, nowhere
from tests.e2e import terminal
from tests.e2e.forked import ran
from tests.e2e.world import Session, World, until
from tests.fakes.daemon import acting, slow

ESC = "\x1b"
REMAINS = "]0;pwn"  # what remains of an escape sequence without its first character
NAMES = ["session", "age", "agent", "prompts", "name", "directory"]


def on_terminal(
    home: Home,
    *argv: str,
    columns: int = 80,
    env: Mapping[str, str] | None = None,
    typed: str = "",
    then: Sequence[tuple[str, str]] = (),
    code: int = 0,
) -> str:
    env = {**home.world.env, "TERM": "xterm-256color", **(env or {})}
    ended, got = terminal.on_terminal(
        [*INDEXERD, *argv], env=env, cwd=home.shop, columns=columns, typed=typed, then=then
    )
    assert ended == code
    return got.decode().replace("\r\n", "\n")


@contextmanager
def titled(home: Home, session: Session, title: str) -> Iterator[None]:
    home.world.call("update", ref=session.id, title=title)
    try:
        yield
    finally:
        home.world.call("update", ref=session.id, title=None)


def test_a_terminal_gets_columns_that_fit(home: Home) -> None:
    for columns in (200, 80):
        lines = on_terminal(home, "--color", "never", "list", "--all", columns=columns).split("\n")
        assert lines[0].split() == NAMES
        assert max(map(len, lines)) <= columns
        assert lines[1][lines[0].index("age") :].split()[:3] == ["1d", "pi", "5"]
    assert "Design the forecast cache" in lines[1]
    with titled(home, home.cache, "日本語の文章" * 9):
        wide = on_terminal(home, "--color", "never", "list", "--all").split("\n")
    assert max(map(width, wide)) <= 80


@pytest.mark.parametrize("columns", [40, 80])
def test_plain_words_are_not_broken(home: Home, columns: int) -> None:
    """A line ends between words, unless it is a command, or one word is too long, as of a path."""
    title = "Reconsider the retention of observatory measurements under distributed schedulers"
    key, shown = home.cache.id, dict[str, str]()
    commands = ("list --all", "search forecast", f"family {key}", f"show {key}")
    with titled(home, home.cache, title):
        until(lambda: not home.world.call("status")["textPending"], "all words")
        for argv in (*commands, "index --all --dry-run"):
            shown[argv] = on_terminal(home, "--color", "never", *argv.split(), columns=columns)
            whole = {*re.findall(r"\w+", home.ix(*argv.split()).stdout), *NAMES, "current"}
            words = {word for word in shown[argv].replace("…", "").split() if word.isalpha()}
            assert words <= whole, argv
            for line in shown[argv].split("\n"):
                longest = max(map(len, line.split()), default=0)
                assert len(line) <= columns or longest > columns - 14 or line.startswith("resume")
    assert title in " ".join(shown[f"show {key}"].split())


@pytest.mark.parametrize(
    ("text", "width", "wanted"),
    [
        ("Web search機能を追加したので", 20, "Web search機能を追…"),
        ("Добавь сортировку", 12, "Добавь…"),
        ("(docs) Add sorting", 13, "(docs) Add…"),
    ],
)
def test_chinese_is_cut_anywhere_and_other_words_are_not(
    text: str, width: int, wanted: str
) -> None:
    assert printing.cut(text, width) == wanted


def test_ids_in_a_list_tell_its_sessions_apart(world: World) -> None:
    """Ids that begin with the same time are shown longer, and name one session each.

    A session without a directory has no loose sign in its place when one is chosen.
    """
    ids = [f"01a1fff2-{n}000-7000-8000-000000000000" for n in (1, 2)]
    for session_id in ids:
        world.session(turns=2, id=session_id, cwd="")
    world.run("run", "--once")

    def shown(*argv: str, **typed: str) -> str:
        env = world.env | {"TERM": "xterm-256color"}
        command = [*INDEXERD, "--color", "never", *argv]
        code, got = terminal.on_terminal(command, env=env, cwd=world.root, columns=80, **typed)
        assert code == 0
        return got.decode()

    lines = shown("list", "--all").splitlines()
    keys = sorted(line.split()[0] for line in lines if line.startswith("01a1"))
    assert keys == [session_id[:10] for session_id in ids]
    assert [world.run("resolve", key, "--json")["sessionId"] for key in keys] == ids
    facts = re.search(r"pi · 2 prompts[^\r\n]*", shown("resume", typed="\x1b"))
    assert facts
    assert not facts[0].split("\x1b")[0].rstrip().endswith("·"), facts


def test_colours_are_for_terminals_that_want_them(home: Home) -> None:
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


def test_a_pipe_gets_colours_only_on_request(home: Home) -> None:
    assert ESC not in home.ix("list", "--all").stdout + home.ix("search", "tuned").stdout
    always = home.ix("--color", "always", "list", "--all", env={"NO_COLOR": "1"}).stdout
    assert ESC in always
    assert "\t" not in always
    assert ESC in home.ix("--color", "always", "show", "tune").stdout


FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"


def test_a_terminal_shows_no_markdown_and_whole_emoji(home: Home) -> None:
    """In a pipe texts stay Markdown; an emoji of several characters is not cut."""
    assert "\n## Goal\n" in home.ix("show", "forecast").stdout
    shown = on_terminal(home, "show", "forecast")
    assert "#" not in shown
    assert f"{ESC}[1mGoal{ESC}[0m\n- All of it." in shown
    with titled(home, home.cache, f"Trip {FAMILY} {'x' * 389} {FAMILY}"):
        for argv in (["show", home.cache.id], ["list", "--all"]):
            found = on_terminal(home, *argv, columns=60)
            assert (found.count(FAMILY), found.count("\N{MAN}"), "u200d" in found) == (1, 1, False)


def test_no_answer_shows_markdown_on_a_terminal(home: Home, tmp_path: Path) -> None:
    """Neither an answer to a question, nor what a branch was about, nor an entry of a tree."""
    env = {**home.world.env, "INDEXERD_SOCKET": str(tmp_path / "s.sock")}
    told = "## Goal\n- **Bold** and `code`\n> quoted"
    said = {"name": "x", "sessionId": "s", "confidence": "high", "answerMarkdown": told}
    entry = {"id": "e", "kind": "assistant", "type": "m", "text": told, "depth": 0, "active": True}
    tip = {"leafId": "e", "branchPointId": None, "gist": told, "active": True}
    answers = {
        "query_session": said | {"citations": [], "notes": []},
        "branches": {"idLength": 8, "tips": [tip]},
        "tree": {"idLength": 8, "leafId": "e", "nodes": [entry]},
    }
    with acting(tmp_path / "s.sock", **answers):
        for argv in (["ask", "s", "Why?"], ["branches", "s"], ["tree", "s"]):
            shown = on_terminal(home, "--color", "never", *argv, env=env)
            assert "Bold and code" in shown, shown
            assert not re.search(r"[#*`]{2}|`|> quoted", shown) or argv[0] == "ask", shown


KNOWN = {"list --all --limit 1": 0, "search zzzqqq": 0, "resolve zebra": 3, "show zebra": 3}
STREAMS = [
    *((argv, "| true", 0) for argv in ("complete", "list --all", "list --json", "-h")),
    *((argv, ">/dev/full", 1) for argv in ("complete", "list --all")),
    *((argv, end, KNOWN[argv]) for end in ("2>/dev/full", "2>&-", "2> >(true)") for argv in KNOWN),
    *((argv, ">&- 2>&-", code) for argv, code in (("complete", 0), ("resolve zebra", 3))),
]


@pytest.mark.parametrize(("argv", "end", "code"), STREAMS)
def test_a_stream_may_be_gone_closed_or_full(home: Home, argv: str, end: str, code: int) -> None:
    """A reader that left is no error, a full disk is; stderr never changes the exit code."""
    if "full" in end and not Path("/dev/full").exists():
        pytest.skip("no such device here")
    line = f'"$0" -m indexerd {argv} {end}'
    done = ran(["/bin/bash", "-o", "pipefail", "-c", line, INDEXERD[0]], env=home.world.env)
    assert done.returncode == code
    if end.startswith("2>"):
        assert ("\t" in done.stdout) == argv.startswith("list")
    if end == ">/dev/full":
        assert (done.stderr.count("\n"), "No space left" in done.stderr) == (1, True)
    else:
        assert done.stderr == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_some_characters_is_no_error(home: Home, encoding: str) -> None:
    env = {"PYTHONIOENCODING": encoding}
    name = "Ümlaut → 東京 🚀"
    with titled(home, home.pet, "Any"):
        assert home.json("rename", home.pet.id, name, env=env)["name"] == name
        for argv in (["resolve", name], ["show", name], ["list", "--all"]):
            done = home.ix(*argv, env=env)
            assert (done.returncode, done.stderr) == (0, "")
            assert r"\u2192 \u6771\u4eac \U0001f680" in done.stdout
        assert home.json("resolve", name, env=env)["name"] == name


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
    """Escape sequences, bidi and invisible characters are escaped or removed."""
    done = home.ix(*argv)
    assert (done.returncode, forbidden(done.stdout + done.stderr)) == (0, set())
    assert done.stdout != ""


@pytest.mark.parametrize("argv", [*SHOWN[:3], SHOWN[5]], ids=" ".join)
def test_json_escapes_control_characters(home: Home, argv: list[str]) -> None:
    """Characters that a terminal would act on are written as JSON escapes."""
    done = home.ix(*argv, "--json")
    assert forbidden(done.stdout) == set()
    if argv[0] == "list":
        rows = json.loads(done.stdout)["sessions"]
        assert home.world.call("list") == {"sessions": rows}
        assert f"{home.other}/{HOSTILE}" in [row["cwd"] for row in rows]


def test_whole_escape_sequences_are_removed_from_names(home: Home) -> None:
    """In titles by pi, a model or the user no part of a sequence remains."""
    row = home.json("show", home.evil.id)["session"]
    assert (row["name"], row["agentTitle"]) == ("Red team", "Red team")
    shown = home.ix("show", home.evil.id).stdout
    assert REMAINS not in shown.splitlines()[0]
    # A path is shown as it is.
    assert rf"{home.other}/\x1b]0;pwn\x07\x1b[31mRed\x9b2J \u202eteam" in shown
    with titled(home, home.pet, f"Title {HOSTILE}"):
        assert home.world.row(home.pet.id)["name"] == "Title Red team"


def test_an_errors_candidates_are_clean(home: Home, tmp_path: Path) -> None:
    """Names in an error from a foreign meta file are cleaned, also without a daemon."""
    for number in (1, 2):
        session_id = f"{number}bad0000-0000-4000-8000-000000000000"
        meta = json.loads((home.world.metas / f"{home.cache.id}.meta.json").read_text())
        meta |= {"sessionId": session_id, "name": f"Twofold {HOSTILE}"}
        (home.world.metas / f"{session_id}.meta.json").write_text(json.dumps(meta))
    done = home.ix("resolve", "twofold red team", env=nowhere(home))
    assert forbidden(done.stdout + done.stderr) == set()


def test_a_session_is_chosen_while_typing(home: Home) -> None:
    """Tab shows the first hit of what was typed; Escape leaves; a pipe gets the help."""
    shown = on_terminal(home, typed="tuned\t", columns=120)
    assert "named by" in shown[shown.rindex("\x1b[?1049l") :]  # after the screen is given back
    assert home.json("search", "tuned")["hits"][0]["sessionId"] in shown
    for columns in (40, 120):
        left = on_terminal(home, "resume", typed="\x1b", columns=columns)
        assert "type to search all projects" in left
        assert (" pi       " in left) == (columns > 40)  # a narrow row has only age and name
    assert "Usage: indexerd" in home.ix().stderr
    assert home.ix("resume").returncode == 2


def test_no_session_is_chosen_that_lacks_a_word(home: Home) -> None:
    """Enter does nothing until a session is selected with the arrow keys."""
    lacking = "these have"  # of the note: the screen is sent as changes to what it had
    shown = on_terminal(home, typed="tuned zzzqqq", then=[(lacking, "\r\x1b")])
    assert "resume" not in shown[shown.rindex("\x1b[?1049l") :]
    shown = on_terminal(home, typed="tuned zzzqqq", then=[(lacking, "\x1b[B\t")])
    assert "named by" in shown[shown.rindex("\x1b[?1049l") :]


def test_a_list_is_read_in_pages(home: Home) -> None:
    """`--page` continues where the page before ended; a long list goes through the pager."""
    every = [row["sessionId"] for row in home.json("list", "--all")["sessions"]]
    assert len(every) > 4
    pages = [home.json("list", "--all", "-n", "2", "--page", page) for page in ("1", "2", "99")]
    assert [[row["sessionId"] for row in page["sessions"]] for page in pages] == [
        every[:2],
        every[2:4],
        [],
    ]
    assert "more: --page 3" in home.ix("list", "--all", "-n", "2", "--page", "2").stderr
    env = {"PAGER": "sed s/^/paged:/", "LINES": "3"}
    assert on_terminal(home, "list", "--all", env=env).count("\npaged:") > len(every)
    assert "paged:" not in on_terminal(home, "list", "--all", env=env | {"LINES": "99"})
    assert "paged:" not in home.ix("list", "--all", env=env).stdout


def test_a_terminal_shows_how_long_an_answer_takes(home: Home, tmp_path: Path) -> None:
    """From the second second on; a pipe sees nothing of it."""
    env = {**home.world.env, "INDEXERD_SOCKET": str(tmp_path / "s.sock")}
    indexed = slow(0.6, {"status": "indexed"})
    with acting(tmp_path / "s.sock", list=slow(1.8, {"sessions": []}), index=indexed):
        assert "\r\x1b[K1 s …" in on_terminal(home, "list", env=env).replace("\n", "")
        assert home.ix("list", env=env).stderr.startswith("no sessions")
        shown = on_terminal(home, "index", home.cache.id, "--wait", env=env)
        assert "waiting for the end of its turn" in shown


def test_an_interruption_says_what_goes_on(home: Home, tmp_path: Path, world: World) -> None:
    env = {**home.world.env, "INDEXERD_SOCKET": str(tmp_path / "s.sock")}
    with acting(tmp_path / "s.sock", digest=slow(9, {})):
        shown = on_terminal(
            home, "digest", home.cache.id, env=env, then=[("1 s", "\x03")], code=130
        )
    assert "interrupted; the daemon goes on with it" in shown
    world.scripted({"delay": 30})
    world.session(turns=5)
    then = [("Naming: 0 of 1 (1 s)", "\x03")]
    shown = on_terminal(home, "run", "--once", env=world.env, then=then, code=130)
    assert "interrupted (Naming: 0 of 1); run it again to go on" in shown
