"""Commands that look: status, list, show, resolve, complete, search."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from indexerd.cli import render
from indexerd.cli.ask import ask, project, read
from indexerd.cli.ask import show as show_json
from indexerd.cli.fast import lines
from indexerd.cli.streams import put, safe
from indexerd.core.times import iso, iso_ms
from indexerd.errors import UsageError

if TYPE_CHECKING:
    from indexerd.cli.main import App

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def since(text: str | None) -> str | None:
    """A moment: an ISO-8601 date or time, or how long ago (`90m`, `12h`, `7d`, `2w`)."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago:
        return iso(time.time() - int(ago[1]) * _SECONDS[ago[2]])
    if not iso_ms(text):
        raise UsageError(
            f"not a time: {text}", hint="write 7d, 12h, 2026-11-01 or an ISO-8601 time"
        )
    return text


@click.command()
@click.pass_obj
def status(app: App) -> None:
    """Show the daemon, its watches, queue, budget and problems."""
    found = ask(app, "status", {})
    if show_json(app, found):
        return
    budget, watches = found["budget"], found["watches"]
    spent = f"${budget['usd']:.4f} of ${budget['dailyUsd']:.2f}"
    calls = f"{budget['calls']} of {budget['dailyCalls']} calls"
    render.facts(
        [
            ("state", found["state"]),
            ("sessions", found["sessions"]),
            ("queued", f"{found['queued']} ({found['indexing']} being indexed)"),
            ("last scan", found["lastScanAt"] or "not yet"),
            ("models", ", ".join(found["models"]["usable"]) or "none"),
            ("budget today", f"{spent}, {calls}"),
            ("watching", f"{watches['watched']} directories ({watches['mode']})"),
            ("missing", ", ".join(watches["missing"])),
        ]
    )
    for problem in found["problems"]:
        put(["", f"{safe(problem['code'])} since {safe(problem['since'])}"])
        render.paragraph(f"{problem['cause']}\ncure: {problem['cure']}", indent="  ")


@click.command("list")
@click.option("--agent", help="Only this agent's sessions.")
@click.option("--cwd", help="Only sessions of this directory and below.")
@click.option("--all", "everywhere", is_flag=True, help="Of every project.")
@click.option("--since", "after", help="Only those active since then (7d, 12h, 2026-11-01).")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--archived", is_flag=True, help="Also archived ones, and those whose file is gone.")
@click.option("--subagents", is_flag=True, help="Also sub-agents' sessions.")
@click.pass_obj
def list_(app: App, /, **options: Any) -> None:
    """List sessions, newest first: of the current project, unless --all."""
    everywhere = options["everywhere"] and not options["cwd"]
    params = {
        "agent": options["agent"],
        "cwd": None if everywhere else project(options["cwd"]),
        "since": since(options["after"]),
        "limit": options["limit"],
        "archived": options["archived"],
        "subagents": options["subagents"],
    }
    found = read(app, "list", params)
    if show_json(app, found):
        return
    rows = [
        (
            row["sessionId"],
            render.age(row["modifiedAt"]),
            row["agent"],
            str(row["userMessageCount"]),
            row["name"] + (" (gone)" if row["gone"] else ""),
            render.place(app, row["cwd"]),
        )
        for row in found["sessions"]
    ]
    render.table(app, ("session", "active", "agent", "asks", "name", "directory"), rows)
    if not rows:
        here = "" if everywhere else " here; --all lists every project's"
        click.echo(f"no sessions{here}", err=True)


@click.command()
@click.argument("ref")
@click.option(
    "--as-sent",
    is_flag=True,
    help="The exact redacted prompt that would leave. Control "
    "characters are shown; with --json they are as they would be sent.",
)
@click.pass_obj
def show(app: App, ref: str, as_sent: bool) -> None:
    """Show one session: metadata and facts."""
    if as_sent:
        found = read(app, "as_sent", {"ref": ref, "cwd": project()})
        if not show_json(app, found):
            put([render.exact(f"{found['system']}\n\n{found['user']}")])
        return
    found = read(app, "get", {"ref": ref, "cwd": project()})
    if show_json(app, found):
        return
    row, meta = found["session"], found["meta"]
    render.heading(app, row["name"])
    if row["description"]:
        render.paragraph(row["description"])
    put([""])
    render.facts(
        [
            ("session", row["sessionId"]),
            ("agent", row["agent"]),
            ("directory", render.exact(row["cwd"])),
            ("file", render.exact(row["sessionFile"]) + (" (gone)" if row["gone"] else "")),
            ("active", f"{row['modifiedAt']} ({render.age(row['modifiedAt'])})"),
            ("messages", f"{row['messageCount']}, {row['userMessageCount']} of them yours"),
            ("not indexed yet", f"{row['newUserMessages']} of yours"),
            ("tags", ", ".join(row["tags"])),
            ("modified", ", ".join(row["filesModified"][:20])),
            ("read", ", ".join(row["filesRead"][:20])),
            ("tools", ", ".join(f"{name} x{n}" for name, n in row["toolsUsed"].items())),
            ("named by", (meta or {}).get("model") or row["nameSource"]),
            ("parent", render.exact(row.get("parentSessionFile") or "")),
            ("resume", render.exact(row["resume"] or "")),
        ]
    )
    if meta:
        put([""])
        render.paragraph(meta["summary"])


@click.command()
@click.argument("ref")
@click.option("--cwd", help="Look in this project first.")
@click.option("--all", "everywhere", is_flag=True, help="Look in every project at once.")
@click.pass_obj
def resolve(app: App, ref: str, cwd: str | None, everywhere: bool) -> None:
    """Say which session a reference means: id, prefix, name, or something like it."""
    scope = "all" if everywhere else "project"
    found = read(app, "resolve", {"ref": ref, "cwd": project(cwd), "scope": scope})
    if not show_json(app, found):
        put(lines(found))


@click.command()
@click.argument("prefix", default="")
@click.option("--cwd", help="This project's sessions first.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@click.pass_obj
def complete(app: App, prefix: str, cwd: str | None, limit: int) -> None:
    """List candidates for `@@`, newest first."""
    params = {"prefix": prefix, "cwd": project(cwd), "limit": limit}
    found = read(app, "complete", params)
    if not show_json(app, found):
        put(lines(found))


@click.command()
@click.argument("query")
@click.option("--agent", help="Only this agent's sessions.")
@click.option("--cwd", help="Only sessions of this directory and below.")
@click.option("--since", "after", help="Only those active since then (7d, 12h, 2026-11-01).")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@click.pass_obj
def search(
    app: App, /, *, query: str, agent: str | None, cwd: str | None, after: str | None, limit: int
) -> None:
    """Search names, tags, summaries and messages; "a phrase", re:pattern."""
    params = {
        "query": query,
        "agent": agent,
        "cwd": project(cwd) if cwd else None,
        "since": since(after),
        "limit": limit,
    }
    found = read(app, "search", params)
    if show_json(app, found):
        return
    for hit in found["hits"]:
        render.heading(app, hit["name"], f"  {hit['sessionId']}")
        render.paragraph(f"{hit['field']}: {hit['snippet']}", indent="  ")
    for warning in found.get("warnings", ()):
        click.echo(f"indexerd: {safe(warning)}", err=True)
    if not found["hits"]:
        click.echo("nothing found", err=True)
