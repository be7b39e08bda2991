"""Declare, find and run commands; errors and exit codes.

`@method(name, …)` makes a command of a socket method: its options have the names of the method's
params, and the function turns the answer into lines. `@command(…)` makes all other commands. A
command's return value is printed, but a number is its exit code.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

from indexerd import __version__
from indexerd.cli import completion
from indexerd.cli.backend import INTERRUPTED, App, complain, json_text, project, put
from indexerd.errors import AccessError, ConfigError, IndexerdError, UsageError

Work = Callable[..., Any]
Declare = Callable[[Work], Work]

# Each heading of `--help`: the module of its commands, and their names.
CAPABILITIES = {
    "Sessions": "sessions list show search resolve complete family status index rename pin tag hide"
    " purge resume continue-recent move",
    "A session's tree": "tree tree branches path context label branch export",
    "References, context": "sessions expand ask context-set context-get resume-context footer",
    "Long sessions": "tree history digest compact branch-summary",
    "Another agent": "handover continue",
    "Usage": "usage stats",
    "Servers": "serve run web mcp",
    "Your other machines": "fleet fleet",
    "Deleted sessions": "archive archive restore",
    "Set-up": "setup config service integrate completion",
    "Troubleshooting": "doctor doctor logs",
}
COMMANDS = {name: words.split()[0] for words in CAPABILITIES.values() for name in words.split()[1:]}
_RESERVED = ("list", "continue")  # their functions' names end with _
argument = click.argument


def option(*names: str, **settings: Any) -> Declare:
    """Declare an option; the last name is its help."""
    return click.option(*names[:-1], help=names[-1], **settings)


def flag(*names: str) -> Declare:
    return option(*names, is_flag=True)


def _sessions(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(value, help=about) for value, about in completion.sessions(begun)]


REF = argument("ref", shell_complete=_sessions)
ANY_REF = argument("ref", required=False, shell_complete=_sessions)
SESSION = argument("session", metavar="REF", shell_complete=_sessions)
LEAF = option("--leaf", "Use this entry as the leaf.", metavar="ID")
HERE = option(
    "--cwd", "The project's directory. Default: this one.", metavar="DIR", type=project, default="."
)
BELOW = option("--cwd", "Only sessions in this directory and below.", metavar="DIR", type=project)
OUTPUT = option("-o", "--output", "file", "The new file (0600).", metavar="FILE", type=project)
AGENTS = click.Choice(("pi", "claude", "codex", "opencode"))
AGENT = option("--agent", "Only this agent's sessions.", type=AGENTS)
FOCUS = option("--instructions", "What the summary should focus on.", metavar="TEXT")


def current() -> App:
    """Return the global options of the running command."""
    app: App = click.get_current_context().obj
    return app


def as_json(answer: Any) -> bool:
    """With `--json`, print an answer as JSON; return whether the option was given."""
    if current().json:
        put([json_text(answer)])
    return current().json


def command(*declared: Declare) -> Callable[[Work], click.Command]:
    """Make a command that has the function's name."""

    def make(work: Work) -> click.Command:
        name = work.__name__.rstrip("_").replace("_", "-")
        for declare in reversed(declared):
            work = declare(work)
        return click.command(name)(work)

    return make


def method(name: str, *declared: Declare) -> Callable[[Work], click.Command]:
    """Make a command that calls a method; the function makes lines of the answer."""

    def make(lines: Work) -> click.Command:
        @wraps(lines)
        def run(**options: Any) -> Any:
            params = {"cwd": project()}
            for key, value in options.items():
                if value is not False:
                    params[key[0] + key.title().replace("_", "")[1:]] = value  # in camelCase
            answer = current().call(name, params)
            return None if as_json(answer) else lines(answer)

        return command(*declared)(run)

    return make


class _Help(click.HelpFormatter):
    """Fits narrow terminals, too: click's own has at least 50 columns."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if not settings.get("width"):
            self.width = min(self.width, shutil.get_terminal_size().columns - 2)

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, min(col_max, self.width * 2 // 5), col_spacing)


click.Context.formatter_class = _Help  # of every command


class Lazy(click.Group):
    """A group whose commands are imported when they run."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:  # the configuration may give `index` a second name
            if name != App(ctx.params.get("config")).loaded.settings.command_name:
                return None
            name = "index"
        module = importlib.import_module(f"indexerd.cli.{COMMANDS[name]}")
        made: click.Command = getattr(
            module, f"{name.replace('-', '_')}{'_' * (name in _RESERVED)}"
        )
        return made

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, words in CAPABILITIES.items():
            commands = filter(None, (self.get_command(ctx, name) for name in words.split()[1:]))
            with formatter.section(heading):
                formatter.write_dl([(f"{c.name:15}", c.get_short_help_str(80)) for c in commands])


@click.command(
    cls=Lazy,
    commands=dict.fromkeys(COMMANDS.keys() - {"purge"}),  # suggested for a typo
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option("--config", "Configuration file to use.", metavar="PATH")
@flag("--json", "as_json", "Print the result as one JSON document.")
@option("--color", "Use colours.", type=click.Choice(["auto", "always", "never"]), default="auto")
@click.version_option(__version__, prog_name="indexerd")
@click.pass_context
def cli(ctx: click.Context, config: str | None, as_json: bool, color: str) -> Any:
    """Session memory for people who work with AI coding agents.

    Without a command, choose a session on the terminal.
    """
    ctx.obj = App(config, as_json, color)
    checks = ctx.invoked_subcommand not in ("run", "config", "doctor")
    if config and checks and ctx.obj.loaded.problems:
        raise ConfigError(ctx.obj.loaded.problems)
    if ctx.invoked_subcommand is None:
        from indexerd.cli import picker, sessions

        if as_json or not picker.possible():
            raise click.exceptions.NoArgsIsHelpError(ctx)
        return sessions.picked()
    return None


@cli.result_callback()
def _end(result: int | str | Iterable[str] | None, **_: Any) -> int:
    if isinstance(result, int):
        return result
    put([result] if result and isinstance(result, str) else result or ())
    return 0


def run(argv: list[str]) -> int:
    """Run a command line; print every error as text or JSON, and return the exit code."""
    border = argv.index("--") if "--" in argv else len(argv)
    words = [word for word in argv[:border] if word != "--json"]
    as_json = len(words) < border  # `--json` is also accepted after the command's name
    try:
        words = ["--json"] * as_json + words + argv[border:]
        code: int = cli.main(words, prog_name="indexerd", standalone_mode=False)
    except IndexerdError as bad:
        return complain(bad, as_json=as_json)
    except click.ClickException as bad:
        if as_json and isinstance(bad, click.UsageError):
            complain(UsageError(bad.format_message()), as_json=True)
        else:
            bad.show()
        return bad.exit_code
    except click.Abort:  # Control-C, too
        return INTERRUPTED
    except PermissionError as bad:
        return complain(AccessError(f"{bad.filename}: {bad.strerror}"), as_json=as_json)
    except SystemExit:  # from click: stdout's reader has gone, or a shell got its completions
        return 0
    return code
