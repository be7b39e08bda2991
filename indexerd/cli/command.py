"""How a command is declared.

`@method(name, …)` makes a command of a socket method: its arguments and options bear the names of
the method's params, and the function turns the answer into lines for people. `@command(…)` is for
everything else: the function gets the options; the line or lines that it returns are printed, a
number is the exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from indexerd.cli.backend import STORED, App, project
from indexerd.cli.streams import json_text, put
from indexerd.errors import UsageError

Work = Callable[..., Any]
Declare = Callable[[Work], Work]

MODEL_SECONDS = 600.0  # for an answer that may take several calls of a model

argument = click.argument
REF = argument("ref")
SESSION = argument("session", metavar="REF")


def option(*names: str, **settings: Any) -> Declare:
    """An option; the last name is its help."""
    return click.option(*names[:-1], help=names[-1], **settings)


def flag(*names: str, value: str | None = None) -> Declare:
    """A switch, or one that stands for a value."""
    return option(*names, **({"flag_value": value} if value else {"is_flag": True}))


def checked(work: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """What click calls with an option's value, to have what is sent."""
    return lambda _context, _parameter, value: work(value)


def _entry(value: str | None) -> str | None:
    if value == "":
        raise UsageError("--leaf takes an entry's id", hint="`indexerd tree REF` shows them")
    return value


def leaf(text: str = "As seen from another entry.") -> Declare:
    """The option for another entry than the current leaf."""
    return option("--leaf", text, metavar="ID", callback=checked(_entry))


def near(text: str) -> Declare:
    """The option for a project, which is the current directory's otherwise."""
    return option("--cwd", text, callback=checked(project))


def limit(most: int | None, default: int) -> Declare:
    """The option for a number of rows."""
    kind = click.IntRange(1, most)
    return click.option("--limit", type=kind, default=default, show_default=True)


AGENT = option("--agent", "Only this agent's sessions.")
EXEC = flag("--exec", "run", "Run it, in the session's directory.")
FOCUS = option("--instructions", "What the summary should dwell on.", metavar="TEXT")


def current() -> App:
    """The options before the name of the command that runs."""
    app: App = click.get_current_context().obj
    return app


def as_json(found: Any) -> bool:
    """With `--json`, print an answer; whether that was asked for."""
    app = current()
    if app.json:
        put([json_text(found)])
    return app.json


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


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.title, rest))


def method(
    name: str,
    *declared: Declare,
    daemon: bool = False,
    seconds: float | None = None,
    question: bool = False,
    note: str = STORED,
) -> Callable[[Work], click.Command]:
    """Make a command of a method; `daemon`: it cannot be answered without one."""

    def made(lines: Work) -> click.Command:
        @wraps(lines)
        def run(**given: Any) -> Any:
            params = {_camel(key): one for key, one in given.items() if one is not False}
            if "ref" in params or "session" in params:
                params.setdefault("cwd", project())
            app = current()
            if daemon:
                found = app.ask(name, params, seconds)
            else:
                found = app.read(name, params, seconds=seconds, question=question, note=note)
            return None if as_json(found) else lines(found)

        return command(*declared)(run)

    return made
