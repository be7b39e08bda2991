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
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from indexerd.cli.backend import App, put, safe
from indexerd.cli.main import as_json, command, current, flag
from indexerd.errors import IndexerdError

if TYPE_CHECKING:
    from indexerd.settings import Settings

LEVELS = ("debug", "info", "warning", "error")
POLL_SECONDS = 0.25
_LOOK = "check the path, and its owner and mode"

Check = tuple[str, str, str, str]  # what was looked at; ok, note or bad; what was found; the cure


@command()
def doctor() -> int:
    """Check the set-up, and say what to fix."""
    keys = ("name", "state", "found", "cure")
    checks = [dict(zip(keys, one, strict=True)) for one in _checks(current())]
    if not as_json({"checks": checks}):
        for one in checks:
            put([f"{one['state']:4}  {one['name']}: {safe(one['found'], 2000)}"])
            if one["cure"] and one["state"] != "ok":
                put([f"      {safe(one['cure'])}"])
    return 1 if any(one["state"] == "bad" for one in checks) else 0


def _checks(app: App) -> Iterator[Check]:
    from indexerd.models.registry import Models

    places, loaded = app.places, app.loaded
    yield "python", "ok", sys.version.split()[0], ""
    yield "sqlite", "ok", sqlite3.sqlite_version, ""
    if loaded.problems:
        first = loaded.problems[0]
        found = f"{len(loaded.problems)} problems, first: {first['key']}: {first['message']}"
        yield "configuration", "bad", found, "indexerd config check"
    else:
        yield "configuration", "ok", str(places.config_file), ""
    for name, path in (("state", places.state_dir), ("socket", places.socket.parent)):
        state, found = _looked(path)
        if state == "ok" and not os.access(path, os.W_OK):
            state, found = "bad", f"{path} is not writable"
        yield name, state, found, _LOOK if state == "bad" else "the daemon creates it"
    yield from _stores(loaded.settings)
    models = Models(loaded.settings, os.environ)
    for model in models.available():
        sends = "sends redacted transcripts to its provider" if model.remote else "stays here"
        yield "model", "ok", f"{model.key} ({sends})", ""
    for key, why in models.missing.items():
        yield "model", "note", f"{key}: {why}", ""
    if not models.available():
        yield "models", "bad", "none can be used", "add local/extractive to model_keys"
    try:
        status = app.call("status", {}, 5.0)
        state = "ok" if status["state"] == "ok" else "note"
        found = f"{status['state']}, {status['sessions']} sessions"
        yield "daemon", state, found, "indexerd status"
    except IndexerdError as bad:
        yield "daemon", "note", str(bad), bad.hint


def _looked(path: Path) -> tuple[str, str]:
    """Whether a path is there, and can be examined."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "note", f"{path} does not exist"
    except OSError as bad:
        return "bad", f"{path}: {bad.strerror}"
    return "ok", str(path)


def _stores(settings: Settings) -> Iterator[Check]:
    from indexerd.sources.discovery import SessionDiscovery
    from indexerd.sources.stores import stores

    every = stores(settings, os.environ, Path.home())
    for agent in dict.fromkeys(one.agent for one in every):
        looked = [(one, *_looked(Path(one.sessions))) for one in every if one.agent == agent]
        for _, state, found in looked:
            if state == "bad":
                yield agent, state, found, _LOOK
        if here := [one for one, state, _ in looked if state == "ok"]:
            discovery = SessionDiscovery()
            discovery.renew(here)
            scanned = discovery.scan(here)
            blind = [*scanned.unreadable, *map(str, discovery.troubles.values())]
            where = ", ".join(one.sessions for one in here)
            cure = f"cannot be read: {'; '.join(blind[:3])}" if blind else ""
            found = f"{len(scanned.files)} sessions in {where}"
            yield agent, "bad" if blind else "ok", found, cure
        elif looked[0][1] == "note":
            yield agent, "note", looked[0][2], "its sessions are found once it exists"


@command(
    flag("-f", "--follow", "Keep printing as the log grows."),
    click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True),
    click.option("-n", "--lines", type=click.IntRange(0, 100000), default=50, show_default=True),
)
def logs(*, follow: bool, level: str, lines: int) -> None:
    """Show the log; with --json, one JSON document per line."""
    levels = LEVELS[LEVELS.index(level) :]
    tail = _appended(current().places.log)
    shown = (line for line in tail if line is None or line.get("level", "info") in levels)
    for first in deque(iter(shown.__next__, None), maxlen=lines):
        _print(first or {})
    for line in shown if follow else ():
        if line is None:
            time.sleep(POLL_SECONDS)
        else:
            _print(line)


def _print(line: dict[str, Any]) -> None:
    if not as_json(line):
        moment, level, event = (safe(line.pop(key, "")) for key in ("ts", "level", "event"))
        rest = (f"{safe(key)}={safe(value)}" for key, value in line.items())
        put([" ".join((moment, f"{level or 'info':7}", event, *rest)).rstrip()])


def _appended(path: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of the log and of the one before it; None wherever there are no more for now."""
    former = path.with_name(f"{path.name}.1")
    file = former.open("rb") if former.exists() else None
    while True:
        newer = path.open("rb") if path.exists() else None
        if file:
            yield from _rest(file)  # after opening the newer one: nothing is added to it any more
        if newer and not (file and os.path.sameopenfile(newer.fileno(), file.fileno())):
            file = newer
            yield from _rest(file)
        yield None


def _rest(file: BinaryIO) -> Iterator[dict[str, Any]]:
    while (raw := file.readline()).endswith(b"\n"):
        with suppress(ValueError):
            yield dict(json.loads(raw))
    file.seek(-len(raw), os.SEEK_CUR)  # a line that is being written
