"""`history`: a long session's segments, and then the later messages one by one.

In full it adds the context that both make together. Texts are not redacted: the user asks.
"""

from __future__ import annotations

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
from indexerd.sources.session_reader import Check, OpenSession

MESSAGES_MAX = 15_000  # newest ones in an answer
LINE_MAX, LINE_READ = 200, 4000  # characters of a message, unless everything is asked for
FULL_MAX = 4_000_000  # bytes of all texts, before each is cut shorter
RESULT_MAX = 2000  # characters of a tool's result, and of each end of a call's arguments


def history(session: OpenSession, check: Check, *, wanted: Digest, full: bool) -> dict[str, Any]:
    state = session.state
    rows = message_rows(state)
    chain = chain_at(state, session.home, session.info.session_id)
    # The chain may reach too far: the path got shorter, or more messages are to stay verbatim.
    least = len(rows) - wanted.preserve_recent
    folded = [one for one in chain if one.covering[1] < least] if full else chain
    start = max(covered(folded), len(rows) - MESSAGES_MAX)
    path = rows_between(state.path(), rows, start, len(rows) - 1)
    most = text_limit(state, rows[start:], FULL_MAX) if full else LINE_READ
    recent, context = list[dict[str, Any]](), list[dict[str, Any]]()
    with session.reading(check, Keep(RESULT_MAX, head=most, tail=0, given=RESULT_MAX)) as read:
        if full and wanted.preserve_system:
            context += _system(state, rows, read)
        if folded:
            context.append({"role": "user", "text": earlier(folded), "entryId": None})
        numbers = {row: n for n, row in enumerate(rows[start:], start)}
        starts = [at for at, row in enumerate(path) if row in numbers]
        for at, end in zip(starts, [*starts[1:], len(path)], strict=False):
            own, n = path[at:end], numbers[path[at]]
            entries = [read(row) for row in own if state.kind(row) in (Kind.USER, Kind.ASSISTANT)]
            first, text = entries[0], "\n".join(filter(None, ("".join(e.texts) for e in entries)))
            role = "user" if first.kind is Kind.USER else "assistant"
            if n >= covered(chain):
                line = text[:TEXT_MAX] if full else clean_line(text[:LINE_READ], LINE_MAX)
                one = {"n": n, "role": role, "text": line, "entryId": first.id}
                one["at"] = first.timestamp
                tools = [call.name for entry in entries for call in entry.tools if call.name]
                recent.append(one | ({"tools": tools[:20]} if tools and not text else {}))
            if full:  # a message without words shows its calls and results
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


def _system(state: SessionState, rows: list[int], read: Read) -> Iterator[dict[str, Any]]:
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
    parts = ["Previous conversation context:"]
    for one in chain:
        parts.append("--- Earlier in conversation ---")
        parts.append(f"[Previous conversation summarized - {one.messages} messages]")
        parts.append(one.content)
        if one.files_modified:
            parts.append(f"Files modified: {', '.join(one.files_modified)}")
        if one.key_decisions:
            parts.append("\n- ".join(["Key decisions:", *one.key_decisions]))
    return "\n\n".join(parts)
