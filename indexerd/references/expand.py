"""`expand`: what a prompt's `@@…` references stand for, ready to be injected.

    parse -> references/resolve.py -> meta files -> questions -> a block of summaries, the answers

The prompt is never changed and never refused; what fails is noted with its reference alone, and
hinders no other. Only meta files are read, and no session file, unless somebody asks a question.
The asking session itself is never what a name means: its own first message holds it.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from msgspec import UNSET

from indexerd.errors import AmbiguousError, IndexerdError, InvalidMetaError
from indexerd.meta.model import MetaFile
from indexerd.meta.reader import read_meta
from indexerd.models.telemetry import INJECT
from indexerd.paths import meta_name
from indexerd.privacy.redact import Redactor, redactor
from indexerd.protocol.params import Expand
from indexerd.references import inject
from indexerd.references.injection_cache import InjectionCache
from indexerd.references.parse import Reference, find
from indexerd.references.resolve import Names
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionRows
from indexerd.times import iso

CUSTOM_TYPE = "session-reference"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_STATUS = {"not_found": "not_found", "ambiguous_reference": "ambiguous", "usage": "not_found"}
_REASONS = ("not_found", "invalid_meta", "over_limit", "ambiguous")
_UNBOUNDED = 1 << 40
_GUIDED = 1000  # bytes; in less space the guide would take the place of what it guides to
_MEANT = "@@"  # before a reference, among texts kept by session: an id cannot begin so

Row = dict[str, Any]
Answers = list[tuple[Row, str, dict[str, Any]]]  # of which session, to which question


class NamedRows(SessionRows, Protocol):
    """Rows, and the names that sessions are found by."""

    @property
    def names(self) -> Names: ...


@dataclass(slots=True)
class _Prompt:
    """One prompt on its way."""

    asked: Expand
    redact: Redactor
    kept: dict[str, str]  # of earlier prompts of the session
    outcomes: dict[tuple[str, int], Row] = field(default_factory=dict)  # each reference once
    rows: dict[tuple[str, int], Row] = field(default_factory=dict)  # of those that are resolved
    sections: dict[str, str] = field(default_factory=dict)  # by session id, in their order
    fresh: dict[str, str] = field(default_factory=dict)  # to be kept from now on


@dataclass
class References:
    """Expands prompts. Without `injected` nothing is kept.

    `ask(session_id, question, turn_id=…)` answers a question, `home` gives the directory of a
    session's meta file, `record` keeps an audit row.
    """

    rows: NamedRows
    injected: InjectionCache | None
    ask: Callable[..., Awaitable[dict[str, Any]]]
    home: Callable[[str], str | None]
    settings: Callable[[], Settings]
    record: Callable[[dict[str, Any]], object]
    clock: Callable[[], float]

    async def expand(self, asked: Expand) -> dict[str, Any]:
        """Find, resolve, ask: the result of `expand`."""
        found = await asyncio.to_thread(find, asked.text)
        cache = self.injected if found and asked.session_id else None
        kept = await cache.of(asked.session_id or "") if cache else {}
        prompt = _Prompt(asked, redactor(self.settings()), kept)
        for one in found:
            await self._resolve(prompt, one)
        blocks = self._blocks(prompt, await self._answers(prompt, found))
        answer = _answer(prompt, blocks)
        if cache and prompt.fresh:
            await cache.keep(asked.session_id or "", prompt.fresh)
        if found:
            self.record(_audit_row(prompt, answer) | {"timestamp": iso(self.clock())})
        return answer

    async def _resolve(self, prompt: _Prompt, asked: Reference) -> None:
        """Resolve a reference where it is first seen, and add its sections."""
        if (key := _key(asked)) in prompt.outcomes:
            return
        outcomes = prompt.outcomes.values()
        sessions = {o.get("sessionId", o["raw"]) for o in outcomes if o["status"] != "over_limit"}
        outcome: Row = {"raw": asked.raw, "status": "resolved", "notes": [], "questions": []}
        prompt.outcomes[key] = outcome
        if len(sessions) >= self.settings().references.max_refs_per_prompt:
            outcome["status"] = "over_limit"
            return
        try:
            row = self._find(prompt, asked)
            outcome |= {"sessionId": row["sessionId"], "name": prompt.redact(row["name"])[0]}
            for one in self._line(row, asked.up, outcome["notes"]):
                await self._read_meta(prompt, one, outcome["notes"] if one is not row else None)
            prompt.rows[key] = row
        except IndexerdError as bad:
            outcome["status"] = _STATUS.get(bad.kind, "invalid_meta")
            if isinstance(bad, AmbiguousError):
                near = [one | {"name": prompt.redact(one["name"])[0]} for one in bad.candidates]
                outcome["candidates"] = near
            elif bad.kind not in _STATUS and not isinstance(bad, InvalidMetaError):
                outcome["notes"].append(str(bad))

    def _find(self, prompt: _Prompt, asked: Reference) -> Row:
        """The session that is meant: in one session the same word means the same one for good."""
        word, given = _MEANT + asked.ref.lower(), prompt.asked
        if row := self._known(prompt.kept.get(word)):
            return row
        scope = self.settings().references.scope if given.cwd else "all"
        match = self.rows.names.resolve(
            asked.ref, cwd=given.cwd, scope=scope, exclude=given.session_id
        )
        prompt.fresh[word] = match.session_id
        return self.rows.by_id(match.session_id)

    def _known(self, session_id: str | None) -> Row | None:
        try:
            return self.rows.by_id(session_id) if session_id else None
        except IndexerdError:
            return None

    async def _read_meta(self, prompt: _Prompt, row: Row, notes: list[str] | None) -> None:
        """Add the section of a session; of an ancestor an invalid meta file is noted alone."""
        session_id = row["sessionId"]
        if session_id in prompt.sections:
            return
        try:
            meta = await asyncio.to_thread(self._meta, session_id)
        except IndexerdError:
            if notes is None:
                raise
            notes.append(f"the meta file of its ancestor {session_id} is invalid")
            return
        text = prompt.kept.get(session_id) if meta else None
        if text is None:
            text = inject.section(row, meta, prompt.redact)
            if meta is not None:  # what was not summarised yet may be, the next time
                prompt.fresh[session_id] = text
        prompt.sections[session_id] = text

    def _meta(self, session_id: str) -> MetaFile | None:
        home = self.home(session_id)
        meta = read_meta(Path(home) / meta_name(session_id)) if home else None
        if meta is not None and meta.session_id != session_id:
            raise InvalidMetaError(f"Invalid meta shape in the file of {session_id}")
        return meta

    def _line(self, row: Row, up: int, notes: list[str]) -> list[Row]:
        """The session, and as many of its ancestors as are wanted and known."""
        line = [row]
        for _ in range(up):
            child = line[-1]
            file, parent_id = child.get("parentSessionFile"), child.get("parentSessionId")
            in_name = _UUID.findall(str(file or "").rpartition("/")[2])  # if it is not said
            ids = (parent_id, *in_name[-1:])
            parent = next(filter(None, map(self._known, ids)), None)
            if parent is None:
                known = "whose parent is not known any more"
                why = known if file or parent_id else "which has no parent"
                notes.append(f"ancestors end at {child['sessionId']}, {why}")
                break
            if parent in line:
                notes.append("ancestors run in a circle")
                break
            line.append(parent)
        return line

    async def _answers(self, prompt: _Prompt, found: list[Reference]) -> Answers:
        """Ask all questions at once, each session the same thing once: a prompt is one turn."""
        asked: dict[tuple[str, str], tuple[str, int]] = {}
        for one in found:
            if one.question and (row := prompt.rows.get(_key(one))):
                asked.setdefault((row["sessionId"], one.question), _key(one))
        turn_id = prompt.asked.turn_id or f"prompt-{uuid.uuid4()}"

        async def answer(session_id: str, question: str, key: tuple[str, int]) -> Answers:
            report = {"question": question, "status": "answered"}
            prompt.outcomes[key]["questions"].append(report)
            try:
                answered = await self.ask(session_id, question, turn_id=turn_id)
            except IndexerdError as bad:
                report |= {"status": "failed", "code": bad.kind, "message": str(bad)}
                return []
            return [(prompt.rows[key], question, answered)]

        answers = await asyncio.gather(*(answer(*which, key) for which, key in asked.items()))
        return [one for each in answers for one in each]

    def _blocks(
        self, prompt: _Prompt, answers: Answers
    ) -> list[tuple[dict[str, Any], inject.Block]]:
        """Details and text of each message, all within the limit."""
        most = self.settings().references.max_injected_bytes
        if prompt.asked.max_bytes is not UNSET:
            most = min(prompt.asked.max_bytes, most)
        makers: list[tuple[dict[str, Any], Callable[[int], inject.Block]]] = []
        if prompt.sections:
            outcomes = prompt.outcomes.values()
            notes = [f"{one['raw']}: {note}" for one in outcomes for note in one["notes"]]
            sections, guided = list(prompt.sections.values()), most >= _GUIDED
            make = partial(inject.block, sections, notes=notes, guided=guided)
            makers.append(({"sessionIds": list(prompt.sections)}, make))
        for row, question, answer in answers:
            details = {"sessionIds": [row["sessionId"]], "question": question}
            make = partial(inject.answer_block, row, question, answer, prompt.redact)
            makers.append((details, make))
        rooms = inject.shares([len(make(_UNBOUNDED).text.encode()) for _, make in makers], most)
        return [(details, make(room)) for (details, make), room in zip(makers, rooms, strict=True)]


def _key(one: Reference) -> tuple[str, int]:
    """References that are the same in all but how large their letters are."""
    return one.ref.lower(), one.up


def _answer(prompt: _Prompt, blocks: list[tuple[dict[str, Any], inject.Block]]) -> dict[str, Any]:
    messages = [
        {"customType": CUSTOM_TYPE, "content": one.text, "display": False, "details": details}
        for details, one in blocks
    ]
    resolved, failed = len(prompt.rows), len(prompt.outcomes) - len(prompt.rows)
    said = [f"✅ resolved {resolved} reference(s)"] if resolved else []
    said += [f"⚠️ failed to resolve {failed} reference(s)"] if failed else []
    outcomes = prompt.outcomes.values()
    return {
        "references": [{key: one for key, one in o.items() if one != []} for o in outcomes],
        "messages": messages,
        "message": messages[0] if messages else None,
        "injectedBytes": sum(len(one.text.encode()) for _, one in blocks),
        "truncated": any(one.truncated for _, one in blocks),
        **({"statusText": said} if said else {}),
    }


def _audit_row(prompt: _Prompt, answer: dict[str, Any]) -> dict[str, Any]:
    """The audit row, with upstream's names."""
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
