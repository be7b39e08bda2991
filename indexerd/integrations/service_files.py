"""The text of the systemd unit and of the launchd plist, from the templates that ship with us.

In an installed wheel the templates are inside the package, under `_data/`; in a checkout they are
at the repository's root, and only there: a `config/` beside an installed package is not ours, hence
the look for pyproject.toml.

systemd reads `%` as a specifier, quotes and backslashes as quoting, and refuses a program whose
path holds either, however it is escaped; a plist is made by plistlib. Nothing here writes a file.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterable, Mapping
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
    package = Path(str(files("indexerd")))
    root = package.parent
    shipped = package / "_data" / name
    if not shipped.is_file() and (root / "pyproject.toml").is_file():
        shipped = root / name
    if not shipped.is_file():
        hint = "install indexerd again"
        raise IndexerdError(f"a file of the program is missing: {name}", hint=hint)
    return shipped.read_text(encoding="utf-8")


def unit_text(
    program: str, home: str, env: Mapping[str, str], writes: Iterable[str], sessions: Iterable[str]
) -> str:
    """Fill the systemd template; all paths are resolved.

    `writes` are directories that the daemon writes in, and which must not be shut; `sessions` are
    those of the agents, which it only reads. Raises UsageError for a program that systemd cannot
    start.
    """
    if not program.startswith("/") or not is_plain(program) or set(program) & set("'\"\\"):
        raise UsageError(
            f"systemd cannot start a program of this path: {program!r}",
            hint="install it where the path holds no quotes, backslashes or control characters",
        )
    writes = [one for one in dict.fromkeys(writes) if is_plain(one)]

    def shut(path: str) -> bool:
        return not any(within(one, path) for one in writes)

    opened = [one for one in writes if not within(one, home) and one != "/"]
    closed = [one for one in dict.fromkeys(sessions) if within(one, home) and is_plain(one)]
    lines: list[str] = []
    for line in read_text(SYSTEMD_UNIT).splitlines():
        if line == "# here: environment":
            lines += [f"Environment={_quoted(f'{name}={env[name]}')}" for name in env]
        elif line == "# here: paths":
            lines += [f"ReadWritePaths={_quoted(f'-{one}')}" for one in opened]
            lines += [f"ReadOnlyPaths={_quoted(f'-{one}')}" for one in closed if shut(one)]
        elif not line.startswith(_HOME_LINE) or shut(f"{home}/{line.removeprefix(_HOME_LINE)}"):
            lines.append(line.replace("ExecStart=@PROGRAM@", f"ExecStart={_quoted(program)}"))
    return "\n".join(lines) + "\n"


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


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
