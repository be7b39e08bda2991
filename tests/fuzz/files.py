"""Targets for files: metas, sidecars, digests, configurations, compressed sessions.

Metas and the like are read by their pure part, and what is there also from a file.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from indexerd import settings
from indexerd.errors import ConfigError, InvalidMetaError, SessionUnreadableError
from indexerd.meta import reader as metas
from indexerd.meta.model import (
    META_BYTES_MAX,
    NESTING_MAX,
    MetaFile,
    UserFile,
    parse_meta,
    parse_user,
)
from indexerd.sources import zst
from indexerd.sources.line_buffer import Block


@cache
def folder() -> Path:
    """Where files are put for a moment; it goes with the process."""
    made = tempfile.mkdtemp(prefix="indexerd-fuzz-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def _placed(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def meta(data: bytes) -> None:
    """A meta file is one, and can be written and read again; or it is an InvalidMetaError."""
    try:
        found = parse_meta(data, "x")
    except InvalidMetaError:
        return
    _settled(found, found.to_json(), lambda again: parse_meta(again, "x"))
    assert metas.read_meta(_placed("a.meta.json", data)) == found


def user(data: bytes) -> None:
    """So is a sidecar, which holds what the user said."""
    try:
        found = parse_user(data, "x")
    except InvalidMetaError:
        return
    _settled(found, found.to_json(), lambda again: parse_user(again, "x"))
    assert metas.read_user(_placed("a.user.json", data)) == found


def _settled(
    found: MetaFile | UserFile, written: bytes, parse: Callable[[bytes], MetaFile | UserFile]
) -> None:
    written.decode()
    assert len(written) <= META_BYTES_MAX
    assert parse(written) == found
    assert parse(written).to_json() == written


def digest(data: bytes) -> None:
    """Segments are JSON objects that can be written again; other lines are left out."""
    found = metas.read_digest(_placed("a.digest.jsonl", data))
    assert len(found) <= data.count(b"\n") + 1
    for one in found:
        assert isinstance(one, dict)
        json.dumps(one, ensure_ascii=False, allow_nan=False).encode()
        assert _depth(one) <= NESTING_MAX + 1


def _depth(value: Any) -> int:
    level, below = 0, [value]
    while below:
        level += 1
        below = [
            one
            for held in below
            if isinstance(held, list | dict)
            for one in (held.values() if isinstance(held, dict) else held)
        ]
    return level


def config(name: str) -> Callable[[bytes], None]:
    """A configuration gives settings, or the defaults and every problem in words (C2)."""

    def target(data: bytes) -> None:
        env = {"INDEXERD_INDEX__QUIET_SECONDS": data[:40].decode("latin-1")} if data[-1:] else {}
        for variables in ({}, env):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of re, for `extra_patterns`
                found = settings.load(data, name, variables)
            assert isinstance(found.settings, settings.Settings)
            assert len(found.problems) <= len(data) + len(variables) + 1
            for one in found.problems:
                assert set(one) == {"file", "key", "message", "hint"}
                assert all(text.isprintable() and len(text) <= 300 for text in one.values())
                json.dumps(one, ensure_ascii=False).encode()
            if found.problems:
                str(ConfigError(found.problems)).encode()
            else:
                found.settings.model_dump_json()

    return target


def compressed(data: bytes) -> None:
    """No bytes that claim to be compressed do more than SessionUnreadableError, or lines."""
    path = str(_placed("a.jsonl.zst", data))
    parts = list[bytes]()
    with suppress(SessionUnreadableError):  # perhaps between two lines
        for piece in zst.load(path, None)[1] or ():
            assert isinstance(piece, Block)
            assert piece.offset == sum(map(len, parts))
            parts.append(piece.data)
        with zst.lines(path) as lines:
            whole = b"".join(parts)
            assert lines.at(0, len(whole)) == whole


TARGETS: dict[str, Callable[[bytes], None]] = {
    "meta": meta,
    "user": user,
    "digest": digest,
    "config-toml": config("/etc/indexerd.toml"),
    "config-json": config("/etc/indexerd.json"),
    "zst": compressed,
}
