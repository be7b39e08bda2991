"""What Gemini's client must never do, whatever the server does: leak, grow, say too much."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from indexerd.errors import ModelError
from tests.fakes.gemini_calls import KEY, MODEL, PROMPT, USER, model, outcomes
from tests.fakes.gemini_server import CANARY, GeminiServer, reply


def test_no_log_or_traceback_holds_key_prompt_or_body(
    server: GeminiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """X11: with everything at DEBUG, each fault logged with its traceback."""
    caplog.set_level(logging.DEBUG)
    slow = {"hang", "drip"}
    server.script(reply(CANARY, finish="OTHER"))
    found = outcomes(server, [one for one in server.faults() if one not in slow])
    for fault, one in found.items():
        if isinstance(one, ModelError):
            logging.getLogger("test").error("%s", fault, exc_info=one)

    said = caplog.text + "".join(f"{one!r} {one.data()}" for one in errors(found))

    assert len(errors(found)) > 30
    for secret in (KEY, USER, "system-canary", CANARY, server.elsewhere):
        assert secret not in said


def errors(found: dict[str, Any]) -> list[ModelError]:
    """The outcomes that are errors."""
    return [one for one in found.values() if isinstance(one, ModelError)]


def descriptors() -> int:
    """Count the open file descriptors."""
    return len(os.listdir("/dev/fd"))


def test_many_calls_leave_nothing_behind(server: GeminiServer) -> None:
    """M22: 200 calls, faults among them, leave no descriptor and no task."""
    one = model(server.url)
    faults = ["valid", "503_html", "safety", "close", "huge_promised"]

    async def many() -> None:
        for n in range(200):
            server.script(faults[n % len(faults)])
            try:
                await one.generate(PROMPT, timeout=10)
            except ModelError:
                continue
        await asyncio.sleep(0.01)  # a body that was left is closed in a step of its own
        assert asyncio.all_tasks() == {asyncio.current_task()}

    before = descriptors()
    asyncio.run(many())

    assert server.hits == 200
    deadline = time.monotonic() + 5
    while descriptors() > before and time.monotonic() < deadline:
        os.sched_yield()  # the server's own ends are closed by its threads
    assert descriptors() <= before


def child(code: str, *args: str) -> str:
    """Run code in a fresh interpreter; give back what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, timeout=50
    )
    return done.stdout.strip()


HUGE_BODY = f"""
import asyncio, resource, sys
from indexerd.errors import ProviderError
from indexerd.events import Prompt
from indexerd.models.gemini import Gemini
from indexerd.settings import ModelLimits

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

async def main():
    one = Gemini({MODEL!r}, "k", sys.argv[1], ModelLimits())
    await one.generate(Prompt("s", "u"), timeout=20)
    before = peak()
    for _ in range(4):
        try:
            await one.generate(Prompt("s", "u"), timeout=20)
        except ProviderError as bad:
            assert "larger than" in str(bad) or "encoded" in str(bad), bad
        else:
            raise SystemExit("a huge body was taken")
    print(peak() - before)

asyncio.run(main())
"""


def test_a_huge_body_is_left_at_the_cap(server: GeminiServer) -> None:
    """M7: 200 MB streamed, promised, as an error, or packed: memory hardly grows."""
    server.script("valid", "huge", "huge_promised", "huge_error", "gzip_bomb")

    grown = int(child(HUGE_BODY, server.url))

    assert server.hits == 5
    assert grown < 32 * 1024 * 1024
