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
out. It must never be reached without that variable; a bad script is a `ConfigError`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
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

_ERRORS: dict[str, Callable[[float | None], ModelError]] = {
    "provider": lambda wish: ProviderError("scripted: down", retry_after=wish),
    "throttled": lambda wish: ProviderError(
        "scripted: slow down", retry_after=wish, throttled=True
    ),
    "denied": lambda _: ProviderDeniedError("scripted: denied"),
    "refused": lambda _: RefusedError("scripted: refused"),
    "deadline": lambda _: DeadlineError("scripted: too late"),
    "too_large": lambda _: ContextTooLargeError("scripted: too large"),
}


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
        answer = self._replies.pop(0) if self._replies else None
        return await _give(answer, prompt, self.key, timeout)

    async def aclose(self) -> None:
        """Nothing is held."""


class ScriptFile:
    """Answers by the rules of a file, and counts its calls in another."""

    def __init__(self, path: Path, key: str) -> None:
        self.key = key
        self._path = path
        self._calls = Path(f"{path}.calls")
        self.remote = all(line.get("remote", True) for line in _lines(path))

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """Record the call, then answer by the first rule that fits and is not used up."""
        answer = self._answer(prompt)
        return await _give(answer, prompt, self.key, timeout)

    async def aclose(self) -> None:
        """Nothing is held."""

    def _answer(self, prompt: Prompt) -> Answer:
        lines = _lines(self._path)
        number = self._rule(lines, prompt.user)
        self._record(lines, prompt, number)
        return None if number is None else _said(lines[number], prompt, self.key)

    def _rule(self, lines: list[dict[str, Any]], user: str) -> int | None:
        used = [call.get("rule") for call in _lines(self._calls)]
        for number, line in enumerate(lines):
            if not line.keys() - {"remote", "session"}:
                continue
            fits = re.search(line.get("match", ""), user) is not None
            if fits and used.count(number) < line.get("times", float("inf")):
                return number
        return None

    def _record(self, lines: list[dict[str, Any]], prompt: Prompt, rule: int | None) -> None:
        pattern = next((line["session"] for line in lines if "session" in line), None)
        found = re.search(pattern, prompt.user) if pattern else None
        call = {
            "t": time.time(),
            "pid": os.getpid(),
            "sha256": _sha256(prompt.user),
            "session": found[1] if found else None,
            "rule": rule,
        }
        fd = os.open(self._calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(call).encode() + b"\n")
        finally:
            os.close(fd)


def load(path: str, key: str) -> Model:
    """Open a script file as the model `key`; ConfigError if it is not one."""
    return ScriptFile(Path(path), key)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; a missing file of calls is an empty one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if path.suffix == ".calls":
            return []
        raise _bad_script(path) from None
    try:
        lines = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    except ValueError:
        raise _bad_script(path) from None
    if not all(isinstance(line, dict) and line.get("error", "denied") in _ERRORS for line in lines):
        raise _bad_script(path)
    return lines


def _bad_script(path: Path) -> ConfigError:
    where = {"file": str(path), "key": "INDEXERD_SCRIPTED"}
    return ConfigError([where | {"message": "is not a script", "hint": "write JSON lines"}])


def _said(line: dict[str, Any], prompt: Prompt, key: str) -> Answer:
    if "error" in line:
        then: str | Reply | ModelError = _ERRORS[line["error"]](line.get("retry_after"))
    else:
        made = _made_up(prompt, key)
        then = Reply(
            text=line.get("text", made.text),
            model=line.get("model", made.model),
            finish=Finish(line.get("finish", "stop")),
            tokens=Tokens(*(line.get("tokens") or ())) if "tokens" in line else made.tokens,
        )
    return Delayed(line.get("delay", 0.0), then)


async def _give(answer: Answer, prompt: Prompt, key: str, seconds: float) -> Reply:
    """Wait if told so, under the deadline as a real model would be; then answer or fail."""
    if isinstance(answer, Delayed):
        try:
            async with asyncio.timeout(seconds):
                await asyncio.sleep(answer.seconds)
        except TimeoutError:
            raise DeadlineError(f"scripted: no answer within {seconds:g} s") from None
        answer = answer.then
    if isinstance(answer, ModelError):
        raise answer
    if isinstance(answer, Reply):
        return answer
    made = _made_up(prompt, key)
    return made if answer is None else Reply(answer, made.model, tokens=made.tokens)


# --- answers made up --------------------------------------------------------------------------


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
    schema = _resolved(schema, root)
    kind = schema.get("type")
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        inner = schema.get("properties", {})
        return {name: _sample(one, root, name, seed) for name, one in inner.items()}
    if kind == "array":
        count = max(schema.get("minItems", 1), 1)
        items = schema.get("items", {"type": "string"})
        return [_sample(items, root, f"{word}-{n + 1}", seed) for n in range(count)]
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    if kind == "boolean":
        return False
    text = f"Scripted {word} {seed}"
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Follow one `$ref`, and the first of several forms, as pydantic writes them."""
    for choice in schema.get("anyOf", ()):
        return _resolved(choice, root)
    if "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return _resolved(found, root)
    return schema


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
