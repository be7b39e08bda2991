"""What `status` says: how things stand, and for every problem its cause, since when, its cure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from indexerd.core.clean import escape_path
from indexerd.core.times import iso
from indexerd.service.pipeline import Pipeline
from indexerd.service.treasury import Treasury

SHOWN = 20  # paths and sessions named in one problem


def status(pipeline: Pipeline, treasury: Treasury, started: float) -> dict[str, Any]:
    """The result of the `status` method."""
    problems = list(_problems(pipeline, started))
    off = pipeline.indexing_off or not pipeline.models.available()
    health = pipeline.watch.health()
    ours = {store.meta for store in pipeline.library.stores()}  # made when first written to
    return {
        "state": "indexing-off" if off else "degraded" if problems else "ok",
        "sessions": len(pipeline.known),
        "queued": len(pipeline.jobs),
        "indexing": len(pipeline.jobs.running),
        "running": sorted(pipeline.jobs.running),
        "unwritten": pipeline.runner.indexer.unwritten,
        "textPending": pipeline.library.unread,
        "lastScanAt": iso(pipeline.last_scan_at) if pipeline.last_scan_at else None,
        "models": {
            "usable": [model.key for model in pipeline.models.available()],
            "missing": pipeline.models.missing,
        },
        "budget": treasury.summary(),
        "watches": {
            "mode": health.mode,
            "watched": health.watched,
            "missing": [escape_path(path) for path in health.missing if path not in ours],
            "overflows": health.overflows,
            "rebuilds": health.rebuilds,
        },
        "problems": problems,
    }


def _problems(pipeline: Pipeline, started: float) -> Iterator[dict[str, Any]]:
    since = iso(started)
    for bad in pipeline.loaded.problems:
        cause = f"{bad['file']}: {bad['key']}: {bad['message']}"
        yield _problem("config_invalid", cause, since, bad["hint"])
    if not pipeline.models.available():
        missing = "; ".join(f"{key}: {why}" for key, why in pipeline.models.missing.items())
        cure = "configure a key, or add local/extractive to model_keys, and reload"
        yield _problem("model_unavailable", missing, since, cure)
    for one in pipeline.watch.health().problems:
        yield _problem(one.code, one.cause, iso(one.since), one.cure)
    unreadable = pipeline.library.files.problems()
    for path, why in list(unreadable.items())[:SHOWN]:
        cure = "check the file's mode and owner; it is looked at again at every scan"
        yield _problem("unreadable", f"{escape_path(path)}: {why}", since, cure)
    for session_id, paths in list(pipeline.library.files.twins().items())[:SHOWN]:
        names = ", ".join(escape_path(path) for path in paths)
        cause = f"several files claim session {session_id}; the first counts: {names}"
        yield _problem("duplicate_session", cause, since, "remove the copies that are not wanted")
    for why in list(pipeline.library.shelf.problems().values())[:SHOWN]:
        cure = "`indexerd index REF --force` writes it anew"
        yield _problem("invalid_meta", why, since, cure)
    scanned = pipeline.library.scanned
    for root, why in scanned.refused if scanned else ():
        yield _problem("root_refused", f"{escape_path(root)}: {why}", since, "name another root")
    if pipeline.runner.indexer.unwritten:
        cause = f"{pipeline.runner.indexer.unwritten} answers wait for a disk that takes them"
        yield _problem("write_failed", cause, since, "free some space; they are written then")


def _problem(code: str, cause: str, since: str, cure: str) -> dict[str, Any]:
    return {"code": code, "cause": cause, "since": since, "cure": cure}
