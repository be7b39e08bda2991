"""Show the progress of long work on stderr, if that is a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from indexerd.cli.main import current

AFTER = 1.0  # seconds: shorter work shows nothing


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows what is being done: a text, and how much of how much (or 0)."""
    if current().json or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console, began = Console(stderr=True), time.monotonic()
    bar = Progress(
        SpinnerColumn(), *columns, TimeRemainingColumn(), console=console, transient=True
    )

    def show(what: str, done: int, total: int) -> None:
        if time.monotonic() < began + AFTER:
            return
        bar.start()
        task = next(iter(bar.task_ids), None)
        if task is None or bar.tasks[0].description != what:
            if task is not None:
                bar.remove_task(task)
            task = bar.add_task(what, total=total or None)
        bar.update(task, completed=done, total=total or None)

    try:
        yield show
    finally:
        bar.stop()
