"""Commands that use other sessions: ask, expand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from indexerd.cli import printing as render
from indexerd.cli.backend import ask as ask_daemon
from indexerd.cli.backend import local, project, read, where
from indexerd.cli.backend import show as show_json
from indexerd.cli.hook import NOTHING, complain, expanded, prompt_of, show_expanded
from indexerd.cli.streams import aside, put, safe
from indexerd.errors import DaemonDownError, IndexerdError, UsageError

if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.main import App

_SECONDS = 30.0  # where a daemon does not say how long it takes at most
SPARE_SECONDS = 5.0  # beyond what the daemon gives a question
EXCERPT_SHOWN = 300


@click.command()
@click.argument("ref")
@click.argument("question", nargs=-1, required=True)
@click.option("--leaf", metavar="ID", help="As seen from another entry.")
@click.pass_obj
def ask(app: App, ref: str, question: tuple[str, ...], leaf: str | None) -> None:
    """Ask one past session a question."""
    if leaf == "":
        raise UsageError("--leaf takes an entry's id", hint="`indexerd tree REF` shows them")
    found = _answered(app, ref, " ".join(question), leaf)
    if show_json(app, found):
        return
    put(
        [
            f"### Session: {safe(found['name'])} (`{safe(found['sessionId'])}`)",
            "",
            f"Confidence: **{safe(found['confidence'])}**",
            "",
        ]
    )
    render.paragraph(found["answerMarkdown"], "  ")
    if found["citations"]:
        put(["", *map(_citation, found["citations"])])
    if found["notes"]:
        put(["", "Notes:", *(f"- {safe(note)}" for note in found["notes"])])


def _citation(one: dict[str, Any]) -> str:
    excerpt = safe(one["excerpt"], EXCERPT_SHOWN)
    return f"[{safe(one['entryId'])}] {safe(one['role'])}: {excerpt}"


def _answered(app: App, ref: str, question: str, leaf: str | None) -> Any:
    params = {"session": ref, "question": question, "leaf": leaf, "cwd": project()}
    otherwise = "looking through the session itself, without a language model"
    return read(app, "query_session", params, seconds=_patience(app), otherwise=otherwise)


def _patience(app: App) -> float:
    """How many seconds an answer may take: what the daemon itself gives it, and a little."""
    try:
        said = ask_daemon(app, "hello", {}).get("settings") or {}
    except DaemonDownError:
        said = {}
    return float(said.get("queryTimeoutSeconds") or _SECONDS) + SPARE_SECONDS


@click.command()
@click.argument("text", default="-")
@click.option("--session", help="The session that asks: what it was given once stays the same.")
@click.option("--cwd", help="The project that names are looked for in first; default: here.")
@click.option("--inline", is_flag=True, help="Print the block, a rule, and the prompt.")
@click.pass_obj
def expand(app: App, text: str, session: str | None, cwd: str | None, inline: bool) -> None:
    """Expand the `@@` references of a prompt: find them, and print the block to inject.

    TEXT is the prompt; `-`, or nothing, reads it from stdin. A reference that means no session,
    or several, is named on stderr; the exit code is 0 all the same, as no prompt is to be held up.
    """
    prompt = prompt_of(text)
    found: dict[str, Any] = NOTHING
    problem: IndexerdError | None = None
    if b"@@" in prompt:
        params = {"text": prompt.decode("utf-8", "replace"), "sessionId": session}
        given = {key: value for key, value in params.items() if value is not None}
        if (where_asked := project(cwd)) is not None:
            given["cwd"] = where_asked
        try:
            found = expanded(str(where(app).socket), given)
        except DaemonDownError:
            found = without_daemon(given, app)
        except IndexerdError as bad:
            problem = bad
    if problem is not None and app.json:
        raise problem
    show_expanded(found, prompt, inline=inline, as_json=app.json, exact=text == "-")
    if problem is not None:
        complain(problem, as_json=False)


def without_daemon(params: dict[str, Any], app: App | None = None) -> dict[str, Any]:
    """Expand from what is stored. Questions stay unanswered: they are a daemon's business."""
    from indexerd.cli.main import App

    backend = local(app or App(None, json=False, color="auto"))
    aside("indexerd: no daemon runs; answering from what is stored")
    found: dict[str, Any] = backend.call("expand", params)
    return found
