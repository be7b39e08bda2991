"""Commands for troubleshooting: `doctor` checks the set-up piece by piece, `logs` shows the log."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from indexerd.cli.backend import App, put, safe
from indexerd.cli.main import as_json, command, current, flag
from indexerd.errors import IndexerdError

if TYPE_CHECKING:
    from indexerd.paths import Places
    from indexerd.settings import Settings

LEVELS = ("debug", "info", "warning", "error")
POLL_SECONDS = 0.25


class Check(NamedTuple):
    """One thing looked at. `state` is ok, note or bad."""

    name: str
    state: str
    found: str
    cure: str = ""


@command()
def doctor() -> int:
    """Check the set-up, and say what to fix."""
    checks = list(_checks(current()))
    if not as_json({"checks": [one._asdict() for one in checks]}):
        for one in checks:
            put([f"{one.state:4}  {one.name}: {safe(one.found, 2000)}"])
            if one.cure and one.state != "ok":
                put([f"      {safe(one.cure)}"])
    return 1 if any(one.state == "bad" for one in checks) else 0


def _checks(app: App) -> Iterator[Check]:
    places, loaded = app.places, app.loaded
    yield Check("python", "ok", sys.version.split()[0])
    yield Check("sqlite", "ok", sqlite3.sqlite_version)
    if loaded.problems:
        first = loaded.problems[0]
        found = f"{len(loaded.problems)} problems, first: {first['key']}: {first['message']}"
        yield Check("configuration", "bad", found, "indexerd config check")
    else:
        there = "" if _trouble(places.config_file) is None else " (missing: defaults apply)"
        yield Check("configuration", "ok", f"{places.config_file}{there}")
    yield from _places(places)
    yield from _stores(loaded.settings)
    yield from _models(loaded.settings)
    try:
        status = app.call("status", {}, 5.0)
        found, state = f"{status['state']}, {status['sessions']} sessions", status["state"]
        yield Check("daemon", "ok" if state == "ok" else "note", found, "indexerd status")
    except IndexerdError as bad:
        yield Check("daemon", "note", str(bad), bad.hint)


def _places(places: Places) -> Iterator[Check]:
    from indexerd.paths import SOCKET_PATH_MAX

    for name, path in (("state", places.state_dir), ("socket", places.socket.parent)):
        trouble = _trouble(path)
        if trouble:
            yield Check(name, "bad", f"{path}: {trouble}", "check the path, and its owner and mode")
        elif trouble is not None:
            yield Check(
                name, "note", f"{path} does not exist yet", "it is created when the daemon starts"
            )
        elif not os.access(path, os.W_OK) or not path.is_dir():
            yield Check(name, "bad", f"{path} is not writable", "check its owner and mode")
        else:
            yield Check(name, "ok", str(path))
    if len(os.fsencode(places.socket)) > SOCKET_PATH_MAX:
        cure = "set INDEXERD_SOCKET to a shorter path"
        yield Check("socket path", "bad", f"longer than {SOCKET_PATH_MAX} bytes", cure)


def _trouble(path: Path) -> str | None:
    """Why a path cannot be examined, "" if it does not exist, None if it does."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as bad:
        return str(getattr(bad, "strerror", None) or bad)
    return None


def _stores(settings: Settings) -> Iterator[Check]:
    from indexerd.settings import Settings as Defaults
    from indexerd.sources.discovery import SessionDiscovery
    from indexerd.sources.stores import stores

    every = stores(settings, os.environ, Path.home())
    bare = {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    usual = {one.sessions for one in stores(Defaults(), bare, Path.home())}
    for agent in dict.fromkeys(one.agent for one in every):
        looked = {one: _trouble(Path(one.sessions)) for one in every if one.agent == agent}
        here = [one for one, trouble in looked.items() if trouble is None]
        for one, trouble in looked.items():
            if trouble:
                yield Check(
                    agent,
                    "bad",
                    f"{one.sessions}: {trouble}",
                    "check the path, and its owner and mode",
                )
        if not here and not any(looked.values()):
            first = next(iter(looked)).sessions
            state = "ok" if first in usual else "note"  # somebody named that place
            yield Check(
                agent, state, f"{first} does not exist", "its sessions are found once it exists"
            )
        if here:
            discovery = SessionDiscovery()
            discovery.renew(here)
            found = discovery.scan(here)
            blind = [*found.unreadable, *map(str, discovery.troubles.values())]
            where = f"{len(found.files)} sessions in {', '.join(one.sessions for one in here)}"
            cure = f"cannot be read: {'; '.join(blind[:3])}" if blind else ""
            yield Check(agent, "bad" if blind else "ok", where, cure)


def _models(settings: Settings) -> Iterator[Check]:
    from indexerd.models.registry import Models

    models = Models(settings, os.environ)
    for model in models.available():
        sends = "sends redacted transcripts to its provider" if model.remote else "stays here"
        yield Check("model", "ok", f"{model.key} ({sends})")
    for key, why in models.missing.items():
        yield Check("model", "note", f"{key}: {why}")
    if not models.available():
        yield Check("models", "bad", "none can be used", "add local/extractive to model_keys")


@command(
    flag("-f", "--follow", "Keep printing as the log grows."),
    click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True),
    click.option("-n", "--lines", type=click.IntRange(0, 100000), default=50, show_default=True),
)
def logs(*, follow: bool, level: str, lines: int) -> None:
    """Show the log; with --json, one JSON document per line."""
    levels = LEVELS[LEVELS.index(level) :]
    tail = _appended(current().places.log)
    shown = (line for line in tail if line is None or str(line.get("level", "info")) in levels)
    for first in deque(iter(shown.__next__, None), maxlen=lines):
        _print(first)
    for line in shown if follow else ():
        if line is None:
            time.sleep(POLL_SECONDS)
        else:
            _print(line)


def _print(line: dict[str, Any] | None) -> None:
    if line is None or as_json(line):
        return
    moment, level, event = (safe(line.pop(key, "")) for key in ("ts", "level", "event"))
    rest = (f"{safe(key)}={safe(value)}" for key, value in line.items())
    put([" ".join((moment, f"{level or 'info':7}", event, *rest)).rstrip()])


def _appended(path: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of the log, and None wherever there are no more for now.

    A file stays open, so that what was written to it last, before it was rotated away, is read.
    """
    file = _opened(path.with_name(f"{path.name}.1"))
    while True:
        newer = _opened(path)  # first: to a file that was moved away nothing is added
        if file:
            yield from _rest(file)
        if newer and not (file and os.path.sameopenfile(newer.fileno(), file.fileno())):
            file = newer
            yield from _rest(file)
        yield None


def _opened(path: Path) -> BinaryIO | None:
    return path.open("rb") if path.exists() else None


def _rest(file: BinaryIO) -> Iterator[dict[str, Any]]:
    if os.fstat(file.fileno()).st_size < file.tell():
        file.seek(0)  # emptied by somebody else
    while (raw := file.readline()).endswith(b"\n"):
        with suppress(ValueError):
            yield dict(json.loads(raw))
    file.seek(-len(raw), os.SEEK_CUR)  # a line that is being written
