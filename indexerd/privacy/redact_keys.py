"""Private keys in a text, which stand on many lines: where each begins and ends.

In: any text. Out: spans. A key may have lost its first or its last line, or hold a section label
(`User: `) where two messages meet; its line ends may be escaped as JSON does. What is looked
through for one key is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from indexerd.privacy.late import late

_KEY_SPAN = 20_000  # characters between the first and the last line of one key
_EDGE = late(
    r"(?P<begin>-----? ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|PuTTY-User-Key-File-\d)"
    r"|(?P<end>-----? ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: [0-9a-f]*+)"
)
_LINE_END = late(r"\n|\\[nr]")
_DATA_LINE = 16  # characters; shorter ones are data only beside a longer one
_BODY = late(  # data, a header, or nothing, behind a label, a quote or a line number
    r"[\s>|\"'`,\\-]*+(?:(?:\[[\w.-]{1,128}\] )?(?:User|Assistant): ?)?"
    r"(?:\d{1,6}(?:[:|→\t ]|\\t)++)?[\s\"'`]*+"
    r"(?:(?P<data>[A-Za-z0-9+/]++={0,2}(?: [A-Za-z0-9+/]{16,}+={0,2})*+)"
    r"|(?:Proc-Type|DEK-Info|Comment|Version|Hash|Encryption|\w{4,10}-Lines|Argon2-\w+): .*+)?"
    r"[\s\"'`,;+\\)]*+"
)
_NEAR = late(r"[\s\"'`,\\]*+(?P<data>={0,2}[A-Za-z0-9+/]{16,}+={0,2})")  # read either way


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Find keys from first to last line; one that has lost either, as far as its data goes."""
    if "PRIVATE KEY" not in text and "PuTTY-" not in text:
        return
    opened: re.Match[str] | None = None
    floor = 0
    for edge in [*_EDGE.finditer(text), None]:
        if opened is not None:
            limit = edge.start() if edge else len(text)
            whole = edge and edge["end"] and limit - opened.end() < _KEY_SPAN
            data = (0, edge.end()) if edge and whole else _data(text, opened.end(), limit, 1)
            floor = max(opened.end(), data[1])
            if data[1]:
                yield opened.start(), data[1]
            opened = None
            if whole:
                continue
        if edge is not None and edge["begin"]:
            opened = edge
        elif edge is not None:
            start, end = _data(text, floor, edge.start(), -1)
            if end:
                yield start, edge.end()
            floor = edge.end()


def _data(text: str, start: int, end: int, step: int) -> tuple[int, int]:
    """Span of the key's farthest data line, read forth from `start` or back from `end`."""
    if step > 0:
        end = min(end, start + _KEY_SPAN)
    else:
        start = max(start, end - _KEY_SPAN)
    eols = [eol.span() for eol in _LINE_END.finditer(text, start, end)]
    lines = zip([start, *(e for _, e in eols)], [*(b for b, _ in eols), end], strict=True)
    farthest, beside = (0, 0), False
    for first, last in list(lines)[::step]:
        body = _BODY.fullmatch(text, first, last)
        if body is None:  # the line where the data meets other text
            if near := _NEAR.match(text[first:last][::step]):
                a, b = near.span("data")
                farthest = (first + a, first + b) if step > 0 else (last - b, last - a)
            break
        long = len(body["data"] or "") >= _DATA_LINE
        if body["data"] and (long or beside):
            farthest = body.span("data")
        beside = long
    return farthest
