"""The catalog's file: its tables, how it is opened, and what SQLite's errors mean.

A file that is damaged, or of another version, is set aside as `<name>.aside` (one such file is
kept, until something is to be forgotten) and made anew, because everything in it can be read again
from session and meta files. A reader never changes anything: where there is no usable file it gets
an empty catalog in memory.

Damage that shows only later, in the middle of the file, is noted in `<name>.damaged`; the next
one to open the catalog for writing sets it aside.

Names and tags stand in an index of their own besides that of all fields: most words are in some
description or summary, and a search for one in names had to go through all of these.

The indexes for search keep no text of their own, but read it from the tables beside them, so a
text must be taken out of its index, with the very words that went in, before its row is deleted.
SQLite's memory for new words is raised from 1 to 8 MiB, and its log from 4 to 32 MiB: either makes
building a fifth faster.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from indexerd.errors import AccessError, StateError, WriteError
from indexerd.search.query import MATCH_TOKENIZER

VERSION = 3  # 2: sessions have a parent; 3: ids and directories are found by their letters
_WORDS_IN_MEMORY = 8 << 20  # bytes
_BUSY_MS = 5000
_LOG_PAGES = 8000  # of 4 KiB, before the write-ahead log is brought into the file
_LOG_MAX = 64 << 20  # bytes that the write-ahead log keeps after a checkpoint

_SCHEMA = f"""
CREATE TABLE session (
  no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT, cwd TEXT, file TEXT,
  modified INTEGER, created INTEGER, archived INTEGER, gone INTEGER, subagent INTEGER,
  parent TEXT, name TEXT, named INTEGER, aliases TEXT, row_seal BLOB, text_seal BLOB, mark TEXT);
CREATE INDEX session_listed
  ON session (modified DESC, id, agent, cwd, archived, gone, subagent);
CREATE INDEX session_file ON session (file);
CREATE INDEX session_cwd ON session (cwd);
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE VIRTUAL TABLE id_letters USING fts5 (
  id, content='session', content_rowid='no', columnsize=0, detail=none, tokenize='trigram');
CREATE TABLE place (no INTEGER PRIMARY KEY, cwd TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE place_letters USING fts5 (
  cwd, content='place', content_rowid='no', columnsize=0, detail=none, tokenize='trigram');
CREATE TABLE record (no INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE TABLE about (
  no INTEGER PRIMARY KEY, name TEXT, tags TEXT, description TEXT, summary TEXT, nearly TEXT);
CREATE VIRTUAL TABLE about_words USING fts5 (
  name, tags, description, summary,
  content='about', content_rowid='no', columnsize=0, tokenize='{MATCH_TOKENIZER}');
CREATE VIRTUAL TABLE name_words USING fts5 (
  name, tags, content='about', content_rowid='no', columnsize=0, tokenize='{MATCH_TOKENIZER}');
CREATE VIRTUAL TABLE about_letters USING fts5 (
  nearly, content='about', content_rowid='no', detail=none, tokenize='trigram');
CREATE TABLE message (
  id INTEGER PRIMARY KEY, copy INTEGER, entry TEXT, role TEXT, at TEXT, text TEXT);
CREATE INDEX message_copy ON message (copy);
CREATE VIRTUAL TABLE message_words USING fts5 (
  text, content='message', content_rowid='id', columnsize=0, tokenize='{MATCH_TOKENIZER}');
INSERT INTO message_words (message_words, rank) VALUES ('hashsize', {_WORDS_IN_MEMORY});
CREATE INDEX session_agent ON session (agent);
CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE blank (no INTEGER PRIMARY KEY, filler BLOB);
PRAGMA user_version = {VERSION};
"""  # noqa: S608 - only our own constants

# What came after the version did: a catalog of this version without it is only made whole.
_LATER = """
CREATE INDEX IF NOT EXISTS session_agent ON session (agent);
CREATE TABLE IF NOT EXISTS note (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blank (no INTEGER PRIMARY KEY, filler BLOB);
"""


def open_writer(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open for writing; says whether the catalog had to be made anew, and so is empty."""
    noted = _noted(path)
    try:
        if noted.exists():
            _set_aside(path)
            noted.unlink(missing_ok=True)
        try:
            return _open(path)
        except sqlite3.DatabaseError as error:
            if not is_unusable(error):
                raise ours(error) from error
            _set_aside(path)
            return _open(path)
    except OSError as error:
        raise AccessError(f"the catalog cannot be opened: {error.strerror}: {path}") from error
    except sqlite3.Error as error:
        raise ours(error) from error


def _open(path: Path) -> tuple[sqlite3.Connection, bool]:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        new = version == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {_LOG_MAX}")
        db.execute("PRAGMA secure_delete = FAST")
        db.execute("PRAGMA cache_size = -8000")
        if new:
            db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        _check(db)
        if not new:
            db.executescript(_LATER)
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db, new


class _OtherVersionError(sqlite3.DatabaseError):
    """A catalog, but not one that this program reads."""


def _check(db: sqlite3.Connection) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise _OtherVersionError(f"the catalog is of version {version}, not {VERSION}")
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    if not tables >= {"session", "record", "about", "message", "about_words", "message_words"}:
        raise _OtherVersionError("not a catalog")
    db.execute("SELECT * FROM session JOIN record USING (no) JOIN about USING (no)").fetchone()
    db.execute("SELECT * FROM message_words LIMIT 1").fetchone()


def is_unusable(error: sqlite3.Error) -> bool:
    """Say whether it is the file that is at fault, and not what was asked of it."""
    return isinstance(error, _OtherVersionError) or is_damage(error)


def _set_aside(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.replace(path.with_name(path.name + ".aside"))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def drop_aside(path: Path) -> None:
    """Let go of the file that was set aside: what is dropped now may be in it."""
    with suppress(OSError):
        path.with_name(path.name + ".aside").unlink(missing_ok=True)


def open_reader(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """Open for reading. `readonly`: this process does not write the file in any other way."""
    uri = path.absolute().as_uri() + ("?mode=ro" if readonly else "?mode=rw")
    db = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
    try:
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = MEMORY")  # what is sorted needs no room on a full disk
        _check(db)
    except sqlite3.Error:
        db.close()
        raise
    return db


def open_empty() -> sqlite3.Connection:
    """A catalog in memory that has nothing in it."""
    db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    db.executescript(_SCHEMA)
    return db


def note_damage(path: Path) -> None:
    """Have the next one who opens the catalog for writing make it anew."""
    with suppress(OSError):
        _noted(path).touch(mode=0o600)


def _noted(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF


def is_absent(error: sqlite3.Error) -> bool:
    """Say whether there is no file, or none that may be opened."""
    return _code(error) == sqlite3.SQLITE_CANTOPEN


def is_damage(error: sqlite3.Error) -> bool:
    """Say whether SQLite found the file itself to be wrong."""
    return _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def ours(error: sqlite3.Error) -> StateError:
    """What SQLite's error means to a user."""
    code = _code(error)
    if is_damage(error):
        return StateError(
            "the catalog is damaged", hint="restart the daemon: it makes the catalog anew"
        )
    if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY}:
        return WriteError(f"the catalog cannot be used now: {error}")
    if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return AccessError(f"the catalog cannot be opened: {error}")
    return StateError(f"the catalog failed: {error}")
