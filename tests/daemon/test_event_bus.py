"""What the log and subscribers are told of runs, files, the watcher and the socket."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from indexerd.daemon.event_bus import EventBus
from indexerd.daemon.files import Change
from indexerd.daemon.library import Update
from indexerd.errors import (
    BudgetError,
    IndexerdError,
    ProviderDeniedError,
    ProviderError,
)
from indexerd.indexing.policy import SessionRuntime
from indexerd.logs import Event
from indexerd.sessions.info import SessionInfo
from indexerd.sources.cursor import Verdict
from indexerd.sources.watch import Health
from tests.sessions.plain_info import INFO

NOW = 1_700_000_000.0
BUSY = ProviderError("429", retry_after=37.0, throttled=True)
DENIED = ProviderDeniedError("401")
RESTS = ProviderError("the provider is resting", retry_after=9.0)


class Heard:
    """A log, a subscriber and a clock."""

    def __init__(self) -> None:
        self.now = NOW
        self.lines: list[tuple[int, str, dict[str, Any]]] = []
        self.events: list[dict[str, Any]] = []
        self.bus = EventBus(self, lambda: self.now)
        self.bus.subscribe(self.events.append)

    def log(self, level: int, event: str, **fields: Any) -> None:
        """One line."""
        self.lines.append((level, event, fields))

    def count(self, event: Event) -> int:
        """How many lines there are of an event."""
        return sum(one == event for _, one, _ in self.lines)

    def warnings(self) -> int:
        """How many lines somebody may be woken by."""
        return sum(level >= 30 for level, _, _ in self.lines)

    def fail(self, error: IndexerdError, sessions: int = 20) -> None:
        """Runs of so many sessions fail."""
        for number in range(sessions):
            known = SessionRuntime(info(f"s{number}"), None, NOW, NOW)
            self.bus.failed(known, error, self.now + 60)


def info(session_id: str, bad_lines: int = 0) -> SessionInfo:
    """A session."""
    return replace(INFO, path=f"/s/{session_id}.jsonl", session_id=session_id, bad_lines=bad_lines)


@pytest.fixture
def heard() -> Heard:
    """EventBus, and who listens."""
    return Heard()


@pytest.mark.parametrize("error", [DENIED, BUSY, RESTS, BudgetError("full")])
def test_one_cause_of_many_failures_is_told_of_once_an_hour(
    heard: Heard, error: IndexerdError
) -> None:
    """M5, M16: twenty due sessions, three times in an hour: one warning, and every event."""
    for _ in range(3):
        heard.fail(error)
        heard.now += 1800
    assert heard.count(Event.INDEX_FAILED) == 2
    assert heard.count(Event.INDEX_SKIPPED) == 58
    failed = [one for one in heard.events if one["event"] == "index.failed"]
    assert len(failed) == 60
    assert {one["sessionId"] for one in failed} == {f"s{number}" for number in range(20)}


def test_bad_lines_are_told_of_once_a_minute_and_file(heard: Heard) -> None:
    """F4: a file that grows by a bad line every second is no log of its own."""
    was = info("s0")
    for number in range(1, 61):
        new = info("s0", bad_lines=number)
        change = Change("s0", new, Verdict.CONTINUE, was)
        heard.bus.session(Update("s0", new, None, change), was_known=True)
        was = new
        heard.now += 1
    assert heard.count(Event.SESSION_BAD_LINE) == 1
    other = info("other", bad_lines=3)
    change = Change("other", other, Verdict.CONTINUE, None)
    heard.bus.session(Update("other", other, None, change), was_known=True)
    assert heard.count(Event.SESSION_BAD_LINE) == 2


def health(*problems: str, overflows: int = 0) -> Health:
    """How a watcher does."""
    told = tuple((code, f"cause of {code}", "cure") for code in problems)
    return Health("inotify", 7, (), told, overflows)


def test_what_a_watcher_lacks_is_told_of_once(heard: Heard) -> None:
    """W1, W2: limits and lost hints, each where it is new; healed, and again."""
    for one in (
        health(),
        health("watch_limit"),
        health("watch_limit"),
        health("watch_limit", "watch_wake_failed"),
        health(overflows=1),
        health(overflows=1),
        health("watch_instances", overflows=3),
    ):
        heard.bus.watching(one)
    assert heard.count(Event.WATCH_ARMED) == 1
    assert heard.count(Event.WATCH_LIMIT) == 2
    counts = [fields["count"] for _, event, fields in heard.lines if event == "watch.overflow"]
    assert counts == [1, 3]
    causes = [fields["reason"] for _, event, fields in heard.lines if event == "watch.degraded"]
    assert causes == ["cause of watch_wake_failed"]
