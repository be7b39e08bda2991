"""Commands that change something: index, rename. They need the daemon."""

from __future__ import annotations

from indexerd.cli import declare
from indexerd.cli.ask import ask, project, show
from indexerd.cli.fast import lines
from indexerd.cli.streams import put, safe
from indexerd.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from indexerd.cli.app import App

WAIT_SECONDS = 600.0


@declare.command()
@declare.argument("ref", required=False)
@declare.option("--force", is_flag=True, help="Below the threshold, too.")
@declare.option("--wait", is_flag=True, help="Wait until it is done.")
@declare.option("--all", "everything", is_flag=True, help="All sessions with enough new messages.")
@declare.option("--dry-run", is_flag=True, help="With --all: only count, and estimate the cost.")
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


@declare.command()
@declare.argument("ref")
@declare.option("--wait", is_flag=True, help="Wait until it is done.")
@declare.option("--force", is_flag=True, hidden=True, help="Implied.")
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


@declare.command()
@declare.argument("ref")
@declare.argument("title")
def rename(app: App, ref: str, title: str) -> None:
    """Give a session a title of your own; an empty one takes it back."""
    row = ask(app, "update", {"ref": ref, "title": title, "cwd": project()})
    if not show(app, row):
        put(lines(row))
