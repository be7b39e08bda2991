"""The text of the systemd unit and of the launchd plist, made from templates.

The templates of an installed wheel are under `_data/` in the package, those of a checkout at the
repository's root, which has a pyproject.toml.

What surprised us: systemd refuses a program whose path has quotes or backslashes, even escaped.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from indexerd.errors import IndexerdError, UsageError
from indexerd.paths import within

SYSTEMD_UNIT = "systemd/indexerd.service"
LAUNCHD_PLIST = "systemd/io.indexerd.plist"
MARKER = "Installed by `indexerd service install`"  # in both templates: the file is ours

_BLOCK = ("# begin: user namespace\n", "# end: user namespace\n")
_HOME_LINE = "ReadOnlyPaths=-%h/"


def read_text(name: str) -> str:
    """Read a file that comes with the program."""
    package = Path(str(files("indexerd")))
    shipped = package / "_data" / name
    if not shipped.is_file() and (package.parent / "pyproject.toml").is_file():
        shipped = package.parent / name
    try:
        return shipped.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "install indexerd again"
        raise IndexerdError(f"a file of the program is missing: {name}", hint=hint) from None


def unit_text(
    program: str, home: str, env: Mapping[str, str], writes: Iterable[str], sessions: Iterable[str]
) -> str:
    """Fill the systemd template; UsageError for a program that systemd cannot start.

    `writes` are the directories that the daemon writes to, `sessions` those of the agents, which it
    only reads. All paths are resolved.
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
    """Remove from a unit what a system that refuses user namespaces cannot do."""
    before, rest = unit.split(_BLOCK[0], 1)
    note = "# This system refuses user namespaces: the lines that need one are left out.\n"
    return before + note + rest.split(_BLOCK[1], 1)[1]


def plist_text(program: str, home: str, env: Mapping[str, str]) -> str:
    """Fill the launchd template; UsageError for a program that a plist cannot name."""
    if not program.startswith("/") or not is_plain(program):
        raise UsageError(f"launchd cannot start a program of this path: {program!r}")
    plist = plistlib.loads(read_text(LAUNCHD_PLIST).encode())
    for key in ("WorkingDirectory", "StandardErrorPath"):
        plist[key] = plist[key].replace("@HOME@", home)
    plist["ProgramArguments"][0] = program
    plist["EnvironmentVariables"].update(env)
    head, doctype, *body = plistlib.dumps(plist, sort_keys=False).decode().splitlines(keepends=True)
    return "".join([head, doctype, f"<!-- {MARKER}, which rewrites it each time. -->\n", *body])


def is_plain(text: str) -> bool:
    """Whether a text has neither control characters nor undecodable bytes."""
    return all(c >= " " and c != "\x7f" and not "\ud800" <= c <= "\udfff" for c in text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
