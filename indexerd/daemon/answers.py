"""Answers from the store and meta files: rows, references, search.

The daemon and commands without a daemon use these. They write nothing, and read no session file.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from indexerd.daemon.usage import usage
from indexerd.errors import NotFoundError
from indexerd.meta.model import MetaFile, UserFile, parse_meta, read_meta, read_user
from indexerd.meta.sidecar import footer, listed, read_all
from indexerd.paths import directory_of, meta_name, user_name
from indexerd.protocol import params
from indexerd.protocol.params import RefParams, SessionParams
from indexerd.references.resolve import CANDIDATES_MAX, Match, Names
from indexerd.search.index import TextIndex
from indexerd.search.meaning import Meaning
from indexerd.search.ranking import best_sessions, search
from indexerd.sessions.family import Link, by_age, depth_first, member
from indexerd.store.store import named

MEMBERS_MAX = 500  # sessions of a family
PROJECTS_MAX, TAGS_MAX = 500, 40  # in one answer

Row = dict[str, Any]


class Answers:
    """Answers typed params with the results that docs/PROTOCOL.md describes."""

    def __init__(
        self,
        texts: TextIndex,
        *,
        home: Callable[[str], str | None] = lambda _: None,
        behind: Callable[[], int] = int,
        meaning: Meaning,
    ) -> None:
        """Answer from a store and its text index.

        `home(session_id)` returns the directory of the session's meta file, if it has one.
        `behind()` counts sessions with text that is not searchable yet.
        """
        self.home = home
        self._behind = behind
        self._texts = texts
        self._near = meaning.near if meaning.usable else None
        self._store = texts.store

    @cached_property
    def _names(self) -> Names:
        return Names(self._store.names())

    def renamed(self, rows: Mapping[str, Row | None]) -> None:
        """Apply new rows to the names; None: the session is no longer there."""
        if "_names" not in vars(self):  # they will be loaded with these rows
            return
        for session_id, row in rows.items():
            if row is None:
                self._names.forget(session_id)
            else:
                other = row.get("metaName")
                self._names.put(named(row, (other,) if other else ()))

    def row(self, ref: str, *, cwd: str | None = None, fuzzy: bool = True) -> Row:
        """Return the row of the session that a reference means.

        Without `fuzzy`, as for changes, a similar name is an AmbiguousError with candidates.
        """
        if row := self._store.get(ref):  # a new session is in the store before its name is known
            return row
        return self.by_id(self.match(ref, cwd=cwd, fuzzy=fuzzy).session_id)

    def match(
        self,
        ref: str,
        *,
        cwd: str | None = None,
        exclude: str | None = None,
        fuzzy: bool = True,
    ) -> Match:
        """Find the session that a reference means, by its name or else by a search."""
        search = partial(best_sessions, self._texts, limit=CANDIDATES_MAX)
        return self._names.resolve(ref, cwd=cwd, exclude=exclude, fuzzy=fuzzy, search=search)

    def row_of(self, args: RefParams | SessionParams) -> Row:
        ref = args.ref if isinstance(args, RefParams) else args.session
        return self.row(ref, cwd=args.cwd)

    def by_id(self, session_id: str) -> Row:
        row = self._store.get(session_id)
        if row is None:
            raise NotFoundError(f"no session {session_id}")
        return row

    def resolve(self, args: params.Resolve) -> Row:
        cwd = None if args.scope == "all" else args.cwd
        match = self.match(args.ref, cwd=cwd, exclude=args.exclude)
        name = self.by_id(match.session_id)["name"]
        answer: Row = {"sessionId": match.session_id, "name": name, "how": match.how}
        return answer if match.score is None else answer | {"score": round(match.score, 3)}

    def complete(self, args: params.Complete) -> Row:
        return {"items": self._names.complete(args, time.time())}

    def list(self, args: params.List) -> Row:
        rows, cursor = self._store.page(**msgspec.structs.asdict(args))
        return {"sessions": rows} | ({"nextCursor": cursor} if cursor else {})

    def counts(self, args: params.Counts) -> Row:
        """Count sessions by agent, project, tag and time, each as the other filters leave them."""
        filters: Row = msgspec.structs.asdict(args)
        times = [None, *filters.pop("times")]

        def count(by: str, **changed: str | None) -> dict[str, int]:
            return self._store.count(by, **filters | changed)

        projects = _with_those_below(count("project", cwd=None)).most_common(PROJECTS_MAX)
        tags, own = Counter[str](), set[str]()
        for lines, number in count("tags", tag=None).items():
            listed = Counter(filter(None, lines.split("\n")))
            tags.update(dict.fromkeys(listed, number))
            own |= {tag for tag, often in listed.items() if often > 1}
        return {
            "agents": count("agent", agent=None),
            "projects": [{"cwd": cwd, "sessions": number} for cwd, number in projects],
            "tags": dict(sorted(tags.most_common(), key=lambda tag: tag[0] not in own)[:TAGS_MAX]),
            "times": [sum(count("agent", since=time).values()) for time in times],
        }

    def usage(self, args: params.Usage, calls: Path) -> Row:
        """Sum up prompts, tokens and cost; `calls` is the budget's journal."""
        return usage(self._store, args, calls)

    def search(self, args: params.Search) -> Row:
        where = {key: getattr(args, key) for key in ("agent", "cwd", "since", "tag")}
        hits, warnings = search(self._texts, args.query, **where, limit=args.limit, near=self._near)
        answer: Row = {"hits": hits}
        if args.rows:
            answer["rows"] = self._store.get_many(hit["sessionId"] for hit in hits)
        if behind := self._behind():
            warnings.append(f"the text of {behind} sessions is not searchable yet")
        return answer | ({"warnings": warnings} if warnings else {})

    def get(self, args: RefParams) -> Row:
        row = self.row(args.ref, cwd=args.cwd)
        answer = read_all(row["sessionId"], self.home(row["sessionId"]))
        below = self._spent_below(row["sessionId"])
        return {"session": row | below} | answer | self._store.documents(row)

    def _spent_below(self, session_id: str) -> Row:
        """Sum up what a session's sub-agents cost, those of theirs included."""
        rows = self._store.get_many(self._store.subagents(session_id)).values()
        keys = ("costUsd", "costEstimatedUsd")
        costs = {key: round(sum(row.get(key) or 0 for row in rows), 6) for key in keys}
        costs["unpricedTokens"] = sum(map(_unpriced, rows))
        return {"subagents": {"sessions": len(rows), **costs}} if rows else {}

    def meta(self, row: Row) -> MetaFile | None:
        """Read a session's meta file; None if there is none; callable in any thread."""
        session_id = row["sessionId"]
        if machine := row.get("machine"):
            meta = self._store.documents(row).get("meta")
            return parse_meta(msgspec.json.encode(meta), machine) if meta else None
        home = self.home(session_id)
        return read_meta(Path(home) / meta_name(session_id)) if home else None

    def sidecar(self, row: Row) -> UserFile:
        """Read a session's sidecar; callable in any thread."""
        return read_user(self.sidecar_path(row))

    def context(self, row: Row, args: params.GetContext) -> Row:
        text, context = listed(self.sidecar(row).context, args.set_name)
        return {"text": text, "context": context, "sessionId": row["sessionId"], "cwd": row["cwd"]}

    def footer(self, row: Row, _asked: RefParams) -> Row:
        return {
            "sessionId": row["sessionId"],
            **footer(self.sidecar(row).context, directory_of(row)),
        }

    def sidecar_path(self, row: Row) -> Path:
        """Return the path of a session's sidecar; NotFoundError if it has no meta directory."""
        if machine := row.get("machine"):
            raise NotFoundError(f"this session is on {machine}", hint=f"change it on {machine}")
        home = self.home(row["sessionId"])
        if home is None:
            raise NotFoundError("this session has no directory for a sidecar")
        return Path(home) / user_name(row["sessionId"])

    def family(self, row: Row, _asked: RefParams | None = None) -> Row:
        """Return a session's ancestors and all their descendants; callable in any thread.

        If an ancestor is excluded or unknown, its children are the roots (`missingParent`).
        """
        own = row["sessionId"]
        roots, missing = self._roots(own)
        level = below = {link.session_id: link for link in roots}
        while level:
            children = self._store.links("parent", level)
            level = {child.session_id: child for child in children if child.session_id not in below}
            below = below | level
        depths = depth_first(roots, below.values())
        rows = self._store.get_many(islice(depths, MEMBERS_MAX))
        # It may have been purged meanwhile.
        shown = ((rows[one], depth) for one, depth in depths.items() if one in rows)
        members = [member(row, depth, child=bool(missing) or depth > 0) for row, depth in shown]
        answer: Row = {"sessionId": own, "members": members, "more": len(depths) - len(members)}
        return answer | ({"missingParent": missing} if missing else {})

    def _roots(self, own: str) -> tuple[Sequence[Link], str]:
        """Return the sessions that a family begins with, and their parent if it is unknown."""
        above, at = dict[str, Link](), own
        while links := self._store.links("id", [at]):
            above[at], at = links[0], links[0].parent
            if not at:
                return links, ""
            if at in above:  # a cycle, which agents may write: begin with the oldest
                ring = [*above.values()][[*above].index(at) :]
                return by_age(ring)[:1], ""
        if not above:
            raise NotFoundError(f"no session {own}")
        return self._store.links("parent", [at]), at


def _unpriced(row: Row) -> int:
    """Return how many tokens of a session have no known price; its row tells it if others have."""
    priced = any(row.get(key) is not None for key in ("costUsd", "costEstimatedUsd"))
    return row.get("unpricedTokens", 0) if priced else sum((row.get("tokens") or {}).values())


def _with_those_below(projects: Mapping[str, int]) -> Counter[str]:
    """Add to each directory's number those of the directories below it, as a filter finds them."""
    names, found = sorted(projects), Counter[str]()
    for name in projects:
        begin, end = (bisect_left(names, f"{name}{char}") for char in "/0")  # "0" follows "/"
        found[name] = projects[name] + sum(projects[one] for one in names[begin:end])
    return found
