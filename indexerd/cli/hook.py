"""Commands that agents run at every prompt, importing only the standard library.

`expand`, `resolve`, `complete` and `resume-context` with few options; click handles the rest.

Claude Code and Codex run `hook AGENT` at a prompt and when a session is resumed: it reads a JSON
object and prints one that adds context after the prompt, or nothing. Every failure is silent, with
exit code 0: 2 would block the prompt, and any other would show the user an error. References may
take 2 seconds, questions as long as the daemon says.

Pitfalls: if a hook prints more than about 10000 characters, both agents put the text into a file
and only a preview of it into the conversation; hence `_BYTES_MAX`.
"""

from __future__ import annotations

import os
import sys

from indexerd.cli import backend
from indexerd.cli.backend import App, aside, complain, json_text, project, put, safe
from indexerd.client import call_once, dumps, loads, socket_path
from indexerd.errors import IndexerdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# For each command: the param for its argument, and the params for its options.
_PLAIN: dict[str, tuple[str, dict[str, str]]] = {
    "resolve": ("ref", {}),
    "complete": ("prefix", {}),
    "expand": ("text", {"--session": "sessionId", "--cwd": "cwd"}),
    "resume-context": ("session", {"--resume-id": "resumeId"}),
}

_BYTES_MAX = 9000  # of context
_SECONDS = 2.0


def attempt(argv: list[str]) -> int | None:
    """Run a command of this module; None: click must handle these arguments."""
    if argv[:1] == ["hook"]:
        return answer_hook(argv[1:])
    name, *rest = [word for word in argv if word != "--json"] or [""]
    key, options = _PLAIN.get(name, ("", {}))
    params: dict[str, Any] = {}
    inline, words = False, iter(rest)
    for word in words:
        if word == "--inline" and name == "expand":
            inline = True
        elif word in options:
            params[options[word]] = next(words, None)
        elif (word.startswith("-") and word != "-") or key in params:
            return None
        else:
            params[key] = word
    if not key or None in params.values() or (name.startswith("res") and key not in params):
        return None
    app = App(json="--json" in argv)
    params["cwd"] = project(params.get("cwd", "."))
    try:
        if name == "expand":
            return expand(app, params.pop("text", "-"), params, inline=inline)
        answer = app.call(name.replace("-", "_"), params, backend.QUICK)
        put([json_text(answer)] if app.json else lines(answer))
    except IndexerdError as bad:
        return complain(bad, as_json=app.json)
    return 0


def expand(app: App, word: str, params: dict[str, Any], *, inline: bool) -> int:
    """Print the block for a prompt's references; without --json the exit code is always 0."""
    prompt = os.fsencode(word)
    if word == "-":
        prompt = sys.stdin.buffer.read() if sys.stdin is not None else b""
    params["text"] = prompt.decode("utf-8", "replace")
    if app.json:
        put([json_text(app.call("expand", params, backend.QUICK))])
        return 0
    answer: dict[str, Any] = {}
    try:
        answer = app.call("expand", params, backend.QUICK) if b"@@" in prompt else {}
    except IndexerdError as bad:
        complain(bad, as_json=False)
    block = _block(answer).encode("utf-8", "replace")
    if inline:
        block = block + b"\n\n---\n\n" + prompt if block else prompt
    sys.stdout.buffer.write(block + b"\n" if block and not (inline and word == "-") else block)
    for line in answer.get("failures", ()):
        aside(f"indexerd: {safe(line)}")
    return 0


def _block(answer: dict[str, Any]) -> str:
    return "\n\n".join(message["content"] for message in answer.get("messages") or ())


def lines(answer: dict[str, Any]) -> list[str]:
    """Write the lines for the answer of `resolve`, `complete` or `resume_context`."""
    if "text" in answer:
        return [answer["text"].removesuffix("\n")] if answer["text"] else []
    if "items" not in answer:
        return [f"{safe(answer['sessionId'])}\t{safe(answer['name'])}"]
    rows = ((item["insert"].strip(), item["label"], item["age"]) for item in answer["items"])
    return ["\t".join(map(safe, row)) for row in rows]


def answer_hook(words: Sequence[str]) -> int:
    """Answer one event of an agent; never fails."""
    try:
        data = sys.stdin.buffer.read()
        if words in (["claude"], ["codex"]):
            sys.stdout.write(_reply(words[0], data))
            sys.stdout.flush()
    except Exception:  # noqa: BLE001 - nothing may hold up the user's prompt
        backend.discard(sys.stdout)
    return 0


def _reply(agent: str, data: bytes) -> str:
    """Return the output for an event; for most it is empty."""
    event = loads(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))
    name, context, problems = event.get("hook_event_name"), "", list[str]()
    if name == "UserPromptSubmit" and "@@" in event["prompt"]:
        context, problems = _referred(event)
    elif name == "SessionStart" and event.get("source") == "resume":
        import time

        # Each resume has its own id, so that each gets the block once.
        params = {"session": event["session_id"], "resumeId": f"{os.getpid()}-{time.time_ns()}"}
        resumed = call_once(socket_path(os.environ), "resume_context", params, _SECONDS)
        context = resumed.get("text") or ""
    output: dict[str, Any] = {}
    if context:
        output["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": context}
        if agent == "claude":
            output["suppressOutput"] = True
    if problems:
        output["systemMessage"] = "\n".join(problems)
    return dumps(output) + "\n" if output else ""


def _referred(event: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the context for a prompt's references, and the failures to show the user."""
    text = event["prompt"]
    params: dict[str, Any] = {"text": text, "maxBytes": _BYTES_MAX}
    for ours, theirs in (("sessionId", "session_id"), ("cwd", "cwd"), ("turnId", "turn_id")):
        if isinstance(event.get(theirs), str) and event[theirs]:
            params[ours] = event[theirs]
    seconds = backend.question_seconds(text, _SECONDS)
    answer = call_once(socket_path(os.environ), "expand", params, seconds)
    return _block(answer), answer.get("failures", [])
