"""The catalog's file: its tables, how it is opened, and what SQLite's errors mean.

A file that is damaged, or of another version, is set aside (`cache_file`) and made anew, because
everything in it can be read again from session and meta files. A reader never changes anything:
where there is no usable file it gets an empty catalog in memory.

Damage that shows only later, in the middle of the file, is noted in `<name>.damaged`: should the
process end before it has made the catalog anew, the next one to open it for writing does.

Names and tags stand in an index of their own besides that of all fields: most words are in some
description or summary, and a search for one in names had to go through all of these.

The indexes for search keep no text of their own, but read it from the tables beside them, so a
text must be taken out of its index, with the very words that went in, before its row is deleted.
SQLite's memory for new words is raised from 1 to 8 MiB, and its log from 4 to 32 MiB: either makes
building a fifth faster.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from indexerd.errors import AccessError, DamagedError, StateError, WriteError
from indexerd.search.query import MATCH_TOKENIZER
from indexerd.store.cache_file import Seal, is_access, is_trouble, named

VERSION = 3  # 2: sessions have a parent; 3: ids and directories are found by their letters
_WORDS_IN_MEMORY = 8 << 20  # bytes
_BUSY_MS = 5000
_ANEW = "a running daemon makes it anew in a moment, and any at its start"
LOG_MAX = 32 << 20  # bytes, before the write-ahead log is brought into the file
_LOG_KEPT = 64 << 20  # bytes that the write-ahead log keeps after a checkpoint

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


def open_writer(path: Path, seal: Seal) -> tuple[sqlite3.Connection, bool]:
    """Open for writing; says whether there was no catalog, so that this one is empty.

    Raises DamagedError, or whatever else SQLite and Python do, for one that is of no use.
    """
    if _noted(path).exists():
        raise DamagedError("noted before")
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        new = version == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if new:
            seal.drop()  # what comes now is written without a log
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")  # but by our seal
        db.execute(f"PRAGMA journal_size_limit = {_LOG_KEPT}")
        db.execute("PRAGMA secure_delete = FAST")
        db.execute("PRAGMA cache_size = -8000")
        if new:
            db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        _check(db)
        if not new:
            db.executescript(_LATER)
    except Exception:
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


def open_reader(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """Open for reading. `readonly`: this process does not write the file in any other way."""
    uri = path.absolute().as_uri() + ("?mode=ro" if readonly else "?mode=rw")
    db = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
    try:
        db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = MEMORY")  # what is sorted needs no room on a full disk
        _check(db)
    except Exception:
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


def forget_damage(path: Path) -> None:
    """It was made anew."""
    _noted(path).unlink(missing_ok=True)


def _noted(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def ours(error: BaseException) -> StateError:
    """What a failure of the catalog means to a user."""
    if isinstance(error, StateError) and not isinstance(error, DamagedError):
        return error
    if isinstance(error, OSError):
        return AccessError(f"the catalog cannot be opened: {error.strerror}")
    if not is_trouble(error):
        return StateError(f"the catalog is damaged: {named(error)}", hint=_ANEW)
    kind = AccessError if is_access(error) else WriteError
    return kind(f"the catalog cannot be used now: {error}")
