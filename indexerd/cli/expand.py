"""`expand`, with all its options, and without a daemon: from catalog and meta files."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

import click

from indexerd.cli.ask import offline, project, where
from indexerd.cli.fast import NOTHING, complain, expanded, prompt_of, show_expanded
from indexerd.errors import DaemonDownError, IndexerdError

if TYPE_CHECKING:
    from indexerd.cli.main import App


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
    from indexerd.service.config import read_config
    from indexerd.service.issued import Nowhere
    from indexerd.service.references import References

    app = app or App(None, json=False, color="auto")
    answers, home = offline(app)
    click.echo("indexerd: no daemon runs; answering from what is stored", err=True)
    settings = read_config(where(app), os.environ).settings
    references = References(
        answers,
        Nowhere(),
        ask=_unasked,
        home=lambda session_id: home(answers.by_id(session_id)),
        settings=lambda: settings,
        record=lambda _row: None,
        ready=lambda: True,
        clock=time.time,
    )
    return asyncio.run(references.expand(params))


async def _unasked(_session_id: str, _question: str, **_more: Any) -> dict[str, Any]:
    raise DaemonDownError("questions need the daemon")
