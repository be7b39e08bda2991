"""`indexerd logs [-f]`: the structured log, for people or as it is.

The file is kept open while it is followed, so that what was written to it last, before it was
rotated away, is read too. The file before the current one is read first: right after a rotation
the last lines are there.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import click

from indexerd.cli.backend import where
from indexerd.cli.streams import json_text, put, safe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from indexerd.cli.main import App

LEVELS = ("debug", "info", "warning", "error")
POLL_SECONDS = 0.25


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("-n", "--lines", type=click.IntRange(0, 100000), default=50, show_default=True)
@click.pass_obj
def logs(app: App, follow: bool, level: str, lines: int) -> None:
    """Show the structured log; with --json, as it is: one JSON document a line."""
    wanted = LEVELS[LEVELS.index(level) :]
    tail = _Tail(where(app).log)
    try:
        for line in deque((one for one in tail.new() if _level(one) in wanted), maxlen=lines):
            _print(app, line)
        while follow:
            for line in tail.new():
                if _level(line) in wanted:
                    _print(app, line)
            time.sleep(POLL_SECONDS)
    finally:
        tail.close()


class _Tail:
    """What was appended since the last look, over a rotation too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path.with_name(f"{path.name}.1"))

    def new(self) -> Iterator[dict[str, Any]]:
        newer = self._newer()  # first: to a file that was moved away nothing is added any more
        yield from self._rest()
        if newer:
            self.close()
            self._file = newer
            yield from self._rest()

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _newer(self) -> BinaryIO | None:
        there = _opened(self._path)
        if there and self._file and _same(there, self._file):
            there.close()
            return None
        return there

    def _rest(self) -> Iterator[dict[str, Any]]:
        if not self._file:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # emptied by somebody else
        while (raw := self._file.readline()).endswith(b"\n"):
            line = _parsed(raw)
            if line is not None:
                yield line
        self._file.seek(-len(raw), os.SEEK_CUR)  # a line that is being written


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _level(line: dict[str, Any]) -> str:
    return str(line.get("level", "info"))


def _print(app: App, line: dict[str, Any]) -> None:
    if app.json:
        put([json_text(line)])
        return
    rest = " ".join(
        f"{safe(key)}={safe(value)}"
        for key, value in line.items()
        if key not in ("ts", "level", "event")
    )
    head = f"{safe(line.get('ts', ''))} {safe(_level(line)):7} {safe(line.get('event', ''))}"
    put([f"{head} {rest}".rstrip()])
