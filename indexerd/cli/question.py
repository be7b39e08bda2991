"""`ask`: an answer from one past session, with citations.

A daemon asks the configured models, and may take as long as they are given. Without one, the
session is read here and looked through by the built-in model alone; that is said on stderr.

The answer is somebody else's text: it is indented, and what stands at the margin is ours.
"""

from __future__ import annotations

from indexerd.cli import declare, render
from indexerd.cli.ask import ask as ask_daemon
from indexerd.cli.ask import project, read
from indexerd.cli.ask import show as show_json
from indexerd.cli.streams import put, safe
from indexerd.errors import DaemonDownError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.app import App

_SECONDS = 30.0  # where a daemon does not say how long it takes at most
SPARE_SECONDS = 5.0  # beyond what the daemon gives a question
EXCERPT_SHOWN = 300


@declare.command()
@declare.argument("ref")
@declare.argument("question", nargs=-1, required=True)
@declare.option("--leaf", metavar="ID", help="As seen from another entry.")
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
