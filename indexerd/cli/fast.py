"""Commands that agents' hooks call, on the standard library alone: no click, no pydantic.

And the daemon's own start, as a service manager asks for it.

Only the plain forms are taken here, and only while a daemon answers; for anything else the
answer is None, and the full command line takes over with the same meaning. `hook` is an agent's
own call: it is never anything else's business, and silent whatever happens.
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
        from indexerd.cli.hook import run

        return run(argv[1:])
    if argv == ["run"]:
        return _serve()
    if argv == ["--version"]:
        return _version()
    return None


def _serve() -> int:
    """`run`: the daemon, with the errors of the full command line."""
    from indexerd.cli.serve import serve

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
            from indexerd.cli.expand import without_daemon

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
