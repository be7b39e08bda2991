r"""Commands that open a session again with its own agent: resume, continue-recent.

A row's command is one for a shell: `cd DIR && AGENT …`. Directories in it were chosen by whoever
ran the agent, so what could act on a terminal is printed in the shell's own `$'\x1b'` form, which
means the same. With `--exec` the agent takes the place of this process, without a shell where the
command says no more than a directory and a program's arguments.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from indexerd.cli import printing as render
from indexerd.cli.backend import project
from indexerd.cli.command import AGENT, EXEC, REF, as_json, command, current, near
from indexerd.cli.streams import aside, safe
from indexerd.errors import AccessError, NotFoundError
from indexerd.privacy.sanitize import escape_path

_SHELL = "/bin/sh"


class Opening(NamedTuple):
    """A resume command without its shell. `directory` is "" where the command names none."""

    directory: str
    argv: tuple[str, ...]


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
    if char.isascii():
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if char <= "\uffff" else f"\\U{point:08x}"


@command(REF, EXEC)
def resume(ref: str, *, run: bool) -> list[str]:
    """Print the command that opens a session again, of its own agent; --exec runs it."""
    row = current().read("get", {"ref": ref, "cwd": project()})["session"]
    return list(_opened(row, run=run))[1:]


@command(near("Of this directory and below, not the current one."), AGENT, EXEC)
def continue_recent(cwd: str | None, agent: str | None, *, run: bool) -> Iterator[str]:
    """Print the newest session of a project, and the command that opens it again."""
    rows = current().read("list", {"cwd": cwd, "agent": agent, "limit": 1})["sessions"]
    if not rows:
        what = f"no session of {agent}'s" if agent else "no session"
        raise NotFoundError(f"{what} in {render.exact(cwd or 'any project')}")
    return _opened(rows[0], run=run)


def _opened(row: dict[str, Any], *, run: bool) -> Iterator[str]:
    """The session and its command; NotFoundError where nothing is left that could be opened."""
    command = str(row.get("resume") or "")
    if row["gone"] or not command:
        raise NotFoundError(
            f"the file of session {row['sessionId']} is gone: there is nothing to resume",
            hint=f"`indexerd show {row['sessionId']}` shows what is still known of it",
        )
    if run:
        _become(command, row)
    session = {key: row[key] for key in ("sessionId", "name", "agent")}
    if not as_json({**session, "command": command}):
        yield render.heading(row["name"], f"  {row['sessionId']}")
        yield typed(command)


def _become(command: str, row: dict[str, Any]) -> NoReturn:
    """Turn this process into the agent."""
    aside(f"indexerd: resuming {safe(row['name'])}")
    opening = opening_of(command)
    program = row["agent"] if opening is None else opening.argv[0]
    if opening is None:  # it sets a variable, or has two steps
        there = f"cd {shlex.quote(row['cwd'])} && "
        directory = row["cwd"] if command.startswith(there) else ""
        opening = Opening(directory, (_SHELL, "-c", command.removeprefix(there)))
    if opening.directory:
        _enter(opening)
    import shutil

    if shutil.which(program) is None:
        raise NotFoundError(
            f"{render.exact(program)} is not on your PATH",
            hint=f"install {row['agent']}, or run this where it is: {typed(command)}",
        )
    _replace(opening.argv)


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
