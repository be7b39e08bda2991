"""Where files are: XDG directories, the socket, and the names of meta files.

Environment and home are arguments. `client` has the paths that agents' hooks need.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexerd.client import absolute, home_of, socket_path, state_dir
from indexerd.errors import UsageError

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
META_SUFFIX = ".meta.json"
USER_SUFFIX = ".user.json"


class Places:
    """The daemon's own files and directories, from flags, environment variables or defaults."""

    def __init__(
        self,
        env: Mapping[str, str] = os.environ,
        *,
        config: str | None = None,
        home: Path | None = None,
    ) -> None:
        home = home or Path(home_of(env))
        named, data = config or env.get("INDEXERD_CONFIG"), env.get("INDEXERD_DATA_DIR")
        self.config_explicit = bool(named)  # so it must exist
        self.config_file = _place(env, named, "XDG_CONFIG_HOME", home, ".config")
        if not named:
            self.config_file /= "indexerd.toml"
        self.data_dir = _place(env, data, "XDG_DATA_HOME", home, ".local/share")
        self.archive = self.data_dir / "archive"  # copies of session files
        self.socket = Path(socket_path(env, str(home)))
        self.state_dir = state = Path(state_dir(env, str(home)))
        self.store = state / "store.sqlite"  # rows and cursors: a cache
        self.search = state / "search"  # directory of the text index: a cache
        self.vectors = state / "vectors.sqlite"  # of sentences: a cache
        self.lock = state / "indexerd.lock"  # of this state directory's daemon; never removed
        self.log = state / "log.jsonl"
        self.telemetry = state / "telemetry.jsonl"  # one row per model attempt
        self.budget = state / "budget.jsonl"  # calls and cost, reserved and settled


def _place(env: Mapping[str, str], named: str | None, xdg: str, home: Path, default: str) -> Path:
    if named:
        return Path(absolute(named, env, str(home)))
    base = env.get(xdg, "")
    if base.startswith("/"):  # the XDG rule: relative values are ignored
        return Path(base) / "indexerd"
    if sys.platform == "darwin":
        import platformdirs  # noqa: PLC0415 - only on macOS without an XDG variable

        kind = {".config": "config", ".local/share": "data"}[default]
        return Path(getattr(platformdirs, f"user_{kind}_dir")("indexerd"))
    return home / default / "indexerd"


def is_session_id(text: str) -> bool:
    """Whether a text is a valid session id, which may be part of a file name."""
    return SESSION_ID.fullmatch(text) is not None


def meta_name(session_id: str) -> str:
    """Return the name of a session's meta file; UsageError for an invalid id."""
    if not is_session_id(session_id):
        raise UsageError("not a session id", hint=f"ids match {SESSION_ID.pattern}")
    return session_id + META_SUFFIX


def user_name(session_id: str) -> str:
    return meta_name(session_id).removesuffix(META_SUFFIX) + USER_SUFFIX


def within(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or below it; both absolute, compared as text."""
    base = directory.rstrip("/")
    return path.rstrip("/") == base or path.startswith(base + "/")


def basename(path: str) -> str:
    """Return the last part of a POSIX or Windows path."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def directory_of(row: Mapping[str, Any]) -> str:
    """Return where the directory of a row's session is now."""
    return str(row.get("movedTo") or row["cwd"])
