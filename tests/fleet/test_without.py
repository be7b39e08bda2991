"""Without a fleet nothing of it is loaded, and nothing is written for it."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.e2e.world import ROOT, World, until


def test_a_daemon_without_a_fleet_loads_nothing_of_it(world: World) -> None:
    session = world.session(2)
    with world.daemon() as daemon:
        until(lambda: world.row(session.id), "the session")
        assert world.call("fleet")["fleet"] is None
        assert world.run("fleet", "status") == ""
        maps = Path(f"/proc/{daemon.pid}/maps")
        assert not maps.exists() or "psycopg" not in maps.read_text()
        store = f"file:{world.state / 'store.sqlite'}?mode=ro"
        with sqlite3.connect(store, uri=True) as db:
            for table in ("outbox", "sent", "remote"):
                assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608 - ours
            assert db.execute("SELECT * FROM sqlite_schema WHERE type = 'trigger'").fetchall() == []


def test_the_daemon_imports_nothing_of_it() -> None:
    code = (
        "import sys, indexerd.daemon.daemon, indexerd.cli.main\n"
        "print([name for name in sys.modules if 'psycopg' in name or 'indexerd.fleet' in name])"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
