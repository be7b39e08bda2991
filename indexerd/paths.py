"""Where files are: XDG directories, the socket, and the names of meta files.

Environment and home are arguments. `client` has the paths that agents' hooks need.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from indexerd.client import absolute, home_of, socket_path, state_dir
from indexerd.errors import UsageError

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
META_SUFFIX = ".meta.json"
USER_SUFFIX = ".user.json"


@dataclass(frozen=True, slots=True)
class Places:
    """The daemon's own files and directories."""

    config_file: Path
    config_explicit: bool  # named by flag or variable, so it must exist
    state_dir: Path
    data_dir: Path
    socket: Path
    store: Path  # rows and cursors: a cache
    search: Path  # directory of the text index: a cache
    lock: Path  # held by this state directory's daemon; never removed
    log: Path
    telemetry: Path  # one row per model attempt
    budget: Path  # calls and cost, reserved and settled


def places(
    env: Mapping[str, str] = os.environ, *, config: str | None = None, home: Path | None = None
) -> Places:
    """Find every place: from flags, else variables, else defaults."""
    home = home or Path(home_of(env))
    named = config or env.get("INDEXERD_CONFIG") or ""
    data = env.get("INDEXERD_DATA_DIR")
    default = _place(env, "XDG_CONFIG_HOME", home, ".config") / "indexerd.toml"
    state = Path(state_dir(env, str(home)))
    return Places(
        config_file=Path(absolute(named, env, str(home))) if named else default,
        config_explicit=bool(named),
        state_dir=state,
        data_dir=Path(absolute(data, env, str(home)))
        if data
        else _place(env, "XDG_DATA_HOME", home, ".local/share"),
        socket=Path(socket_path(env, str(home))),
        store=state / "store.sqlite",
        search=state / "search",
        lock=state / "indexerd.lock",
        log=state / "log.jsonl",
        telemetry=state / "telemetry.jsonl",
        budget=state / "budget.jsonl",
    )


def _place(env: Mapping[str, str], xdg: str, home: Path, default: str) -> Path:
    base = env.get(xdg, "")
    if base.startswith("/"):  # the XDG rule: relative values are ignored
        return Path(base) / "indexerd"
    if sys.platform == "darwin":
        import platformdirs  # noqa: PLC0415 - only where XDG says nothing, and only on macOS

        kind = {".config": "config", ".local/share": "data"}[default]
        return Path(getattr(platformdirs, f"user_{kind}_dir")("indexerd"))
    return home / default / "indexerd"


def is_session_id(text: str) -> bool:
    """Whether an id may be part of a file name."""
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
