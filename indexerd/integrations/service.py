"""The daemon as a user service: systemd on Linux, launchd on macOS.

Without a service manager the file is written, and a note gives the command to run later.

Pitfalls: a refused user namespace shows only as exit status 217, 218 or 226 of a unit that systemd
tried to start; `launchctl bootout` returns before the service is gone, and `bootstrap` then fails
with an input/output error; systemd rejects quotes and backslashes in a program's path.
"""

from __future__ import annotations

import os
import plistlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from indexerd.client import absolute
from indexerd.errors import UsageError
from indexerd.integrations import changes
from indexerd.paths import Places, within
from indexerd.settings import Settings
from indexerd.sources.roots import Layout, session_roots

UNIT = "indexerd.service"
LABEL = "io.indexerd"
LAUNCHD_TRIES = 20  # every quarter of a second
MARKER = "Installed by `indexerd service install`"  # in both templates; marks the file as ours

_BLOCK = ("# begin: user namespace\n", "# end: user namespace\n")
_HOME_LINE = "ReadOnlyPaths=-%h/"
_REFUSED = {"217", "218", "226"}  # systemd's EXIT_USER, EXIT_CAPABILITIES, EXIT_NAMESPACE
_PATHS = {  # made absolute: a service has another working directory
    *("PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME"),
    *("INDEXERD_CONFIG", "INDEXERD_STATE_DIR", "INDEXERD_DATA_DIR", "INDEXERD_SOCKET"),
}
_XDG = {"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"}
_KEYS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SHOWN = (
    "LoadState,ActiveState,SubState,UnitFileState,FragmentPath,MainPID,NRestarts,"
    "Result,ExecMainStatus,StatusText"
)


class Ran(NamedTuple):
    """The exit status and output of a system command."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def first_line(self) -> str:
        """Return the first line of output; the others only say where to read more."""
        return (self.err or self.out).partition("\n")[0].strip() or f"exit status {self.code}"


def run_command(words: Sequence[str]) -> Ran:
    """Run a system command in the C locale, without input; code 127: it is missing."""
    env = dict(os.environ, LC_ALL="C", SYSTEMD_PAGER="", SYSTEMD_COLORS="0")
    runtime = f"/run/user/{os.getuid()}"
    if Path(runtime).is_dir():
        env.setdefault("XDG_RUNTIME_DIR", runtime)  # `su` and cron do not set it
    io = {"stdin": subprocess.DEVNULL, "capture_output": True, "errors": "replace"}
    try:
        done = subprocess.run(words, env=env, check=False, **io)  # type: ignore[call-overload]  # noqa: S603 - this module's own words, and no shell
    except OSError as bad:
        return Ran(127, err=f"{words[0]}: {bad.strerror}")
    return Ran(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine and its user."""

    env: Mapping[str, str]
    home: Path
    uid: int
    platform: str = sys.platform
    run: Callable[[Sequence[str]], Ran] = run_command

    @property
    def service_file(self) -> Path:
        if self.platform == "darwin":
            return self.home / "Library/LaunchAgents" / f"{LABEL}.plist"
        base = self.env.get("XDG_CONFIG_HOME", "")
        config = Path(base) if base.startswith("/") else self.home / ".config"
        return config / "systemd/user" / UNIT

    def systemctl(self, *words: str) -> Ran:
        return self.run(["systemctl", "--user", *words])

    def launchctl(self, *words: str) -> Ran:
        return self.run(["launchctl", *words])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of the service. `notes` are sentences for the user."""

    path: Path
    installed: bool
    running: bool
    changed: bool = False
    notes: tuple[str, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)


def install(host: Host, program: Path, places: Places, settings: Settings) -> Outcome:
    (env, notes), path = _environment(host, places), host.service_file
    before, mac = _installed(path), host.platform == "darwin"
    if mac:
        text = plist_text(str(program), str(host.home), env)
    elif host.platform.startswith("linux"):
        agents = session_roots(settings, host.env, host.home)
        writes = [*(root.meta for root in agents), str(places.state_dir), str(places.data_dir)]
        if not within(str(places.socket), host.env.get("XDG_RUNTIME_DIR") or "/run/user"):
            writes.append(str(places.socket.parent))
        reads = [root.sessions for root in agents if root.layout is Layout.FILES]
        opened = [os.path.realpath(path) for path in writes]
        text = unit_text(str(program), str(host.home.resolve()), env, opened, reads)
    else:
        why = "this system's service manager is not supported"
        raise UsageError(why, hint="use `indexerd run`")
    _put(path, text)
    notes += _start_launchd(host) if mac else _start_systemd(host, text, changed=before != text)
    changed = before != changes.read(path)
    return replace(status(host), changed=changed, notes=tuple(notes))


def uninstall(host: Host) -> Outcome:
    path = host.service_file
    if _installed(path) is None:
        return Outcome(path, installed=False, running=False, notes=("no service is installed",))
    if host.platform == "darwin":
        host.launchctl("bootout", f"gui/{host.uid}/{LABEL}")
        _put(path, None)
    else:
        host.systemctl("stop", UNIT)
        host.systemctl("disable", UNIT)
        _put(path, None)
        link = path.parent / "default.target.wants" / UNIT
        link.unlink(missing_ok=True)  # it remains if no manager ran to disable it
        host.systemctl("daemon-reload")
        host.systemctl("reset-failed", UNIT)
    return Outcome(path, installed=False, running=False, changed=True)


def status(host: Host) -> Outcome:
    path = host.service_file
    if host.platform == "darwin":
        shown = host.launchctl("print", f"gui/{host.uid}/{LABEL}")
        pairs = re.findall(r"^\t(state|pid|last exit code) = ([^{}\n]+)$", shown.out, re.MULTILINE)
        details, running = dict(pairs), ("state", "running") in pairs
        unknown = "launchd does not know the service"
    else:
        shown = host.systemctl("show", UNIT, f"--property={_SHOWN}")
        details = dict(line.split("=", 1) for line in shown.out.splitlines() if "=" in line)
        running = details.get("ActiveState") in {"active", "reloading"}
        unknown = "systemd's user manager does not answer"
    if shown.code:
        notes = (f"{unknown}: {shown.first_line}",)
        return Outcome(path, installed=path.exists(), running=False, notes=notes)
    return Outcome(path, installed=path.exists(), running=running, details=details)


def _environment(host: Host, places: Places) -> tuple[dict[str, str], list[str]]:
    """Return the variables that the service needs from this shell, without keys, and notes."""
    values: dict[str, str] = {}
    omitted: list[str] = []
    for name, value in sorted(host.env.items()):
        needed = name.startswith("INDEXERD_") or name in {"OPENCODE_DB", *_PATHS, *_XDG}
        if not value or not needed or (name in _XDG and not value.startswith("/")):
            continue
        password = "@" in value.partition("://")[2].partition("/")[0]  # in a URL
        if name.endswith(_KEYS) or password or not _is_plain(value):
            omitted.append(name)
        else:
            values[name] = absolute(value, host.env, str(host.home)) if name in _PATHS else value
    if places.config_explicit:
        values["INDEXERD_CONFIG"] = str(places.config_file)
    notes = [f"copied from this shell into the service: {', '.join(values)}"] if values else []
    if omitted:
        notes.append(f"not copied: {', '.join(omitted)}; put keys into a file (docs/OPERATIONS.md)")
    return values, notes


def _start_systemd(host: Host, unit: str, *, changed: bool) -> list[str]:
    """Enable and start the unit, and return notes."""
    reloaded = host.systemctl("daemon-reload")
    if reloaded.code != 0:
        by_hand = f"systemctl --user daemon-reload && systemctl --user enable --now {UNIT}"
        why = f"systemd's user manager does not answer ({reloaded.first_line})"
        return [f"the unit was written, but {why}; once it does, run: {by_hand}"]
    notes: list[str] = []

    def start(verb: str) -> Ran:
        host.systemctl("reset-failed", UNIT)  # an earlier start limit must not prevent this start
        enabled = host.systemctl("enable", UNIT)  # `--now` would hide the start's own error
        return enabled if enabled.code != 0 else host.systemctl(verb, UNIT)

    started = start("restart" if changed else "start")
    if started.code != 0:
        exited = host.systemctl("show", UNIT, "--property=ExecMainStatus", "--value").out.strip()
        if exited in _REFUSED:
            notes.append(
                "this system does not allow user namespaces: the unit was written without the"
                " protections that need one, see docs/OPERATIONS.md"
            )
            _put(host.service_file, without_namespace(unit))
            host.systemctl("daemon-reload")
            started = start("restart")
    if started.code != 0:
        notes.append(f"systemd: {started.first_line}; see `systemctl --user status {UNIT}`")
    linger = host.run(["loginctl", "show-user", str(host.uid), "--property=Linger", "--value"])
    if linger.out.strip() != "yes":
        notes.append("the service stops when you log out; to prevent that: loginctl enable-linger")
    return notes


def _start_launchd(host: Host) -> list[str]:
    domain, path = f"gui/{host.uid}", host.service_file
    (host.home / "Library/Logs").mkdir(parents=True, exist_ok=True)
    host.launchctl("bootout", f"{domain}/{LABEL}")  # fails if it is not loaded
    host.launchctl("enable", f"{domain}/{LABEL}")  # undoes an earlier `disable`
    for _ in range(LAUNCHD_TRIES):
        started = host.launchctl("bootstrap", domain, str(path))
        if started.code not in {5, 37}:  # input/output error, operation in progress
            break
        time.sleep(0.25)
    by_hand = f"in a desktop session, run: launchctl bootstrap {domain} {path}"
    note = f"the plist was written, but launchd says: {started.first_line}; {by_hand}"
    return [note] if started.code else []


def _installed(path: Path) -> str | None:
    """Read our service file; UsageError if it is not ours."""
    text = changes.read(path)
    if text is not None and MARKER not in text:
        hint = "move it away, then run this again"
        raise UsageError(f"{path} was not written by indexerd", hint=hint)
    return text


def _put(path: Path, text: str | None) -> None:
    edit = changes.Edit(str(path), lambda _: text, removing=text is None, mode=0o644)
    changes.apply([edit])


def read_text(name: str) -> str:
    """Read a file shipped with the package; in a checkout it is next to the package."""
    package = Path(str(files("indexerd")))
    shipped = package / "_data" / name
    return (shipped if shipped.is_file() else package.parent / name).read_text(encoding="utf-8")


def unit_text(
    program: str, home: str, env: Mapping[str, str], writes: Iterable[str], sessions: Iterable[str]
) -> str:
    """Fill in the systemd template; UsageError for a program that systemd cannot start.

    The daemon writes to the directories in `writes`, and only reads those in `sessions`.
    """
    if not program.startswith("/") or not _is_plain(program) or set(program) & set("'\"\\"):
        raise UsageError(
            f"systemd cannot start a program with this path: {program!r}",
            hint="install it where the path has no quotes, backslashes or control characters",
        )
    writes = [path for path in dict.fromkeys(writes) if _is_plain(path)]

    def shut(directory: str) -> bool:
        return not any(within(path, directory) for path in writes)

    opened = [path for path in writes if not within(path, home) and path != "/"]
    closed = [path for path in dict.fromkeys(sessions) if within(path, home) and _is_plain(path)]
    lines: list[str] = []
    for line in read_text("systemd/indexerd.service").splitlines():
        if line == "# here: environment":
            lines += [f"Environment={_quoted(f'{name}={env[name]}')}" for name in env]
        elif line == "# here: paths":
            lines += [f"ReadWritePaths={_quoted(f'-{path}')}" for path in opened]
            lines += [f"ReadOnlyPaths={_quoted(f'-{path}')}" for path in closed if shut(path)]
        elif not line.startswith(_HOME_LINE) or shut(f"{home}/{line.removeprefix(_HOME_LINE)}"):
            lines.append(line.replace("ExecStart=@PROGRAM@", f"ExecStart={_quoted(program)}"))
    return "\n".join(lines) + "\n"


def without_namespace(unit: str) -> str:
    """Remove the lines of a unit that need user namespaces."""
    before, rest = unit.split(_BLOCK[0], 1)
    note = "# This system does not allow user namespaces: the lines that need one were removed.\n"
    return before + note + rest.split(_BLOCK[1], 1)[1]


def plist_text(program: str, home: str, env: Mapping[str, str]) -> str:
    """Fill in the launchd template; UsageError for a program that a plist cannot name."""
    if not program.startswith("/") or not _is_plain(program):
        raise UsageError(f"launchd cannot start a program with this path: {program!r}")
    plist = plistlib.loads(read_text("systemd/io.indexerd.plist").encode())
    for key in ("WorkingDirectory", "StandardErrorPath"):
        plist[key] = plist[key].replace("@HOME@", home)
    plist["ProgramArguments"][0] = program
    plist["EnvironmentVariables"].update(env)
    head, doctype, *body = plistlib.dumps(plist, sort_keys=False).decode().splitlines(keepends=True)
    return "".join([head, doctype, f"<!-- {MARKER}, which rewrites it each time. -->\n", *body])


def _is_plain(text: str) -> bool:
    """Whether a text has no control characters and no undecodable bytes."""
    return all(c >= " " and c != "\x7f" and not "\ud800" <= c <= "\udfff" for c in text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
