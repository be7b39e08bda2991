"""The text of the systemd unit and of the launchd plist, from the templates that ship with us.

In an installed wheel the templates are inside the package, under `_data/`; in a checkout they are
at the repository's root, and only there: a `config/` beside an installed package is not ours, hence
the look for pyproject.toml.

systemd reads `%` as a specifier, quotes and backslashes as quoting, and refuses a program whose
path holds either, however it is escaped; a plist is made by plistlib. Nothing here writes a file.
"""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from indexerd.errors import IndexerdError, UsageError
from indexerd.paths import within

CONFIG = "config/indexerd.toml"
SYSTEMD_UNIT = "systemd/indexerd.service"
LAUNCHD_PLIST = "systemd/io.indexerd.plist"
MARKER = "Installed by `indexerd service install`"  # in both templates; says that a file is ours

_BLOCK = ("# begin: user namespace\n", "# end: user namespace\n")
_HOME_LINE = "ReadOnlyPaths=-%h/"


def read_text(name: str) -> str:
    """Read a shipped file (UTF-8); one that is missing means a broken installation."""
    package = files("indexerd")
    shipped = package.joinpath("_data", *name.split("/"))
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    root = Path(str(package)).parent
    if (root / "pyproject.toml").is_file() and (root / name).is_file():
        return (root / name).read_text(encoding="utf-8")
    raise IndexerdError(f"a file of the program is missing: {name}", hint="install indexerd again")


@dataclass(frozen=True, slots=True)
class Access:
    """Absolute paths: what the daemon writes, and the session directories that it only reads."""

    writes: Sequence[str] = ()
    sessions: Sequence[str] = ()

    def shuts_out(self, directory: str) -> bool:
        """Whether making `directory` read-only would keep the daemon from its own work."""
        return any(within(one, directory) for one in self.writes)


def unit_text(program: str, home: str, env: Mapping[str, str], access: Access) -> str:
    """Fill the systemd template; `home` and the paths of `access` are resolved.

    Raises UsageError for a program that systemd could not start.
    """
    if not program.startswith("/") or not is_plain(program) or set(program) & set("'\"\\"):
        raise UsageError(
            f"systemd cannot start a program of this path: {program!r}",
            hint="install it where the path holds no quotes, backslashes or control characters",
        )
    lines: list[str] = []
    for line in read_text(SYSTEMD_UNIT).splitlines(keepends=True):
        if line == "# here: environment\n":
            lines += [f"Environment={_quoted(f'{name}={env[name]}')}\n" for name in env]
        elif line == "# here: paths\n":
            lines += _path_lines(home, access)
        elif line.startswith(_HOME_LINE):
            path = f"{home}/{line.removeprefix(_HOME_LINE).strip()}"
            lines += [] if access.shuts_out(path) else [line]
        else:
            lines.append(line.replace("ExecStart=@PROGRAM@", f"ExecStart={_quoted(program)}"))
    return "".join(lines)


def without_namespace(unit: str) -> str:
    """The same unit, for a system that refuses user namespaces to its users."""
    before, rest = unit.split(_BLOCK[0], 1)
    said = "# This system refuses user namespaces: the lines that need one are left out.\n"
    return before + said + rest.split(_BLOCK[1], 1)[1]


def plist_text(program: str, home: str, env: Mapping[str, str]) -> str:
    """Fill the launchd template. Raises UsageError for a program that a plist cannot hold."""
    if not program.startswith("/") or not is_plain(program):
        raise UsageError(f"launchd cannot start a program of this path: {program!r}")
    plist = plistlib.loads(read_text(LAUNCHD_PLIST).encode())
    for key in ("WorkingDirectory", "StandardErrorPath"):
        plist[key] = plist[key].replace("@HOME@", home)
    plist["ProgramArguments"][0] = program
    plist["EnvironmentVariables"].update(env)
    head, doctype, *body = plistlib.dumps(plist, sort_keys=False).decode().splitlines(keepends=True)
    return "".join([head, doctype, f"<!-- {MARKER}, which writes it anew each time. -->\n", *body])


def is_plain(text: str) -> bool:
    """Free of control characters and of bytes that were not UTF-8: fit for a service file."""
    return all(c >= " " and c != "\x7f" and not "\ud800" <= c <= "\udfff" for c in text)


def _path_lines(home: str, access: Access) -> list[str]:
    """What the template cannot know: places outside the home, sessions elsewhere in the home."""
    opened = [one for one in access.writes if not within(one, home) and one != "/"]
    closed = [one for one in access.sessions if within(one, home) and not access.shuts_out(one)]
    lines = [f"ReadWritePaths={_quoted(f'-{one}')}\n" for one in opened if is_plain(one)]
    return lines + [f"ReadOnlyPaths={_quoted(f'-{one}')}\n" for one in closed if is_plain(one)]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
