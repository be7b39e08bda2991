"""The unit under systemd itself: V2, V4, V5 and the promises of docs/SERVICE.md, one by one.

A real `systemd --user` is started for a user id of no one, in mount and PID namespaces of its
own, which end as a whole. The unit is installed by our own
code, unaltered; a small program stands in for the daemon, uses the daemon's own Notifier, and
tries what each line forbids. Needs root and systemd; skips with the reason elsewhere.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from indexerd.io import packaged, sdnotify, units
from indexerd.paths import places
from indexerd.settings import Settings

UID, NULL = 1_234_567_890, subprocess.DEVNULL  # a user id of no one
KEY, LIMITS = "canary-key-0123456789", ("MemoryHigh", "MemoryMax", "TasksMax")
ODD = """odd %h 100% "q" \\ 'é'"""  # a directory name made of what systemd might read into it
SESSIONS = re.findall(r"(?m)^ReadOnlyPaths=-%h/(.+)", packaged.read_text(packaged.SYSTEMD_UNIT))

SETUP = r"""
set -eu
mount -t tmpfs -o mode=755 tmpfs /run
cd /run; mkdir -p systemd/system systemd/unit-root systemd/propagate systemd/inaccessible
install -d -m 700 -o "$RIG_UID" "$XDG_RUNTIME_DIR"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd /sys/fs/cgroup; mkdir "${RIG##*/}"; chown -R "$RIG_UID" "${RIG##*/}"
echo $$ > "${RIG##*/}/cgroup.procs"
cd /; root=/
if [ "$RIG_REFUSE" = 1 ]; then  # the kernel refuses user namespaces to a process in a chroot
    root="$RIG/root"; mkdir "$root"; mount --rbind / "$root"
fi
as_user="setpriv --reuid=$RIG_UID --regid=$RIG_UID --clear-groups"
exec chroot "$root" $as_user "$RIG_PYTHON" -c "$RIG_AGENT"
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
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
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

STAND_IN = r"""
import ctypes, errno, json, mmap, os, resource, signal, socket, subprocess, sys
HOME, META, E = os.path.expanduser("~"), "/.pi/agent/sessions-meta", os.environ
UTS, libc = os.readlink("/proc/self/ns/uts"), ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)
def write(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666)); os.unlink(path)
def mode(path): return oct(os.stat(path).st_mode & 0o7777)
def made(name):
    os.close(os.open(path := HOME + "/%s%d" % (name, os.getpid()), os.O_CREAT, 0o666)); return path
def said(key): return dict(l.split()[:2] for l in open("/proc/self/status") if l.split()[1:])[key]
def shut(path): return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
def foreign():  # getpid, as the x32 architecture numbers it
    if (pid := os.fork()) == 0:
        libc.syscall(0x40000000 | 39); os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])
def meta():
    os.makedirs(HOME + META, exist_ok=True); write(HOME + META + "/x.meta.json")
PROBES = {
    "/etc": lambda: write("/etc/rig"), "/tmp": lambda: write("/tmp/rig-%d" % os.getpid()),
    "home": lambda: write(HOME + "/x"), "meta": meta, "foreign": foreign, "argv": lambda: sys.argv,
    "outside": lambda: write(E["PI_CODING_AGENT_DIR"] + "/x"),
    "tmpdir": lambda: [mode(E["TMPDIR"]), write(E["TMPDIR"] + "/x")][0],
    "kmsg": lambda: mode("/proc/kmsg"), "runtime": lambda: mode(E["XDG_RUNTIME_DIR"] + "/indexerd"),
    "umask": lambda: mode(made("plain")), "suid": lambda: os.chmod(made("suid"), 0o4755),
    "ssh": lambda: str(os.listdir(HOME + "/.ssh")), "owner": lambda: os.stat("/").st_uid,
    "privs": lambda: said("NoNewPrivs:"), "caps": lambda: said("CapBnd:"),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "inet": lambda: socket.socket(socket.AF_INET6).close(),
    "wx": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC).close(),
    "personality": lambda: call("personality", 0x40000), "ptrace": lambda: call("ptrace", 0, 0, 0),
    "namespace": lambda: call("unshare", 0x10000000), "uts": lambda: UTS == E.get("RIG_UTS"),
    "realtime": lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(0)),
    "devices": lambda: sorted({"kmsg", "mem", "vda", "sda", "kvm"} & set(os.listdir("/dev"))),
    "cgroup": lambda: shut("/sys/fs/cgroup"), "tunables": lambda: shut("/proc/sys"),
    "nofile": lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0], "nice": lambda: os.nice(0),
    "core": lambda: resource.getrlimit(resource.RLIMIT_CORE)[1], "environ": lambda: dict(E),
    "oom": lambda: open("/proc/self/oom_score_adj").read().strip(),
    "io": lambda: subprocess.run(["ionice"], capture_output=True, text=True).stdout.strip(),
} | {s: (lambda s=s: write(HOME + "/" + s + "/x")) for s in E["RIG_SESSIONS"].split()}
def probe(name):
    try:
        found = PROBES[name]()
    except OSError as bad:
        return errno.errorcode.get(bad.errno, str(bad))
    except KeyError:
        return "unset"
    return "ok" if found is None else found
def forked(name):  # some probes change the process that makes them
    read, wrote = os.pipe()
    if os.fork() == 0:
        os.write(wrote, json.dumps(probe(name)).encode()); os._exit(0)
    os.close(wrote)
    return json.loads(os.fdopen(read, "rb").read())
if sys.argv[1:] == ["probe"]:
    sys.exit(print(json.dumps({name: forked(name) for name in PROBES})))
if os.path.exists(HOME + "/exit_code"):
    sys.exit(int(open(HOME + "/exit_code").read()))
with open(HOME + "/probed.json", "w") as file:
    json.dump({name: forked(name) for name in PROBES}, file)
sys.path.insert(0, HOME + "/lib"); from sdnotify import Notifier
notify, asked = Notifier(), set()
for name in ("SIGUSR1", "SIGHUP", "SIGTERM"):
    signal.signal(getattr(signal, name), lambda *_, name=name: asked.add(name))
notify.ready("ready for work")
while "SIGTERM" not in asked:
    if "SIGHUP" in asked:
        asked.remove("SIGHUP"); notify.reloading(); notify.ready("reloaded")
    if "SIGUSR1" not in asked:  # told so, it lives on and pings no more
        notify.watchdog()
    signal.sigtimedwait([], 0.1)
notify.stopping()
"""


TOOLS = ("systemctl", "unshare", "setpriv", "mount", "bash", "chroot", "ionice")
pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not all(map(shutil.which, TOOLS)),
        reason=f"needs Linux, root, and {', '.join(TOOLS)}",
    ),
]


def until(holds: Callable[[], bool]) -> None:
    """Poll, for 20 s at most."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "the deadline passed"
        threading.Event().wait(0.05)


def quiet(*words: str) -> bool:
    """Run a command, and say whether it did well."""
    return subprocess.call(words, cwd="/", stdin=NULL, stdout=NULL, stderr=NULL) == 0


class Rig:
    """A user manager of its own, and a home with a program in it."""

    def __init__(self, *, refuse: bool = False) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="indexerd-rig-"))
        self.home = self.base / "home"
        self.program = self.home / "my programs 100% $HOME" / "indexerd"
        python = self._furnish()
        env = {"HOME": str(self.home), "XDG_RUNTIME_DIR": f"/run/user/{UID}"}
        env |= {"RIG": str(self.base), "RIG_UID": str(UID), "RIG_PYTHON": python}
        env |= {"RIG_AGENT": AGENT, "RIG_REFUSE": str(int(refuse)), "PATH": os.environ["PATH"]}
        env |= {"RIG_SESSIONS": " ".join(SESSIONS), "RIG_UTS": os.readlink("/proc/self/ns/uts")}
        words = ["unshare", "-mpf", "--mount-proc", "--kill-child", "bash", "-c", SETUP]
        io: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (self.base / "errors").open("wb") as errors:
            self.process = cast("Any", subprocess.Popen(words, env=env, stderr=errors, **io))
        if not (first := self.process.stdout.readline()).startswith("[0,"):
            said = (self.base / "errors").read_text() + first
            self.close()
            pytest.skip(f"no user manager can be started here: {said[-300:]}")

    def _furnish(self) -> str:
        """Fill the home, and find a Python that its owner may run."""
        as_user = ("setpriv", f"--reuid={UID}", "--clear-groups", "sh", "-c")
        pythons = [one for one in (sys.executable, "/usr/bin/python3") if quiet(*as_user, one)]
        if not pythons:
            self.base.rmdir()
            pytest.skip("no Python here that another user can run")
        folders = [*SESSIONS, ".ssh", "lib", ".config/systemd/user", ".config/indexerd"]
        for path in (self.base / ODD, self.program.parent, *(self.home / one for one in folders)):
            path.mkdir(parents=True)
        shutil.copy(sdnotify.__file__, self.home / "lib/sdnotify.py")
        self.program.write_text(f"#!{pythons[0]}\n{STAND_IN}")
        self.program.chmod(0o755)
        (self.home / ".config/indexerd/env").write_text(f"INDEXERD_GOOGLE_API_KEY={KEY}\n")
        self.base.chmod(0o755)
        for path in (self.base, *self.base.rglob("*")):
            os.chown(path, UID, UID)
        return pythons[0]

    def run(self, words: Sequence[str]) -> units.Ran:
        """Run a command inside, as the user."""
        self.process.stdin.write(json.dumps(list(words)) + "\n")
        self.process.stdin.flush()
        return units.Ran(*json.loads(self.process.stdout.readline()))

    @property
    def host(self) -> units.Host:
        """The user, as our code is told of him."""
        env = {"INDEXERD_STATE_DIR": str(self.home / ODD), "INDEXERD_OPENAI_API_KEY": KEY}
        env |= {"PI_CODING_AGENT_DIR": f"{self.base}/{ODD}", "XDG_RUNTIME_DIR": f"/run/user/{UID}"}
        return units.Host(env, self.home, UID, run=self.run)

    def install(self) -> units.Outcome:
        """Do what `service install` does."""
        where = places(self.host.env, home=self.home)
        return units.install(self.host, self.program, where, Settings())

    def show(self, *names: str) -> dict[str, str]:
        """Properties of the unit, as of one moment."""
        shown = self.host.systemctl("show", units.UNIT, f"--property={','.join(names)}").out
        return dict(line.split("=", 1) for line in shown.splitlines())

    def replaced(self, pid: str) -> bool:
        """Whether another process than this one is READY."""
        now = self.show("ActiveState", "MainPID")
        return now["ActiveState"] == "active" and now["MainPID"] != pid

    def inside(self) -> Any:
        """What the probes found inside the unit."""
        return json.loads((self.home / "probed.json").read_text())

    def close(self) -> None:
        """End everything, and leave nothing behind."""
        self.process.kill()  # and with it the first process of the namespace, and so all of them
        self.process.communicate()
        until(lambda: quiet("unshare", "-m", "sh", "-c", TIDY, self.base.name))
        shutil.rmtree(self.base)


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


@pytest.fixture
def broken(rig: Rig) -> Iterator[Rig]:
    """The same, for tests that break the service: healed afterwards."""
    yield rig
    rig.host.systemctl("stop", units.UNIT)
    (rig.home / "exit_code").unlink(missing_ok=True)
    shutil.rmtree(rig.host.service_file.with_name(f"{units.UNIT}.d"), ignore_errors=True)
    assert rig.install().running


# What the unit promises: its line, the probe, what the probe finds inside. Outside the unit the
# same probe must find something else, or it would prove nothing.
X86 = os.uname().machine == "x86_64"  # elsewhere no second architecture is at hand to try
PROMISES = [
    ("UMask=0077", "umask", "0o600"),
    ("NoNewPrivileges=yes", "privs", "1"),
    ("LockPersonality=yes", "personality", "EPERM"),
    ("MemoryDenyWriteExecute=yes", "wx", "EPERM"),
    ("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", "netlink", "EAFNOSUPPORT"),
    ("RestrictNamespaces=yes", "namespace", "EPERM"),
    ("RestrictRealtime=yes", "realtime", "EPERM"),
    ("RestrictSUIDSGID=yes", "suid", "EPERM"),
    ("SystemCallArchitectures=native", *(("foreign", 31) if X86 else ("privs", "1"))),
    ("SystemCallFilter=@system-service", "ptrace", "EPERM"),
    ("SystemCallErrorNumber=EPERM", "ptrace", "EPERM"),
    ("PrivateUsers=yes", "owner", 65534),
    ("ProtectSystem=strict", "/etc", "EROFS"),
    ("ProtectSystem=strict", "/tmp", "EROFS"),
    *((f"ReadOnlyPaths=-%h/{one}", one, "EROFS") for one in SESSIONS),
    ("InaccessiblePaths=-%h/.ssh", "ssh", "EACCES"),
    ("CapabilityBoundingSet=", "caps", "0000000000000000"),
    ("PrivateDevices=yes", "devices", []),
    ("ProtectControlGroups=yes", "cgroup", True),
    ("ProtectHostname=yes", "uts", False),
    ("ProtectKernelLogs=yes", "kmsg", "0o0"),
    ("ProtectKernelTunables=yes", "tunables", True),
    ("LimitNOFILE=8192", "nofile", 8192),
    ("LimitCORE=0", "core", 0),
    ("Nice=10", "nice", 10),
    ("IOSchedulingClass=idle", "io", "idle"),
    ("OOMScoreAdjust=500", "oom", "500"),
]


def test_every_promised_line_takes_effect(rig: Rig) -> None:
    """V4: what each line of the unit forbids is refused inside it, and only there."""
    outside = json.loads(rig.run([str(rig.program), "probe"]).out)
    inside, unit = rig.inside(), rig.host.service_file.read_text().splitlines()

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
    inside, shown = rig.inside(), rig.host.systemctl("show", units.UNIT).out

    assert inside["argv"] == [str(rig.program), "run"]
    assert inside["environ"]["INDEXERD_STATE_DIR"] == str(rig.home / ODD)
    assert inside["environ"]["INDEXERD_GOOGLE_API_KEY"] == KEY
    assert "INDEXERD_OPENAI_API_KEY" not in inside["environ"]
    assert KEY not in shown + rig.host.service_file.read_text()
    assert [inside[name] for name in ("home", "meta", "outside", "inet")] == ["ok"] * 4
    assert [inside[name] for name in ("runtime", "tmpdir")] == ["0o700"] * 2


def test_status_and_reload(broken: Rig) -> None:
    """V5: running means that READY was said; `reload` is a SIGHUP to the daemon (V1)."""
    assert units.status(broken.host).running
    assert broken.host.systemctl("reload", units.UNIT).code == 0

    until(lambda: broken.show("StatusText")["StatusText"] == "reloaded")


def test_killed_is_started_again(rig: Rig) -> None:
    """V2: after kill -9 another process is READY, by the unit as it is shipped."""
    before = rig.show("MainPID")["MainPID"]
    assert rig.run(["kill", "-KILL", before]).code == 0

    until(lambda: rig.replaced(before))


def test_wedged_is_started_again(broken: Rig) -> None:
    """V2: a daemon that lives and no longer pings is killed and started again."""
    folder = broken.host.service_file.with_name(f"{units.UNIT}.d")
    folder.mkdir()
    (folder / "quick.conf").write_text("[Service]\nWatchdogSec=1\nRestartSec=100ms\n")
    broken.host.systemctl("daemon-reload")
    broken.host.systemctl("restart", units.UNIT)
    before = broken.show("MainPID")["MainPID"]
    assert broken.run(["kill", "-USR1", before]).code == 0

    until(lambda: broken.replaced(before))


@pytest.mark.parametrize(("code", "state"), [(75, "failed"), (78, "failed"), (1, "auto-restart")])
def test_no_restart_where_it_cannot_help(broken: Rig, code: int, state: str) -> None:
    """V3: a second daemon (75) and a wrong configuration (78) end it; other failures do not."""
    (broken.home / "exit_code").write_text(str(code))
    broken.host.systemctl("restart", units.UNIT)

    assert list(broken.show("SubState", "ExecMainStatus").values()) == [str(code), state]


def test_install_and_uninstall_twice(broken: Rig) -> None:
    """A second installation changes nothing; removal leaves neither file, link nor process."""
    before = broken.show("MainPID")["MainPID"]
    again = broken.install()
    assert (again.changed, again.running, broken.replaced(before)) == (False, True, False)
    assert units.uninstall(broken.host).changed
    assert not units.uninstall(broken.host).changed
    assert broken.show("LoadState")["LoadState"] == "not-found"
    assert [one for one in broken.host.service_file.parent.rglob("*") if not one.is_dir()] == []
    assert broken.run(["ls", f"/run/user/{UID}/indexerd"]).code != 0
    assert broken.run(["kill", "-0", before]).code != 0


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
