"""The command line's frame: options that every command has, lazy commands, errors, exit codes."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Literal

import click

from indexerd import __version__
from indexerd.cli.backend import App
from indexerd.cli.streams import INTERRUPTED, complain
from indexerd.errors import AccessError, IndexerdError, UsageError

# What commands are for: the module that has them, and their names.
CAPABILITIES = {
    "Find and change sessions": (
        "sessions",
        "list show search resolve complete family status index rename purge",
    ),
    "Look at one": ("tree", "tree branches path context label branch export"),
    "Use others": (
        "references",
        "expand ask context-set context-get resume-context footer",
    ),
    "Long sessions": ("digest", "history digest compact branch-summary stats"),
    "Go on": ("resume", "resume continue-recent"),
    "Run": ("serve", "run web mcp"),
    "Set up": ("setup", "config service integrate completion"),
    "Find out what is wrong": ("doctor", "doctor logs"),
}
COMMANDS = {name: module for module, names in CAPABILITIES.values() for name in names.split()}

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
        """Import the one command asked for; `index` has another name in the configuration."""
        known = name
        if name not in COMMANDS:
            if name != App(ctx.params.get("config")).settings.command_name:
                return None
            known = "index"
        module = importlib.import_module(f"indexerd.cli.{COMMANDS[known]}")
        attribute = "list_" if known == "list" else known.replace("-", "_")
        found: click.Command = getattr(module, attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        for title, (_, names) in CAPABILITIES.items():
            with formatter.section(title):
                found = ((name, self.get_command(ctx, name)) for name in names.split())
                rows = [(name, one.get_short_help_str(200)) for name, one in found if one]
                formatter.write_dl(rows, col_max=15)


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
def cli(
    ctx: click.Context, config: str | None, as_json: bool, color: Literal["auto", "always", "never"]
) -> None:
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
        if as_json and isinstance(bad, click.UsageError):
            complain(UsageError(bad.format_message()), as_json=True)
        else:
            bad.show()
        return bad.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except PermissionError as bad:
        return complain(AccessError(f"{bad.filename}: {bad.strerror}"), as_json=as_json)
    except SystemExit:
        if sys.stdout is stdout:
            raise
        return 0  # click has put its own in the place of a stream whose reader has gone
    return code if isinstance(code, int) else 0


def _json_first(argv: list[str]) -> list[str]:
    """`--json` is understood after the command's name, too."""
    border = argv.index("--") if "--" in argv else len(argv)
    rest = [word for word in argv[:border] if word != "--json"]
    return ["--json"] * (len(rest) < border) + rest + argv[border:]
