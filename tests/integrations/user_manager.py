"""A real `systemd --user` for a test, under an unused user id, which ends as a whole."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from indexerd.integrations import service as units
from tests.e2e.world import until

UID, NULL = 1_234_567_890, subprocess.DEVNULL  # an unused user id

SETUP = r"""
set -eu
mount -t tmpfs -o mode=755 tmpfs /run
cd /run; mkdir -p systemd/system systemd/unit-root systemd/propagate systemd/inaccessible
install -d -m 700 -o "$RIG_UID" "$XDG_RUNTIME_DIR"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd /sys/fs/cgroup; mkdir "${RIG##*/}"; chown -R "$RIG_UID" "${RIG##*/}"
echo $$ > "${RIG##*/}/cgroup.procs"
cd /
exec setpriv --reuid=$RIG_UID --regid=$RIG_UID --clear-groups "$RIG_PYTHON" -c "$RIG_AGENT"
"""

TIDY = """
mount -t cgroup2 cgroup2 /sys/fs/cgroup && cd /sys/fs/cgroup
find "$0" -depth -type d -exec rmdir {} ';'; [ ! -d "$0" ]
"""

AGENT = r"""
import json, os, subprocess, sys, threading
subprocess.Popen(["/usr/lib/systemd/systemd", "--user"], stdin=subprocess.DEVNULL, stdout=2)
def run(words):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=40)
    except (OSError, subprocess.TimeoutExpired) as bad:
        return [127, "", str(bad)]
    return [done.returncode, done.stdout.decode(), done.stderr.decode()]
for _ in range(200):
    if (up := run(["systemctl", "--user", "is-system-running", "--wait"]))[0] == 0:
        break
    threading.Event().wait(0.05)
print(json.dumps(up), flush=True)
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
"""

TOOLS = ("systemctl", "unshare", "setpriv", "mount", "bash")
MARKS = [
    pytest.mark.faults,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not all(map(shutil.which, TOOLS)),
        reason=f"needs Linux, root, and {', '.join(TOOLS)}",
    ),
]


def quiet(*words: str) -> bool:
    """Run a command, and return whether it succeeded."""
    return subprocess.call(words, cwd="/", stdin=NULL, stdout=NULL, stderr=NULL) == 0


def a_python(code: str = "") -> str | None:
    """Find a Python with which the unused user can run this code."""
    # Through a shell, since setpriv itself has more rights than a program that it starts.
    run = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "sh", "-c")
    for one in (sys.executable, "/usr/bin/python3"):
        if quiet(*run, '"$0" -c "$1"', one, code):
            return one
    return None


class Manager:
    """A user manager whose user has `base / "home"` and owns everything in `base`.

    `furnish` fills the home: it gets the directory and returns the manager's variables.
    """

    def __init__(self, furnish: Callable[[Path], Mapping[str, str]]) -> None:
        python = a_python()
        if python is None:
            pytest.skip("no Python here that another user can run")
        self.base = Path(tempfile.mkdtemp(prefix="indexerd-rig-"))
        self.home = self.base / "home"
        self.home.mkdir()
        try:
            more = furnish(self.base)
        except BaseException:  # also pytest.skip
            shutil.rmtree(self.base)
            raise
        self.base.chmod(0o755)
        self.give(self.base)
        env = {"HOME": str(self.home), "XDG_RUNTIME_DIR": f"/run/user/{UID}"}
        env |= {"RIG": str(self.base), "RIG_UID": str(UID), "RIG_PYTHON": python}
        env |= {"RIG_AGENT": AGENT, "PATH": os.environ["PATH"]}
        words = ["unshare", "-mpf", "--mount-proc", "--kill-child", "bash", "-c", SETUP]
        io: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (self.base / "errors").open("wb") as errors:
            started = subprocess.Popen(words, env=env | more, stderr=errors, **io)
        self.process = cast("Any", started)
        if not (first := self.process.stdout.readline()).startswith("[0,"):
            said = (self.base / "errors").read_text() + first
            self.close()
            pytest.skip(f"no user manager can be started here: {said[-300:]}")

    @staticmethod
    def give(top: Path) -> None:
        """Make the user the owner of a directory and everything in it."""
        for path in (top, *top.rglob("*")):
            os.chown(path, UID, UID, follow_symlinks=False)

    def run(self, words: Sequence[str]) -> units.Ran:
        """Run a command inside the namespaces, as the user."""
        self.process.stdin.write(json.dumps(list(words)) + "\n")
        self.process.stdin.flush()
        return units.Ran(*json.loads(self.process.stdout.readline()))

    def systemctl(self, *words: str) -> units.Ran:
        return self.run(["systemctl", "--user", *words])

    def show(self, *names: str) -> dict[str, str]:
        """Properties of the unit, all of one moment."""
        shown = self.systemctl("show", units.UNIT, f"--property={','.join(names)}").out
        return dict(line.split("=", 1) for line in shown.splitlines())

    def replaced(self, pid: str) -> bool:
        """Whether a process other than this one is READY."""
        now = self.show("ActiveState", "MainPID")
        return now["ActiveState"] == "active" and now["MainPID"] not in {pid, "0"}

    @property
    def service_file(self) -> Path:
        return self.home / ".config/systemd/user" / units.UNIT

    def drop_in(self, text: str) -> None:
        """Add a drop-in as the user would; "" removes it."""
        folder = self.service_file.with_name(f"{units.UNIT}.d")
        if text:
            folder.mkdir(exist_ok=True)
            (folder / "rig.conf").write_text(f"[Service]\n{text}\n")
            self.give(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        self.systemctl("daemon-reload")

    def close(self) -> None:
        """End every process and remove the directory."""
        self.process.kill()  # which ends the namespace's first process, and so all others
        self.process.communicate()
        until(lambda: quiet("unshare", "-m", "sh", "-c", TIDY, self.base.name), "the end")
        shutil.rmtree(self.base)
