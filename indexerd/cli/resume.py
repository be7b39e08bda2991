"""Commands that open a session again with its own agent.

A row's command is one for a shell: `cd DIR && [VARIABLE=…] AGENT …`, in all its steps. With
`--exec` its steps are taken without a shell, and the agent takes the place of this process.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, NoReturn

from indexerd.cli import printing as render
from indexerd.cli.backend import aside, project, safe
from indexerd.cli.main import AGENT, REF, as_json, command, current, flag, near
from indexerd.errors import AccessError, NotFoundError

EXEC = flag("--exec", "run", "Run it, in the session's directory.")


@command(REF, EXEC)
def resume(ref: str, *, run: bool) -> list[str]:
    """Print the agent's own command that reopens a session; --exec runs it."""
    row = current().call("get", {"ref": ref, "cwd": project()})["session"]
    return list(_opened(row, run=run))[1:]


@command(near("Look in this directory and below, not in the current one."), AGENT, EXEC)
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
    """Turn this process into the agent."""
    aside(f"indexerd: resuming {safe(row['name'])}")
    steps: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word == "&&":
            steps.append([])
        else:
            steps[-1].append(word)
    if steps[0][0] == "cd":
        _enter(steps.pop(0)[1], " && ".join(map(shlex.join, steps)))
    for step in steps:
        while "=" in step[0]:
            name, _, os.environ[name] = step.pop(0).partition("=")
        if shutil.which(step[0]) is None:
            raise NotFoundError(
                f"{render.exact(step[0])} is not on your PATH",
                hint=f"install {row['agent']}, or run this where it is: {render.exact(command)}",
            )
    # Python ignores it, and the agent would inherit that: a closed pipe would not end it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    *before, last = steps
    try:
        for step in before:
            subprocess.run(step, check=True)  # noqa: S603 - the user's own agent
        os.execvp(last[0], last)  # noqa: S606 - likewise; no shell is what we want
    except PermissionError:
        raise
    except (OSError, ValueError, subprocess.CalledProcessError) as bad:
        why = getattr(bad, "strerror", None) or bad
        raise AccessError(f"{render.exact(last[0])} cannot be run: {why}") from bad


def _enter(directory: str, rest: str) -> None:
    try:
        os.chdir(directory)
    except PermissionError:
        raise
    except (OSError, ValueError) as bad:
        raise NotFoundError(
            f"the session's directory is not there: {render.exact(directory)}",
            hint=f"create it, or run this elsewhere: {render.exact(rest)}",
        ) from bad
