"""A scriptable HTTP server on 127.0.0.1, and the faults that any HTTP API can show.

    with GeminiServer() as server:              # or OpenAIServer
        server.script("503_json", "valid")      # one item a request; then `default` for ever
        server.default = "valid"
        ... let the program under test call server.url ...
        assert server.hits == 2
        server.requests[0].json["contents"]     # what was sent: path, headers, body

An item is the name of a fault (see `faults()`), an `Answer`, or a function of the `Request`
that gives either. Requests are recorded whole before they are answered. The server runs in
threads of this process, so a daemon in another process can use it by its URL; leaving the
context ends hanging answers, closes the sockets and joins the threads.
"""

import contextlib
import functools
import gzip
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

NOW = "Sat, 21 Nov 2026 10:00:00 GMT"  # the Date of every answer
HUGE = 200 * 1024 * 1024
BOMB = 32 * 1024 * 1024


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """One answer. `how` says what becomes of it on the wire.

    `whole` sends it; `hang` sends nothing; `drip` sends one byte every half second; `reset`
    answers with a TCP reset; `close` closes without a byte; `short` promises more than it
    sends; `less` promises less; `stream` sends `size` bytes in chunks, `promise` announces them.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    how: str = "whole"
    size: int = 0


Item = str | Answer | Callable[[Request], "Answer | str"]


def as_json(held: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    head = {"Content-Type": "application/json; charset=UTF-8"} | named
    return Answer(status, json.dumps(held).encode(), head)


def as_html(status: int) -> Answer:
    page = f"<html><head><title>{status}</title></head><body>upstream-body-canary</body></html>"
    return Answer(status, page.encode(), {"Content-Type": "text/html"})


def wire_faults(valid: Answer, elsewhere: str) -> dict[str, Answer]:
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    there = {"Location": elsewhere}
    return {
        "valid": valid,
        "hang": Answer(how="hang"),
        "drip": Answer(body=valid.body, headers=valid.headers, how="drip"),
        "reset": Answer(how="reset"),
        "close": Answer(how="close"),
        "short_body": Answer(body=valid.body, headers=valid.headers, how="short"),
        "wrong_length": Answer(body=valid.body, headers=valid.headers, how="less"),
        "broken_json": Answer(body=b'{"canary": "upstream-body-canary', headers=valid.headers),
        "not_utf8": Answer(body=b'{"a": "\xff\xfe"}', headers=valid.headers),
        "nested": Answer(body=b"[" * 100_000, headers=valid.headers),
        "empty_object": as_json({}),
        "array": as_json([]),
        "empty_body": Answer(headers=valid.headers),
        "no_content": Answer(status=204),
        "huge": Answer(headers=valid.headers, how="stream", size=HUGE),
        "huge_promised": Answer(headers=valid.headers, how="promise", size=HUGE),
        "huge_error": Answer(500, headers=valid.headers, how="stream", size=HUGE),
        "gzip_bomb": Answer(body=_bomb(), headers=packed),
        "redirect_302": Answer(302, headers=there),
        "redirect_307": Answer(307, headers=there),
        "redirect_308": Answer(308, headers=there),
        "502_html": as_html(502),
    }


@functools.cache
def _bomb() -> bytes:
    return gzip.compress(b" " * BOMB, 1)


class FakeServer:
    default: Item = "valid"

    def __init__(self, elsewhere: str = "http://127.0.0.1:9/") -> None:
        self.requests: list[Request] = []
        self.elsewhere = elsewhere
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._script: list[Item] = []
        self._named: dict[str, Answer] | None = None
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def faults(self) -> dict[str, Answer]:
        raise NotImplementedError

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def hits(self) -> int:
        return len(self.requests)

    def script(self, *items: Item) -> None:
        with self._lock:
            self._script += items

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            item = self._script.pop(0) if self._script else self.default
            if self._named is None:
                self._named = self.faults()
        if callable(item):
            item = item(request)
        return self._named[item] if isinstance(item, str) else item

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()  # joins the handlers' threads


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 64
    daemon_threads = False
    block_on_close = True
    fake: FakeServer

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass

    def end_connections(self) -> None:
        for one in self._open.copy():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return NOW

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        head = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.fake.answer(Request(self.path, head, self.rfile.read(length)))
        self.close_connection = answer.how not in ("whole", "less")
        getattr(self, f"_{answer.how}")(answer)

    do_GET = do_POST  # noqa: N815 - a redirect of 302 is followed by GET

    def _head(self, answer: Answer, length: int | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        elif answer.status != 204:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _whole(self, answer: Answer) -> None:
        self._head(answer, len(answer.body))
        self.wfile.write(answer.body)

    def _short(self, answer: Answer) -> None:
        self._head(answer, len(answer.body) + 100)
        self.wfile.write(answer.body)

    def _less(self, answer: Answer) -> None:
        self._head(answer, len(answer.body) // 2)
        self.wfile.write(answer.body)

    def _hang(self, answer: Answer) -> None:
        self._until_gone(lambda: None)

    def _drip(self, answer: Answer) -> None:
        self._head(answer, len(answer.body))
        rest = iter(answer.body)
        self._until_gone(lambda: self.wfile.write(bytes([next(rest)])))

    def _until_gone(self, each: Callable[[], object]) -> None:
        self.connection.settimeout(0.01)
        while not self.server.fake.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                if not self.connection.recv(1):
                    return
            each()
            for _ in range(10):  # in small steps, to notice either quickly
                if self.server.fake.stopping.wait(0.05):
                    return

    def _close(self, answer: Answer) -> None:
        pass

    def _reset(self, answer: Answer) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()

    def _stream(self, answer: Answer) -> None:
        self._head(answer, None)
        for part in _filler(answer.size):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _promise(self, answer: Answer) -> None:
        self._head(answer, answer.size)
        for part in _filler(answer.size):
            self.wfile.write(part)


def _filler(size: int) -> Iterator[bytes]:
    part = b'{"upstream-body-canary": 1}'.ljust(65_536)
    for _ in range(size // len(part)):
        yield part
