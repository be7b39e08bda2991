"""The command that makes one file of a session: export.

It reads the session itself, with or without a daemon: a document of megabytes is nothing for a
socket. What is stored of the session comes from the daemon where one runs. A file is made where
nothing was, 0600; with --force one that is there is removed first. Never in a place where an agent
keeps its sessions.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from indexerd.cli.backend import READING, local, project, read, show, where
from indexerd.cli.printing import exact
from indexerd.cli.streams import put
from indexerd.errors import UsageError
from indexerd.paths import within

if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.main import App
    from indexerd.settings import Settings

FORMATS = ("html", "md", "json")
_OF_DATABASES = ("-wal", "-shm", "-journal")  # files that belong to one
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}


@click.command()
@click.argument("ref")
@click.option("-o", "--output", metavar="FILE", help="Write it there (0600), not to stdout.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="html: the whole tree, in one page for a browser, offline; md: one path, to be read; "
    "json: all of it, for programs. By default what FILE ends in, else html.",
)
@click.option("--leaf", metavar="ID", help="As seen from another entry than the current one.")
@click.option("--redact", is_flag=True, help="Take known kinds of secrets out of every text.")
@click.option("--force", is_flag=True, help="Replace FILE, should it be there.")
@click.pass_obj
def export(
    app: App,
    /,
    *,
    ref: str,
    output: str | None,
    form: str | None,
    leaf: str | None,
    redact: bool,
    force: bool,
) -> None:
    """Make one self-contained file of a session: its tree, texts, digests and metadata.

    Nothing is redacted unless you say --redact: what you give away holds every word, path and
    result of a tool that the session holds, but for very long texts, which are cut and say so.
    """
    if output == "":
        raise UsageError("--output takes a file's name")
    if leaf == "":
        raise UsageError("--leaf takes an entry's id", hint="`indexerd tree REF` shows them")
    chosen = form or _SUFFIXES.get(Path(output or "").suffix.lower(), "html")
    if output is None and not app.json and chosen == "html" and sys.stdout.isatty():
        raise UsageError("a page is nothing for a terminal", hint="name a file: -o FILE.html")
    settings = _settings(app)
    own = where(app).state_dir, where(app).data_dir
    target = None if output is None else _target(output, settings, own, force=force)
    name, text = _made(app, settings, ref, leaf, (chosen, redact))
    if target is None:
        if not show(app, {"format": chosen, "fileName": name, "text": text}):
            _print(text)
        return
    data = text.encode("utf-8", "replace")
    _write(target, data, force=force)
    if not show(app, {"format": chosen, "file": str(target), "bytes": len(data)}):
        put([exact(str(target))])


def _settings(app: App) -> Settings:
    from indexerd.settings import read_config

    return read_config(where(app), os.environ).settings


def _made(
    app: App, settings: Settings, ref: str, leaf: str | None, form: tuple[str, bool]
) -> tuple[str, str]:
    """A name for the file, and its text."""
    from indexerd.daemon.one_session import open_session
    from indexerd.privacy.patterns import compile_patterns
    from indexerd.web.document import Wish
    from indexerd.web.export import export as made

    chosen, redacting = form
    extra = compile_patterns(settings.redact.extra_patterns)
    wish = Wish(for_people=chosen != "json", redact=redacting, extra=extra, leaf=leaf)
    stored = read(app, "get", {"ref": ref, "cwd": project()}, otherwise=READING)
    row = stored["session"]
    with open_session(row, settings, os.environ, Path.home()) as library:
        return made(library, stored, chosen, wish, _kin(app, row))


def _kin(app: App, row: dict[str, Any]) -> dict[str, Any]:
    return local(app).answers.kin(row) if where(app).store.exists() else {}


# -- the file ------------------------------------------------------------------------------------


def _target(output: str, settings: Settings, own: tuple[Path, Path], *, force: bool) -> Path:
    """The file to write; UsageError for one that is there, or where sessions or we keep things.

    `own` are our state and data directories.
    """
    from indexerd.sources.stores import stores

    path = Path(os.path.abspath(output))  # noqa: PTH100 - Path.absolute keeps `..`
    real = os.path.realpath(path)
    beside = [real, *(real.removesuffix(end) for end in _OF_DATABASES)]
    found_in = stores(settings, os.environ, Path.home())
    if any(one.holds(name) for one in found_in for name in beside):
        raise UsageError(f"{path} is where sessions are kept", hint="name a file elsewhere")
    ours = [os.path.realpath(one) for one in (*map(str, own), *(one.meta for one in found_in))]
    if any(within(real, one) for one in ours):
        raise UsageError(f"{path} is where indexerd keeps its own", hint="name a file elsewhere")
    try:
        found = path.lstat()
    except OSError:  # nothing there, or nothing that can be: writing says so
        return path
    if not force:
        raise UsageError(f"{path} exists", hint="name another file, or replace it with --force")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is no file", hint="--force replaces plain files alone")
    return path


def _write(path: Path, data: bytes, *, force: bool) -> None:
    from indexerd.meta.newfile import create, put_over

    if force:
        put_over(path, [data])
    else:
        create(path, [data])


def _print(text: str) -> None:
    """UTF-8, whatever the stream's encoding: a page says that of itself."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
