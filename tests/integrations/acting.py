"""A daemon that is only acted: a real socket, and answers that a test chooses.

For what the real daemon never does: no answer, half an answer, too much of one, an odd one. And
for what it does only once in a while, such as events at a chosen moment.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

Answer = Callable[[dict[str, Any]], Any]


class Refusal(Exception):  # noqa: N818 - what a daemon says, and no fault of this program
    """An error to answer with."""

    def __init__(self, kind: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error = {"code": 1001, "message": message, "data": {"kind": kind, **data}}


class Raw(bytes):
    """Bytes to answer with, whatever they are; empty ones are no answer at all."""

    __slots__ = ()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    actor: Acting


class _Talk(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError):
            self.server.actor.serve(self)


class Acting:
    """What was asked, what is answered, and who listens."""

    HELLO: ClassVar[dict[str, Any]] = {"version": "0", "protocol": 1, "capabilities": []}

    def __init__(self, answers: Mapping[str, Answer | Any]) -> None:
        self.answers: dict[str, Answer | Any] = {"hello": self.HELLO, "subscribe": {}, **answers}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self._ears: list[_Talk] = []

    def params(self, method: str) -> list[dict[str, Any]]:
        """What a method was asked with, in order."""
        return [params for name, params in self.asked if name == method]

    def tell(self, **event: Any) -> None:
        """Send an event to whoever listens."""
        line = {"jsonrpc": "2.0", "method": "event", "params": event}
        for talk in self._ears:
            talk.wfile.write(json.dumps(line).encode() + b"\n")

    def hang_up(self) -> None:
        """End every listening connection; whoever comes back counts anew."""
        ended, self._ears = self._ears, []
        for talk in ended:
            talk.connection.shutdown(socket.SHUT_RDWR)

    @property
    def heard_by(self) -> int:
        """How many have subscribed."""
        return len(self._ears)

    def serve(self, talk: _Talk) -> None:
        """One connection, to its end."""
        self.connections += 1
        for line in talk.rfile:
            request = json.loads(line)
            method, params = request["method"], request["params"]
            self.asked.append((method, params))
            talk.wfile.write(self._reply(request["id"], method, params))
            if method == "subscribe":
                self._ears.append(talk)

    def _reply(self, request_id: int, method: str, params: dict[str, Any]) -> bytes:
        found = self.answers.get(method)
        said: dict[str, Any]
        try:
            result = found(params) if callable(found) else found
        except Refusal as refusal:
            said = {"error": refusal.error}
        else:
            if isinstance(result, Raw):
                return result
            said = {"result": result}
        return json.dumps({"jsonrpc": "2.0", "id": request_id, **said}).encode() + b"\n"


@contextmanager
def acting(path: Path, **answers: Answer | Any) -> Iterator[Acting]:
    """Answer on a socket until the block ends."""
    actor = Acting(answers)
    with _Server(str(path), _Talk) as server:
        server.actor = actor
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield actor
        finally:
            server.shutdown()
            thread.join()
            path.unlink(missing_ok=True)
