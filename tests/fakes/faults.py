"""One question for each fault of a provider, with one client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from indexerd.errors import ModelError
from indexerd.events import Prompt
from indexerd.models.base import Model
from tests.fakes.wire import FakeServer


async def each_fault(
    one: Model, server: FakeServer, faults: Iterable[str], prompt: Prompt, timeout: float
) -> dict[str, Any]:
    """What came of each, an error included; each must cost exactly one request."""
    found: dict[str, Any] = {}
    for fault in faults:
        before = server.hits
        server.script(fault)
        try:
            found[fault] = await one.generate(prompt, timeout=timeout)
        except ModelError as bad:
            found[fault] = bad
        assert server.hits - before == 1, fault
    return found
