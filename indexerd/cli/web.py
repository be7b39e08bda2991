"""The command `web`: sessions in a browser, on this machine alone.

Where a view runs already (the daemon's, by `[web] listen`, or another terminal's), its link is
given, and nothing is started. Otherwise this process serves until it is interrupted. A browser is
given a file of ours that leads there: every user of the machine can read the arguments of every
process, and a link lets its bearer in.

The web framework is imported when the view is served, and nowhere else in the program: it is an
extra.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click

from indexerd.cli.backend import local, project, read, show, where
from indexerd.cli.run import Loading
from indexerd.cli.streams import aside, put
from indexerd.errors import IndexerdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from indexerd.cli.main import App
    from indexerd.web.server import Running

FREE = "127.0.0.1:0"
NEEDS = ("jinja2", "sse_starlette", "starlette", "uvicorn")


@click.command()
@click.argument("ref", required=False)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve there, on loopback; port 0 is a free one. By default [web] listen, or a free port.",
)
@click.option("--no-open", is_flag=True, help="Print the link, and open no browser.")
@click.option("--beside-daemon", is_flag=True, hidden=True)
@click.pass_obj
def web(
    app: App, /, *, ref: str | None, listen: str | None, no_open: bool, beside_daemon: bool
) -> int:
    """Look at sessions in a browser: home, search, trees, live.

    Prints a link that works once, within five minutes, and opens it where there is a screen. Serves
    until it is interrupted, unless a view of yours runs already.
    """
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise IndexerdError(
            f"the web view needs packages that are not installed: {', '.join(missing)}",
            hint="install it with indexerd: `uv tool install 'indexerd[web]'`, or"
            " `pip install 'indexerd[web]'`",
        )
    path = "/" if ref is None else _page(app, ref)
    if beside_daemon:
        return _serve(app, listen or FREE, lambda running: _say(running.url), child=True)
    ready = partial(_ready, app, path, opening=not no_open)
    if listen is None:
        with Loading():
            from indexerd.web.server import find_running

        running = find_running(where(app).state_dir)
        if running is not None:
            ready(running)
            return 0
    return _serve(app, listen or _place(app), ready)


def _page(app: App, ref: str) -> str:
    """The page of the session that is meant."""
    found = read(app, "resolve", {"ref": ref, "cwd": project()})
    return f"/s/{quote(found['sessionId'], safe='')}"


def _place(app: App) -> str:
    """Where to listen: a port that nobody can know beforehand, unless the user wants one."""
    from indexerd.settings import read_config

    return read_config(where(app), os.environ).settings.web.listen or FREE


def _serve(app: App, listen: str, ready: Any, *, child: bool = False) -> int:
    with Loading():
        from indexerd.web.daemon import Daemon
        from indexerd.web.server import serve

    os.umask(0o077)
    daemon = Daemon(
        where(app), os.environ, home=Path.home(), stored=lambda *call: local(app).call(*call)
    )
    return serve(daemon, listen=listen, child=child, on_ready=ready, on_error=_complain)


def _ready(app: App, path: str, running: Running, *, opening: bool) -> None:
    """Say where the view is, and open it."""
    from indexerd.web.server import login_link, open_page

    state_dir = where(app).state_dir
    address = login_link(state_dir, running, path)
    if not show(app, {"url": running.url, "link": address, "pid": running.pid}):
        put([address])
    sys.stdout.flush()
    if running.pid == os.getpid():
        aside("serving until interrupted (Ctrl-C)")
    if opening and _screen():
        _open(open_page(state_dir, address).as_uri(), waiting=running.pid != os.getpid())


def _open(address: str, *, waiting: bool) -> None:
    """Open it; not `waiting` for a browser that stays, and needs an answer from us."""
    import webbrowser

    if waiting:
        webbrowser.open(address)
    else:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _screen() -> bool:
    """Whether a browser would open beside this terminal, and not in it."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)


def _say(text: str) -> None:
    put([text])
    sys.stdout.flush()


def _complain(bad: BaseException) -> None:
    """What no page foresaw: a defect's place, and nothing of what it was about."""
    if isinstance(bad, IndexerdError):
        aside(f"indexerd: {bad}")
        return
    trace, last = bad.__traceback__, None
    while trace is not None:
        last, trace = trace, trace.tb_next
    place = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last else "?"
    aside(f"indexerd: a defect: {type(bad).__name__} at {place}")
