"""A command of the user's that may add to a summary's prompt, or replace it.

It gets a JSON document about the task on its stdin, never a word of the conversation, and prints
`{"context": ["…"], "prompt": "…"}`. It runs without a shell, in a process group of its own, with
only what programs need of our environment: keys stay here. At the deadline, and when nobody waits
any more, the whole group is killed: a child that it left behind may hold the output open.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from indexerd.errors import IndexerdError
from indexerd.privacy.sanitize import clean_text

OUTPUT_MAX = 64 * 1024  # bytes


class Advice(msgspec.Struct, frozen=True):
    """What a hook prints. `prompt` replaces the default instructions."""

    context: Annotated[tuple[str, ...], msgspec.Meta(max_length=50)] | None = None
    prompt: str | None = None


async def consult(argv: Sequence[str], payload: Mapping[str, Any], *, seconds: float) -> Advice:
    """Ask a hook within `seconds`; without a command, return empty advice.

    IndexerdError says why it is of no use this time, in no word that it printed.
    """
    if not argv:
        return Advice()
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG") or k[:4] == "XDG_"}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - the user's own, killed below
            argv,
            env=env,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as bad:  # ValueError: a NUL in an argument
        raise IndexerdError(f"it cannot be started: {bad}") from None
    try:
        async with asyncio.timeout(seconds):
            document = json.dumps(payload).encode() + b"\n"
            return _advice(await asyncio.to_thread(_talk, process, document))
    except TimeoutError:
        raise IndexerdError(f"it took longer than {seconds:g} s") from None
    finally:
        _kill(process)


def _talk(process: subprocess.Popen[bytes], document: bytes) -> bytes:
    """Hand over the document, which a hook need not read, and return what it printed."""
    assert process.stdin and process.stdout  # noqa: S101, PT018 - for mypy: both are pipes
    with process:
        with suppress(BrokenPipeError):
            process.stdin.write(document)
            process.stdin.close()
        output = process.stdout.read(OUTPUT_MAX + 1)
        if len(output) > OUTPUT_MAX:
            _kill(process)
            raise IndexerdError(f"it printed more than {OUTPUT_MAX} bytes")
        if process.wait():
            raise IndexerdError(f"it ended with code {process.returncode}")
    return output


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # macOS says so of what has ended
            os.killpg(process.pid, signal.SIGKILL)


def _advice(data: bytes) -> Advice:
    try:
        found = msgspec.json.decode(data, type=Advice)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise IndexerdError("its output is not what docs/CLI.md asks for") from None
    context = (clean_text(one, OUTPUT_MAX) for one in found.context or ())
    prompt = clean_text(found.prompt or "", OUTPUT_MAX)
    return Advice(tuple(one for one in context if one), prompt or None)
