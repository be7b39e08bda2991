"""Commands that open a session again with its own agent.

A row's command is one for a POSIX shell: `cd DIR && [VARIABLE=…] AGENT …`, in all its steps.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NoReturn

from indexerd.cli import printing as render
from indexerd.cli.backend import aside, project, safe
from indexerd.cli.main import AGENT, REF, as_json, command, current, flag, option
from indexerd.errors import NotFoundError

EXEC = flag("--exec", "run", "Run it, in the session's directory.")
BELOW = option(
    "--cwd", "Look in this directory and below, not in the current one.", checked=project
)


@command(REF, EXEC)
def resume(ref: str, *, run: bool) -> list[str]:
    """Print the agent's own command that reopens a session; --exec runs it."""
    row = current().call("get", {"ref": ref, "cwd": project()})["session"]
    return list(_opened(row, run=run))[1:]


@command(BELOW, AGENT, EXEC)
def continue_recent(cwd: str | None, agent: str | None, *, run: bool) -> Iterator[str]:
    """Print the newest session of a project, and the command that reopens it."""
    rows = current().call("list", {"cwd": cwd, "agent": agent, "limit": 1})["sessions"]
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
        yield render.exact(command)


def _become(command: str, row: dict[str, Any]) -> NoReturn:
    """Turn this process into a shell that runs the agent."""
    words = shlex.split(command)
    directory = words[1] if words[0] == "cd" else "."
    hint = f"mend that, or run this elsewhere: {render.exact(command.partition(' && ')[2])}"
    if not os.path.isdir(directory):  # noqa: PTH112 - no other use of pathlib here
        missing = f"the session's directory is not there: {render.exact(directory)}"
        raise NotFoundError(missing, hint=hint)
    steps = [list(step) for more, step in groupby(words, "&&".__ne__) if more]
    program = next(word for word in steps[-1] if "=" not in word)
    if shutil.which(program) is None:
        raise NotFoundError(f"{render.exact(program)} is not on your PATH", hint=hint)
    aside(f"indexerd: resuming {safe(row['name'])}")
    # Python ignores it, and the agent would inherit that: a closed pipe would not end it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv("/bin/sh", ["sh", "-c", command])  # noqa: S606 - what `resume` prints for a shell
