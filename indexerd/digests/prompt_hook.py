"""A command of the user's that may add to a summary's prompt, or replace it (S3.29).

In: an argument list and a JSON document about the task, which goes to the command's stdin; never
a word of the conversation. Out: what it printed, `{"context": ["…"], "prompt": "…"}`, cleaned; or
`Failed` with the reason, after which the caller takes its own prompt. Reasons hold nothing that
the command said.

No shell, a process group of its own, and of our environment only what programs need to find
their files: keys stay here. Its output is bounded and its stderr dropped. At the deadline, and
when nobody waits any more, the whole group is killed. What surprised us: a child that a hook left
behind holds the output open, and so makes it late; asyncio waits for such pipes as well as for
the process, hence a protocol of our own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from indexerd.privacy.sanitize import clean_text

OUTPUT_MAX = 64 * 1024  # bytes
ITEMS_MAX = 50
_NAMES = ("PATH", "HOME", "LANG")
_PREFIX = "XDG_"


@dataclass(frozen=True, slots=True)
class Advice:
    """What a hook says. `prompt` takes the place of the default instructions."""

    context: tuple[str, ...] = ()
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The hook is of no use this time, and why, in words of ours."""

    reason: str


async def consult(
    argv: Sequence[str],
    payload: Mapping[str, Any],
    *,
    seconds: float,
    env: Mapping[str, str] = os.environ,
) -> Advice | Failed:
    """Ask a hook; one without a command has nothing to say.

    Takes at most `seconds`, and a moment to end what is still running then.
    """
    if not argv:
        return Advice()
    document = json.dumps(payload).encode() + b"\n"
    told = await _run(list(argv), document, seconds, _least(env))
    return told if isinstance(told, Failed) else _advice(told)


def _least(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in env.items()
        if name in _NAMES or (name.startswith(_PREFIX) and "=" not in name)
    }


# -- the process ---------------------------------------------------------------------------------


class _Child(asyncio.SubprocessProtocol):
    """Gathers what a process prints, until it has ended and its output is closed."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output = bytearray()
        self.done: asyncio.Future[None] = loop.create_future()  # ended, or said too much
        self.exited: asyncio.Future[None] = loop.create_future()
        self._open = True

    def pipe_data_received(self, _fd: int, data: bytes) -> None:
        """Take in what was printed, as far as it is of use."""
        self.output += data[: OUTPUT_MAX + 1 - len(self.output)]
        if len(self.output) > OUTPUT_MAX:
            _settle(self.done)

    def pipe_connection_lost(self, fd: int, _exc: Exception | None) -> None:
        """Stdin may be closed at once by a hook that does not read it: that is its own affair."""
        if fd == 1:
            self._open = False
            self._look()

    def process_exited(self) -> None:
        """The command has ended; a child of its own may still hold the output."""
        _settle(self.exited)
        self._look()

    def _look(self) -> None:
        if self.exited.done() and not self._open:
            _settle(self.done)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _run(
    argv: list[str], document: bytes, seconds: float, env: dict[str, str]
) -> bytes | Failed:
    """Run a command to its end; what it printed."""
    starting = asyncio.create_task(_started(argv, env))
    try:
        started = await asyncio.shield(starting)
    except asyncio.CancelledError:  # cancelled itself, it would leave the process's children
        late = await starting
        if not isinstance(late, Failed):
            await _end(*late)
        raise
    if isinstance(started, Failed):
        return started
    transport, child = started
    try:
        stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        stdin.write(document)
        stdin.write_eof()
        ended, _ = await asyncio.wait([child.done], timeout=seconds)
    finally:
        await _end(transport, child)
    if not ended:
        return Failed(f"it took longer than {seconds:g} s")
    if len(child.output) > OUTPUT_MAX:
        return Failed(f"it printed more than {OUTPUT_MAX} bytes")
    code = transport.get_returncode()
    return Failed(f"it ended with code {code}") if code else bytes(child.output)


async def _started(
    argv: list[str], env: dict[str, str]
) -> tuple[asyncio.SubprocessTransport, _Child] | Failed:
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            _Child, *argv, env=env, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
        )
    except FileNotFoundError:
        return Failed("there is no such command")
    except OSError as bad:
        return Failed(f"it cannot be started: {os.strerror(bad.errno or 0)}")
    except ValueError:  # a NUL in an argument
        return Failed("its command line is none that the system takes")


async def _end(transport: asyncio.SubprocessTransport, child: _Child) -> None:
    """See to it that nothing of it runs any more, unless it ended by itself, and reap it."""
    try:
        if not (child.exited.done() and child.done.done()):
            with suppress(ProcessLookupError, PermissionError):  # macOS says so of what has ended
                os.killpg(transport.get_pid(), signal.SIGKILL)
        await asyncio.shield(child.exited)  # before it is closed, which might reap it unseen
    finally:
        transport.close()


# -- what it printed -----------------------------------------------------------------------------


def _advice(data: bytes) -> Advice | Failed:
    try:
        held = json.loads(data.decode())
    except UnicodeDecodeError:
        return Failed("its output is not UTF-8")
    except (ValueError, RecursionError):
        return Failed("its output is no JSON")
    wrong = _wrong(held)
    if wrong:
        return Failed(wrong)
    context = (clean_text(one, OUTPUT_MAX) for one in held.get("context") or ())
    prompt = clean_text(held.get("prompt") or "", OUTPUT_MAX)
    return Advice(tuple(one for one in context if one), prompt or None)


def _wrong(held: Any) -> str:
    """What is wrong with a document; nothing where it can be used."""
    if not isinstance(held, dict):
        return "its output is no JSON object"
    context, prompt = held.get("context") or [], held.get("prompt")
    if not isinstance(context, list) or not all(isinstance(one, str) for one in context):
        return "context is not a list of texts"
    if len(context) > ITEMS_MAX:
        return f"context has more than {ITEMS_MAX} texts"
    return "" if prompt is None or isinstance(prompt, str) else "prompt is not a text"
