"""One session at one moment, as an indexing run needs it: read once, then left alone.

What arrives while the model thinks is not part of it, and counts for the next run (S0.35).
Only the lines that the transcript needs are read, from the leaf backwards. What a paid run has
described already is not sent again, where its description can be carried on (S3.15): the border
is the leaf that it was made for, and a branch that was left since has none. What surprised us:
where a leaf goes by its turn's name (codex), the turn may have gone on since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from indexerd.agents import ADAPTERS
from indexerd.agents.lines import own_words
from indexerd.errors import (
    AccessError,
    InvalidMetaError,
    NotFoundError,
    SessionEmptyError,
    SessionUnreadableError,
)
from indexerd.events import MESSAGE, Facts, Kind
from indexerd.indexing.prompt import Earlier
from indexerd.indexing.transcript import (
    EMPTY,
    MESSAGE_MAX,
    Caps,
    Section,
    Transcript,
    assemble,
)
from indexerd.meta.cache import MetaCache
from indexerd.meta.model import MetaFile
from indexerd.meta.reader import Stamp, read_meta, stamp
from indexerd.models.base import LOCAL
from indexerd.paths import meta_name
from indexerd.privacy.redact import Redactor, shown_path
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol.limits import TAGS_MAX
from indexerd.search.session_texts import SessionFiles, Texts
from indexerd.sessions.facts import Facts as RowFacts
from indexerd.sessions.facts import facts_of
from indexerd.sessions.info import SessionInfo
from indexerd.sessions.positions import name_at
from indexerd.sessions.state import ROOT, SessionState
from indexerd.sources.session_lines import SessionLines
from indexerd.store.store import StateStore


class Library(Protocol):
    """What a run needs of everything that is known of sessions; for the reader's thread."""

    @property
    def files(self) -> SessionFiles:
        """Session files."""
        ...

    @property
    def texts(self) -> Texts:
        """What reads a session's lines for the search index and its facts."""
        ...

    @property
    def metas(self) -> MetaCache:
        """Meta files."""
        ...

    @property
    def store(self) -> StateStore:
        """Rows."""
        ...

    def meta_dir(self, card: SessionInfo) -> str:
        """Return where a session's meta file belongs."""
        ...

    def reread(self, session_id: str) -> bool:
        """Read a session anew, line by line; False where that was done before."""
        ...


_GROWING = frozenset({"opencode"})  # an answer is one row there, and grows while it is made
_ROLES = {Kind.USER: "user", Kind.ASSISTANT: "assistant"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What will be described, and what was there before."""

    card: SessionInfo
    directory: Path  # of the meta file
    leaf_id: str
    meta: MetaFile | None
    stamp: Stamp | None  # of the meta file, taken before it was read
    transcript: Transcript  # its redactions are those of all that is sent
    facts: Facts
    row: dict[str, Any]
    since: Earlier | None = None  # what tells all that came before the transcript
    since_id: str | None = None  # with it: the entry up to which nothing is sent again


def take(
    library: Library, session_id: str, caps: Caps, redact: Redactor, *, merge: bool = True
) -> Snapshot:
    """Take a snapshot. Runs in the reader's thread. `merge`: an earlier summary is carried on.

    What the session did is known as far as its lines were read: `library.texts` does that.
    Raises NotFoundError, SessionUnreadableError, or SessionEmptyError where nobody said a word.
    """
    card, state = library.files.card(session_id), library.files.state(session_id)
    if card is None or state is None:
        raise NotFoundError("the session's file is gone")
    directory = Path(library.meta_dir(card))
    seen = stamp(directory / meta_name(session_id))
    meta = _old_meta(library, session_id, directory)
    try:
        with library.files.lines(session_id) as lines:
            told = border(card.agent, state, meta) if merge else None
            transcript = assemble(_newest_first(card, state, lines, told), caps, redact)
    except ValueError:
        if library.reread(session_id):  # a line was not what it looked like: parse them all
            return take(library, session_id, caps, redact, merge=merge)
        raise SessionUnreadableError("the session file changed while it was read") from None
    leaf_id = state.leaf_id
    if not transcript.text or leaf_id is None:
        raise SessionEmptyError(EMPTY)
    row = library.store.get(session_id) or {}
    kept = _Kept(redact)
    since = kept.earlier(meta) if meta and told is not None and transcript.since else None
    summary = None
    if meta and merge and transcript.cut and _holds(state, meta):
        # The words of an earlier run are sent once, and what is taken out of them counts once.
        summary = since.summary if since is not None else kept.safe(meta.summary)
    transcript = replace(transcript, redactions=_sum(transcript.redactions, kept.counts))
    return Snapshot(
        card=card,
        directory=directory,
        leaf_id=leaf_id,
        meta=meta,
        stamp=seen,
        transcript=transcript,
        facts=_facts(transcript, card, summary, facts_of(row) or RowFacts(), redact),
        row=row,
        since=since,
        since_id=name_at(state, told) if since is not None and told is not None else None,
    )


def _old_meta(library: Library, session_id: str, directory: Path) -> MetaFile | None:
    """The meta file there is, here or (a moved session) where it was written.

    One that is invalid counts as none. One that cannot be read is an AccessError, and a
    directory that is none too: nothing is paid for what could not be stored (S0.40).
    """
    if directory.exists() and not directory.is_dir():
        raise AccessError(f"{directory} is no directory", hint="move it out of the way")
    stat = library.metas.get(session_id)
    homes = dict.fromkeys([directory, *([Path(stat.directory)] if stat else [])])
    for home in homes:
        try:
            meta = read_meta(home / meta_name(session_id))
        except InvalidMetaError:
            meta = None
        if meta is not None:
            return meta
    return None


def border(agent: str, state: SessionState, meta: MetaFile | None) -> int | None:
    """The row up to which a meta file tells the path; None where it is not to be carried on.

    One that was made without a model is not: nothing was paid for it, and a model does better.
    Nor is there one where nothing came after it, or where its leaf is on the path no more.
    """
    if meta is None or meta.model.startswith(LOCAL) or not meta.summary.strip():
        return None
    row = state.row(meta.last_indexed_leaf_id)
    if row is None or not state.on_path(row):
        return None
    if _went_on(state, row, meta):
        row = _before_turn(state, row)
    elif row == state.leaf:
        return None
    elif agent in _GROWING and state.kind(row) is Kind.ASSISTANT:
        row = state.parent(row)  # it may have been half an answer then: it is sent again
    return row if row >= 0 else None


def _went_on(state: SessionState, row: int, meta: MetaFile) -> bool:
    """Whether the leaf that was indexed is a turn in which more may have been said since.

    Its name then stands for the newest row of the turn, and not for what was described. All the
    messages up to there were counted then, if none has come; any other count proves nothing.
    """
    name = meta.last_indexed_leaf_id
    if name in state.index or name not in state.marks:
        return False
    said = sum(1 for packed in state.codes[: row + 1] if packed & MESSAGE)
    return said != meta.message_count


def _before_turn(state: SessionState, row: int) -> int:
    """The newest row on the way up from a named turn that is another's; ROOT where none is."""
    others = {one for one in state.marks.values() if one != row}
    return next((one for one in state.up(row) if one in others), ROOT)


def _holds(state: SessionState, meta: MetaFile) -> bool:
    """Whether what was indexed is on the path still: a summary of another branch tells lies."""
    row = state.row(meta.last_indexed_leaf_id)
    return row is not None and state.on_path(row)


class _Kept:
    """What stands in a meta file: another hand may have written it, and redacted nothing."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self.counts: dict[str, int] = {}  # of all that was taken out

    def safe(self, text: str) -> str:
        """A text as it may be sent."""
        safe, found = self._redact(clean_text(text, len(text)))
        self.counts = _sum(self.counts, found)
        return safe

    def earlier(self, meta: MetaFile) -> Earlier:
        """All that an earlier run wrote."""
        tags = (" ".join(self.safe(tag).split()) for tag in meta.tags[:TAGS_MAX])
        name = " ".join(self.safe(meta.name).split())
        return Earlier(name, self.safe(meta.description), self.safe(meta.summary), tuple(tags))


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Counts of both, by kind."""
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in sorted(one | other)}


def _newest_first(
    card: SessionInfo, state: SessionState, lines: SessionLines, told: int | None
) -> Iterator[Section]:
    """The path's messages from the leaf back; a line is read only when it is asked for.

    From the row `told` back they are old.
    """
    read = ADAPTERS[card.agent].read
    old = False
    for row in state.up(state.leaf):
        old = old or row == told
        role = _ROLES.get(state.kind(row))
        line = lines.brief(row) if role else b""
        if role and line:
            text = own_words(read(line, state.id(row)).text)
            if text:
                yield Section(role, text[-MESSAGE_MAX:], old)


def _facts(
    transcript: Transcript,
    card: SessionInfo,
    previous_summary: str | None,
    done: RowFacts,
    redact: Redactor,
) -> Facts:
    uses = (use for _, each in done.tool_uses for use in each)
    return Facts(
        messages=tuple((one.role, one.text) for one in transcript.sections),
        files_read=done.files_read,
        files_modified=done.files_modified,
        tools_used=dict(done.tools_used),
        cwd=shown_path(card.cwd),
        previous_summary=previous_summary,
        title=redact(card.agent_title or "")[0],
        commands=tuple(redact(one)[0] for one in uses),
    )
