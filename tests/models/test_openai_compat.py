"""OpenAI-compatible servers, against a fake one over a real loopback connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from indexerd.errors import DeadlineError
from indexerd.meta.model import Metadata
from indexerd.models.base import Finish, Prompt, Reply, Tokens
from indexerd.models.openai import OpenAICompat
from indexerd.settings import ModelLimits
from tests.fakes.faults import each_fault
from tests.fakes.gemini_server import CANARY, METADATA_TEXT
from tests.fakes.openai_server import OpenAIServer

KEY = "key-canary-0123456789"
PROMPT = Prompt("system-canary", "transcript-canary", Metadata.model_json_schema())
USED = Tokens(1200, 300)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """The provider; redirects point to a second one."""
    with OpenAIServer() as elsewhere, OpenAIServer(elsewhere.url) as server:
        yield server
        assert elsewhere.hits == 0


def outcomes(
    server: OpenAIServer, faults: list[str], *, prompt: Prompt = PROMPT, timeout: float = 10.0
) -> dict[str, Any]:
    """Ask once for each fault, with one client; each must cost exactly one request."""
    one = OpenAICompat("qwen3:8b", KEY, server.url + "/v1/", ModelLimits())

    async def whole() -> dict[str, Any]:
        try:
            return await each_fault(one, server, faults, prompt, timeout)
        finally:
            await one.aclose()

    return asyncio.run(whole())


def kinds(found: dict[str, Any]) -> dict[str, str]:
    """Name the type of each outcome."""
    return {fault: type(one).__name__ for fault, one in found.items()}


def test_the_request(server: OpenAIServer) -> None:
    """Prompt, schema and limit go to `/chat/completions` below the base URL, once."""
    found = outcomes(server, ["valid"])

    assert found["valid"] == Reply(METADATA_TEXT, "qwen3:8b", Finish.STOP, USED)
    (sent,) = server.requests
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["accept-encoding"] == "identity"
    assert sent.json == {
        "model": "qwen3:8b",
        "messages": [
            {"role": "system", "content": "system-canary"},
            {"role": "user", "content": "transcript-canary"},
        ],
        "stream": False,
        "max_tokens": 4096,
        "temperature": 0.2,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": PROMPT.schema},
        },
    }


def test_openais_own_models_get_their_own_words() -> None:
    """`max_tokens` and `temperature` are refused by the newer models of api.openai.com."""
    one = OpenAICompat("gpt-5-mini", KEY, "https://api.openai.com/v1", ModelLimits())

    body = one._body(PROMPT)

    assert body["max_completion_tokens"] == 4096
    assert not {"max_tokens", "temperature"} & body.keys()


def test_every_failure_has_its_type(server: OpenAIServer) -> None:
    """M1, M3, M4, M5, M6, M7, M8, M11, M14: statuses, errors in a 200, refusals, redirects."""
    wanted = {
        "ProviderError": [
            *("reset", "close", "short_body", "wrong_length", "broken_json", "nested"),
            *("empty_object", "array", "empty_body", "no_content", "huge_promised", "huge"),
            *("500_html", "502_html", "503_html", "504_html", "500_json", "503_loading"),
            *("429_seconds", "200_error", "200_error_string", "200_choice_error"),
            *("200_finish_error", "no_finish_empty", "no_choices", "spend_limit_prose"),
            *("gzip_bomb", "huge_error", "not_utf8"),
        ],
        "ProviderDeniedError": [
            *("401", "402", "403", "404"),
            *("redirect_302", "redirect_307", "redirect_308"),
        ],
        "ContextTooLargeError": [
            *("400_context_code", "400_context_vllm", "400_context_studio"),
            *("500_context_llama", "200_context"),
        ],
        "RefusedError": [
            *("400_filtered", "400_format", "403_flagged", "content_filter", "refusal"),
        ],
    }
    flat = {fault: kind for kind, faults in wanted.items() for fault in faults}

    found = outcomes(server, list(flat))

    assert kinds(found) == flat
    assert found["429_seconds"].retry_after == 37.0
    assert [fault for fault, one in found.items() if getattr(one, "throttled", False)] == [
        "429_seconds",
        "200_error",
    ]
    texts = "".join(f"{one} {one.data()}" for one in found.values())
    assert not [secret for secret in (KEY, CANARY, "transcript", server.url) if secret in texts]


def test_replies_are_handed_on_as_they_are(server: OpenAIServer) -> None:
    """M10, M20: cut and empty texts, parts, absent counts and names."""
    wanted = {
        "length": Reply('{"name": "half', "qwen3:8b", Finish.LENGTH, USED),
        "stop_empty": Reply("", "qwen3:8b", Finish.STOP, USED),
        "parts": Reply(METADATA_TEXT, "qwen3:8b", Finish.STOP, USED),
        "no_usage": Reply(METADATA_TEXT, "qwen3:8b"),
        "no_model": Reply(METADATA_TEXT, "qwen3:8b", Finish.STOP, USED),
    }

    assert outcomes(server, list(wanted)) == wanted


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_the_deadline_is_total(server: OpenAIServer, fault: str) -> None:
    """M2: silence and a drip both end at the deadline."""
    for seconds in (0.3, 3.0, 12.0):  # a busy machine may need a while to send the request
        with pytest.raises(DeadlineError):
            ask_for(server, fault, timeout=seconds)
        if server.hits:
            break

    assert server.hits == 1


def ask_for(server: OpenAIServer, fault: str, *, timeout: float) -> Reply:
    """Ask once, with a client of its own."""
    server.default = fault
    one = OpenAICompat("qwen3:8b", KEY, server.url, ModelLimits())

    async def ask() -> Reply:
        try:
            return await one.generate(PROMPT, timeout=timeout)
        finally:
            await one.aclose()

    return asyncio.run(ask())


def test_proxies_of_the_environment_are_ignored(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M23: no variable leads a call astray."""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, server.elsewhere)

    assert kinds(outcomes(server, ["valid"])) == {"valid": "Reply"}
