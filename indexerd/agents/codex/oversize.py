"""A codex line too long to hold, taken in from its beginning: its text can be read later.

What makes a line long stands behind what tells what it is: images behind a prompt, an output
behind its call's id, instructions behind the session's. So the beginning is made whole, by
closing what is open where it was cut, and taken in as if there were no more.
"""

from __future__ import annotations

import re

from indexerd.agents.codex.rows import Taking
from indexerd.agents.codex.skim import take
from indexerd.core.lines import Oversize
from indexerd.core.session import SessionState

LOOKED_AT = 32 * 1024  # bytes of the line's beginning
# A whole string; one that is cut; punctuation; any other value.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|"(?s:.*)|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_STRING = re.compile(rb'"(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt])*+')
_CLOSERS = {b"{": b"}", b"[": b"]"}


def skim_oversize(state: SessionState, line: Oversize) -> None:
    """Take in a line from its two ends (F8). It has no length where nobody may read it."""
    state.oversized += not line.readable
    taking = Taking(state)
    take(taking, mended(line.head[:LOOKED_AT]), line.offset, line.readable)
    taking.memory.keep(state)


def mended(head: bytes) -> bytes:
    """The beginning of a JSON document as a whole one, with as much in it as can be known."""
    open_at: list[bytes] = []  # what closes each object and array that is open, innermost last
    before = b":"
    whole = b""
    for token in _TOKEN.finditer(head):
        first = token[0][:1]
        is_key = before in (b"{", b",") and open_at[-1:] == [b"}"]
        if first in _CLOSERS:
            open_at.append(_CLOSERS[first])
        elif first in (b"}", b"]") and open_at:
            open_at.pop()
        elif first == b'"' and not is_key:
            string = _STRING.match(head, token.start())
            if token.end() == len(head) and string is not None:
                return head[: string.end()] + b'"' + b"".join(reversed(open_at))
        elif is_key or first in (b":", b",") or token.end() == len(head):
            before = first
            continue
        before = first
        whole = head[: token.end()] + b"".join(reversed(open_at))
    return whole
