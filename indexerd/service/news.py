"""What happened, told twice: to the log, and to whoever subscribed on the socket.

Also keeps each session's indexing status (S0.42), as a client shows it in the slot that
`status_key` names and clears after `notification_auto_clear_ms` (S0.30). Never text of a
transcript, never a prompt or a reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from indexerd.core.cursor import Verdict
from indexerd.core.times import iso
from indexerd.errors import IndexerdError
from indexerd.llm.prices import format_usd
from indexerd.service.indexing import Done
from indexerd.service.known import Known
from indexerd.service.library import Update


class Log(Protocol):
    """The part of a structlog logger that is used here."""

    def log(self, level: int, event: str, **fields: Any) -> Any:
        """Write one event."""
        ...


DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
_LEVELS = {
    "index.failed": WARNING,
    "meta.invalid": WARNING,
    "model.breaker_open": WARNING,
    "budget.exhausted": WARNING,
    "budget.unsettled": WARNING,
    "budget.reserved": DEBUG,
    "session.appended": DEBUG,
}
Listener = Callable[[dict[str, Any]], None]


class News:
    """Tells the log and the subscribers."""

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._listeners: dict[int, Listener] = {}

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have a listener called with every event; returns what ends that."""
        key = id(listener)
        self._listeners[key] = listener

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def say(self, event: str, fields: dict[str, Any]) -> None:
        """To the log alone."""
        self._log.log(_LEVELS.get(event, INFO), event, **fields)

    def tell(self, event: str, session_id: str | None, fields: dict[str, Any]) -> None:
        """To the subscribers alone."""
        said = {"event": event, "at": iso(self._clock()), **fields}
        if session_id:
            said["sessionId"] = session_id
        for listener in list(self._listeners.values()):
            listener(said)

    def session(self, update: Update, *, was_known: bool) -> None:
        """A session changed on disk."""
        change, card, session_id = update.change, update.card, update.session_id
        if card is None:
            self.say("session.removed", {"session": session_id})
            self.tell("session.removed", session_id, {})
            return
        if change is None or change.verdict is Verdict.SAME:
            if was_known:
                self.tell("session.updated", session_id, {"sessionFile": card.path})
            return
        word = "session.appended" if was_known else "session.discovered"
        self.say("session.reset" if change.verdict.restart else word, {"session": session_id})
        for event, fields in _session_events(update, was_known=was_known):
            self.tell(event, session_id, {"sessionFile": card.path, **fields})

    def indexing(self, known: Known, event: str, fields: dict[str, Any]) -> None:
        """A run begins."""
        self._status(known, "indexing", "⏳ indexing...")
        self.say(event, {"session": known.card.session_id, **fields})
        self.tell(event, known.card.session_id, fields)

    def retry(self, known: Known | None, session_id: str, fields: dict[str, Any]) -> None:
        """A malformed answer is asked for again."""
        if known:
            text = f"⏳ indexing... (retry {fields['attempt']}/{fields['of']})"
            self._status(known, "indexing", text)
        self.say("index.retry", {"session": session_id, **fields})
        self.tell("index.retry", session_id, fields)

    def indexed(self, known: Known, done: Done) -> None:
        """A run ended well."""
        if done.adopted:
            known.status = None
            self.say("index.skipped", {"session": done.session_id, "reason": "written elsewhere"})
            return
        self._status(known, "succeeded", f"✅ session indexed ({format_usd(done.usd)})")
        self.say("meta.written", {"session": done.session_id})
        fields = {"model": done.model, "costUsd": done.usd}
        self.say(
            "index.succeeded",
            {"session": done.session_id, "model": done.model, "cost_usd": done.usd},
        )
        self.tell("index.succeeded", done.session_id, fields)

    def failed(self, known: Known, error: IndexerdError, retry_at: float) -> None:
        """A run failed."""
        session_id = known.card.session_id
        self._status(known, "failed", f"❌ index failed: {error}")
        self.say("index.failed", {"session": session_id, "reason": str(error), "kind": error.kind})
        fields = {"kind": error.kind, "message": str(error), "retryable": error.retryable}
        self.tell("index.failed", session_id, fields | {"retryAt": iso(retry_at)})

    def defect(self, event: str, session_id: str, bug: Exception) -> None:
        """Something is wrong with this program."""
        self._log.log(ERROR, event, session=session_id, reason="defect", exc_info=bug)

    def _status(self, known: Known, state: str, text: str) -> None:
        known.status = {"state": state, "text": text, "at": iso(self._clock())}


def _session_events(update: Update, *, was_known: bool) -> list[tuple[str, dict[str, Any]]]:
    change, card = update.change, update.card
    if change is None or card is None:
        return []
    if not was_known:
        return [("session.created", {})]
    events: list[tuple[str, dict[str, Any]]] = [("session.updated", {"messages": card.messages})]
    was = change.was
    if was and change.branched:
        events.append(("session.branched", {"leafId": card.leaf_id, "previous": was.leaf_id}))
    if was and card.compacted and not was.compacted:
        events.append(("session.compacted", {"leafId": card.leaf_id}))
    if was and was.agent_title != card.agent_title:
        fields = {"name": card.agent_title, "previous": was.agent_title}
        events.append(("session.renamed", fields))
    return events
