r"""The fake model that ships: it says what a test wrote down, and records what it was asked.

In a test: `Scripted(["text", ProviderError("down"), Delayed(0.2, "late")])` answers in that
order and keeps every prompt in `calls`; after the last answer, and for None, it makes one up
from the prompt's hash and schema, always the same for the same prompt.

Across processes: `INDEXERD_SCRIPTED` names a file of JSON lines, read anew at every call. Each
call first appends `{"t", "pid", "sha256", "session", "rule"}` to `<file>.calls` (one write,
O_APPEND), so that calls can be counted over kill -9; then the first line that fits answers:

    {"remote": false}                      the whole script: calls do not leave the machine
    {"session": "Session: (\\S+)"}          the whole script: group 1 in the prompt is "session"
    {"match": "REGEX", "times": 2, "delay": 0.5, "error": "provider", "retry_after": 30}
    {"text": "…", "finish": "length", "model": "other", "tokens": [120, 30]}

`match` is searched in the user prompt (absent: fits all), `times` counts over all processes,
`error` is one of `provider throttled denied refused deadline too_large`. Every key may be left
out. A bad script is a `ConfigError`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexerd.errors import (
    ConfigError,
    ContextTooLargeError,
    DeadlineError,
    ModelError,
    ProviderDeniedError,
    ProviderError,
    RefusedError,
)
from indexerd.models.base import Finish, Model, Prompt, Reply, Tokens


@dataclass(frozen=True, slots=True)
class Delayed:
    """An answer that takes its time, in seconds."""

    seconds: float
    then: str | Reply | ModelError | None = None


Answer = str | Reply | ModelError | Delayed | None


class Scripted:
    """Answers from a list, in order."""

    def __init__(
        self, replies: Sequence[Answer] = (), *, key: str = "scripted/list", remote: bool = True
    ) -> None:
        self.key = key
        self.remote = remote
        self.calls: list[Prompt] = []
        self._replies = list(replies)

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Give the next answer."""
        self.calls.append(prompt)
        answer = self._next(prompt)
        if isinstance(answer, Delayed):
            try:
                async with asyncio.timeout(timeout):
                    await asyncio.sleep(answer.seconds)
            except TimeoutError:
                raise DeadlineError(f"scripted: no answer within {timeout:g} s") from None
            answer = answer.then
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Reply):
            return answer
        made = _made_up(prompt, self.key)
        return made if answer is None else Reply(answer, made.model, tokens=made.tokens)

    async def aclose(self) -> None:
        """Nothing is held."""

    def _next(self, prompt: Prompt) -> Answer:
        del prompt
        return self._replies.pop(0) if self._replies else None


class ScriptFile(Scripted):
    """Answers by the rules of a file, and counts its calls in another."""

    def __init__(self, path: Path, key: str) -> None:
        remote = all(line.get("remote", True) for line in _lines(path))
        super().__init__(key=key, remote=remote)
        self._path = path
        self._record = Path(f"{path}.calls")

    def _next(self, prompt: Prompt) -> Answer:
        """Record the call, then answer by the first rule that fits and is not used up."""
        self.calls.clear()
        lines = _lines(self._path)
        used = [call.get("rule") for call in _lines(self._record)] if self._record.exists() else []
        rule = next(
            (
                at
                for at, line in enumerate(lines)
                if line.keys() - {"remote", "session"}
                and re.search(line.get("match", ""), prompt.user)
                and used.count(at) < line.get("times", float("inf"))
            ),
            None,
        )
        pattern = next((line["session"] for line in lines if "session" in line), "(?!)")
        found = re.search(pattern, prompt.user)
        call = {"t": time.time(), "pid": os.getpid(), "sha256": _sha256(prompt.user)}
        call |= {"session": found[1] if found else None, "rule": rule}
        fd = os.open(self._record, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(call).encode() + b"\n")
        finally:
            os.close(fd)
        return None if rule is None else _said(lines[rule], prompt, self.key)


def load(path: str, key: str) -> Model:
    """Open a script file as the model `key`; ConfigError if it is not one."""
    return ScriptFile(Path(path), key)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
        if all(_failure(line) or "error" not in line for line in lines):
            return lines
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        pass
    where = {"file": str(path), "key": "INDEXERD_SCRIPTED"}
    raise ConfigError([where | {"message": "is not a script", "hint": "write JSON lines"}])


def _failure(line: dict[str, Any]) -> ModelError | None:
    wish = line.get("retry_after")
    return {
        "provider": ProviderError("scripted: down", retry_after=wish),
        "throttled": ProviderError("scripted: slow down", retry_after=wish, throttled=True),
        "denied": ProviderDeniedError("scripted: denied"),
        "refused": RefusedError("scripted: refused"),
        "deadline": DeadlineError("scripted: too late"),
        "too_large": ContextTooLargeError("scripted: too large"),
    }.get(line.get("error", ""))


def _said(line: dict[str, Any], prompt: Prompt, key: str) -> Answer:
    made = _made_up(prompt, key)
    reply = Reply(
        text=line.get("text", made.text),
        model=line.get("model", made.model),
        finish=Finish(line.get("finish", "stop")),
        tokens=Tokens(*line["tokens"]) if "tokens" in line else made.tokens,
    )
    return Delayed(line.get("delay", 0.0), _failure(line) or reply)


def _made_up(prompt: Prompt, key: str) -> Reply:
    """Answer from the prompt's hash: valid for its schema, and the same every time."""
    seed = _sha256(prompt.user)[:12]
    text = f"Scripted answer {seed}."
    if prompt.schema is not None:
        text = json.dumps(_sample(prompt.schema, prompt.schema, "answer", seed))
    sizes = len(prompt.system) + len(prompt.user), len(text)
    return Reply(text, key.partition("/")[2], tokens=Tokens(*(size // 4 + 1 for size in sizes)))


def _sample(schema: dict[str, Any], root: dict[str, Any], word: str, seed: str) -> Any:
    """Make a value of a JSON schema of the plain kind that models are given."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        inner = schema.get("properties", {})
        return {name: _sample(one, root, name, seed) for name, one in inner.items()}
    if schema.get("type") == "array":
        items = range(max(schema.get("minItems", 1), 1))
        return [_sample(schema["items"], root, f"{word}-{n + 1}", seed) for n in items]
    text = f"Scripted {word} {seed}"
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
