"""Prompts in Claude Code's `history.jsonl`, of sessions whose files are gone.

Such a session has the history's path, then its id, as in a database. Its lines are the history's,
rewritten as the prompts that Claude Code would write to a session file; their offsets are those in
the history. Commands for the client (`/clear`) and prompts without a session id, as of older
versions, are left out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from indexerd.agents.claude.human import is_own_command
from indexerd.agents.json_lines import as_dict, string
from indexerd.errors import SessionUnreadableError
from indexerd.paths import is_session_id
from indexerd.sources import tail
from indexerd.sources.tail import LINE_MAX, Block, Lines, Look, Tail, Verdict
from indexerd.times import DAY_MS, iso_of_ms

NAME = "history.jsonl"
_USUAL = 8192  # bytes that most lines have at most


class _Line(msgspec.Struct, rename="camel"):
    display: str
    timestamp: int  # milliseconds since the epoch
    project: str
    session_id: str
    pasted_contents: Any = None

    @property
    def text(self) -> str:
        """What was typed, and what was pasted: `display` has only its numbers and sizes."""
        blocks = map(as_dict, as_dict(self.pasted_contents).values())
        pasted = (string(one.get("content")) for one in blocks if one.get("type") == "text")
        return "\n".join(filter(None, (self.display, *pasted)))


@dataclass(slots=True)
class _Prompts:
    """Where the prompts of one session are."""

    project: str
    offsets: list[int] = field(default_factory=list)
    last_ms: int = 0

    @property
    def look(self) -> Look:
        return Look(0, self.offsets[0], len(self.offsets), self.last_ms * 1_000_000)


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode
_known: dict[str, History] = {}  # by path; for the one thread that reads changed files


class History:
    """The sessions in one history, which is read on from where the last reading ended."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._tail, self.sessions = Tail(), dict[str, _Prompts]()

    def refresh(self) -> History:
        """Read what is new; a history that cannot be read keeps what it had."""
        more = True
        with suppress(FileNotFoundError, SessionUnreadableError):
            while more:
                read = self._tail.read(self.path)
                if read.verdict is Verdict.RESTART:
                    self.sessions.clear()
                for block in read.lines:
                    if isinstance(block, Block):
                        self._add(block)
                more = read.more
        return self

    def _add(self, block: Block) -> None:
        at = block.offset
        for raw in block.data.split(b"\n")[:-1]:
            with suppress(ValueError):
                line = _decode(raw)
                if not is_own_command(line.display):
                    prompts = self.sessions.setdefault(line.session_id, _Prompts(line.project))
                    prompts.offsets.append(at)
                    prompts.last_ms = max(prompts.last_ms, line.timestamp)
            at += len(raw) + 1

    def old(self) -> Iterator[tuple[str, str, Look]]:
        """Yield id, directory and look of the sessions without a prompt in the last day."""
        before = 1000 * time.time() - DAY_MS
        for session_id, prompts in self.sessions.items():
            if prompts.last_ms < before and is_session_id(session_id):
                yield session_id, prompts.project, prompts.look

    def transcript(self, session_id: str, project: str) -> str:
        """Return the path that the session's file had."""
        folder = re.sub("[^A-Za-z0-9]", "-", project)
        return f"{self.path.removesuffix(NAME)}projects/{folder}/{session_id}.jsonl"


def history_at(path: str) -> History:
    return _known.setdefault(path, History(path))


def has_history(path: str) -> bool:
    """Whether this is the path of a session in a history."""
    return path.rpartition("/")[0].endswith(f"/{NAME}")


def _of(path: str) -> _Prompts | None:
    place, _, session_id = path.rpartition("/")
    return history_at(place).refresh().sessions.get(session_id)


def look_in_history(path: str) -> Look | None:
    return prompts.look if (prompts := _of(path)) else None


def lines_in_history(path: str) -> list[Block]:
    """Return all lines of a session; FileNotFoundError or SessionUnreadableError if it is gone."""
    if (prompts := _of(path)) is None:
        raise FileNotFoundError(path)
    with in_history(path) as line:
        return [Block(line(at, 0), at) for at in prompts.offsets]


@contextmanager
def in_history(path: str) -> Iterator[Lines]:
    """Open a session to read single lines; FileNotFoundError if the history is gone."""
    with tail.lines(path.rpartition("/")[0]) as lines:
        yield lambda offset, _length: _rewritten(lines, offset)


def _rewritten(lines: Lines, offset: int) -> bytes:
    """Turn the line at an offset into a session's line; b"" if it is no prompt."""
    for length in (_USUAL, LINE_MAX):
        data, end, _ = lines(offset, length).partition(b"\n")
        if end:
            break
    try:
        line = _decode(data)
    except ValueError:
        return b""
    entry = {
        "type": "user",
        "uuid": f"prompt-{offset}",
        "timestamp": iso_of_ms(line.timestamp),
        "cwd": line.project,
        "sessionId": line.session_id,
        "message": {"role": "user", "content": line.text},
    }
    return _encode(entry) + b"\n"
