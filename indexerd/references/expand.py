"""`expand`: turn a prompt's `@@…` references into messages to inject.

    parse -> references/resolve.py -> meta files -> questions -> a block of summaries, the answers

The prompt is never changed and never refused. Session files are read only if the prompt asks a
question. A name never resolves to the prompt's own session, whose message contains that name.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from indexerd.errors import AmbiguousError, IndexerdError, InvalidMetaError
from indexerd.meta.model import read_meta
from indexerd.paths import meta_name
from indexerd.privacy.redact import redactor
from indexerd.protocol.params import Expand
from indexerd.references import inject
from indexerd.references.parse import Reference, find
from indexerd.references.services import Services
from indexerd.times import iso

_STATUS = {"not_found": "not_found", "ambiguous_reference": "ambiguous", "usage": "not_found"}
_REASONS = ("not_found", "invalid_meta", "over_limit", "ambiguous")
_MEANT = "@@"  # prefix of references among texts kept by session id; no id begins with it

Row = dict[str, Any]
Ask = Callable[[str, str, str], Awaitable[Row]]  # session id, question, turn id -> the answer


async def expand(services: Services, ask: Ask, asked: Expand) -> Row:
    found = await asyncio.to_thread(find, asked.text)
    session_id = asked.session_id or ""
    cache = services.injected if found and session_id else None
    prompt = _Prompt(services, asked, await cache.of(session_id) if cache else {})
    for one in found:
        if _key(one) not in prompt.outcomes:
            await prompt.resolve(one)
    answer = prompt.result(await prompt.answers(found, ask))
    if cache and prompt.fresh:
        await cache.keep(session_id, prompt.fresh)
    if found:
        services.budget.record(prompt.audit_row(answer))
    return answer


def _key(one: Reference) -> tuple[str, int]:
    """Return a reference's key, in which case does not count."""
    return one.ref.lower(), one.up


class _Prompt:
    """A prompt being expanded."""

    def __init__(self, services: Services, asked: Expand, kept: dict[str, str]) -> None:
        self._services, self._asked = services, asked
        self._limits = services.settings().references
        self._redact = redactor(services.settings())
        self._kept = kept  # texts from earlier prompts of the session
        self.fresh: dict[str, str] = {}  # texts to keep from now on
        self.outcomes: dict[tuple[str, int], Row] = {}
        self._rows: dict[tuple[str, int], Row] = {}  # of resolved references
        self._sections: dict[str, str] = {}  # by session id, in order

    async def resolve(self, asked: Reference) -> None:
        outcome: Row = {"raw": asked.raw, "status": "over_limit", "notes": [], "questions": []}
        earlier = [one for one in self.outcomes.values() if one["status"] != "over_limit"]
        sessions = {one.get("sessionId", one["raw"]) for one in earlier}
        is_full = len(sessions) >= self._limits.max_refs_per_prompt
        self.outcomes[_key(asked)] = outcome
        try:
            row = self._find(asked)
            if is_full and row["sessionId"] not in sessions:
                return
            outcome |= {"status": "resolved", "sessionId": row["sessionId"]}
            outcome["name"] = self._redact(row["name"])[0]
            await self._add_section(row)
            await self._add_ancestors(row, asked.up, outcome["notes"])
            self._rows[_key(asked)] = row
        except IndexerdError as bad:
            if is_full and "sessionId" not in outcome:
                return
            outcome["status"] = _STATUS.get(bad.kind, "invalid_meta")
            if isinstance(bad, AmbiguousError):
                near = [one | {"name": self._redact(one["name"])[0]} for one in bad.candidates]
                outcome["candidates"] = near
            elif bad.kind not in _STATUS and not isinstance(bad, InvalidMetaError):
                outcome["notes"].append(str(bad))

    def _find(self, asked: Reference) -> Row:
        """Resolve a reference; within a session, the same name always gives the same session."""
        word, given = _MEANT + asked.ref.lower(), self._asked
        if row := self._known(self._kept.get(word)):
            return row
        scope = self._limits.scope if given.cwd else "all"
        match = self._services.rows.names.resolve(
            asked.ref, cwd=given.cwd, scope=scope, exclude=given.session_id
        )
        self.fresh[word] = match.session_id
        return self._services.rows.by_id(match.session_id)

    def _known(self, session_id: str | None) -> Row | None:
        try:
            return self._services.rows.by_id(session_id) if session_id else None
        except IndexerdError:
            return None

    async def _add_section(self, row: Row) -> None:
        session_id, meta = row["sessionId"], None
        if session_id in self._sections:
            return
        if home := self._services.rows.home(session_id):
            meta = await asyncio.to_thread(read_meta, Path(home) / meta_name(session_id))
        if meta is not None and meta.session_id != session_id:
            raise InvalidMetaError(f"Invalid meta shape in the file of {session_id}")
        text = self._kept.get(session_id) if meta else None
        if text is None:
            text = inject.section(row, meta, self._redact)
            if meta is not None:  # a session without a summary may have one next time
                self.fresh[session_id] = text
        self._sections[session_id] = text

    async def _add_ancestors(self, row: Row, up: int, notes: list[str]) -> None:
        for _ in range(up):
            parent = self._known(row.get("parentSessionId"))
            if parent is None:
                named = row.get("parentSessionFile") or row.get("parentSessionId")
                why = "whose parent is no longer known" if named else "which has no parent"
                notes.append(f"ancestors end at {row['sessionId']}, {why}")
                return
            row = parent
            await self._add_section(row)

    async def answers(self, found: Sequence[Reference], ask: Ask) -> list[tuple[Row, str, Row]]:
        """Ask each question once; return row, question and answer of each that was answered."""
        turn_id, asked = self._asked.turn_id or f"prompt-{uuid.uuid4()}", set[tuple[str, str]]()
        answers: list[tuple[Row, str, Row]] = []
        for one in found:
            row = self._rows.get(_key(one))
            if not one.question or not row or (row["sessionId"], one.question) in asked:
                continue
            asked.add((row["sessionId"], one.question))
            report = {"question": one.question, "status": "answered"}
            self.outcomes[_key(one)]["questions"].append(report)
            try:
                answer = await ask(row["sessionId"], one.question, turn_id)
                answers.append((row, one.question, answer))
            except IndexerdError as bad:
                report |= {"status": "failed", "code": bad.kind, "message": str(bad)}
        return answers

    def result(self, answers: Sequence[tuple[Row, str, Row]]) -> Row:
        """Build the result; answers get at most half of the bytes, summaries the rest."""
        most = self._limits.max_injected_bytes
        if self._asked.max_bytes is not UNSET:
            most = min(self._asked.max_bytes, most)
        share = most // 2 // max(1, len(answers))
        blocks = [inject.answer_block(*one, self._redact, share) for one in answers]
        outcomes = [*self.outcomes.values()]
        if self._sections:
            notes = [f"{one['raw']}: {note}" for one in outcomes for note in one["notes"]]
            room = most - sum(len(one.text.encode()) for one in blocks)
            blocks.insert(0, inject.block(self._sections, room, notes))
        kind = {"customType": "session-reference", "display": False}
        messages = [{**kind, "content": one.text, "details": one.details} for one in blocks]
        resolved, failed = len(self._rows), len(outcomes) - len(self._rows)
        texts = [f"✅ resolved {resolved} reference(s)"] if resolved else []
        texts += [f"⚠️ failed to resolve {failed} reference(s)"] if failed else []
        return {
            "references": [{key: one for key, one in o.items() if one != []} for o in outcomes],
            "messages": messages,
            "message": messages[0] if messages else None,
            "injectedBytes": sum(len(one.text.encode()) for one in blocks),
            "truncated": any(one.truncated for one in blocks),
            **({"statusText": texts} if texts else {}),
        }

    def audit_row(self, answer: Row) -> Row:
        statuses = [one["status"] for one in self.outcomes.values()]
        session_id = self._asked.session_id
        return {
            "customType": "session-reference:inject",
            "success": bool(self._rows),
            **({"sessionId": session_id} if session_id is not None else {}),
            "resolvedCount": len(self._rows),
            "unresolvedCount": len(statuses) - len(self._rows),
            "unresolvedReasons": {reason: statuses.count(reason) for reason in _REASONS},
            "injectedBytes": answer["injectedBytes"],
            "truncated": answer["truncated"],
            "timestamp": iso(time.time()),
        }
