"""`history`: a long session as a page: its segments, and what follows them, message by message.

In full, it adds the context that the two make together: system messages, segments, messages
verbatim. Texts are not redacted: they go to the user who asks. Lines of a segment that begin like
a heading of ours are quoted, as its model read text from any hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from indexerd.digests.segments import Segment, chain_at, covered, encode
from indexerd.events import Kind
from indexerd.privacy.sanitize import clean_line
from indexerd.sessions.clipped import Keep
from indexerd.sessions.context import Read, context_messages, role_of
from indexerd.sessions.positions import message_rows, rows_between
from indexerd.sessions.serialize import serialize
from indexerd.sessions.state import SessionState
from indexerd.sessions.tree_answers import TEXT_MAX, text_limit
from indexerd.settings import Digest
from indexerd.sources.session_reader import OpenSession
from indexerd.threads import Check

MESSAGES_MAX = 40_000  # of the newest, that an answer shows
TOOLS_MAX = 20  # of one answer
LINE_MAX = 200  # characters of a message's text, unless all is asked for
LINE_LOOKED = 4000  # that are looked at for these
FULL_MAX = 4_000_000  # bytes of all texts where all is asked for, before each has less
RESULT_MAX = 2000  # characters of a tool's result, and of each end of what a call was given
FILES_SHOWN = 100  # of one segment

_HEADING = re.compile(
    r"^(?=[^\w\n]{0,40}(?:previous conversation (?:context|summari[sz]ed)"
    r"|earlier in conversation|files modified|key decisions[^\w\n]*:))",
    re.IGNORECASE | re.MULTILINE,
)


def history(session: OpenSession, check: Check, *, wanted: Digest, full: bool) -> dict[str, Any]:
    """The result of `history`."""
    state = session.state
    rows = message_rows(state)
    chain = chain_at(state, session.home, session.info.session_id)
    # Where the path became shorter, or more is to stay verbatim, less of the chain is shown.
    least = len(rows) - wanted.preserve_recent
    folded = [one for one in chain if one.covering[1] < least] if full else chain
    start = max(covered(folded), len(rows) - MESSAGES_MAX)
    path = rows_between(state.path(), rows, start, len(rows) - 1)
    head = text_limit(state, rows[start:], FULL_MAX) if full else LINE_LOOKED
    most = text_limit(state, path, FULL_MAX)
    recent, context = list[dict[str, Any]](), list[dict[str, Any]]()
    with session.reading(check, Keep(RESULT_MAX, head=head, tail=0, given=RESULT_MAX)) as read:
        if full and wanted.preserve_system:
            context += _system(state, rows, read)
        if folded:
            context.append({"role": "user", "text": earlier(folded), "entryId": None})
        for n, own in _messages(rows, path):
            entries = [read(row) for row in own if state.kind(row) in (Kind.USER, Kind.ASSISTANT)]
            first, text = entries[0], "\n".join(filter(None, ("".join(e.texts) for e in entries)))
            role = "user" if first.kind is Kind.USER else "assistant"
            if n >= covered(chain):
                line = text[:TEXT_MAX] if full else clean_line(text[:LINE_LOOKED], LINE_MAX)
                one = {"n": n, "role": role, "text": line, "entryId": first.id}
                one["at"] = first.timestamp
                tools = [call.name for entry in entries for call in entry.tools if call.name]
                recent.append(one | ({"tools": tools[:TOOLS_MAX]} if tools and not text else {}))
            if full:  # a message without words by its calls and results
                text = text or serialize(context_messages(state, read, own))[:most]
                context += [{"role": role, "text": text, "entryId": first.id}] if text else []
    found = {
        "sessionId": session.info.session_id,
        "leafId": state.leaf_id,
        "segments": [encode(one) for one in chain],
        "recent": recent,
        "fullMessageCount": len(rows),
        "foldedMessages": covered(chain),
    }
    return found | ({"context": context} if full else {})


def _messages(rows: list[int], path: list[int]) -> Iterator[tuple[int, list[int]]]:
    """The numbers of messages, and the rows of a part of the path that belong to each."""
    numbers = {row: n for n, row in enumerate(rows)}
    starts = [at for at, row in enumerate(path) if row in numbers]
    for start, end in zip(starts, [*starts[1:], len(path)], strict=False):
        yield numbers[path[start]], path[start:end]


def _system(state: SessionState, rows: list[int], read: Read) -> Iterator[dict[str, Any]]:
    """System messages of the path, and the project's instructions before the first message."""
    path = state.path()
    begin = path.index(rows[0]) if rows else len(path)
    for at, row in enumerate(path):
        kind = state.kind(row)
        if kind is Kind.SYSTEM or (kind is Kind.OTHER and at < begin):
            entry = read(row)
            role, text = role_of(entry), "".join(entry.as_sent)
            if role and text:
                yield {"role": role, "text": text[:TEXT_MAX], "entryId": entry.id}


def earlier(chain: Sequence[Segment]) -> str:
    """The segments as one text, oldest first, under their headings."""
    parts = ["Previous conversation context:"]
    for one in chain:
        parts.append("--- Earlier in conversation ---")
        parts.append(f"[Previous conversation summarized - {one.messages} messages]")
        parts.append(_HEADING.sub("> ", one.content))
        if one.files_modified:
            more = len(one.files_modified) - FILES_SHOWN
            names = ", ".join(one.files_modified[:FILES_SHOWN])
            parts.append(f"Files modified: {names}" + (f" and {more} more" if more > 0 else ""))
        if one.key_decisions:
            parts.append("\n- ".join(["Key decisions:", *one.key_decisions]))
    return "\n\n".join(parts)
