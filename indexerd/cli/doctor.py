"""Commands for troubleshooting: `doctor` checks the set-up, `logs` shows the log."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from indexerd.amounts import count
from indexerd.cli import printing as render
from indexerd.cli.backend import App, put, safe
from indexerd.cli.main import as_json, command, current, flag
from indexerd.errors import IndexerdError
from indexerd.privacy.redact import shown_path

if TYPE_CHECKING:
    from indexerd.sources.roots import SessionRoot

LEVEL_NAMES = ("debug", "info", "warning", "error")
POLL_SECONDS = 0.25
PROBE_SECONDS = 2.0

Check = tuple[str, str, str, str]  # name; ok, note or bad; finding; cure


@command()
def doctor() -> int:
    """Check the set-up and say what to fix."""
    keys = ("name", "state", "found", "cure")
    checks = [dict(zip(keys, map(shown_path, words), strict=True)) for words in _checks(current())]
    for check in checks:
        check["cure"] *= check["state"] != "ok"
    if not as_json({"checks": checks}):
        for check in checks:
            line = f"{check['state']:4}  {check['name']}: {safe(check['found'], 2000)}"
            put(render.wrapped(line, " " * 6))
            if check["cure"]:
                put(render.wrapped(f"      {safe(check['cure'])}"))
    return 1 if any(check["state"] == "bad" for check in checks) else 0


def _checks(app: App) -> Iterator[Check]:
    from indexerd.archive.copies import Archive
    from indexerd.archive.retention import deleted_soon
    from indexerd.models.registry import Models
    from indexerd.sources.roots import Layout, session_roots
    from indexerd.store.store import StateStore

    places, loaded = app.places, app.loaded
    there = "" if places.config_file.exists() else "defaults; there is no "
    problems = (": ".join(filter(None, (bad["key"], bad["message"]))) for bad in loaded.problems)
    finding = "; ".join((f"{there}{places.config_file}", *problems))
    yield "configuration", "bad" if loaded.problems else "ok", finding, "indexerd config check"
    for name, path in (("state", places.state_dir), ("socket", places.socket.parent)):
        yield name, *_looked(path, writable=True)
    roots = session_roots(loaded.settings, os.environ, Path.home())
    for root in (root for root in roots if root.layout is not Layout.HISTORY):
        state, finding, cure = _looked(Path(root.sessions))
        if state == "ok":
            yield root.agent, *_scanned(root)
        # No complaint if the agent keeps its sessions in another of its places, which exists.
        elif state == "bad" or not any(
            other.agent == root.agent and other is not root and Path(other.sessions).exists()
            for other in roots
        ):
            wanted = getattr(loaded.settings.agents, root.agent).roots
            if state == "note" and not wanted:  # the agent may not be installed
                state, finding = "ok", f"no sessions; {finding}"
            yield root.agent, state, finding, cure
    with suppress(IndexerdError):  # the daemon says what is wrong with the store
        files = StateStore(places.store, readonly=True).files()
        infos = (info for _, _, info in files if info)
        given = infos, roots, Archive(places.archive), int(1000 * time.time())
        if soon := deleted_soon(*given, archiving=loaded.settings.archive.enabled):
            yield "retention", "note", soon["cause"], soon["cure"]
    models = Models(loaded.settings, os.environ)
    for model in models.available():
        sends = "sends redacted transcripts to its provider" if model.remote else "runs locally"
        down = _refused(loaded.settings.providers.openai.base_url, model.key)
        yield "model", "bad" if down else "ok", f"{model.key} ({down or sends})", "start the server"
    for key, why in models.missing.items():
        yield "model", "note", f"{key}: {why}", "needed only if you want to use this model"
    if not models.available():
        yield "models", "bad", "no model is usable", "add local/extractive to model_keys"
    try:
        status = app.call("status", {}, 5.0)
        finding = f"{status['state']}, {count(status['sessions'], 'session')}"
        yield "daemon", "ok" if status["state"] == "ok" else "note", finding, "indexerd status"
    except IndexerdError as bad:
        yield "daemon", "note", str(bad), bad.hint


def _looked(path: Path, *, writable: bool = False) -> tuple[str, str, str]:
    """Check whether a directory exists and can be used."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "note", f"{path} does not exist", "it will be used once it exists"
    except OSError as bad:
        return "bad", f"{path}: {bad.strerror}", "check the path, and its owner and mode"
    if writable and not os.access(path, os.W_OK):
        return "bad", f"{path} is not writable", "check its owner and mode"
    return "ok", str(path), ""


def _refused(base_url: str, model: str) -> str:
    """Return why a server on this machine cannot be reached; others are not contacted."""
    from indexerd.settings import is_loopback

    url = urlsplit(base_url)
    if not model.startswith("openai/") or not is_loopback(url.hostname):
        return ""
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
        socket.create_connection((url.hostname, port), PROBE_SECONDS).close()
    except OSError as bad:
        return f"no server answers on {base_url}: {bad.strerror or 'timed out'}"
    return ""


def _scanned(root: SessionRoot) -> tuple[str, str, str]:
    from indexerd.sources.roots import Layout
    from indexerd.sources.scan import SessionDiscovery

    discovery = SessionDiscovery()
    discovery.renew([root])
    scan = discovery.scan([root])
    blind = [f"{path}: {why}" for path, (why, _) in scan.unreadable.items()]
    noun = "session" if root.layout is Layout.DATABASE else "file"
    sessions = f"{count(len(scan.files), noun)} in {root.sessions}"
    return "bad" if blind else "ok", sessions, f"cannot be read: {'; '.join(blind[:3])}"


LEVEL = click.option("--level", type=click.Choice(LEVEL_NAMES), default="info", show_default=True)
LINES = click.option("-n", "--lines", type=click.IntRange(0), default=50, show_default=True)


@command(flag("-f", "--follow", "Keep printing as the log grows."), LEVEL, LINES)
def logs(*, follow: bool, level: str, lines: int) -> None:
    """Show the log; with --json, one JSON document per line."""
    levels, offsets = LEVEL_NAMES[LEVEL_NAMES.index(level) :], dict[int, int]()
    newest: int | None = lines
    while True:
        grown = _appended(current().places.log, offsets)
        shown = (line for line in grown if line.get("level", "info") in levels)
        for line in deque(shown, maxlen=newest):
            if not as_json(line):
                moment, kind, event = (safe(line.pop(key, "")) for key in ("ts", "level", "event"))
                rest = (f"{safe(key)}={safe(value)}" for key, value in line.items())
                put([" ".join((moment, f"{kind or 'info':7}", event, *rest)).rstrip()])
        if not follow:
            break
        newest = None
        time.sleep(POLL_SECONDS)


def _appended(path: Path, offsets: dict[int, int]) -> Iterator[dict[str, Any]]:
    """Yield new whole lines of the log and its predecessor; `offsets` are kept by inode."""
    for log in (path.with_name(f"{path.name}.1"), path):
        with suppress(FileNotFoundError), log.open("rb") as file:
            stat = os.fstat(file.fileno())
            offset = offsets.get(stat.st_ino, 0)
            file.seek(offset if offset <= stat.st_size else 0)  # inode numbers are reused
            while (raw := file.readline()).endswith(b"\n"):
                offsets[stat.st_ino] = file.tell()
                with suppress(ValueError):
                    yield dict(json.loads(raw))
