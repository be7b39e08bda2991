"""Commands that agents run at every prompt, importing only the standard library.

`expand`, `resolve`, `complete` and `resume-context` in their plain forms; other forms are click's.

`hook AGENT` is what Claude Code and Codex run at a prompt, and when a session is resumed: one JSON
object on stdin; on stdout one that adds context behind the prompt, or nothing. Whatever goes wrong
ends in silence and exit code 0: 2 would block the prompt, and any other shows the user an error
that is not theirs. A reference has 2 seconds; a question as long as a daemon that answers says.

What surprised us: both agents put the text of a hook into a file, and a preview of it into the
conversation, where it is longer than about 10000 characters; hence `_BYTES_MAX`.
"""

from __future__ import annotations

import os
import sys

from indexerd.cli import backend
from indexerd.cli.backend import App, aside, complain, project, put, safe
from indexerd.client import call_once, dumps, loads, socket_path
from indexerd.errors import IndexerdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# Each command: the parameter that is its word, and its options.
_PLAIN: dict[str, tuple[str, dict[str, str]]] = {
    "resolve": ("ref", {}),
    "complete": ("prefix", {}),
    "expand": ("text", {"--session": "sessionId", "--cwd": "cwd"}),
    "resume-context": ("session", {"--resume-id": "resumeId"}),
}
_WHY = {"over_limit": ": one reference too many", "invalid_meta": ": its meta file is invalid"}
_WHY |= {"ambiguous": " is ambiguous: "}
_NOTHING: dict[str, Any] = {"references": [], "messages": [], "message": None, "injectedBytes": 0}
_NOTHING["truncated"] = False


def attempt(argv: list[str]) -> int | None:
    """Run the command if it is one of ours in a plain form; None if it is not."""
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
    params["cwd"] = project(params.get("cwd"))
    try:
        if name == "expand":
            return expand(app, params.pop("text", "-"), params, inline=inline)
        found = app.call(name.replace("-", "_"), params, backend.QUICK)
    except IndexerdError as bad:
        return complain(bad, as_json=app.json)
    if app.json:
        put([backend.json_text(found)])
    elif name == "resume-context":
        sys.stdout.write(found["text"] or "")
    else:
        put(lines(found))
    return 0


def expand(app: App, word: str, params: Mapping[str, Any], *, inline: bool) -> int:
    """`expand`: whatever happens, the prompt is as it was, and the exit code is 0."""
    prompt = os.fsencode(word)
    if word == "-":
        prompt = sys.stdin.buffer.read() if sys.stdin is not None else b""
    found, problem = _NOTHING, None
    if b"@@" in prompt:
        text = prompt.decode("utf-8", "replace")
        try:
            found = app.call("expand", {**params, "text": text}, backend.QUICK)
        except IndexerdError as bad:
            if app.json:
                raise
            problem = bad
    if app.json:
        put([backend.json_text(found)])
        return 0
    block = "\n\n".join(one["content"] for one in found["messages"]).encode("utf-8", "replace")
    ended = not block
    if inline:
        ended = word == "-" or prompt.endswith(b"\n")
        block = b"%b\n\n---\n\n%b" % (block, prompt) if block else prompt
    sys.stdout.flush()
    sys.stdout.buffer.write(block if ended else block + b"\n")
    for line in failures(found):
        aside(f"indexerd: {line}")
    if problem is not None:
        complain(problem, as_json=False)
    return 0


def failures(found: dict[str, Any]) -> list[str]:
    """Which references did not resolve, and why, as lines for people."""
    problems: list[str] = []
    for one in found["references"]:
        raw = safe(one["raw"], 100)
        if one["status"] != "resolved":
            near = one.get("candidates", ())[:4]
            named = (f"{safe(each['name'], 60)} (@@{safe(each['sessionId'])})" for each in near)
            problems.append(
                f"{raw}{_WHY.get(one['status'], ': no such session')}{'; '.join(named)}"
            )
        problems += [f"{raw}: {safe(note)}" for note in one.get("notes", ())]
        asked = [each for each in one.get("questions", ()) if each["status"] != "answered"]
        problems += [f"{raw}: {safe(each['message'])}" for each in asked]
    return problems


def lines(found: dict[str, Any]) -> list[str]:
    """A session, or candidates of `complete`, in columns with tabs."""
    if "items" not in found:
        return [f"{safe(found['sessionId'])}\t{safe(found['name'])}"]
    rows = ((one["insert"].strip(), one["label"], one["age"]) for one in found["items"])
    return ["\t".join(map(safe, row)) for row in rows]


_REQUEST_MAX = 1024 * 1024 - 200  # bytes of params in one line, as JSON in ASCII
_BYTES_MAX = 9000  # of context
_SECONDS = 2.0
_LINES_MAX = 5  # for the user
_REST = "(cut here; get_relevant_context has the rest)\n---\n\n"
_TOO_LONG = "indexerd: this prompt is too long for references; it is sent without them"


def answer_hook(words: Sequence[str]) -> int:
    """Answer one event of an agent's; never fails."""
    try:
        data = sys.stdin.buffer.read()
        if words in (["claude"], ["codex"]):
            sys.stdout.write(_reply(words[0], data))
            sys.stdout.flush()
    except OSError:  # nobody reads, or the disk is full
        backend.discard(sys.stdout)
    except Exception:  # noqa: BLE001 - whatever it is, the user's prompt goes through
        return 0
    return 0


def _reply(agent: str, data: bytes) -> str:
    """What to print for an event; most events need nothing."""
    if b"@@" not in data and b"\\u0040" not in data and b'"resume"' not in data:
        return ""
    event = loads(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))
    name, problems = event.get("hook_event_name"), list[str]()
    if name == "UserPromptSubmit":
        context, problems = _referred(event)
    elif name == "SessionStart" and event.get("source") == "resume":
        context = _resumed(event)
    else:
        return ""
    found: dict[str, Any] = {}
    if context:
        found["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": _text(context)}
        if agent == "claude":
            found["suppressOutput"] = True
    if problems:
        found["systemMessage"] = _text("\n".join(problems))
    return dumps(found) + "\n" if found else ""


def _referred(event: dict[str, Any]) -> tuple[str, list[str]]:
    """The sessions that a prompt refers to, as context; lines for the user."""
    text = event["prompt"]
    if "@@" not in text:
        return "", []
    params: dict[str, Any] = {"text": text, "maxBytes": _BYTES_MAX}
    for ours, theirs in (("sessionId", "session_id"), ("cwd", "cwd"), ("turnId", "turn_id")):
        if isinstance(event.get(theirs), str) and event[theirs]:
            params[ours] = event[theirs]
    if len(dumps(params)) > _REQUEST_MAX:
        return "", [_TOO_LONG]
    seconds = backend.question_seconds(text, _SECONDS)
    found = call_once(socket_path(os.environ), "expand", params, seconds)
    context = "\n\n".join(one["content"] for one in found.get("messages") or ())
    return context, failures(found)[:_LINES_MAX]


def _resumed(event: dict[str, Any]) -> str:
    """The context of a session that goes on, as much as an agent shows of it."""
    import time

    # Each resume has an id of its own: the block is given once for each.
    params = {"session": event["session_id"], "resumeId": f"{os.getpid()}-{time.time_ns()}"}
    found = call_once(socket_path(os.environ), "resume_context", params, _SECONDS)
    text = found.get("text") or ""
    if len(data := text.encode("utf-8", "replace")) <= _BYTES_MAX:
        return str(text)
    head = data[: _BYTES_MAX - len(_REST) - 1].decode("utf-8", "ignore")
    end = max(head.rfind("\n"), head.rfind(", "))  # of a line or an item, if one is near
    return f"{head[:end] if end > len(head) // 2 else head}\n{_REST}"


def _text(found: str) -> str:
    """A text that every reader of JSON takes: no half of a surrogate pair."""
    return found.encode("utf-8", "replace").decode("utf-8")
