"""A session's files in the meta directory: meta file, the user's sidecar, digest.

`Metadata` is strict: it checks a model's answer. Files are read leniently (docs/PROTOCOL.md): the
twelve fields of the contract must have the right types, unknown fields are kept, and an optional
field of a wrong type counts as absent, because the file was paid for. What was read can be written.

An invalid file counts as missing and stays in place until a successful run replaces it. An
unreadable one (EACCES, a directory, a FIFO, a symbolic link) is an AccessError, not a missing file:
a run that cannot see the old file must not pay for a new one.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat as modes
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from indexerd.errors import AccessError, InvalidMetaError
from indexerd.paths import META_SUFFIX, USER_SUFFIX, is_session_id, meta_name
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.protocol import limits

DIGEST_SUFFIX = ".digest.jsonl"
SCHEMA_VERSION = 1
META_BYTES_MAX = 4 * 1024 * 1024  # of any file next to a session; we write no larger one
_MISSING = (FileNotFoundError, NotADirectoryError)
NESTING_MAX = 64  # of unknown fields; pydantic reads deeper ones but cannot write them

Tag = Annotated[str, StringConstraints(min_length=1, max_length=limits.TAG_MAX)]


class Metadata(BaseModel):
    """The required answer of a model. Unknown keys are dropped; lengths are in characters."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", defer_build=True)

    name: str = Field(min_length=1, max_length=limits.NAME_MAX)
    description: str = Field(min_length=1, max_length=limits.DESCRIPTION_MAX)
    summary: str = Field(min_length=1, max_length=limits.SUMMARY_MAX)
    tags: list[Tag] = Field(min_length=limits.TAGS_MIN, max_length=limits.TAGS_MAX)


class _File(BaseModel):
    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )

    def to_json(self) -> bytes:
        """Encode as UTF-8 JSON, indented by two, with a last newline, without absent fields."""
        fields, extra = self.model_dump(by_alias=True).items(), self.model_extra or {}
        kept = {key: value for key, value in fields if value is not None or key in extra}
        return json.dumps(_storable(kept), indent=2, ensure_ascii=False).encode() + b"\n"


class Usage(_File):
    """The cost of an indexing run with all its attempts; None: unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    calls: int = 0


class MetaFile(_File):
    """`<id>.meta.json`, by us or the older pi extension. Times are ISO-8601 UTC with `Z`."""

    session_id: str
    session_file: str
    parent_session_file: str | None = None
    name: str
    description: str
    summary: str
    tags: list[str]
    cwd: str
    created_at: str
    updated_at: str
    model: str
    last_indexed_leaf_id: str

    schema_version: int = SCHEMA_VERSION
    agent: str | None = None
    usage: Usage | None = None
    message_count: int | None = None
    user_message_count: int | None = None
    first_user_message: str | None = None
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    tools_used: dict[str, int] | None = None
    key_decisions: list[str] | None = None
    redactions: dict[str, int] | None = None
    session_created_at: str | None = None
    session_modified_at: str | None = None


# The fields of the contract: a wrong type in one makes the file invalid.
CONTRACT = frozenset(to_camel(name) for name in list(MetaFile.model_fields)[:12])


class Marks(msgspec.Struct, frozen=True, array_like=True):
    """What a row shows of the user's own data."""

    title: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    hidden: bool = False


class UserFile(_File):
    """`<id>.user.json`: the user's own data about a session. The user's title wins everywhere."""

    title: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    context: dict[str, list[str]] = Field(default_factory=dict)
    env_hint: str | None = None
    tags: list[str] | None = None
    pinned: bool | None = None
    hidden: bool | None = None

    @property
    def marks(self) -> Marks:
        return Marks(self.title or "", tuple(self.tags or ()), bool(self.pinned), bool(self.hidden))


def distinct(tags: Iterable[str]) -> list[str]:
    """Leave out empty tags, and those that differ from an earlier one only in case."""
    kept: dict[str, str] = {}
    for tag in filter(None, tags):
        kept.setdefault(tag.casefold(), tag)
    return [*kept.values()]


def parse_meta(data: bytes, path: str) -> MetaFile:
    """Parse a meta file; an InvalidMetaError has the wording of pi's session-index."""
    try:
        fields = _decode(data)
    except (ValueError, RecursionError):
        raise InvalidMetaError(f"Invalid JSON in meta file: {path}") from None
    try:
        return MetaFile.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError as bad:
        wrong = {error["loc"][0] for error in bad.errors() if error["loc"]}
    with suppress(ValidationError):
        if wrong and not wrong & CONTRACT:
            rest = {key: value for key, value in fields.items() if key not in wrong}
            return MetaFile.model_validate(rest, by_alias=True, by_name=False)
    raise InvalidMetaError(f"Invalid meta shape in {path}")


def parse_user(data: bytes, path: str) -> UserFile:
    try:
        return UserFile.model_validate(_decode(data), by_alias=True, by_name=False)
    except (ValueError, RecursionError):  # pydantic's ValidationError is a ValueError
        hint = f"repair {path}, or move it away: it has your own data, which cannot be recreated"
        raise InvalidMetaError(f"Invalid user file: {path}", hint=hint) from None


def parse_digest(data: bytes) -> list[dict[str, Any]]:
    """Parse a digest's segments, one per line; skip lines that are not JSON objects."""
    segments = []
    for line in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            segments.append(_decode(line))
    return [segment for segment in segments if isinstance(segment, dict)]


def _decode(data: bytes) -> Any:
    return _storable(json.loads(data[:META_BYTES_MAX].decode("utf-8")))


def _storable(value: Any, depth: int = 0) -> Any:
    """Replace values that our JSON must not contain: lone surrogates, NaN, 1e999."""
    if depth > NESTING_MAX:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): _storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return replace_surrogates(value) if isinstance(value, str) else value


class Stamp(NamedTuple):
    """Identifies a version of a file: any other has another time, size or inode."""

    mtime_ns: int
    size: int  # bytes
    ino: int


Stamps = tuple[Stamp | None, Stamp | None]  # of a session's meta file and its sidecar


def digest_name(session_id: str) -> str:
    return meta_name(session_id).removesuffix(META_SUFFIX) + DIGEST_SUFFIX


def read_meta(path: Path) -> MetaFile | None:
    """Read a meta file; None if it is missing. Errors are those of `parse_meta`."""
    data = read(path)
    return None if data is None else parse_meta(data, str(path))


def read_user(path: Path) -> UserFile:
    """Read a user's sidecar, empty if it is missing; InvalidMetaError says how to repair it."""
    data = read(path)
    return UserFile() if data is None else parse_user(data, str(path))


def read_digest(path: Path) -> list[dict[str, Any]]:
    return parse_digest(digest_bytes(path))


def digest_bytes(path: Path) -> bytes:
    """Read a digest unparsed, empty if it is missing; InvalidMetaError if it is too long."""
    data = read(path) or b""
    if len(data) > META_BYTES_MAX:
        hint = "move it away, or remove lines that you no longer need"
        raise InvalidMetaError(f"{path} is longer than {META_BYTES_MAX:,} bytes", hint=hint)
    return data


def stamp(path: Path) -> Stamp | None:
    """Return a file's stamp, without following a link; None if it is missing.

    Taken *before* the file is read, it makes a later change visible to `MetaWriter`'s `expect`.
    """
    try:
        return _stamp(path.lstat())
    except _MISSING:
        return None
    except OSError as bad:
        raise _access_error(bad, path) from bad


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def scan(directory: Path) -> dict[str, Stamps]:
    """Find the meta files and sidecars of a directory by session; links are skipped."""
    sessions: dict[str, Stamps] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                session_id = session_of(entry.name)
                if session_id and entry.is_file(follow_symlinks=False):
                    meta, user = sessions.get(session_id, (None, None))
                    is_meta = entry.name.endswith(META_SUFFIX)
                    with suppress(FileNotFoundError):
                        file_stamp = _stamp(entry.stat(follow_symlinks=False))
                        sessions[session_id] = (file_stamp, user) if is_meta else (meta, file_stamp)
    except FileNotFoundError:
        return {}
    except OSError as bad:
        raise _access_error(bad, directory) from bad
    return sessions


def session_of(name: str) -> str | None:
    for suffix in (META_SUFFIX, USER_SUFFIX):
        if name.endswith(suffix) and is_session_id(session_id := name.removesuffix(suffix)):
            return session_id
    return None


def read(path: Path) -> bytes | None:
    """Read a regular file, at most one byte more than allowed, so that callers can refuse it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            if not modes.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AccessError(f"{path} is not a regular file", hint="move it out of the way")
            return file.read(META_BYTES_MAX + 1)
    except _MISSING:
        return None
    except OSError as bad:
        raise _access_error(bad, path) from bad


def _access_error(bad: OSError, path: Path) -> AccessError:
    name = errno.errorcode.get(bad.errno or 0, "EIO")
    error = AccessError(f"{path} cannot be read: {bad.strerror} ({name})", upstream=name)
    error.retryable = bad.errno not in (errno.EACCES, errno.EPERM)
    return error
