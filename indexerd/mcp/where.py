"""Which directory a tool of the MCP server is about: `cwd` means what the command line's does.

In: what a model wrote. Out: an absolute path without `..`, and without what a shell would expand
but for `~`. Agents note a session's directory as the system names it, so a path that leads to it
by a symbolic link finds nothing; then what it leads to is meant, and the answer says so.
"""

from __future__ import annotations

import os
from pathlib import Path

from indexerd.client import Client
from indexerd.errors import UsageError

_HINT = "give an absolute path, or leave `cwd` out"


def directory(named: str, own: str | None) -> str | None:
    """The directory that is named, from the server's `own`; that one, if none is named.

    UsageError for what can be no directory.
    """
    if not named:
        return own
    if "\0" in named:
        raise UsageError("cwd has a NUL in it, which no path can have", hint=_HINT)
    try:
        path = Path(named).expanduser()
    except RuntimeError:
        raise UsageError("cwd names the home of a user who is not known", hint=_HINT) from None
    try:  # as `indexerd list --cwd`; Path.absolute keeps `..`
        return os.path.abspath(Path(own or "", path))  # noqa: PTH100 - see above
    except FileNotFoundError:
        raise UsageError("cwd is relative to a directory that is gone", hint=_HINT) from None


def meant(client: Client, cwd: str | None) -> tuple[str | None, bool]:
    """The directory to ask the daemon about, and whether it is what `cwd` is a link to."""
    if cwd is None:
        return None, False
    real = os.path.realpath(cwd)
    if real == cwd or _known(client, cwd) or not _known(client, real):
        return cwd, False
    return real, True


def _known(client: Client, cwd: str) -> bool:
    return bool(client.call("list", {"cwd": cwd, "limit": 1})["sessions"])
