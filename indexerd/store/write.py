"""What goes into the catalog: rows with their texts, and messages.

In: an open transaction's connection and the values. All of it is idempotent: what is there
already, byte for byte, is not written again, and of a row only the columns that changed: most
are in some index. Indexes read their words from the tables beside them, so every text is taken
out of its index before its row changes (`_unindex`).

A message's number holds its session's number above 20 bits, so that the messages of a session
lie together and come in order. Sessions put in together are numbered in the order of their last
change, so that on the whole a higher number is a newer session.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from indexerd.search.letters import add_id, drop_id, enter_place, leave_place
from indexerd.search.names import known
from indexerd.search.names_fuzzy import folded
from indexerd.search.query import scrub, segment
from indexerd.times import iso_ms

TEXT_MAX = 65_536  # bytes of a message, or of a summary, that are indexed
SESSION_SHIFT = 20
MESSAGES_MAX = 1 << SESSION_SHIFT  # of a session; further ones are not found
_MERGED = 200  # pages of an index that are merged at a time
BLANKED = 256  # free pages that are overwritten at a time
_LEVELS_MAX = 500  # of an index; SQLite takes one of more than 2,000 for damaged
_INDEXES = (
    "about_words", "name_words", "about_letters", "id_letters", "place_letters", "message_words",
)  # fmt: skip
_STRUCTURE = 10  # the row of an index's own data that tells of its levels
_VARINT_MORE = 0x80

Message = tuple[str, str, str, str]  # entry id, role, timestamp, text


@dataclass(frozen=True, slots=True)
class SearchText:
    """What a row does not hold, but is found by. `aliases`: all names the session answers to."""

    summary: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A row, as it is stored."""

    session_id: str
    modified: int
    values: tuple[Any, ...]  # as in _SET
    row: str
    names: tuple[str, ...]
    texts: tuple[str, ...]  # as in _ABOUT, as they were given
    row_seal: bytes
    text_seal: bytes

    def stored(self) -> tuple[str, ...]:
        """The texts as they are searched, and the names as they are compared."""
        nearly = "\n".join(map(folded, self.names))
        return *(segment(cut(one)) for one in self.texts), nearly


_SET = (
    "agent", "cwd", "file", "modified", "created", "archived", "gone", "subagent", "parent",
    "name", "named", "aliases",
)  # fmt: skip
_CWD = _SET.index("cwd")
_HELD = f"SELECT no, row_seal, text_seal, {', '.join(_SET)} FROM session WHERE id = ?"  # noqa: S608 - our own names
_ABOUT = "name, tags, description, summary"


def put_items(db: sqlite3.Connection, items: Iterable[Item]) -> int:
    """Add or change rows; says how many were not the same before."""
    return sum(_put(db, item) for item in sorted(items, key=lambda one: one.modified))


def item_of(row: Mapping[str, Any], text: SearchText) -> Item:
    """A row and its texts, as they are stored."""
    held = known(row, text.aliases)
    names = [scrub(name) for name in held.aliases]
    aliases = "" if names == [scrub(held.name)] else json.dumps(names)
    cwd = scrub(held.cwd)
    values = (
        scrub(str(row.get("agent") or "")),
        cwd.rstrip("/") or cwd[:1],
        scrub(str(row.get("sessionFile") or "")),
        held.modified,
        iso_ms(str(row.get("createdAt") or "")),
        *(bool(row.get(key)) for key in ("archived", "gone", "subagent")),
        scrub(str(row.get("parentSessionId") or row.get("parentSessionFile") or "")) or None,
        scrub(held.name),
        held.named,
        aliases,
    )
    tags = row.get("tags")
    texts = (
        "\n".join(names),
        ", ".join(map(str, tags)) if isinstance(tags, list | tuple) else "",
        str(row.get("description") or ""),
        text.summary,
    )
    whole = json.dumps(row, separators=(",", ":"))
    return Item(
        session_id=scrub(held.session_id),
        modified=held.modified,
        values=values,
        row=whole,
        names=tuple(names),
        texts=texts,
        row_seal=_digest(whole, aliases),
        text_seal=_digest(*texts),
    )


def cut(text: str) -> str:
    """At most TEXT_MAX bytes of a text."""
    text = text[:TEXT_MAX]
    if text.isascii():
        return text
    return text.encode("utf-8", "replace")[:TEXT_MAX].decode("utf-8", "ignore")


def _digest(*texts: str, size: int = 16) -> bytes:
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=size).digest()


def _put(db: sqlite3.Connection, item: Item) -> bool:
    held = db.execute(_HELD, (item.session_id,)).fetchone()
    if held is None:
        held = (_number(db, item.session_id), *[None] * (2 + len(_SET)))
    no, row_seal, text_seal, *values = held
    if row_seal == item.row_seal and text_seal == item.text_seal:
        return False
    if row_seal != item.row_seal:
        _put_row(db, no, values, item)
    if text_seal != item.text_seal:
        _put_texts(db, no, item)
    return True


def _put_row(db: sqlite3.Connection, no: int, held: Sequence[Any], item: Item) -> None:
    pairs = zip(_SET, held, item.values, strict=True)
    changed = {name: new for name, old, new in pairs if old != new}
    changed["row_seal"] = item.row_seal
    fields = ", ".join(f"{name} = ?" for name in changed)
    db.execute(f"UPDATE session SET {fields} WHERE no = ?", (*changed.values(), no))  # noqa: S608 - our own names
    db.execute("INSERT OR REPLACE INTO record VALUES (?, ?)", (no, item.row))
    if "cwd" in changed:
        enter_place(db, item.values[_CWD])
        leave_place(db, held[_CWD])


def _put_texts(db: sqlite3.Connection, no: int, item: Item) -> None:
    texts = item.stored()
    _unindex_about(db, no)
    db.execute("INSERT OR REPLACE INTO about VALUES (?, ?, ?, ?, ?, ?)", (no, *texts))
    db.execute(
        f"INSERT INTO about_words (rowid, {_ABOUT}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - our own names
        (no, *texts[:-1]),
    )
    db.execute("INSERT INTO name_words (rowid, name, tags) VALUES (?, ?, ?)", (no, *texts[:2]))
    db.execute("INSERT INTO about_letters (rowid, nearly) VALUES (?, ?)", (no, texts[-1]))
    db.execute("UPDATE session SET text_seal = ? WHERE no = ?", (item.text_seal, no))


def _unindex_about(db: sqlite3.Connection, no: int) -> None:
    held = db.execute(f"SELECT {_ABOUT}, nearly FROM about WHERE no = ?", (no,)).fetchone()  # noqa: S608 - ours
    if held is not None:
        db.execute(
            f"INSERT INTO about_words (about_words, rowid, {_ABOUT})"  # noqa: S608 - our own names
            " VALUES ('delete', ?, ?, ?, ?, ?)",
            (no, *held[:-1]),
        )
        db.execute(
            "INSERT INTO name_words (name_words, rowid, name, tags) VALUES ('delete', ?, ?, ?)",
            (no, *held[:2]),
        )
        db.execute(
            "INSERT INTO about_letters (about_letters, rowid, nearly) VALUES ('delete', ?, ?)",
            (no, held[-1]),
        )


def _number(db: sqlite3.Connection, session_id: str) -> int:
    """The number of a session, made up where there is none."""
    session_id = scrub(session_id)
    found = db.execute("SELECT no FROM session WHERE id = ?", (session_id,)).fetchone()
    if found:
        return int(found[0])
    no = db.execute("INSERT INTO session (id) VALUES (?)", (session_id,)).lastrowid or 0
    add_id(db, no, session_id)
    return no


def messages_of(no: int) -> tuple[int, int]:
    """The first and last number that a message of a session may have."""
    return no << SESSION_SHIFT, (no << SESSION_SHIFT) + MESSAGES_MAX - 1


def add_messages(
    db: sqlite3.Connection, session_id: str, given: Sequence[Message], mark: str | None
) -> int:
    """Add what is not there already; says how many."""
    no = _number(db, session_id)
    first, last = messages_of(no)
    top = db.execute("SELECT max(id) FROM message WHERE id BETWEEN ? AND ?", (first, last))
    start = (top.fetchone()[0] or first) + 1
    new: dict[int, tuple[str, str, str, str]] = {}
    for n, (entry, role, at, text) in enumerate(given):
        words = segment(cut(text))
        if words.strip():
            copy = copy_of(entry or f"{session_id}\0{start + n}", words)
            new.setdefault(copy, (scrub(entry), scrub(role), scrub(at), words))
    held = db.execute(
        "SELECT copy FROM message WHERE copy IN (SELECT value FROM json_each(?))"
        " AND id BETWEEN ? AND ?",
        (json.dumps([*new]), first, last),
    )
    for (copy,) in held.fetchall():
        del new[copy]
    numbered = list(zip(range(start, last + 1), new.items(), strict=False))
    db.executemany(
        "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)",
        [(key, copy, *values) for key, (copy, values) in numbered],
    )
    db.executemany(
        "INSERT INTO message_words (rowid, text) VALUES (?, ?)",
        [(key, values[-1]) for key, (_, values) in numbered],
    )
    if mark is not None:
        set_mark(db, session_id, mark)
    return len(numbered)


def copy_of(entry: str, text: str) -> int:
    """The same number for the same entry and text in any session."""
    return int.from_bytes(_digest(entry, text, size=8), "big", signed=True)


def drop_messages(db: sqlite3.Connection, session_id: str) -> None:
    """Drop a session's messages and its mark."""
    span = messages_of(_number(db, session_id))
    held = db.execute("SELECT id, text FROM message WHERE id BETWEEN ? AND ?", span)
    db.executemany(
        "INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', ?, ?)", held
    )
    db.execute("DELETE FROM message WHERE id BETWEEN ? AND ?", span)
    db.execute("UPDATE session SET mark = NULL WHERE id = ?", (scrub(session_id),))


def forget(db: sqlite3.Connection, session_id: str) -> bool:
    """Drop a session with all that is held of it; says whether there was anything."""
    sql = "SELECT no, id, cwd FROM session WHERE id = ?"
    found = db.execute(sql, (scrub(session_id),)).fetchone()
    if found is None:
        return False
    no, held_id, cwd = found
    with thoroughly(db):
        drop_messages(db, session_id)
        _unindex_about(db, no)
        drop_id(db, no, held_id)
        for table in ("about", "record", "session"):
            db.execute(f"DELETE FROM {table} WHERE no = ?", (no,))  # noqa: S608 - our own names
        leave_place(db, cwd)
    return True


def scour(db: sqlite3.Connection, *, begin: bool) -> bool:
    """Merge a part of the indexes, so that words of what was dropped go; True: there is more.

    SQLite keeps the words of dropped rows in its indexes until these are merged. To begin that
    adds a level to an index each time (before 3.43 without an end), and only to make the index
    anew takes levels away. That is one step, but comes once in some hundred times.
    """
    more = False
    with thoroughly(db):
        for table in _INDEXES:
            if begin and _levels(db, table) >= _LEVELS_MAX:
                db.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")  # noqa: S608 - ours
                continue
            before = db.total_changes
            db.execute(
                f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)",  # noqa: S608 - our names
                (-_MERGED if begin else _MERGED,),
            )
            more = more or db.total_changes - before > 1
    return more


def blank(db: sqlite3.Connection) -> bool:
    """Overwrite some of the file's free pages; True: there are more.

    What an index was merged from lies in these as it was, and words of what was dropped with it.
    They are taken by a row of zeroes, which `unblank` gives back.
    """
    free = min(db.execute("PRAGMA freelist_count").fetchone()[0], BLANKED)
    if free:
        size = free * db.execute("PRAGMA page_size").fetchone()[0]
        db.execute("INSERT INTO blank (filler) VALUES (zeroblob(?))", (size,))
    return bool(free)


def unblank(db: sqlite3.Connection) -> bool:
    """Give back some of the pages that were overwritten; True: there are more."""
    with thoroughly(db):
        db.execute("DELETE FROM blank WHERE no = (SELECT max(no) FROM blank)")
    return db.execute("SELECT 1 FROM blank LIMIT 1").fetchone() is not None


def _levels(db: sqlite3.Connection, table: str) -> int:
    """How many levels an index has: the first number after its structure's four-byte cookie."""
    sql = f"SELECT block FROM {table}_data WHERE id = ?"  # noqa: S608 - our own names
    found = db.execute(sql, (_STRUCTURE,)).fetchone()
    count = 0
    for byte in found[0][4:] if found else b"":
        count = count << 7 | byte & ~_VARINT_MORE
        if not byte & _VARINT_MORE:
            break
    return count


@contextmanager
def thoroughly(db: sqlite3.Connection) -> Iterator[None]:
    """What is deleted meanwhile is overwritten, whole pages too."""
    db.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = FAST")


def set_mark(db: sqlite3.Connection, session_id: str, mark: str | None) -> None:
    """Keep how far the caller has come with a session's messages."""
    db.execute("UPDATE session SET mark = ? WHERE no = ?", (mark, _number(db, session_id)))


def get_mark(db: sqlite3.Connection, session_id: str) -> str | None:
    """What was kept last."""
    found = db.execute("SELECT mark FROM session WHERE id = ?", (scrub(session_id),)).fetchone()
    return found[0] if found else None
