"""How commands get their answers: from the daemon, or, where none runs, from what it left.

Without a daemon the same handlers answer in this process, and a note on stderr says so. What
changes something needs the daemon.
"""

from __future__ import annotations

import os

from indexerd.cli.streams import aside, json_text, put, safe
from indexerd.client import Client
from indexerd.errors import DaemonDownError
from indexerd.sockets import socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.main import App
    from indexerd.daemon.local import LocalBackend
    from indexerd.paths import Places

TIMEOUT_SECONDS = 30.0
READING = "reading the session itself"


def where(app: App) -> Places:
    """The places of this command."""
    from indexerd.paths import places

    return places(config=app.config)


def project(named: str | None = None) -> str | None:
    """The directory that a question is about, absolute: the one named, or the current one.

    None where the current one was removed: then all projects are meant.
    """
    try:
        return os.path.abspath(named or ".")  # noqa: PTH100 - Path.absolute keeps `..`
    except FileNotFoundError:
        return None


def ask(_app: App, method: str, params: dict[str, Any], *, seconds: float = TIMEOUT_SECONDS) -> Any:
    """Ask the daemon; DaemonDownError where none runs."""
    given = {key: value for key, value in params.items() if value is not None}
    with Client(socket_path(os.environ), timeout=seconds) as client:
        return client.call(method, given)


def read(
    app: App,
    method: str,
    params: dict[str, Any],
    *,
    seconds: float = TIMEOUT_SECONDS,
    otherwise: str = "answering from what is stored",
) -> Any:
    """Ask the daemon, or this process; `otherwise` says on stderr what that means."""
    try:
        return ask(app, method, params, seconds=seconds)
    except DaemonDownError:
        given = {key: value for key, value in params.items() if value is not None}
        aside(f"indexerd: no daemon runs; {otherwise}")
        return local(app).call(method, given)


def local(app: App) -> LocalBackend:
    """What answers in this process."""
    from pathlib import Path

    from indexerd.daemon.local import LocalBackend

    return LocalBackend(
        where(app), os.environ, Path.home(), lambda text: aside(f"indexerd: {safe(text)}")
    )


def show(app: App, result: Any) -> bool:
    """With `--json`, print the result; says whether that was asked for."""
    if app.json:
        put([json_text(result)])
    return app.json
