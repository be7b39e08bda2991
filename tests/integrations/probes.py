"""What the unit promises, line by line, and how a program finds out from inside whether it holds.

`CODE` is the beginning of a program: `forked(name)` gives what a probe finds in the process that
asks, `found()` what all find.
"""

from __future__ import annotations

import os
import re

from indexerd.integrations import service_files

UNIT = service_files.read_text(service_files.SYSTEMD_UNIT)
SESSIONS = re.findall(r"(?m)^ReadOnlyPaths=-%h/(.+)", UNIT)

CODE = r"""
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
def found(): return {name: forked(name) for name in PROBES}
"""

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
