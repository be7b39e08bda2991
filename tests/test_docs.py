"""The documents match the program: help, events, problems, paths, commands, links.

`UPDATE_DOCS=1 python -m pytest tests/test_docs.py` rewrites the generated blocks of docs/CLI.md.
"""

import logging
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from indexerd.cli.main import COMMANDS, cli
from indexerd.errors import IndexerdError
from indexerd.logs import LEVEL_OF
from tests.e2e.world import World, logged, until

ROOT = Path(__file__).parents[1]
DOCS = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
TEXTS = DOCS | {name: (ROOT / name).read_text() for name in ("README.md", "CHANGELOG.md")}
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted((ROOT / "indexerd").rglob("*.py"))
}
WIDTH = 80
HELP = re.compile(r"(?ms)^```text\nUsage: indexerd ([a-z -]*)\[OPTIONS\].*?^```\n")


def commands(
    command: click.Command = cli, path: tuple[str, ...] = (), parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    name = path[-1] if path else "indexerd"
    context = click.Context(command, parent, name, terminal_width=WIDTH, **command.context_settings)
    command._help_option = None  # created for another parent if another test ran it
    yield " ".join(path), command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(found, (*path, below), context)


def block(command: str, text: str) -> str:
    """A command's help. All have `-h`; the program's own lists commands, as the README does."""
    if command:
        text = re.sub(r"(?m)^  -h, --help .*\n?", "", text + "\n").replace("Options:\n\n", "")
        text = text.removesuffix("Options:\n")
    else:
        text = text.partition("\nSessions:")[0]
    lines = "\n".join(line.rstrip() for line in text.rstrip().splitlines())
    return f"```text\n{lines}\n```\n"


def test_every_commands_help_is_in_the_document() -> None:
    """Those with options or sub-commands once, in the program's order; others in a table."""
    blocks = {words: block(words, text) for words, text in commands()}
    with_more = {words for words, text in blocks.items() if ":\n" in text}
    expected = {
        words: blocks[words]
        for words in blocks
        if words in with_more and (" " not in words or "Options:" in blocks[words])
    }
    path = ROOT / "docs/CLI.md"
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(HELP.sub(lambda found: expected[found[1].strip()], path.read_text()))
    found = {one[1].strip(): one[0] for one in HELP.finditer(path.read_text())}
    assert list(expected) == list(found)
    assert expected == found
    for words in blocks.keys() - with_more:
        assert " " in words or row(blocks[words]) in path.read_text()


def row(text: str) -> str:
    """The beginning of a table's row: a command's usage, and what it does."""
    usage, _, about = text[text.index("indexerd ") + 9 : -4].partition("\n\n")
    return f"\n| `{usage.replace(' [OPTIONS]', '')}` | {' '.join(about.split())}"


def test_the_documents_exit_codes_are_the_programs() -> None:
    """Every code that an error of the tree has, and 0 and 130, are explained."""
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCS["CLI.md"], re.MULTILINE)}
    waiting, codes = [IndexerdError], {0, 130}
    while waiting:
        one = waiting.pop()
        codes.add(one.exit_code)
        waiting += one.__subclasses__()
    assert codes == told


NAMED = r"indexerd (?:--?[a-z]+ )*([a-z][a-z-]+)"
IN_TEXT = re.compile(rf"(?:^ {{4}}|[`$] ?){NAMED}", re.MULTILINE)


@pytest.mark.parametrize("name", TEXTS)
def test_documents_name_only_commands_that_exist(name: str) -> None:
    """`indexerd WORD` after a prompt or in a block."""
    assert set(IN_TEXT.findall(TEXTS[name])) <= COMMANDS.keys()


def test_the_readmes_table_has_every_command() -> None:
    """Each command is listed, with options that it has."""
    table = re.findall(r"(?m)^\| (`.*?) \| ", TEXTS["README.md"])
    shown = {word for row in table for word in re.findall(r"`(?:indexerd )?([a-z-]+)[^`]*`", row)}
    assert COMMANDS.keys() <= shown
    helps = dict(commands())
    for line in re.findall(r"indexerd ([a-z]+[^`\n]*)", TEXTS["README.md"]):
        words = shlex.split(line.partition("#")[0].replace("\\|", " "), posix=False)
        options = {word.strip("[]") for word in words if word.strip("[]").startswith("--")}
        assert all(option in helps.get(words[0], "") for option in options), line


ROW = re.compile(
    r"^\| `([a-z]+\.[a-z_]+)` \|(.*?)\| (?:(debug|warning|error): )?(.+?) \|$", re.MULTILINE
)
EVENTS = {
    event: (level or "info", fields, when)
    for event, fields, level, when in ROW.findall(DOCS["OPERATIONS.md"])
}


def test_every_event_is_documented_and_no_other() -> None:
    """The table in OPERATIONS.md has every logged event with its level."""
    code = "".join(SOURCES.values())
    said = re.findall(r"""\b(?:_?log|notify|defect)\(\s*"([a-z]+\.[a-z_]+)\"""", code)
    assert LEVEL_OF.keys() | set(said) <= EVENTS.keys()
    for event, (shown, _, _) in EVENTS.items():
        uses, defects = (code.count(f'{word}"{event}"') for word in ("", "defect("))
        level = logging.ERROR if uses == defects else LEVEL_OF.get(event, logging.INFO)
        assert logging.getLevelName(level).lower() == shown, event
        assert uses, event


def test_a_daemons_log_matches_the_document(world: World) -> None:
    """S0.45: also the time of each line."""
    world.env["INDEXERD_LOG__LEVEL"] = "debug"
    malformed = {"match": "once more", "text": "{}", "times": 1}
    world.scripted(malformed, {"match": "hopeless", "error": "throttled"})
    world.config.parent.mkdir(parents=True)
    with world.daemon() as process:
        indexed = world.session(turns=4)
        indexed.turn("once more, please")
        world.wait_meta(indexed.id)
        (world.metas / f"{indexed.id}.meta.json").write_text("{}")
        with indexed.path.open("ab") as file:
            file.write(b"{not json}\n")
        indexed.turn()
        until(lambda: "session.bad_line" in said(world), "the bad line")
        hopeless = world.session(turns=5)
        hopeless.turn("hopeless")
        until(lambda: "index.failed" in said(world), "the failure")
        hopeless.path.unlink()
        until(lambda: "session.removed" in said(world), "the end of a session")
        world.configure("nonsense = 1\n")
        process.send_signal(1)
        until(lambda: "config.invalid" in said(world), "the complaint")
    seen = said(world)
    assert len(seen) >= 15
    for event, lines in seen.items():
        level, fields, _ = EVENTS[event]
        for line in lines:
            assert level == line["level"]
            assert list(line)[:3] == ["ts", "level", "event"]
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line["ts"]))
            assert set(line) - {"ts", "level", "event"} <= set(
                re.findall(r"`([a-z_]+)`", fields)
            ), event


def said(world: World) -> dict[str, list[dict[str, object]]]:
    return {event: lines for event in EVENTS if (lines := logged(world, event))}


def test_every_problem_of_status_has_a_way_out() -> None:
    """OPERATIONS.md has each code that `status` may report, and no other."""
    parts = ("health", "fleet", "archive", "web_supervisor")
    own = "".join(SOURCES[f"indexerd/daemon/{part}.py"] for part in parts)
    codes = set(re.findall(r'yield "([a-z_]+)", ', own))
    codes |= set(re.findall(r'causes\["([a-z_]+)"\] = ', SOURCES["indexerd/models/budget.py"]))
    codes |= set(re.findall(r'"(watch_[a-z_]+)"', SOURCES["indexerd/sources/watch.py"]))
    text = DOCS["OPERATIONS.md"].partition("## What `status` reports")[2].partition("\n## ")[0]
    assert codes == set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))


def test_every_path_of_the_architecture_exists() -> None:
    """Paths `indexerd/…` in ARCHITECTURE.md."""
    text = DOCS["ARCHITECTURE.md"]
    paths = re.findall(r"`((?:indexerd|tests|docs|config|systemd)/[^`\s]*)`", text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)?(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("name", TEXTS)
def test_links_resolve(name: str) -> None:
    """Linked files and headings exist."""
    base = ROOT / "docs" if name in DOCS else ROOT
    for target, heading in LINK.findall(TEXTS[name]):
        if target.startswith(("https://", "http://")):
            continue
        path = base / target if target else base / name
        assert path.exists(), target
        assert not heading or heading in anchors(path.read_text()), heading


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}
