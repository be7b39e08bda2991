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
from indexerd.cli.backend import aside, json_text, place, project
from indexerd.cli.main import REF, as_json, command, current, option
from indexerd.cli.sessions import check_place
from indexerd.disk import create_file, make_directory
from indexerd.errors import ConfigError, DaemonDownError, NotFoundError, UsageError, WriteError
from indexerd.paths import directory_of
from indexerd.sources.opencode_copy import exported


def _archive() -> Archive:
    return Archive(current().places.archive)


def _switch(*, on: bool) -> str:
    """Write `[archive] enabled` to the configuration, and have the daemon read it."""
    import tomlkit

    from indexerd.integrations.changes import Edit, Text, apply

    file, loaded = current().places.config_file, current().loaded
    if file.suffix == ".json":
        raise UsageError(f"set archive.enabled in {file} yourself", hint="then reload the daemon")
    if loaded.problems:
        raise ConfigError(loaded.problems)
    if (source := loaded.sources.get("archive.enabled", str(file))) != str(file):
        raise UsageError(f"{source} in the environment decides this", hint="unset it")

    def change(text: Text) -> Text:
        document = tomlkit.parse(text or "")
        document.setdefault("archive", tomlkit.table())["enabled"] = on
        return tomlkit.dumps(document)

    done = apply([Edit(str(file), change)])
    try:
        os.kill(current().call("hello", {})["pid"], signal.SIGHUP)
    except (DaemonDownError, ProcessLookupError):
        aside("the daemon is not running; it will read this when it starts")
    if as_json({"enabled": on, "file": str(file), "did": done[0]["did"]}):
        return ""
    where = render.exact(str(file))
    if not on:
        return f"no more copies are made; those that exist stay (set in {where})"
    copies = render.exact(str(_archive().directory))
    return f"the daemon keeps copies of all sessions from now on in {copies} (set in {where})"


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
    answer: dict[str, Any] = {"enabled": settings.enabled, "directory": str(archive.directory)}
    answer |= {"maxGb": settings.max_gb}
    for kind in (LIVE, GONE):
        found = [*archive.entries(kind)]
        answer[f"{kind}Sessions"] = sum(source.is_session for source, _ in found)
        answer[f"{kind}Bytes"] = sum(status.st_size for _, status in found)
    if not as_json(answer):
        gone, live = answer["goneSessions"], answer["liveSessions"]
        yield f"{'on' if settings.enabled else 'off'}: {render.exact(str(archive.directory))}"
        yield f"copies of {count(live, 'session')}, and of {gone:,} whose file is gone"
        size = answer["liveBytes"] + answer["goneBytes"]
        shown = f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"  # noqa: PLR2004 - a gigabyte
        yield f"{shown} of at most {settings.max_gb:g} GB"


archive = click.Group(
    "archive", [on, off, status], help="Keep copies of sessions, in case their agents delete them."
)


def _restore_rows(source: Source, row: dict[str, Any], to: str | None) -> str:
    """Have opencode import a session, or with `to` write a file for that; return where it is."""
    hint = "`--to DIR` writes a file for `opencode import`"
    if not to:
        check_place(row, hint)
    session = json_text(exported(_archive().rows(source)))
    with TemporaryDirectory() as temporary:
        file = Path(to or temporary, f"{Path(source.path).name}.json")
        make_directory(file.parent)
        create_file(file, [session.encode()])
        if to:
            return str(file)
        env = os.environ | {"OPENCODE_DB": source.root}
        words = ["opencode", "import", str(file)]
        try:
            subprocess.run(words, cwd=directory_of(row), env=env, stdout=DEVNULL, check=True)  # noqa: S603 - ours
        except (OSError, subprocess.CalledProcessError) as bad:
            raise WriteError(f"opencode cannot import it: {bad}", hint=hint) from None
    if not source.is_there():
        raise WriteError("opencode did not import it", hint=hint)
    return source.path


def _files(archive: Archive, row: dict[str, Any]) -> list[Source]:
    """List the files to restore: a session's, and those of its sub-agents."""
    source = archive.find(row["sessionFile"])
    files = archive.gone(source) if source else []
    if row["agent"] == "codex":  # where a session that was reverted has several
        every = (each for kind in (GONE, LIVE) for each, _ in archive.entries(kind))
        own = (each for each in every if row["sessionId"] in os.path.basename(each.path))  # noqa: PTH119 - text
        files += [each for each in own if not each.is_there()]
    if row["agent"] == "opencode":
        family = current().call("family", {"ref": row["sessionId"]})["members"]
        below = (one for one in family if one.get("parentSessionId") == row["sessionId"])
        ids = [one["sessionId"] for one in below if one["subagent"] and one["archived"]]
        rows = (current().call("get", {"ref": key})["session"] for key in ids)
        files += [each for child in rows for each in _files(archive, child)]
    return [*dict.fromkeys(files)]


@command(REF, option("--to", "Restore below this directory.", metavar="DIR", type=place))
def restore(ref: str, to: str | None) -> Iterator[str]:
    """Put an archived session back where its agent looks, byte for byte.

    A file that exists is never overwritten. opencode imports its sessions itself.
    """
    row = current().call("get", {"ref": ref, "cwd": project()})["session"]
    if "machine" in row:
        raise UsageError(f"its copy would be on {row['machine']}", hint="restore it there")
    archive = _archive()
    files = _files(archive, row)
    if not files:
        if not row["gone"]:
            hint = f"nothing to restore: {render.exact(row['sessionFile'])}"
            raise NotFoundError("the session's file is there already", hint=hint)
        raise NotFoundError("the archive has no copy of this session", hint="it cannot be restored")
    written: list[str] = []
    top = os.path.commonpath([os.path.dirname(each.path) for each in files])  # noqa: PTH120 - text
    for each in files:
        if each.in_database:
            written.append(_restore_rows(each, row, to))
            continue
        target = f"{to}/{os.path.relpath(each.path, top)}" if to else each.path
        archive.restore(each, target)
        written.append(target)
    if not as_json({"sessionId": row["sessionId"], "files": written}):
        yield from map(render.exact, written)
        aside(f"restored: {count(len(written), 'file')}")
