"""Targets for what comes in from outside: the socket and the page.

Here it is not enough that nothing raises: what goes out ends nothing that it stands in.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from indexerd.protocol import wire
from indexerd.web.export import embedded
from tests.fuzz.texts import as_json

_DEEP = 100  # levels of a value; a document has a few
_STEP = 7  # bytes that arrive at a time


# -- the socket ------------------------------------------------------------------------------------


def request(data: bytes) -> None:
    """Any line is a request or a failure, and whatever is answered is one line of strict JSON."""
    for line in (data, data.replace(b"\n", b" ")):
        asked = wire.parse(line)
        if isinstance(asked, wire.Failure):
            _one_line(asked.to_line())
            continue
        asked.method.encode()
        assert asked.method
        _one_line(wire.unknown_method(asked).to_line())
        try:
            told = wire.result(asked.id, asked.params)
        except RecursionError:  # promised, for what is nested without end
            continue
        assert _one_line(told)["result"] == json.loads(json.dumps(asked.params))
        assert asked.id is None or _one_line(told)["id"] == asked.id


def _one_line(line: bytes) -> Any:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line.decode(), parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(word)


# -- the page's data -------------------------------------------------------------------------------


def island(data: bytes) -> None:
    """Read back it is the same value, and nothing in it can end the element that it stands in."""
    value = as_json(data)
    if data.count(b"[") + data.count(b"{") > _DEEP:
        return
    text = embedded(value)
    text.encode()
    assert not set(text) & set("<>&\u2028\u2029\0\x1b")
    told = json.dumps(value)
    if "\\ud" not in told.lower():  # halves of characters are replaced, or joined
        meant = json.loads(told, parse_constant=lambda _: None)  # no number is null
        assert json.dumps(json.loads(text, parse_constant=_no_constant)) == json.dumps(meant)


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "wire": request,
    "island": island,
}
