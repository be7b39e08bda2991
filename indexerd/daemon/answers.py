"""Answers that need no running daemon: rows, references, search, from store and meta files.

The daemon's API and the command line without a daemon both ask here, so that they say the same.
Nothing here scans or parses a session file, and nothing writes. Context sets are read here, too,
for all who show them: a fork without sets of its own has those of the session that it came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from indexerd.errors import (
    AccessError,
    IndexerdError,
    InvalidMetaError,
    NotFoundError,
)
from indexerd.paths import meta_name, user_name
from indexerd.protocol import params
from indexerd.protocol.params import RefParams
from indexerd.search.index import TextIndex
from indexerd.search.names import NameIndex, Names, Scope
from indexerd.search.ranking import search
from indexerd.sessions.family import Link, by_age, depth_first, kept, member, relation
from indexerd.sessions.family import Place as Member
from indexerd.store.pages import Page

if TYPE_CHECKING:
    from indexerd.meta.model import UserFile

ANCESTORS_MAX = 8  # generations that sets are looked for in
MEMBERS_MAX = 500  # sessions of a family
WALK_MAX = 50_000  # sessions that are walked over; of a larger family `more` says too little
RELATIVES_MAX = 200  # ids of each kind
CLEARED = "contextCleared"  # in a fork's file: no sets, and none of its parent's either

Row = dict[str, Any]
Home = Callable[[str], str | None]  # the directory of a session's meta file, by its id


class Answers:
    """Typed question in, the result of interfaces.md out."""

    def __init__(
        self,
        texts: TextIndex,
        clock: Callable[[], float],
        hidden: Callable[[dict[str, Any]], bool] | None = None,
        *,
        home: Home = lambda _: None,
        behind: Callable[[], int] = int,
    ) -> None:
        """`hidden(row)` says what is not to be shown: without a daemon, the exclusions.

        `behind()`: how many sessions have text that cannot be found yet.
        """
        self.home = home
        self._behind = behind
        self._texts = texts
        self._store = texts.store
        self._hidden = hidden
        self._clock = clock
        self.index = NameIndex(texts.store, self._hides)

    @property
    def names(self) -> Names:
        """Every session's names, in memory; built when first asked for."""
        return self.index.now()

    def _hides(self, session_id: str) -> bool:
        row = self._store.get(session_id) if self._hidden else None
        return row is not None and self._is_hidden(row)

    def _is_hidden(self, row: dict[str, Any]) -> bool:
        return self._hidden is not None and self._hidden(row)

    def row_changed(self, session_id: str, row: dict[str, Any] | None) -> None:
        """Keep the names in step with the store."""
        self.index.changed(session_id, row)

    def certain(self, ref: str, *, cwd: str | None = None) -> dict[str, Any]:
        """The row of what is about to be changed, or used up: never that of a name nearly given.

        Such a name is an AmbiguousError that offers the session.
        """
        return self.row(ref, cwd=cwd, fuzzy=False)

    def row(self, ref: str, *, cwd: str | None = None, fuzzy: bool = True) -> dict[str, Any]:
        """The row that a reference means."""
        row = self._store.get(ref)  # the store knows a new session a moment earlier
        scope: Scope = "project" if cwd else "all"
        if row is not None and not self._is_hidden(row):
            return row
        match = self.names.resolve(ref, cwd=cwd, scope=scope, fuzzy=fuzzy)
        return self.by_id(match.session_id)

    def by_id(self, session_id: str) -> dict[str, Any]:
        """The row of a session."""
        row = self._store.get(session_id)
        if row is None or self._is_hidden(row):
            raise NotFoundError(f"no session {session_id}")
        return row

    def resolve(self, asked: params.Resolve) -> dict[str, Any]:
        """Which session a reference means, and how that was found."""
        match = self.names.resolve(
            asked.ref, cwd=asked.cwd, scope=asked.scope or "project", exclude=asked.exclude
        )
        found: dict[str, Any] = {
            "sessionId": match.session_id,
            "name": self.by_id(match.session_id)["name"],
            "how": match.how,
        }
        if match.score is not None:
            found["score"] = round(match.score, 3)
        return found

    def complete(self, asked: params.Complete) -> dict[str, Any]:
        """Candidates for `@@`."""
        items = self.names.complete(
            asked.prefix or "",
            cwd=asked.cwd,
            exclude=asked.exclude,
            limit=asked.limit,
            now=self._clock(),
        )
        return {"items": items}

    def list(self, asked: params.List) -> dict[str, Any]:
        """One page of rows, newest first."""
        page = self._page(asked)
        return _paged(page, [row for row in page.rows if not self._is_hidden(row)])

    def page(self, asked: params.List) -> dict[str, Any]:
        """The same for a socket: rows go from the store into the answer as they stand.

        To read and write them anew takes ten times as long, and the daemon's loop with it: 20 ms
        for 500 rows with a hundred paths each (bench/bench_list.py).
        """
        page = self._page(asked)
        return _paged(page, [_spliced(text) for text in page.texts])

    def _page(self, asked: params.List) -> Page:
        return self._store.page(**msgspec.structs.asdict(asked))

    def search(self, asked: params.Search) -> dict[str, Any]:
        """Hits, best first; with `rows`, what is known of their sessions, by id."""
        result = search(
            self._texts,
            asked.query,
            agent=asked.agent,
            cwd=asked.cwd,
            since=asked.since,
            limit=asked.limit,
        )
        hits = [one for one in result.hits if not self._hides(one["sessionId"])]
        found: dict[str, Any] = {"hits": hits}
        if asked.rows:
            ids = dict.fromkeys(one["sessionId"] for one in hits)
            found["rows"] = {one: row for one in ids if (row := self._store.get(one))}
        warnings = [*result.warnings]
        if behind := self._behind():
            warnings.append(f"the text of {behind} sessions is not searchable yet")
        if warnings:
            found["warnings"] = warnings
        return found

    def forks(self, session_id: str) -> Sequence[dict[str, Any]]:
        """The rows of the sessions that go on from this one."""
        below = self._store.children([session_id])
        rows = self._store.get_many(one.session_id for one in below if not one.subagent)
        return [row for row in rows.values() if not self._is_hidden(row)]

    def family_of(self, row: dict[str, Any]) -> dict[str, Any]:
        """The sessions that one came from, and all that came from the same; for any thread."""
        return Families(self._texts, self._hidden).family(row)

    def relatives(self, row: dict[str, Any]) -> dict[str, Any]:
        """The ids of a session's parent, forks and sub-agents."""
        return Families(self._texts, self._hidden).relatives(row)

    def held(self, row: dict[str, Any]) -> Held:
        """What the user and the agent noted of a session; for any thread."""
        directory = self.home(row["sessionId"])
        if directory is None:
            raise NotFoundError("there is no place for this session's sidecar")
        own = Place(Path(directory), row["sessionId"])
        return held(own, ancestors(row, self.by_id, self.home))

    def get(self, asked: RefParams) -> dict[str, Any]:
        """All that is stored of one session."""
        row = self.row(asked.ref, cwd=asked.cwd)
        directory = self.home(row["sessionId"])
        found: dict[str, Any] = {
            "session": row,
            "meta": None,
            "context": {},
            "labels": {},
            "digest": {"segments": []},
        }
        if directory is None:
            return found
        own = Place(Path(directory), row["sessionId"])
        return found | stored(own, ancestors(row, self.by_id, self.home))


class Place(NamedTuple):
    """Where a session's own files are, or belong."""

    directory: Path
    session_id: str

    @property
    def sidecar(self) -> Path:
        """The user's file."""
        return self.directory / user_name(self.session_id)


class Held(NamedTuple):
    """What a session's sidecar says, and the sets that count."""

    user: UserFile
    context: dict[str, list[str]]


def is_fork(row: dict[str, Any]) -> bool:
    """Whether a session goes on from another one; a sub-agent does not."""
    return bool(row.get("parentSessionId")) and not row.get("subagent")


def ancestors(
    row: dict[str, Any], by_id: Callable[[str], dict[str, Any]], home: Home
) -> list[Place]:
    """The places of the sessions that a fork came from, the nearest first."""
    places: list[Place] = []
    known = {row["sessionId"]}
    with suppress(NotFoundError):
        while is_fork(row) and len(known) <= ANCESTORS_MAX:
            row = by_id(row["parentSessionId"])
            if row["sessionId"] in known:
                break
            known.add(row["sessionId"])
            directory = None
            with suppress(NotFoundError):  # its directory may be no root any more
                directory = home(row["sessionId"])
            if directory is not None:
                places.append(Place(Path(directory), row["sessionId"]))
    return places


def held(own: Place, before: Sequence[Place]) -> Held:
    """What is in a sidecar, and the nearest sets of its session and of those before it (S4.28).

    A bad file of its own is an error with its path; one of an ancestor is that ancestor's.
    """
    from indexerd.meta.model import UserFile  # noqa: PLC0415 - as above
    from indexerd.meta.reader import read_user  # noqa: PLC0415 - pydantic, only where a file is read

    try:
        user = read_user(own.sidecar) or UserFile()
    except InvalidMetaError as bad:
        hint = f"mend {own.sidecar}, or move it away: it holds what no model can write anew"
        raise InvalidMetaError(str(bad), hint=hint) from None
    if has_own(user):
        return Held(user, user.context)
    for place in before:
        with suppress(InvalidMetaError, AccessError):
            found = read_user(place.sidecar)
            if found is not None and has_own(found):
                return Held(user, found.context)
    return Held(user, {})


def has_own(user: UserFile) -> bool:
    """Whether the sets of a file are what counts, although there may be none."""
    return bool(user.context) or bool((user.model_extra or {}).get(CLEARED))


def stored(own: Place, before: Sequence[Place] = ()) -> dict[str, Any]:
    """What meta file, sidecar and digest of a session say; what is invalid becomes a warning."""
    from indexerd.meta.reader import (  # noqa: PLC0415 - pydantic, only where a file is read
        digest_name,
        read_digest,
        read_meta,
    )

    found: dict[str, Any] = {}
    warnings: list[str] = []

    def attempt(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except IndexerdError as bad:
            warnings.append(str(bad))
            return None

    meta = attempt(lambda: read_meta(own.directory / meta_name(own.session_id)))
    found["meta"] = meta.model_dump(mode="json", by_alias=True, exclude_none=True) if meta else None
    noted = attempt(lambda: held(own, before))
    found["labels"] = noted.user.labels if noted else {}
    found["context"] = noted.context if noted else {}
    segments = attempt(lambda: read_digest(own.directory / digest_name(own.session_id)))
    found["digest"] = {"segments": segments or []}
    if warnings:
        found["warnings"] = warnings
    return found


def _paged(page: Page, rows: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"sessions": rows}
    return found | ({"nextCursor": page.next_cursor} if page.next_cursor else {})


def _spliced(text: str) -> Any:
    """A row as it stands; read, where its text is not fit for a line of the protocol."""
    if "\\ud" in text or "\n" in text:  # perhaps half a character; no text of ours at all
        return json.loads(text)
    return msgspec.Raw(text)


class Families:
    """Who came from whom, as far as it is to be shown.

    The cost is that of the family, never of the store. A session that is hidden, or that nobody
    has met, is no member; whatever names it as its parent begins a family: all that came from it
    together, below `missingParent`.
    """

    def __init__(self, texts: TextIndex, hidden: Callable[[Row], bool] | None) -> None:
        self._texts = texts
        self._store = texts.store
        self._hidden = hidden

    def family(self, row: Mapping[str, Any]) -> Row:
        """The answer of `family`."""
        own = row["sessionId"]
        top = self._top(own)
        places = depth_first(top.roots, self._below(top.roots))
        members = self._members(kept(places, own, MEMBERS_MAX), missing=bool(top.missing))
        found: Row = {"sessionId": own, "members": members, "more": len(places) - len(members)}
        return found | ({"missingParent": top.missing} if top.missing else {})

    def relatives(self, row: Mapping[str, Any]) -> Row:
        """The ids of a session's parent, forks and sub-agents, oldest first; absent where none."""
        below = by_age(self._shown(self._store.children([row["sessionId"]])))
        forks = [one.session_id for one in below if not one.subagent]
        agents = [one.session_id for one in below if one.subagent]
        parent = row.get("parentSessionId")
        found = {"forks": forks, "subagents": agents}
        named = {key: ids[:RELATIVES_MAX] for key, ids in found.items()} | {"parent": parent}
        return {key: one for key, one in named.items() if one}

    def _shown(self, links: list[Link]) -> list[Link]:
        if self._hidden is None:
            return links
        rows = self._store.get_many(one.session_id for one in links)
        shown = {key for key, row in rows.items() if not self._hidden(row)}
        return [one for one in links if one.session_id in shown]

    def _top(self, own: str) -> _Top:
        """Climb as far as sessions are known."""
        above: dict[str, Link] = {}
        link = self._known(own)
        if link is None:
            raise NotFoundError(f"no session {own}")
        while True:
            above[link.session_id] = link
            if not link.parent or len(above) >= WALK_MAX:
                return _Top([link])
            if link.parent in above:  # a circle
                ring = list(above.values())[[*above].index(link.parent) :]
                return _Top(by_age(ring)[:1])
            parent = self._known(link.parent)
            if parent is None:
                beside = self._shown(self._store.children([link.parent]))
                roots = {one.session_id: one for one in [link, *beside]}
                return _Top(list(roots.values()), link.parent)
            link = parent

    def _known(self, session_id: str) -> Link | None:
        return next(iter(self._shown(self._store.links([session_id]))), None)

    def _below(self, roots: Iterable[Link]) -> Iterable[Link]:
        """All that came from these, a generation at a time."""
        found = {one.session_id: one for one in roots}
        level = list(found)
        while level and len(found) < WALK_MAX:
            children = self._shown(self._store.children(level))
            new = {one.session_id: one for one in children if one.session_id not in found}
            found |= new
            level = list(new)
        return found.values()

    def _members(self, places: Sequence[Member], *, missing: bool) -> list[Row]:
        """What is told of these; `missing`: the roots name a parent that is not known."""
        ids = dict.fromkeys(one for place in places for one in (place.session_id, place.parent))
        rows = self._store.get_many(one for one in ids if one)
        pairs = [(one.parent, one.session_id) for one in places if one.parent]
        ends = self._texts.carry_on(pairs)
        found = []
        for own, depth, parent in places:
            if own in rows:  # it may be forgotten meanwhile
                named = missing if depth == 0 else True
                on = ends.get(own)
                how = relation(rows[own], rows.get(parent), named=named, carries_on=on)
                found.append(member(rows[own], depth, how))
        return found


class _Top(NamedTuple):
    """Where a family begins."""

    roots: list[Link]
    missing: str = ""  # the parent that they name, if nobody knows it
