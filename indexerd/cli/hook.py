"""What agents' hooks call, on the standard library alone: no click, no pydantic.

And the daemon's own start, as a service manager asks for it.

Only the plain forms are taken here, and only while a daemon answers; for anything else the
answer is None, and the full command line takes over with the same meaning. `hook` is an agent's
own call: it is never anything else's business, and silent whatever happens.

`indexerd hook AGENT`: what Claude Code and Codex run at a prompt, and when a session is resumed.

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

from indexerd.cli.streams import aside, json_text, put, safe
from indexerd.client import call_once
from indexerd.errors import AccessError, DaemonDownError, IndexerdError
from indexerd.sockets import socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

TIMEOUT_SECONDS = 10.0
_CANDIDATES = 4  # that are named
_WHY = {"over_limit": "one reference too many", "invalid_meta": "its meta file is invalid"}
_COMMANDS = frozenset({"resolve", "complete", "expand", "resume-context"})
_VALUED = {
    "expand": {"--session": "sessionId", "--cwd": "cwd"},
    "resume-context": {"--resume-id": "resumeId"},
}
NOTHING: dict[str, Any] = {
    "references": [],
    "messages": [],
    "message": None,
    "injectedBytes": 0,
    "truncated": False,
}


def attempt(argv: list[str]) -> int | None:
    """Run the command if it is one of ours in a plain form; None if it is not."""
    code = _without_daemon(argv)
    if code is not None:
        return code
    asked = _read(argv)
    if asked is None:
        return None
    name, words, options = asked
    as_json = bool(options.pop("--json", False))
    try:
        if name == "expand":
            inline = bool(options.pop("--inline", False))
            return _expand(words, options, inline=inline, as_json=as_json)
        return _ask(name, words, options, as_json=as_json)
    except DaemonDownError:
        return None
    except IndexerdError as bad:
        return complain(bad, as_json=as_json)


def _without_daemon(argv: list[str]) -> int | None:
    """Run a command that is not answered by a daemon, if it is such a one."""
    if argv[:1] == ["hook"] or argv[:2] == ["--json", "hook"]:
        return answer_hook(argv[1:])
    if argv == ["run"]:
        return _serve()
    if argv == ["--version"]:
        return _version()
    return None


def _serve() -> int:
    """`run`: the daemon, with the errors of the full command line."""
    from indexerd.cli.run import serve

    return ended(serve, as_json=False)


def _version() -> int:
    """`--version`, in the words that click has for it."""
    from indexerd import __version__

    put([f"indexerd, version {__version__}"])
    return 0


def _read(argv: list[str]) -> tuple[str, list[str], dict[str, Any]] | None:
    """Command, words and options of a plain command line of ours; None for any other."""
    before = argv[:1] == ["--json"]
    name = argv[before] if len(argv) > before else ""
    valued = _VALUED.get(name, {})
    read = _options(argv[before + 1 :], valued) if name in _COMMANDS else None
    if read is None:
        return None
    words, options = read
    if ("--inline" in options and name != "expand") or len(words) > 1:
        return None
    if not words and name not in ("complete", "expand"):
        return None
    return name, words, options | ({"--json": True} if before else {})


def _options(
    words: Sequence[str], valued: dict[str, str]
) -> tuple[list[str], dict[str, Any]] | None:
    """Words and options of a plain command line; None where there is anything else in it."""
    plain: list[str] = []
    options: dict[str, Any] = {}
    waiting = iter(words)
    for word in waiting:
        if word in ("--json", "--inline"):
            options[word] = True
        elif word in valued:
            value = next(waiting, None)
            if value is None:
                return None
            options[valued[word]] = value
        elif word.startswith("-") and word != "-":
            return None
        else:
            plain.append(word)
    return plain, options


def _ask(name: str, words: list[str], options: dict[str, Any], *, as_json: bool) -> int:
    """`resolve`, `complete` and `resume-context`."""
    key = {"resolve": "ref", "complete": "prefix", "resume-context": "session"}[name]
    params = {key: words[0] if words else "", **here(), **options}
    found = call_once(socket_path(os.environ), name.replace("-", "_"), params, TIMEOUT_SECONDS)
    if as_json:
        put([json_text(found)])
    elif name == "resume-context":
        sys.stdout.write(found["text"] or "")
    else:
        put(lines(found))
    return 0


def _expand(words: list[str], options: dict[str, Any], *, inline: bool, as_json: bool) -> int:
    """`expand`: whatever happens, the prompt is as it was, and the exit code is 0."""
    prompt = prompt_of(words[0] if words else "-")
    where = here(options.pop("cwd", ""))
    params = {"text": prompt.decode("utf-8", "replace"), **where, **options}
    found, problem = NOTHING, None
    if b"@@" in prompt:
        try:
            found = expanded(socket_path(os.environ), params)
        except DaemonDownError:  # stdin cannot be read once more: the full command gets the prompt
            from indexerd.cli.ask import without_daemon

            found = without_daemon(params)
        except IndexerdError as bad:
            problem = bad
    if problem is not None and as_json:
        return complain(problem, as_json=True)
    show_expanded(found, prompt, inline=inline, as_json=as_json, exact=words[:1] in ([], ["-"]))
    if problem is not None:
        complain(problem, as_json=False)
    return 0


def expanded(socket: str, params: dict[str, Any]) -> dict[str, Any]:
    """Ask the daemon: soon, or where there may be a question, as long as a model may take."""
    seconds = TIMEOUT_SECONDS
    after = params["text"].partition("@@")[2]
    if "?" in after or not after.isascii():
        said = call_once(socket, "hello", {}, TIMEOUT_SECONDS).get("settings") or {}
        seconds += float(said.get("queryTimeoutSeconds") or 0)
    found: dict[str, Any] = call_once(socket, "expand", params, seconds)
    return found


def prompt_of(word: str) -> bytes:
    """The prompt to expand: the word itself, or with `-` what stands on stdin, to the byte."""
    if word != "-":
        return os.fsencode(word)
    return sys.stdin.buffer.read() if sys.stdin is not None else b""


def here(named: str = "") -> dict[str, str]:
    """The directory that is named, or the current one, as a parameter."""
    try:
        return {"cwd": os.path.abspath(named) if named else os.getcwd()}  # noqa: PTH100, PTH109 - pathlib costs its import
    except OSError:  # removed under our feet: all projects are meant
        return {}


def show_expanded(
    found: dict[str, Any], prompt: bytes, *, inline: bool, as_json: bool, exact: bool
) -> None:
    """Print what `expand` found: the block, or block and prompt; what failed goes to stderr.

    An `exact` prompt ends as it came; else a line's end is seen to.
    """
    if as_json:
        put([json_text(found)])
        return
    block = "\n\n".join(one["content"] for one in found["messages"]).encode("utf-8", "replace")
    if inline:
        block = b"%b\n\n---\n\n%b" % (block, prompt) if block else prompt
        ended = exact or prompt.endswith(b"\n")
    else:
        ended = not block
    sys.stdout.flush()
    sys.stdout.buffer.write(block if ended else block + b"\n")
    for line in failures(found):
        aside(f"indexerd: {line}")


def failures(found: dict[str, Any]) -> list[str]:
    """What did not resolve, and why: lines for people."""
    told: list[str] = []
    for one in found["references"]:
        raw, status = safe(one["raw"], 100), one["status"]
        if status == "ambiguous":
            near = [
                f"{safe(each['name'], 60)} (@@{safe(each['sessionId'])})"
                for each in one.get("candidates", ())[:_CANDIDATES]
            ]
            told.append(f"{raw} is ambiguous: {'; '.join(near)}")
        elif status != "resolved":
            told.append(f"{raw}: {_WHY.get(status, 'no such session')}")
        told += [f"{raw}: {safe(note)}" for note in one.get("notes", ())]
        asked = [each for each in one.get("questions", ()) if each["status"] != "answered"]
        told += [f"{raw}: {safe(each['message'])}" for each in asked]
    return told


def lines(found: dict[str, Any]) -> list[str]:
    """What `resolve` and `complete` print for people and simple scripts: columns with tabs."""
    rows: list[tuple[str, ...]]
    if "items" in found:
        rows = [(one["insert"].strip(), one["label"], one["age"]) for one in found["items"]]
    else:
        rows = [(found["sessionId"], found["name"])]
    return ["\t".join(safe(cell) for cell in row) for row in rows]


def ended(work: Callable[[], object], *, as_json: bool) -> int:
    """Run a command; its exit code, or that of the error that it ended with."""
    try:
        code = work()
    except IndexerdError as bad:
        return complain(bad, as_json=as_json)
    except PermissionError as bad:
        return complain(AccessError(f"{bad.filename}: {bad.strerror}"), as_json=as_json)
    return code if isinstance(code, int) else 0


def complain(bad: IndexerdError, *, as_json: bool) -> int:
    """Say what went wrong, where the contract wants it; returns the exit code."""
    told: dict[str, Any] = {
        "code": bad.kind,
        "message": str(bad),
        "hint": bad.hint,
        "retryable": bad.retryable,
    }
    candidates = getattr(bad, "candidates", None)
    more = {
        "candidates": candidates,
        "problems": getattr(bad, "problems", None),
        "upstream": bad.upstream,
    }
    told |= {key: value for key, value in more.items() if value}
    if as_json:
        put([json_text({"error": told})])
    else:
        aside(f"indexerd: {safe(bad, 2000)}")
        for one in candidates or ():
            aside(f"  {safe(one.get('sessionId'))}  {safe(one.get('name'))}")
        aside(f"hint: {safe(bad.hint)}")
    return bad.exit_code


# -- hooks of agents -----------------------------------------------------------------------

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


def answer_hook(words: Sequence[str]) -> int:
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
    found = _asked("expand", params, seconds)
    said = [one["content"] for one in found.get("messages") or ()]
    told = failures(found)
    return _text("\n\n".join(said)), [_text(line) for line in told[:_TOLD_MAX]]


def _resumed(event: dict[str, Any]) -> str:
    """The context of a session that goes on; each resume has an id of its own."""
    import time

    resume = f"{os.getpid()}-{time.time_ns()}"
    params = {"session": event["session_id"], "resumeId": resume}
    return _cut(_text(_asked("resume_context", params, _SECONDS).get("text") or ""))


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
    said = _asked("hello", {}, _SECONDS).get("settings") or {}
    return float(said.get("queryTimeoutSeconds") or _QUESTION_SECONDS) + _MORE_SECONDS


def _asked(method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
    from indexerd.client import call_once
    from indexerd.sockets import socket_path

    found = call_once(socket_path(os.environ), method, params, seconds)
    return found if isinstance(found, dict) else {}


def _text(found: str) -> str:
    """A text that every reader of JSON takes: no half of a surrogate pair."""
    return found.encode("utf-8", "replace").decode("utf-8")
