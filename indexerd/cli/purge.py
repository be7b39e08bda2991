"""`purge`: forget a session. It says first what would be removed, and asks; it needs the daemon.

Only a terminal can be asked: without one, `--yes` must have been said, or nothing is removed.
Taking it back needs no question, as it removes nothing. Where the agent's own file was to go and
is still there, or was not there, the session is forgotten, and the exit code is 1.
"""

from __future__ import annotations

import sys

from indexerd.cli import declare, render
from indexerd.cli.ask import ask, project, show
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.app import App


@declare.command()
@declare.argument("ref")
@declare.option("--yes", is_flag=True, help="Without asking.")
@declare.option(
    "--transcript",
    is_flag=True,
    help="The agent's own session file, too. It cannot be brought back.",
)
@declare.option("--undo", is_flag=True, help="Read a purged session again; REF is its whole id.")
def purge(app: App, /, *, ref: str, yes: bool, transcript: bool, undo: bool) -> int:
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
        return 0
    params["transcript"] = transcript
    planned = ask(app, "purge", {**params, "dryRun": True})
    if not yes and not _confirmed(planned, transcript=transcript):
        aside("nothing was removed")
        return 1
    # By its id: the word may mean another session by now.
    found = ask(app, "purge", {**params, "ref": planned["sessionId"]})
    if not show(app, found):
        put([render.exact(path) for path in found["removed"]])
        aside(f"forgotten: {safe(found['sessionId'])}")
    kept = found.get("notRemoved", ())
    for one in kept:
        aside(f"not removed: {render.exact(one['path'])}: {safe(one['reason'])}")
    if kept:
        return 1
    return 0


def _confirmed(planned: dict[str, Any], *, transcript: bool) -> bool:
    """Show what will be removed, and ask; says whether a person agrees to it."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "nothing was removed: there is nobody to ask",
            hint="say --yes, if you are sure",
        )
    name = planned["name"] or planned["sessionId"]
    aside(f"{safe(name)}  {safe(planned['sessionId'])}")
    for path in planned["files"]:
        aside(f"  {render.exact(path)}")
    if not planned["files"]:
        aside("  (no files; what is kept for searching goes)")
    questions = ["Forget this session?"]
    if transcript:
        questions.append("Remove the agent's own file, too? It cannot be brought back.")
    import click

    try:
        return all(click.confirm(one, err=True) for one in questions)
    except click.Abort:  # Ctrl-C, or the end of input: in words that are known without click, too
        raise KeyboardInterrupt from None
