"""`fleet`: share names, summaries and texts with your other machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import aside, safe
from indexerd.cli.main import argument, as_json, command, current

Row = dict[str, Any]


def _secret(_context: click.Context, _param: click.Parameter, text: str) -> str:
    """Read `-` from stdin: other users of a machine can see a program's arguments."""
    return sys.stdin.readline().strip() if text == "-" else text


def _asked(do: str, target: str | None = None) -> Row:
    answer: Row = current().call("fleet", {"do": do, "target": target})
    return answer


def _code(answer: Row) -> Iterator[str]:
    """Print the code as the last line; it is a secret."""
    if not as_json(answer):
        aside("`indexerd fleet join CODE` on each other machine, with this code. It is a secret:")
        yield answer["code"]


@command(argument("url", callback=_secret))
def init(url: str) -> Iterator[str]:
    """Make a fleet on a PostgreSQL server, and join it.

    URL is like postgresql://me@db.example/indexerd, of a user who may create schemas and roles; it
    is used once. The last line is the code for other machines. `-` reads URL from stdin.
    """
    return _code(_asked("init", url))


@command(argument("code", callback=_secret))
def join(code: str) -> str:
    """Join the fleet that a code is for, or use its new key.

    `-` reads CODE from stdin: other users of a machine can see arguments.
    """
    answer = _asked("join", code)
    return "" if as_json(answer) else f"joined as {safe(answer['name'])}"


@command()
def status() -> Iterator[str]:
    """Show each machine: when last seen, and what is not read yet."""
    answer = _asked("status")
    if as_json(answer):
        return
    if answer["fleet"] is None:
        aside("this machine is in no fleet; `indexerd fleet init URL` makes one")
        return
    yield from render.fields(answer, "name host connected problem unsent notShared")
    yield ""
    for machine in answer["machines"]:
        machine["name"] += " (this one)" if machine["own"] else ""
        machine["id"] = machine["id"][:8]
    columns = "name id seenAt sessions behind refused reason"
    yield from render.records(columns, answer["machines"])


@command()
def leave() -> str:
    """Leave the fleet, and forget the other machines' sessions."""
    answer = _asked("leave")
    if answer["problem"]:
        aside(f"the server still has this machine's records: {safe(answer['problem'])}")
        aside("hint: `indexerd fleet remove` on another machine deletes them")
    return "" if as_json(answer) else "left"


@command(argument("machine"))
def remove(machine: str) -> str:
    """Remove another machine and its sessions.

    It can still log in until `indexerd fleet rotate-key`.
    """
    answer = _asked("remove", machine)
    return "" if as_json(answer) else f"removed: {safe(machine)}"


@command()
def rotate_key() -> Iterator[str]:
    """Change the key and the password; the others then join again.

    The last line is the new code.
    """
    return _code(_asked("rotate-key"))


fleet = click.Group(
    "fleet",
    [init, join, status, leave, remove, rotate_key],
    help="Share sessions with your other machines, through PostgreSQL.",
)
