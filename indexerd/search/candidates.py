"""Which texts a search compares: those that match, and of very many the newest.

In: a connection, an FTS5 expression, the sessions that may be found. Out: texts with their session
and key. A field's candidates are the newest 100. Of messages the newest 500 are looked at, then,
as long as they are of few sessions, the next 500 below the last of these, and so on; then those
of the 30 sessions last used. Each session in turn, 200 for a page of 20 hits are compared.

One session's messages are looked up by themselves where the words stand for themselves. One that
stands for many would be gathered anew for each: there all messages between the oldest and the
newest of the sessions are gone through once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from indexerd.search.copies import originals
from indexerd.store.rows import numbers, together
from indexerd.store.write import SESSION_SHIFT, messages_of

FIELD_MAX = 100  # candidates of a field
SCORED = 8192  # characters of a text in which words are counted
_ROUND, _ROUNDS = 500, 8  # matching messages looked at in one go; how often
_SESSIONS = 5  # with matching messages, for each hit asked for
_COMPARED, _COMPARED_MORE = 100, 5  # messages; more for each hit asked for
_LATELY = 30  # sessions last used that are looked at anyway
_FEW = 60  # sessions in scope that are looked at one by one
_EACH = 20  # messages of a session looked at by itself
_NUMBER_MAX = (1 << 63) - 1

_EACH_OF = """
    SELECT value AS no, (SELECT json_group_array(rowid) FROM (SELECT rowid FROM message_words
      WHERE message_words MATCH :match
      AND rowid BETWEEN (value << :shift) + :first AND (value << :shift) + :last
      ORDER BY rowid LIMIT :most)) AS ids
    FROM json_each(:sessions)"""

Text = tuple[int, int, str]  # session, key, text


class Candidates:
    """The texts for one search; `scope` None stands for all sessions."""

    def __init__(self, db: sqlite3.Connection, scope: frozenset[int] | None, limit: int) -> None:
        self._db = db
        self._scope = scope
        self._limit = limit
        self._listed = None if scope is None else json.dumps([*scope])

    def _all(self, columns: str, sql: str, **values: Any) -> list[list[Any]]:
        return together(self._db, columns, sql, {"scope": self._listed, **values})

    def _numbers(self, column: str, sql: str, **values: Any) -> list[int]:
        return numbers(self._db, column, sql, {"scope": self._listed, **values})

    def fields(self, name: str, match: str) -> list[Text]:
        """A column's texts that match, of the newest sessions."""
        table = "name_words" if name in {"name", "tags"} else "about_words"
        sql = (
            f"SELECT rowid AS no, substr({name}, 1, :scored) AS text FROM {table}"  # noqa: S608 - our own names
            f" WHERE {table} MATCH :match AND (:scope IS NULL"
            " OR +rowid IN (SELECT value FROM json_each(:scope)))"
            " ORDER BY rowid DESC LIMIT :most"
        )
        most = max(FIELD_MAX, self._limit)
        rows = self._all("no, text", sql, match=match, scored=SCORED, most=most)
        return [(no, no, text) for no, text in rows]

    def messages(self, match: str, *, forms: bool) -> list[Text]:
        """Messages that match, each session's newest first; of copies the oldest session's.

        `forms`: a word of the expression stands for many.
        """
        if self._scope is not None and len(self._scope) <= _FEW:
            of_session = self._messages_of([*self._scope], match, forms=forms)
        else:
            of_session = self._newest_messages(match, forms=forms)
        turns = sorted(
            (turn, place, key)
            for place, keys in enumerate(of_session.values())
            for turn, key in enumerate(keys)
        )
        most = _COMPARED + _COMPARED_MORE * self._limit
        keys = [key for _, _, key in turns[:most]]
        return originals(self._db, keys, self._listed, SCORED)

    def _newest_messages(self, match: str, *, forms: bool) -> dict[int, list[int]]:
        """Sessions' newest matching messages, those of the newest sessions that have some."""
        sql = (
            "SELECT rowid AS id FROM message_words"
            " WHERE message_words MATCH :match AND rowid < :below"
            " AND (:scope IS NULL OR +(rowid >> :shift) IN (SELECT value FROM json_each(:scope)))"
            " ORDER BY rowid DESC LIMIT :most"
        )
        below, of_session = _NUMBER_MAX, dict[int, list[int]]()
        for _ in range(_ROUNDS):
            keys = self._numbers(
                "id", sql, match=match, below=below, shift=SESSION_SHIFT, most=_ROUND
            )
            for key in keys:
                of_session.setdefault(key >> SESSION_SHIFT, []).append(key)
            if len(keys) < _ROUND:
                return of_session
            if len(of_session) >= _SESSIONS * self._limit:
                break
            below, _ = messages_of(keys[-1] >> SESSION_SHIFT)  # enough of that session
        lately = self._used_lately()
        others = [no for no in lately if no not in of_session]
        of_session |= self._messages_of(others, match, forms=forms)
        return {no: of_session[no] for no in lately} | of_session

    def _messages_of(
        self, sessions: Sequence[int], match: str, *, forms: bool
    ) -> dict[int, list[int]]:
        """The same of some sessions; none of them is left out."""
        if not forms:
            return self._messages_in_each(sessions, match)
        of_session: dict[int, list[int]] = {no: [] for no in sessions}
        sql = (
            "SELECT rowid AS id FROM message_words WHERE message_words MATCH :match"
            " AND rowid BETWEEN :first AND :last"
            " AND (rowid >> :shift) IN (SELECT value FROM json_each(:sessions)) ORDER BY rowid"
        )
        first, _ = messages_of(min(sessions, default=0))
        _, last = messages_of(max(sessions, default=0))
        given = {"first": first, "last": last, "shift": SESSION_SHIFT}
        for key in self._numbers("id", sql, match=match, sessions=json.dumps(sessions), **given):
            of_session[key >> SESSION_SHIFT].append(key)
        return {no: _newest(keys[:_ROUND]) for no, keys in of_session.items()}

    def _messages_in_each(self, sessions: Sequence[int], match: str) -> dict[int, list[int]]:
        """Some sessions' matching messages, newest first; FTS5 finds its way only upwards."""
        first, last = messages_of(0)
        given = {"first": first, "last": last, "shift": SESSION_SHIFT, "most": _ROUND}
        rows = self._all(
            "no, json(ids)", _EACH_OF, match=match, sessions=json.dumps(sessions), **given
        )
        return {no: _newest(ids) for no, ids in rows}

    def _used_lately(self) -> list[int]:
        sql = (
            "SELECT no FROM session"
            " WHERE :scope IS NULL OR +no IN (SELECT value FROM json_each(:scope))"
            " ORDER BY modified DESC LIMIT :most"
        )
        return self._numbers("no", sql, most=_LATELY)


def _newest(keys: Sequence[int]) -> list[int]:
    return [*reversed(keys[-_EACH:])]
