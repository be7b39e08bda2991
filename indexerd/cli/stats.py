"""The command about one session's size: stats. It reads, and does so without a daemon, too."""

from __future__ import annotations

from indexerd.cli import declare, render
from indexerd.cli.ask import READING, project, read, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from indexerd.cli.app import App

_SOURCES = {"settings": "as configured", "agent": "by its agent", "list": "as listed"}
_SPENT = {
    "inputTokens": "input",
    "outputTokens": "output",
    "cacheReadTokens": "from cache",
    "cacheWriteTokens": "to cache",
}
_SECONDS = ((3600, "h"), (60, "min"), (1, "s"))


@declare.command()
@declare.argument("ref")
def stats(app: App, ref: str) -> None:
    """Show how full a session's context is, and what the session came to so far."""
    params = {"ref": ref, "cwd": project()}
    found = read(app, "stats", params, otherwise=READING)
    if not show(app, found):
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
    for size, unit in _SECONDS:
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    return " ".join(parts[:2])
