"""The unit under systemd itself: V2, V4, V5 and the promises of docs/OPERATIONS.md, one by one.

The unit is installed by our own code, unaltered, under a real `systemd --user`; a small program
stands in for the daemon, uses the daemon's own Notifier, and tries what each line forbids. The
daemon itself is put under it in tests/e2e/daemon/test_service.py.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon import sdnotify
from indexerd.integrations import service as units
from indexerd.paths import places
from indexerd.settings import Settings
from tests.integrations import probes, user_manager
from tests.integrations.probes import PROMISES, SESSIONS
from tests.integrations.user_manager import UID, Manager, a_python

KEY, LIMITS = "canary-key-0123456789", ("MemoryHigh", "MemoryMax", "TasksMax")
ODD = """odd %h 100% "q" \\ 'é'"""  # a directory name made of what systemd might read into it

STAND_IN = (
    probes.CODE
    + r"""
if sys.argv[1:] == ["probe"]:
    sys.exit(print(json.dumps(found())))
if os.path.exists(HOME + "/exit_code"):
    sys.exit(int(open(HOME + "/exit_code").read()))
with open(HOME + "/probed.json", "w") as file:
    json.dump(found(), file)
sys.path.insert(0, HOME + "/lib"); from sdnotify import Notifier
notify, asked = Notifier(os.environ), set()
signal.signal(signal.SIGTERM, lambda *_: asked.add("SIGTERM"))
notify.ready()
while "SIGTERM" not in asked:
    notify.watchdog()
    signal.sigtimedwait([], 0.1)
notify.stopping()
"""
)

pytestmark = user_manager.MARKS


class Rig(Manager):
    """A user manager, and a home with a program in it that stands in for the daemon."""

    def __init__(self, *, refuse: bool = False) -> None:
        super().__init__(self._furnish, refuse=refuse)

    def _furnish(self, base: Path) -> dict[str, str]:
        home = base / "home"
        self.program = home / "my programs 100% $HOME" / "indexerd"
        folders = [*SESSIONS, ".ssh", "lib", ".config/systemd/user", ".config/indexerd"]
        for path in (base / ODD, self.program.parent, *(home / one for one in folders)):
            path.mkdir(parents=True)
        shutil.copy(sdnotify.__file__, home / "lib/sdnotify.py")
        self.program.write_text(f"#!{a_python()}\n{STAND_IN}")
        self.program.chmod(0o755)
        (home / ".config/indexerd/env").write_text(f"INDEXERD_GOOGLE_API_KEY={KEY}\n")
        uts = os.readlink("/proc/self/ns/uts")
        return {"RIG_SESSIONS": " ".join(SESSIONS), "RIG_UTS": uts}

    @property
    def host(self) -> units.Host:
        """The user, as our code is told of him."""
        env = {"INDEXERD_STATE_DIR": str(self.home / ODD), "INDEXERD_OPENAI_API_KEY": KEY}
        env |= {"PI_CODING_AGENT_DIR": f"{self.base}/{ODD}", "XDG_RUNTIME_DIR": f"/run/user/{UID}"}
        return units.Host(env, self.home, UID, run=self.run)

    def install(self) -> units.Outcome:
        where = places(self.host.env, home=self.home)
        return units.install(self.host, self.program, where, Settings())

    def inside(self) -> Any:
        """What the probes found inside the unit."""
        return json.loads((self.home / "probed.json").read_text())


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Our unit, installed and running under a real manager."""
    made = Rig()
    try:
        done = made.install()
        assert done.running, done.notes
        yield made
    finally:
        made.close()


def test_every_promised_line_takes_effect(rig: Rig) -> None:
    """V4: what each line of the unit forbids is refused inside it, and only there."""
    outside = json.loads(rig.run([str(rig.program), "probe"]).out)
    inside, unit = rig.inside(), rig.service_file.read_text().splitlines()

    for line, name, want in PROMISES:
        assert any(one.startswith(line) for one in unit), line
        assert (line, inside[name]) == (line, want)
        assert (line, outside[name]) != (line, want)
    words = ("Protect", "Private", "Restrict", "System", "Lock", "NoNew", "Cap", "Mem", "Inacc")
    promised = {line.split("=")[0] for line in unit if line.startswith(words)}
    assert promised - {line.split("=")[0] for line, *_ in PROMISES} - set(LIMITS) == set()
    assert list(rig.show(*LIMITS).values()) == [str(512 << 20), str(1 << 30), "128"]


def test_what_the_daemon_needs_arrives(rig: Rig) -> None:
    """Words survive as they are; a key comes by its file only (C4); what must be open is open.

    Open means: the home, a meta directory made after the start, a directory elsewhere, sockets.
    """
    inside, shown = rig.inside(), rig.systemctl("show", units.UNIT).out

    assert inside["argv"] == [str(rig.program), "run"]
    assert inside["environ"]["INDEXERD_STATE_DIR"] == str(rig.home / ODD)
    assert inside["environ"]["INDEXERD_GOOGLE_API_KEY"] == KEY
    assert "INDEXERD_OPENAI_API_KEY" not in inside["environ"]
    assert KEY not in shown + rig.service_file.read_text()
    assert [inside[name] for name in ("home", "meta", "outside", "inet")] == ["ok"] * 4
    assert [inside[name] for name in ("runtime", "tmpdir")] == ["0o700"] * 2


def test_refused_user_namespaces_are_done_without() -> None:
    """Where the kernel refuses them, as Ubuntu does, the service runs all the same and says so."""
    rig = Rig(refuse=True)
    try:
        done = rig.install()
        assert done.running, done.notes
        assert any("refuses user namespaces" in note for note in done.notes)
        found = [rig.inside()[one] for one in ("umask", "wx", "/etc")]
        assert found == ["0o600", "EPERM", "EACCES"]
    finally:
        rig.close()
