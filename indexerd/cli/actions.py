"""Commands that change what indexerd holds of sessions: index, rename, purge."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import ask, project, show
from indexerd.cli.hook import lines
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import UsageError

if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.main import App


WAIT_SECONDS = 600.0


@click.command()
@click.argument("ref", required=False)
@click.option("--force", is_flag=True, help="Below the threshold, too.")
@click.option("--wait", is_flag=True, help="Wait until it is done.")
@click.option("--all", "everything", is_flag=True, help="All sessions with enough new messages.")
@click.option("--dry-run", is_flag=True, help="With --all: only count, and estimate the cost.")
@click.pass_obj
def index(
    app: App, /, *, ref: str | None, force: bool, wait: bool, everything: bool, dry_run: bool
) -> None:
    """Index a session now, or all that are due."""
    if everything == bool(ref):
        raise UsageError("name a session, or give --all")
    if everything:
        found = ask(app, "index", {"all": True, "dryRun": dry_run}, seconds=WAIT_SECONDS)
        if not show(app, found):
            put([_plan(found)])
        return
    params = {"ref": ref, "force": force, "wait": wait, "cwd": project()}
    found = ask(app, "index", params, seconds=WAIT_SECONDS)
    if not show(app, found):
        put([found["status"].replace("_", " ")])


@click.command()
@click.argument("ref")
@click.option("--wait", is_flag=True, help="Wait until it is done.")
@click.option("--force", is_flag=True, hidden=True, help="Implied.")
@click.pass_obj
def forced(app: App, /, *, ref: str, wait: bool, force: bool) -> None:  # noqa: ARG001 - implied
    """Index a session now, below the threshold too."""
    params = {"ref": ref, "force": True, "wait": wait, "cwd": project()}
    found = ask(app, "index", params, seconds=WAIT_SECONDS)
    if not show(app, found):
        put([found["status"].replace("_", " ")])


def _plan(found: dict[str, object]) -> str:
    if "queued" in found:
        queued = found["queued"]
        return f"{len(queued) if isinstance(queued, list) else 0} sessions queued"
    cost = found["costUsd"]
    price = "at an unknown price" if cost is None else f"for at most ${cost:.4f}"
    return (
        f"{found['sessions']} sessions, about {found['inputTokens']} tokens to "
        f"{safe(found['model'] or 'no model')}, {price}; nothing was sent"
    )


@click.command()
@click.argument("ref")
@click.argument("title")
@click.pass_obj
def rename(app: App, ref: str, title: str) -> None:
    """Give a session a title of your own; an empty one takes it back."""
    row = ask(app, "update", {"ref": ref, "title": title, "cwd": project()})
    if not show(app, row):
        put(lines(row))


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
