"""Commands that look at sessions: list, show, search, resolve, complete, family, stats, status."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import READING, ask, project, read
from indexerd.cli.backend import show as show_json
from indexerd.cli.hook import lines
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from indexerd.cli.main import App

    Facts = list[tuple[str, Any]]


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DIGITS_MAX = 6  # of a number of hours or days
PAGE = 500  # rows of one answer of the socket
SHOWN = 20  # paths of each kind; --json has them all


def since(text: str | None) -> str | None:
    """A moment: an ISO-8601 date or time, or how long ago (`90m`, `12h`, `7d`, `2w`)."""
    if text is None:
        return None
    import time

    from indexerd.times import iso, iso_ms

    number, unit = text[:-1], text[-1:]
    if number.isdecimal() and len(number) <= _DIGITS_MAX and unit in _SECONDS:
        return iso(time.time() - int(number) * _SECONDS[unit])
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
            ("text pending", f"{found['textPending']} of them" if found.get("textPending") else ""),
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
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--cursor", help="Go on after an earlier page: its nextCursor.")
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
        "cursor": options["cursor"],
        "archived": options["archived"],
        "subagents": options["subagents"],
    }
    found = _pages(app, params, options["limit"])
    if show_json(app, found):
        return
    rows = [
        (
            row["sessionId"],
            render.age(row["modifiedAt"]),
            row["agent"],
            str(row["userMessageCount"]),
            _mark(row) + row["name"],
            render.place(app, row["cwd"]),
        )
        for row in map(render.for_people, found["sessions"])
    ]
    render.table(app, ("session", "active", "agent", "asks", "name", "directory"), rows)
    if not rows:
        here = "" if everywhere else " here; --all lists every project's"
        aside(f"no sessions{here}")
    if "nextCursor" in found:
        aside(f"there are more; the next: --cursor {found['nextCursor']}")


def _pages(app: App, params: dict[str, Any], limit: int) -> dict[str, Any]:
    """The first `limit` rows, page by page, as one answer of `list`."""
    rows: list[Any] = []
    while True:
        page = read(app, "list", params | {"limit": min(limit - len(rows), PAGE)})
        rows += page["sessions"]
        if len(rows) >= limit or "nextCursor" not in page:
            return {**page, "sessions": rows}
        params = params | {"cursor": page["nextCursor"]}


def _mark(row: dict[str, Any]) -> str:
    """What stands before a name, so that it is never cut: such sessions are hidden by default."""
    marks = ["gone"] if row["gone"] else ["archived"] if row["archived"] else []
    marks += ["sub-agent"] if row.get("subagent") else []
    return f"({', '.join(marks)}) " if marks else ""


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
    row, meta = render.for_people(found["session"]), found["meta"]
    render.heading(app, _mark(row) + row["name"])
    if row["description"]:
        render.paragraph(row["description"])
    put([""])
    render.facts([*_place(row), *_work(row), *_ties(row, meta)])
    if meta:
        put([""])
        render.paragraph(meta["summary"])


def _place(row: dict[str, Any]) -> Facts:
    """Which session, where, and when."""
    lasted = row.get("durationMs") or 0
    return [
        ("session", row["sessionId"]),
        ("agent", row["agent"]),
        ("directory", render.exact(row["cwd"])),
        ("git branch", row.get("gitBranch")),
        ("file", render.exact(row["sessionFile"]) + (" (gone)" if row["gone"] else "")),
        ("created", row["createdAt"]),
        ("active", f"{row['modifiedAt']} ({render.age(row['modifiedAt'])})"),
        ("lasted", _span(lasted // 1000) if lasted else ""),
    ]


def _work(row: dict[str, Any]) -> Facts:
    """What was said and done, and what it took."""
    uses = (row.get("toolUses") or {}).items()
    cost = row.get("costUsd")
    return [
        ("messages", f"{row['messageCount']}, {row['userMessageCount']} of them yours"),
        ("not indexed yet", f"{row['newUserMessages']} of yours"),
        ("compactions", row.get("compactions") or ""),
        ("models", ", ".join(row.get("models") or ())),
        ("tokens", _tokens(row.get("tokens") or {})),
        ("cost", "" if cost is None else f"${cost:.4f}"),
        ("tags", ", ".join(row["tags"])),
        ("modified", _some(row["filesModified"])),
        ("read", _some(row["filesRead"])),
        ("tools", ", ".join(f"{name} x{n}" for name, n in row["toolsUsed"].items())),
        ("such as", " | ".join(f"{name}: {'; '.join(some)}" for name, some in uses)),
    ]


def _ties(row: dict[str, Any], meta: dict[str, Any] | None) -> Facts:
    """Who named it, where it came from, and how to go on with it."""
    parent = [row.get("parentSessionId") or "", row.get("parentSessionFile") or ""]
    return [
        ("named by", (meta or {}).get("model") or row["nameSource"]),
        ("parent", render.exact("  ".join(one for one in parent if one))),
        ("resume", "" if row["gone"] else _typed(row["resume"] or "")),
    ]


def _typed(command: str) -> str:
    """A command as it may be pasted; hardly one needs what that takes."""
    if command.isprintable():
        return command
    from indexerd.cli.resume import typed

    return typed(command)


def _tokens(tokens: dict[str, int]) -> str:
    """What went to and fro, where the agent recorded it."""
    words = {"input": "in", "output": "out", "cacheRead": "read from a cache"}
    words |= {"cacheWrite": "written to one"}
    return ", ".join(f"{tokens[key]:,} {word}" for key, word in words.items() if tokens.get(key))


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def _span(seconds: int) -> str:
    """How long: 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


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
        aside(f"indexerd: {safe(warning)}")
    if not found["hits"]:
        aside("nothing found")


STEPS_MAX = 12  # to the right; what is deeper stays below one another
_ROUND = ("├─ ", "└─ ", "│  ")
_PLAIN = ("|- ", "`- ", "|  ")
_BLANK = "   "
_WORDS = {"root": "", "fork": "fork", "resumed": "resumed", "subagent": "sub-agent"}
_HEADS = ("session", "agent", "active", "asks", "", "name")


@click.command()
@click.argument("ref")
@click.pass_obj
def family(app: App, ref: str) -> None:
    """Show the sessions that one came from, and all that came from them."""
    found = read(app, "family", {"ref": ref, "cwd": project()})
    if show_json(app, found):
        return
    from indexerd.times import iso_ms

    members = found["members"]
    rows = (
        (
            one["sessionId"],
            one["agent"],
            render.age(one["modifiedAt"]) if iso_ms(one["modifiedAt"]) else "",
            str(one["userMessageCount"]),
            "*" if one["sessionId"] == found["sessionId"] else "",
            drawn + _told(one),
        )
        for one, drawn in zip(members, _drawn(members), strict=True)
    )
    render.table(app, _HEADS, rows)
    if "missingParent" in found:
        from indexerd.privacy.redact import shown_path

        named = render.exact(shown_path(found["missingParent"]))
        aside(f"the session that this began in is not known: {named}")
    if found["more"]:
        aside(f"{found['more']} more; the nearest are shown")


def _told(one: dict[str, Any]) -> str:
    """How it came to be, its name, and what is to be known before it is opened."""
    notes = [key for key in ("archived", "gone") if one[key]][-1:]
    how = _WORDS[one["relation"]]
    return f"{how}: " * bool(how) + safe(one["name"]) + "".join(f" ({note})" for note in notes)


def _drawn(members: list[dict[str, Any]]) -> Iterator[str]:
    """What stands before each name: lines from its parent."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    tee, corner, bar = _ROUND if utf8 else _PLAIN
    last = _lasts(members)
    below: list[str] = []  # by depth: what stands before the children of the newest member there
    for one, place in zip(members, last, strict=True):
        depth = min(one["depth"], len(below))
        del below[depth:]
        before = below[-1] if below else ""
        if depth == 0:
            below.append("")
            yield ""
            continue
        deep = depth >= STEPS_MAX
        below.append(before if deep else before + (_BLANK if place else bar))
        yield before + (corner if place else tee)


def _lasts(members: list[dict[str, Any]]) -> list[bool]:
    """Of each member, whether no other child of its parent follows."""
    found: list[bool] = []
    open_at: set[int] = set()  # depths at which a later member stands, with nothing higher between
    for one in reversed(members):
        depth = one["depth"]
        found.append(depth not in open_at)
        open_at = {at for at in open_at if at < depth} | {depth}
    return found[::-1]


_SOURCES = {"settings": "as configured", "agent": "by its agent", "list": "as listed"}
_SPENT = {
    "inputTokens": "input",
    "outputTokens": "output",
    "cacheReadTokens": "from cache",
    "cacheWriteTokens": "to cache",
}
_DURATIONS = ((3600, "h"), (60, "min"), (1, "s"))


@click.command()
@click.argument("ref")
@click.pass_obj
def stats(app: App, ref: str) -> None:
    """Show how full a session's context is, and what the session came to so far."""
    params = {"ref": ref, "cwd": project()}
    found = read(app, "stats", params, otherwise=READING)
    if not show_json(app, found):
        render.facts([*_context(found), *_totals(found["totals"])])


def _context(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The context's size, and what it means."""
    about = "about " if found["estimated"] else ""
    yield "context", f"{about}{found['contextTokens']:,} tokens"
    if "window" in found:
        yield "window", f"{found['window']:,} tokens, {_SOURCES[found['windowSource']]}"
    else:
        yield "window", "not known"
    if "percent" in found:
        yield "taken", f"{found['percent']}% of {found['usable']:,} usable tokens"
    due = [name for name, wanted in found["shouldCompact"].items() if wanted]
    yield "would compact", ", ".join(due)
    for warning in found["warnings"]:
        yield "warning", warning


def _totals(totals: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The sums."""
    from indexerd.models.prices import format_usd

    yield "messages", f"{totals['messages']:,}, {totals['userMessages']:,} of a human"
    yield "entries", f"{totals['entries']:,}"
    yield "compactions", totals["compactions"] or None
    if totals["segments"]:
        folded, every = totals["foldedMessages"], totals["fullMessageCount"]
        yield "segments", f"{totals['segments']:,}, for {folded:,} of {every:,} messages"
        yield "saved by them", f"about {totals['savedTokens']:,} tokens"
    told = [f"{totals[key]:,} {name}" for key, name in _SPENT.items() if totals.get(key)]
    yield "tokens spent", ", ".join(told)
    cost = totals.get("costUsd")
    yield "cost", None if cost is None else format_usd(cost)
    yield "tool calls", totals["toolCalls"] or None
    if totals["filesRead"] or totals["filesModified"]:
        yield "files", f"{totals['filesRead']:,} read, {totals['filesModified']:,} modified"
    yield "duration", _duration(totals.get("durationMs", 0))


def _duration(ms: int) -> str:
    """In the largest two units."""
    seconds = ms // 1000
    parts = []
    for size, unit in _DURATIONS:
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    return " ".join(parts[:2])
