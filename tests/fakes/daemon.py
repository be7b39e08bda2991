"""A fake daemon on a real Unix socket that gives the answers a test chooses."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HELLO = {"version": "0", "protocol": 1, "capabilities": []}
FAILED = [f"@@nope{n}: no such session" for n in range(6)]  # in an answer of `expand`


class Refusal(Exception):  # noqa: N818 - an answer, not an exception of this program
    """An error to answer with."""

    def __init__(self, kind: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error = {"code": 1001, "message": message, "data": {"kind": kind, **data}}


class Raw(bytes):
    """Bytes to answer with; b"" means no answer at all."""

    __slots__ = ()


class HangUp:
    """Close the connection instead of answering."""


class Acting(socketserver.ThreadingUnixStreamServer):
    """The requests so far, the answers (values, refusals or functions) and subscribers."""

    daemon_threads = True

    def __init__(self, path: Path, answers: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(str(path), _Talk)
        self.answers: dict[str, Any] = {"hello": HELLO, "subscribe": {}, **answers}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self.over = threading.Event()
        self.ears: list[_Talk] = []

    def params(self, method: str) -> list[dict[str, Any]]:
        """The params of every call of a method, in order."""
        return [params for name, params in self.asked if name == method]

    @property
    def methods(self) -> list[str]:
        """The methods called, in order."""
        return [name for name, _ in self.asked]

    def tell(self, **event: Any) -> None:
        line = {"jsonrpc": "2.0", "method": "event", "params": event}
        for talk in self.ears:
            talk.wfile.write(json.dumps(line).encode() + b"\n")

    def hang_up(self) -> None:
        """Close every subscriber's connection; new ones are counted from zero."""
        ended, self.ears = self.ears, []
        for talk in ended:
            talk.connection.shutdown(socket.SHUT_RDWR)


class _Talk(socketserver.StreamRequestHandler):
    server: Acting

    def handle(self) -> None:
        """One connection, to its end."""
        self.server.connections += 1
        with suppress(OSError):
            for line in self.rfile:
                request = json.loads(line)
                method, params = request["method"], request.get("params", {})
                self.server.asked.append((method, params))
                found: Any = self.server.answers.get(method)
                said: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
                try:
                    found = found(params) if callable(found) else found
                except Refusal as refusal:
                    found = refusal
                if isinstance(found, Refusal):
                    said["error"] = found.error
                else:
                    said["result"] = found
                if isinstance(found, HangUp):
                    return
                told = found if isinstance(found, Raw) else json.dumps(said).encode() + b"\n"
                self.wfile.write(told)
                if method == "subscribe":
                    self.server.ears.append(self)


@contextmanager
def acting(path: Path, **answers: Any) -> Iterator[Acting]:
    """Answer on a socket until the block ends."""
    with Acting(path, answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
            path.unlink(missing_ok=True)


def slow(seconds: float, answer: Any) -> Callable[[dict[str, Any]], Any]:
    def late(_params: dict[str, Any]) -> Any:
        threading.Event().wait(seconds)
        return answer

    return late
