r"""Commands that open a session again with its own agent: resume, continue-recent.

In: a reference, or a project. Out: the agent's command, ready to be pasted; or, with `--exec`,
the agent itself in the place of this process, in the session's directory.

A row's command is one for a shell: `cd DIR && AGENT …`. Directories in it were chosen by whoever
ran the agent, so what could act on a terminal is printed in the shell's own `$'\x1b'` form, which
means the same. It is run without a shell where it says no more than a directory and a program's
arguments. Nothing here asks for more than `get` and `list` answer, so no daemon is needed.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import project, read
from indexerd.cli.backend import show as show_json
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import AccessError, NotFoundError
from indexerd.privacy.sanitize import escape_path

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from indexerd.cli.main import App

_ASCII, _PLANE = 0x7F, 0xFFFF
_SHELL = "/bin/sh"


class Opening:
    """A resume command without its shell. `directory` is "" where the command names none."""

    __slots__ = ("argv", "directory")

    def __init__(self, directory: str, argv: tuple[str, ...]) -> None:
        self.directory = directory
        self.argv = argv


def opening_of(command: str) -> Opening | None:
    """The command in its parts; None where it is more than a directory and a program."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    there, directory = "", ""
    if words[:1] == ["cd"] and words[2:3] == ["&&"]:
        directory, words = words[1], words[3:]
        there = f"cd {shlex.quote(directory)} && "
    if not words or "=" in words[0] or there + shlex.join(words) != command:
        return None  # a variable is set, or something in it is the shell's business
    return Opening(directory, tuple(words))


def typed(command: str) -> str:
    """The command as it may be shown and pasted: the same to a shell, harmless to a terminal."""
    if escape_path(command) == command:
        return command
    opening = opening_of(command)
    if opening is None:
        return render.exact(command)
    there = f"cd {_quoted(opening.directory)} && " if opening.directory else ""
    return there + " ".join(map(_quoted, opening.argv))


def _quoted(word: str) -> str:
    if escape_path(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if escape_path(char) == char:
        return char
    point = ord(char)
    if "\udc80" <= char <= "\udcff":  # a byte that is no UTF-8, as Python keeps it
        return f"\\x{point & 0xFF:02x}"
    if point <= _ASCII:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= _PLANE else f"\\U{point:08x}"


@click.command()
@click.argument("ref")
@click.option("--exec", "run", is_flag=True, help="Run it, in the session's directory.")
@click.pass_obj
def resume(app: App, ref: str, *, run: bool) -> None:
    """Print the command that opens a session again, of its own agent; --exec runs it."""
    row = read(app, "get", {"ref": ref, "cwd": project()})["session"]
    command = _command(row)
    if run:
        _become(command, row)
    if not show_json(app, _told(row)):
        put([typed(command)])


@click.command("continue-recent")
@click.option("--cwd", help="Of this directory and below, not the current one.")
@click.option("--agent", help="Only this agent's sessions.")
@click.option("--exec", "run", is_flag=True, help="Run it, in the session's directory.")
@click.pass_obj
def continue_recent(app: App, cwd: str | None, agent: str | None, *, run: bool) -> None:
    """Print the newest session of a project, and the command that opens it again."""
    here = project(cwd)
    rows = read(app, "list", {"cwd": here, "agent": agent, "limit": 1})["sessions"]
    if not rows:
        what = f"no session of {agent}'s" if agent else "no session"
        raise NotFoundError(f"{what} in {render.exact(here or 'any project')}")
    row = rows[0]
    command = _command(row)
    if run:
        _become(command, row)
    if not show_json(app, _told(row)):
        render.heading(app, row["name"], f"  {row['sessionId']}")
        put([typed(command)])


def _told(row: dict[str, Any]) -> dict[str, Any]:
    told = {"sessionId": row["sessionId"], "name": row["name"], "agent": row["agent"]}
    return told | {"command": row["resume"]}


def _command(row: dict[str, Any]) -> str:
    """The session's command; NotFoundError where nothing is left that could be opened."""
    command = str(row.get("resume") or "")
    if row["gone"] or not command:
        raise NotFoundError(
            f"the file of session {row['sessionId']} is gone: there is nothing to resume",
            hint=f"`indexerd show {row['sessionId']}` shows what is still known of it",
        )
    return command


def _become(command: str, row: dict[str, Any]) -> NoReturn:
    """Turn this process into the agent. Errors of the tree where that cannot be."""
    aside(f"indexerd: resuming {safe(row['name'])}")
    opening = opening_of(command) or _shells(command, row)
    if opening.directory:
        _enter(opening)
    import shutil

    program = row["agent"] if opening.argv[0] == _SHELL else opening.argv[0]
    if shutil.which(program) is None:
        raise NotFoundError(
            f"{render.exact(program)} is not on your PATH",
            hint=f"install {row['agent']}, or run this where it is: {typed(command)}",
        )
    _replace(opening.argv)


def _shells(command: str, row: dict[str, Any]) -> Opening:
    """A command that sets a variable, or has two steps: the shell's, in the same directory."""
    there = f"cd {shlex.quote(row['cwd'])} && "
    directory = row["cwd"] if command.startswith(there) else ""
    return Opening(directory, (_SHELL, "-c", command.removeprefix(there)))


def _enter(opening: Opening) -> None:
    try:
        os.chdir(opening.directory)
    except PermissionError:
        raise
    except (OSError, ValueError) as bad:
        raise NotFoundError(
            f"the session's directory is not there: {render.exact(opening.directory)}",
            hint=f"make it anew, or run this elsewhere: {typed(shlex.join(opening.argv))}",
        ) from bad


def _replace(argv: tuple[str, ...]) -> NoReturn:
    import signal

    sys.stdout.flush()
    sys.stderr.flush()
    # Python has it ignored, which the agent would inherit: its own pipes would not end it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - the user's own agent; no shell is what we want
    except PermissionError:
        raise
    except (OSError, ValueError) as bad:
        why = getattr(bad, "strerror", None) or bad
        raise AccessError(f"{render.exact(argv[0])} cannot be run: {why}") from bad
