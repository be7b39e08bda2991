"""Plain command lines go without click, and mean what click makes of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd import client
from indexerd.cli import quick, streams
from indexerd.cli.app import App
from indexerd.cli.clicked import clicked
from indexerd.cli.declare import Param, Said, said_of
from indexerd.cli.table import COMMANDS, FORCED
from tests.cli.home import INDEXERD, Home, nowhere
from tests.e2e import terminal

FULL = ["--color", "auto"]  # the same command, in a form that is left to click
GROUPS = {"config", "service", "completion"}  # click's own


def works() -> dict[str, Any]:
    """Every command of the table, and the one that has another's name."""
    table = {**COMMANDS, "forced": FORCED}
    return {
        name: getattr(__import__(f"indexerd.cli.{module}", fromlist=[attribute]), attribute)
        for name, (module, attribute, _) in table.items()
    }


WORKS = {name: work for name, work in works().items() if name not in GROUPS}
SAID = {name: said for name, work in WORKS.items() if (said := said_of(work))}


def of_click(name: str, words: list[str]) -> dict[str, Any] | None:
    """What click makes of a command's words; None for a complaint, or for help."""
    try:
        with clicked(WORKS[name]).make_context(name, list(words), obj=App()) as context:
            return dict(context.params)
    except (click.ClickException, click.exceptions.Exit):
        return None


def test_every_command_is_said_once() -> None:
    """What quick reads is what click is made of; only groups are click's own."""
    assert SAID.keys() == WORKS.keys()
    for name, said in SAID.items():
        made = clicked(WORKS[name])
        assert made.name == name
        assert [one.name for one in made.params] == [one.name for one in said.params]
        assert [one.param_type_name for one in made.params] == [
            "option" if one.is_option else "argument" for one in said.params
        ]


@pytest.mark.parametrize("name", SAID)
def test_defaults_are_clicks(name: str) -> None:
    """With the fewest words that are enough."""
    needed = [one for one in SAID[name].params if not one.is_option and one.is_needed]
    words = [one.kind[0] if isinstance(one.kind, tuple) else "word" for one in needed]
    read = quick._given(SAID[name].params, words)

    assert read == of_click(name, words) is not None
    assert not words or quick._given(SAID[name].params, words[1:]) is None


def word_of(param: Param) -> st.SearchStrategy[list[str]]:
    """An option as somebody may write it, soundly or not."""
    spelled = st.sampled_from([*param.words, param.words[-1][:-1], f"{param.words[-1]}=7"])
    sound = st.sampled_from(param.kind) if isinstance(param.kind, tuple) else st.just("7")
    odd = st.sampled_from(["", "-", "-1", "--", "--all", "0", "501", "٣", "+7", " 7", "1_0", "x"])
    values = st.lists(sound | odd, max_size=2)
    return st.builds(lambda word, more: [word, *more], spelled, values)


@given(st.data())
def test_what_is_plain_means_what_click_makes_of_it(data: st.DataObject) -> None:
    """Whatever is taken is taken as click takes it; the rest is left to click."""
    name = data.draw(st.sampled_from(sorted(SAID)))
    said: Said = SAID[name]
    options = [word_of(one) for one in said.params if one.is_option]
    plain = st.sampled_from(["word", "", "-", "two words", "pi", "--", "-x", "--help", "\udcff"])
    one_of = st.one_of(*options, plain.map(lambda word: [word]))
    words = [word for some in data.draw(st.lists(one_of, max_size=5)) for word in some]

    read = None if "--" in words else quick._given(said.params, words)

    assert read is None or read == of_click(name, words)


@given(st.recursive(st.none() | st.floats() | st.integers() | st.text(), st.lists) | st.text())
def test_json_is_what_json_makes_of_it(value: Any) -> None:
    """The same value, with nothing in it that could act on a terminal (X9)."""
    text = streams.json_text([value, {"\x7f": "\u00e9"}])

    assert repr(json.loads(text)) == repr([value, {"\x7f": "\u00e9"}])
    assert text.isprintable()


@pytest.mark.parametrize("narrow", [True, False])
def test_json_is_spelled_as_json_spells_it(narrow: bool) -> None:
    """To the byte, for what a daemon answers."""
    value = {"a": [1, -2.5, 1e300, True, None, "é\u2028\U0001f680\udc80\n"], "": {}, "b": []}

    assert client.spelled(value, narrow=narrow) == json.dumps(value, ensure_ascii=narrow)


# -- whole processes -----------------------------------------------------------------------------

LINES = [
    "status",
    "status --json",
    "list",
    "--json list --all --limit 1",
    "list --agent claude --cwd /",
    "list --since 3d --archived --subagents --all",
    "list --since never --json",
    "list --cursor nonsense",
    "list --limit 501",
    "list --limit --json",
    "list too many",
    "search tuned",
    "search tuned --agent pi --since 20d --limit 3 --json",
    "search re:(",
    "show c0ffee01",
    "show e0110001 --json",
    "show deploy",
    "show zebra --json",
    "show dead0001 --as-sent",
    "show --help",
    "tree c0ffee01 --filter user-only",
    "tree c0ffee01 --json",
    "tree c0ffee01 --filter none",
    "tree c0ffee01 --leaf nowhere",
    "branches c0ffee01",
    "path c0ffee01",
    "context c0ffee01",
    "stats c0ffee01",
    "history c0ffee01 --full",
    "resume dead0001",
    "continue-recent --json",
    "resolve c0ffee01 --all",
    "ask c0ffee01 Which table?",
    "index",
    "purge c0ffee01",
    "config path",
    "nonsense",
]
PASSING = re.compile(r"[0-9a-f]{16}|\d{4}-\d\d-\d\dT[\d:.]+Z")  # a fence, a moment


def both(home: Home, line: str, **options: Any) -> tuple[Any, Any]:
    """Code, output and complaints of a line, as it is and by the full command."""
    words = line.split()
    done = home.ix(*words, **options), home.ix(*FULL, *words, **options)
    quickly, fully = ((one.returncode, told(one.stdout), told(one.stderr)) for one in done)
    return quickly, fully


def told(text: str) -> str:
    """An output without what is another at every call."""
    return PASSING.sub("", text)


@pytest.mark.parametrize("line", LINES)
def test_a_plain_line_says_what_the_full_command_says(home: Home, line: str) -> None:
    """Output, complaints and exit code, errors and help included."""
    quickly, fully = both(home, line, cwd=home.shop)

    assert quickly == fully


@pytest.mark.parametrize("line", ["status --json", "list", "tree c0ffee01", "ask c0ffee01 a?"])
def test_so_it_is_without_a_daemon(home: Home, line: str) -> None:
    """From what is stored, or with the error of a daemon that is not there."""
    quickly, fully = both(home, line, env=nowhere(home))

    assert quickly == fully
    assert "no daemon" in quickly[1] + quickly[2]


def test_so_it_is_with_odd_surroundings(home: Home) -> None:
    """Encodings, closed streams, a home that nobody knows, a denied socket, a removed directory."""
    for env in (
        {"PYTHONIOENCODING": "ascii"},
        {"INDEXERD_SOCKET": "relative/socket"},
        {"INDEXERD_SOCKET": "x" * 200},
        {"INDEXERD_SOCKET": "/proc/1/root/nobody"},
        {"HOME": "", "XDG_STATE_HOME": "", "INDEXERD_SOCKET": ""},
    ):
        quickly, fully = both(home, "show e0110001", env=env)
        assert quickly == fully, env


@pytest.mark.parametrize("line", ["list --all", "show c0ffee01", "tree c0ffee01"])
def test_so_it_is_on_a_terminal(home: Home, line: str) -> None:
    """Colours, columns and cuts."""
    quickly, fully = (on_terminal(home, words) for words in (line.split(), [*FULL, *line.split()]))

    assert quickly == fully
    assert quickly != b""


def on_terminal(home: Home, words: list[str]) -> bytes:
    """What a terminal of 80 columns gets."""
    env = {**home.world.env, "TERM": "xterm-256color", "COLUMNS": "80"}
    return terminal.on_terminal([*INDEXERD, *words], env=env, cwd=home.shop)[1]


@pytest.mark.parametrize("line", ["status", "list --all", "search tuned --json", "tree c0ffee01"])
def test_what_is_plain_loads_no_library(home: Home, line: str) -> None:
    """Neither click nor what it brings along."""
    script = "import sys; from indexerd.cli import quick; quick.attempt(sys.argv[1:]);"
    script += "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, *line.split()],
        env=home.world.env, capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    loaded = set(done.stdout.rpartition("\n{")[2].splitlines()[-1].split())
    assert loaded & {"click", "pydantic", "rich", "dataclasses", "inspect", "typing"} == set()
    assert "indexerd.cli.quick" in loaded


def test_a_shell_that_completes_is_clicks_business(home: Home) -> None:
    """What could come next is asked in the environment, whatever the words are."""
    env = {"_INDEXERD_COMPLETE": "bash_complete", "COMP_WORDS": "indexerd li", "COMP_CWORD": "1"}

    assert home.ix("status", env=env).stdout == "plain,list\n"


def test_the_collector_comes_back_after_loading() -> None:
    """A server's garbage is collected as ever, even where something could not be loaded."""
    program = (
        "import gc\nfrom indexerd.cli.loading import Loading\n"
        "try:\n    with Loading():\n"
        "        assert not gc.isenabled()\n        import nothing_such\n"
        "except ImportError:\n    assert gc.isenabled() and gc.get_freeze_count()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
