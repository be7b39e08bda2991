"""How commands get their answers: from the daemon, or, where none runs, from what it left.

Reads without a daemon come from catalog and meta files through the same code, and say so on
stderr. What changes something needs the daemon.
"""

from __future__ import annotations

import os

from indexerd.cli.streams import aside, json_text, put, safe
from indexerd.client import Client
from indexerd.errors import DaemonDownError
from indexerd.sockets import socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from indexerd.cli.app import App
    from indexerd.daemon.answers import Answers
    from indexerd.paths import Places

TIMEOUT_SECONDS = 30.0


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


def read(app: App, method: str, params: dict[str, Any]) -> Any:
    """Ask the daemon, or answer from what is stored."""
    try:
        return ask(app, method, params)
    except DaemonDownError:
        given = {key: value for key, value in params.items() if value is not None}
        aside("indexerd: no daemon runs; answering from what is stored")
        return stored(app, method, given)


def stored(app: App, method: str, given: dict[str, Any]) -> Any:
    """Answer a question that only looks, without a daemon."""
    answers, home = offline(app)
    if method == "get":
        return answers.get(given, home)
    if method == "as_sent":
        return _as_sent(app, answers.row(given["ref"], cwd=given.get("cwd")))
    return getattr(answers, method)(given)


def offline(app: App) -> tuple[Answers, Any]:
    """What is stored, and what says where a session's meta file is; no daemon is needed."""
    import time

    from indexerd.daemon.answers import Answers
    from indexerd.store.catalog import Catalog

    path = where(app).catalog
    catalog = Catalog.open(path, readonly=True)
    if not path.exists():
        hint = "`indexerd run --once` reads your sessions"
        aside(f"indexerd: nothing is stored yet: {hint}")
    elif catalog.problem:
        aside(f"indexerd: {safe(catalog.problem)}")
    answers = Answers(catalog, time.time, _hidden(app))
    return answers, lambda row: _meta_dir(app, row)


def _hidden(app: App) -> Callable[[dict[str, Any]], bool] | None:
    """What the user excluded, should no daemon have taken it out since."""
    from pathlib import Path

    from indexerd.daemon.forgotten import Forgotten
    from indexerd.privacy.exclusions import Exclusions
    from indexerd.settings.file import read_config

    globs = read_config(where(app), os.environ).settings.privacy.exclude
    forgotten = Forgotten(where(app).state_dir)
    if not globs and not forgotten:
        return None
    home = str(Path.home())
    exclusions = Exclusions(lambda: [home + one[1:] if one[:2] == "~/" else one for one in globs])
    exclusions.forgotten = forgotten
    exclusions.renew()
    return lambda row: exclusions.match(row["sessionFile"], row["cwd"], row["sessionId"])


def _as_sent(app: App, row: dict[str, Any]) -> dict[str, Any]:
    from pathlib import Path

    from indexerd.indexing.preview import without_daemon
    from indexerd.settings.file import read_config

    settings = read_config(where(app), os.environ).settings
    return without_daemon(row, settings, os.environ, Path.home())


def _meta_dir(app: App, row: dict[str, Any]) -> str | None:
    """Where the session's meta file is, by the configuration."""
    from pathlib import Path

    from indexerd.settings.file import read_config
    from indexerd.sources.stores import stores

    settings = read_config(where(app), os.environ).settings
    found = stores(settings, os.environ, Path.home())
    store = next((one for one in found if one.holds(row["sessionFile"])), None)
    return store.meta if store else None


def show(app: App, result: Any) -> bool:
    """With `--json`, print the result; says whether that was asked for."""
    if app.json:
        put([json_text(result)])
    return app.json
