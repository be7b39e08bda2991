"""Call the real Gemini model code against the fake server, with canaries in all secret parts."""

import asyncio
from collections.abc import Iterable
from typing import Any

import google.genai  # noqa: F401 - load it first, so short deadlines measure the server

from indexerd.entries import Prompt
from indexerd.errors import ModelError
from indexerd.meta.model import Metadata
from indexerd.models.base import Model, Reply, TokenCounts
from indexerd.models.gemini import Gemini
from indexerd.settings import ModelLimits
from tests.fakes.gemini_server import GeminiServer
from tests.fakes.wire import FakeServer

KEY = "key-canary-0123456789"
USER = "transcript-canary"
PROMPT = Prompt("system-canary", USER, Metadata.model_json_schema(), max_output_tokens=777)
MODEL = "gemini-3.5-flash-lite"
USED = TokenCounts(1200, 300)


def model(url: str, **limits: Any) -> Gemini:
    return Gemini(MODEL, KEY, url, ModelLimits(**limits))


def ask(url: str, prompt: Prompt = PROMPT, timeout: float = 10.0) -> Reply:
    one = model(url)
    answered: Reply = asyncio.run(one.generate(prompt, timeout=timeout))
    return answered


def outcomes(server: FakeServer, faults: Iterable[str], one: Model | None = None) -> dict[str, Any]:
    """What becomes of each fault: a reply or an error, after exactly one request."""
    one = one or model(server.url)

    async def each() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for fault in faults:
            before = server.hits
            server.script(fault)
            try:
                found[fault] = await one.generate(PROMPT, timeout=10.0)
            except ModelError as bad:
                found[fault] = bad
            assert server.hits - before == 1, fault
        return found

    found: dict[str, Any] = asyncio.run(each())
    carried = [fault for fault, bad in found.items() if getattr(bad, "__context__", None)]
    assert not carried, "the SDK's error must not be chained, as it has the body"
    return found


def kinds(found: dict[str, Any]) -> dict[str, str]:
    return {fault: type(one).__name__ for fault, one in found.items()}


def names(server: GeminiServer, *prefixes: str) -> list[str]:
    return [fault for fault in server.faults() if fault.startswith(prefixes)]
