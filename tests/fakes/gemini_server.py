"""A fake of Gemini's `POST /v1beta/models/{model}:generateContent`, including its faults.

`wire` explains how to script it. The shapes are those of the REST API: camelCase, an `error` object
with `code`, `message`, `status` and typed `details`. Every error body and odd answer contains
CANARY, so tests can look for it where it must not be.
"""

import json
from typing import Any

from tests.fakes.wire import Answer, FakeServer, as_json, wire_faults

CANARY = "upstream-body-canary"
METADATA = {
    "name": "Fix the flaky upload test",
    "description": "The upload test failed on slow disks; its deadline now follows the clock.",
    "summary": "Goal: a green build. Key decision: poll with a deadline. Outcome: 200 runs pass.",
    "tags": ["testing", "upload", "flaky"],
}
METADATA_TEXT = json.dumps(METADATA)
USAGE = {"promptTokenCount": 1200, "candidatesTokenCount": 300, "totalTokenCount": 1500}
_RPC = "type.googleapis.com/google.rpc."
_TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1)."


def reply(
    text: str | None = METADATA_TEXT,
    *,
    finish: str | None = "STOP",
    usage: dict[str, Any] | None = None,
    version: str | None = "gemini-3.5-flash-lite",
    **candidate: Any,
) -> Answer:
    parts = [] if text is None else [{"text": text}]
    one: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}} | candidate
    if finish is not None:
        one["finishReason"] = finish
    held: dict[str, Any] = {"candidates": [one], "responseId": "r1"}
    if version is not None:
        held["modelVersion"] = version
    held["usageMetadata"] = USAGE if usage is None else usage
    return as_json(held)


def error(code: int, status: str, message: str = CANARY, *details: Any, **headers: str) -> Answer:
    held = {"code": code, "message": message, "status": status, "details": list(details)}
    return as_json({"error": held}, code, **headers)


def _retry_info(delay: str) -> dict[str, Any]:
    return {"@type": f"{_RPC}RetryInfo", "retryDelay": delay}


class GeminiServer(FakeServer):
    def faults(self) -> dict[str, Answer]:
        quota = {"@type": f"{_RPC}QuotaFailure", "violations": [{"quotaId": "PerMinute"}]}
        bad_key = {"@type": f"{_RPC}ErrorInfo", "reason": "API_KEY_INVALID"}
        blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}
        thought = [{"text": "hidden thought", "thought": True}, {"text": METADATA_TEXT}]

        def throttled(*details: Any, **headers: str) -> Answer:
            return error(429, "RESOURCE_EXHAUSTED", CANARY, quota, *details, **headers)

        return wire_faults(reply(), self.elsewhere) | {
            "429_bare": throttled(),
            "429_seconds": throttled(retry_after="37"),
            "429_date": throttled(retry_after="Sat, 21 Nov 2026 10:00:37 GMT"),
            "429_past_date": throttled(retry_after="Sat, 21 Nov 2026 09:00:00 GMT"),
            "429_garbage": throttled(retry_after="soon, perhaps"),
            "429_huge": throttled(retry_after="1000000000"),
            "429_retry_info": throttled(_retry_info("37s")),
            "429_retry_info_fraction": throttled(_retry_info("37.5s")),
            "429_garbage_and_info": throttled(
                _retry_info("37s"), retry_after="\N{LATIN SMALL LETTER E}"
            ),
            "400_bad_key": error(400, "INVALID_ARGUMENT", CANARY, bad_key),
            "400_too_large": error(400, "INVALID_ARGUMENT", _TOO_LONG),
            "400_other": error(400, "INVALID_ARGUMENT"),
            "400_list": as_json([{"error": {"code": 400, "message": CANARY}}], 400),
            "400_region": error(400, "FAILED_PRECONDITION"),
            "401": error(401, "UNAUTHENTICATED"),
            "403": error(403, "PERMISSION_DENIED"),
            "404": error(404, "NOT_FOUND"),
            "413": Answer(413, CANARY.encode(), {"Content-Type": "text/html"}),
            "500_json": error(500, "INTERNAL"),
            "503_json": error(503, "UNAVAILABLE", retry_after="12"),
            "504_json": error(504, "DEADLINE_EXCEEDED"),
            "fenced": reply(f"```json\n{METADATA_TEXT}\n```"),
            "malformed": reply('{"name": "only'),
            "continuation": reply(
                '{"name": "half', finish="CONTINUATION", continuationToken="dG9rZW4="
            ),
            "max_tokens_partial": reply('{"name": "half', finish="MAX_TOKENS"),
            "max_tokens_empty": reply(None, finish="MAX_TOKENS", usage={"promptTokenCount": 7}),
            "safety": reply(None, finish="SAFETY"),
            "recitation": reply(CANARY, finish="RECITATION"),
            "spii": reply(None, finish="SPII"),
            "blocked_prompt": as_json(blocked),
            "limited_account": reply(None, finish="PUP_LIMITED_DISABLED"),
            "no_usage": reply(usage={}),
            "bad_usage": reply(usage={"promptTokenCount": "many", "candidatesTokenCount": -1}),
            "thoughts": reply(content={"parts": thought}, usage=USAGE | {"thoughtsTokenCount": 50}),
            "unknown_version": reply(version="gemini-9-nova"),
            "hostile_version": reply(version="\x1b]0;pwn\x07" + "x" * 500),
            "no_version": reply(version=None),
            "unknown_finish": reply(finish="TIRED"),
            "unknown_finish_empty": reply(None, finish="TIRED"),
            "other_empty": reply(None, finish="OTHER"),
            "no_finish_empty": reply(None, finish=None),
            "stop_empty": reply(None),
            "surrogate": reply("cut \ud83d here"),
            "no_candidates": as_json({"candidates": [], "usageMetadata": USAGE}),
            "odd_shapes": as_json({"candidates": [{"content": [1], "finishReason": {"a": 1}}]}),
        }
