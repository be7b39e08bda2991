"""A command of the user's that may add to a summary's prompt, or replace it (S3.29).

It gets a JSON document about the task on its stdin, never a word of the conversation, and prints
`{"context": ["…"], "prompt": "…"}`. Whatever is wrong with it, the caller takes its own prompt.

It runs without a shell, in a process group of its own, with only what programs need of our
environment: keys stay here. Its output is bounded and its stderr dropped. At the deadline, and
when nobody waits any more, the whole group is killed: a child that it left behind may hold the
output open, and so makes it late.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from indexerd.privacy.sanitize import clean_text

OUTPUT_MAX = 64 * 1024  # bytes
ITEMS_MAX = 50
REAP_SECONDS = 1.0
_NAMES = ("PATH", "HOME", "LANG")
_PREFIX = "XDG_"


class _Output(msgspec.Struct):
    context: Annotated[list[str], msgspec.Meta(max_length=ITEMS_MAX)] | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """What a hook says. `prompt` takes the place of the default instructions."""

    context: tuple[str, ...] = ()
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The hook is of no use this time; the reason holds nothing that the command said."""

    reason: str


async def consult(
    argv: Sequence[str],
    payload: Mapping[str, Any],
    *,
    seconds: float,
    env: Mapping[str, str] = os.environ,
) -> Advice | Failed:
    """Ask a hook within `seconds`; one without a command has nothing to say."""
    if not argv:
        return Advice()
    found = await _run(argv, json.dumps(payload).encode() + b"\n", seconds, env)
    return found if isinstance(found, Failed) else _advice(found)


async def _run(
    argv: Sequence[str], document: bytes, seconds: float, env: Mapping[str, str]
) -> bytes | Failed:
    """Run a command to its end, and return what it printed."""
    starting = asyncio.create_task(_start(argv, env))
    try:
        transport, process = await asyncio.shield(starting)
    except asyncio.CancelledError:  # cancelled itself, it would leave the process's children
        with suppress(OSError, ValueError):
            await _kill(*await starting)
        raise
    except FileNotFoundError:
        return Failed("there is no such command")
    except OSError as bad:
        return Failed(f"it cannot be started: {os.strerror(bad.errno or 0)}")
    except ValueError:  # a NUL in an argument
        return Failed("its command line is none that the system takes")
    ended = False
    try:
        async with asyncio.timeout(seconds):
            output = await _talk(process, document)
            if len(output) > OUTPUT_MAX:
                return Failed(f"it printed more than {OUTPUT_MAX} bytes")
            code = await process.wait()
            ended = True
    except TimeoutError:
        return Failed(f"it took longer than {seconds:g} s")
    finally:
        if not ended:
            await _kill(transport, process)
        transport.close()
    return Failed(f"it ended with code {code}") if code else output


async def _start(
    argv: Sequence[str], env: Mapping[str, str]
) -> tuple[asyncio.SubprocessTransport, Process]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=OUTPUT_MAX, loop=loop),
        *argv,
        env={key: one for key, one in env.items() if key in _NAMES or key.startswith(_PREFIX)},
        stderr=DEVNULL,
        start_new_session=True,
    )
    return transport, Process(transport, protocol, loop)


async def _talk(process: Process, document: bytes) -> bytes:
    """Hand over the document, which a hook need not read, and gather what it prints."""
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:  # never: both are pipes
        return b""
    stdin.write(document)
    stdin.close()
    output = bytearray()
    while len(output) <= OUTPUT_MAX and (data := await stdout.read(OUTPUT_MAX)):
        output += data
    return bytes(output)


async def _kill(transport: asyncio.SubprocessTransport, process: Process) -> None:
    """See to it that nothing of the process group runs any more, and reap it."""
    with suppress(ProcessLookupError, PermissionError):  # macOS says so of what has ended
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):  # what left the group may hold a pipe that it waits for
        await asyncio.wait_for(asyncio.shield(process.wait()), REAP_SECONDS)
    transport.close()


def _advice(data: bytes) -> Advice | Failed:
    try:
        found = msgspec.json.decode(data, type=_Output)
    except msgspec.ValidationError as bad:
        return Failed(f"its output has another shape: {str(bad).partition(' - ')[0]}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Failed("its output is no JSON in UTF-8")
    context = (clean_text(one, OUTPUT_MAX) for one in found.context or ())
    prompt = clean_text(found.prompt or "", OUTPUT_MAX)
    return Advice(tuple(one for one in context if one), prompt or None)
