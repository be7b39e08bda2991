"""Commands that serve until they are interrupted.

`web` only prints a link if a view is already running: the daemon's, by `[web] listen`, or another
terminal's. A link gives access, and every user can read the arguments of every process, so a
browser is started with a private file that redirects to the link.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from indexerd.amounts import count
from indexerd.cli import printing as render
from indexerd.cli.backend import INTERRUPTED, App, Clock, aside, project, put
from indexerd.cli.main import ANY_REF, as_json, command, current, flag, option
from indexerd.errors import ConfigError, DamagedError, IndexerdError, WriteError
from indexerd.mcp.hosts import HOSTS, snippet

if TYPE_CHECKING:
    from indexerd.daemon.once import Report
    from indexerd.web.server import Running

RESTART_GAP = 10.0  # seconds: a daemon that fails again sooner exits, and is restarted as a service
TITLES = 20  # listed on a terminal
_WAITING = {  # the reasons of daemon/once.py, and what is true of these sessions
    "below_threshold": "with fewer than {least} new prompts",
    "no_answer": "without an answer yet",
    "max_wait": "in the middle of a turn",
    "no_model": "without a usable model (see `indexerd doctor`; old ones need a local one)",
    "refused": "declined by the model",
}
_RESTARTED = "_INDEXERD_RESTARTED"  # environment variable: time of the last restart


def program() -> tuple[str, ...]:
    """Return the words that start this program from anywhere, however this process was started.

    That is the script as it was called (a symlink that upgrades move is kept), or the one next to
    this interpreter: the first on PATH may be of another version.
    """
    for script in (Path(sys.argv[0]).absolute(), Path(sys.executable).parent / "indexerd"):
        if script.name == "indexerd" and os.access(script, os.X_OK):
            return (str(script),)
    # -P: do not import from the working directory, which may have a package of this name
    return (sys.executable, "-P", "-m", "indexerd")


def _called(app: App, *words: str) -> list[str]:
    config = ["--config", str(app.places.config_file)] if app.config else []
    return [*program(), *config, *words]


@command(flag("--once", "Scan, index the sessions that are due, and exit."))
def run(*, once: bool) -> int:
    """Run the daemon in the foreground; --once for one pass."""
    from indexerd.daemon.daemon import Daemon

    os.umask(0o077)
    app, home = current(), Path.home()
    clock = Clock(silent=app.json)
    view = _called(app, "web", "--beside-daemon", "--listen")
    try:
        daemon = Daemon(app.places, app.loaded, os.environ, home, view=view, watching=not once)
        if not once:
            asyncio.run(daemon.serve())
            return 0
        with clock:
            report = asyncio.run(daemon.once(clock.show))
    except KeyboardInterrupt:
        at = f" ({clock.what})" if clock.what else ""
        aside(f"interrupted{at}; run it again to go on")
        return INTERRUPTED
    except WriteError as bad:  # a full disk: unlike 75, exit code 1 makes systemd restart us
        raise bad if once else IndexerdError(str(bad), hint=bad.hint) from None
    except DamagedError:  # a new process inherits no memory, threads or connections
        now, last = time.time(), os.environ.get(_RESTARTED, "0")
        if now - float(last) < RESTART_GAP:
            raise
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, os.environ | {_RESTARTED: str(now)})  # noqa: S606 - ourselves
    if problems := app.loaded.problems:
        raise ConfigError(problems)
    if not as_json(report.encode()):
        put(_lines(app, report))
        aside(_summary(report, app.loaded.settings.min_new_user_messages))
    return report.exit_code


def _lines(app: App, report: Report) -> Iterator[str]:
    """List the sessions of a pass: on a terminal the first titles, in a pipe all ids."""
    rows = [(key, "named", model) for key, model in report.models.items()]
    rows += [(key, "digested", "") for key in report.digested]
    rows += [(key, "failed", kind) for key, (kind, _) in report.failed.items()]
    if sys.stdout.isatty():
        found = (app.local("get", {"ref": key})["session"] for key, _, _ in rows[:TITLES])
        rows = [(row["name"], *rest) for row, (_, *rest) in zip(found, rows, strict=False)]
    more = len(report.models) + len(report.digested) + len(report.failed) - len(rows)
    yield from render.table(("session", "", ""), rows)
    if more:
        yield f"{more:,} more"


def _summary(report: Report, least: int) -> str:
    parts = [count(report.sessions, "session"), f"{len(report.models):,} named"]
    waiting = report.waiting - Counter(below_threshold=report.named_before)
    facts = [(report.named_before, "named before")]
    facts += [(many, _WAITING[why].format(least=least)) for why, many in waiting.most_common()]
    parts += [f"{many:,} {what}" for many, what in facts if many]
    kinds = Counter(kind for kind, _ in report.failed.values())
    why = {kind: f"{kind.replace('_', ' ')}; see `indexerd logs`" for kind in kinds}
    parts += [f"{many:,} failed ({why[kind]})" for kind, many in kinds.items()]
    if report.unreadable:
        parts.append(f"{count(report.unreadable, 'file')} cannot be read (see `indexerd doctor`)")
    children = f" ({report.subagents:,} of sub-agents included)" if report.subagents else ""
    return ", ".join(parts) + children


PRINT = "Print the entry for a host's configuration file, and exit."


@command(option("--print-config", "host", PRINT, type=click.Choice([*HOSTS])))
def mcp(host: str | None) -> None:
    """Serve coding agents over the Model Context Protocol (MCP).

    The server reads stdin and writes stdout; MCP hosts start it themselves.
    """
    app = current()
    if host is not None:
        aside(f"# {HOSTS[host]}:")
        sys.stdout.write(snippet(host, _called(app, "mcp"), os.environ))
        return
    from indexerd.mcp.daemon_client import DaemonAccess
    from indexerd.mcp.server import serve

    serve(DaemonAccess(app.places, os.environ, cwd=project()))


@command(
    ANY_REF,
    option("--listen", "Loopback address; port 0: any free port.", metavar="HOST:PORT"),
    flag("--no-open", "Print the link without opening a browser."),
    click.option("--beside-daemon", is_flag=True, hidden=True),
)
def web(ref: str | None, listen: str | None, *, no_open: bool, beside_daemon: bool) -> int:
    """Browse and search sessions in a web browser, live.

    Prints a link that works once, within five minutes, and opens it if there is a display. Serves
    until it is interrupted, unless a view of yours is already running.
    """
    from indexerd.web.daemon_client import Daemon
    from indexerd.web.server import find_running, serve

    app, path = current(), "/"
    if ref is not None:
        match = app.call("resolve", {"ref": ref, "cwd": project()})
        path = f"/s/{quote(match['sessionId'], safe='')}"
    ready = partial(_ready, app, path, opening=not no_open)
    if beside_daemon:
        ready = partial(lambda running: put([running.url]))
    elif not listen and (running := find_running(app.places.state_dir)) is not None:
        ready(running)
        return 0
    os.umask(0o077)
    daemon = Daemon(app.places, os.environ, home=Path.home(), stored=app.local)
    address = listen or app.loaded.settings.web.listen or "127.0.0.1:0"
    return serve(daemon, listen=address, child=beside_daemon, on_ready=ready, on_error=_complain)


def _ready(app: App, path: str, running: Running, *, opening: bool) -> None:
    from indexerd.web.auth import login_link, open_page

    link = login_link(app.places.state_dir, running.url, path)
    if not as_json({"url": running.url, "link": link, "pid": running.pid}):
        put([link])
        if sys.stdout.isatty() and running.pid == os.getpid():
            aside("It works once, within five minutes. Control-C stops the server.")
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # else a text browser may open here
    if opening and (sys.platform == "darwin" or any(map(os.environ.get, screens))):
        import webbrowser

        page = open_page(app.places.state_dir, link).as_uri()
        # In a thread: the call may last as long as the browser, and this process may be the server.
        threading.Thread(target=webbrowser.open, args=(page,)).start()


def _complain(bad: BaseException) -> None:
    """Print a bug's type and place, without any data."""
    *_, last = traceback.extract_tb(bad.__traceback__)
    aside(f"indexerd: internal error: {type(bad).__name__} at {last.filename}:{last.lineno}")
