"""The user's own file beside a session: read, changed and written, one change at a time.

Title, labels, environment hint and context sets are in one file, so that all that changes any
of them comes through here. A change that has begun is carried out, whoever has hung up meanwhile:
else another one could read the file before this one has written it, and one of them be lost.
Each change names its session; of two that set the same thing the later one stays (S4.26).

A fork starts with a copy of its parent's sets (S4.28). As long as neither has changed them, the
copy is not written, and the parent's are read in its place. Before the parent's are changed,
every fork of it that has none of its own gets the copy; no sets are a copy, too, and are written
as such. Who changes a parent's file by hand changes it for those forks.

`set_relevant_context` may come from a session that we have not met yet: agents call it in their
first turn, and their file may be a moment behind. Only then is it waited for, shortly. What
changes sets, or uses up a resume's block, is never about a session whose name is only nearly given.

A resume block is given out once for each `resumeId`, over restarts of the daemon too; the store
remembers, which is a cache: without it a block is given once more, which does no harm. Without a
`resumeId` it is once for each start of the daemon. Whether a file is there is looked at only when
a block is made. Each change of a set is a row of telemetry, whichever method made it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from indexerd.daemon.answers import (
    CLEARED,
    Answers,
    Held,
    Place,
    ancestors,
    has_own,
    held,
    is_fork,
)
from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.library import Library
from indexerd.daemon.pipeline import Pipeline
from indexerd.daemon.trees import open_session
from indexerd.errors import (
    AccessError,
    AmbiguousError,
    FileGoneError,
    IndexerdError,
    InvalidMetaError,
    NotFoundError,
    StateError,
    UsageError,
)
from indexerd.logs import Event
from indexerd.meta import context_sets as sets
from indexerd.meta.context_sets import Change, Context, Outcome
from indexerd.meta.model import UserFile
from indexerd.meta.reader import read_user
from indexerd.meta.writer import MetaWriter
from indexerd.paths import is_session_id
from indexerd.privacy.redact import secret_warnings
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol import params
from indexerd.protocol.limits import NAME_MAX
from indexerd.sources.session_reader import row_of
from indexerd.store.store import StateStore
from indexerd.times import iso

Row = dict[str, Any]

SET = "relevant-context:set"  # the `customType` of telemetry
TOPIC = "resume"
RESUMES_MAX = 5000  # resumes that are remembered; the oldest go
NEW_SESSION_PATIENCE = 2.0  # seconds
_WHOLE_ID = 16  # characters; a shorter word may be the beginning of an id
_TRIM_EVERY = 100  # resumes


class Made(NamedTuple):
    """A sidecar to write, and the sets that are other ones in it."""

    user: UserFile
    names: Sequence[str] = ()


Work = Callable[[Held], Made | None]  # None: there is nothing to write
Noted = Callable[[str, Sequence[str]], Awaitable[None]]


async def _unheard(_session_id: str, _names: Sequence[str]) -> None:
    """Nobody keeps account of changes."""


class Sidecars:
    """Every session's sidecar, for one daemon."""

    def __init__(self, pipeline: Pipeline, answers: Answers, writer: MetaWriter) -> None:
        self._pipeline = pipeline
        self._answers = answers
        self._writer = writer
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[Made | None]] = set()
        self.on_sets: Noted = _unheard  # a session, and the names of its sets that were changed

    async def held(self, row: Row) -> Held:
        """What is stored of a session; an unreadable file is an error, not a missing one."""
        return await asyncio.to_thread(held, self._place(row), self._before(row))

    async def put(self, row: Row, change: Change) -> Outcome:
        """Change one set, and tell who listens."""
        outcomes: list[Outcome] = []
        forked = is_fork(row)

        def work(found: Held) -> Made | None:
            outcome = sets.apply(found.context, change)
            outcomes.append(outcome)
            if not outcome.changed:
                return None
            new = _with_context(found.user, outcome.context, forked=forked)
            return Made(new, [change.name])

        await self._change(row, work, change.name)
        return outcomes[0]

    async def update(self, row: Row, asked: params.Update) -> Row:
        """Set or clear title, hint, a label and sets; what is not named stays (S4.21)."""
        session_id = row["sessionId"]
        labelled = _labelled(asked)
        if labelled:
            library = self._pipeline.library
            await self._pipeline.read(_find, library, session_id, labelled)
        warnings: list[str] = []
        work = partial(_changed, asked, warnings, forked=is_fork(row))
        await self._change(row, work, _set_named(asked))
        new = self._answers.by_id(session_id)
        if asked.title is not UNSET:
            renamed = {"name": new["name"], "previous": row["name"]}
            self._pipeline.bus.publish("session.renamed", session_id, renamed)
        return new | {"warnings": warnings} if warnings else new

    async def part(self, row: Row) -> None:
        """A session's sets are about to go: each fork that reads them gets its copy."""
        if self._home(row) is None:  # there is no place in which it could have had any
            return
        async with self._one_at_a_time:
            with suppress(InvalidMetaError, AccessError):  # what reads it reads nothing
                found = await asyncio.to_thread(held, self._place(row), self._before(row))
                for heir in self._heirs(row["sessionId"]) if found.context else ():
                    await self._bequeath(heir, found.context)

    # -- one at a time -------------------------------------------------------------------

    async def _change(self, row: Row, work: Work, set_name: str | None) -> None:
        """Carry out one change, to its end."""
        doing = asyncio.create_task(self._carry_out(row, work))
        self._under_way.add(doing)
        doing.add_done_callback(self._under_way.discard)
        doing.add_done_callback(partial(self._tell, row["sessionId"], set_name))
        await asyncio.shield(doing)

    async def _carry_out(self, row: Row, work: Work) -> Made | None:
        own = self._place(row)
        async with self._one_at_a_time:
            found = await asyncio.to_thread(held, own, self._before(row))
            made = await asyncio.to_thread(work, found)
            if made is None:
                return None
            if made.names:
                for heir in self._heirs(own.session_id):
                    await self._bequeath(heir, found.context)
            await self._write(own, made.user)
            if made.names:
                await self.on_sets(own.session_id, made.names)
        return made

    async def _write(self, place: Place, user: UserFile) -> None:
        await asyncio.to_thread(self._writer.write_user, place.directory, place.session_id, user)
        await self._pipeline.rewritten(place.session_id, str(place.directory))

    async def _bequeath(self, heir: Place, context: Context) -> None:
        """Write a fork's copy of sets that are about to be others."""
        try:
            user = await asyncio.to_thread(read_user, heir.sidecar) or UserFile()
        except (InvalidMetaError, AccessError):  # never written over; what it reads is nothing
            return
        if not has_own(user):
            await self._write(heir, _with_context(user, context, forked=True))

    def _tell(
        self, session_id: str, set_name: str | None, doing: asyncio.Task[Made | None]
    ) -> None:
        """Events tell of what was written, and of nothing else (S4.12)."""
        if doing.cancelled() or doing.exception() is not None:
            return
        made = doing.result()
        if made is not None and made.names:
            self._pipeline.bus.context("changed", session_id, made.user.context, set_name)

    # -- where ---------------------------------------------------------------------------

    def _place(self, row: Row) -> Place:
        directory = self._home(row)
        if directory is None:
            raise NotFoundError("there is no place for this session's sidecar")
        return Place(Path(directory), row["sessionId"])

    def _before(self, row: Row) -> list[Place]:
        return ancestors(row, self._answers.by_id, self._answers.home)

    def _heirs(self, session_id: str) -> list[Place]:
        """The places of a session's forks; of theirs, where a fork has no place for a file."""
        places: list[Place] = []
        known, waiting = {session_id}, [session_id]
        while waiting:
            for row in self._answers.forks(waiting.pop()):
                if row["sessionId"] in known:
                    continue
                known.add(row["sessionId"])
                directory = self._home(row)
                if directory is None:
                    waiting.append(row["sessionId"])
                else:
                    places.append(Place(Path(directory), row["sessionId"]))
        return places

    def _home(self, row: Row) -> str | None:
        with suppress(NotFoundError):  # its directory may be no root any more
            return self._pipeline.library.home(row["sessionId"])
        return None


def _with_context(user: UserFile, context: Context, *, forked: bool) -> UserFile:
    fields = {key: one for key, one in user.model_dump().items() if key != CLEARED}
    fields["context"] = context
    if forked and not context:
        fields[CLEARED] = True
    return UserFile.model_validate(fields)


# -- context sets and resumes -------------------------------------------------------------------


class Contexts:
    """Changes relevant context, and gives out resume blocks."""

    def __init__(
        self,
        sidecars: Sidecars,
        answers: Answers,
        bus: EventBus,
        *,
        resumes: Resumes,
        record: Callable[[Mapping[str, Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        """`record` writes a row of telemetry; it may block for a moment."""
        self._sidecars = sidecars
        self._answers = answers
        self._bus = bus
        self._resumes = resumes
        self._record = record
        self._clock = clock
        self._telling: set[asyncio.Task[None]] = set()
        sidecars.on_sets = self._changed

    async def set(self, asked: params.SetContext) -> Row:
        """Set or clear one set of a session."""
        change = sets.change_of(asked.set_name, asked.items, asked.mode)
        row = await self._row_soon(asked)
        outcome = await self._sidecars.put(row, change)
        return {
            "sessionId": row["sessionId"],
            "text": outcome.text,
            "contextChanged": outcome.changed,
            "setName": change.name,
            "warnings": list(outcome.warnings),
        }

    async def _changed(self, session_id: str, names: Sequence[str]) -> None:
        for name in names:
            row = {"customType": SET, "success": True, "sessionId": session_id}
            row |= {"contextChanged": True, "setName": name, "timestamp": iso(self._clock())}
            await asyncio.to_thread(self._record, row)
            if name not in sets.KNOWN:  # S4.2
                self._bus.log(Event.CONTEXT_UNKNOWN_SET, {"session": session_id})

    async def resume(self, asked: params.ResumeContext) -> Row:
        """The block for the first message after a resume, once."""
        row = self._answers.certain(asked.session, cwd=asked.cwd)
        session_id, cwd = row["sessionId"], row["cwd"]
        key = _key(session_id, asked.resume_id or "")
        if not await self._resumes.claim(key):
            return {"sessionId": session_id, "text": None, "missingFiles": 0}
        try:
            user, context = await self._sidecars.held(row)
            exists = partial(is_there, cwd)
            make = partial(sets.resume_block, cwd, user.env_hint, context, exists)
            text, missing = await asyncio.to_thread(make)
        except BaseException:  # nobody has got it
            self._resumes.release(key)
            raise
        if asked.resume_id:
            await self._resumes.keep(key)
        self._bus.context("resume", session_id, context)
        return {"sessionId": session_id, "text": text, "missingFiles": missing}

    def opened(self, session_id: str) -> None:
        """Somebody has opened a session's history: who listens hears its sets (S4.13)."""
        telling = asyncio.get_running_loop().create_task(self._load(session_id))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _load(self, session_id: str) -> None:
        with suppress(IndexerdError):  # gone meanwhile, or a bad file: that is reported elsewhere
            held = await self._sidecars.held(self._answers.by_id(session_id))
            if held.context:
                self._bus.context("load", session_id, held.context)

    async def _row_soon(self, asked: params.SessionParams) -> Row:
        """The session's row; one with a whole id that is not known may only just have begun."""
        ref = asked.session
        try:
            return self._answers.certain(ref, cwd=asked.cwd)
        except (NotFoundError, AmbiguousError):  # another may have a name that is like this id
            if len(ref) < _WHOLE_ID or not is_session_id(ref):
                raise
        met = asyncio.Event()
        end = self._bus.subscribe(
            lambda event: met.set() if event.get("sessionId") == ref else None
        )
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(met.wait(), NEW_SESSION_PATIENCE)
        finally:
            end()
        return self._answers.certain(ref, cwd=asked.cwd)


class Resumes:
    """Which resumes have had their block."""

    def __init__(
        self, store: StateStore, read: Callable[..., Awaitable[Any]], clock: Callable[[], float]
    ) -> None:
        """`read` does work in the store's thread."""
        self._store = store
        self._read = read
        self._clock = clock
        self._given: set[str] = set()  # by this process
        self._written = 0

    async def claim(self, key: str) -> bool:
        """Take a resume's one block; False where somebody has it."""
        if key in self._given:
            return False
        self._given.add(key)
        try:
            return await self._read(self._store.noted, TOPIC, key) is None
        except StateError:
            return True
        except BaseException:  # who asked has gone: nobody has got it
            self._given.discard(key)
            raise

    def release(self, key: str) -> None:
        """It came to nothing; the next one may take it."""
        self._given.discard(key)

    async def keep(self, key: str) -> None:
        """Remember it over a restart."""
        stamp = int(self._clock() * 1000).to_bytes(8, "big")  # sorts by age
        with suppress(StateError):
            await self._read(self._store.note, TOPIC, key, stamp)
            if self._written % _TRIM_EVERY == 0:
                await self._read(self._store.trim, TOPIC, RESUMES_MAX)
            self._written += 1

    async def forget(self, session_id: str) -> None:
        """Forget every resume of a session."""
        self._given = {key for key in self._given if not key.startswith(f"{session_id}/")}
        with suppress(StateError):
            await self._read(self._clear, f"{session_id}/")

    def _clear(self, prefix: str) -> None:
        for key in self._store.notes(TOPIC):
            if key.startswith(prefix):
                self._store.note(TOPIC, key, None)


def _key(session_id: str, resume_id: str) -> str:
    """A short word for a resume, whatever its id is made of; "" stands for no id."""
    if not resume_id:
        return f"{session_id}/"
    digest = hashlib.blake2b(resume_id.encode("utf-8", "backslashreplace"), digest_size=12)
    return f"{session_id}/{digest.hexdigest()}"


def is_there(cwd: str, item: str) -> bool:
    """Whether a file exists; what cannot be known, for want of a right or a place, is taken so."""
    try:
        path = Path(sets.absolute(cwd, item)).expanduser()
        if path.is_absolute():
            path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in it
        return False
    except (OSError, RuntimeError):
        return True
    return True


# -- what `update` asks for ----------------------------------------------------------------------


def _changed(
    asked: params.Update, warnings: list[str], found: Held, *, forked: bool
) -> Made | None:
    """The sidecar with what `update` asks for; null clears."""
    user = found.user
    fields = user.model_dump()
    if asked.title is not UNSET:
        fields["title"] = _line(asked.title, "title")
    if asked.env_hint is not UNSET:
        fields["env_hint"] = hint = _hint(asked.env_hint)
        warnings += secret_warnings(hint or "", "envHint")
    if asked.label is not UNSET:
        entry_id, text = _label(asked.label)
        labels = {key: one for key, one in user.labels.items() if key != entry_id}
        fields["labels"] = labels | ({entry_id: text} if text else {})
    new = UserFile.model_validate(fields)
    context, names = found.context, list[str]()
    for value, apply in ((asked.context, _all_sets), (asked.set_context, _some_sets)):
        if value is not UNSET:
            context, told, more = apply(context, value)
            names += more
            warnings += told
    if names:
        return Made(_with_context(new, context, forked=forked), list(dict.fromkeys(names)))
    others = (asked.title, asked.env_hint, asked.label)
    return Made(new) if any(one is not UNSET for one in others) else None


def _set_named(asked: params.Update) -> str | None:
    """The one set that changes; None where all do, or none."""
    one = asked.set_context
    if asked.context is not UNSET or not isinstance(one, dict):
        return None
    name = one.get("setName")
    return name.strip() if isinstance(name, str) else None


Sets = tuple[Context, Sequence[str], list[str]]  # new sets, warnings, names of what changed


def _all_sets(context: Context, value: Any) -> Sets:
    outcome = sets.replace_all(value)
    return outcome.context, outcome.warnings, list(outcome.context.keys() | context.keys())


def _some_sets(context: Context, value: Any) -> Sets:
    """`{setName, items, mode?}`, or `{set: items}` for several; null clears: items, or all sets."""
    if value is None:
        return _all_sets(context, None)
    if not isinstance(value, dict):
        raise UsageError("setContext is {setName, items, mode?}")
    asked = [value] if "setName" in value else [_replacing(*one) for one in value.items()]
    sets.distinct(one.get("setName") for one in asked)
    warnings: list[str] = []
    names: list[str] = []
    for one in asked:
        items = one.get("items")
        change = sets.change_of(one.get("setName"), [] if items is None else items, one.get("mode"))
        outcome = sets.apply(context, change)
        context = outcome.context
        warnings += outcome.warnings
        names += [change.name] if outcome.changed else []
    return context, warnings, names


def _replacing(name: Any, items: Any) -> dict[str, Any]:
    return {"setName": name, "items": items}


def _label(given: Any) -> tuple[str, str | None]:
    """An entry's id, and its label; None takes that back."""
    if not isinstance(given, dict) or not isinstance(given.get("entryId"), str):
        raise UsageError("label is {entryId, text}")
    return given["entryId"], _line(given.get("text"), "label text")


def _labelled(asked: params.Update) -> str:
    """The entry that gets a label by this, which must be there."""
    entry_id, text = _label(asked.label) if asked.label is not UNSET else ("", None)
    return entry_id if text else ""


def _find(library: Library, session_id: str, entry_id: str) -> None:
    """Raise where a session has no such entry."""
    session = open_session(library, session_id)
    if session is None:
        raise FileGoneError("the session's file is gone")
    row_of(session.state, entry_id)


def _hint(value: str | None) -> str | None:
    """A command line: cutting it would make it another one."""
    return sets.item_of(value, "envHint") if value and value.strip() else None


def _line(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(f"{what} is a string, or null to clear it")
    return clean_line(value, NAME_MAX) or None
