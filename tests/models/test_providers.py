"""Gemini through the real SDK, and OpenAI-compatible servers, against fakes over loopback."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import google.genai  # noqa: F401 - load it first, so short deadlines measure the server
import pytest

from indexerd.entries import Prompt
from indexerd.errors import DeadlineError, ModelError
from indexerd.meta.model import Metadata
from indexerd.models.base import Model, Reply, TokenCounts
from indexerd.models.gemini import Gemini
from indexerd.models.openai import OpenAICompat
from indexerd.settings import ModelLimits
from tests.fakes.gemini_server import CANARY, METADATA_TEXT, GeminiServer, reply
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.wire import FakeServer

# Canaries are in all secret parts.
KEY = "key-canary-0123456789"
USER = "transcript-canary"
PROMPT = Prompt("system-canary", USER, Metadata.model_json_schema(), max_output_tokens=777)
MODEL = "gemini-3.5-flash-lite"
USED = TokenCounts(1200, 300)


def model(url: str) -> Gemini:
    return Gemini(MODEL, KEY, url, ModelLimits())


def ask(url: str, timeout: float = 10.0) -> Reply:
    answered: Reply = asyncio.run(model(url).generate(PROMPT, timeout=timeout))
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


@pytest.fixture
def elsewhere() -> Iterator[GeminiServer]:
    """A second origin that must never receive a request."""
    with GeminiServer() as server:
        yield server


@pytest.fixture
def server(elsewhere: GeminiServer) -> Iterator[GeminiServer]:
    with GeminiServer(elsewhere.url) as server:
        yield server


def test_the_request_says_everything_and_nothing_more(server: GeminiServer) -> None:
    """S0.27: model, prompt, schema and limit; the key in its header; identity encoding."""
    answered = ask(server.url)
    assert answered == Reply(METADATA_TEXT, MODEL, tokens=USED)
    (sent,) = server.requests
    assert sent.path == f"/v1beta/models/{MODEL}:generateContent"
    assert sent.headers["x-goog-api-key"] == KEY
    assert sent.headers["accept-encoding"] == "identity"
    assert sent.json["contents"] == [{"role": "user", "parts": [{"text": USER}]}]
    assert sent.json["systemInstruction"]["parts"] == [{"text": "system-canary"}]
    assert sent.json["generationConfig"] == {
        "maxOutputTokens": 777,
        "responseMimeType": "application/json",
        "responseJsonSchema": PROMPT.schema,
    }


def test_failures_of_the_server_are_one_type_and_one_request(server: GeminiServer) -> None:
    """S0.24: resets, short and broken bodies, 5xx and in-band failures."""
    faults = ["reset", "close", "short_body", "wrong_length", "broken_json", "not_utf8", "nested"]
    faults += ["empty_object", "array", "empty_body", "no_content", "gzip_bomb", "no_candidates"]
    faults += ["unknown_finish_empty", "other_empty", "no_finish_empty", "odd_shapes"]
    faults += names(server, "50")
    found = outcomes(server, faults)
    assert kinds(found) == dict.fromkeys(faults, "ProviderError")
    assert found["503_json"].retry_after == 12.0
    assert not any(error.throttled for error in found.values())


def test_a_throttled_call_says_when_to_come_back(server: GeminiServer) -> None:
    """Seconds of the header or of the body, an hour at most; dates and other words are ignored."""
    told = {"429_seconds": 37.0, "429_huge": 3600.0, "429_retry_info": 37.0}
    told |= {"429_retry_info_fraction": 37.5, "429_garbage_and_info": 37.0}
    faults = names(server, "429")
    found = outcomes(server, faults)
    assert all(error.throttled for error in found.values())
    assert {fault: error.retry_after for fault, error in found.items()} == (
        dict.fromkeys(faults) | told
    )


def test_permanent_errors_are_denials(server: GeminiServer) -> None:
    """Bad key, 401, 403, 404 and other 400s; a too large request has its own error."""
    large = ["400_too_large", "413"]
    refused = ["400_other", "400_list", "recitation", "spii", "blocked_prompt"]  # only this request
    others = names(server, "400", "401", "403", "404")
    denied = [fault for fault in others if fault not in large + refused]
    found = outcomes(server, denied + large + refused + ["limited_account"])
    wanted = dict.fromkeys([*denied, "limited_account"], "ProviderDeniedError")
    wanted |= dict.fromkeys(large, "ContextTooLargeError") | dict.fromkeys(refused, "RefusedError")
    assert kinds(found) == wanted


def test_replies_are_returned_unchanged(server: GeminiServer) -> None:
    """Cut, odd and empty texts, missing counts, and the model that answered."""
    half = '{"name": "half'
    wanted = {
        "continuation": Reply(half, MODEL, cut=True, tokens=USED),
        "max_tokens_partial": Reply(half, MODEL, cut=True, tokens=USED),
        "max_tokens_empty": Reply("", MODEL, cut=True, tokens=TokenCounts(7, None)),
        "fenced": Reply(f"```json\n{METADATA_TEXT}\n```", MODEL, tokens=USED),
        "malformed": Reply('{"name": "only', MODEL, tokens=USED),
        "stop_empty": Reply("", MODEL, tokens=USED),
        "unknown_finish": Reply(METADATA_TEXT, MODEL, tokens=USED),
        "thoughts": Reply(METADATA_TEXT, MODEL, tokens=TokenCounts(1200, 350)),
        "no_usage": Reply(METADATA_TEXT, MODEL),
        "bad_usage": Reply(METADATA_TEXT, MODEL),
        "unknown_version": Reply(METADATA_TEXT, "gemini-9-nova", tokens=USED),
        "hostile_version": Reply(METADATA_TEXT, MODEL, tokens=USED),
        "no_version": Reply(METADATA_TEXT, MODEL, tokens=USED),
        "surrogate": Reply("cut \N{REPLACEMENT CHARACTER} here", MODEL, tokens=USED),
    }
    assert outcomes(server, list(wanted)) == wanted


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_the_deadline_is_total(server: GeminiServer, fault: str) -> None:
    """Silence, and one byte every half second, both end at the deadline."""
    ask(server.url)  # the first call loads the SDK
    server.default = fault
    for seconds in (1.0, 4.0, 12.0):  # a busy machine may need a while to send the request
        with pytest.raises(DeadlineError):
            ask(server.url, timeout=seconds)
        if server.hits > 1:
            break
    assert server.hits == 2


def test_redirects_are_never_followed(server: GeminiServer, elsewhere: GeminiServer) -> None:
    """Neither the key nor the transcript reaches the second origin."""
    faults = names(server, "redirect")
    found = outcomes(server, faults)
    assert kinds(found) == dict.fromkeys(faults, "ProviderDeniedError")
    assert elsewhere.hits == 0
    assert elsewhere.url not in "".join(map(str, found.values()))


def test_environment_variables_of_the_sdk_are_ignored(
    server: GeminiServer, elsewhere: GeminiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Base URLs, proxies, keys, versions and services."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, elsewhere.url)
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", elsewhere.url)
    monkeypatch.setenv("GOOGLE_VERTEX_BASE_URL", elsewhere.url)
    monkeypatch.setenv("GOOGLE_API_KEY", "another-key")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_GENAI_USE_ENTERPRISE", "true")
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v9")
    ask(server.url)
    assert elsewhere.hits == 0
    assert server.requests[0].path == f"/v1beta/models/{MODEL}:generateContent"
    assert server.requests[0].headers["x-goog-api-key"] == KEY


def test_no_log_or_traceback_holds_key_prompt_or_body(
    server: GeminiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """At level DEBUG, with the traceback of each fault logged."""
    caplog.set_level(logging.DEBUG)
    slow = {"hang", "drip"}
    server.script(reply(CANARY, finish="OTHER"))
    found = outcomes(server, [fault for fault in server.faults() if fault not in slow])
    for fault, one in found.items():
        if isinstance(one, ModelError):
            logging.getLogger("test").error("%s", fault, exc_info=one)
    errors = [error for error in found.values() if isinstance(error, ModelError)]
    said = caplog.text + "".join(f"{error!r} {error.data()}" for error in errors)
    assert len(errors) > 30
    for secret in (KEY, USER, "system-canary", CANARY, server.elsewhere):
        assert secret not in said


ANSWERED = "qwen3:8b"
FAILURES = {
    "ProviderError": "429_seconds 500_json 503_loading 200_error 200_error_string 200_choice_error"
    " 200_finish_error no_finish_empty no_choices",
    "ContextTooLargeError": "400_context_code 400_context_vllm 400_context_studio"
    " 500_context_llama 200_context",
    "RefusedError": "400_format 400_filtered 403_flagged content_filter refusal",
    "ProviderDeniedError": "401 402 403 404",
}


def test_each_answer_has_its_meaning() -> None:
    """S0.24: errors as objects, as strings, at the top, in a choice, and with status 200."""
    wanted = {fault: kind for kind, faults in FAILURES.items() for fault in faults.split()}
    replies = {
        "valid": Reply(METADATA_TEXT, ANSWERED, tokens=USED),
        "length": Reply('{"name": "half', ANSWERED, cut=True, tokens=USED),
        "stop_empty": Reply("", ANSWERED, tokens=USED),
        "parts": Reply("", ANSWERED, tokens=USED),
        "no_usage": Reply(METADATA_TEXT, ANSWERED),
        "no_model": Reply(METADATA_TEXT, "m", tokens=USED),
    }
    with OpenAIServer() as server:
        model = OpenAICompat("m", KEY, server.url, ModelLimits())
        found = outcomes(server, [*wanted, *replies], model)
    assert {fault: found.pop(fault) for fault in replies} == replies
    assert kinds(found) == wanted
    throttled = found["429_seconds"]
    assert (throttled.throttled, throttled.retry_after) == (True, 37.0)
    assert found["404"].model_only
