"""Commands that sum up: history, digest, compact, branch-summary.

Without a daemon `history` reads the session itself, and `compact` sums it up with the built-in
model. The others write beside the session, which is the daemon's to do.

A summary is somebody else's text: it is indented, and what stands at the margin is ours. A
hand-off goes out as it is, since it is meant for a file or another program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import READING, project, read
from indexerd.cli.backend import ask as ask_daemon
from indexerd.cli.backend import show as show_json
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from indexerd.cli.main import App
    from indexerd.daemon.library import Library
    from indexerd.settings import Settings

    Params = dict[str, Any]
    Work = Callable[[Library, Params, Settings, App], dict[str, Any]]

MODEL_SECONDS = 600.0  # a summary may take several calls
RECENT_SHOWN = 10  # messages that `history` shows, unless all are asked for
LISTED_MAX = 20  # files and the like that a report shows
TEXT_MAX = 100_000  # characters of one text


@click.command()
@click.argument("ref")
@click.option("--full", is_flag=True, help="Summaries and messages whole, and all of them.")
@click.option("--leaf", metavar="ID", help="The history of the path to another entry.")
@click.pass_obj
def history(app: App, ref: str, *, full: bool, leaf: str | None) -> None:
    """Show what a session came to: its digests, and the messages after them."""
    params = {"ref": ref, "cwd": project(), "full": full or None, "leaf": _named(leaf)}
    found = read(app, "history", params, otherwise=READING)
    if show_json(app, found):
        return
    for segment in found["segments"]:
        _segment(app, segment, full=full)
    recent = found["recent"] if full else found["recent"][-RECENT_SHOWN:]
    left_out = len(found["recent"]) - len(recent)
    if left_out:
        put([f"({left_out} messages more; --full shows them)"])
    for one in recent:
        if full:
            render.heading(app, f"{one['n']} {one['role']}", f"  {safe(one['entryId'])}")
            put([render.exact(_shown(one)), ""])
        else:
            put([f"{one['n']:>5}  {one['role']}: {safe(_shown(one))}"])
    folded, total = found["foldedMessages"], found["fullMessageCount"]
    put([f"{total} messages, {folded} of them summed up"])


def _shown(message: dict[str, Any]) -> str:
    """What a message says, or does."""
    return str(message["text"]) or f"[{', '.join(message.get('tools', ()))}]"


def _segment(app: App, segment: dict[str, Any], *, full: bool) -> None:
    first, last = segment["covering_messages"]
    by = f"{segment['generated_at']} by {segment['model']}"
    render.heading(app, f"{first}-{last}", f"  {safe(by)}")
    content = segment["content"]
    if not full:
        content = "\n".join(content.split("\n")[:12])
    _indented(content)
    if segment["files_modified"]:
        put([f"  files: {safe(', '.join(segment['files_modified'][:LISTED_MAX]), 2000)}"])
    put([""])


@click.command()
@click.argument("ref")
@click.pass_obj
def digest(app: App, ref: str) -> None:
    """Sum up what no digest of a session covers yet, but for its newest messages."""
    params = {"ref": ref, "cwd": project()}
    found = ask_daemon(app, "digest", params, seconds=MODEL_SECONDS)
    if show_json(app, found):
        return
    segment = found["segment"]
    if segment is None:
        put([f"nothing to do: {safe(found['reason'])}"])
        return
    first, last = segment["covering_messages"]
    short = found["compression"]
    aim = f"{found['targetCompression']:.0%} was aimed at"
    render.facts(
        (
            ("messages", f"{found['before']} -> {found['after']} ({found['reduction']:g} % less)"),
            ("summed up", f"{first}-{last}"),
            ("tokens saved", found["tokensSaved"]),
            ("compression", "" if short is None else f"{short:.1%} ({aim})"),
            ("topics", ", ".join(found["topics"])),
            ("files", _listed(found["files"])),
            ("model", found["model"]),
        )
    )
    for title in ("commands", "decisions"):
        if found[title]:
            put([f"{title}:", *(f"  {safe(one)}" for one in found[title])])
    put([""])
    _indented(segment["content"])


@click.command()
@click.argument("ref")
@click.option(
    "--strategy",
    type=click.Choice(("pi", "codex", "opencode")),
    help="Whose rules; those of the session's own agent by default.",
)
@click.option("--instructions", metavar="TEXT", help="What the summary should dwell on.")
@click.option("--handoff", is_flag=True, help="Print a document to begin a new session with.")
@click.option("--leaf", metavar="ID", help="As the session was at another entry.")
@click.option(
    "--keep-recent", type=int, metavar="TOKENS", help="What pi's rules keep; 20000 by default."
)
@click.pass_obj
def compact(
    app: App,
    /,
    *,
    ref: str,
    strategy: str | None,
    instructions: str | None,
    handoff: bool,
    leaf: str | None,
    keep_recent: int | None,
) -> None:
    """Sum up a session so that it can go on elsewhere. Nothing in it is changed."""
    params = {
        "ref": ref,
        "cwd": project(),
        "strategy": strategy,
        "instructions": instructions,
        "handoff": handoff or None,
        "leaf": _named(leaf),
        "keepRecentTokens": keep_recent,
    }
    found = read(app, "compact", params, seconds=MODEL_SECONDS, otherwise=READING)
    if show_json(app, found):
        return
    for note in found["notes"]:
        aside(f"indexerd: {safe(note)}")
    if handoff:
        put([render.exact(found["handoff"]).rstrip("\n")])
        return
    render.facts(
        (
            ("strategy", found["strategy"]),
            ("tokens before", found["tokensBefore"]),
            ("first kept", found["firstKeptEntryId"]),
            ("modified", _listed(found["details"]["modifiedFiles"])),
            ("read", _listed(found["details"]["readFiles"])),
            ("model", found["usage"]["model"]),
        )
    )
    put([""])
    _indented(found["summary"])


@click.command("branch-summary")
@click.argument("ref")
@click.argument("leaf")
@click.option("--instructions", metavar="TEXT", help="What the summary should dwell on.")
@click.option("--replace", is_flag=True, help="The instructions take the place of ours.")
@click.pass_obj
def branch_summary(
    app: App, /, *, ref: str, leaf: str, instructions: str | None, replace: bool
) -> None:
    """Sum up a branch that was left, by its last entry; `branches` shows it from then on."""
    params = {
        "ref": ref,
        "cwd": project(),
        "leaf": leaf,
        "instructions": instructions,
        "replaceInstructions": replace or None,
    }
    found = ask_daemon(app, "branch_summary", params, seconds=MODEL_SECONDS)
    if not show_json(app, found):
        _indented(found["summary"])


def _named(leaf: str | None) -> str | None:
    if leaf == "":
        raise UsageError("--leaf takes an entry's id", hint="`indexerd tree REF` shows them")
    return leaf


def _listed(names: list[str]) -> str:
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _indented(text: str) -> None:
    from indexerd.privacy.sanitize import clean_text

    put("  " + line for line in clean_text(text, TEXT_MAX).split("\n"))
