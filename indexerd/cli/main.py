"""The command line's frame: options that every command has, lazy commands, errors, exit codes.

Data goes to stdout and everything else to stderr. With `--json` stdout holds exactly the socket
method's result, or `{"error": …}` and the error's exit code.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Literal

import click

from indexerd import __version__
from indexerd.cli.hook import complain
from indexerd.cli.streams import INTERRUPTED
from indexerd.errors import AccessError, IndexerdError, UsageError

Color = Literal["auto", "always", "never"]

# name -> (module of this package, attribute, one line of help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Run the daemon in the foreground; --once for a single pass."),
    "status": ("sessions", "status", "Show the daemon, its watches, queue, budget and problems."),
    "list": ("sessions", "list_", "List sessions, newest first."),
    "show": ("sessions", "show", "Show one session: metadata and facts."),
    "resolve": ("sessions", "resolve", "Say which session a reference means."),
    "complete": ("sessions", "complete", "List candidates for `@@`."),
    "expand": ("ask", "expand", "Expand the `@@` references of a prompt."),
    "search": ("sessions", "search", "Search names, tags, summaries and messages."),
    "resume": ("resume", "resume", "Print the command that opens a session again."),
    "continue-recent": ("resume", "continue_recent", "Print the newest session of a project."),
    "tree": ("tree", "tree", "Show a session's tree: every branch, with labels."),
    "branches": ("tree", "branches", "List the branches of a session, by their last entries."),
    "family": (
        "sessions",
        "family",
        "Show the sessions that one came from, and all that came from them.",
    ),
    "path": ("tree", "path", "List the entries from the root to the leaf."),
    "context": ("tree", "context", "Show what the agent would hand its model."),
    "ask": ("ask", "ask", "Ask one past session a question."),
    "context-set": ("contexts", "context_set", "Note what a session works with."),
    "context-get": ("contexts", "context_get", "Show what was noted of a session."),
    "resume-context": (
        "contexts",
        "resume_context",
        "Print the block for the first message after a resume.",
    ),
    "footer": ("contexts", "footer", "Print a session's context in one line."),
    "history": (
        "digest",
        "history",
        "Show what a session came to: its digests, and the messages after them.",
    ),
    "digest": (
        "digest",
        "digest",
        "Sum up what no digest of a session covers yet, but for its newest messages.",
    ),
    "compact": ("digest", "compact", "Sum up a session so that it can go on elsewhere."),
    "branch-summary": (
        "digest",
        "branch_summary",
        "Sum up a branch that was left, by its last entry",
    ),
    "export": ("export", "export", "Make one self-contained file of a session."),
    "stats": (
        "sessions",
        "stats",
        "Show how full a session's context is, and what the session came to so far.",
    ),
    "index": ("actions", "index", "Index a session now, or all that are due."),
    "rename": ("actions", "rename", "Give a session a title of your own."),
    "label": ("tree", "label", "Label an entry of a session."),
    "purge": ("actions", "purge", "Forget a session: remove what indexerd holds of it."),
    "branch": ("tree", "branch", "Make a new session file of the path to an entry."),
    "logs": ("logs", "logs", "Show the structured log."),
    "config": ("setup", "config", "Show and check the configuration."),
    "doctor": ("doctor", "doctor", "Check the set-up, and say what to mend."),
    "service": ("setup", "service", "Run the daemon at every login (systemd or launchd)."),
    "web": ("web", "web", "Look at sessions in a browser: home, search, trees, live."),
    "mcp": ("mcp", "mcp", "Serve coding agents by the Model Context Protocol."),
    "integrate": (
        "setup",
        "integrate",
        "Install into an agent: references, questions, context.",
    ),
    "completion": ("setup", "completion", "Print a shell's completion script."),
}

# The alias that `command_name` gives to a forced run, as the older extension's command (S0.3).
FORCED = ("actions", "forced", "Index a session now, below the threshold too.")

EXIT_CODES = """\b
Exit codes:
  0 ok              2 usage              3 not found or ambiguous
  1 other          69 daemon not running 75 try later
 77 permission     78 bad configuration 130 interrupted"""


class App:
    """The options before a command's name: the configuration file, JSON wanted, colours."""

    def __init__(
        self, config: str | None = None, json: bool = False, color: Color = "auto"
    ) -> None:
        self.config = config
        self.json = json
        self.color = color


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
        found: click.Command = getattr(importlib.import_module(f"indexerd.cli.{module}"), attribute)
        return found

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
