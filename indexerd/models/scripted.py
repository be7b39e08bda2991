r"""The fake model for tests, shipped with the program: scripted answers, counted calls.

`INDEXERD_SCRIPTED` names a file of JSON lines, read at every call. Each call first appends
`{"t", "pid", "sha256", "session", "rule"}` to `<file>.calls`, so that calls are counted even over
kill -9; then the first matching line answers:

    {"remote": false}                      the whole script: calls do not leave the machine
    {"session": "Session: (\\S+)"}          the whole script: group 1 in the prompt is "session"
    {"match": "REGEX", "times": 2, "delay": 0.5, "error": "provider", "retry_after": 30}
    {"text": "…", "finish": "length", "model": "other", "tokens": [120, 30]}

`match` is searched in the user prompt (absent: matches all), `times` counts over all processes,
`error` is one of `provider throttled denied refused deadline too_large`. Every key is optional. If
no line matches, the answer is made from the prompt's hash and schema. A bad script: `ConfigError`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexerd.disk import append_line
from indexerd.entries import Prompt
from indexerd.errors import (
    ConfigError,
    ContextTooLargeError,
    DeadlineError,
    ModelError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.models.base import Reply, TokenCounts


class Scripted:
    """Answers by the rules in a file, and counts its calls in another."""

    def __init__(self, script: str, key: str) -> None:
        self.key = key
        self._path = Path(script)
        self.remote = all(line.get("remote", True) for line in _lines(self._path))

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Record the call, then answer by the first matching rule."""
        rule = self._record(prompt)
        reply = made_up(prompt, self.key)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(rule.get("delay", 0.0))
        except TimeoutError:
            raise DeadlineError(f"scripted: no answer within {timeout:g} s") from None
        if "error" in rule:
            raise _FAILURES[rule["error"]](rule.get("retry_after"))
        return Reply(
            text=rule.get("text", reply.text),
            model=rule.get("model", reply.model),
            cut=rule.get("finish") == "length",
            tokens=TokenCounts(*rule["tokens"]) if "tokens" in rule else reply.tokens,
        )

    def _record(self, prompt: Prompt) -> dict[str, Any]:
        lines, record = _lines(self._path), Path(f"{self._path}.calls")
        used = [call.get("rule") for call in _lines(record)] if record.exists() else []
        rule = session = None
        for at, line in enumerate(lines):
            if "session" in line and (match := re.search(line["session"], prompt.user)):
                session = match[1]
            fits = line.keys() - {"remote", "session"} and re.search(
                line.get("match", ""), prompt.user
            )
            if rule is None and fits and used.count(at) < line.get("times", float("inf")):
                rule = at
        call = {"t": time.time(), "pid": os.getpid(), "sha256": _sha256(prompt.user)}
        call |= {"session": session, "rule": rule}
        append_line(record, json.dumps(call).encode(), durable=False)
        return {} if rule is None else lines[rule]


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
    except (OSError, ValueError):
        where = {"file": str(path), "key": "INDEXERD_SCRIPTED", "hint": "write JSON lines"}
        raise ConfigError([where | {"message": "is not a script"}]) from None


_FAILURES: dict[str, Callable[[float | None], ModelError]] = {
    "provider": lambda wish: ProviderError("scripted: down", retry_after=wish),
    "throttled": lambda wish: ProviderError("slow down", retry_after=wish, throttled=True),
    "denied": lambda _: ProviderDeniedError("scripted: denied"),
    "refused": lambda _: RefusedError("scripted: refused"),
    "deadline": lambda _: DeadlineError("scripted: too late"),
    "too_large": lambda _: ContextTooLargeError("scripted: too large"),
}


def made_up(prompt: Prompt, key: str) -> Reply:
    """Make an answer from the prompt's hash: valid for its schema, and the same every time."""
    seed = _sha256(prompt.user)[:12]
    text = f"Scripted answer {seed}."
    if prompt.schema is not None:
        text = json.dumps(_sample(prompt.schema, "answer", seed))
    asked, answered = len(prompt.system) + len(prompt.user), len(text)
    counts = TokenCounts(asked // 4 + 1, answered // 4 + 1)
    return Reply(text, key.partition("/")[2], tokens=counts)


def _sample(schema: dict[str, Any], name: str, seed: str) -> Any:
    """Make a value for a part of a schema; only simple schemas are supported."""
    if schema.get("type") == "object":
        return {key: _sample(part, key, seed) for key, part in schema["properties"].items()}
    if schema.get("type") == "array":
        count = schema.get("minItems", 0)
        return [_sample(schema["items"], f"{name}-{n + 1}", seed) for n in range(count)]
    return schema["enum"][0] if "enum" in schema else f"Scripted {name} {seed}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
