"""The on-disk contract: what a model must answer, and what a meta file holds.

`Metadata` is strict (limits of S0.19): it judges what a model says, and what we write.
`MetaFile` is lenient (interfaces.md §3): a reader checks that the twelve fields are there
with the right types, keeps what it does not know, and cuts long texts only when used.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from indexerd.errors import InvalidMetaError

SCHEMA_VERSION = 1
NAME_MAX = 120
DESCRIPTION_MAX = 1200
SUMMARY_MAX = 8000
TAG_MAX = 80
TAGS_MIN = 3
TAGS_MAX = 12
FIRST_MESSAGE_MAX = 200
META_BYTES_MAX = 4 * 1024 * 1024  # a meta file larger than this was not written by us

Tag = Annotated[str, StringConstraints(min_length=1, max_length=TAG_MAX)]


class Metadata(BaseModel):
    """What a model must answer. Unknown keys are dropped; lengths are in characters."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    name: str = Field(min_length=1, max_length=NAME_MAX)
    description: str = Field(min_length=1, max_length=DESCRIPTION_MAX)
    summary: str = Field(min_length=1, max_length=SUMMARY_MAX)
    tags: list[Tag] = Field(min_length=TAGS_MIN, max_length=TAGS_MAX)


class _Camel(BaseModel):
    model_config = ConfigDict(
        strict=True, frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )


class Usage(_Camel):
    """What one indexing run cost, all its attempts together; `None` = not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    calls: int = 0


class MetaFile(_Camel):
    """A meta file, ours or the older pi extension's. Timestamps are ISO-8601 UTC with `Z`."""

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

    def to_json(self) -> bytes:
        """The file's bytes: two-space JSON, UTF-8, a newline at the end, absent fields omitted."""
        held = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if self.usage is not None:  # an unknown cost is said, not left out
            held["usage"]["costUsd"] = self.usage.cost_usd
        text = json.dumps(held, indent=2, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", "replace") + b"\n"


def parse_meta(data: bytes, path: str) -> MetaFile:
    """Read a meta file's bytes; anything that is not one raises the upstream warning (S0.38)."""
    if len(data) > META_BYTES_MAX:
        raise InvalidMetaError(f"Invalid meta shape in {path}")
    try:
        held: Any = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise InvalidMetaError(f"Invalid JSON in meta file: {path}") from None
    try:
        return MetaFile.model_validate(_scrub(held))
    except (ValidationError, RecursionError):
        raise InvalidMetaError(f"Invalid meta shape in {path}") from None


def _scrub(value: Any) -> Any:
    """Replace lone surrogates, which JSON may carry and UTF-8 may not."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_scrub(one) for one in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(one) for key, one in value.items()}
    return value


class UserFile(_Camel):
    """`<id>.user.json`: what the user said of a session. The user's title wins everywhere."""

    title: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    context: dict[str, list[str]] = Field(default_factory=dict)
    env_hint: str | None = None

    def to_json(self) -> bytes:
        """The sidecar's bytes, written as meta files are."""
        held = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return json.dumps(held, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def parse_user(data: bytes, path: str) -> UserFile:
    """Read a user sidecar's bytes."""
    try:
        return UserFile.model_validate(_scrub(json.loads(data.decode("utf-8"))))
    except (ValueError, RecursionError):
        raise InvalidMetaError(f"Invalid user file: {path}") from None
