"""Where the daemon's socket is: environment in, path out, before anything else is imported.

Agents' hooks call this at every prompt, so it has the standard library's smallest part only:
`re`, `pathlib` and `dataclasses` together cost more than starting Python does. `paths` builds
on it. Values are taken as they are; a relative one is relative to the current directory.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

APP = "indexerd"


def socket_path(env: Mapping[str, str], home: str | None = None) -> str:
    """Path of the socket; UsageError where it depends on a home directory that nobody knows."""
    if env.get("INDEXERD_SOCKET"):
        return absolute(env["INDEXERD_SOCKET"], env, home)
    runtime = env.get("XDG_RUNTIME_DIR", "")
    base = f"{runtime}/{APP}" if runtime.startswith("/") else state_dir(env, home)
    return f"{base}/indexerd.sock"


def state_dir(env: Mapping[str, str], home: str | None = None) -> str:
    """Path of the directory with store, index and log."""
    if env.get("INDEXERD_STATE_DIR"):
        return absolute(env["INDEXERD_STATE_DIR"], env, home)
    base = env.get("XDG_STATE_HOME", "")
    if base.startswith("/"):  # the XDG rule: relative values are ignored
        return f"{base}/{APP}"
    home = home or home_of(env)
    if sys.platform == "darwin":
        return f"{home}/Library/Application Support/{APP}"
    return f"{home}/.local/state/{APP}"


def absolute(path: str, env: Mapping[str, str], home: str | None = None) -> str:
    """Make a path absolute; `~/` is the home directory."""
    if path == "~" or path.startswith("~/"):
        path = f"{home or home_of(env)}/{path[2:]}"
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109 - see the head


def home_of(env: Mapping[str, str]) -> str:
    """The home directory, of the environment or of the user's entry in the system."""
    named = env.get("HOME", "")
    found = named if named.startswith("/") else os.path.expanduser("~")  # noqa: PTH111 - see the head
    if not found.startswith("/"):
        from indexerd.errors import UsageError  # noqa: PLC0415 - see the head

        raise UsageError("cannot find the home directory", hint="set HOME")
    return found
