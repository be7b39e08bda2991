"""Commands for references, questions and context sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from indexerd.cli import hook
from indexerd.cli import main as cli
from indexerd.cli import printing as render
from indexerd.cli.backend import aside, safe

ASKING = cli.option("--session", "sessionId", "The session that asks.", metavar="ID")
INLINE = cli.flag("--inline", "Print the block, a rule, and the prompt.")
QUESTION = cli.argument(
    "question", nargs=-1, required=True, callback=lambda _c, _p, words: " ".join(words)
)
NAME = cli.argument("set_name", metavar="NAME")
SET = cli.argument("set_name", metavar="[NAME]", required=False)
ITEMS = cli.argument("items", nargs=-1, metavar="[ITEM]...")
MERGE = cli.option(
    "--merge", "mode", "Add to the set instead of replacing it.", is_flag=True, flag_value="merge"
)
RESUME = cli.option("--resume-id", "Identifies this resume: its block is given once.", metavar="ID")


@cli.command(cli.argument("text", default="-"), ASKING, cli.HERE, INLINE)
def expand(text: str, *, inline: bool, **params: Any) -> int:
    """Expand the `@@` references of a prompt.

    Prints the block to inject. TEXT is the prompt; `-`, or nothing, reads it from stdin. A
    reference that fits no session, or several, is named on stderr. The exit code is 0 even then, so
    that no prompt is held up.
    """
    return hook.expand(cli.current(), text, params, inline=inline)


@cli.method("query_session", cli.SESSION, QUESTION, cli.LEAF)
def ask(found: Any) -> Iterator[str]:
    """Ask one past session a question."""
    yield f"### Session: {safe(found['name'])} (`{safe(found['sessionId'])}`)"
    yield from ("", f"Confidence: **{safe(found['confidence'])}**", "")
    yield from (*render.paragraph(found["answerMarkdown"], "  "), "")
    for one in found["citations"]:
        yield f"[{safe(one['entryId'])}] {safe(one['role'])}: {safe(one['excerpt'], 300)}"
    yield from (f"note: {safe(note)}" for note in found["notes"])


@cli.method("set_relevant_context", cli.SESSION, NAME, ITEMS, MERGE)
def context_set(found: Any) -> str:
    """Note what a session works with.

    NAME is files, applet, endpoints, ports, or your own. At most 10 items in a set, and 50 in all
    sets; without an item the set is cleared. Files are best named by absolute paths; relative ones
    are resolved from the session's directory.
    """
    for warning in found["warnings"]:
        aside(f"indexerd: {safe(warning, 4000)}")
    return safe(found["text"])


@cli.method("get_relevant_context", cli.SESSION, SET)
def context_get(found: Any) -> Iterator[str]:
    """Show what was noted for a session: all sets, or one."""
    rows = [(name, item) for name, items in found["context"].items() for item in items]
    yield from render.table(("set", "item"), rows)
    if not rows:
        aside("nothing is noted")


@cli.method("resume_context", cli.SESSION, RESUME)
def resume_context(found: Any) -> list[str]:
    """Print the block for the first message after a resume, once."""
    return hook.lines(found)


@cli.method("footer", cli.REF)
def footer(found: Any) -> str:
    """Print a session's first files and its applet in one line."""
    return safe(found["text"])
