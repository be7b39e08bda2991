"""What machines tell each other, its encryption, and the code that lets a machine join.

    record -> MessagePack -> zstd -> AES-256-GCM -> body

A body is authenticated together with its place: fleet, machine, number and kind. Nobody without the
key can read, change, move or swap one. What arrives is checked and bounded like any other input.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Meta

from indexerd.errors import InvalidMetaError, UsageError
from indexerd.meta.model import parse_meta
from indexerd.paths import SESSION_ID
from indexerd.protocol import limits

VERSION = 1  # of records; a machine sets aside those of later versions
BODY_MAX = 4 << 20  # bytes of a record, before and after compression
TEXTS_MAX = 256 << 10  # bytes of messages in one record, about
KEY_BYTES = 32
_ID_BYTES, _NONCE_BYTES = 8, 12
_CODE = "indexerd-fleet-"
_CHECK_BYTES = 6
_BAD = (
    *(InvalidTag, zstandard.ZstdError, InvalidMetaError),
    *(ValueError, TypeError, RecursionError),  # TypeError: of what JSON cannot have
)
_COST_MAX = 1e12
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MACHINE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z"  # ssh must not take it for an option

# Twice the limits of our own rows, since a secret's replacement may be longer than the secret.
Id = Annotated[str, Meta(pattern=rf"^(?:{SESSION_ID.pattern})\Z")]
Name = Annotated[str, Meta(max_length=2 * limits.NAME_MAX)]
Word = Annotated[str, Meta(max_length=2 * limits.WORD_MAX)]
FilePath = Annotated[str, Meta(max_length=2 * limits.PATH_MAX)]
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Tags = Annotated[list[Annotated[str, Meta(max_length=2 * limits.TAG_MAX)]], Meta(max_length=50)]
FilePaths = Annotated[list[FilePath], Meta(max_length=limits.PATHS_MAX)]


class SharedRow(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The fields of a row that travel; others, as of later versions, are left out."""

    session_id: Id
    agent: Literal["pi", "claude", "codex", "opencode"]
    session_file: FilePath
    cwd: FilePath
    created_at: Word
    modified_at: Word
    first_user_message: Annotated[str, Meta(max_length=2 * limits.FIRST_MESSAGE_MAX)]
    archived: bool
    gone: bool
    copy_only: bool = False
    name: Name
    name_source: Literal["user", "meta", "agent", "first-message", "file"]
    description: Annotated[str, Meta(max_length=2 * limits.DESCRIPTION_MAX)]
    indexed: bool
    tags: Tags
    message_count: Count
    user_message_count: Count
    new_user_messages: Count = 0
    state: Word
    subagent: bool = False
    version: Count = 0
    compactions: Count = 0
    leaf_id: Word | None = None
    agent_title: Annotated[str, Meta(max_length=2 * limits.FIRST_MESSAGE_MAX)] = ""
    agent_title_by: Word = ""
    git_branch: Word = ""
    parent_session_file: FilePath = ""
    parent_session_id: Word = ""
    pinned: bool = False
    hidden: bool = False
    own_tags: Tags = []
    model: Name = ""
    updated_at: Word = ""
    meta_name: Name = ""
    files_read: FilePaths = []
    files_modified: FilePaths = []
    tools_used: Annotated[dict[Word, Count], Meta(max_length=limits.PATHS_MAX)] = {}
    tool_uses: Annotated[dict[Word, list[Name]], Meta(max_length=limits.PATHS_MAX)] = {}
    models: Annotated[list[Word], Meta(max_length=limits.PATHS_MAX)] = []
    tokens: Annotated[dict[Word, Count], Meta(max_length=10)] = {}
    cost_usd: float | None = None
    cost_estimated_usd: float | None = None
    unpriced_tokens: Count = 0
    duration_ms: Count | None = None


class Hello(msgspec.Struct, tag="hello"):
    """The machine's name, and the version of its program."""

    name: Annotated[str, Meta(pattern=MACHINE_NAME)]
    version: Word


class Digest(msgspec.Struct):
    """A digest's segments, as in its file."""

    segments: list[dict[str, Any]] = []


class Documents(msgspec.Struct):
    """A session's meta file, labels, tags and digest, as `get` answers them."""

    meta: dict[str, Any] | None
    labels: dict[str, str]
    tags: list[str]
    digest: Digest


class Session(msgspec.Struct, tag="session"):
    """A session's row and other texts; replaces what was told about it before."""

    id: Id
    row: SharedRow
    summary: Annotated[str, Meta(max_length=2 * limits.SUMMARY_MAX)]
    aliases: Annotated[list[Name], Meta(max_length=16)]
    documents: Documents


class Text(msgspec.Struct, tag="text"):
    """Messages of a session, which replace those with a row of `first` or later."""

    id: Id
    first: Count
    messages: list[tuple[Count, str, str, str, str]]  # as search.index.Message


class Drop(msgspec.Struct, tag="drop"):
    """The session was excluded on this machine: it is no longer shared."""

    id: Id


class Purge(msgspec.Struct, tag="purge"):
    """The session was purged: every machine forgets it for good."""

    id: Id
    agent: Word


class Complete(msgspec.Struct, tag="complete"):
    """All that the machine shares was told again since `start`; what was not is void."""

    start: Count


Record = Hello | Session | Text | Drop | Purge | Complete
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Place(NamedTuple):
    """Where a record is in the logs of all fleets."""

    fleet: str
    machine: str
    seq: int
    kind: str

    @property
    def bound(self) -> bytes:
        return msgspec.json.encode(self)


class BadRecordError(Exception):
    """A record that cannot be used; the message says why, and has nothing of its text."""


def kind_of(record: Record) -> str:
    return str(type(record).__struct_config__.tag)


def pack(record: Record) -> bytes:
    return _encode(record)


def fingerprint(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=16).digest()


def key_id(key: bytes) -> bytes:
    return blake2b(key, digest_size=_ID_BYTES, person=b"indexerd-key-id").digest()


def seal(key: bytes, place: Place, packed: bytes) -> bytes:
    """Compress and encrypt a record for its place."""
    nonce = os.urandom(_NONCE_BYTES)
    data = zstandard.ZstdCompressor(level=3).compress(packed)
    return key_id(key) + nonce + AESGCM(key).encrypt(nonce, data, place.bound)


def unseal(keys: Mapping[bytes, bytes], place: Place, version: int, body: bytes) -> Record:
    """Decrypt and check a record; `keys` by their ids. Raises BadRecordError."""
    if version > VERSION:
        raise BadRecordError("it is of a later version: update indexerd")
    if not body:
        raise BadRecordError("it is too large")
    key = keys.get(body[:_ID_BYTES])
    if key is None:
        raise BadRecordError("its key is unknown here: join with the newest code")
    at = _ID_BYTES + _NONCE_BYTES
    try:
        data = AESGCM(key).decrypt(body[_ID_BYTES:at], body[at:], place.bound)
        if zstandard.frame_content_size(data) not in range(1, BODY_MAX + 1):
            raise BadRecordError("it is too large")
        record = _decoder.decode(zstandard.ZstdDecompressor().decompress(data, BODY_MAX))
        _check(record)
    except _BAD as bad:
        why = "it does not match its key and place" if isinstance(bad, InvalidTag) else "not valid"
        raise BadRecordError(why) from None
    if kind_of(record) != place.kind:
        raise BadRecordError("it is of another kind than it says")
    if isinstance(record, Session) and record.row.session_id != record.id:
        raise BadRecordError("its row is of another session")
    return record


def _check(record: Record) -> None:
    """Raise for what types do not say: numbers and values that JSON cannot have, meta files."""
    if isinstance(record, Session):
        row, documents = record.row, record.documents
        costs = (row.cost_usd or 0.0, row.cost_estimated_usd or 0.0)
        if not all(0 <= cost < _COST_MAX for cost in costs):  # neither is NaN
            raise ValueError(record.id)
        if not row.session_file.startswith("/") or _CONTROL.search(row.session_file + row.cwd):
            raise ValueError(record.id)  # both are in the command that resumes it
        msgspec.json.encode(documents)
        if documents.meta is not None:
            parse_meta(msgspec.json.encode(documents.meta), "a record")


class JoinCode(NamedTuple):
    """What a machine needs to join: how to reach the server, and the key."""

    server: dict[str, str]  # parameters of libpq, with the fleet's role and its password
    key: bytes

    def __str__(self) -> str:
        data = _encode((self.server, self.key))
        check = blake2b(data, digest_size=_CHECK_BYTES).digest()
        return _CODE + urlsafe_b64encode(data + check).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> JoinCode:
        """Read a code; UsageError if a part of it is missing or wrong."""
        try:
            code = re.sub(r"\s", "", text).removeprefix(_CODE)
            data = urlsafe_b64decode(code + "=" * (-len(code) % 4))
            data, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
            server, key = msgspec.msgpack.decode(data, type=tuple[dict[str, str], bytes])
        except ValueError:
            server, key, check, data = {}, b"", b"", b""
        if blake2b(data, digest_size=_CHECK_BYTES).digest() != check or len(key) != KEY_BYTES:
            hint = "copy the whole last line of `indexerd fleet init` or `rotate-key`"
            raise UsageError("not a join code, or not all of it", hint=hint)
        return cls(server, key)
