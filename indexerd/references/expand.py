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
from typing import Any

from msgspec import UNSET

from indexerd.errors import AmbiguousError, IndexerdError, InvalidMetaError
from indexerd.privacy.redact import redactor
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.params import Expand
from indexerd.references import inject
from indexerd.references.parse import Reference, find
from indexerd.references.services import Services
from indexerd.times import iso

_STATUS = {"not_found": "not_found", "ambiguous_reference": "ambiguous", "usage": "not_found"}
_REASONS = ("not_found", "invalid_meta", "over_limit", "ambiguous")
_WHY = {
    "over_limit": ": one reference too many",
    "invalid_meta": ": its meta file is invalid",
    "ambiguous": " is ambiguous: ",
}
_FAILURES_MAX, _FAILURE_MAX = 8, 300  # lines; characters of one
_MEANT = "@@"  # prefix of references among texts kept by session id; no id begins with it

Row = dict[str, Any]
Ask = Callable[[str, str, str], Awaitable[Row]]  # session id, question, turn id -> the answer


async def expand(services: Services, ask: Ask, args: Expand) -> Row:
    references = await asyncio.to_thread(find, args.text)
    session_id = args.session_id or ""
    cache = services.injected if references and session_id else None
    prompt = _Prompt(services, args, await cache.of(session_id) if cache else {})
    for reference in references:
        if _key(reference) not in prompt.outcomes:
            await prompt.resolve(reference)
    answer = prompt.result(await prompt.answers(references, ask))
    if cache and prompt.fresh:
        await cache.keep(session_id, prompt.fresh)
    if references:
        services.budget.record(prompt.audit_row(answer))
    return answer


def _key(reference: Reference) -> tuple[str, int]:
    """Return a reference's key, in which case does not count."""
    return reference.ref.lower(), reference.up


def _failures(outcomes: Sequence[Row]) -> list[str]:
    """Say in a line each, for people, which references or questions failed, and why."""
    told = list[str]()
    for one in outcomes:
        raw, near = clean_line(one["raw"], 100), one.get("candidates", ())[:4]
        names = [f"{clean_line(row['name'], 60)} (@@{row['sessionId']})" for row in near]
        if len(names) == 1:
            told.append(f"{raw}: no session has this name; did you mean {names[0]}?")
        elif one["status"] != "resolved":
            told.append(f"{raw}{_WHY.get(one['status'], ': no such session')}{'; '.join(names)}")
        told += [f"{raw}: {note}" for note in one["notes"]]
        failed = (asked for asked in one["questions"] if asked["status"] != "answered")
        told += [f"{raw}: {asked['message']}" for asked in failed]
    lines = [clean_line(line, _FAILURE_MAX) for line in told]
    if len(lines) > _FAILURES_MAX:
        lines[_FAILURES_MAX - 1 :] = [f"… and {len(lines) - _FAILURES_MAX + 1} more"]
    return lines


class _Prompt:
    """A prompt being expanded."""

    def __init__(self, services: Services, args: Expand, kept: dict[str, str]) -> None:
        self._services, self._args = services, args
        self._limits = services.settings().references
        self._redact = redactor(services.settings())
        self._kept = kept  # texts from earlier prompts of the session
        self.fresh: dict[str, str] = {}  # texts to keep from now on
        self.outcomes: dict[tuple[str, int], Row] = {}
        self._rows: dict[tuple[str, int], Row] = {}  # of resolved references
        self._sections: dict[str, str] = {}  # by session id, in order

    async def resolve(self, reference: Reference) -> None:
        outcome: Row = {"raw": reference.raw, "status": "over_limit", "notes": [], "questions": []}
        earlier = [other for other in self.outcomes.values() if other["status"] != "over_limit"]
        sessions = {other.get("sessionId", other["raw"]) for other in earlier}
        is_full = len(sessions) >= self._limits.max_refs_per_prompt
        self.outcomes[_key(reference)] = outcome
        try:
            row = self._find(reference)
            if is_full and row["sessionId"] not in sessions:
                return
            outcome |= {"status": "resolved", "sessionId": row["sessionId"]}
            outcome["name"] = self._redact(row["name"])[0]
            await self._add_section(row)
            await self._add_ancestors(row, reference.up, outcome["notes"])
            self._rows[_key(reference)] = row
        except IndexerdError as bad:
            if is_full and "sessionId" not in outcome:
                return
            outcome["status"] = _STATUS.get(bad.kind, "invalid_meta")
            if isinstance(bad, AmbiguousError):
                near = [row | {"name": self._redact(row["name"])[0]} for row in bad.candidates]
                outcome["candidates"] = near
            elif bad.kind not in _STATUS and not isinstance(bad, InvalidMetaError):
                outcome["notes"].append(str(bad))

    def _find(self, reference: Reference) -> Row:
        """Resolve a reference; within a session, the same name always gives the same session."""
        word, args = _MEANT + reference.ref.lower(), self._args
        if row := self._known(self._kept.get(word)):
            return row
        cwd = args.cwd if self._limits.scope == "project" else None
        match = self._services.rows.match(reference.ref, cwd=cwd, exclude=args.session_id)
        self.fresh[word] = match.session_id
        return self._services.rows.by_id(match.session_id)

    def _known(self, session_id: str | None) -> Row | None:
        try:
            return self._services.rows.by_id(session_id) if session_id else None
        except IndexerdError:
            return None

    async def _add_section(self, row: Row) -> None:
        session_id = row["sessionId"]
        if session_id in self._sections:
            return
        meta = await asyncio.to_thread(self._services.rows.meta, row)
        if meta is not None and meta.session_id != session_id:
            raise InvalidMetaError(f"Invalid meta shape in the file of {session_id}")
        text = self._kept.get(session_id) if meta else None
        if text is None:
            text = inject.section(row, meta, self._redact)
            if meta is not None:  # a session without a summary may have one next time
                self.fresh[session_id] = text
        self._sections[session_id] = text

    async def _add_ancestors(self, row: Row, up: int, notes: list[str]) -> None:
        passed = {row["sessionId"]}
        for _ in range(up):
            parent = self._known(row.get("parentSessionId"))
            if parent is None or parent["sessionId"] in passed:
                named = row.get("parentSessionFile") or row.get("parentSessionId")
                why = "whose parent is no longer known" if named else "which has no parent"
                why = "whose parents are a circle" if parent else why
                notes.append(f"ancestors end at {row['sessionId']}, {why}")
                return
            row = parent
            passed.add(row["sessionId"])
            await self._add_section(row)

    async def answers(self, refs: Sequence[Reference], ask: Ask) -> list[tuple[Row, str, Row]]:
        """Ask each question once; return row, question and answer of each that was answered."""
        turn_id, already = self._args.turn_id or f"prompt-{uuid.uuid4()}", set[tuple[str, str]]()
        answers: list[tuple[Row, str, Row]] = []
        for ref in refs:
            row, question = self._rows.get(_key(ref)), ref.question
            if not question or not row or (row["sessionId"], question) in already:
                continue
            already.add((row["sessionId"], question))
            report = {"question": question, "status": "answered"}
            self.outcomes[_key(ref)]["questions"].append(report)
            try:
                answers.append((row, question, await ask(row["sessionId"], question, turn_id)))
            except IndexerdError as bad:
                report |= {"status": "failed", "code": bad.kind, "message": str(bad)}
        return answers

    def result(self, answers: Sequence[tuple[Row, str, Row]]) -> Row:
        """Build the result; answers get at most half of the bytes, summaries the rest."""
        most = self._limits.max_injected_bytes
        if self._args.max_bytes is not UNSET:
            most = min(self._args.max_bytes, most)
        share = most // 2 // max(1, len(answers))
        blocks = [inject.answer_block(*answer, self._redact, share) for answer in answers]
        outcomes = [*self.outcomes.values()]
        if self._sections:
            notes = [f"{end['raw']}: {note}" for end in outcomes for note in end["notes"]]
            room = most - sum(len(block.text.encode()) for block in blocks)
            blocks.insert(0, inject.block(self._sections, room, notes))
        kind = {"customType": "session-reference", "display": False}
        messages = [{**kind, "content": block.text, "details": block.details} for block in blocks]
        resolved, failed = len(self._rows), len(outcomes) - len(self._rows)
        texts = [f"✅ resolved {resolved} reference(s)"] if resolved else []
        texts += [f"⚠️ failed to resolve {failed} reference(s)"] if failed else []
        return {
            "references": [{key: v for key, v in end.items() if v != []} for end in outcomes],
            "messages": messages,
            "message": messages[0] if messages else None,
            "injectedBytes": sum(len(block.text.encode()) for block in blocks),
            "truncated": any(block.truncated for block in blocks),
            **({"statusText": texts} if texts else {}),
            **({"failures": told} if (told := _failures(outcomes)) else {}),
        }

    def audit_row(self, answer: Row) -> Row:
        statuses = [outcome["status"] for outcome in self.outcomes.values()]
        session_id = self._args.session_id
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
