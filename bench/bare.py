"""The plain way to keep rows and texts: one SQLite file, its indexes, and one FTS5 table.

What a program does that takes SQLite as it comes: rows as JSON text with a primary key, an index
for each order that is listed, every text a row of a table of words, answers ranked by SQLite. The
log and the synchronous setting are the catalog's, so that a commit is worth the same.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rapidfuzz import process
from rapidfuzz.distance import OSA

SCHEMA = """
CREATE TABLE row (
  id TEXT PRIMARY KEY, cwd TEXT, modified TEXT, hidden INTEGER, row TEXT, summary TEXT);
CREATE INDEX row_listed ON row (hidden, modified DESC, id);
CREATE INDEX row_place ON row (cwd, hidden, modified DESC, id);
CREATE VIRTUAL TABLE word USING fts5 (session UNINDEXED, text);
CREATE VIRTUAL TABLE term USING fts5vocab (word, row);
"""
_LISTED = "SELECT row FROM row WHERE hidden = 0"
_ORDER = "ORDER BY modified DESC, id LIMIT 50"
_PLACE = "(cwd = ? OR cwd >= ? || '/' AND cwd < ? || '0')"
_OF_PLACE = "SELECT row FROM row INDEXED BY row_place WHERE cwd >= ? AND cwd < ? || '0'"
_FOUND = "SELECT session, snippet(word, 1, '«', '»', '…', 24) FROM word"
_RANKED = "WHERE word MATCH ? ORDER BY rank LIMIT 20"
_SLIPS = 2  # letters that a mistyped word may be off

Filled = Sequence[tuple[dict[str, Any], str]]  # rows, each with its summary
Hits = list[tuple[str, str]]  # session, snippet


class Bare:
    """Rows and texts in a file of their own; rows that change are no part of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.executescript(SCHEMA)
        self.terms: list[str] = []  # all words, once `learn` was called

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()

    def size(self) -> int:
        """Bytes of the file and of its log."""
        return sum(one.stat().st_size for one in self.path.parent.glob(self.path.name + "*"))

    def put(self, filled: Filled) -> int:
        """Add rows with their texts; says how many were not there as they are."""
        new = 0
        self.db.execute("BEGIN")
        for row, summary in filled:
            text, key = json.dumps(row), row["sessionId"]
            held = self.db.execute("SELECT row, summary FROM row WHERE id = ?", (key,)).fetchone()
            if held == (text, summary):
                continue
            new += 1
            hidden = row["archived"] or row["gone"]
            values = (key, row["cwd"], row["modifiedAt"], hidden, text, summary)
            self.db.execute("INSERT INTO row VALUES (?, ?, ?, ?, ?, ?)", values)
            fields = (row["name"], ", ".join(row["tags"]), row["description"], summary)
            self._say((key, one) for one in fields)
        self.db.execute("COMMIT")
        return new

    def add(self, said: Iterable[tuple[str, str]]) -> None:
        """Add messages, each with its session, and commit."""
        self.db.execute("BEGIN")
        self._say(said)
        self.db.execute("COMMIT")

    def _say(self, said: Iterable[tuple[str, str]]) -> None:
        self.db.executemany("INSERT INTO word VALUES (?, ?)", said)

    def get(self, key: str) -> dict[str, Any]:
        """A row, parsed."""
        text = self.db.execute("SELECT row FROM row WHERE id = ?", (key,)).fetchone()[0]
        found: dict[str, Any] = json.loads(text)
        return found

    def newest(self) -> list[str]:
        """The first page of all, in JSON."""
        return self._texts(f"{_LISTED} {_ORDER}")

    def after(self, modified: str, key: str) -> list[str]:
        """The page behind a row that is the last of another."""
        where = "AND modified <= ? AND (modified < ? OR id > ?)"
        return self._texts(f"{_LISTED} {where} {_ORDER}", modified, modified, key)

    def of(self, cwd: str) -> list[str]:
        """The first page of a directory and all below."""
        return self._texts(f"{_OF_PLACE} AND {_PLACE} AND hidden = 0 {_ORDER}", *[cwd] * 5)

    def _texts(self, sql: str, *values: str) -> list[str]:
        return [text for (text,) in self.db.execute(sql, values)]

    def find(self, match: str) -> Hits:
        """The twenty texts that rank best, each with the words in it."""
        return self.db.execute(f"{_FOUND} {_RANKED}", (match,)).fetchall()

    def find_in(self, match: str, cwd: str) -> Hits:
        """The same of the sessions in a directory and below."""
        there = f"session IN (SELECT id FROM row WHERE {_PLACE})"
        sql = f"{_FOUND} WHERE word MATCH ? AND {there} ORDER BY rank LIMIT 20"
        return self.db.execute(sql, (match, cwd, cwd, cwd)).fetchall()

    def learn(self) -> None:
        """Take all words into memory, to compare mistyped ones with."""
        self.terms = [term for (term,) in self.db.execute("SELECT term FROM term")]

    def find_nearly(self, word: str) -> Hits:
        """What has a word, or else the one that is nearest to it of all."""
        found = self.find(quoted(word))
        if not found:
            near = process.extractOne(
                word, self.terms, scorer=OSA.distance, score_cutoff=_SLIPS, processor=None
            )
            found = self.find(quoted(near[0])) if near else []
        return found

    def fitting(self, pattern: str) -> list[str]:
        """Twenty sessions with a text that a pattern fits, by a look at each, newest first."""
        fits, found = re.compile(pattern, re.IGNORECASE).search, dict[str, None]()
        for session, text in self.db.execute("SELECT session, text FROM word ORDER BY rowid DESC"):
            if fits(text):
                found[session] = None
                if len(found) == 20:
                    break
        return [*found]


def quoted(words: str) -> str:
    """Words as FTS5 takes them, whatever is in them."""
    return " ".join(f'"{word}"' for word in words.split())
