r"""What a model gets to read for a question about one session (S0.61, S0.62, X5, X8).

In: what was said on a path, read newest first and only as far as needed. Out: sections
`[entryId] User: …`, `[entryId] Assistant: …` and `[entryId] Summary: …`, split by a blank line,
within a number of bytes. There is no cap on lines. Runs in threads, never in the event loop.

Escape sequences and what else cannot be seen go first, as they would split words, and secrets.
Redaction comes before the cut, over the joined text. Where that leaves something out, summaries
that the agent itself wrote of the earlier part go first, newest first up to a quarter of the
space; they are redacted each by itself. A compaction covers everything before it, and so what was
cut, wherever it stands; a branch summary does where it stands before the cut.

A section's beginning is what a citation goes by, so nothing else may look like one: lines of a
text that do are quoted with `> `, and an entry with an odd id goes by another name, as an id is
whatever a file says. Every section begins with its id, the one that was cut as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from indexerd.errors import SessionEmptyError, SessionUnreadableError
from indexerd.events import Kind
from indexerd.indexing.transcript import BEYOND_BYTES, MESSAGE_MAX
from indexerd.models.threads import Check
from indexerd.privacy.redact import Redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.references.query_codes import UNREADABLE, no_session, session_gone
from indexerd.sessions.context import Read
from indexerd.sessions.state import SessionState
from indexerd.sources.session_lines import SessionLines
from indexerd.sources.session_reader import OpenSession, reader

SUMMARIES_SHARE = 4  # a summary may take the space that the text leaves, up to one part of so many
EVER = 1 << 62  # the age of a summary that covers everything before it
EMPTY = "no user/assistant conversation to ask about"
CUT = "…"
TRUNCATED = "Context truncated to the most recent {} bytes."
LOOKED_AT = "Only the most recent {:.3g} MB of the conversation were looked through."

_KINDS = {Kind.USER: "user", Kind.ASSISTANT: "assistant"}
_SUMMARIES = (Kind.COMPACTION, Kind.BRANCH_SUMMARY)
_LABELS = {"user": "User", "assistant": "Assistant", "summary": "Summary"}
_ROLES = {label: role for role, label in _LABELS.items()}
_PLAIN = re.compile(r"[\w.-]{1,128}", re.ASCII)
_HEAD = rf"\[({_PLAIN.pattern})\] ({'|'.join(_ROLES)}): "
_HEADS = re.compile(rf"\n\n{_HEAD}", re.ASCII)
_LIKE_HEADS = re.compile(rf"^(?={_HEAD})", re.ASCII | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Said:
    """One entry that says something. `role`: user, assistant, or summary for an agent's own."""

    entry_id: str
    role: str
    text: str
    age: int = 0  # entries after it; of a summary, EVER where it covers everything earlier

    @property
    def shown(self) -> str:
        """The id that the model gets to see: the entry's own, where that is plain."""
        if _PLAIN.fullmatch(self.entry_id):
            return self.entry_id
        data = self.entry_id.encode("utf-8", "replace")
        return f"entry-{blake2b(data, digest_size=6).hexdigest()}"

    @property
    def head(self) -> str:
        """What its section begins with."""
        return f"[{self.shown}] {_LABELS[self.role]}: "

    @property
    def cost(self) -> int:
        """Bytes of its section and of the blank line before it."""
        return _size(self.head) + _size(self.text) + 2


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was read of a session, redacted, for texts of up to `max_bytes`."""

    sections: tuple[Said, ...]  # oldest first
    summaries: tuple[Said, ...]  # newest first
    redactions: dict[str, int]


@dataclass(frozen=True, slots=True)
class Context:
    """What of it is sent."""

    sections: tuple[Said, ...]  # oldest first, after summaries of what was cut
    redactions: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bytes: int = 0  # of the text, in UTF-8

    @property
    def text(self) -> str:
        """The sections as one text."""
        return render(self.sections)


def render(sections: Iterable[Said]) -> str:
    """Sections as text."""
    return "\n\n".join(one.head + one.text for one in sections)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


# -- reading -------------------------------------------------------------------------------------


def gather_session(
    session: OpenSession, check: Check, *, max_bytes: int, clean: Redactor
) -> Gathered:
    """Read as much of the path as a text of `max_bytes` needs.

    SessionEmptyError: nobody said anything. SessionUnreadableError: the file is gone, or cannot
    be read.
    """
    state, info = session.state, session.info

    def cleaned(text: str) -> tuple[str, dict[str, int]]:
        check()
        return clean(text)

    try:
        with session.lines as lines:
            read = reader(session, lines, check)
            found = gather(_said(state, read), _summaries(state, read), max_bytes, cleaned)
            torn = not found.sections and _torn(state, lines)
    except SessionUnreadableError as bad:
        if not Path(info.file).exists():
            raise session_gone() from None
        bad.upstream = UNREADABLE
        raise
    if found.sections:
        return found
    if torn or (info.bad_lines and not info.rows):
        raise no_session()
    raise SessionEmptyError(EMPTY)


def _torn(state: SessionState, lines: SessionLines) -> bool:
    """Whether a file that is not empty has ended before a line that was read in it."""
    path = Path(state.file)
    rows = (row for row in state.up(state.leaf) if state.lengths[row])
    return any(not lines.row(row) for row in rows) and path.exists() and path.stat().st_size > 0


def _said(state: SessionState, read: Read) -> Iterator[Said]:
    """What user and assistant said on the path, newest first; a line is read when asked for."""
    for age, row in enumerate(state.up(state.leaf)):
        role = _KINDS.get(state.kind(row))
        if role:
            entry = read(row)
            if not entry.unseen:
                yield Said(state.id(row), role, entry.text, age)


def _summaries(state: SessionState, read: Read) -> Iterator[Said]:
    """The agent's own summaries on the path, newest first."""
    for age, row in enumerate(state.up(state.leaf)):
        kind = state.kind(row)
        if kind in _SUMMARIES:
            reach = EVER if kind is Kind.COMPACTION else age
            yield Said(state.id(row), "summary", read(row).text, reach)


def gather(
    newest_first: Iterable[Said], summaries: Iterable[Said], max_bytes: int, redact: Redactor
) -> Gathered:
    """Read as much as a text of `max_bytes` needs, and redact it.

    Both iterables come newest first, and are consumed only as far as needed: the summaries only
    where something will be cut. Redaction can shrink a text: then twice as much is read.
    """
    source = iter(newest_first)
    taken: list[Said] = []
    text, counts = "", dict[str, int]()
    wanted = limit = max_bytes + BEYOND_BYTES
    more = True
    while more and _size(text) <= wanted:
        more = _take(source, taken, limit)
        text, counts = redact("".join(f"\n\n{one.head}{one.text}" for one in reversed(taken)))
        limit *= 2
    sections = tuple(_split(text, taken[::-1]))
    if _size(render(sections)) <= max_bytes:
        return Gathered(sections, (), counts)
    newest, more_counts = _fitting(summaries, max_bytes // SUMMARIES_SHARE, redact)
    return Gathered(sections, tuple(newest), _sum(counts, more_counts))


def _take(source: Iterator[Said], taken: list[Said], limit: int) -> bool:
    """Take sections until their text passes the limit; False at the source's end."""
    size = sum(one.cost for one in taken)
    for one in source:
        plain = _plain(replace(one, text=_visible(one.text[-MESSAGE_MAX:])))
        if not plain.text.strip():
            continue
        taken.append(plain)
        size += plain.cost
        if size > limit:
            return True
    return False


def _plain(one: Said) -> Said:
    """Without a line that looks like a section's beginning."""
    return replace(one, text=_LIKE_HEADS.sub("> ", one.text))


def _visible(text: str) -> str:
    """Without what cannot be seen; exactly as it was where all of it can be."""
    if text.isprintable() or all(char.isprintable() or char in "\n\t" for char in set(text)):
        return text
    return clean_text(text, len(text))


def _split(text: str, taken: Sequence[Said]) -> Iterator[Said]:
    """The redacted text as sections again.

    Redaction may have swallowed the beginning of one: what is left of it belongs to the one
    before, and it cannot be named. It makes no beginnings that are not there in `taken`, in order.
    """
    places = {(one.shown, one.role): at for at, one in enumerate(taken)}
    last, start = -1, 0
    for found in _HEADS.finditer(text):
        at = places.get((found[1], _ROLES[found[2]]), -1)
        if at <= last:
            continue
        if last >= 0:
            yield replace(taken[last], text=text[start : found.start()])
        last, start = at, found.end()
    if last >= 0:
        yield replace(taken[last], text=text[start:])


def _fitting(
    summaries: Iterable[Said], space: int, redact: Redactor
) -> tuple[list[Said], dict[str, int]]:
    """The newest summaries that fit into so many bytes; of the first its beginning will do."""
    found: list[Said] = []
    counts: dict[str, int] = {}
    for one in summaries:
        text, here = redact(_visible(one.text[:MESSAGE_MAX]).strip())
        clean = _plain(replace(one, text=text))
        if not clean.text:
            continue
        if clean.cost > space and not found:
            room = max(0, space - _size(clean.head) - 2 - _size(CUT))
            kept = clean.text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
            clean = replace(clean, text=kept.rstrip() + CUT)
        if clean.cost > space or clean.text == CUT:
            break
        space -= clean.cost
        counts = _sum(counts, here)
        found.append(clean)
    return found, counts


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in one | other}


# -- cutting -------------------------------------------------------------------------------------


def compose(found: Gathered, max_bytes: int, *, local: bool = False) -> Context:
    """Cut what was gathered to at most `max_bytes`, summaries included.

    `local`: for the built-in model, whose bound is not the one of the settings.
    """
    size = _size(render(found.sections))
    if size <= max_bytes:
        return Context(found.sections, found.redactions, bytes=size)
    space = max_bytes // SUMMARIES_SHARE
    oldest = next((one.age for one in cut(found.sections, max_bytes - space)), -1)
    chosen: list[Said] = []  # newest first: summaries that cover what will be cut
    for one in found.summaries:
        if one.age > oldest and one.cost <= space:
            space -= one.cost
            chosen.append(one)
    kept = cut(found.sections, max_bytes - sum(one.cost for one in chosen))
    notes = [LOOKED_AT.format(max_bytes / 1e6) if local else TRUNCATED.format(max_bytes)]
    if chosen:
        many = "A summary" if len(chosen) == 1 else f"{len(chosen)} summaries"
        notes.append(f"{many} of earlier parts, written by the agent, stood in for what was cut.")
    shown = (*reversed(chosen), *kept)
    return Context(shown, found.redactions, tuple(notes), _size(render(shown)))


def cut(sections: Sequence[Said], max_bytes: int) -> tuple[Said, ...]:
    """The last sections within so many bytes; the oldest of them keeps its head and its end."""
    kept: list[Said] = []
    left = max_bytes + 2  # no blank line comes before the first
    for one in reversed(sections):
        if one.cost > left:
            end = _end(one.text, left - _size(one.head) - 2)
            kept += [replace(one, text=end)] if end else []
            break
        kept.append(one)
        left -= one.cost
    return tuple(reversed(kept))


def _end(text: str, size: int) -> str:
    """The last `size` bytes of a text, from a line's beginning where there is one; marked."""
    room = size - _size(CUT)
    if room <= 0:
        return ""
    data = text.encode("utf-8", "replace")[-room:]
    line = data.find(b"\n")
    if 0 <= line < len(data) // 2:
        data = data[line + 1 :]
    said = data.decode("utf-8", "ignore").strip()
    return CUT + said if said else ""
