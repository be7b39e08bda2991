"""The blocking client: finds the socket, sends requests, raises the daemon's errors.

Agents' hooks import this at every prompt, so it uses little of the standard library: `json` alone
(with `re` and `enum`) takes nearly as long as starting Python does. Its C functions are called
directly, and the error classes are imported when there is an error.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from _json import encode_basestring_ascii, make_encoder, make_scanner
from _socket import AF_UNIX, SOCK_STREAM, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Self

    from indexerd.errors import IndexerdError

TIMEOUT = 10.0


def socket_path(env: Mapping[str, str], home: str | None = None) -> str:
    """Return the path of the daemon's socket; UsageError if the home directory is unknown."""
    if env.get("INDEXERD_SOCKET"):
        return absolute(env["INDEXERD_SOCKET"], env, home)
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return f"{runtime}/indexerd/indexerd.sock"
    own = f"{state_dir(env, home)}/indexerd.sock"
    # Some hosts pass little more than HOME and PATH, but the daemon uses the login's directory.
    login = f"/run/user/{os.getuid()}/indexerd/indexerd.sock"
    bare = not (env.get("INDEXERD_STATE_DIR") or env.get("XDG_STATE_HOME") or os.path.exists(own))  # noqa: PTH110 - start-up time
    return login if bare and os.path.exists(login) else own  # noqa: PTH110 - start-up time


def state_dir(env: Mapping[str, str], home: str | None = None) -> str:
    """Return the path of the directory with store, index and log."""
    if env.get("INDEXERD_STATE_DIR"):
        return absolute(env["INDEXERD_STATE_DIR"], env, home)
    base = env.get("XDG_STATE_HOME", "")
    if base.startswith("/"):  # the XDG rule: relative values are ignored
        return f"{base}/indexerd"
    home = home or home_of(env)
    own = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    return f"{home}/{own}/indexerd"


def is_windows_path(path: str) -> bool:
    r"""Return whether a path is an absolute one of Windows: `C:\x`, `c:/x`, `\\host\x`."""
    return (path[:1].isalpha() and path[1:3] in (":\\", ":/")) or path.startswith("\\\\")


def absolute(path: str, env: Mapping[str, str], home: str | None = None) -> str:
    """Make a path absolute, and expand `~/`."""
    if path == "~" or path.startswith("~/"):
        path = f"{home or home_of(env)}/{path[2:]}"
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109 - start-up time


def home_of(env: Mapping[str, str]) -> str:
    """Return the home directory, from the environment or the user database."""
    named = env.get("HOME", "")
    home = named if named.startswith("/") else os.path.expanduser("~")  # noqa: PTH111 - start-up time
    if not home.startswith("/"):
        from indexerd.errors import UsageError  # noqa: PLC0415 - start-up time

        raise UsageError("cannot find the home directory", hint="set HOME")
    return home


def call_once(
    path: str | os.PathLike[str],
    method: str,
    params: Mapping[str, Any] | None = None,
    timeout: float = TIMEOUT,
) -> Any:
    """Send one request on a connection of its own. Raises what `Client` raises."""
    with Client(path, timeout) as client:
        return client.call(method, params)


class Client:
    """A connection, for one thread. A call waits at most `timeout` seconds in total.

    DaemonDownError: no daemon answers, or it hung up. DeadlineError: no answer in time; the
    connection is closed. AccessError or UsageError: the system denies access or refuses the path.
    """

    def __init__(self, path: str | os.PathLike[str], timeout: float = TIMEOUT) -> None:
        self._path = os.fspath(path)
        self._timeout = timeout
        self._received = bytearray()
        self._events: list[dict[str, Any]] = []
        self._id = 0
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(self._path)
        except OSError as bad:
            raise self._failed(bad) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return its result; the daemon's error is raised."""
        self._id += 1
        request = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": dict(params or {})}
        line = dumps(request).encode() + b"\n"
        deadline = time.monotonic() + self._timeout
        try:
            self._wait_until(deadline)
            self._socket.sendall(line)
            reply = self._receive(deadline)
            while reply.get("id") != self._id and ("error" not in reply or reply.get("id")):
                self._keep(reply)
                reply = self._receive(deadline)
        except OSError as bad:
            raise self._failed(bad) from None
        if "error" in reply:
            raise _error(reply["error"])
        return reply.get("result")

    def events(
        self, names: Sequence[str] | None = None, timeout: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Subscribe now, and yield events until the daemon stops (DaemonDownError).

        DeadlineError: no event for `timeout` seconds.
        """
        self.call("subscribe", None if names is None else {"events": list(names)})
        return self._next_events(timeout)

    def _next_events(self, timeout: float | None) -> Iterator[dict[str, Any]]:
        while True:
            while self._events:
                yield self._events.pop(0)
            try:
                self._keep(self._receive(None if timeout is None else time.monotonic() + timeout))
            except OSError as bad:
                raise self._failed(bad) from None

    def _keep(self, message: Mapping[str, Any]) -> None:
        if message.get("method") == "event":
            self._events.append(message.get("params") or {})

    def _receive(self, deadline: float | None) -> dict[str, Any]:
        seen = 0
        while (end := self._received.find(b"\n", seen)) < 0:
            seen = len(self._received)
            self._wait_until(deadline)
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
            self._received += chunk
        value = loads(self._received[:end].decode("utf-8", "replace"))
        del self._received[: end + 1]
        if not isinstance(value, dict):
            raise ConnectionAbortedError(errno.EPROTO, "the reply is not from indexerd")
        return value

    def _wait_until(self, deadline: float | None) -> None:
        seconds = None if deadline is None else deadline - time.monotonic()
        if seconds is not None and seconds <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
        self._socket.settimeout(seconds)

    def _failed(self, bad: OSError) -> IndexerdError:
        from indexerd import errors  # noqa: PLC0415 - start-up time

        self.close()
        why = bad.strerror or str(bad)
        if isinstance(bad, TimeoutError):
            return errors.DeadlineError("the daemon did not answer in time")
        if isinstance(bad, PermissionError):
            return errors.AccessError(f"no access to the daemon's socket {self._path}: {why}")
        if bad.errno is None:  # Python refused the path
            hint = "set INDEXERD_SOCKET to a shorter path"
            return errors.UsageError(f"{self._path}: {why}", hint=hint)
        return errors.DaemonDownError(f"no daemon answers on {self._path}: {why}")


def _error(answer: Mapping[str, Any]) -> IndexerdError:
    """Rebuild the exception from the error object of an answer."""
    from indexerd.errors import BY_KIND, IndexerdError  # noqa: PLC0415 - start-up time

    data = answer.get("data") or {}
    kind = BY_KIND.get(str(data.get("kind")), IndexerdError)
    error = kind.__new__(kind, str(answer.get("message", "")))
    vars(error).update({key: value for key, value in data.items() if key != "kind"})
    return error


class _Rules:
    """The attributes that the scanner reads, with the defaults of `json`."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = parse_constant = float
    parse_int = int


def dumps(value: object) -> str:
    """Encode as ASCII JSON; TypeError or ValueError if that is impossible."""
    # The second None is called for a value that is not JSON, which raises the TypeError.
    rules: Any = (None, None, encode_basestring_ascii, None, ":", ",", False, False, False)
    return "".join(make_encoder(*rules)(value, 0))


def loads(text: str) -> Any:
    """Decode a JSON text; None if it is invalid."""
    try:
        return make_scanner(_Rules)(text.strip(), 0)[0]  # type: ignore[arg-type]  # it has the attributes
    except (StopIteration, SystemError, ValueError, RecursionError):
        return None  # SystemError: without `json` the scanner cannot raise its own error
