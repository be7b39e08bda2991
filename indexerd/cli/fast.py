"""Commands that agents' hooks call, on the standard library alone: no click, no pydantic.

Only the plain forms are taken here, and only while a daemon answers; for anything else the
answer is None, and the full command line takes over with the same meaning.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from indexerd.client import call_once
from indexerd.errors import DaemonDownError, IndexerdError
from indexerd.paths import places

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
    params = {"cwd": os.getcwd(), ("ref" if plain[0] == "resolve" else "prefix"): word}  # noqa: PTH109 - pathlib costs its import
    try:
        found = call_once(places().socket, plain[0], params, TIMEOUT_SECONDS)
    except DaemonDownError:
        return None
    except IndexerdError as bad:
        return complain(bad, as_json=as_json)
    sys.stdout.write((json.dumps(found, ensure_ascii=False) if as_json else _plain(found)) + "\n")
    return 0


def _plain(found: dict[str, Any]) -> str:
    if "items" in found:
        return "\n".join(
            f"{one['insert'].strip()}\t{one['label']}\t{one['age']}" for one in found["items"]
        )
    return f"{found['sessionId']}\t{found['name']}"


def complain(bad: IndexerdError, *, as_json: bool) -> int:
    """Say what went wrong, where the contract wants it; returns the exit code."""
    told: dict[str, Any] = {
        "code": bad.kind,
        "message": str(bad),
        "hint": bad.hint,
        "retryable": bad.retryable,
    }
    candidates = getattr(bad, "candidates", None)
    if candidates:
        told["candidates"] = candidates
    if as_json:
        sys.stdout.write(json.dumps({"error": told}, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"indexerd: {bad}\n")
        for one in candidates or ():
            sys.stderr.write(f"  {one.get('sessionId')}  {one.get('name')}\n")
        sys.stderr.write(f"hint: {bad.hint}\n")
    return bad.exit_code
