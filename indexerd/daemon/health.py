"""What `status` says: how things stand, and for every problem its cause, since when, its cure.

The daemon asks for its own state every few seconds. What is wrong with sessions is looked for in
all of them, so that is kept until a round or a scan has changed something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from indexerd.daemon.files import Files
from indexerd.daemon.pipeline import Pipeline
from indexerd.models.budget import Budget
from indexerd.privacy.redact import quotable, shown_path
from indexerd.privacy.sanitize import escape_path
from indexerd.sessions.info import SessionInfo
from indexerd.times import iso

NEWEST_VERSION = 3  # of pi's format
SHOWN = 20  # paths and sessions named in one problem
Problems = Iterator[dict[str, Any]]
_LATER = "it is looked at again at every scan; the other agents' sessions are not affected"


class Status:
    """How things stand with one daemon."""

    def __init__(
        self,
        pipeline: Pipeline,
        budget: Budget,
        started: float,
        more: Iterable[Callable[[], Iterable[dict[str, Any]]]] = (),
    ) -> None:
        """`started` in seconds since the epoch; `more` tell problems of other parts."""
        self._pipeline = pipeline
        self._budget = budget
        self._since = iso(started)
        self._more = [*more]
        self._seen = -1  # what `changed` was when sessions were looked at last
        self._of_sessions: list[dict[str, Any]] = []

    def state(self) -> str:
        """The daemon's state in a word."""
        bad = bool(self._budget.troubles()) or any(True for _ in self._problems())
        return self._word(bad=bad)

    def report(self) -> dict[str, Any]:
        """The result of the `status` method."""
        problems = [*self._problems()]
        for code, (cause, cure) in self._budget.troubles().items():
            waiting = _waiting(self._pipeline, code)
            who = f"; {waiting} sessions wait for it" if waiting else ""
            problems.append(_problem(code, cause + who, self._since, cure))
        told = _told(self._pipeline, self._budget)
        return {"state": self._word(bad=bool(problems)), **told, "problems": problems}

    def _word(self, *, bad: bool) -> str:
        if self._pipeline.indexing_off or not self._pipeline.models.available():
            return "indexing-off"
        return "degraded" if bad else "ok"

    def _problems(self) -> Problems:
        pipeline, since = self._pipeline, self._since
        yield from _set_up(pipeline, since)
        yield from _disk(pipeline, since)
        yield from _stalled(pipeline, since)
        yield from _roots(pipeline, since)
        changed = pipeline.library.changed
        if changed != self._seen:
            self._of_sessions, self._seen = list(_sessions(pipeline, since)), changed
        yield from self._of_sessions
        for told in self._more:
            yield from told()


def _told(pipeline: Pipeline, budget: Budget) -> dict[str, Any]:
    """What there is, and what is to be done."""
    health = pipeline.watch.health()
    ours = {store.meta for store in pipeline.library.stores()}  # made when first written to
    return {
        "sessions": len(pipeline.known),
        "queued": len(pipeline.jobs),
        "indexing": len(pipeline.running),
        "running": sorted(pipeline.running),
        "unwritten": pipeline.indexer.unwritten,
        "textPending": pipeline.library.texts.unread,
        "lastScanAt": iso(pipeline.last_scan_at) if pipeline.last_scan_at else None,
        "models": {
            "usable": [model.key for model in pipeline.models.available()],
            "missing": pipeline.models.missing,
        },
        "budget": budget.summary(),
        "watches": {
            "mode": health.mode,
            "watched": health.watched,
            "missing": [quotable(path) for path in health.missing if path not in ours],
            "overflows": health.overflows,
            "rebuilds": health.rebuilds,
        },
    }


def _waiting(pipeline: Pipeline, code: str) -> int:
    """Sessions whose last run failed for this: the log does not name each of them (M5)."""
    setbacks = (known.retry for known in list(pipeline.known.values()))
    return sum(one.why == code and one.refused_at is None for one in setbacks)


def _set_up(pipeline: Pipeline, since: str) -> Problems:
    for bad in pipeline.loaded.problems:
        cause = f"{bad['file']}: {bad['key']}: {bad['message']}"
        yield _problem("config_invalid", cause, since, bad["hint"])
    if not pipeline.models.available():
        missing = "; ".join(f"{key}: {why}" for key, why in pipeline.models.missing.items())
        cure = "configure a key, or add local/extractive to model_keys, and reload"
        yield _problem("model_unavailable", missing, since, cure)


def _disk(pipeline: Pipeline, since: str) -> Problems:
    for trouble in pipeline.troubles:
        cure = "free some space, or see who locks the file; it is tried again all the time"
        yield _problem("state_unwritable", trouble, since, cure)
    if pipeline.indexer.unwritten:
        cause = f"{pipeline.indexer.unwritten} answers wait for a disk that takes them"
        yield _problem("write_failed", cause, since, "free some space; they are written then")


def _stalled(pipeline: Pipeline, since: str) -> Problems:
    if pipeline.stalled():
        cause = "following the files has come to a halt, perhaps at a file system that hangs"
        yield _problem("scan_stalled", cause, since, "see which mount does not answer; restart")


def _roots(pipeline: Pipeline, since: str) -> Problems:
    for one in pipeline.watch.health().problems:
        yield _problem(one.code, one.cause, iso(one.since), one.cure)
    scanned = pipeline.library.scanned
    for root, why in scanned.refused if scanned else ():
        yield _problem("root_refused", f"{escape_path(root)}: {why}", since, "name another root")
    databases = pipeline.library.discovery.troubles
    for path, bad in list(databases.items())[:SHOWN]:
        cure = vars(bad).get("hint", _LATER)
        yield _problem("unreadable", f"{escape_path(path)}: {bad}", since, cure)
    unseen = [path for path in (scanned.unreadable if scanned else ()) if path not in databases]
    for path in unseen[:SHOWN]:
        cure = "check the directory's mode and owner; it is looked at again at every scan"
        yield _problem("unreadable", f"{escape_path(path)} cannot be read", since, cure)


def _sessions(pipeline: Pipeline, since: str) -> Problems:
    files = pipeline.library.files
    for path, why in list(files.problems().items())[:SHOWN]:
        cure = "check the file's mode and owner; it is looked at again at every scan"
        if why.startswith("set aside"):  # for a defect, or because we ended at it (V7)
            cure = "it is read again once it changes, or by a newer indexerd; please report it"
        if why.startswith("the history"):  # of a fork, whose base is gone
            cure = "bring that file back, or leave it: the session's own part is kept"
        yield _problem("unreadable", f"{escape_path(path)}: {why}", since, cure)
    for session_id, paths in islice(_copies(files), SHOWN):
        names = ", ".join(escape_path(path) for path in paths)
        cause = f"several files claim session {session_id}; the first counts: {names}"
        yield _problem("duplicate_session", cause, since, "remove the copies that are not wanted")
    for why in list(pipeline.library.metas.problems().values())[:SHOWN]:
        cure = "`indexerd index REF --force` writes it anew"
        yield _problem("invalid_meta", why, since, cure)
    odd = (one for one in files.owners.cards() if one.looped or one.version > NEWEST_VERSION)
    yield from (_odd(card, since) for card in islice(odd, SHOWN))


def _copies(files: Files) -> Iterator[tuple[str, list[str]]]:
    """Sessions with several files. A sub-agent's is copied with each fork, and rightly so."""
    for session_id, paths in files.owners.twins().items():
        card = files.card(session_id)
        if card is not None and not card.subagent:
            yield session_id, paths


def _odd(card: SessionInfo, since: str) -> dict[str, Any]:
    """A session that is read as well as can be (S1.7, S1.12)."""
    if card.looped:
        cause = f"session {card.session_id}: parents run in a circle"
        return _problem("parent_cycle", cause, since, "the path is cut where it would repeat")
    cause = f"session {card.session_id}: format version {card.version} is newer than we know"
    return _problem("newer_version", cause, since, "look for a newer indexerd")


def _problem(code: str, cause: str, since: str, cure: str) -> dict[str, Any]:
    return {"code": code, "cause": shown_path(cause), "since": since, "cure": cure}
