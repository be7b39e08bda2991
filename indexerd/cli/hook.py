"""`indexerd hook AGENT`: what Claude Code and Codex run at a prompt, and when a session is resumed.

In: one JSON object on stdin, as the agent's hooks get it. Out: one JSON object on stdout that adds
context behind the user's prompt, or nothing. The exit code is 0, always: 2 would block a prompt,
and any other shows the user an error that is not theirs.

Whatever goes wrong here (no daemon, a slow one, words that nobody understands, an agent that has
no such hooks) ends in silence. Only of a prompt that is too long for us is its user told.
A prompt without `@@` is not even parsed; nothing is imported for it. One with a reference has
2 seconds, one with a question as long as the daemon may take for it and 5 seconds more, but only
once a daemon has answered at all.

What surprised us: both agents put the text of a hook into a file, and a preview of it into the
conversation, where it is longer than about 10000 characters; hence `_BYTES_MAX`. What could not
be written stays in Python's buffer, and fails once more when Python ends.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_AGENTS = ("claude", "codex")
_INPUT_MAX = 4 * 1024 * 1024
_CHUNK = 1024 * 1024
_CHUNKS_MAX = 256  # of a larger input, which is read so that the agent can write it, and dropped
_REQUEST_MAX = 1024 * 1024 - 200  # bytes of params in one line, as JSON in ASCII
_BYTES_MAX = 9000  # of context
_SECONDS = 2.0
_QUESTION_SECONDS = 30.0  # where the daemon does not say how long it takes at most
_MORE_SECONDS = 5.0
_TOLD_MAX = 5  # lines for the user
_REST = "(cut here; get_relevant_context has the rest)\n---\n\n"
_TOO_LONG = "indexerd: this prompt is too long for references; it goes through without them"


def run(words: Sequence[str]) -> int:
    """Answer one event of an agent's; never fails, and never says a word too many."""
    try:
        held = _input()
        said = _answer(words[0], held) if len(words) == 1 and words[0] in _AGENTS else ""
        if said:
            sys.stdout.write(said + "\n")
            sys.stdout.flush()
    except OSError:  # nobody reads, or the disk is full: what is still held goes nowhere
        from indexerd.cli.streams import drop_output

        drop_output()
    except Exception:  # noqa: BLE001 - whatever it is, the user's prompt goes through
        return 0
    return 0


def _input() -> bytes:
    held = sys.stdin.buffer.read(_INPUT_MAX + 1)
    if len(held) > _INPUT_MAX:
        for _ in range(_CHUNKS_MAX):
            if not sys.stdin.buffer.read(_CHUNK):
                break
    return held


def _answer(agent: str, held: bytes) -> str:
    """What to print for an event; most have nothing to do with us."""
    if b"@@" not in held and b"\\u0040" not in held and b'"resume"' not in held:
        return ""
    from indexerd.client import dumps, loads  # `json` costs as much as starting Python

    text = held.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    if len(held) > _INPUT_MAX:  # of which we have no more
        there = '"UserPromptSubmit"' in text and _refers(text)
        return dumps({"systemMessage": _TOO_LONG}) if there else ""
    event = loads(text)
    if not isinstance(event, dict):
        return ""
    name = event.get("hook_event_name")
    if name == "UserPromptSubmit":
        context, told = _referred(event)
    elif name == "SessionStart" and event.get("source") == "resume":
        context, told = _resumed(event), []
    else:
        return ""
    found: dict[str, Any] = {}
    if context:
        found["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": context}
        if agent == "claude":
            found["suppressOutput"] = True
    if told:
        found["systemMessage"] = "\n".join(told)
    return dumps(found) if found else ""


def _referred(event: dict[str, Any]) -> tuple[str, list[str]]:
    """What the sessions are about that a prompt refers to; lines for the user."""
    text = event.get("prompt")
    if not isinstance(text, str) or "@@" not in text:
        return "", []
    params: dict[str, Any] = {"text": text, "maxBytes": _BYTES_MAX}
    for ours, theirs in (("sessionId", "session_id"), ("cwd", "cwd"), ("turnId", "turn_id")):
        if isinstance(event.get(theirs), str) and event[theirs]:
            params[ours] = event[theirs]
    if _is_too_long(params):
        return "", [_TOO_LONG] if _refers(text) else []
    seconds = _patience() if ":" in text.partition("@@")[2] else _SECONDS
    found = _ask("expand", params, seconds)
    said = [one["content"] for one in found.get("messages") or ()]
    from indexerd.cli.fast import failures  # it is loaded already

    told = failures(found)
    return _text("\n\n".join(said)), [_text(line) for line in told[:_TOLD_MAX]]


def _resumed(event: dict[str, Any]) -> str:
    """The context of a session that goes on; each resume has an id of its own."""
    import time

    resume = f"{os.getpid()}-{time.time_ns()}"
    params = {"session": event["session_id"], "resumeId": resume}
    return _cut(_text(_ask("resume_context", params, _SECONDS).get("text") or ""))


def _cut(text: str) -> str:
    """As much of a block as an agent shows: to the end of a line or of an item, if one is near."""
    held = text.encode()
    if len(held) <= _BYTES_MAX:
        return text
    head = held[: _BYTES_MAX - len(_REST) - 1].decode("utf-8", "ignore")
    end = max(head.rfind("\n"), head.rfind(", "))
    return f"{head[:end] if end > len(head) // 2 else head}\n{_REST}"


def _is_too_long(params: dict[str, Any]) -> bool:
    """Whether a request with these does not fit into a line of the socket's."""
    from indexerd.client import dumps

    return len(dumps(params)) > _REQUEST_MAX


def _refers(text: str) -> bool:
    """Whether there is a reference, and not only a diff, in a prompt that the daemon cannot get."""
    from indexerd.references.parse import find

    return bool(find(text))


def _patience() -> float:
    """How long an answer to a question may take, from a daemon that answers at once."""
    said = _ask("hello", {}, _SECONDS).get("settings") or {}
    return float(said.get("queryTimeoutSeconds") or _QUESTION_SECONDS) + _MORE_SECONDS


def _ask(method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
    from indexerd.client import call_once
    from indexerd.sockets import socket_path

    found = call_once(socket_path(os.environ), method, params, seconds)
    return found if isinstance(found, dict) else {}


def _text(found: str) -> str:
    """A text that every reader of JSON takes: no half of a surrogate pair."""
    return found.encode("utf-8", "replace").decode("utf-8")
