"""When a session is indexed: a pure decision from a view of it, the limits, and `now`.

The threshold counts new user messages on the current path (S0.6 to S0.10). The moment is the end
of the agent's turn plus a quiet time; a failed turn waits longer, since a retry often follows
(S0.2); and a session that goes on without an end, or without a pause, is taken after
`max_wait_seconds`. All times are seconds since the epoch. A time that lies further ahead than it
can have been set comes from before the clock was set back, and has passed (V8).
"""

from __future__ import annotations

import msgspec

from indexerd.events import Turn
from indexerd.settings import Settings

PAUSE_MAX = 2 * 86_400.0  # no back-off is longer: a budget opens again at midnight


class Limits(msgspec.Struct, frozen=True):
    """The settings that matter here."""

    min_new_user_messages: int
    quiet_seconds: float
    error_quiet_seconds: float
    max_wait_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Take them from the settings in force."""
        index = settings.index
        return cls(
            settings.min_new_user_messages,
            index.quiet_seconds,
            index.error_quiet_seconds,
            index.max_wait_seconds,
        )


class View(msgspec.Struct, frozen=True):
    """What the decision needs to know of one session."""

    has_answer: bool  # an assistant has spoken: before that no agent writes a session for good
    new_user_messages: int
    turn: Turn
    changed_at: float  # when the file was last seen to change
    open_since: float  # when the unindexed part began to wait
    retry_at: float = 0.0  # not before this, after a failure
    refused_at: int | None = None  # new user messages there were when a model declined
    forced: bool = False


class Index(msgspec.Struct, frozen=True):
    """Index it now; `why` is "due", "max_wait" or "forced"."""

    why: str


class Wait(msgspec.Struct, frozen=True):
    """Decide again at `until`."""

    until: float
    why: str


class Skip(msgspec.Struct, frozen=True):
    """Nothing to do until the session changes."""

    why: str


Decision = Index | Wait | Skip


def decide(view: View, now: float, limits: Limits) -> Decision:
    """Index, wait or skip."""
    if not view.has_answer:
        return Skip("no_answer")
    if not view.forced:
        if view.new_user_messages < limits.min_new_user_messages:
            return Skip("below_threshold")
        if view.refused_at is not None and view.new_user_messages <= view.refused_at:
            return Skip("refused")
        if 0 < view.retry_at - now <= PAUSE_MAX:
            return Wait(view.retry_at, "back_off")
    ready, why = _ready(view, now, limits)
    if now < ready:
        return Wait(ready, why)
    return Index("forced" if view.forced else why)


def _ready(view: View, now: float, limits: Limits) -> tuple[float, str]:
    """The moment, and whether it is a turn's end or the end of patience."""
    latest = view.open_since + limits.max_wait_seconds
    if view.turn is Turn.OPEN:
        return latest, "max_wait"
    ended = _ended(view, now, limits)
    return (ended, "due") if ended <= latest else (latest, "max_wait")


def _ended(view: View, now: float, limits: Limits) -> float:
    failed = view.turn is Turn.FAILED
    quiet = limits.error_quiet_seconds if failed else limits.quiet_seconds
    return view.changed_at + quiet if view.changed_at <= now + quiet else now


def settled_at(view: View, now: float, limits: Limits) -> float | None:
    """When the newest turn counts as ended, whatever is due then; None in the middle of one."""
    if view.turn is Turn.OPEN:
        return None
    return _ended(view, now, limits)


def back_off(failures: int) -> float:
    """Seconds to wait after that many failures in a row: a minute, doubling, at most six hours."""
    doublings = min(max(0, failures - 1), 16)  # a float ends at 1023 of them
    return min(60.0 * 2.0**doublings, 6 * 3600.0)
