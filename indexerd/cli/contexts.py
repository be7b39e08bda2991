"""Commands about relevant context: context-set, context-get, resume-context, footer.

To write a sidecar, and to know which resume had its block, needs the daemon; what only reads goes
without one. For people a file is shown relative to its session's directory; `--json` has what is
stored.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import ask, project, read, show
from indexerd.cli.streams import aside, put, safe

if TYPE_CHECKING:
    from indexerd.cli.main import App


@click.command("context-set")
@click.argument("ref")
@click.argument("name")
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@click.option("--merge", is_flag=True, help="Add to the set, instead of replacing it.")
@click.pass_obj
def context_set(app: App, /, *, ref: str, name: str, items: tuple[str, ...], merge: bool) -> None:
    """Note what a session works with: files, applet, endpoints, ports, or a set of your own.

    At most 10 items in a set, and 50 in all sets. Without an item the set is cleared. Files are
    best named by their whole paths; a relative one is meant from the session's directory.
    """
    params = {"session": ref, "cwd": project(), "setName": name, "items": list(items)}
    mode = "merge" if merge else "replace"
    found = ask(app, "set_relevant_context", {**params, "mode": mode})
    if show(app, found):
        return
    put([safe(found["text"])])
    for warning in found["warnings"]:
        aside(f"indexerd: {safe(warning, 4000)}")


@click.command("context-get")
@click.argument("ref")
@click.argument("name", required=False)
@click.pass_obj
def context_get(app: App, ref: str, name: str | None) -> None:
    """Show what was noted of a session: every set, or the one named."""
    from indexerd.meta.context_sets import relative

    params = {"session": ref, "cwd": project(), "setName": name}
    found = read(app, "get_relevant_context", params)
    if show(app, found):
        return
    cwd = found["cwd"]
    rows = [
        (key, relative(cwd, item) if key == "files" else item)
        for key, items in found["context"].items()
        for item in items
    ]
    render.table(app, ("set", "item"), rows)
    if not rows:
        aside(safe(found["text"]) if name is None else "nothing is in that set")


@click.command("resume-context")
@click.argument("ref")
@click.option("--resume-id", metavar="ID", help="Names this resume: its block is given once.")
@click.pass_obj
def resume_context(app: App, ref: str, resume_id: str | None) -> None:
    """Print the block for the first message after a resume; nothing the next time."""
    params = {"session": ref, "cwd": project(), "resumeId": resume_id}
    found = ask(app, "resume_context", params)
    if not show(app, found):
        sys.stdout.write(found["text"] or "")
        sys.stdout.flush()


@click.command()
@click.argument("ref")
@click.pass_obj
def footer(app: App, ref: str) -> None:
    """Print a session's context in one line: its first files and its applet."""
    params = {"ref": ref, "cwd": project()}
    found = read(app, "footer", params)
    if not show(app, found) and found["text"]:
        put([safe(found["text"])])
