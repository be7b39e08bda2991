"""The user's own file beside a session: read, changed and written, one change at a time.

Title, labels, environment hint and context sets are in one file, so that all that changes any
of them comes through here. A change that has begun is carried out, whoever has hung up meanwhile:
else another one could read the file before this one has written it, and one of them be lost.
Each change names its session; of two that set the same thing the later one stays (S4.26).

A fork starts with a copy (S4.28): while it has no sets of its own, those of the session it came
from are read in their place, and its first change writes what came of them. A fork whose sets
were all cleared says so in its file, and has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from indexerd.core import sets
from indexerd.core.clean import clean_line
from indexerd.core.sets import Change, Context, Outcome
from indexerd.errors import AccessError, InvalidMetaError, NotFoundError, UsageError
from indexerd.io.metas import read_user
from indexerd.io.writer import MetaWriter
from indexerd.meta import NAME_MAX, UserFile
from indexerd.paths import user_name
from indexerd.service.answers import Answers
from indexerd.service.library import Library
from indexerd.service.pipeline import Pipeline
from indexerd.service.views import row_of, take

ANCESTORS_MAX = 8  # generations that sets are looked for in
CLEARED = "contextCleared"  # in a fork's file: no sets, and none of its parent's either

Row = dict[str, Any]


class Place(NamedTuple):
    """Where a session's sidecar is, or belongs."""

    directory: Path
    session_id: str

    @property
    def file(self) -> Path:
        """The sidecar itself."""
        return self.directory / user_name(self.session_id)


class Held(NamedTuple):
    """What a session's sidecar says, and the sets that count."""

    user: UserFile
    context: Context


Work = Callable[[Held], UserFile | None]


class Sidecars:
    """Every session's sidecar, for one daemon."""

    def __init__(self, pipeline: Pipeline, answers: Answers, writer: MetaWriter) -> None:
        self._pipeline = pipeline
        self._answers = answers
        self._writer = writer
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[UserFile | None]] = set()

    async def held(self, row: Row) -> Held:
        """What is stored of a session; an unreadable file is an error, not a missing one."""
        return await asyncio.to_thread(_read, self._places(row))

    async def put(self, row: Row, change: Change) -> Outcome:
        """Change one set, and tell who listens."""
        outcomes: list[Outcome] = []
        forked = self._is_fork(row)

        def work(held: Held) -> UserFile | None:
            outcome = sets.apply(held.context, change)
            outcomes.append(outcome)
            if not outcome.changed:
                return None
            return _with_context(held.user, outcome.context, forked=forked)

        await self._change(row, work, change.name)
        return outcomes[0]

    async def update(self, row: Row, params: dict[str, Any]) -> Row:
        """Set or clear title, hint, a label and sets; what is not named stays (S4.21)."""
        session_id = row["sessionId"]
        labelled = _labelled(params)
        if labelled:
            library = self._pipeline.library
            await self._pipeline.read(_find, library, session_id, labelled)
        warnings: list[str] = []
        forked = self._is_fork(row)
        work = partial(_changed, params, warnings, forked=forked)
        await self._change(row, work, _set_named(params), told=_has_sets(params))
        new = self._answers.by_id(session_id)
        if "title" in params:
            renamed = {"name": new["name"], "previous": row["name"]}
            self._pipeline.news.tell("session.renamed", session_id, renamed)
        return new | {"warnings": warnings} if warnings else new

    # -- one at a time -------------------------------------------------------------------

    async def _change(
        self, row: Row, work: Work, set_name: str | None, *, told: bool = True
    ) -> None:
        """Carry out one change, to its end."""
        doing = asyncio.create_task(self._carry_out(row, work))
        self._under_way.add(doing)
        doing.add_done_callback(self._under_way.discard)
        doing.add_done_callback(partial(self._tell, row["sessionId"], set_name, told=told))
        await asyncio.shield(doing)

    async def _carry_out(self, row: Row, work: Work) -> UserFile | None:
        places = self._places(row)
        async with self._one_at_a_time:
            new = await asyncio.to_thread(self._write, places, work)
            if new is not None:
                own = places[0]
                await self._pipeline.rewritten(own.session_id, str(own.directory))
        return new

    def _write(self, places: Sequence[Place], work: Work) -> UserFile | None:
        new = work(_read(places))
        if new is not None:
            self._writer.write_user(places[0].directory, places[0].session_id, new)
        return new

    def _tell(
        self,
        session_id: str,
        set_name: str | None,
        doing: asyncio.Task[UserFile | None],
        *,
        told: bool,
    ) -> None:
        """Events tell of what was written, and of nothing else (S4.12)."""
        if doing.cancelled() or doing.exception() is not None:
            return
        new = doing.result()
        if told and new is not None:
            self._pipeline.news.context("changed", session_id, new.context, set_name)

    # -- where ---------------------------------------------------------------------------

    def _places(self, row: Row) -> list[Place]:
        """The session's own place, then those of the sessions that it was forked from."""
        places: list[Place] = []
        known: set[str] = set()
        found: Row | None = row
        while found is not None and found["sessionId"] not in known:
            session_id = found["sessionId"]
            known.add(session_id)
            directory = self._home(session_id)
            if directory is None and not places:
                raise NotFoundError("there is no place for this session's sidecar")
            if directory is not None:
                places.append(Place(Path(directory), session_id))
            forked = self._is_fork(found) and len(known) <= ANCESTORS_MAX
            found = self._row(found["parentSessionId"]) if forked else None
        return places

    def _home(self, session_id: str) -> str | None:
        with suppress(NotFoundError):  # an ancestor's directory may be no root any more
            return self._library.home(session_id)
        return None

    def _row(self, session_id: str) -> Row | None:
        with suppress(NotFoundError):
            return self._answers.by_id(session_id)
        return None

    @property
    def _library(self) -> Library:
        return self._pipeline.library

    @staticmethod
    def _is_fork(row: Row) -> bool:
        """Whether it goes on from another session; a sub-agent does not."""
        return bool(row.get("parentSessionId")) and not row.get("subagent")


def _read(places: Sequence[Place]) -> Held:
    """The first place's file, and the nearest sets; trouble with an ancestor's is no trouble."""
    user = read_user(places[0].file) or UserFile()
    found: UserFile | None = user
    for place in [None, *places[1:]]:
        if place is not None:
            found = None
            with suppress(InvalidMetaError, AccessError):
                found = read_user(place.file)
        if found is not None and (found.context or _is_cleared(found)):
            return Held(user, found.context)
    return Held(user, {})


def _is_cleared(user: UserFile) -> bool:
    return bool((user.model_extra or {}).get(CLEARED))


def _with_context(user: UserFile, context: Context, *, forked: bool) -> UserFile:
    held = {key: one for key, one in user.model_dump().items() if key != CLEARED}
    held["context"] = context
    if forked and not context:
        held[CLEARED] = True
    return UserFile.model_validate(held)


# -- what `update` asks for ----------------------------------------------------------------------


def _changed(params: dict[str, Any], warnings: list[str], held: Held, *, forked: bool) -> UserFile:
    """The sidecar with what `update` asks for; null clears."""
    user = held.user
    fields = user.model_dump()
    if "title" in params:
        fields["title"] = _line(params["title"], "title")
    if "envHint" in params:
        fields["env_hint"] = _hint(params["envHint"])
    if "label" in params:
        entry_id, text = _label(params["label"])
        labels = {key: one for key, one in user.labels.items() if key != entry_id}
        fields["labels"] = labels | ({entry_id: text} if text else {})
    new = UserFile.model_validate(fields)
    if not _has_sets(params):
        return new
    context = held.context
    for key, apply in (("context", _all_sets), ("setContext", _one_set)):
        if key in params:
            outcome = apply(context, params[key])
            context = outcome.context
            warnings += outcome.warnings
    return _with_context(new, context, forked=forked)


def _has_sets(params: dict[str, Any]) -> bool:
    return "context" in params or "setContext" in params


def _set_named(params: dict[str, Any]) -> str | None:
    """The one set that changes; None where all do, or none."""
    one = params.get("setContext")
    if "context" in params or not isinstance(one, dict):
        return None
    name = one.get("setName")
    return name.strip() if isinstance(name, str) else None


def _all_sets(_context: Context, value: Any) -> Outcome:
    return sets.replace_all(value)


def _one_set(context: Context, value: Any) -> Outcome:
    """`{setName, items, mode?}`, or `{set: items}` for several; null clears: items, or all sets."""
    if value is None:
        return sets.replace_all(None)
    if not isinstance(value, dict):
        raise UsageError("setContext is {setName, items, mode?}")
    asked = [value] if "setName" in value else [_replacing(*one) for one in value.items()]
    warnings: tuple[str, ...] = ()
    for one in asked:
        items = one.get("items")
        change = sets.change_of(one.get("setName"), [] if items is None else items, one.get("mode"))
        outcome = sets.apply(context, change)
        context, warnings = outcome.context, warnings + outcome.warnings
    return Outcome(context, "", warnings=warnings)


def _replacing(name: Any, items: Any) -> dict[str, Any]:
    return {"setName": name, "items": items}


def _label(given: Any) -> tuple[str, str | None]:
    """An entry's id, and its label; None takes that back."""
    if not isinstance(given, dict) or not isinstance(given.get("entryId"), str):
        raise UsageError("label is {entryId, text}")
    return given["entryId"], _line(given.get("text"), "label text")


def _labelled(params: dict[str, Any]) -> str:
    """The entry that gets a label by this, which must be there."""
    entry_id, text = _label(params["label"]) if "label" in params else ("", None)
    return entry_id if text else ""


def _find(library: Library, session_id: str, entry_id: str) -> None:
    """Raise where a session has no such entry."""
    row_of(take(library, session_id).state, entry_id)


def _hint(value: Any) -> str | None:
    """A command line: cutting it would make it another one."""
    if value is not None and not isinstance(value, str):
        raise UsageError("envHint is a string, or null to clear it")
    return sets.item_of(value, "envHint") if value and value.strip() else None


def _line(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(f"{what} is a string, or null to clear it")
    return clean_line(value, NAME_MAX) or None
