"""Answers from the store and meta files: rows, references, search.

The daemon uses these, and so does the command line without a daemon. Nothing here writes, or reads
a session file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from indexerd.errors import NotFoundError
from indexerd.meta.sidecar import Sidecar, footer, listed, read_all, read_sidecar
from indexerd.paths import user_name
from indexerd.protocol import params
from indexerd.protocol.params import RefParams, SessionParams
from indexerd.references.resolve import NameIndex, Names
from indexerd.search.index import TextIndex
from indexerd.search.ranking import search
from indexerd.sessions.family import Link, by_age, depth_first, kept, member, relation

ANCESTORS_MAX = 8  # generations whose context sets are looked up
MEMBERS_MAX = 500  # sessions of a family

Row = dict[str, Any]


class Answers:
    """Answers typed params with the results that docs/PROTOCOL.md describes."""

    def __init__(
        self,
        texts: TextIndex,
        hidden: Callable[[Row], bool] | None = None,
        *,
        home: Callable[[str], str | None] = lambda _: None,
        behind: Callable[[], int] = int,
    ) -> None:
        """Answer from a store and its text index.

        `hidden(row)` applies the exclusions; a daemon has already applied them to the store.
        `home(session_id)` returns the directory of the session's meta file, if it has one.
        `behind()` counts sessions with text that is not searchable yet.
        """
        self.home = home
        self._behind = behind
        self._texts = texts
        self._store = texts.store
        self._sifts, self._hidden = hidden is not None, hidden or (lambda _: False)
        self.index = NameIndex(texts.store, lambda one: bool(hidden) and self._row(one) is None)

    @property
    def names(self) -> Names:
        return self.index.now()

    def _row(self, session_id: str) -> Row | None:
        row = self._store.get(session_id)
        return None if row is None or self._hidden(row) else row

    def row(self, ref: str, *, cwd: str | None = None, fuzzy: bool = True) -> Row:
        """Return the row of the session that a reference means.

        Without `fuzzy`, as for changes, a similar name is an AmbiguousError with candidates.
        """
        if row := self._row(ref):  # a new session is in the store before its name is known
            return row
        scope: params.Scope = "project" if cwd else "all"
        return self.by_id(self.names.resolve(ref, cwd=cwd, scope=scope, fuzzy=fuzzy)[0])

    def row_of(self, asked: RefParams | SessionParams) -> Row:
        ref = asked.ref if isinstance(asked, RefParams) else asked.session
        return self.row(ref, cwd=asked.cwd)

    def by_id(self, session_id: str) -> Row:
        row = self._row(session_id)
        if row is None:
            raise NotFoundError(f"no session {session_id}")
        return row

    def resolve(self, asked: params.Resolve) -> Row:
        scope = asked.scope or "project"
        match = self.names.resolve(asked.ref, cwd=asked.cwd, scope=scope, exclude=asked.exclude)
        name = self.by_id(match.session_id)["name"]
        found: Row = {"sessionId": match.session_id, "name": name, "how": match.how}
        return found if match.score is None else found | {"score": round(match.score, 3)}

    def complete(self, asked: params.Complete) -> Row:
        return {"items": self.names.complete(asked, time.time())}

    def list(self, asked: params.List) -> Row:
        found, cursor = self._store.page(**msgspec.structs.asdict(asked))
        rows = [row for row in found if not self._hidden(row)]
        return {"sessions": rows} | ({"nextCursor": cursor} if cursor else {})

    def search(self, asked: params.Search) -> Row:
        where: dict[str, Any] = {"agent": asked.agent, "cwd": asked.cwd, "since": asked.since}
        hits, warnings = search(self._texts, asked.query, **where, limit=asked.limit)
        found: Row = {"hits": hits}
        if asked.rows or self._sifts:
            rows = self._shown(one["sessionId"] for one in hits)
            found = {"hits": [one for one in hits if one["sessionId"] in rows]}
            found |= {"rows": rows} if asked.rows else {}
        if behind := self._behind():
            warnings.append(f"the text of {behind} sessions is not searchable yet")
        return found | ({"warnings": warnings} if warnings else {})

    def get(self, asked: RefParams) -> Row:
        row = self.row(asked.ref, cwd=asked.cwd)
        paths = self.sidecar_paths(row) if self.home(row["sessionId"]) is not None else []
        return {"session": row} | read_all(row["sessionId"], paths)

    def sidecar(self, row: Row) -> Sidecar:
        """Return a session's sidecar and context sets; callable in any thread."""
        return read_sidecar(self.sidecar_paths(row))

    def context(self, row: Row, asked: params.GetContext) -> Row:
        text, context = listed(self.sidecar(row).context, asked.set_name)
        return {"text": text, "context": context, "sessionId": row["sessionId"], "cwd": row["cwd"]}

    def footer(self, row: Row, _asked: RefParams) -> Row:
        return {"sessionId": row["sessionId"], **footer(self.sidecar(row).context, row["cwd"])}

    def sidecar_paths(self, row: Row) -> Sequence[Path]:
        """Return the path of a session's sidecar, then those of its ancestors, nearest first.

        NotFoundError if the session has no meta directory.
        """
        paths: list[Path] = []
        with suppress(NotFoundError):  # an unknown ancestor
            for _ in range(ANCESTORS_MAX + 1):
                home = self.home(row["sessionId"])
                if home is None and not paths:
                    break
                paths += [Path(home) / user_name(row["sessionId"])] if home else []
                if not is_fork(row):
                    break
                row = self.by_id(row["parentSessionId"])
        if not paths:
            raise NotFoundError("this session has no directory for a sidecar")
        return paths

    def family(self, row: Row, _asked: RefParams | None = None) -> Row:
        """Return a session's ancestors and all their descendants; callable in any thread.

        A hidden or unknown session is no member: the sessions that name it as their parent form one
        family, below `missingParent`.
        """
        own = row["sessionId"]
        roots, missing = self._roots(own)
        level = below = {one.session_id: one for one in roots}
        while level:
            children = self._children(level)
            level = {one.session_id: one for one in children if one.session_id not in below}
            below = below | level
        places = depth_first(roots, below.values())
        shown = kept(places, own, MEMBERS_MAX)
        rows = self._store.get_many({one.session_id for one in shown} | {p.parent for p in shown})
        members = []
        for session_id, depth, parent in shown:
            if session_id in rows:  # it may have been purged meanwhile
                on = self._texts.carries_on(parent, session_id) if parent else None
                named = bool(missing) or depth > 0
                how = relation(rows[session_id], rows.get(parent), named=named, carries_on=on)
                members.append(member(rows[session_id], depth, how))
        found: Row = {"sessionId": own, "members": members, "more": len(places) - len(members)}
        return found | ({"missingParent": missing} if missing else {})

    def _roots(self, own: str) -> tuple[Sequence[Link], str]:
        """Return the sessions that a family begins with, and their parent if it is unknown."""
        above: dict[str, Link] = {}
        link = self._link(own)
        if link is None:
            raise NotFoundError(f"no session {own}")
        while link.parent:
            above[link.session_id] = link
            if link.parent in above:  # a circle, which agents may write: begin with the oldest
                ring = [*above.values()][[*above].index(link.parent) :]
                return by_age(ring)[:1], ""
            parent = self._link(link.parent)
            if parent is None:
                siblings = {one.session_id: one for one in [link, *self._children([link.parent])]}
                return [*siblings.values()], link.parent
            link = parent
        return [link], ""

    def _link(self, session_id: str) -> Link | None:
        return next(iter(self._store.links([session_id])), None) if self._row(session_id) else None

    def _children(self, parents: Iterable[str]) -> Sequence[Link]:
        links = self._store.children(parents)
        shown = self._shown(one.session_id for one in links)
        return [one for one in links if one.session_id in shown]

    def _shown(self, session_ids: Iterable[str]) -> dict[str, Row]:
        rows = self._store.get_many(session_ids)
        return {key: row for key, row in rows.items() if not self._hidden(row)}


def is_fork(row: Row) -> bool:
    """Whether a session continues another; a sub-agent does not."""
    return bool(row.get("parentSessionId")) and not row.get("subagent")
