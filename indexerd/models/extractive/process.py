"""The built-in model in processes of its own: many sessions are named while others are read."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from subprocess import PIPE, Popen
from typing import BinaryIO, cast

from indexerd.entries import Prompt
from indexerd.models.extractive import answered

# -P: do not import from the working directory, which may have a package of this name
_START = ("-P", "-c", f"from {__name__} import serve; serve()")


@contextmanager
def own_processes(count: int) -> Iterator[Callable[[Prompt], str]]:
    """Start processes; yield a function that has one of them answer, callable in any thread."""
    idle = SimpleQueue[Popen[bytes]]()
    with ExitStack() as running:
        for _ in range(count):
            child = Popen([sys.executable, *_START], stdin=PIPE, stdout=PIPE)  # noqa: S603 - fixed
            idle.put(running.enter_context(child))

        def answer(prompt: Prompt) -> str:
            child = idle.get()
            prompts, answers = cast("BinaryIO", child.stdin), cast("BinaryIO", child.stdout)
            try:
                pickle.dump(prompt, prompts)
                prompts.flush()
                reply: str | Exception = pickle.load(answers)  # noqa: S301 - of our own process
            finally:
                idle.put(child)
            if isinstance(reply, Exception):
                raise reply
            return reply

        yield answer


def serve() -> None:
    """Answer the prompts on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts both processes
    with suppress(EOFError, BrokenPipeError):
        while True:
            prompt: Prompt = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own process
            try:
                reply: str | Exception = answered(prompt)
            except Exception as bug:  # noqa: BLE001 - of one session only
                reply = bug
            pickle.dump(reply, sys.stdout.buffer)
            sys.stdout.buffer.flush()
