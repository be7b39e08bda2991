"""A fake daemon on a real Unix socket that gives the answers a test chooses."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class FakeDaemon:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}

    def answer(self, line: bytes) -> bytes:
        asked = json.loads(line)
        self.asked.append((asked["method"], asked["params"]))
        found = self.answers[asked["method"]](asked["params"])
        if isinstance(found, bytes):
            return found
        told = {"error": found} if isinstance(found, dict) and "data" in found else {}
        reply = {"jsonrpc": "2.0", "id": asked["id"], **(told or {"result": found})}
        return json.dumps(reply).encode() + b"\n"

    @contextmanager
    def running(self) -> Iterator[None]:
        daemon = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(daemon.answer(line))

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        with Server(str(self.path), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()
                self.path.unlink()
