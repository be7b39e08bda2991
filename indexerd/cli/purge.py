"""`purge`: forget a session. It says first what would be removed, and asks; it needs the daemon.

Only a terminal can be asked: without one, `--yes` must have been said, or nothing is removed.
Taking it back needs no question, as it removes nothing. Where the agent's own file was to go and
is still there, or was not there, the session is forgotten, and the exit code is 1.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from indexerd.cli import render
from indexerd.cli.ask import ask, project, show
from indexerd.cli.streams import put, safe
from indexerd.errors import UsageError

if TYPE_CHECKING:
    from indexerd.cli.main import App


@click.command()
@click.argument("ref")
@click.option("--yes", is_flag=True, help="Without asking.")
@click.option(
    "--transcript",
    is_flag=True,
    help="The agent's own session file, too. It cannot be brought back.",
)
@click.option("--undo", is_flag=True, help="Read a purged session again; REF is its whole id.")
@click.pass_obj
def purge(app: App, /, *, ref: str, yes: bool, transcript: bool, undo: bool) -> None:
    """Forget a session: remove what indexerd holds of it, and do not read it again.

    The agent's own file stays as it is, unless you say --transcript.
    """
    if undo and (yes or transcript):
        raise UsageError("--undo stands alone")
    params: dict[str, Any] = {"ref": ref, "cwd": project(), "by": "cli"}
    if undo:
        found = ask(app, "purge", {**params, "undo": True})
        if not show(app, found):
            put([f"{safe(found['sessionId'])} is read again"])
        return
    params["transcript"] = transcript
    planned = ask(app, "purge", {**params, "dryRun": True})
    if not yes:
        _confirm(planned, transcript=transcript)
    # By its id: the word may mean another session by now.
    found = ask(app, "purge", {**params, "ref": planned["sessionId"]})
    if not show(app, found):
        put([render.exact(path) for path in found["removed"]])
        click.echo(f"forgotten: {safe(found['sessionId'])}", err=True)
    kept = found.get("notRemoved", ())
    for one in kept:
        click.echo(f"not removed: {render.exact(one['path'])}: {safe(one['reason'])}", err=True)
    if kept:
        raise click.exceptions.Exit(1)


def _confirm(planned: dict[str, Any], *, transcript: bool) -> None:
    """Show what will be removed, and have a person agree to it."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "nothing was removed: there is nobody to ask",
            hint="say --yes, if you are sure",
        )
    name = planned["name"] or planned["sessionId"]
    click.echo(f"{safe(name)}  {safe(planned['sessionId'])}", err=True)
    for path in planned["files"]:
        click.echo(f"  {render.exact(path)}", err=True)
    if not planned["files"]:
        click.echo("  (no files; what is kept for searching goes)", err=True)
    questions = ["Forget this session?"]
    if transcript:
        questions.append("Remove the agent's own file, too? It cannot be brought back.")
    if not all(click.confirm(one, err=True) for one in questions):
        click.echo("nothing was removed", err=True)
        raise click.exceptions.Exit(1)
