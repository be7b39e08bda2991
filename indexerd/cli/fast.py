"""Commands that agents' hooks call, on the standard library alone: no click, no pydantic.

Only the plain forms are taken here, and only while a daemon answers; for anything else the
answer is None, and the full command line takes over with the same meaning.
"""

from __future__ import annotations

import os
import sys

from indexerd.cli.streams import json_text, put, safe
from indexerd.client import call_once
from indexerd.errors import DaemonDownError, IndexerdError
from indexerd.paths import places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIMEOUT_SECONDS = 10.0
_COMMANDS = frozenset({"resolve", "complete"})


def attempt(argv: list[str]) -> int | None:
    """Run the command if it is one of ours in a plain form; None if it is not."""
    plain = [word for word in argv if word != "--json"]
    if not plain or plain[0] not in _COMMANDS or any(word.startswith("-") for word in plain):
        return None
    if len(plain) > 2 or (plain[0] == "resolve" and len(plain) != 2):  # noqa: PLR2004 - command, word
        return None
    as_json = len(plain) < len(argv)
    word = plain[1] if len(plain) > 1 else ""
    params = {("ref" if plain[0] == "resolve" else "prefix"): word} | _here()
    try:
        found = call_once(places().socket, plain[0], params, TIMEOUT_SECONDS)
    except DaemonDownError:
        return None
    except IndexerdError as bad:
        return complain(bad, as_json=as_json)
    put([json_text(found)] if as_json else lines(found))
    return 0


def _here() -> dict[str, str]:
    try:
        return {"cwd": os.getcwd()}  # noqa: PTH109 - pathlib costs its import
    except OSError:  # removed under our feet: all projects are meant
        return {}


def lines(found: dict[str, Any]) -> list[str]:
    """What `resolve` and `complete` print for people and simple scripts: columns with tabs."""
    rows: list[tuple[str, ...]]
    if "items" in found:
        rows = [(one["insert"].strip(), one["label"], one["age"]) for one in found["items"]]
    else:
        rows = [(found["sessionId"], found["name"])]
    return ["\t".join(safe(cell) for cell in row) for row in rows]


def complain(bad: IndexerdError, *, as_json: bool) -> int:
    """Say what went wrong, where the contract wants it; returns the exit code."""
    told: dict[str, Any] = {
        "code": bad.kind,
        "message": str(bad),
        "hint": bad.hint,
        "retryable": bad.retryable,
    }
    candidates = getattr(bad, "candidates", None)
    more = {"candidates": candidates, "problems": getattr(bad, "problems", None)}
    told |= {key: value for key, value in more.items() if value}
    if as_json:
        put([json_text({"error": told})])
    else:
        sys.stderr.write(f"indexerd: {safe(bad, 2000)}\n")
        for one in candidates or ():
            sys.stderr.write(f"  {safe(one.get('sessionId'))}  {safe(one.get('name'))}\n")
        sys.stderr.write(f"hint: {safe(bad.hint)}\n")
    return bad.exit_code
