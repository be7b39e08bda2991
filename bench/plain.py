"""The plain way to do the daemon's job: what a short program does that takes all as it comes.

    python bench/plain.py ROOT PLACE

The limit of starts, look-ups and memory, for sessions as `home.py` makes them. Every line of every
file is parsed; a row of each session goes into an SQLite table with its indexes, every text into an
FTS5 table; size and time of each file are kept in memory. A start that finds these tables stats
every file, and reads those that differ. Questions are lines of JSON on a Unix socket, answered from
the tables; names go into a dict of folded names when somebody first asks for one, and a name that
nobody has is compared with all of them by rapidfuzz.

It imports what there is no way around for the daemon, and nothing of the daemon's. It watches no
file, redacts nothing, keeps no tree, and believes its tables. `Plain` starts it and asks it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self

from measure import memory_mb
from orjson import dumps, loads

FLOOR = "import asyncio, watchdog.observers, msgspec, structlog, pydantic"
PATIENCE = 300.0  # seconds for a start, on a slow machine, too
AT_ONCE = 500  # files that are committed together
TEXTS_MAX = 1000  # of one session
STORE, SOCKET = "plain.sqlite", "p"
SCHEMA = """
CREATE TABLE IF NOT EXISTS session (
  no INTEGER PRIMARY KEY, id TEXT UNIQUE, path TEXT UNIQUE, size INTEGER, time INTEGER,
  name TEXT, cwd TEXT, at TEXT, messages INTEGER);
CREATE INDEX IF NOT EXISTS session_name ON session (name);
CREATE INDEX IF NOT EXISTS session_at ON session (at);
CREATE VIRTUAL TABLE IF NOT EXISTS said USING fts5 (text);
"""
_PUT = """INSERT INTO session (id, path, size, time, name, cwd, at, messages)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET size = excluded.size,
  time = excluded.time, name = excluded.name, at = excluded.at, messages = excluded.messages
  RETURNING no"""
_ROW = "SELECT id AS sessionId, name, cwd, path, at, messages AS messageCount FROM session"
_FOUND = f"""SELECT id AS sessionId, snippet(said, 0, '«', '»', '…', 24) AS snippet
  FROM said JOIN session ON no = said.rowid / {TEXTS_MAX}
  WHERE said MATCH ? ORDER BY rank LIMIT 20"""
_COMPLETE = "SELECT name AS label, id FROM session WHERE name >= ? AND name < ? LIMIT 20"

File = tuple[str, int, int]  # path, bytes, time of the last change in nanoseconds


def files(top: str) -> Iterator[File]:
    """List all directories below, and stat every session file."""
    stack = [top]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                elif entry.name.endswith(".jsonl"):
                    status = entry.stat(follow_symlinks=False)
                    yield entry.path, status.st_size, status.st_mtime_ns


def imports() -> float:
    """Megabytes of a process that imports what there is no way around."""
    code = f"{FLOOR}\nimport measure\nprint(measure.memory_mb())"
    return float(subprocess.check_output([sys.executable, "-c", code], cwd=Path(__file__).parent))


# -- the program ---------------------------------------------------------------------------------


class Program:
    """Tables, what is known of each file, and answers."""

    def __init__(self, root: str, place: Path) -> None:
        self.root = root
        self.db = sqlite3.connect(place / STORE, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.executescript(SCHEMA)
        self.seen = {
            path: (size, at)
            for path, size, at in self.db.execute("SELECT path, size, time FROM session")
        }
        self.names: dict[str, str] = {}
        self.words = 0.0  # seconds that the table of texts took

    def scan(self) -> None:
        """Read what is not as it was."""
        due: list[File] = []
        for one in files(self.root):
            if self.seen.get(one[0]) != one[1:]:
                due.append(one)
            if len(due) == AT_ONCE:
                self.take(due)
                due = []
        self.take(due)

    def take(self, due: list[File]) -> None:
        """Read and parse some files; commit their rows, then their texts."""
        said: list[tuple[int, str]] = []
        self.db.execute("BEGIN")
        for path, size, at in due:
            with open(path, "rb") as file:
                lines = [loads(line) for line in file.read().splitlines()]
            row, texts = told(lines)
            [no] = self.db.execute(_PUT, (row[0], path, size, at, *row[1:])).fetchone()
            said += [(no * TEXTS_MAX + number, text) for number, text in enumerate(texts)]
            self.seen[path] = (size, at)
        self.db.execute("COMMIT")
        began = time.perf_counter()
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO said (rowid, text) VALUES (?, ?)", said)
        self.db.execute("COMMIT")
        self.words += time.perf_counter() - began

    def answer(self, method: str, text: str) -> dict[str, Any]:
        """What the daemon answers to the same, as far as it is checked."""
        if method == "resolve":
            return {"sessionId": self.resolve(text)}
        if method == "get":
            return {"session": self.rows(f"{_ROW} WHERE id = ?", text)[0]}
        if method == "list":
            return {"sessions": self.rows(f"{_ROW} ORDER BY at DESC LIMIT 50")}
        if method == "complete":
            return {"items": self.rows(_COMPLETE, text, text + "\U0010ffff")}
        return {"hits": self.rows(_FOUND, f'"{text}"')}

    def rows(self, sql: str, *values: str) -> list[dict[str, Any]]:
        """Rows by the names of their columns."""
        found = self.db.execute(sql, values)
        columns = [one[0] for one in found.description]
        return [dict(zip(columns, row, strict=True)) for row in found]

    def resolve(self, text: str) -> str:
        """The session of a name, or of the name that is most like it."""
        if not self.names:
            self.names = {
                folded(name): one for name, one in self.db.execute("SELECT name, id FROM session")
            }
        found = self.names.get(folded(text))
        if found is None:
            from rapidfuzz import fuzz, process  # noqa: PLC0415 - most starts need it never

            near = process.extractOne(folded(text), self.names.keys(), scorer=fuzz.WRatio)
            found = self.names[near[0]]
        return found


def told(lines: list[dict[str, Any]]) -> tuple[tuple[str, str, str, str, int], list[str]]:
    """Of a session: id, name, directory, last moment, number of messages; and what was said."""
    name, messages, texts = "", 0, []
    for one in lines:
        if one["type"] == "session_info":
            name = one["name"]
        elif one["type"] == "message":
            messages += 1
            texts += [part["text"] for part in one["message"]["content"]]
    head = lines[0]
    return (head["id"], name, head["cwd"], lines[-1]["timestamp"], messages), texts


def folded(name: str) -> str:
    """A name in lower case, its words one space apart."""
    return " ".join(name.casefold().split())


class Connection(asyncio.Protocol):
    """One client: a line of JSON for each of its own, `[method, text]`."""

    def __init__(self, program: Program) -> None:
        self.program, self.held = program, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self.held = (self.held + data).split(b"\n")
        for one in lines:
            self.transport.write(dumps(self.program.answer(*loads(one))) + b"\n")


async def serve(root: str, place: Path) -> None:
    """Start, tell of each moment on the output as JSON, and answer until killed."""
    exec(FLOOR)  # what the daemon imports, and no more
    began, before = time.perf_counter(), time.process_time()
    program = Program(root, place)
    path = place / SOCKET
    path.unlink(missing_ok=True)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Connection(program), path)
    ready = time.perf_counter() - began
    program.scan()
    texts, spent = time.perf_counter() - began, time.process_time() - before
    told = {"ready": ready, "scanned": texts - program.words, "texts": texts}
    told |= {"spent": spent, "known": len(program.seen)}
    print(dumps(told).decode(), flush=True)
    await server.serve_forever()


# -- who asks it ---------------------------------------------------------------------------------


class Peer:
    """A program that answers lines with lines; a context, which ends it."""

    def __init__(self, path: Path, *argv: str) -> None:
        self.process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, text=True)
        self.pid, self._path, self._file = self.process.pid, path, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def memory(self, field: str = "VmRSS") -> float:
        """Megabytes; `VmHWM` is the most it ever was."""
        return memory_mb(self.pid, field)

    def pause(self, *, on: bool) -> None:
        """Have it stand still, or go on."""
        self.process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def say(self, line: bytes) -> None:
        """One line to it; it is waited for until it listens."""
        if self._file is None:
            self._file = self._met()
        self._file.write(line + b"\n")
        self._file.flush()

    def hear(self) -> bytes:
        """The next line of it."""
        line: bytes = self._file.readline() if self._file is not None else b""
        if not line:
            raise SystemExit(f"{self.process.args} does not answer")
        return line

    def _met(self) -> Any:
        until = time.perf_counter() + PATIENCE
        while time.perf_counter() < until and self.process.poll() is None:
            with suppress(OSError), closing(socket.socket(socket.AF_UNIX)) as made:
                made.connect(str(self._path))
                return made.makefile("rwb")
            time.sleep(0.005)
        raise SystemExit(f"{self.process.args} does not listen")


class Plain(Peer):
    """This program on a home, once it knows every session.

    Moments are seconds since its imports, which take as long with any number of sessions.
    """

    def __init__(self, root: Path, sessions: Path) -> None:
        super().__init__(root / SOCKET, __file__, str(sessions), str(root))
        try:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
        except BaseException:  # nothing that was started stays
            self.__exit__()
            raise
        if not line:
            raise SystemExit("the plain program ended")
        told = loads(line)
        self.ready, self.scanned, self.texts = told["ready"], told["scanned"], told["texts"]
        self.spent, self.known = told["spent"], told["known"]  # processor seconds; sessions

    def ask(self, method: str, text: str = "") -> Any:
        """One question."""
        self.say(dumps([method, text]))
        return loads(self.hear())


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
