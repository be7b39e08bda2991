"""A compaction without a daemon: the one session is read, and summed up by the built-in model.

Nothing leaves the machine, nothing is counted, and nothing is kept.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from indexerd.daemon.library import Library
from indexerd.digests.compactions import Wanted, result_of
from indexerd.digests.summaries import Summaries
from indexerd.models.base import Model
from indexerd.models.budget import Budget
from indexerd.models.extractive import Extractive
from indexerd.references.looks import look_alone
from indexerd.settings import Settings


def compact_alone(
    library: Library, row: dict[str, Any], wanted: Wanted, settings: Settings, journal: Path
) -> dict[str, Any]:
    """The result of `compact` for the session of a row, here and now; `journal` is not written."""
    plan = look_alone(library, row["sessionId"], wanted.leaf, wanted.work(settings))
    budget = Budget(journal, lambda: settings, time.time, lambda _event, _told: None)
    summaries = Summaries(
        budget=budget,
        record=lambda _row: None,
        clock=time.time,
        notify=lambda _event, _session, _told: None,
    )
    models: list[Model] = [Extractive()]
    made = result_of(row, plan, wanted, lambda task: summaries.write(task, settings, models))
    return asyncio.run(made)
