"""Commands that serve until they are interrupted: run, web, mcp.

`web`: where a view runs already (the daemon's, by `[web] listen`, or another terminal's), its link
is printed, and nothing is started. A browser is given a file of ours that leads there: every user
of the machine can read the arguments of every process, and a link lets its bearer in.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

import indexerd
from indexerd.cli import printing as render
from indexerd.cli.backend import App, project
from indexerd.cli.command import argument, as_json, command, current, flag, option
from indexerd.cli.streams import aside, put
from indexerd.errors import ConfigError, IndexerdError, WriteError
from indexerd.mcp.hosts import HOSTS, carried, snippet

if TYPE_CHECKING:
    from indexerd.daemon.daemon import Daemon
    from indexerd.settings import Loaded, Settings
    from indexerd.web.server import Running


@contextmanager
def loading() -> Iterator[None]:
    """Around the imports of a server: what they make is never garbage."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def program() -> tuple[str, ...]:
    """How to call this program from anywhere, however this process was started.

    The script of this very installation; without one, this interpreter. A script that is merely
    first on PATH may be of another version.
    """
    package = Path(indexerd.__file__).resolve().parent.parent
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    own = [one for one in schemes if Path(sysconfig.get_path("purelib", one)).resolve() == package]
    folders = [Path(sysconfig.get_path("scripts", one)) for one in own]
    for script in (folder / "indexerd" for folder in (*folders, Path(sys.executable).parent)):
        if script.is_file() and os.access(script, os.X_OK):
            return (str(script.absolute()),)
    # -P: not the directory that an agent happens to work in, which may have such a package itself
    return (sys.executable, "-P", "-m", "indexerd")


def _called(app: App, *words: str) -> list[str]:
    """A command line of this program, with the configuration that was given."""
    config = ["--config", os.path.abspath(app.config)] if app.config else []  # noqa: PTH100 - keeps no `..`
    return [*program(), *config, *words]


def _need(extra: str, what: str, *packages: str) -> None:
    """Raise IndexerdError where optional packages are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise IndexerdError(
            f"{what} needs packages that are not installed: {', '.join(missing)}",
            hint=f"install it with indexerd: `uv tool install 'indexerd[{extra}]'`, or"
            f" `pip install 'indexerd[{extra}]'`",
        )


def _daemon(app: App, *, once: bool, again: bool = False) -> tuple[Daemon, Loaded]:
    """A daemon that may begin, or one pass of it, and the settings it was given."""
    with loading():
        from indexerd import logs
        from indexerd.daemon.daemon import Daemon, Start
        from indexerd.daemon.process import make_private

    os.umask(0o077)
    places, loaded = app.places, app.loaded
    make_private(places.state_dir)

    def set_logging(settings: Settings) -> None:
        level = "warning" if once and settings.log.level == "info" else settings.log.level
        logs.configure(level, settings.log.format, log_file=places.log, stderr=sys.stderr)

    set_logging(loaded.settings)
    view = _called(app, "web", "--beside-daemon", "--listen")
    start = Start(places, loaded, os.environ, app.home, set_logging, view, again)
    try:
        return Daemon(start, watching=not once), loaded
    except WriteError as bad:  # a full disk: unlike 75, exit code 1 has systemd start us again
        raise bad if once else IndexerdError(str(bad), hint=bad.hint) from None


@command(flag("--once", "Scan, index what is due, and end."))
def run(*, once: bool) -> int:
    """Run the daemon in the foreground; --once for a single pass."""
    daemon, loaded = _daemon(current(), once=once)
    if not once:
        from indexerd.daemon.daemon import RESTART

        code = asyncio.run(daemon.serve())
        if code == RESTART:  # a cache was damaged: another daemon begins without it
            code = asyncio.run(_daemon(current(), once=False, again=True)[0].serve())
        return code
    report = asyncio.run(daemon.once())
    if loaded.problems:
        raise ConfigError(loaded.problems)
    if not as_json(report.to_json()):
        rows = [(done.session_id, "indexed", done.model) for done in report.indexed]
        rows += [(session_id, "digested", "") for session_id in report.digested]
        rows += [(session_id, "failed", kind) for session_id, kind, _ in report.failed]
        put(render.table(("session", "", "model or reason"), rows))
        aside(
            f"{report.sessions} sessions, {len(report.indexed)} indexed, "
            f"{report.skipped} not due, {len(report.failed)} failed"
        )
    return report.exit_code


@command(
    option(
        "--print-config",
        "host",
        "Print what this host's configuration needs, and end.",
        type=click.Choice([*HOSTS]),
    )
)
def mcp(host: str | None) -> None:
    """Serve coding agents by the Model Context Protocol, on stdin and stdout."""
    app = current()
    if host is not None:
        aside(f"# {HOSTS[host]}:")
        sys.stdout.write(snippet(host, _called(app, "mcp"), carried(os.environ)))
        return
    _need("mcp", "the MCP server", "mcp")
    with loading():
        from indexerd.mcp.daemon import DaemonAccess
        from indexerd.mcp.server import serve

    serve(DaemonAccess(app.places, os.environ, cwd=project()))


@command(
    argument("ref", required=False),
    option(
        "--listen",
        "Serve there, on loopback; port 0 is a free one. By default [web] listen, or a free port.",
        metavar="HOST:PORT",
    ),
    flag("--no-open", "Print the link, and open no browser."),
    click.option("--beside-daemon", is_flag=True, hidden=True),
)
def web(ref: str | None, listen: str | None, *, no_open: bool, beside_daemon: bool) -> int:
    """Look at sessions in a browser: home, search, trees, live.

    Prints a link that works once, within five minutes, and opens it where there is a screen. Serves
    until it is interrupted, unless a view of yours runs already.
    """
    _need("web", "the web view", "jinja2", "sse_starlette", "starlette", "uvicorn")
    app, path = current(), "/"
    if ref is not None:
        found = app.read("resolve", {"ref": ref, "cwd": project()})
        path = f"/s/{quote(found['sessionId'], safe='')}"
    with loading():
        from indexerd.web.daemon import Daemon
        from indexerd.web.server import find_running, serve

    def announce(running: Running) -> None:
        put([running.url])

    ready = announce if beside_daemon else partial(_ready, app, path, opening=not no_open)
    if (
        not beside_daemon
        and listen is None
        and (running := find_running(app.places.state_dir)) is not None
    ):
        ready(running)
        return 0
    os.umask(0o077)
    daemon = Daemon(
        app.places, os.environ, home=app.home, stored=lambda *call: app.local().call(*call)
    )
    address = listen or ("" if beside_daemon else app.settings.web.listen) or "127.0.0.1:0"
    return serve(daemon, listen=address, child=beside_daemon, on_ready=ready, on_error=_complain)


def _ready(app: App, path: str, running: Running, *, opening: bool) -> None:
    """Print where the view is, and open it."""
    from indexerd.web.auth import login_link, open_page

    state_dir, own = app.places.state_dir, running.pid == os.getpid()
    link = login_link(state_dir, running.url, path)
    if not as_json({"url": running.url, "link": link, "pid": running.pid}):
        put([link])
    if own:
        aside("serving until interrupted (Ctrl-C)")
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # else it would open in this terminal
    if opening and (sys.platform == "darwin" or any(map(os.environ.get, screens))):
        import webbrowser

        page = open_page(state_dir, link).as_uri()
        opener = threading.Thread(target=webbrowser.open, args=(page,), daemon=True)
        opener.start()
        if not own:
            opener.join()  # else not: a browser that stays needs an answer from us


def _complain(bad: BaseException) -> None:
    """Report what no page foresaw: a defect's place, and nothing of what it was about."""
    if isinstance(bad, IndexerdError):
        aside(f"indexerd: {bad}")
        return
    frames = traceback.extract_tb(bad.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    aside(f"indexerd: a defect: {type(bad).__name__} at {place}")
