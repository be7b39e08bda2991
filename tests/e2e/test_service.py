"""The daemon itself as a user service: installed by its own command, under a real `systemd --user`.

The wheel of this checkout is installed into a virtual environment in a home of its own, as pip
would do it; only the libraries are those of this Python. Into that environment goes a hook by
which a signal has the daemon start a child that tries what the unit forbids (a fork of it alone
could stop at a lock that another thread held), and by which a test may have the daemon hang.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.integrations import service as units
from tests.e2e.world import Session
from tests.integrations import probes, user_manager
from tests.integrations.user_manager import UID, Manager, a_python, until

pytestmark = [*user_manager.MARKS, pytest.mark.timeout(150)]  # a program is installed first

ROOT = Path(__file__).parents[2]
LIBRARIES = list(dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]))
IMPORTED = f"import sys; sys.path += {LIBRARIES}; import msgspec, pydantic, rapidfuzz, watchdog"
ALIEN = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}; {IMPORTED}"

HOOK = (
    probes.CODE
    + r"""
if __name__ == "__main__":
    with open(HOME + "/probed.part", "w") as file:
        json.dump(found(), file)
    os.rename(HOME + "/probed.part", HOME + "/probed.json")
elif sys.argv[1:] == ["run"]:
    signal.signal(signal.SIGUSR2, lambda *_: subprocess.Popen([sys.executable, __file__]))
    if os.path.exists(HOME + "/rig.py"):
        exec(open(HOME + "/rig.py").read())
"""
)
HOOKED = 'import os; "RIG_SESSIONS" in os.environ and __import__("probing")\n'

LATE = """
import asyncio
from indexerd.daemon.unix_server import UnixServer
start = UnixServer.start
async def late(self):
    await asyncio.sleep(1)
    await start(self)
UnixServer.start = late
"""

WEDGED = """
import threading
from indexerd.sources.tail import Tail
read = Tail.read
def wedged(self, *args, **more):
    if os.path.exists(HOME + "/wedge"):
        os.unlink(HOME + "/wedge")
        threading.Event().wait()
    return read(self, *args, **more)
Tail.read = wedged
"""

SETTINGS = {
    "INDEXERD_MODEL_KEYS": '["scripted/test"]',
    "INDEXERD_INDEX__QUIET_SECONDS": "0.3",
    "INDEXERD_WATCH__RESCAN_SECONDS": "1.0",
}


def built(folder: Path) -> Path:
    """The wheel of this checkout."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=50)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Service(Manager):
    """A user who has installed the program, with sessions of pi."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        super().__init__(self._furnish)
        self.sessions = self.home / ".pi/agent/sessions/--w--"
        self.script = self.home / "script.jsonl"
        self.config = self.home / ".config/indexerd/indexerd.toml"
        self.state = self.home / ".local/state/indexerd"

    def _furnish(self, base: Path) -> dict[str, str]:
        home = base / "home"
        python = a_python(ALIEN)
        if python is None:
            pytest.skip("another user can run no Python here that has our libraries")
        venv = home / "venv"
        self.program = venv / "bin/indexerd"
        make = [python, "-m", "venv", "--without-pip", str(venv)]
        put = [sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install"]
        put += ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
        for words in (make, [*put, str(self.wheel)]):
            subprocess.run(words, cwd=base, check=True, capture_output=True, timeout=50)
        (site,) = venv.glob("lib/python*/site-packages")
        (site / "libraries.pth").write_text("".join(f"{one}\n" for one in LIBRARIES))
        (site / "probing.py").write_text(HOOK)
        (site / "probing.pth").write_text(HOOKED)
        folders = [*probes.SESSIONS, ".ssh", ".config/indexerd", ".pi/agent/sessions/--w--"]
        for one in folders:
            (home / one).mkdir(parents=True, exist_ok=True)
        rows = [{"remote": True, "session": "Session: (\\S+)"}, {}]
        (home / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        uts = Path("/proc/self/ns/uts").readlink()
        return {"RIG_SESSIONS": " ".join(probes.SESSIONS), "RIG_UTS": str(uts)}

    def cli(self, *argv: str, code: int = 0) -> Any:
        """Run the installed program as its user; what it says in JSON."""
        named = SETTINGS | {"INDEXERD_SCRIPTED": str(self.script)}
        words = ["env", *(f"{name}={value}" for name, value in named.items()), str(self.program)]
        done = self.run([*words, *argv, "--json"])
        assert done.code == code, done
        return json.loads(done.out)

    def calls(self, session: Session) -> int:
        """How many calls a session's description has cost."""
        path = Path(f"{self.script}.calls")
        made = map(json.loads, path.read_text().splitlines() if path.exists() else ())
        return sum(one["session"] == session.id for one in made)

    def meta(self, session: Session) -> Any:
        """Its meta file, or None."""
        path = self.home / f".pi/agent/sessions-meta/{session.id}.meta.json"
        return json.loads(path.read_text()) if path.exists() else None

    def session(self, turns: int) -> Session:
        """A new session."""
        made = Session(self.sessions)
        made.talk(turns)
        return made

    def knows(self, session: Session) -> bool:
        """Whether a session is listed."""
        rows = self.cli("list", "--all")["sessions"]
        return session.id in {row["sessionId"] for row in rows}

    def scanned(self) -> None:
        """Wait until the files were looked at anew."""
        before = self.cli("status")["lastScanAt"]
        until(lambda: self.cli("status")["lastScanAt"] != before, "a scan")

    def pid(self) -> str:
        """The daemon's process."""
        return self.show("MainPID")["MainPID"]

    def restarts(self) -> int:
        """How often systemd has started it anew; it runs."""
        now = self.show("ActiveState", "SubState", "NRestarts")
        assert (now["ActiveState"], now["SubState"]) == ("active", "running")
        return int(now["NRestarts"])

    def heal(self) -> None:
        """Take back what a test has done, and start anew."""
        for name in ("rig.py", "wedge", "probed.json"):
            (self.home / name).unlink(missing_ok=True)
        self.config.unlink(missing_ok=True)
        self.drop_in("")
        self.systemctl("reset-failed", units.UNIT)
        if not self.service_file.exists():
            assert self.cli("service", "install")["running"]
        else:
            assert self.systemctl("restart", units.UNIT).code == 0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service, installed by the command."""
    made = Service(built(tmp_path_factory.mktemp("wheel")))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def service(installed: Service) -> Service:
    """It runs as it was shipped, whatever the test before has done."""
    installed.heal()
    return installed


def test_it_is_ready_when_it_answers_and_describes_a_session(service: Service) -> None:
    """V4, V5: the real daemon in the real unit: once the start is over, it answers; it indexes."""
    (service.home / "rig.py").write_text(LATE)
    service.systemctl("stop", units.UNIT)
    assert service.systemctl("start", units.UNIT).code == 0
    assert service.cli("status")["state"] in {"ok", "indexing"}

    session = service.session(5)
    until(lambda: service.meta(session), "the meta file")
    assert service.meta(session)["lastIndexedLeafId"] == session.last
    assert service.calls(session) == 1
    assert service.cli("show", session.id)["session"]["sessionId"] == session.id
    assert service.restarts() == 0


def test_the_daemon_itself_is_held_to_the_units_promises(service: Service) -> None:
    """V4: each line of protection is tried by a child of the daemon, while it serves."""
    assert service.run(["kill", "-USR2", service.pid()]).code == 0
    told = service.home / "probed.json"
    until(told.exists, "what the daemon found")

    inside = json.loads(told.read_text())
    for line, name, want in probes.PROMISES:
        assert (line, inside[name]) == (line, want)
    assert [inside[name] for name in ("home", "meta", "inet")] == ["ok"] * 3
    assert [inside[name] for name in ("runtime", "tmpdir")] == ["0o700"] * 2
    assert service.cli("status")["state"] == "ok"


def test_killed_it_is_back_and_pays_nothing_twice(service: Service) -> None:
    """V2: after kill -9 it knows what it knew, no call is made again, and what is new is seen."""
    service.drop_in("RestartSec=100ms")
    session = service.session(5)
    until(lambda: service.meta(session), "the meta file")
    before, meta = service.pid(), service.meta(session)
    assert service.run(["kill", "-KILL", before]).code == 0
    until(lambda: service.replaced(before), "the next daemon")

    service.scanned()
    assert (service.calls(session), service.meta(session)) == (1, meta)
    session.talk(5)
    until(lambda: service.meta(session)["lastIndexedLeafId"] == session.last, "the next meta file")
    assert service.calls(session) == 2
    assert service.restarts() == 1


@pytest.mark.parametrize("how", ["stopped", "wedged"])
def test_one_that_hangs_is_replaced(service: Service, how: str) -> None:
    """V2: by its watchdog, whether its process is stopped or only its reading never ends."""
    (service.home / "rig.py").write_text(WEDGED)
    service.drop_in("WatchdogSec=2\nRestartSec=100ms")
    service.systemctl("restart", units.UNIT)
    before = service.pid()
    if how == "stopped":
        assert service.run(["kill", "-STOP", before]).code == 0
    else:
        (service.home / "wedge").touch()
        service.give(service.home / "wedge")
    session = service.session(5)

    until(lambda: service.replaced(before), "the next daemon")
    until(lambda: service.meta(session), "the meta file")
    assert service.calls(session) == 1
    assert service.restarts() >= 1


def test_a_bad_configuration_is_no_storm_and_a_reload_mends_it(service: Service) -> None:
    """V3: it stays up, says so, answers, indexes nothing. V1: by `systemctl reload` it goes on."""
    service.config.write_text('min_new_user_messages = "five"\n')
    assert service.systemctl("restart", units.UNIT).code == 0
    pid, session = service.pid(), service.session(2)
    until(lambda: service.knows(session), "the session")
    assert service.cli("status")["state"] == "indexing-off"
    assert service.meta(session) is None

    service.config.write_text("min_new_user_messages = 2\n")
    assert service.systemctl("reload", units.UNIT).code == 0
    until(lambda: service.meta(session), "the meta file")
    assert (service.calls(session), service.pid(), service.restarts()) == (1, pid, 0)


def test_what_cannot_start_is_not_started_for_ever(service: Service) -> None:
    """V3: five starts, and then systemd lets it be; with a second daemon, one."""
    service.drop_in("RestartSec=50ms")
    service.systemctl("stop", units.UNIT)
    away = service.state.rename(service.state.with_name("away"))
    service.state.write_text("no directory")
    assert service.systemctl("start", units.UNIT).code != 0
    until(lambda: service.show("SubState")["SubState"] == "failed", "the end of it")
    assert 1 <= int(service.show("NRestarts")["NRestarts"]) <= 5
    service.state.unlink()
    away.rename(service.state)

    service.systemctl("reset-failed", units.UNIT)
    other = ["systemd-run", "--user", "--unit=other", "--collect", str(service.program), "run"]
    assert service.run(other).code == 0
    until(lambda: service.run([str(service.program), "status"]).code == 0, "the other daemon")
    assert service.systemctl("start", units.UNIT).code != 0
    found = service.show("SubState", "ExecMainStatus", "NRestarts")
    assert found == {"SubState": "failed", "ExecMainStatus": "75", "NRestarts": "0"}
    assert service.systemctl("stop", "other").code == 0


def test_uninstalled_it_leaves_nothing_behind(service: Service) -> None:
    """V4: neither process, unit, link, socket nor directory; sessions and meta files stay."""
    session, pid = service.session(5), service.pid()
    until(lambda: service.meta(session), "the meta file")
    done = service.cli("service", "uninstall")

    assert (done["changed"], done["installed"], done["running"]) == (True, False, False)
    assert service.show("LoadState", "ActiveState") == {
        "LoadState": "not-found",
        "ActiveState": "inactive",
    }
    assert [one for one in service.service_file.parent.rglob("*") if not one.is_dir()] == []
    assert service.run(["kill", "-0", pid]).code != 0
    assert service.run(["ls", f"/run/user/{UID}/indexerd"]).code != 0
    assert service.meta(session)
    assert session.path.exists()
    assert not service.cli("service", "uninstall")["changed"]
