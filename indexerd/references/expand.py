"""`expand`: what a prompt's `@@…` references stand for, ready to be injected.

    parse -> search/names.py -> meta files -> questions -> a block of summaries, the answers

The prompt is never changed and never refused; what fails is noted with its reference alone, and
hinders no other. Only meta files are read, one for each session, and no session file, unless
somebody asks a question. The asking session itself is never what a name means: its own first
message holds it.
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
from indexerd.search.names import Names
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


class NamedRows(SessionRows, Protocol):
    """Rows, and the names that sessions are found by."""

    @property
    def names(self) -> Names: ...


@dataclass(slots=True)
class _Outcome:
    """One reference, and what became of it."""

    asked: Reference
    status: str = "resolved"
    how: str = ""
    row: Row = field(default_factory=dict)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, bad: IndexerdError) -> None:
        """Note why it does not stand for a session, or not for one that can be read."""
        self.status = _STATUS.get(bad.kind, "invalid_meta")
        if isinstance(bad, AmbiguousError):
            self.candidates = bad.candidates
        elif not isinstance(bad, InvalidMetaError) and self.status == "invalid_meta":
            self.notes.append(str(bad))

    def to_json(self, redact: Redactor) -> dict[str, Any]:
        found: dict[str, Any] = {"raw": self.asked.raw, "status": self.status}
        if self.row:
            found |= {"sessionId": self.row["sessionId"], "name": redact(self.row["name"])[0]}
        near = [one | {"name": redact(one["name"])[0]} for one in self.candidates]
        more = {"how": self.how, "candidates": near}
        more |= {"notes": self.notes, "questions": self.questions}
        return found | {key: value for key, value in more.items() if value}


@dataclass(slots=True)
class _Prompt:
    """One prompt on its way."""

    asked: Expand
    redact: Redactor
    kept: dict[str, str]  # of earlier prompts of the session
    outcomes: dict[tuple[str, int], _Outcome] = field(default_factory=dict)  # each reference once
    sections: dict[str, str] = field(default_factory=dict)  # by session id, in their order
    fresh: dict[str, str] = field(default_factory=dict)  # to be kept from now on


@dataclass
class References:
    """Expands prompts. Without `injected` nothing is kept.

    `ask(session_id, question, turn_id=…)` answers a question, `home` gives the directory of a
    session's meta file, `record` keeps an audit row, `ready()` says whether all sessions are known.
    """

    rows: NamedRows
    injected: InjectionCache | None
    ask: Callable[..., Awaitable[dict[str, Any]]]
    home: Callable[[str], str | None]
    settings: Callable[[], Settings]
    record: Callable[[dict[str, Any]], object]
    ready: Callable[[], bool]
    clock: Callable[[], float]

    async def expand(self, asked: Expand) -> dict[str, Any]:
        """Find, resolve, ask: the result of `expand`."""
        found = await asyncio.to_thread(find, asked.text)
        cache = self.injected if found and asked.session_id else None
        kept = await cache.of(asked.session_id or "") if cache else {}
        prompt = _Prompt(asked, redactor(self.settings()), kept)
        await self._resolve(prompt, found)
        blocks = self._blocks(prompt, await self._answers(prompt, found))
        answer = _answer(prompt, blocks)
        if cache and prompt.fresh:
            await cache.keep(asked.session_id or "", prompt.fresh)
        if found:
            self.record(_audit_row(prompt, answer) | {"timestamp": iso(self.clock())})
        return answer

    async def _resolve(self, prompt: _Prompt, found: list[Reference]) -> None:
        """Resolve each reference once, where it is first seen."""
        most = self.settings().references.max_refs_per_prompt
        counted: set[str] = set()  # sessions, and references that stand for none
        for asked in found:
            if _key(asked) in prompt.outcomes:
                continue
            outcome = prompt.outcomes[_key(asked)] = _Outcome(asked)
            if len(counted) >= most:
                outcome.status = "over_limit"
                continue
            try:
                self._find(outcome, prompt)
                await self._read_metas(prompt, outcome)
            except IndexerdError as bad:
                outcome.fail(bad)
                if outcome.status == "not_found" and not self.ready():
                    outcome.notes.append("sessions are still being read: try again in a moment")
            counted.add(outcome.row.get("sessionId") or asked.raw)

    def _find(self, outcome: _Outcome, prompt: _Prompt) -> None:
        """The session that is meant: in one session the same word means the same one for good."""
        word = _MEANT + outcome.asked.ref.lower()
        if row := self._known(prompt.kept.get(word)):
            outcome.row = row
            return
        asked = prompt.asked
        match = self.rows.names.resolve(
            outcome.asked.ref,
            cwd=asked.cwd,
            scope=self.settings().references.scope if asked.cwd else "all",
            exclude=asked.session_id,
        )
        outcome.row = self.rows.by_id(match.session_id)
        outcome.how = match.how
        prompt.fresh[word] = match.session_id

    def _known(self, session_id: str | None) -> Row | None:
        try:
            return self.rows.by_id(session_id) if session_id else None
        except IndexerdError:
            return None

    async def _read_metas(self, prompt: _Prompt, outcome: _Outcome) -> None:
        """Add the sections of a reference, and of its ancestors, if they can be read."""
        for row in self._line(outcome):
            session_id = row["sessionId"]
            if session_id in prompt.sections:
                continue
            try:
                meta = await asyncio.to_thread(self._meta, session_id)
            except IndexerdError:
                if row is outcome.row:
                    raise
                outcome.notes.append(f"the meta file of its ancestor {session_id} is invalid")
                continue
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

    def _line(self, outcome: _Outcome) -> list[Row]:
        """The session, and as many of its ancestors as are wanted and known."""
        line = [outcome.row]
        for _ in range(outcome.asked.up):
            child = line[-1]
            file, parent_id = child.get("parentSessionFile"), child.get("parentSessionId")
            in_name = _UUID.findall(str(file or "").rpartition("/")[2])  # if it is not said
            ids = (parent_id, *in_name[-1:])
            parent = next((row for one in ids if (row := self._known(one))), None)
            if parent is None:
                known = "whose parent is not known any more"
                why = known if file or parent_id else "which has no parent"
                outcome.notes.append(f"ancestors end at {child['sessionId']}, {why}")
                break
            if parent in line:
                outcome.notes.append("ancestors run in a circle")
                break
            line.append(parent)
        return line

    async def _answers(
        self, prompt: _Prompt, found: list[Reference]
    ) -> list[tuple[Row, str, dict[str, Any]]]:
        """Ask all questions at once, each session the same thing once: a prompt is one turn."""
        asked: dict[tuple[str, str], _Outcome] = {}
        for one in found:
            outcome = prompt.outcomes[_key(one)]
            if one.question and outcome.status == "resolved":
                asked.setdefault((outcome.row["sessionId"], one.question), outcome)
        turn_id = prompt.asked.turn_id or f"prompt-{uuid.uuid4()}"

        async def answer(outcome: _Outcome, question: str) -> dict[str, Any] | None:
            report: dict[str, Any] = {"question": question, "status": "answered"}
            outcome.questions.append(report)
            try:
                return await self.ask(outcome.row["sessionId"], question, turn_id=turn_id)
            except IndexerdError as bad:
                report |= {"status": "failed", "code": bad.kind, "message": str(bad)}
                return None

        answers = await asyncio.gather(*(answer(one, text) for (_, text), one in asked.items()))
        both = zip(asked.items(), answers, strict=True)
        return [(one.row, text, found) for ((_, text), one), found in both if found]

    def _blocks(
        self, prompt: _Prompt, answers: list[tuple[Row, str, dict[str, Any]]]
    ) -> list[tuple[dict[str, Any], inject.Block]]:
        """Details and text of each message, all within the limit."""
        most = self.settings().references.max_injected_bytes
        if prompt.asked.max_bytes is not UNSET:
            most = min(prompt.asked.max_bytes, most)
        makers: list[tuple[dict[str, Any], Callable[[int], inject.Block]]] = []
        if prompt.sections:
            notes = [f"{o.asked.raw}: {note}" for o in prompt.outcomes.values() for note in o.notes]
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
    outcomes = prompt.outcomes.values()
    resolved = sum(one.status == "resolved" for one in outcomes)
    failed = len(outcomes) - resolved
    said = [f"✅ resolved {resolved} reference(s)"] if resolved else []
    said += [f"⚠️ failed to resolve {failed} reference(s)"] if failed else []
    return {
        "references": [one.to_json(prompt.redact) for one in outcomes],
        "messages": messages,
        "message": messages[0] if messages else None,
        "injectedBytes": sum(len(one.text.encode()) for _, one in blocks),
        "truncated": any(one.truncated for _, one in blocks),
        **({"statusText": said} if said else {}),
    }


def _audit_row(prompt: _Prompt, answer: dict[str, Any]) -> dict[str, Any]:
    """The audit row, with upstream's names."""
    statuses = [one.status for one in prompt.outcomes.values()]
    resolved, session_id = statuses.count("resolved"), prompt.asked.session_id
    return {
        "customType": INJECT,
        "success": resolved > 0,
        **({"sessionId": session_id} if session_id is not None else {}),
        "resolvedCount": resolved,
        "unresolvedCount": len(statuses) - resolved,
        "unresolvedReasons": {reason: statuses.count(reason) for reason in _REASONS},
        "injectedBytes": answer["injectedBytes"],
        "truncated": answer["truncated"],
    }
