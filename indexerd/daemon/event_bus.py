"""Events for the log and for subscribers on the socket; they never contain a session's text.

Also sets each session's indexing status, which clients show under the setting `status_key`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from logging import ERROR, INFO
from typing import Any

from indexerd.daemon.files import Update
from indexerd.errors import IndexerdError
from indexerd.indexing.indexer import Done
from indexerd.indexing.policy import SessionRuntime
from indexerd.logs import LEVEL_OF, LOG
from indexerd.models.prices import format_usd
from indexerd.sessions.info import state_of
from indexerd.sources.tail import Verdict
from indexerd.sources.watch import Health
from indexerd.times import iso

BAD_LINE_SECONDS = 60.0  # between two log lines about bad lines of one file
OUTAGE_SECONDS = 3600.0  # between two warnings about one cause, however many sessions fail
_OUTAGES = frozenset(
    {"model_unavailable", "provider_unavailable", "budget_exhausted", "timeout", "write_failed"}
)
Listener = Callable[[dict[str, Any]], None]
# caco, the program that context sets come from, has one event for these three.
ALIASES = {"caco.context": ("context.changed", "context.load", "context.resume")}


class EventBus:
    """Writes events to the log and hands them to the subscribers."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, None] = {}
        self._health: Health | None = None
        self._logged: dict[str, float] = {}  # when, by file or kind of error

    def subscribe(self, listener: Listener) -> Callable[[], object]:
        """Call a listener with every event until the returned function is called."""
        self._listeners[listener] = None
        return partial(self._listeners.pop, listener, None)

    def log(self, event: str, fields: dict[str, Any]) -> None:
        """Write an event only to the log."""
        LOG.log(LEVEL_OF.get(event, INFO), event, **fields)

    def defect(self, event: str, session_id: str, bug: BaseException, *, path: str = "") -> None:
        """Log a bug in this program."""
        where = {"session": session_id} | ({"path": path} if path else {})
        LOG.log(ERROR, event, **where, reason="defect", exc_info=bug)

    def publish(self, event: str, session_id: str | None, fields: dict[str, Any]) -> None:
        """Send an event only to the subscribers."""
        message = {"event": event, "at": iso(time.time()), **fields}
        if session_id:
            message["sessionId"] = session_id
        for listener in list(self._listeners):
            listener(message)

    def context(
        self, reason: str, session_id: str, context: dict[str, list[str]], name: str | None = None
    ) -> None:
        """Publish a session's context sets; `reason` is changed, load or resume."""
        fields = {"reason": reason, "context": context} | ({"setName": name} if name else {})
        self.publish(f"context.{reason}", session_id, fields)

    def session(self, update: Update, *, was_known: bool) -> None:
        info, session_id, old = update.info, update.session_id, update.old
        if info is None:
            if old is not None:  # else its file was already gone
                self.log("session.removed", {"session": session_id})
                removed = {"sessionFile": old.file, "previousState": state_of(old)}
                self.publish("session.removed", session_id, {"state": "deleted", **removed})
            return
        if changed := update.verdict is not Verdict.SAME:
            event = "session.appended" if was_known else "session.discovered"
            event = "session.reset" if update.verdict is Verdict.RESTART else event
            self.log(event, {"session": session_id, "path": info.path})
            new = info.bad_lines - (old.bad_lines if old else 0)
            if new > 0 and self._is_due(info.path, BAD_LINE_SECONDS):
                bad = {"session": session_id, "path": info.path, "count": info.bad_lines}
                self.log("session.bad_line", bad)

        def send(name: str, /, **fields: Any) -> None:
            self.publish(name, session_id, {"sessionFile": info.file, **fields})

        state = state_of(info)
        if not was_known:
            if changed:
                send("session.created", state=state)
            return
        fields: dict[str, Any] = {"messages": info.messages} if changed else {}
        if old and state_of(old) != state:
            fields["previousState"] = state_of(old)
        send("session.updated", **fields, state=state)
        if old and changed and update.branched:
            send("session.branched", leafId=info.leaf_id, previous=old.leaf_id)
        if old and changed and info.compactions > old.compactions:
            send("session.compacted", leafId=info.leaf_id)
        if old and old.agent_title != info.agent_title:
            send("session.renamed", name=info.agent_title, previous=old.agent_title)

    def watching(self, health: Health) -> None:
        """Log how the watcher changed since the last call."""
        old, self._health = self._health, health
        if old is None or (old.mode, old.watched) != (health.mode, health.watched):
            self.log("watch.armed", {"mode": health.mode, "count": health.watched})
        if health.overflows > (old.overflows if old else 0):
            self.log("watch.overflow", {"count": health.overflows})
        for _, cause, cure in set(health.problems).difference(old.problems if old else ()):
            self.log("watch.degraded", {"reason": cause, "hint": cure})

    def indexing(self, known: SessionRuntime, why: str) -> None:
        self._status(known, "indexing", "⏳ indexing...")
        self.log("index.started", {"session": known.info.session_id, "reason": why})
        self.publish("index.started", known.info.session_id, {"reason": why})

    def retry(self, known: SessionRuntime, fields: dict[str, Any]) -> None:
        session_id, which = known.info.session_id, f"{fields['attempt']}/{fields['of']}"
        self._status(known, "indexing", f"⏳ indexing... (retry {which})")
        self.log("index.retry", {"session": session_id, **fields})
        self.publish("index.retry", session_id, fields)

    def indexed(self, known: SessionRuntime, done: Done) -> None:
        """Report a run that succeeded, or left the meta file that another program wrote."""
        session, fields = {"session": done.session_id}, {"model": done.model, "costUsd": done.usd}
        if done.adopted:
            known.status = None
            self.log("index.skipped", session | {"reason": "written elsewhere"})
            self.publish("index.succeeded", done.session_id, {**fields, "adopted": True})
            return
        self._status(known, "succeeded", f"✅ session indexed ({format_usd(done.usd)})")
        self.log("meta.written", session | {"path": done.directory})
        self.log("index.succeeded", {**session, "model": done.model, "cost_usd": done.usd})
        self.publish("index.succeeded", done.session_id, fields)

    def failed(self, known: SessionRuntime, error: IndexerdError, retry_at: float) -> None:
        """Report a run that failed; further failures of one outage are logged as skipped runs."""
        session_id = known.info.session_id
        self._status(known, "failed", f"❌ index failed: {error}")
        fields = {"session": session_id, "reason": str(error)}
        outage = error.kind in _OUTAGES
        if outage and not self._is_due(error.kind, OUTAGE_SECONDS):
            self.log("index.skipped", fields)
        else:
            self.log("index.failed", fields | {"kind": error.kind})
        what = {"kind": error.kind, "message": str(error), "retryable": error.retryable}
        self.publish("index.failed", session_id, what | {"retryAt": iso(retry_at)})

    def _is_due(self, key: str, seconds: float) -> bool:
        """Whether to log something about `key`; if so, not again for so many `seconds`."""
        now = time.time()
        if due := abs(now - self._logged.get(key, 0.0)) >= seconds:
            self._logged[key] = now
        return due

    def _status(self, known: SessionRuntime, state: str, text: str) -> None:
        known.status = {"state": state, "text": text, "at": iso(time.time())}
