"""Words inside ids, directories and the paths of files that a session worked on.

In: a connection, words in lower case, and the sessions that may be found (a list in JSON; None
stands for all). Out: sessions and the text that has the words anywhere in it, "orch" in "/orchid",
which no index of words finds. Ids and directories have an index of letters. Paths of files stand
in the rows only: these are looked through for words that look like a path, or that nothing else
has, and of the newest 20,000 sessions (12 ms for 10,000 rows of 1 KB).
Secrets in directories are not found, and not shown.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from indexerd.privacy.redact_paths import shown_path
from indexerd.search.letters import latest_with
from indexerd.search.query import excerpt

_PLACE_MIN = 3  # characters that may stand anywhere in an id or a path
_ROWS = 20_000  # looked through for files
_FILES = ("filesModified", "filesRead")
_PATH = re.compile(r"[^\W\d_][./_\\]\w|\w[./_\\][^\W\d_]")

# All in one step, as in catalog_rows. In JSON no line is broken, and what is JSON already took
# twice as long when it was put into JSON once more: rows may hold a thousand paths.
_ROWS_WITH = """SELECT group_concat(no || ' ' || row, char(10)) FROM (SELECT no, row
    FROM (SELECT no FROM session
    WHERE :scope IS NULL OR no IN (SELECT value FROM json_each(:scope))
    ORDER BY modified DESC LIMIT :rows) JOIN record USING (no)
    WHERE row LIKE :part ESCAPE '!' LIMIT :most)"""


class InPath(NamedTuple):
    """A session with a word in a file's path. `edited`: it changed the file."""

    no: int
    path: str
    edited: bool


def is_path(term: str) -> bool:
    """Say whether a term looks like a file: signs between letters."""
    return " " not in term and _PATH.search(term) is not None


def places_with(
    db: sqlite3.Connection, words: Sequence[str], scope: str | None, most: int
) -> Iterator[tuple[int, str, str]]:
    """Ids and directories that have all words anywhere in them: session, which, its text."""
    for no, session_id, cwd in latest_with(db, words, scope, most):
        for column, text in (("id", session_id), ("cwd", shown_path(cwd))):
            if all(word in text.lower() for word in words):
                yield no, column, text


def files_with(db: sqlite3.Connection, word: str, scope: str | None, most: int) -> Iterator[InPath]:
    """Sessions with a word in the path of a file, below their directory; changed ones first."""
    if len(word) < _PLACE_MIN:
        return
    part = re.sub(r"([%_!])", r"!\1", json.dumps(word)[1:-1])
    given = {"part": f"%{part}%", "scope": scope, "most": most, "rows": _ROWS}
    rows: str | None = db.execute(_ROWS_WITH, given).fetchone()[0]
    for line in rows.split("\n") if rows else ():
        no, _, text = line.partition(" ")
        row = json.loads(text)
        above = shown_path(str(row.get("cwd") or "")).rstrip("/") + "/"
        for name in _FILES:
            paths = (str(one).removeprefix(above) for one in row.get(name) or ())
            found = next((path for path in paths if word in path.lower()), None)
            if found is not None:
                yield InPath(int(no), found, name == _FILES[0])
                break


def marked(text: str, words: Sequence[str]) -> str:
    """A snippet of an id or a path."""
    lower = text.lower()
    places = [(lower.find(word), n, word) for n, word in enumerate(words)]
    return excerpt(text, [(at, at + len(word), n) for at, n, word in places if at >= 0])
