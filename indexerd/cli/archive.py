"""`archive` and `restore`: keep compressed copies of sessions, and put them back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any

import click

from indexerd.amounts import count
from indexerd.archive.copies import GONE, LIVE, Archive, Source
from indexerd.cli import printing as render
from indexerd.cli.backend import aside, json_text, project
from indexerd.cli.main import REF, as_json, command, current, option
from indexerd.disk import create_file, make_directory
from indexerd.errors import DaemonDownError, NotFoundError, UsageError, WriteError
from indexerd.paths import directory_of
from indexerd.sources.opencode_copy import exported


def _archive() -> Archive:
    return Archive(current().places.archive)


def _switch(*, on: bool) -> str:
    """Write `[archive] enabled` to the configuration, and have the daemon read it."""
    import tomlkit

    from indexerd.integrations.changes import Edit, Text, apply

    file = current().places.config_file
    if file.suffix == ".json":
        raise UsageError(f"set archive.enabled in {file} yourself", hint="then reload the daemon")

    def change(text: Text) -> Text:
        document = tomlkit.parse(text or "")
        document.setdefault("archive", tomlkit.table())["enabled"] = on
        return tomlkit.dumps(document)

    done = apply([Edit(str(file), change)])
    if as_json({"enabled": on, "file": str(file), "did": done[0]["did"]}):
        return ""
    try:
        os.kill(current().call("hello", {})["pid"], signal.SIGHUP)
    except (DaemonDownError, ProcessLookupError):
        aside("the daemon is not running; it will read this when it starts")
    return f"{'on' if on else 'off'}: {render.exact(str(file))}"


@command()
def on() -> str:
    """Keep copies of all sessions from now on."""
    return _switch(on=True)


@command()
def off() -> str:
    """Make no more copies; those that exist stay."""
    return _switch(on=False)


@command()
def status() -> Iterator[str]:
    """Show how many sessions have copies, and their size."""
    archive, settings = _archive(), current().loaded.settings.archive
    answer = {"enabled": settings.enabled, "directory": str(archive.directory)}
    answer |= {"maxGb": settings.max_gb}
    for kind in (LIVE, GONE):
        found = [*archive.entries(kind)]
        answer[f"{kind}Sessions"] = sum(source.is_session for source, _ in found)
        answer[f"{kind}Bytes"] = sum(status.st_size for _, status in found)
    if not as_json(answer):
        answer["archive"] = "on" if answer.pop("enabled") else "off"
        yield from render.fields(answer, f"archive {' '.join(answer)}")


archive = click.Group(
    "archive", [on, off, status], help="Keep copies of sessions, in case their agents delete them."
)


def _restore_rows(source: Source, row: dict[str, Any], to: str | None) -> str:
    """Have opencode import a session, or with `to` write a file for that; return where it is."""
    session = json_text(exported(_archive().rows(source)))
    with TemporaryDirectory() as temporary:
        file = Path(to or temporary, f"{row['sessionId']}.json")
        make_directory(file.parent)
        create_file(file, [session.encode()])
        if to:
            return str(file)
        env = os.environ | {"OPENCODE_DB": source.root}
        words = ["opencode", "import", str(file)]
        try:
            subprocess.run(words, cwd=directory_of(row), env=env, stdout=DEVNULL, check=True)  # noqa: S603 - ours
        except (OSError, subprocess.CalledProcessError) as bad:
            hint = "`--to DIR` writes a file for `opencode import`"
            raise WriteError(f"opencode cannot import it: {bad}", hint=hint) from None
    return source.path


@command(REF, option("--to", "Restore below this directory.", metavar="DIR", type=project))
def restore(ref: str, to: str | None) -> Iterator[str]:
    """Put an archived session back where its agent looks, byte for byte.

    A file that exists is never overwritten. opencode imports its sessions itself.
    """
    row = current().call("get", {"ref": ref, "cwd": project()})["session"]
    if "machine" in row:
        raise UsageError(f"its copy would be on {row['machine']}", hint="restore it there")
    archive = _archive()
    source = archive.find(row["sessionFile"])
    files = archive.gone(source) if source else []
    if source is None or not files:
        gone = "the archive has no copy of this session"
        raise NotFoundError(gone if row["gone"] else "the session's file is there already")
    written: list[str] = []
    if source.in_database:
        files = []
        written = [_restore_rows(source, row, to)]
    for each in files:
        below = os.path.relpath(each.path, Path(source.path).parent)
        target = f"{to}/{below}" if to else each.path
        archive.restore(each, target)
        written.append(target)
    if not as_json({"sessionId": row["sessionId"], "files": written}):
        yield from map(render.exact, written)
        aside(f"restored: {count(len(written), 'file')}")
