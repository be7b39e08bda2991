"""`expand`: turn a prompt's `@@…` references into messages to inject.

    parse -> references/resolve.py -> meta files -> questions -> a block of summaries, the answers

The prompt is never changed and never refused. Only meta files are read, no session file, unless
the prompt asks a question. A name never means the asking session, whose own message contains it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import UNSET

from indexerd.errors import AmbiguousError, IndexerdError, InvalidMetaError
from indexerd.meta.reader import read_meta
from indexerd.models.telemetry import INJECT
from indexerd.paths import meta_name
from indexerd.privacy.redact import Redactor, redactor
from indexerd.protocol.params import Expand
from indexerd.references import inject
from indexerd.references.parse import Reference, find
from indexerd.references.services import Services
from indexerd.times import iso

_STATUS = {"not_found": "not_found", "ambiguous_reference": "ambiguous", "usage": "not_found"}
_REASONS = ("not_found", "invalid_meta", "over_limit", "ambiguous")
_MEANT = "@@"  # before a reference that is kept among texts by session id; no id begins so

Row = dict[str, Any]
_Key = tuple[str, int]  # of references that differ in case at most


@dataclass(slots=True)
class _Prompt:
    """A prompt being expanded."""

    asked: Expand
    redact: Redactor
    kept: dict[str, str]  # from earlier prompts of the session
    outcomes: dict[_Key, Row] = field(default_factory=dict)
    rows: dict[_Key, Row] = field(default_factory=dict)  # of the resolved ones
    sections: dict[str, str] = field(default_factory=dict)  # by session id, in order
    fresh: dict[str, str] = field(default_factory=dict)  # to be kept from now on


class References:
    """Expands prompts; `ask(session_id, question, turn_id)` answers a question."""

    def __init__(
        self, services: Services, ask: Callable[[str, str, str], Awaitable[dict[str, Any]]]
    ) -> None:
        self._services = services
        self._ask = ask

    async def expand(self, asked: Expand) -> dict[str, Any]:
        found = await asyncio.to_thread(find, asked.text)
        cache = self._services.injected if found and asked.session_id else None
        kept = await cache.of(asked.session_id or "") if cache else {}
        prompt = _Prompt(asked, redactor(self._services.settings()), kept)
        for one in found:
            if _key(one) not in prompt.outcomes:
                await self._resolve(prompt, one)
        answer = _answer(prompt, self._messages(prompt, await self._answers(prompt, found)))
        if cache and prompt.fresh:
            await cache.keep(asked.session_id or "", prompt.fresh)
        if found:
            self._services.budget.record(
                _audit_row(prompt, answer) | {"timestamp": iso(time.time())}
            )
        return answer

    async def _resolve(self, prompt: _Prompt, asked: Reference) -> None:
        outcomes = prompt.outcomes.values()
        sessions = {o.get("sessionId", o["raw"]) for o in outcomes if o["status"] != "over_limit"}
        outcome: Row = {"raw": asked.raw, "status": "resolved", "notes": [], "questions": []}
        prompt.outcomes[_key(asked)] = outcome
        if len(sessions) >= self._services.settings().references.max_refs_per_prompt:
            outcome["status"] = "over_limit"
            return
        try:
            row = self._find(prompt, asked)
            outcome |= {"sessionId": row["sessionId"], "name": prompt.redact(row["name"])[0]}
            await self._add_section(prompt, row)
            await self._add_ancestors(prompt, row, asked.up, outcome["notes"])
            prompt.rows[_key(asked)] = row
        except IndexerdError as bad:
            outcome["status"] = _STATUS.get(bad.kind, "invalid_meta")
            if isinstance(bad, AmbiguousError):
                near = [one | {"name": prompt.redact(one["name"])[0]} for one in bad.candidates]
                outcome["candidates"] = near
            elif bad.kind not in _STATUS and not isinstance(bad, InvalidMetaError):
                outcome["notes"].append(str(bad))

    def _find(self, prompt: _Prompt, asked: Reference) -> Row:
        """Find the session meant; in one session the same word always means the same."""
        word, given = _MEANT + asked.ref.lower(), prompt.asked
        if row := self._known(prompt.kept.get(word)):
            return row
        scope = self._services.settings().references.scope if given.cwd else "all"
        match = self._services.rows.names.resolve(
            asked.ref, cwd=given.cwd, scope=scope, exclude=given.session_id
        )
        prompt.fresh[word] = match.session_id
        return self._services.rows.by_id(match.session_id)

    def _known(self, session_id: str | None) -> Row | None:
        try:
            return self._services.rows.by_id(session_id) if session_id else None
        except IndexerdError:
            return None

    async def _add_section(self, prompt: _Prompt, row: Row) -> None:
        session_id = row["sessionId"]
        if session_id in prompt.sections:
            return
        home = self._services.rows.home(session_id)
        meta = (
            await asyncio.to_thread(read_meta, Path(home) / meta_name(session_id)) if home else None
        )
        if meta is not None and meta.session_id != session_id:
            raise InvalidMetaError(f"Invalid meta shape in the file of {session_id}")
        text = prompt.kept.get(session_id) if meta else None
        if text is None:
            text = inject.section(row, meta, prompt.redact)
            if meta is not None:  # a session without a summary may have one next time
                prompt.fresh[session_id] = text
        prompt.sections[session_id] = text

    async def _add_ancestors(self, prompt: _Prompt, row: Row, up: int, notes: list[str]) -> None:
        seen = [row["sessionId"]]
        for _ in range(up):
            parent = self._known(row.get("parentSessionId"))
            if parent is None:
                named = row.get("parentSessionFile") or row.get("parentSessionId")
                why = "whose parent is not known any more" if named else "which has no parent"
                notes.append(f"ancestors end at {seen[-1]}, {why}")
                return
            row = parent
            if row["sessionId"] in seen:
                notes.append("ancestors run in a circle")
                return
            seen.append(row["sessionId"])
            try:
                await self._add_section(prompt, row)
            except IndexerdError:
                notes.append(f"the meta file of its ancestor {seen[-1]} is invalid")

    async def _answers(self, prompt: _Prompt, found: list[Reference]) -> list[tuple[Any, ...]]:
        """Ask all questions at once, each once; return row, question and answer of the answered."""
        asked: dict[tuple[str, str], _Key] = {}
        for one in found:
            if one.question and (row := prompt.rows.get(_key(one))):
                asked.setdefault((row["sessionId"], one.question), _key(one))
        turn_id = prompt.asked.turn_id or f"prompt-{uuid.uuid4()}"

        async def answer(session_id: str, question: str, key: _Key) -> tuple[Any, ...] | None:
            report = {"question": question, "status": "answered"}
            prompt.outcomes[key]["questions"].append(report)
            try:
                answered = await self._ask(session_id, question, turn_id)
            except IndexerdError as bad:
                report |= {"status": "failed", "code": bad.kind, "message": str(bad)}
                return None
            return prompt.rows[key], question, answered

        answers = await asyncio.gather(*(answer(*which, key) for which, key in asked.items()))
        return [one for one in answers if one is not None]

    def _messages(self, prompt: _Prompt, answers: list[tuple[Any, ...]]) -> list[inject.Block]:
        """Answers get the bytes that the summaries leave, at least half of them."""
        most = self._services.settings().references.max_injected_bytes
        if prompt.asked.max_bytes is not UNSET:
            most = min(prompt.asked.max_bytes, most)
        outcomes = prompt.outcomes.values()
        notes = [f"{one['raw']}: {note}" for one in outcomes for note in one["notes"]]
        summaries, blocks = inject.block(prompt.sections, most, notes), list[inject.Block]()
        room = max(most // 2, most - len(summaries.text.encode()))
        for n, (row, question, answer) in enumerate(answers):
            share = room // (len(answers) - n)
            blocks.append(inject.answer_block(row, question, answer, prompt.redact, share))
            size = len(blocks[-1].text.encode())
            most, room = most - size, room - size
        summaries = inject.block(prompt.sections, most, notes) if blocks else summaries
        return [summaries, *blocks] if prompt.sections else []


def _key(one: Reference) -> _Key:
    return one.ref.lower(), one.up


def _answer(prompt: _Prompt, blocks: list[inject.Block]) -> dict[str, Any]:
    kind = {"customType": "session-reference", "display": False}
    messages = [{**kind, "content": one.text, "details": one.details} for one in blocks]
    resolved, failed = len(prompt.rows), len(prompt.outcomes) - len(prompt.rows)
    said = [f"✅ resolved {resolved} reference(s)"] if resolved else []
    said += [f"⚠️ failed to resolve {failed} reference(s)"] if failed else []
    outcomes = prompt.outcomes.values()
    return {
        "references": [{key: one for key, one in o.items() if one != []} for o in outcomes],
        "messages": messages,
        "message": messages[0] if messages else None,
        "injectedBytes": sum(len(one.text.encode()) for one in blocks),
        "truncated": any(one.truncated for one in blocks),
        **({"statusText": said} if said else {}),
    }


def _audit_row(prompt: _Prompt, answer: dict[str, Any]) -> dict[str, Any]:
    statuses = [one["status"] for one in prompt.outcomes.values()]
    session_id = prompt.asked.session_id
    return {
        "customType": INJECT,
        "success": bool(prompt.rows),
        **({"sessionId": session_id} if session_id is not None else {}),
        "resolvedCount": len(prompt.rows),
        "unresolvedCount": len(statuses) - len(prompt.rows),
        "unresolvedReasons": {reason: statuses.count(reason) for reason in _REASONS},
        "injectedBytes": answer["injectedBytes"],
        "truncated": answer["truncated"],
    }
