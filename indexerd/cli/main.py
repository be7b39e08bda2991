"""The command line's frame: how commands are declared, found and run; errors, exit codes.

`@method(name, …)` makes a command of a socket method: its options bear the names of the method's
params, and the function turns the answer into lines. `@command(…)` is for everything else: what
the function returns is printed, and a number is the exit code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from indexerd import __version__
from indexerd.cli.backend import INTERRUPTED, App, complain, json_text, project, put
from indexerd.errors import AccessError, IndexerdError, UsageError

Work = Callable[..., Any]
Declare = Callable[[Work], Work]

argument = click.argument
REF = argument("ref")
SESSION = argument("session", metavar="REF")


def option(*names: str, **settings: Any) -> Declare:
    """An option; the last name is its help. `checked` turns a value into what is sent."""
    if checked := settings.pop("checked", None):
        settings["callback"] = lambda _context, _parameter, value: checked(value)
    return click.option(*names[:-1], help=names[-1], **settings)


def flag(*names: str, **settings: Any) -> Declare:
    return option(*names, **(settings or {"is_flag": True}))


def _absolute(path: str | None) -> str | None:
    return None if path is None else project(path)


def limit(most: int | None, default: int) -> Declare:
    kind = click.IntRange(1, most)
    return click.option("--limit", type=kind, default=default, show_default=True)


LEAF = option("--leaf", "View as if this entry were the current one.", metavar="ID")
NEAR = option("--cwd", "The project to look in first; default: the current one.", checked=project)
BELOW = option("--cwd", "Only sessions of this directory and below.", checked=_absolute)
OUTPUT = option("-o", "--output", "file", "The new file (0600).", metavar="FILE", checked=_absolute)
AGENT = option("--agent", "Only this agent's sessions.")
FOCUS = option("--instructions", "What the summary should focus on.", metavar="TEXT")


def current() -> App:
    """The options before the name of the command that runs."""
    app: App = click.get_current_context().obj
    return app


def as_json(found: Any) -> bool:
    """With `--json`, print an answer; whether that was asked for."""
    if current().json:
        put([json_text(found)])
    return current().json


def command(*declared: Declare) -> Callable[[Work], click.Command]:
    """Make a command, named like the function, whose lines are printed."""

    def made(work: Work) -> click.Command:
        @wraps(work)
        def run(**given: Any) -> None:
            found = work(**given)
            if isinstance(found, int):
                click.get_current_context().exit(found)
            put([found] if found and isinstance(found, str) else found or ())

        declare: Work = run
        for one in reversed(declared):
            declare = one(declare)
        return click.command(work.__name__.rstrip("_").replace("_", "-"))(declare)

    return made


def method(name: str, *declared: Declare) -> Callable[[Work], click.Command]:
    """Make a command of a method, which prints the lines made of its answer."""

    def made(lines: Work) -> click.Command:
        @wraps(lines)
        def run(**given: Any) -> Any:
            params = {}
            for key, value in given.items():
                first, *rest = key.split("_")
                if value is not False:
                    params[first + "".join(map(str.title, rest))] = value
            if {"ref", "session", "prefix"} & params.keys():
                params["cwd"] = project()
            found = current().call(name, params)
            return None if as_json(found) else lines(found)

        return command(*declared)(run)

    return made


# Modules of capabilities, and their commands.
CAPABILITIES = {
    "sessions": "list show search resolve complete family status index rename purge resume "
    "continue-recent",
    "tree": "tree branches path context label branch export",
    "references": "expand ask context-set context-get resume-context footer",
    "digest": "history digest compact branch-summary stats",
    "serve": "run web mcp",
    "setup": "config service integrate completion",
    "doctor": "doctor logs",
}
COMMANDS = {name: module for module, names in CAPABILITIES.items() for name in names.split()}


class Lazy(click.Group):
    """A group whose commands are imported when they run."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        known = name
        if name not in COMMANDS:  # `index` has another name in the configuration
            if name != App(ctx.params.get("config")).loaded.settings.command_name:
                return None
            known = "index"
        module = importlib.import_module(f"indexerd.cli.{COMMANDS[known]}")
        name = "list_" if known == "list" else known.replace("-", "_")
        found: click.Command = getattr(module, name)
        return found


@click.command(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@option("--config", "Configuration file to use.", metavar="PATH")
@flag("--json", "as_json", "Print the result as one JSON document.")
@option("--color", "Use colours.", type=click.Choice(["auto", "always", "never"]), default="auto")
@click.version_option(__version__, prog_name="indexerd")
@click.pass_context
def cli(ctx: click.Context, config: str | None, as_json: bool, color: str) -> None:
    """Session memory for people who work with AI coding agents."""
    ctx.obj = App(config, as_json, color)


def run(argv: list[str]) -> int:
    """Run a command line; every error ends here, as text or JSON, and as an exit code."""
    border = argv.index("--") if "--" in argv else len(argv)
    words = [word for word in argv[:border] if word != "--json"]
    as_json = len(words) < border  # understood after the command's name, too
    try:
        words = ["--json"] * as_json + words + argv[border:]
        code: Any = cli.main(words, prog_name="indexerd", standalone_mode=False)
    except IndexerdError as bad:
        return complain(bad, as_json=as_json)
    except click.ClickException as bad:
        if as_json and isinstance(bad, click.UsageError):
            complain(UsageError(bad.format_message()), as_json=True)
        else:
            bad.show()
        return bad.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except PermissionError as bad:
        return complain(AccessError(f"{bad.filename}: {bad.strerror}"), as_json=as_json)
    except SystemExit:  # of click: stdout's reader has gone, or a shell has its completions
        return 0
    return code if isinstance(code, int) else 0
