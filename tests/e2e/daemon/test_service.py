"""The daemon as a user service, installed by its own command under a real `systemd --user`."""

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.integrations import service as units
from tests.e2e.world import ROOT, Session, until
from tests.integrations import user_manager
from tests.integrations.user_manager import UID, Manager, a_python

pytestmark = [*user_manager.MARKS, pytest.mark.timeout(150)]  # builds a wheel first

LIBRARIES = list(dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]))
IMPORTED = f"import sys; sys.path += {LIBRARIES}; import msgspec, pydantic, rapidfuzz, watchdog"
ALIEN = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}; {IMPORTED}"
FOLDERS = re.findall(
    r"(?m)^ReadOnlyPaths=-%h/(.+)", (ROOT / "systemd/indexerd.service").read_text()
)
SETTINGS = {
    "INDEXERD_MODEL_KEYS": '["scripted/test"]',
    "INDEXERD_INDEX__QUIET_SECONDS": "0.3",
    "INDEXERD_WATCH__RESCAN_SECONDS": "1.0",
}


def built(folder: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=50)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Service(Manager):
    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        super().__init__(self._furnish)
        self.sessions = self.home / ".pi/agent/sessions/--w--"
        self.script = self.home / "script.jsonl"
        self.config = self.home / ".config/indexerd/indexerd.toml"

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
        (site / "libraries.pth").write_text("".join(f"{folder}\n" for folder in LIBRARIES))
        for name in (*FOLDERS, ".config/indexerd", ".pi/agent/sessions/--w--"):
            (home / name).mkdir(parents=True, exist_ok=True)
        rows = [{"remote": True, "session": "Session: (\\S+)"}, {}]
        (home / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {}

    def cli(self, *argv: str, code: int = 0) -> Any:
        named = SETTINGS | {"INDEXERD_SCRIPTED": str(self.script)}
        words = ["env", *(f"{name}={value}" for name, value in named.items()), str(self.program)]
        done = self.run([*words, *argv, "--json"])
        assert done.code == code, done
        return json.loads(done.out)

    def calls(self, session: Session) -> int:
        path = Path(f"{self.script}.calls")
        created = map(json.loads, path.read_text().splitlines() if path.exists() else ())
        return sum(call["session"] == session.id for call in created)

    def meta(self, session: Session) -> Any:
        path = self.home / f".pi/agent/sessions-meta/{session.id}.meta.json"
        return json.loads(path.read_text()) if path.exists() else None

    def session(self, turns: int) -> Session:
        created = Session(self.sessions)
        created.talk(turns)
        return created

    def knows(self, session: Session) -> bool:
        rows = self.cli("list", "--all")["sessions"]
        return session.id in {row["sessionId"] for row in rows}

    def scanned(self) -> None:
        before = self.cli("status")["lastScanAt"]
        until(lambda: self.cli("status")["lastScanAt"] != before, "a scan")

    def pid(self) -> str:
        return self.show("MainPID")["MainPID"]

    def restarts(self) -> int:
        now = self.show("ActiveState", "SubState", "NRestarts")
        assert (now["ActiveState"], now["SubState"]) == ("active", "running")
        return int(now["NRestarts"])

    def heal(self) -> None:
        self.config.unlink(missing_ok=True)
        self.drop_in("")
        self.systemctl("reset-failed", units.UNIT)
        if not self.service_file.exists():
            assert self.cli("service", "install")["running"]
        else:
            assert self.systemctl("restart", units.UNIT).code == 0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    created = Service(built(tmp_path_factory.mktemp("wheel")))
    try:
        yield created
    finally:
        created.close()


@pytest.fixture
def service(installed: Service) -> Service:
    installed.heal()
    return installed


def test_the_started_service_answers_indexes_and_reloads(service: Service) -> None:
    """It answers as soon as it has started, and indexes a session once; it rereads settings."""
    assert service.cli("status")["state"] in {"ok", "indexing"}
    session = service.session(5)
    until(lambda: service.meta(session), "the meta file")
    assert service.meta(session)["lastIndexedLeafId"] == session.last
    assert service.calls(session) == 1
    assert service.cli("show", session.id)["session"]["sessionId"] == session.id
    pid, short = service.pid(), service.session(2)
    until(lambda: service.knows(short), "the session")
    assert service.meta(short) is None
    service.config.write_text("min_new_user_messages = 2\n")
    assert service.systemctl("reload", units.UNIT).code == 0
    until(lambda: service.meta(short), "the meta file")
    assert (service.pid(), service.restarts()) == (pid, 0)


def test_a_killed_service_restarts_and_repeats_no_call(service: Service) -> None:
    """After kill -9 it repeats no model call and indexes new turns."""
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


def test_the_watchdog_replaces_a_hanging_service(service: Service) -> None:
    """A stopped process is killed by systemd's watchdog and replaced."""
    service.drop_in("WatchdogSec=2\nRestartSec=100ms")
    service.systemctl("restart", units.UNIT)
    before = service.pid()
    assert service.run(["kill", "-STOP", before]).code == 0
    session = service.session(5)
    until(lambda: service.replaced(before), "the next daemon")
    until(lambda: service.meta(session), "the meta file")
    assert service.calls(session) == 1


def test_uninstalling_removes_the_service(service: Service) -> None:
    """Process, unit, link and socket are removed; sessions and meta files stay."""
    session, pid = service.session(5), service.pid()
    until(lambda: service.meta(session), "the meta file")
    done = service.cli("service", "uninstall")
    assert (done["changed"], done["installed"], done["running"]) == (True, False, False)
    assert service.show("LoadState", "ActiveState") == {
        "LoadState": "not-found",
        "ActiveState": "inactive",
    }
    assert [path for path in service.service_file.parent.rglob("*") if not path.is_dir()] == []
    assert service.run(["kill", "-0", pid]).code != 0
    assert service.run(["ls", f"/run/user/{UID}/indexerd"]).code != 0
    assert service.meta(session)
    assert session.path.exists()
    assert not service.cli("service", "uninstall")["changed"]
