"""One indexing run from a due session to its new row.

    snapshot -> models.attempts (budget inside) -> check -> meta.writer -> library -> events

A failing provider ends the run at once; `policy.after_failure` says when to retry, and that is
stored until a run succeeds. Messages that arrive while the model works count for the next run. Only
the lines that the transcript needs are read, from the leaf backwards. While the leaf of a remote
model's run is on the path, only its description and newer messages are sent.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from indexerd.agents import ADAPTERS
from indexerd.agents.json_lines import own_words
from indexerd.entries import Facts, Kind, Prompt
from indexerd.errors import (
    AccessError,
    IndexerdError,
    InvalidMetaError,
    NotFoundError,
    SessionEmptyError,
    SessionUnreadableError,
    StateError,
)
from indexerd.indexing.policy import NO_FAILURE, RetryState, SessionRuntime, after_failure
from indexerd.indexing.prompt import index_prompt, retry_prompt, validate
from indexerd.indexing.transcript import (
    LOCAL_CAPS,
    MESSAGE_MAX,
    Caps,
    Section,
    Transcript,
    assemble,
    size_of,
)
from indexerd.meta.cache import MetaCache
from indexerd.meta.model import SCHEMA_VERSION, Metadata, MetaFile, Stamp, Usage, read_meta, stamp
from indexerd.meta.writer import MetaWriter
from indexerd.models.attempts import ATTEMPTS, Calls, Rejected, first_usable
from indexerd.models.base import LOCAL, Model, Reply
from indexerd.models.budget import Budget, prompt_tokens
from indexerd.paths import meta_name
from indexerd.privacy.redact import Redactor, redactor, shown_path
from indexerd.privacy.sanitize import bare_lines, clean_text
from indexerd.protocol.limits import (
    DESCRIPTION_MAX,
    FIRST_MESSAGE_MAX,
    NAME_MAX,
    SUMMARY_MAX,
    TAG_MAX,
    TAGS_MAX,
)
from indexerd.search.text_indexer import TextIndexer
from indexerd.sessions.facts import RowFacts, facts_of
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import ROOT, SessionState, name_at
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionFiles, SessionLines
from indexerd.store.store import StateStore
from indexerd.times import iso_ms, iso_of_ms

TOPIC = "retry"  # of the store's notes
EMPTY = "no user/assistant conversation to index"
# An answer of opencode is one row that grows; a leaf of Codex has its turn's id.
_GROWING = frozenset({"codex", "opencode"})
_LIKE_HEADS = re.compile(r"^(?=(?:User|Assistant): )", re.MULTILINE)  # as in a pasted chat
_schema = cache(Metadata.model_json_schema)

Read = Callable[..., Awaitable[Any]]  # runs a function in the thread that owns the library


class Library(Protocol):
    """What is used here of the daemon's `Library` (daemon/library.py)."""

    store: StateStore
    metas: MetaCache
    texts: TextIndexer

    @property
    def files(self) -> SessionFiles: ...
    def meta_dir(self, info: SessionInfo) -> str: ...
    def reread(self, session_id: str) -> bool: ...
    def written(self, session_id: str, directory: str) -> list[Any]: ...


class Events(Protocol):
    """What is used here of the daemon's `EventBus` (daemon/event_bus.py)."""

    def log(self, event: str, fields: dict[str, Any]) -> None: ...
    def defect(self, event: str, session_id: str, bug: Exception) -> None: ...
    def publish(self, event: str, session_id: str | None, fields: dict[str, Any]) -> None: ...
    def indexing(self, known: SessionRuntime, why: str) -> None: ...
    def retry(self, known: SessionRuntime, fields: dict[str, Any]) -> None: ...
    def indexed(self, known: SessionRuntime, done: Done) -> None: ...
    def failed(self, known: SessionRuntime, error: IndexerdError, retry_at: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The parts of a session that are sent, and the facts stored with the answer."""

    info: SessionInfo
    session_file: str
    leaf_id: str
    directory: Path  # of the meta file
    stamp: Stamp | None  # of the old meta file, taken before it was read
    meta: MetaFile | None  # the old meta file
    prompt: Prompt
    facts: Facts
    bytes: int  # of the transcript and of the earlier run's answer
    redactions: dict[str, int]  # in both
    truncated: bool
    since_id: str | None  # the last entry that only the earlier answer describes

    def as_sent(self, models: Sequence[Model]) -> dict[str, Any]:
        """Return the result of the socket's `as_sent`: the prompt, and the model to send it to."""
        model = models[0] if models else None
        return {
            "sessionId": self.info.session_id,
            "model": model.key if model else None,
            "leavesTheMachine": bool(model and model.remote),
            "system": self.prompt.system,
            "user": self.prompt.user,
            "truncated": self.truncated,
            "redactions": self.redactions,
        }


@dataclass(frozen=True, slots=True)
class Done:
    """A run that succeeded; `adopted`: another program wrote the meta file first, and it stays."""

    session_id: str
    directory: str
    usd: float | None
    model: str
    adopted: bool


# An error's kind, and whether a retry may help. The error itself would keep the prompt in memory.
Failure = tuple[str, bool]


@dataclass
class Indexer:
    """Indexes sessions; several runs may be under way."""

    library: Library
    read: Read
    budget: Budget
    writer: MetaWriter
    events: Events
    outcomes: dict[str, Done | Failure] = field(default_factory=dict)  # newest of each session
    retries: dict[str, RetryState] = field(default_factory=dict)  # of sessions that failed

    async def load(self) -> None:
        """Load stored retry states, except those that a reload ends: a restart reloads, too."""
        decode = msgspec.msgpack.Decoder(RetryState).decode
        stored = await self.read(self.library.store.notes, TOPIC, decode)
        self.retries = {key: retry for key, retry in stored.items() if not retry.ends_with_reload}

    async def run(
        self, session: SessionRuntime, why: str, settings: Settings, models: Sequence[Model]
    ) -> list[Any]:
        """Index a session now with the first usable model; answer the caller of a forced run.

        Returns the changes in the library: none after a failure.
        """
        session_id = session.info.session_id
        self.events.indexing(session, why)
        try:
            done, updates = await self._index(session, settings, models)
        except asyncio.CancelledError:
            session.answer(NotFoundError("the session was purged, or the daemon is stopping"))
            raise
        except IndexerdError as bad:
            await self._failed(session, bad)
            return []
        except Exception as bug:  # noqa: BLE001 - a defect of ours must not end the daemon
            self.events.defect("index.failed", session_id, bug)
            await self._failed(session, IndexerdError(f"internal error: {type(bug).__name__}"))
            return []
        self.outcomes[session_id] = done
        await self.keep(session, NO_FAILURE)
        self.events.indexed(session, done)
        session.answer(done)
        return updates

    async def _failed(self, session: SessionRuntime, error: IndexerdError) -> None:
        self.outcomes[session.info.session_id] = error.kind, error.retryable
        state = after_failure(session.retry, error, session.info.new_users, self.budget.clock())
        await self.keep(session, state)
        self.events.failed(session, error, state.retry_at)
        session.answer(error)

    async def _index(
        self, session: SessionRuntime, settings: Settings, models: Sequence[Model]
    ) -> tuple[Done, list[Any]]:
        """Read the session, ask the model, write the answer; raises IndexerdError."""
        session_id = session.info.session_id
        local = bool(models) and models[0].key.startswith(LOCAL)
        snapshot = await take_snapshot(self.library, self.read, session_id, settings, local=local)
        clean, prompt = redactor(settings), snapshot.prompt
        audit = {
            "customType": "session-index:index",
            "sessionId": session_id,
            "redactions": snapshot.redactions,
            "bytes": snapshot.bytes,
            "by": "user" if session.forced else "daemon",
            "leafId": snapshot.leaf_id,
            "since": snapshot.since_id,
        }
        calls = Calls(self.budget, audit, partial(self._publish, session))

        def read(reply: Reply) -> Metadata | Rejected:
            return validate(reply.text, cut=reply.cut, redact=lambda text: clean(text)[0])

        def ask_model(model: Model) -> Awaitable[Metadata]:
            return calls.ask(
                model,
                prompt,
                timeout=settings.model.timeout_seconds,
                read=read,
                again=lambda reply, error: retry_prompt(prompt, clean(reply.text)[0], error),
            )

        metadata, model = await first_usable(models, ask_model, awaited=False)
        meta = _meta_file(snapshot, metadata, model.key, calls, self.budget.clock())
        written = await asyncio.to_thread(
            self.writer.write_meta, snapshot.directory, meta, expect=snapshot.stamp
        )
        directory = str(snapshot.directory)
        usd = calls.usage["costUsd"]
        done = Done(session_id, directory, usd, model.key, adopted=not written)
        return done, await self.read(self.library.written, session_id, directory)

    def _publish(self, session: SessionRuntime, fields: dict[str, Any], error: str) -> None:
        self.events.log("index.attempt", {"session": session.info.session_id, **fields})
        if error and fields["attempt"] < ATTEMPTS:
            which = {"model": fields["model"], "attempt": fields["attempt"]}
            self.events.retry(session, which | {"of": ATTEMPTS - 1, "reason": error})

    async def keep(self, session: SessionRuntime, state: RetryState) -> None:
        session.retry = state
        await self.note_retry(session.info.session_id, state)

    async def note_retry(self, session_id: str, state: RetryState = NO_FAILURE) -> None:
        """Store a session's retry state, or remove it."""
        if state == self.retries.get(session_id, NO_FAILURE):
            return
        self.retries[session_id] = state
        packed = msgspec.msgpack.encode(state) if state != NO_FAILURE else None
        with suppress(StateError):  # not stored: a restart retries the session sooner
            await self.read(self.library.store.note, TOPIC, session_id, packed)

    async def estimate(
        self, due: Sequence[str], settings: Settings, models: Sequence[Model]
    ) -> dict[str, Any]:
        """Return the maximum cost of indexing these sessions, one call each; sends nothing.

        `costUsd` is None if a price is unknown.
        """
        model = models[0] if models else None
        tokens = unreadable = 0
        costs: list[float | None] = []
        for session_id in due:
            try:
                snapshot = await take_snapshot(self.library, self.read, session_id, settings)
            except IndexerdError:
                unreadable += 1
                continue
            tokens += prompt_tokens(snapshot.prompt)
            costs.append(self.budget.estimate(model.key, snapshot.prompt) if model else None)
        known = [cost for cost in costs if cost is not None]
        return {
            "sessions": len(due),
            "unreadable": unreadable,
            "model": model.key if model else None,
            "inputTokens": tokens,
            "costUsd": round(sum(known), 6) if len(known) == len(costs) else None,
        }


def _meta_file(
    snapshot: Snapshot, metadata: Metadata, model: str, calls: Calls, now: float
) -> MetaFile:
    """Build the meta file from a snapshot and the answer to it."""
    info, old = snapshot.info, snapshot.meta
    updated = iso_of_ms(max(round(now * 1000), iso_ms(old.updated_at) + 1 if old else 0))
    return MetaFile(
        **((old.model_extra or {}) if old else {}),  # unknown fields stay
        schema_version=max(SCHEMA_VERSION, old.schema_version if old else 0),
        session_id=info.session_id,
        session_file=snapshot.session_file,
        parent_session_file=info.parent or None,
        **metadata.model_dump(),
        cwd=info.cwd,
        created_at=old.created_at if old else updated,
        updated_at=updated,
        model=model,
        last_indexed_leaf_id=snapshot.leaf_id,
        agent=info.agent,
        usage=Usage.model_validate(calls.usage),
        message_count=info.messages,
        user_message_count=info.users,
        first_user_message=info.first_prompt[:FIRST_MESSAGE_MAX] or None,
        files_read=list(snapshot.facts.files_read),
        files_modified=list(snapshot.facts.files_modified),
        tools_used=snapshot.facts.tools_used,
        redactions=snapshot.redactions or None,
        session_created_at=info.created_at or None,
        session_modified_at=iso_of_ms(info.modified_ms),
    )


async def take_snapshot(
    library: Library, read: Read, session_id: str, settings: Settings, *, local: bool = False
) -> Snapshot:
    """Take a snapshot; nothing leaves the machine.

    For a `local` model, the facts have all messages of the path, within LOCAL_CAPS.

    A session's facts need all its lines. They are read in steps, so that the reader thread does
    other work in between. Raises NotFoundError, SessionUnreadableError or SessionEmptyError.
    """
    while library.texts.lacks(session_id):
        if await read(library.texts.index_session, session_id):
            break
    while True:
        with suppress(ValueError):  # a line no longer parses: the file was rewritten
            taken: Snapshot = await read(
                _take, library, session_id, settings, LOCAL_CAPS if local else None
            )
            return taken
        if not await read(library.reread, session_id):
            raise SessionUnreadableError("the session file changed while it was read")


def _take(library: Library, session_id: str, settings: Settings, read: Caps | None) -> Snapshot:
    info, state = library.files.info(session_id), library.files.state(session_id)
    if info is None or state is None:
        raise NotFoundError("the session's file is gone")
    directory = Path(library.meta_dir(info))
    seen = stamp(directory / meta_name(session_id))
    # The second is that of another root.
    meta = _old_meta(directory, session_id) or library.metas.meta(session_id)
    old = meta if settings.index.merge_previous_summary else None
    described, redact = border(info.agent, state, old), redactor(settings)
    with library.files.lines(session_id) as lines:
        caps = Caps(settings.index.max_bytes, settings.index.max_lines)
        messages = _newest_first(info, state, lines, described)
        transcript = assemble(messages, caps, redact, read)
    if not transcript.text or state.leaf_id is None:
        raise SessionEmptyError(EMPTY)
    only_new = described is not None and transcript.only_new
    counts, earlier = Counter(transcript.redactions), ""
    if old and _indexed_row(state, old) is not None and (only_new or transcript.cut):
        earlier = _carried(old, redact, counts, whole=only_new)
    row = library.store.get(session_id) or {}
    titles = [(kind, redact(title)[0]) for kind, title in library.texts.titles(session_id)]
    facts = _facts(transcript, info, row, titles, redact)
    return Snapshot(
        info=info,
        session_file=row.get("sessionFile", info.path),
        leaf_id=state.leaf_id,
        directory=directory,
        stamp=seen,
        meta=meta,
        prompt=index_prompt(
            transcript.text,
            nonce=secrets.token_hex(8),
            schema=_schema(),
            facts=facts,
            earlier=earlier,
            only_new=only_new,
        ),
        facts=facts,
        bytes=size_of(transcript.text) + size_of(earlier),
        redactions=dict(sorted(counts.items())),
        truncated=transcript.truncated,
        since_id=name_at(state, described) if only_new and described is not None else None,
    )


def _old_meta(directory: Path, session_id: str) -> MetaFile | None:
    """Read the meta file; an invalid one is ignored.

    AccessError: it cannot be read, or no answer could be stored: then no model may be paid.
    """
    if directory.exists() and not directory.is_dir():
        raise AccessError(f"{directory} is not a directory", hint="move it out of the way")
    with suppress(InvalidMetaError):
        return read_meta(directory / meta_name(session_id))
    return None


def _carried(meta: MetaFile, redact: Redactor, counts: Counter[str], *, whole: bool) -> str:
    """Return what to send of an earlier run: the `whole` answer, or its summary."""

    def safe(text: str) -> str:  # another program may have written it, unredacted
        clean, more = redact(clean_text(text, len(text)))
        counts.update(more)
        return clean

    summary = safe(meta.summary)
    if not whole:
        return summary[:SUMMARY_MAX]
    tags = ", ".join(" ".join(safe(tag).split())[:TAG_MAX] for tag in meta.tags[:TAGS_MAX])
    head = f"Name: {' '.join(safe(meta.name).split())[:NAME_MAX]}\nTags: {tags}"
    described = safe(meta.description)[:DESCRIPTION_MAX]
    return f"{head}\n\n{described}\n\n{summary[:SUMMARY_MAX]}"


def border(agent: str, state: SessionState, meta: MetaFile | None) -> int | None:
    """Return the row up to which a meta file describes the path; None: the next run ignores it.

    That is so for a local model's meta file, or if its leaf left the path or is still the leaf.
    """
    row = _indexed_row(state, meta)
    if row is None or meta is None or meta.model.startswith(LOCAL) or not meta.summary.strip():
        return None
    if agent in _GROWING:  # the described turn may have grown: it is sent again
        prompts = (at for at in state.up(row) if state.kind(at) is Kind.USER)
        row = next((state.parents[at] for at in prompts), ROOT)
    elif row == state.leaf:
        return None
    return row if row >= 0 else None


def _indexed_row(state: SessionState, meta: MetaFile | None) -> int | None:
    """Return the row of the indexed leaf if it is still on the path."""
    row = state.row(meta.last_indexed_leaf_id) if meta else None
    return row if row is not None and state.on_path(row) else None


def _newest_first(
    info: SessionInfo, state: SessionState, lines: SessionLines, described: int | None
) -> Iterator[Section]:
    """Yield the path's messages from the leaf backwards; from the row `described` on they are old.

    A line is read only when its message is requested.
    """
    read, old = ADAPTERS[info.agent].read, False
    for row in state.up(state.leaf):
        old = old or row == described
        role = state.speaker(row)
        line = lines.row(row) if role else b""
        if role and line and (text := own_words(read(line, state.ids[row]).said)):
            text = _LIKE_HEADS.sub("> ", bare_lines(text[-MESSAGE_MAX:]))
            yield Section(f"{role.capitalize()}: ", role, text, old)


def _facts(
    text: Transcript,
    info: SessionInfo,
    row: dict[str, Any],
    titles: Sequence[tuple[str, str]],
    redact: Redactor,
) -> Facts:
    done = facts_of(row) or RowFacts()
    return Facts(
        messages=tuple((section.role, section.text) for section in text.sections),
        files_read=tuple(done.files_read),
        files_modified=tuple(done.files_modified),
        tools_used=done.tools_used,
        cwd=shown_path(info.cwd),
        title=redact(info.agent_title or "")[0],
        recap=redact(info.recap)[0],
        titles=tuple(titles),
    )
