"""The blocking client: one socket, one question at a time, errors of the tree.

In: the socket's path, a method, its params. Out: the method's result as plain JSON values, or
the error that the daemon raised, as the class of its kind, so that hints and exit codes hold.
Standard library only, and little of it: agents' hooks pay for every import at every prompt.
`json` alone costs nearly as much as starting Python does (it brings `re` and `enum`), so its
two C functions are taken directly, and `json` only judges what they stumble over. For the same
reason the error tree is imported when there is an error, and `typing` never.

A call waits `timeout` seconds in total. After one that ran out of time the connection is
closed: half a request may have been sent.
"""

from __future__ import annotations

import errno
import os
import time
from _socket import AF_UNIX, SOCK_STREAM, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Self

    from indexerd.errors import IndexerdError

TIMEOUT = 10.0
_REQUEST_MAX = 1024 * 1024
_REPLY_MAX = 64 * 1024 * 1024
_EVENTS_MAX = 10_000  # kept while a call waits for its answer
_RETRY_SECONDS = 0.01


def call_once(
    path: str | os.PathLike[str],
    method: str,
    params: Mapping[str, Any] | None = None,
    timeout: float = TIMEOUT,
) -> Any:
    """Connect, ask, hang up. Errors as `Client` raises them."""
    with Client(path, timeout) as client:
        return client.call(method, params)


class Client:
    """A connection. Not for several threads.

    DaemonDownError: nobody listens, or the daemon hung up. AccessError: the system says no.
    DeadlineError: no answer in time. UsageError: a path or params that cannot be sent.
    """

    def __init__(self, path: str | os.PathLike[str], timeout: float = TIMEOUT) -> None:
        self._path = os.fspath(path)
        self._timeout = timeout
        self._held = bytearray()
        self._events: list[dict[str, Any]] = []
        self._id = 0
        self._sock: socket | None = _connect(self._path, time.monotonic() + timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up. Twice is fine."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Ask, and wait for the answer; the daemon's error is raised."""
        self._id += 1
        line = _request(
            {"jsonrpc": "2.0", "id": self._id, "method": method, "params": dict(params or {})}
        )
        deadline = time.monotonic() + self._timeout
        try:
            self._ready(deadline).sendall(line)
            reply = self._reply(deadline)
        except OSError as problem:
            self.close()
            raise _unreachable(self._path, problem) from None
        if "error" in reply:
            raise _told(reply["error"])
        return reply.get("result")

    def events(
        self, names: Sequence[str] | None = None, timeout: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Subscribe now, and yield events for ever.

        `timeout` is how many seconds each may take (DeadlineError); None waits as long as the
        daemon lives (DaemonDownError). Either error ends the iteration.
        """
        self.call("subscribe", None if names is None else {"events": list(names)})
        return self._next_events(timeout)

    def _next_events(self, timeout: float | None) -> Iterator[dict[str, Any]]:
        while True:
            while self._events:
                yield self._events.pop(0)
            try:
                self._keep(self._line(None if timeout is None else time.monotonic() + timeout))
            except OSError as problem:
                raise _unreachable(self._path, problem) from None

    def _reply(self, deadline: float) -> dict[str, Any]:
        while True:
            held = self._line(deadline)
            if self._keep(held):
                continue
            if held.get("id") == self._id or ("error" in held and held.get("id") is None):
                return held

    def _keep(self, held: dict[str, Any]) -> bool:
        """Put an event aside; say whether it was one."""
        if held.get("method") != "event":
            return False
        self._events.append(held.get("params") or {})
        del self._events[:-_EVENTS_MAX]
        return True

    def _line(self, deadline: float | None) -> dict[str, Any]:
        """Receive one document; OSError where none comes."""
        looked = 0
        while (end := self._held.find(b"\n", looked)) < 0:
            looked = len(self._held)
            chunk = self._ready(deadline).recv(65536)
            if not chunk or looked > _REPLY_MAX:
                raise ConnectionResetError(errno.ECONNRESET, "the connection ended")
            self._held += chunk
        text = self._held[:end].decode("utf-8", "replace")
        del self._held[: end + 1]
        held = loads(text)
        if not isinstance(held, dict):
            raise ConnectionAbortedError(errno.EPROTO, "what answers there is no daemon of ours")
        return held

    def _ready(self, deadline: float | None) -> socket:
        if self._sock is None:
            raise ConnectionResetError(errno.ECONNRESET, "the connection ended")
        self._sock.settimeout(None if deadline is None else _left(deadline))
        return self._sock


def _connect(path: str, deadline: float) -> socket:
    sock = socket(AF_UNIX, SOCK_STREAM)
    try:
        while True:
            try:
                sock.settimeout(_left(deadline))
                sock.connect(path)
            except BlockingIOError:  # many knock at once: the daemon's backlog is full
                time.sleep(_RETRY_SECONDS)
            else:
                return sock
    except OSError as problem:
        sock.close()
        raise _unreachable(path, problem) from None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(errno.ETIMEDOUT, "timed out")
    return left


def _request(asked: dict[str, Any]) -> bytes:
    try:
        line = dumps(asked).encode("ascii") + b"\n"
        wrong = (
            "" if len(line) <= _REQUEST_MAX + 1 else f"a request is at most {_REQUEST_MAX} bytes"
        )
    except (TypeError, ValueError, RecursionError):
        wrong = "the params are not JSON"
    if wrong:
        from indexerd.errors import UsageError  # noqa: PLC0415 - see the module's head

        raise UsageError(wrong)
    return line


def _unreachable(path: str, problem: OSError) -> IndexerdError:
    from indexerd import errors  # noqa: PLC0415 - see the module's head

    why = problem.strerror or str(problem)
    if isinstance(problem, TimeoutError):
        return errors.DeadlineError("the daemon did not answer in time")
    if isinstance(problem, PermissionError):
        return errors.AccessError(f"no access to the daemon's socket {path}: {why}")
    if problem.errno is None:  # the path itself, which the system never got to see
        return errors.UsageError(f"{path}: {why}", hint="set INDEXERD_SOCKET to a shorter path")
    return errors.DaemonDownError(f"no daemon answers on {path}: {why}")


def _told(told: Mapping[str, Any]) -> IndexerdError:
    """Make the daemon's error again, of the first class in the tree that has its kind."""
    from indexerd import errors  # noqa: PLC0415 - see the module's head

    data = told.get("data") or {}
    message = str(told.get("message", ""))
    error: IndexerdError
    if data.get("kind") == errors.AmbiguousError.kind:
        error = errors.AmbiguousError(message, data.get("candidates", []))
    elif data.get("kind") == errors.ConfigError.kind:
        error = errors.ConfigError(data.get("problems", []))
    else:
        error = _class_of(errors.IndexerdError, data.get("kind"))(message)
    error.hint = str(data.get("hint", error.hint))
    error.retryable = bool(data.get("retryable", error.retryable))
    error.upstream = data.get("upstream")
    return error


def _class_of(root: type[IndexerdError], kind: object) -> type[IndexerdError]:
    """Find a kind's class; an unknown kind, of a newer daemon, is the root's."""
    waiting = [root]
    while waiting:
        one = waiting.pop(0)
        if one.kind == kind:
            return one
        waiting += one.__subclasses__()
    return root


class _Rules:
    """What the scanner wants to know; the values that `json` has by default."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = parse_constant = float
    parse_int = int


def dumps(value: object) -> str:
    """JSON in ASCII; TypeError or ValueError for what is none."""
    return "".join(_encode(value, 0)) if _encode else _json_itself().dumps(value, allow_nan=False)


def spelled(value: object, *, narrow: bool) -> str:
    """JSON for people: with spaces, and with letters as they are unless ASCII is wanted."""
    encode = _narrow if narrow else _wide
    if encode is None:
        return str(_json_itself().dumps(value, ensure_ascii=narrow))
    return "".join(encode(value, 0))


def loads(text: str) -> Any:
    """The value of a JSON text; None for what is none."""
    try:
        return _scan(text.strip(), 0)[0] if _scan else _json_itself().loads(text)
    except (StopIteration, SystemError, ValueError, RecursionError):
        return None  # with `json` not loaded the scanner cannot say what is wrong


def _json_itself() -> Any:
    import json  # noqa: PLC0415 - see the module's head

    return json


try:
    from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner

    # Calling None, for what is no JSON, is a TypeError; nothing is sorted, or skipped.
    _plain = (None, ":", ",", False, False, False)
    _airy = (None, ": ", ", ", False, False, True)
    _encode: Any = make_encoder(None, None, encode_basestring_ascii, *_plain)  # type: ignore[arg-type]  # see above
    _narrow: Any = make_encoder(None, None, encode_basestring_ascii, *_airy)  # type: ignore[arg-type]  # see above
    _wide: Any = make_encoder(None, None, encode_basestring, *_airy)  # type: ignore[arg-type]  # see above
    _scan: Any = make_scanner(_Rules)  # type: ignore[arg-type]  # anything with these attributes
except (ImportError, TypeError, AttributeError):  # CPython's own business, which may change
    _encode = _narrow = _wide = _scan = None
