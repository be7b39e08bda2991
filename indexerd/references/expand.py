"""`expand`: what a prompt's `@@…` references stand for, ready to be injected (S0.47 to S0.58).

Out come the references with what became of each, and messages to put behind the user's own: one
block of summaries, and one message for each question that was asked with a reference. The prompt
is never changed and never refused; what fails is noted with its reference alone, and hinders no
other. Only meta files are read, one for each session, and no session file, unless somebody asks
a question. The asking session itself is never what a name means: its own first message holds it.
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
from indexerd.references.parse import LONG, Reference, find
from indexerd.search.names import Names, Scope
from indexerd.settings import Settings
from indexerd.sources.session_reader import SessionRows
from indexerd.times import iso

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_STATUS = {"not_found": "not_found", "ambiguous_reference": "ambiguous", "usage": "not_found"}
_UNBOUNDED = 1 << 40
_GUIDED = 1000  # bytes; in less space the guide would take the place of what it guides to
_MEANT = "@@"  # before a reference, among texts kept by session: an id cannot begin so

Row = dict[str, Any]
Ask = Callable[..., Awaitable[dict[str, Any]]]


class NamedRows(SessionRows, Protocol):
    """Rows, and the names that sessions are found by."""

    @property
    def names(self) -> Names:
        """Every session's names."""
        ...


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

    def listed(self, redact: Redactor) -> dict[str, Any]:
        """As the answer lists it."""
        found: dict[str, Any] = {"raw": self.asked.raw, "status": self.status}
        if self.row:
            name = redact(self.row["name"])[0]
            found |= {"sessionId": self.row["sessionId"], "name": name}
        if self.how:
            found["how"] = self.how
        near = [one | {"name": redact(one["name"])[0]} for one in self.candidates]
        more = {"candidates": near, "notes": self.notes, "questions": self.questions}
        return found | {key: value for key, value in more.items() if value}


@dataclass(slots=True)
class _Prompt:
    """One prompt on its way."""

    session_id: str | None
    cwd: str | None
    turn_id: str | None
    max_bytes: int
    outcomes: list[_Outcome] = field(default_factory=list)
    sections: dict[str, str] = field(default_factory=dict)  # by session id, in their order
    kept: dict[str, str] = field(default_factory=dict)  # of earlier prompts of the session
    fresh: dict[str, str] = field(default_factory=dict)  # to be kept from now on
    answers: list[tuple[_Outcome, str, dict[str, Any]]] = field(default_factory=list)


class References:
    """Expands prompts."""

    def __init__(
        self,
        rows: NamedRows,
        injected: InjectionCache | None,
        *,
        ask: Ask,
        home: Callable[[str], str | None],
        settings: Callable[[], Settings],
        record: Callable[[dict[str, Any]], object],
        ready: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        """`ask(session_id, question, turn_id=…)` answers a question; `record` keeps an audit row.

        Without `injected` nothing is kept. `home` gives the directory of a session's meta file;
        `ready()` says whether all sessions are known by now.
        """
        self._rows = rows
        self._injected = injected
        self._ask = ask
        self._home = home
        self._settings = settings
        self._record_row = record
        self._ready = ready
        self._clock = clock

    async def expand(self, asked: Expand) -> dict[str, Any]:
        """Find, resolve, ask: the result of `expand`."""
        text, most = asked.text, self._settings().references.max_injected_bytes
        if asked.max_bytes is not UNSET:
            most = min(asked.max_bytes, most)
        prompt = _Prompt(asked.session_id, asked.cwd, asked.turn_id, most)
        found = await asyncio.to_thread(find, text) if len(text) > LONG else find(text)
        if not found:
            return _answer(prompt, [], redactor(self._settings()), truncated=False)
        await self._resolve_all(prompt, found)
        await self._ask_all(prompt, found)
        messages, truncated = self._messages(prompt)
        if self._injected is not None and prompt.session_id and prompt.fresh:
            await self._injected.keep(prompt.session_id, prompt.fresh)
        clean = redactor(self._settings())
        answer = _answer(prompt, messages, clean, truncated=truncated)
        self._record(prompt, answer)
        return answer

    # -- sessions ------------------------------------------------------------------------

    async def _resolve_all(self, prompt: _Prompt, found: list[Reference]) -> None:
        most = self._settings().references.max_refs_per_prompt
        if self._injected is not None and prompt.session_id:
            prompt.kept = await self._injected.of(prompt.session_id)
        counted: set[str] = set()  # sessions, and references that stand for none
        for asked in _distinct(found):
            outcome = _Outcome(asked)
            prompt.outcomes.append(outcome)
            if len(counted) >= most:
                outcome.status = "over_limit"
                continue
            try:
                self._find(outcome, prompt)
                await self._tell(prompt, outcome)
            except IndexerdError as bad:
                _fail(outcome, bad)
                if outcome.status == "not_found" and not self._ready():
                    outcome.notes.append("sessions are still being read: try again in a moment")
            counted.add(outcome.row.get("sessionId") or asked.raw)

    def _find(self, outcome: _Outcome, prompt: _Prompt) -> None:
        """The session that is meant: in one session the same word means the same one for good."""
        word_of = _MEANT + outcome.asked.ref.lower()
        meant = prompt.kept.get(word_of)
        if meant is not None and (row := self._known(meant)) is not None:
            outcome.row = row
            return
        scope: Scope = self._settings().references.scope if prompt.cwd else "all"
        match = self._rows.names.resolve(
            outcome.asked.ref, cwd=prompt.cwd, scope=scope, exclude=prompt.session_id
        )
        outcome.row = self._rows.by_id(match.session_id)
        outcome.how = match.how
        prompt.fresh[word_of] = match.session_id

    def _known(self, session_id: str) -> dict[str, Any] | None:
        try:
            return self._rows.by_id(session_id)
        except IndexerdError:
            return None

    async def _tell(self, prompt: _Prompt, outcome: _Outcome) -> None:
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
                text = inject.section(row, meta, redactor(self._settings()))
                if meta is not None:  # what was not summarised yet may be, the next time
                    prompt.fresh[session_id] = text
            prompt.sections[session_id] = text

    def _meta(self, session_id: str) -> MetaFile | None:
        home = self._home(session_id)
        path = Path(home) / meta_name(session_id) if home else None
        meta = read_meta(path) if path else None
        if meta is not None and meta.session_id != session_id:
            raise InvalidMetaError(f"Invalid meta shape in {path}")  # it speaks of another session
        return meta

    def _line(self, outcome: _Outcome) -> list[dict[str, Any]]:
        """The session, and as many of its ancestors as are wanted and known (S0.58)."""
        line = [outcome.row]
        for _ in range(outcome.asked.up):
            parent = self._parent(line[-1])
            if parent is None:
                known = line[-1].get("parentSessionFile") or line[-1].get("parentSessionId")
                why = "whose parent is not known any more" if known else "which has no parent"
                outcome.notes.append(f"ancestors end at {line[-1]['sessionId']}, {why}")
                break
            if any(parent["sessionId"] == one["sessionId"] for one in line):
                outcome.notes.append("ancestors run in a circle")
                break
            line.append(parent)
        return line

    def _parent(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """By id, which the file's name may hold if it is not said (Q9)."""
        in_name = _UUID.findall(str(row.get("parentSessionFile") or "").rpartition("/")[2])
        for session_id in (row.get("parentSessionId"), *in_name[-1:]):
            if session_id:
                try:
                    return self._rows.by_id(session_id)
                except IndexerdError:
                    continue
        return None

    # -- questions -----------------------------------------------------------------------

    async def _ask_all(self, prompt: _Prompt, found: list[Reference]) -> None:
        """Ask all questions at once, each session the same thing once: a prompt is one turn."""
        by_key = {_key(one.asked): one for one in prompt.outcomes}
        asked: dict[tuple[str, str], _Outcome] = {}
        for one in found:
            outcome = by_key[_key(one)]
            if one.question and outcome.status == "resolved":
                asked.setdefault((outcome.row["sessionId"], one.question), outcome)
        turn_id = prompt.turn_id or f"prompt-{uuid.uuid4()}"
        answered = await asyncio.gather(
            *(
                self._answered(outcome, question, turn_id)
                for (_, question), outcome in asked.items()
            )
        )
        prompt.answers = [one for one in answered if one is not None]

    async def _answered(
        self, outcome: _Outcome, question: str, turn_id: str
    ) -> tuple[_Outcome, str, dict[str, Any]] | None:
        report: dict[str, Any] = {"question": question, "status": "answered"}
        outcome.questions.append(report)
        try:
            answer = await self._ask(outcome.row["sessionId"], question, turn_id=turn_id)
        except IndexerdError as bad:
            report |= {"status": "failed", "code": bad.kind, "message": str(bad)}
            return None
        return outcome, question, answer

    # -- messages ------------------------------------------------------------------------

    def _messages(self, prompt: _Prompt) -> tuple[list[dict[str, Any]], bool]:
        sections = list(prompt.sections.values())
        makers: list[tuple[dict[str, Any], Callable[[int], inject.Block]]] = []
        if sections:
            ids = {"sessionIds": list(prompt.sections)}
            notes = [f"{one.asked.raw}: {note}" for one in prompt.outcomes for note in one.notes]
            guided = prompt.max_bytes >= _GUIDED
            make = partial(inject.block, sections, notes=notes, guided=guided)
            makers.append((ids, make))
        clean = redactor(self._settings())
        for outcome, question, answer in prompt.answers:
            details = {"sessionIds": [outcome.row["sessionId"]], "question": question}
            makers.append(
                (details, partial(inject.answer_block, outcome.row, question, answer, clean))
            )
        sizes = [len(make(_UNBOUNDED).text.encode()) for _, make in makers]
        rooms = inject.shares(sizes, prompt.max_bytes)
        blocks = [make(room) for (_, make), room in zip(makers, rooms, strict=True)]
        messages = [
            {
                "customType": inject.CUSTOM_TYPE,
                "content": one.text,
                "display": False,
                "details": details,
            }
            for (details, _), one in zip(makers, blocks, strict=True)
        ]
        return messages, any(one.truncated for one in blocks)

    def _record(self, prompt: _Prompt, answer: dict[str, Any]) -> None:
        """The audit row, with upstream's names (S0.56)."""
        reasons = dict.fromkeys(("not_found", "invalid_meta", "over_limit", "ambiguous"), 0)
        for one in prompt.outcomes:
            if one.status in reasons:
                reasons[one.status] += 1
        resolved = len(prompt.outcomes) - sum(reasons.values())
        row = {
            "customType": INJECT,
            "success": resolved > 0,
            "sessionId": prompt.session_id,
            "resolvedCount": resolved,
            "unresolvedCount": sum(reasons.values()),
            "unresolvedReasons": reasons,
            "injectedBytes": answer["injectedBytes"],
            "truncated": answer["truncated"],
            "timestamp": iso(self._clock()),
        }
        self._record_row({key: value for key, value in row.items() if value is not None})


def _key(one: Reference) -> str:
    """References that are the same in all but how large their letters are."""
    return f"{one.ref.lower()}~{one.up}"


def _distinct(found: list[Reference]) -> list[Reference]:
    """Each reference once, where it is first seen."""
    first: dict[str, Reference] = {}
    for one in found:
        first.setdefault(_key(one), one)
    return list(first.values())


def _fail(outcome: _Outcome, bad: IndexerdError) -> None:
    outcome.status = _STATUS.get(bad.kind, "invalid_meta")
    if isinstance(bad, AmbiguousError):
        outcome.candidates = bad.candidates
    elif not isinstance(bad, InvalidMetaError) and outcome.status == "invalid_meta":
        outcome.notes.append(str(bad))


def _answer(
    prompt: _Prompt, messages: list[dict[str, Any]], redact: Redactor, *, truncated: bool
) -> dict[str, Any]:
    answer = {
        "references": [one.listed(redact) for one in prompt.outcomes],
        "messages": messages,
        "message": messages[0] if messages else None,
        "injectedBytes": sum(len(one["content"].encode()) for one in messages),
        "truncated": truncated,
    }
    resolved = sum(one.status == "resolved" for one in prompt.outcomes)
    failed = len(prompt.outcomes) - resolved
    said = [f"✅ resolved {resolved} reference(s)"] if resolved else []
    said += [f"⚠️ failed to resolve {failed} reference(s)"] if failed else []
    return answer | ({"statusText": said} if said else {})
