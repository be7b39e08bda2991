"""A session's files in the meta directory: meta file, the user's sidecar, digest.

`Metadata` is strict: it checks what a model answers. The files are read leniently
(docs/PROTOCOL.md): the twelve fields of the contract must have the right types, unknown fields are
kept, and an optional field of another type counts as absent: a file that was paid for is not thrown
away for it. Whatever is read can be written again.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from indexerd.errors import InvalidMetaError
from indexerd.privacy.sanitize import replace_surrogates
from indexerd.protocol import limits

SCHEMA_VERSION = 1
META_BYTES_MAX = 4 * 1024 * 1024  # a larger file of a session was not written by us
NESTING_MAX = 64  # of unknown fields; beyond it pydantic could read a file but not write it again

Tag = Annotated[str, StringConstraints(min_length=1, max_length=limits.TAG_MAX)]


class Metadata(BaseModel):
    """What a model must answer. Unknown keys are dropped; lengths are in characters."""

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
        """Two-space JSON, UTF-8, a newline at the end; absent fields omitted, unknown ones kept."""
        fields, extra = self.model_dump(by_alias=True).items(), self.model_extra or {}
        kept = {key: one for key, one in fields if one is not None or key in extra}
        return json.dumps(_storable(kept), indent=2, ensure_ascii=False).encode() + b"\n"


class Usage(_File):
    """What an indexing run cost with all its attempts; None: not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    calls: int = 0


class MetaFile(_File):
    """`<id>.meta.json`, ours or the older pi extension's. Timestamps are ISO-8601 UTC with `Z`."""

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


# The fields of the contract: one of another type makes a file invalid.
CONTRACT = frozenset(to_camel(name) for name in list(MetaFile.model_fields)[:12])


class UserFile(_File):
    """`<id>.user.json`: the user's words about a session. The user's title wins everywhere."""

    title: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    context: dict[str, list[str]] = Field(default_factory=dict)
    context_cleared: bool | None = None  # of a fork: it has no sets, and none of its parent's
    env_hint: str | None = None


def parse_meta(data: bytes, path: str) -> MetaFile:
    """Parse a meta file; if it is not valid, raise upstream's warning."""
    try:
        found = _decode(data)
    except (ValueError, RecursionError):
        raise InvalidMetaError(f"Invalid JSON in meta file: {path}") from None
    try:
        return MetaFile.model_validate(found, by_alias=True, by_name=False)
    except ValidationError as bad:
        wrong = {error["loc"][0] for error in bad.errors() if error["loc"]}
    with suppress(ValidationError):
        if wrong and not wrong & CONTRACT:
            rest = {key: one for key, one in found.items() if key not in wrong}
            return MetaFile.model_validate(rest, by_alias=True, by_name=False)
    raise InvalidMetaError(f"Invalid meta shape in {path}")


def parse_user(data: bytes, path: str) -> UserFile:
    try:
        return UserFile.model_validate(_decode(data), by_alias=True, by_name=False)
    except (ValueError, RecursionError):  # pydantic's ValidationError is a ValueError
        raise InvalidMetaError(f"Invalid user file: {path}") from None


def parse_digest(data: bytes) -> list[dict[str, Any]]:
    """Parse a digest's segments, one a line; skip lines that are no JSON object."""
    segments = []
    for line in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            found = _decode(line)
            segments += [found] if isinstance(found, dict) else []
    return segments


def _decode(data: bytes) -> Any:
    """Decode JSON as the standard has it: NaN and Infinity, which Python accepts, are errors."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return _storable(json.loads(data[:META_BYTES_MAX].decode("utf-8"), parse_constant=refuse))


def _storable(value: Any, depth: int = 0) -> Any:
    """Replace what JSON allows and our files do not: lone surrogates, 1e999."""
    if depth > NESTING_MAX:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_storable(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): _storable(one, depth + 1) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return replace_surrogates(value) if isinstance(value, str) else value
