"""`indexerd run`: the daemon in the foreground, or one pass with --once."""

from __future__ import annotations

from indexerd.cli import declare, render
from indexerd.cli.ask import show
from indexerd.cli.serve import made, serve
from indexerd.cli.streams import aside
from indexerd.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from indexerd.cli.app import App
    from indexerd.daemon.once import Report


@declare.command()
@declare.option("--once", is_flag=True, help="Scan, index what is due, and end.")
def run(app: App, once: bool) -> int:
    """Run the daemon in the foreground; --once for a single pass."""
    if not once:
        return serve(app.config)
    daemon, loaded = made(app.config, once=True)
    import asyncio

    report = asyncio.run(daemon.once())
    if loaded.problems:
        raise ConfigError(loaded.problems)
    _print(app, report)
    return report.exit_code


def _print(app: App, report: Report) -> None:
    if show(app, report.to_json()):
        return
    rows = [(done.session_id, "indexed", done.model) for done in report.indexed]
    rows += [(session_id, "digested", "") for session_id in report.digested]
    rows += [(session_id, "failed", kind) for session_id, kind, _ in report.failed]
    render.table(app, ("session", "", "model or reason"), rows)
    aside(
        f"{report.sessions} sessions, {len(report.indexed)} indexed, "
        f"{report.skipped} not due, {len(report.failed)} failed"
    )
