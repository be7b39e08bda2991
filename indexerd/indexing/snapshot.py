"""One session at one moment, as an indexing run needs it.

What arrives while the model works counts for the next run. Only the lines that the transcript needs
are read, from the leaf backwards. What a paid run described is not sent again while its leaf is on
the path: its description and the newer text are.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexerd.agents import ADAPTERS
from indexerd.agents.json_lines import own_words
from indexerd.errors import (
    AccessError,
    InvalidMetaError,
    NotFoundError,
    SessionEmptyError,
    SessionUnreadableError,
)
from indexerd.events import Facts, Kind, Prompt
from indexerd.indexing.prompt import index_prompt
from indexerd.indexing.transcript import MESSAGE_MAX, Caps, Section, Transcript, assemble, size_of
from indexerd.meta.model import Metadata, MetaFile, Stamp, read_meta, stamp
from indexerd.models.base import LOCAL, Model
from indexerd.paths import meta_name
from indexerd.privacy.redact import Redactor, redactor, shown_path
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol.limits import DESCRIPTION_MAX, NAME_MAX, SUMMARY_MAX, TAG_MAX, TAGS_MAX
from indexerd.sessions.facts import Facts as RowFacts
from indexerd.sessions.facts import facts_of
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.state import ROOT, SessionState, name_at
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionLines

EMPTY = "no user/assistant conversation to index"
# An answer of opencode is one row that grows; a leaf of Codex has its turn's id.
_GROWING = frozenset({"codex", "opencode"})
_ROLES = {Kind.USER: "user", Kind.ASSISTANT: "assistant"}

Library = Any  # the daemon's, which cannot be imported here
Read = Callable[..., Awaitable[Any]]  # runs a function in the thread that owns the library


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is sent of a session, and what is stored with the answer."""

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
        """Return the socket's `as_sent`: what would be sent now, and to which model."""
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


async def take_snapshot(
    library: Library, read: Read, session_id: str, settings: Settings
) -> Snapshot:
    """Take a snapshot; nothing leaves the machine.

    The facts of a session need all its lines, which are read in steps, so that the thread does
    other work in between. Raises NotFoundError, SessionUnreadableError or SessionEmptyError.
    """
    while not await read(library.texts.index, session_id):
        pass
    while True:
        with suppress(ValueError):  # a line was not what it looked like: parse them all
            taken: Snapshot = await read(_take, library, session_id, settings)
            return taken
        if not await read(library.reread, session_id):
            raise SessionUnreadableError("the session file changed while it was read")


def _take(library: Library, session_id: str, settings: Settings) -> Snapshot:
    info, state = library.files.info(session_id), library.files.state(session_id)
    if info is None or state is None:
        raise NotFoundError("the session's file is gone")
    directory = Path(library.meta_dir(info))
    seen = stamp(directory / meta_name(session_id))
    meta = _old_meta(directory, session_id) or library.metas.meta(session_id)  # of another root
    old = meta if settings.index.merge_previous_summary else None
    described, redact = border(info.agent, state, old), redactor(settings)
    with library.files.lines(session_id) as lines:
        caps = Caps(settings.index.max_bytes, settings.index.max_lines)
        said = assemble(_newest_first(info, state, lines, described), caps, redact)
    if not said.text or state.leaf_id is None:
        raise SessionEmptyError(EMPTY)
    only_new = described is not None and said.only_new
    counts, summary, earlier = Counter(said.redactions), "", ""
    if old and _indexed_row(state, old) is not None and (only_new or said.cut):
        summary, earlier = _carried(old, redact, counts, whole=only_new)
    row = library.store.get(session_id) or {}
    facts = _facts(said, info, row, summary if said.cut else None, redact)
    return Snapshot(
        info=info,
        session_file=row.get("sessionFile", info.path),
        leaf_id=state.leaf_id,
        directory=directory,
        stamp=seen,
        meta=meta,
        prompt=index_prompt(
            said.text,
            nonce=secrets.token_hex(8),
            schema=Metadata.model_json_schema(),
            facts=facts,
            earlier=earlier,
            only_new=only_new,
        ),
        facts=facts,
        bytes=size_of(said.text) + size_of(earlier),
        redactions=dict(sorted(counts.items())),
        truncated=said.truncated,
        since_id=name_at(state, described) if only_new and described is not None else None,
    )


def _old_meta(directory: Path, session_id: str) -> MetaFile | None:
    """Read the meta file; an invalid one counts as none.

    AccessError where it cannot be read, or the directory is a file: no model is paid for an answer
    that could not be stored.
    """
    if directory.exists() and not directory.is_dir():
        raise AccessError(f"{directory} is not a directory", hint="move it out of the way")
    with suppress(InvalidMetaError):
        return read_meta(directory / meta_name(session_id))
    return None


def _carried(
    meta: MetaFile, redact: Redactor, counts: Counter[str], *, whole: bool
) -> tuple[str, str]:
    """Return an earlier run's summary, and what is sent of that run: the `whole` or the summary."""

    def safe(text: str) -> str:  # another program may have written it, unredacted
        clean, found = redact(clean_text(text, len(text)))
        counts.update(found)
        return clean

    summary = safe(meta.summary)
    if not whole:
        return summary, summary[:SUMMARY_MAX]
    tags = ", ".join(" ".join(safe(tag).split())[:TAG_MAX] for tag in meta.tags[:TAGS_MAX])
    head = f"Name: {' '.join(safe(meta.name).split())[:NAME_MAX]}\nTags: {tags}"
    described = safe(meta.description)[:DESCRIPTION_MAX]
    return summary, f"{head}\n\n{described}\n\n{summary[:SUMMARY_MAX]}"


def border(agent: str, state: SessionState, meta: MetaFile | None) -> int | None:
    """Return the row up to which a meta file describes the path; None if it is not built upon.

    That is so for one of a local model, one that nothing came after, and one whose leaf has left
    the path.
    """
    row = _indexed_row(state, meta)
    if row is None or meta is None or meta.model.startswith(LOCAL) or not meta.summary.strip():
        return None
    if agent in _GROWING:  # the described turn may have grown: it is sent again
        turn = (one for one in state.up(row) if state.kind(one) is Kind.USER)
        row = next((state.parent(one) for one in turn), ROOT)
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
    """Yield the path's messages from the leaf back, old ones from the row `described` on.

    A line is read only when its message is asked for.
    """
    read, old = ADAPTERS[info.agent].read, False
    for row in state.up(state.leaf):
        old = old or row == described
        role = _ROLES.get(state.kind(row))
        line = lines.brief(row) if role else b""
        if role and line and (text := own_words(read(line, state.id(row)).text)):
            yield Section(role, text[-MESSAGE_MAX:], old)


def _facts(
    said: Transcript, info: SessionInfo, row: dict[str, Any], summary: str | None, redact: Redactor
) -> Facts:
    done = facts_of(row) or RowFacts()
    uses = (use for each in done.tool_uses.values() for use in each)
    return Facts(
        messages=tuple((one.role, one.text) for one in said.sections),
        files_read=tuple(done.files_read),
        files_modified=tuple(done.files_modified),
        tools_used=done.tools_used,
        cwd=shown_path(info.cwd),
        previous_summary=summary,
        title=redact(info.agent_title or "")[0],
        commands=tuple(redact(one)[0] for one in uses),
    )
