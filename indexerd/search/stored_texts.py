"""Every text of the catalog, one after the other, for patterns, which no index can answer.

In: a connection, and the sessions that may be found (a list in JSON; None stands for all). Out:
session, field, key and the text as it is stored: a message's key is its number, a field's the
session's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from indexerd.privacy.redact_paths import shown_path
from indexerd.store.write import SESSION_SHIFT

Stored = tuple[int, str, int, str]
_COLUMNS = ("name", "id", "tags", "description", "summary", "cwd")


def all_fields(db: sqlite3.Connection, scope: str | None) -> Iterator[Stored]:
    """Names and what else describes sessions, those last used first."""
    for no, *texts in db.execute(
        "SELECT no, about.name, id, tags, description, summary, cwd"
        " FROM session JOIN about USING (no)"
        " WHERE :scope IS NULL OR no IN (SELECT value FROM json_each(:scope))"
        " ORDER BY modified DESC",
        {"scope": scope},
    ):
        for name, text in zip(_COLUMNS, texts, strict=True):
            yield no, name, no, shown_path(text) if name == "cwd" else text


def all_messages(db: sqlite3.Connection, scope: str | None) -> Iterator[Stored]:
    """Messages, from the newest sessions to the oldest."""
    for key, text in db.execute(
        "SELECT id, text FROM message WHERE :scope IS NULL"
        " OR (id >> :shift) IN (SELECT value FROM json_each(:scope)) ORDER BY id DESC",
        {"scope": scope, "shift": SESSION_SHIFT},
    ):
        yield key >> SESSION_SHIFT, "message", key, text
