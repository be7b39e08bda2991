"""Commands for long sessions.

Summaries are other people's text, so they are indented. A hand-off is printed as it is, since it is
meant for a file or another program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from indexerd.cli import main as cli
from indexerd.cli import printing as render
from indexerd.cli.backend import aside, safe

RECENT_SHOWN = 10  # messages that `history` shows without --full
FULL = cli.flag("--full", "All summaries and messages, uncut.")
AGENTS = click.Choice(("pi", "codex", "opencode"))
STRATEGY = cli.option("--strategy", "Whose rules; default: its own agent's.", type=AGENTS)
HANDOFF = cli.flag("--handoff", "Print a document to start a new session with.")


@cli.method("history", cli.REF, FULL, cli.LEAF)
def history(found: Any) -> Iterator[str]:
    """Show a session's digests, and the messages after them."""
    full = "context" in found
    for segment in found["segments"]:
        first, last = segment["covering_messages"]
        by = f"{segment['generated_at']} by {segment['model']}"
        yield render.heading(f"{first}-{last}", f"  {safe(by)}")
        yield from [*render.paragraph(segment["content"], "  ")][: None if full else 12]
        yield from render.fields(segment, "files_modified")
        yield ""
    for one in found["recent"] if full else found["recent"][-RECENT_SHOWN:]:
        text = one["text"] or f"[{', '.join(one.get('tools', ()))}]"
        more = safe(one["entryId"] if full else text)
        yield render.heading(f"{one['n']} {one['role']}", f"  {more}")
        yield from (render.exact(text), "") if full else ()
    count = render.count(found["fullMessageCount"], "message")
    yield f"{count}, {found['foldedMessages']} of them summed up"


@cli.method("digest", cli.REF)
def digest(found: Any) -> Iterator[str]:
    """Summarise a session's older messages that no digest covers."""
    segment = found["segment"]
    if segment is None:
        yield f"nothing to do: {safe(found['reason'])}"
        return
    first, last = segment["covering_messages"]
    yield f"{found['before']} -> {found['after']} messages ({found['reduction']:g} % less)"
    yield f"{first}-{last} are summed up now"
    names = "tokensSaved compression targetCompression topics files commands decisions model"
    yield from render.fields(found, names)
    yield from ("", *render.paragraph(segment["content"], "  "))


@cli.method("compact", cli.REF, STRATEGY, cli.FOCUS, HANDOFF, cli.LEAF)
def compact(found: Any) -> Iterator[str]:
    """Summarise a session to continue elsewhere; it is not changed."""
    for note in found["notes"]:
        aside(f"indexerd: {safe(note)}")
    if "handoff" in found:
        yield render.exact(found["handoff"]).rstrip("\n")
        return
    names = "strategy tokensBefore firstKeptEntryId modifiedFiles readFiles model"
    yield from render.fields(found | found["details"] | found["usage"], names)
    yield from ("", *render.paragraph(found["summary"], "  "))


@cli.method("branch_summary", cli.REF, cli.argument("leaf"), cli.FOCUS)
def branch_summary(found: Any) -> Iterator[str]:
    """Summarise an abandoned branch, named by its last entry."""
    return render.paragraph(found["summary"], "  ")


@cli.method("stats", cli.REF)
def stats(found: Any) -> Iterator[str]:
    """Show how full a session's context is, and its totals."""
    names = "contextTokens estimated window percent usable shouldCompact warnings"
    return render.fields(found | found["totals"], f"{names} {' '.join(found['totals'])}")
