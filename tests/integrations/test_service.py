"""Service files and their installation, with real files and recorded system commands."""

import os
import plistlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from indexerd.errors import UsageError
from indexerd.integrations import service as units
from indexerd.paths import Places
from indexerd.settings import Settings

PROGRAM = Path("/opt/my programs/100%/indexerd")
NO_BUS = units.Ran(1, err="Failed to connect to bus: No medium found\n")
CANARY = "canary-key-0123456789"


class Recorder:
    """Record system commands and answer them from a table; unknown ones succeed."""

    def __init__(self, **answers: units.Ran) -> None:
        self.said: list[str] = []
        self.answers = answers

    def __call__(self, words: Sequence[str]) -> units.Ran:
        words = [word for word in words if word != "--user"]
        self.said.append(" ".join(words))
        return self.answers.get(words[1].replace("-", "_"), units.Ran(0))


def host(tmp_path: Path, run: Recorder, platform: str = "linux", **env: str) -> units.Host:
    """A user with an empty home."""
    return units.Host(env, tmp_path, 1000, platform=platform, run=run)


def install(where: units.Host) -> units.Outcome:
    found = Places({**where.env, "HOME": str(where.home)}, home=where.home)
    return units.install(where, PROGRAM, found, Settings())


def unit_of(where: units.Host) -> list[str]:
    """The lines of the installed unit."""
    return where.service_file.read_text().splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("namespaces", [True, False])
def test_systemd_accepts_the_unit(tmp_path: Path, namespaces: bool) -> None:
    """`systemd-analyze verify --user` prints nothing; it would report an unknown key."""
    program = tmp_path / "my programs 100%" / "indexerd"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = {"CODEX_HOME": '/x "y" 5% \\', "INDEXERD_LOG__LEVEL": "debug"}
    read = [f"{tmp_path}/odd 'sessions'"]
    unit = units.unit_text(str(program), str(tmp_path), env, ["/srv/pi 100%"], read)
    if not namespaces:
        unit = units.without_namespace(unit)

    assert verify(tmp_path, unit) == ""
    assert "Bogus" in verify(tmp_path, unit.replace("UMask=", "Bogus=1\nUMask="))


def verify(tmp_path: Path, unit: str) -> str:
    """The output of systemd's check; its exit status ignores unknown keys."""
    (tmp_path / units.UNIT).write_text(unit)
    words = ["systemd-analyze", "verify", "--user", "--man=no", str(tmp_path / units.UNIT)]
    env = dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path), HOME=str(tmp_path))
    done = subprocess.run(words, env=env, check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_install_writes_enables_and_starts(tmp_path: Path) -> None:
    """The whole unit is installed, then systemd's commands run in order."""
    run = Recorder(show=units.Ran(0, "ActiveState=active\n"))
    done = install(where := host(tmp_path, run))

    assert (done.installed, done.running) == (True, True)
    assert done.path == tmp_path / ".config/systemd/user/indexerd.service"
    assert r'ExecStart="/opt/my programs/100%%/indexerd" run' in unit_of(where)
    assert not any("@" in line.split("#")[0].replace("@system", "") for line in unit_of(where))
    order = ["daemon-reload", "enable indexerd.service", "restart indexerd.service"]
    assert [
        command.removeprefix("systemctl ") for command in run.said if command[10:] in order
    ] == order
    assert [path.name for path in done.path.parent.iterdir()] == ["indexerd.service"]
    assert any("enable-linger" in note for note in done.notes)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_foreign_service_file_is_left_alone(tmp_path: Path, platform: str) -> None:
    """It is neither overwritten nor removed, and nothing is started or stopped."""
    where = host(tmp_path, run := Recorder(), platform)
    where.service_file.parent.mkdir(parents=True)
    where.service_file.write_text("[Service]\nExecStart=/usr/bin/mine\n")

    with pytest.raises(UsageError, match="not written by indexerd"):
        install(where)
    with pytest.raises(UsageError, match="not written by indexerd"):
        units.uninstall(where)
    assert where.service_file.read_text() == "[Service]\nExecStart=/usr/bin/mine\n"
    assert not [command for command in run.said if "is-active" not in command]


@pytest.mark.parametrize("answer", [NO_BUS, units.Ran(127, err="systemctl: not found")])
def test_without_a_user_manager(tmp_path: Path, answer: units.Ran) -> None:
    """The unit is still written or removed; a note says what to type, and why."""
    run = Recorder(daemon_reload=answer, is_active=answer, show=answer, stop=answer)
    done = install(where := host(tmp_path, run))

    assert (done.installed, done.running, where.service_file.exists()) == (True, False, True)
    assert answer.first_line in done.notes[0]
    assert "systemctl --user enable --now indexerd.service" in done.notes[0]
    assert not units.status(where).running
    link = where.service_file.parent / "default.target.wants/indexerd.service"
    link.parent.mkdir()
    link.symlink_to(where.service_file)
    units.uninstall(where)
    assert not where.service_file.exists()
    assert not link.is_symlink()


@pytest.mark.parametrize("code", ["217", "218", "226", "1"])
def test_refused_namespaces_fall_back(tmp_path: Path, code: str) -> None:
    """If systemd cannot create a user namespace, that block is removed, with a note."""
    failed = units.Ran(1, err="Job for indexerd.service failed.\nSee systemctl status.\n")
    run = Recorder(start=failed, restart=failed, show=units.Ran(0, f"{code}\n"))
    done = install(where := host(tmp_path, run))

    assert any("Job for indexerd.service failed" in note for note in done.notes)
    assert any("does not allow user namespaces" in note for note in done.notes) is (code != "1")
    assert ("PrivateUsers=yes" in unit_of(where)) is (code == "1")
    if code == "1":
        return
    keys = {line.split("=")[0] for line in unit_of(where) if line[:1].isalpha()}
    assert {"NoNewPrivileges", "SystemCallFilter", "UMask", "WantedBy", "WatchdogSec"} <= keys
    assert not {key for key in keys if key.startswith(("Protect", "Private", "ReadOnly"))}


def test_the_environment_is_carried_and_keys_are_not(tmp_path: Path) -> None:
    """Variables for session directories are kept, made absolute; API keys are not."""
    where = host(
        tmp_path,
        Recorder(),
        CODEX_HOME="~/codex",
        PI_CODING_AGENT_DIR="relative",
        OPENCODE_DB="opencode-dev.db",
        INDEXERD_LOG__LEVEL="debug",
        INDEXERD_GOOGLE_API_KEY=CANARY,
        INDEXERD_PROVIDERS__OPENAI__BASE_URL=f"https://me:{CANARY}@example.com",
        INDEXERD_PRIVACY__EXCLUDE="two\nlines",
        GEMINI_API_KEY=CANARY,
        XDG_DATA_HOME="/data",
        XDG_STATE_HOME="relative",
        XDG_RUNTIME_DIR="/run/user/1000",
        HOME="/elsewhere",
    )
    done = install(where)
    found = [line for line in unit_of(where) if line.startswith('Environment="')]

    assert found == [
        f'Environment="CODEX_HOME={tmp_path}/codex"',
        'Environment="INDEXERD_LOG__LEVEL=debug"',
        'Environment="OPENCODE_DB=opencode-dev.db"',
        f'Environment="PI_CODING_AGENT_DIR={Path.cwd()}/relative"',
        'Environment="XDG_DATA_HOME=/data"',
    ]
    assert CANARY not in where.service_file.read_text()
    assert not any(CANARY in note for note in done.notes)
    assert "INDEXERD_GOOGLE_API_KEY, INDEXERD_PRIVACY__EXCLUDE, INDEXERD_PROV" in done.notes[1]


def test_launchd_plist(tmp_path: Path) -> None:
    """It parses, restarts only on failure and not too often, in the background, umask 077."""
    where = host(tmp_path, Recorder(), "darwin", CODEX_HOME="/x & <y>", INDEXERD_X_API_KEY=CANARY)
    install(where)
    held = plistlib.loads(where.service_file.read_bytes())

    assert where.service_file == tmp_path / "Library/LaunchAgents/io.indexerd.plist"
    assert held["ProgramArguments"] == [str(PROGRAM), "run"]
    assert (held["RunAtLoad"], held["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert held["ThrottleInterval"] >= 10
    assert (held["ProcessType"], held["Umask"]) == ("Background", 0o077)
    assert held["EnvironmentVariables"] == {"PYTHONFAULTHANDLER": "1", "CODEX_HOME": "/x & <y>"}
    assert held["StandardErrorPath"] == f"{tmp_path}/Library/Logs/indexerd.log"
    assert "@" not in where.service_file.read_text()
    assert CANARY not in where.service_file.read_text()


def test_launchd_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each installation loads it again, also while the old service is ending."""
    monkeypatch.setattr(units.time, "sleep", lambda _: None)
    install(host(tmp_path, gone := Recorder(), "darwin"))
    target, path = "gui/1000/io.indexerd", tmp_path / "Library/LaunchAgents/io.indexerd.plist"
    assert gone.said[1:3] == [f"launchctl enable {target}", f"launchctl bootstrap gui/1000 {path}"]
    up = units.Ran(0, "x = {\n\tstate = running\n\tpid = 42\n\tprogram = /x\n}\n")
    busy = Recorder(print=up, bootstrap=units.Ran(5, err="Bootstrap failed: 5: Input/output error"))
    done = install(host(tmp_path, busy, "darwin", CODEX_HOME="/x"))
    assert busy.said.count(f"launchctl bootstrap gui/1000 {path}") == units.LAUNCHD_TRIES
    assert done.details == {"state": "running", "pid": "42"}
    units.uninstall(host(tmp_path, Recorder(), "darwin"))
    assert not path.exists()
