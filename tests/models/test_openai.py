"""OpenAI-compatible servers, whose errors have many shapes, against a fake one over loopback."""

from indexerd.models.base import Reply
from indexerd.models.openai import OpenAICompat
from indexerd.settings import ModelLimits
from tests.fakes.gemini_calls import KEY, USED, kinds, outcomes
from tests.fakes.gemini_server import METADATA_TEXT
from tests.fakes.openai_server import OpenAIServer

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
