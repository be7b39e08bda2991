"""The command line's frame: options that every command has, lazy commands, errors, exit codes.

Data goes to stdout and everything else to stderr. With `--json` stdout holds exactly the socket
method's result, or `{"error": …}` and the error's exit code.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import click

from indexerd import __version__
from indexerd.cli.app import App
from indexerd.cli.clicked import clicked
from indexerd.cli.fast import complain
from indexerd.cli.streams import INTERRUPTED
from indexerd.cli.table import COMMANDS, FORCED
from indexerd.errors import AccessError, IndexerdError, UsageError

if TYPE_CHECKING:
    from indexerd.cli.app import Color

EXIT_CODES = """\b
Exit codes:
  0 ok              2 usage              3 not found or ambiguous
  1 other          69 daemon not running 75 try later
 77 permission     78 bad configuration 130 interrupted"""


class Lazy(click.Group):
    """A group whose commands are imported when they run."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the one command asked for."""
        if name not in COMMANDS and not _is_alias(ctx, name):
            return None
        module, attribute, _ = COMMANDS.get(name, FORCED)
        return clicked(getattr(importlib.import_module(f"indexerd.cli.{module}"), attribute))

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


def _is_alias(ctx: click.Context, name: str) -> bool:
    """Whether the configuration calls a forced run by this name."""
    import os

    from indexerd.paths import places
    from indexerd.settings import read_config

    where = places(config=ctx.params.get("config"))
    return name == read_config(where, os.environ).settings.command_name


@click.command(
    cls=Lazy, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option("--config", metavar="PATH", help="Configuration file to use.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours, and tables as on a terminal.",
)
@click.version_option(__version__, prog_name="indexerd")
@click.pass_context
def cli(ctx: click.Context, config: str | None, as_json: bool, color: Color) -> None:
    """Session memory for people who work with AI coding agents."""
    ctx.obj = App(config, as_json, color)


def run(argv: list[str]) -> int:
    """Run a command line; every error ends here, as text or JSON, and as an exit code."""
    stdout = sys.stdout
    words = _json_first(argv)
    as_json = words[:1] == ["--json"]
    try:
        code: Any = cli.main(words, prog_name="indexerd", standalone_mode=False)
    except IndexerdError as bad:
        return complain(bad, as_json=as_json)
    except click.ClickException as bad:
        return _misused(bad, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except PermissionError as bad:
        return complain(AccessError(f"{bad.filename}: {bad.strerror}"), as_json=as_json)
    except SystemExit:
        if sys.stdout is stdout:
            raise
        return 0  # click has put its own in the place of a stream whose reader has gone
    return code if isinstance(code, int) else 0


def _misused(bad: click.ClickException, *, as_json: bool) -> int:
    """The command line itself was wrong, or (no arguments at all) wants explaining."""
    if as_json and isinstance(bad, click.UsageError):
        return complain(UsageError(bad.format_message()), as_json=True)
    bad.show()
    return bad.exit_code


def _json_first(argv: list[str]) -> list[str]:
    """`--json` is understood after the command's name, too."""
    if "--" in argv:
        border = argv.index("--")
        return _json_first(argv[:border]) + argv[border:]
    rest = [word for word in argv if word != "--json"]
    return ["--json", *rest] if len(rest) < len(argv) else argv
