"""A command of the user's that may add to a summary's prompt, or replace it.

It gets a JSON document about the task on its stdin, never a word of the conversation, and prints
`{"context": ["…"], "prompt": "…"}`. It runs without a shell, in a process group of its own, with
only what programs need of our environment: keys stay here. At the end the whole group is killed: a
child that it left behind may hold the output open.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from indexerd.errors import IndexerdError
from indexerd.privacy.sanitize import clean_text

TEXT_MAX = 64 * 1024  # characters of one text


class Advice(msgspec.Struct, frozen=True):
    """What a hook prints. `prompt` replaces the default instructions."""

    context: Annotated[list[str], msgspec.Meta(max_length=50)] | None = None
    prompt: str | None = None


async def consult(argv: Sequence[str], payload: Mapping[str, Any], *, seconds: float) -> Advice:
    """Ask a hook within `seconds`. IndexerdError says why it is of no use this time."""
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG") or k[:4] == "XDG_"}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, env=env, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
    except (OSError, ValueError) as bad:  # ValueError: a NUL in an argument
        raise IndexerdError(f"it cannot be started: {bad}") from None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(json.dumps(payload).encode() + b"\n")
    except TimeoutError:
        raise IndexerdError(f"it took longer than {seconds:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):  # macOS says so of what has ended
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()
    if process.returncode:
        raise IndexerdError(f"it ended with code {process.returncode}")
    try:
        found = msgspec.json.decode(output, type=Advice)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise IndexerdError("its output is not what docs/CLI.md asks for") from None
    context = [clean_text(one, TEXT_MAX) for one in found.context or ()]
    return Advice([one for one in context if one], clean_text(found.prompt or "", TEXT_MAX))
