"""`expand`, with all its options, and without a daemon: from store and meta files."""

from __future__ import annotations

from indexerd.cli import declare
from indexerd.cli.ask import local, project, where
from indexerd.cli.fast import NOTHING, complain, expanded, prompt_of, show_expanded
from indexerd.cli.streams import aside
from indexerd.errors import DaemonDownError, IndexerdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.app import App


@declare.command()
@declare.argument("text", default="-")
@declare.option("--session", help="The session that asks: what it was given once stays the same.")
@declare.option("--cwd", help="The project that names are looked for in first; default: here.")
@declare.option("--inline", is_flag=True, help="Print the block, a rule, and the prompt.")
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
    from indexerd.cli.app import App

    backend = local(app or App(None, json=False, color="auto"))
    aside("indexerd: no daemon runs; answering from what is stored")
    found: dict[str, Any] = backend.call("expand", params)
    return found
