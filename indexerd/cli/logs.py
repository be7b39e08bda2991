"""`indexerd logs [-f]`: the structured log, for people or as it is."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from indexerd.cli.ask import where
from indexerd.core.clean import clean_line

if TYPE_CHECKING:
    from indexerd.cli.main import App

LEVELS = ("debug", "info", "warning", "error")
POLL_SECONDS = 0.25


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("-n", "--lines", type=click.IntRange(0, 100_000), default=50, show_default=True)
@click.pass_obj
def logs(app: App, follow: bool, level: str, lines: int) -> None:
    """Show the structured log."""
    wanted = LEVELS[LEVELS.index(level) :]
    tail = _Tail(where(app).log)
    for line in deque((one for one in tail.new() if _level(one) in wanted), maxlen=lines):
        _print(app, line)
    while follow:
        for line in tail.new():
            if _level(line) in wanted:
                _print(app, line)
        time.sleep(POLL_SECONDS)


class _Tail:
    """What was appended since the last look, over a rotation too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def new(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                inode = self._path.stat().st_ino
                if inode != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break
                    self._offset += len(raw)
                    line = _parsed(raw)
                    if line is not None:
                        yield line
        except FileNotFoundError:
            return


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
        click.echo(json.dumps(line, ensure_ascii=False))
        return
    rest = " ".join(
        f"{key}={clean_line(str(value), 300)}"
        for key, value in line.items()
        if key not in ("ts", "level", "event")
    )
    click.echo(f"{line.get('ts', '')} {_level(line):7} {line.get('event', '')} {rest}".rstrip())
