"""Messages that are stored already, written anew; and what the catalog's indexes owe for it.

In: an open transaction's connection. A session whose file is gone cannot be read again: where its
words may not stay as they are, they are changed where they stand. What was taken out so, or
dropped, is still in an index until that is merged (`catalog_write.scour`). Until this is done it
is owed, and noted in the same transaction, so that no end of the process forgets it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import count

from indexerd.search.query import scrub, segment, shown
from indexerd.store.write import (
    BLANKED,
    blank,
    copy_of,
    cut,
    drop_messages,
    forget,
    messages_of,
    scour,
    thoroughly,
    unblank,
)

SCOUR, SCOURING, FOLD = "scour", "scouring", "fold"
SECRETS, TURN = "secrets", "turn"

_runs = count(1)  # what a note is of: a later scouring does what an earlier one would

_SOME = "SELECT id, entry, text FROM message WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_TAKE_OUT = "INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', ?, ?)"


def redo(
    db: sqlite3.Connection, session_id: str, above: int, most: int, change: Callable[[str], str]
) -> int:
    """Change some of a session's messages, those with a number above `above`; the last one's.

    0 where these were the last of all.
    """
    found = db.execute("SELECT no FROM session WHERE id = ?", (scrub(session_id),)).fetchone()
    if found is None:
        return 0
    first, last = messages_of(found[0])
    rows = db.execute(_SOME, (max(above, first - 1), last, most)).fetchall()
    new = {key: segment(cut(change(shown(text)))) for key, _, text in rows}
    changed = [one for one in rows if new[one[0]] != one[2]]
    if changed:
        owe(db, SCOUR)
    with thoroughly(db):
        for key, entry, text in changed:
            db.execute(_TAKE_OUT, (key, text))
            if not new[key].strip():
                db.execute("DELETE FROM message WHERE id = ?", (key,))
                continue
            copy = copy_of(entry or f"{session_id}\0{key}", new[key])
            db.execute("UPDATE message SET copy = ?, text = ? WHERE id = ?", (copy, new[key], key))
            db.execute("INSERT INTO message_words (rowid, text) VALUES (?, ?)", (key, new[key]))
    return int(rows[-1][0]) if len(rows) == most else 0


def drop_wholly(db: sqlite3.Connection, session_id: str) -> None:
    """Drop a session's messages, for good: something in them was not to be kept."""
    owe(db, SCOUR)
    with thoroughly(db):
        drop_messages(db, session_id)


def forget_wholly(db: sqlite3.Connection, session_id: str) -> None:
    """Drop a session with all that is held of it, for good."""
    if forget(db, session_id):
        owe(db, SCOUR)


def owe(db: sqlite3.Connection, what: str) -> None:
    """Note what is to be done."""
    db.execute("INSERT OR IGNORE INTO note VALUES (?, '')", (what,))


def paid(db: sqlite3.Connection, what: str) -> None:
    """It is done."""
    db.execute("DELETE FROM note WHERE name = ?", (what,))


def stored_under(db: sqlite3.Connection, mark: str) -> bool:
    """What is stored from now on is without the secrets that `mark` stands for. Says if it is new.

    Rows were made under another one before, of sessions that nobody has read, too.
    """
    new = mark != held_under(db)
    if new:
        db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (SECRETS, mark))
        if db.execute("SELECT 1 FROM about LIMIT 1").fetchone():
            owe(db, SCOUR)
    return new


def held_under(db: sqlite3.Connection) -> str:
    """The mark that was given last to `stored_under`."""
    held = db.execute("SELECT value FROM note WHERE name = ?", (SECRETS,)).fetchone()
    return str(held[0]) if held else ""


def held_turn(db: sqlite3.Connection) -> int:
    """How many transactions the catalog has seen."""
    held = db.execute("SELECT value FROM note WHERE name = ?", (TURN,)).fetchone()
    return int(held[0]) if held else 0


def keep_turn(db: sqlite3.Connection, turn: int) -> None:
    """One transaction more."""
    db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (TURN, str(turn)))


def owes_scour(db: sqlite3.Connection) -> bool:
    """Whether indexes are to be scoured, or were not to the end."""
    sql = "SELECT 1 FROM note WHERE name IN (?, ?)"
    return db.execute(sql, (SCOUR, SCOURING)).fetchone() is not None


def scoured(db: sqlite3.Connection) -> Iterator[bool]:
    """Scour, one step a time, each in a transaction; what is dropped meanwhile is owed anew."""
    paid(db, SCOUR)
    run = str(next(_runs))
    db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (SCOURING, run))
    more = scour(db, begin=True)
    while more:
        yield True
        more = scour(db, begin=False)
    free = db.execute("PRAGMA freelist_count").fetchone()[0]
    while blank(db) and free > 0:  # what comes to be free meanwhile holds none of it
        free -= BLANKED
        yield True
    while unblank(db):
        yield True
    # Another may have begun meanwhile, for what was dropped after this one had begun.
    db.execute("DELETE FROM note WHERE name = ? AND value = ?", (SCOURING, run))
    owe(db, FOLD)
    yield False


def owes_fold(db: sqlite3.Connection) -> bool:
    """Whether the log may hold what was scoured out of the file."""
    return db.execute("SELECT 1 FROM note WHERE name = ?", (FOLD,)).fetchone() is not None
