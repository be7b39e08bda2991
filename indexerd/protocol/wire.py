"""The socket's wire format: JSON-RPC 2.0, one JSON document per line.

The standard library parses requests, because msgspec refuses the escaped lone surrogates that
agents do write; NaN, 1e999 and surrogates are dealt with here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import msgspec

from indexerd.errors import RPC_CODES, IndexerdError, UsageError
from indexerd.privacy.redact import shown_path
from indexerd.privacy.sanitize import without_surrogates

LINE_MAX = 1024 * 1024  # bytes of one request line, without its newline
ID_MAX = 256  # characters of a request's id, which the answer repeats
_SHOWN = 64  # characters of a method's name that an error message repeats

Id: TypeAlias = str | int | float | None


class Fault(IntEnum):
    """JSON-RPC's own error codes, for faulty requests and internal errors."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    UNKNOWN_METHOD = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603


class Request(msgspec.Struct, frozen=True):
    """One call. `params` is always an object: empty if it was absent or null."""

    id: Id
    method: str
    params: dict[str, Any]
    is_notification: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A fault to answer with. `id` is None if the request's id could not be read."""

    id: Id
    fault: Fault
    message: str
    hint: str = "see docs/PROTOCOL.md"

    def to_line(self) -> bytes:
        kind = "internal" if self.fault is Fault.INTERNAL else "usage"
        data = {"kind": kind, "hint": self.hint, "retryable": False}
        return _error(self.id, self.fault, self.message, data)


def parse(line: bytes | bytearray) -> Request | Failure:
    """Read one line. Never raises."""
    if len(line) > LINE_MAX + 1:
        return too_long()
    try:
        value = _load(line)
    except (ValueError, RecursionError):
        return Failure(None, Fault.PARSE, "not a JSON document")
    if not isinstance(value, dict):
        message = "a request must be a JSON object; batches are not supported: send one per line"
        return Failure(None, Fault.INVALID_REQUEST, message)
    ident, method, params = value.get("id"), value.get("method"), value.get("params")
    is_id = ident is None or (isinstance(ident, str | int | float) and not isinstance(ident, bool))
    if not is_id or len(str(ident)) > ID_MAX:
        message = f"id must be a string of at most {ID_MAX} characters, a number or null"
        return Failure(None, Fault.INVALID_REQUEST, message)
    if value.get("jsonrpc") != "2.0":
        return Failure(ident, Fault.INVALID_REQUEST, 'jsonrpc must be "2.0"')
    if not isinstance(method, str) or not method:
        return Failure(ident, Fault.INVALID_REQUEST, "method must be a string")
    if not isinstance(params, dict | None):
        return Failure(ident, Fault.INVALID_PARAMS, "params must be an object")
    return Request(ident, method, params or {}, is_notification="id" not in value)


def result(id: Id, value: Any) -> bytes:  # noqa: A002 - the protocol's own word
    """Encode an answer. TypeError: the value is not JSON. RecursionError: it is nested too deep."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (dump(id), dump(value))


def failure(id: Id, error: IndexerdError) -> bytes:  # noqa: A002 - as above
    """Encode an error: UsageError as "invalid params", others with the code of their kind."""
    invalid = isinstance(error, UsageError)
    code = Fault.INVALID_PARAMS if invalid else RPC_CODES.get(error.kind, RPC_CODES["internal"])
    safe = {"hint": shown_path(error.hint)}
    return _error(id, code, shown_path(str(error)), error.data() | safe)


def event(params: Mapping[str, Any]) -> bytes:
    """Encode a notification for a subscriber. Raises what `result` raises."""
    return b'{"jsonrpc":"2.0","method":"event","params":%b}\n' % dump(dict(params))


def unknown_method(request: Request) -> Failure:
    message = f"unknown method: {request.method[:_SHOWN]!r}"
    return Failure(request.id, Fault.UNKNOWN_METHOD, message, "`hello` lists the capabilities")


def too_long() -> Failure:
    return Failure(None, Fault.INVALID_REQUEST, f"the request line exceeds {LINE_MAX} bytes")


def _error(id: Id, code: int, message: str, data: Mapping[str, Any]) -> bytes:  # noqa: A002 - as above
    error = {"code": int(code), "message": message, "data": data}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (dump(id), dump(error))


_encode = msgspec.json.Encoder().encode


def _load(line: bytes | bytearray) -> Any:
    value = json.loads(line.decode("utf-8"), parse_constant=_finite, parse_float=_finite)
    return without_surrogates(value)


def _finite(text: str) -> float:
    number = float(text)  # also of the words NaN and Infinity
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def dump(value: Any) -> bytes:
    """Encode as JSON; NaN and infinity become null."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(without_surrogates(value))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server; the defaults are the protocol's."""

    line_bytes: int = LINE_MAX
    half_line_seconds: float = 5.0
    connections: int = 768  # leaves files to work with under the usual limit of 1,024
    unsent_bytes: int = 4 * 1024 * 1024  # of events that a subscriber has not read
    stall_seconds: float = 30.0  # until the peer has read an answer
    grace_seconds: float = 2.0  # for requests under way when the server closes


LIMITS = Limits()
