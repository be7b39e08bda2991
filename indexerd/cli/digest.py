"""Commands for long sessions.

A summary is somebody else's text: it is indented, and what stands at the margin is ours. A
hand-off goes out as it is, since it is meant for a file or another program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import aside, safe
from indexerd.cli.main import FOCUS, REF, argument, flag, leaf, method, option

RECENT_SHOWN = 10  # messages that `history` shows, unless all are asked for
_SOURCES = {"settings": "as configured", "agent": "by its agent", "list": "as listed"}
_SPENT = {"inputTokens": "input", "outputTokens": "output"}
_SPENT |= {"cacheReadTokens": "from cache", "cacheWriteTokens": "to cache"}


@method(
    "history",
    REF,
    flag("--full", "All summaries and messages, uncut."),
    leaf("The history of the path to another entry."),
)
def history(found: Any) -> Iterator[str]:
    """Show a session's digests, and the messages after them."""
    full = click.get_current_context().params["full"]
    for segment in found["segments"]:
        first, last = segment["covering_messages"]
        by = f"{segment['generated_at']} by {segment['model']}"
        yield render.heading(f"{first}-{last}", f"  {safe(by)}")
        content = segment["content"]
        yield from render.paragraph(content if full else "\n".join(content.split("\n")[:12]), "  ")
        if segment["files_modified"]:
            yield f"  files: {safe(', '.join(segment['files_modified'][:20]), 2000)}"
        yield ""
    recent = found["recent"] if full else found["recent"][-RECENT_SHOWN:]
    if left_out := len(found["recent"]) - len(recent):
        yield f"({left_out} more messages; --full shows them)"
    for one in recent:
        text = one["text"] or f"[{', '.join(one.get('tools', ()))}]"
        if full:
            yield render.heading(f"{one['n']} {one['role']}", f"  {safe(one['entryId'])}")
            yield from (render.exact(text), "")
        else:
            yield f"{one['n']:>5}  {one['role']}: {safe(text)}"
    yield f"{found['fullMessageCount']} messages, {found['foldedMessages']} of them summed up"


@method("digest", REF)
def digest(found: Any) -> Iterator[str]:
    """Summarise what no digest of a session covers yet, except its newest messages."""
    segment, short = found["segment"], found.get("compression")
    if segment is None:
        yield f"nothing to do: {safe(found['reason'])}"
        return
    first, last = segment["covering_messages"]
    aim = f"{found['targetCompression']:.0%} was aimed at"
    yield from render.facts(
        (
            ("messages", f"{found['before']} -> {found['after']} ({found['reduction']:g} % less)"),
            ("summed up", f"{first}-{last}"),
            ("tokens saved", found["tokensSaved"]),
            ("compression", "" if short is None else f"{short:.1%} ({aim})"),
            ("topics", ", ".join(found["topics"])),
            ("files", render.some(found["files"])),
            ("model", found["model"]),
        )
    )
    for title in ("commands", "decisions"):
        if found[title]:
            yield from (f"{title}:", *(f"  {safe(one)}" for one in found[title]))
    yield ""
    yield from render.paragraph(segment["content"], "  ")


@method(
    "compact",
    REF,
    option(
        "--strategy",
        "Whose rules to apply; default: those of the session's own agent.",
        type=click.Choice(("pi", "codex", "opencode")),
    ),
    FOCUS,
    flag("--handoff", "Print a document to start a new session with."),
    leaf("As the session was at another entry."),
    option(
        "--keep-recent",
        "keepRecentTokens",
        "What pi's rules keep; default: 20000.",
        type=int,
        metavar="TOKENS",
    ),
)
def compact(found: Any) -> Iterator[str]:
    """Summarise a session so that it can continue elsewhere. It is not changed itself."""
    for note in found["notes"]:
        aside(f"indexerd: {safe(note)}")
    if "handoff" in found:
        yield render.exact(found["handoff"]).rstrip("\n")
        return
    yield from render.facts(
        (
            ("strategy", found["strategy"]),
            ("tokens before", found["tokensBefore"]),
            ("first kept", found["firstKeptEntryId"]),
            ("modified", render.some(found["details"]["modifiedFiles"])),
            ("read", render.some(found["details"]["readFiles"])),
            ("model", found["usage"]["model"]),
        )
    )
    yield ""
    yield from render.paragraph(found["summary"], "  ")


@method(
    "branch_summary",
    REF,
    argument("leaf"),
    FOCUS,
    flag("--replace", "replaceInstructions", "Use only these instructions, not the default ones."),
)
def branch_summary(found: Any) -> Iterator[str]:
    """Summarise an abandoned branch, named by its last entry, for `branches` to show."""
    return render.paragraph(found["summary"], "  ")


@method("stats", REF)
def stats(found: Any) -> Iterator[str]:
    """Show how full a session's context is, and the session's totals."""
    from indexerd.models.prices import format_usd

    totals, cost = found["totals"], found["totals"].get("costUsd")
    tokens = f"{'about ' if found['estimated'] else ''}{found['contextTokens']:,} tokens"
    window, taken, files, segments, saved = "not known", "", "", "", ""
    if "window" in found:
        window = f"{found['window']:,} tokens, {_SOURCES[found['windowSource']]}"
    if "percent" in found:
        taken = f"{found['percent']}% of {found['usable']:,} usable tokens"
    if totals["filesRead"] or totals["filesModified"]:
        files = f"{totals['filesRead']:,} read, {totals['filesModified']:,} modified"
    if totals["segments"]:
        of = f"{totals['foldedMessages']:,} of {totals['fullMessageCount']:,} messages"
        segments, saved = (
            f"{totals['segments']:,}, for {of}",
            f"about {totals['savedTokens']:,} tokens",
        )
    spent = [f"{totals[key]:,} {name}" for key, name in _SPENT.items() if totals.get(key)]
    due = [name for name, wanted in found["shouldCompact"].items() if wanted]
    return render.facts(
        (
            ("context", tokens),
            ("window", window),
            ("taken", taken),
            ("would compact", ", ".join(due)),
            *(("warning", warning) for warning in found["warnings"]),
            ("messages", f"{totals['messages']:,}, {totals['userMessages']:,} of a human"),
            ("entries", f"{totals['entries']:,}"),
            ("compactions", totals["compactions"] or None),
            ("segments", segments),
            ("saved by them", saved),
            ("tokens spent", ", ".join(spent)),
            ("cost", None if cost is None else format_usd(cost)),
            ("tool calls", totals["toolCalls"] or None),
            ("files", files),
            ("duration", render.span(totals.get("durationMs", 0))),
        )
    )
