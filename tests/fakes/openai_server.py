"""A fake of `POST {base}/chat/completions` as OpenAI-compatible servers answer it."""

from typing import Any

from tests.fakes.gemini_server import CANARY, METADATA_TEXT
from tests.fakes.wire import Answer, FakeServer, as_json, wire_faults

USAGE = {"prompt_tokens": 1200, "completion_tokens": 300, "total_tokens": 1500}


def reply(
    content: Any = METADATA_TEXT,
    *,
    finish: str | None = "stop",
    model: str | None = "qwen3:8b",
    usage: dict[str, Any] | None = None,
    **message: Any,
) -> Answer:
    said = {"role": "assistant", "content": content} | message
    held: dict[str, Any] = {
        "id": "c1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": USAGE if usage is None else usage,
    }
    if model is not None:
        held["model"] = model
    return as_json(held)


def error(status: int, code: Any = None, message: str = CANARY, **more: Any) -> Answer:
    return as_json({"error": {"message": message, "type": "error", "code": code} | more}, status)


class OpenAIServer(FakeServer):
    def faults(self) -> dict[str, Answer]:
        vllm = "This model's maximum context length is 4096 tokens. However, you requested 9000."
        studio = "Trying to keep the first 9000 tokens when context the overflows."
        flagged = {"reasons": ["violence"], "flagged_input": CANARY}
        inner = {"index": 0, "message": {"content": ""}, "finish_reason": "error"}
        inner_502 = inner | {"error": {"code": 502, "message": CANARY}}
        return wire_faults(reply(), self.elsewhere) | {
            "429_seconds": as_json({"error": CANARY}, 429, retry_after="37"),
            "500_json": error(500),
            "503_loading": error(503, 503, "Loading model"),
            "400_format": as_json({"error": f"'response_format.type' {CANARY}"}, 400),
            "400_context_code": error(400, "context_length_exceeded"),
            "400_context_vllm": as_json({"object": "error", "message": vllm, "code": 400}, 400),
            "400_context_studio": as_json({"error": studio}, 400),
            "500_context_llama": error(500, 500, "Context size has been exceeded."),
            "200_context": error(200, 400, "the request exceeds the available context size"),
            "200_error": error(200, 429),
            "200_error_string": as_json({"error": CANARY}),
            "200_choice_error": as_json({"choices": [inner_502]}),
            "200_finish_error": as_json({"choices": [inner]}),
            "400_filtered": error(400, "content_filter"),
            "403_flagged": error(403, 403, metadata=flagged),
            "401": error(401, "invalid_api_key"),
            "402": error(402, 402),
            "403": error(403),
            "404": error(404, "model_not_found"),
            "length": reply('{"name": "half', finish="length"),
            "content_filter": reply("", finish="content_filter"),
            "refusal": reply(None, refusal="I cannot help with that."),
            "stop_empty": reply(""),
            "no_finish_empty": reply(None, finish=None),
            "parts": reply([{"type": "text", "text": METADATA_TEXT}]),
            "no_usage": reply(usage={}),
            "no_model": reply(model=None),
            "no_choices": as_json({"choices": []}),
        }
