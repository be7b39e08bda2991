r"""What a host writes, on its way to the SDK: one line in, one line of sound JSON out.

What surprised us: the SDK's parser refuses a whole line for one lone surrogate (half an emoji,
which models cut and JavaScript sends as `\ud83d`), and of a line that is no message of JSON-RPC
it says nothing to anybody: the host waits for ever. So such halves become U+FFFD here, and a
request that is none is answered with an error that bears its id. A line without an id that can
be read is passed over: an answer to it would belong to nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TextIO

from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

ANSWERED = 50  # ids of one line; there should be one
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    r"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class Lines:
    """A host's lines, read in a thread. `answer` sends a message to the host from there."""

    def __init__(self, source: TextIO) -> None:
        self._source = source
        self.answer: Callable[[SessionMessage], object] | None = None

    def readline(self) -> str:
        """The next line, mended; "" at the end."""
        line = mended(self._source.readline())
        if self.answer is not None:
            for one in unsound(line):
                self.answer(SessionMessage(_refusal(one)))
        return line


def mended(line: str) -> str:
    """JSON without lone surrogates; all else is as it was."""
    if "\\ud" not in line and "\\uD" not in line:
        return line
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["lone"] else found[0], line)


def unsound(line: str) -> list[int | str]:
    """The ids of requests that the SDK will not take for any; none where all is well."""
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        pass
    else:
        return []
    try:
        held = json.loads(line)
    except (ValueError, RecursionError):
        return []
    some = held if isinstance(held, list) else [held]
    ids = [one.get("id") for one in some if isinstance(one, dict) and "method" in one]
    return [one for one in ids if isinstance(one, int | str) and not isinstance(one, bool)][
        :ANSWERED
    ]


def _refusal(request_id: int | str) -> JSONRPCError:
    problem = ErrorData(code=INVALID_REQUEST, message="this is no request of JSON-RPC 2.0")
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=problem)
