"""Private keys in a text: where each begins and ends.

A key may have lost its first or its last line, or hold a section label (`User: `) where two
messages meet. Its lines may be escaped, joined, indented, quoted, commented, numbered or logged. So
what counts as data is long words of base64 with a few other characters between them; behind the
last one stands a shorter one that is no word of a language.
"""

from __future__ import annotations

from collections.abc import Iterator

from indexerd.privacy.patterns import lazy_pattern

_KEY_SPAN = 20_000  # characters between the first and the last line of one key
_GAP_MAX = 60  # characters between two lines of data
_EDGE = lazy_pattern(
    r"(?P<begin>-----? ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"|PuTTY-User-Key-File-\d(?:: ?[\w-]{1,40}+)?)"
    r"|(?P<end>-----? ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: [0-9a-f]*+)"
)
_LINE = r"(?=[a-z0-9+/]{0,39}[A-Z])[A-Za-z0-9+/]{40,}+={0,2}"  # no path, and no hash
_LAST = (  # padded, behind what a log puts there; or behind line ends, quotes, tags, a number
    r"(?:\n|\\{1,8}n)[^\n\\]{0,60}? [A-Za-z0-9+/]{1,76}+={1,2}|"
    r"(?:</?[a-z]{1,10} ?/?>|&#?\w{1,5};|%0[ADad]|[^A-Za-z0-9+/\\]|\\{1,8}[nrt]?){1,20}"
    r"(?:\d{1,4}(?:[\t: |]|\\t){1,4})?"
    r"(?=[A-Za-z]{0,76}(?:[0-9+/=]|(?<=[A-Za-z])[A-Z]))[A-Za-z0-9+/]{1,76}+={0,2}"
)
_DATA = rf"{_LINE}(?:[\s\S]{{1,{_GAP_MAX}}}?{_LINE})*+(?:{_LAST})?"
_RUN = lazy_pattern(_DATA)
_AFTER_BEGIN = lazy_pattern(rf"[\s\S]{{0,200}}?{_DATA}")  # perhaps behind headers


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Find keys from first to last line; one that has lost either, as far as its data goes."""
    if "PRIVATE KEY" not in text and "PuTTY-" not in text:
        return
    opened, floor = None, 0
    for edge in [*_EDGE.finditer(text), None]:
        limit = edge.start() if edge else len(text)
        if opened is not None:
            start = opened.end()
            if edge and edge["end"] and limit - start < _KEY_SPAN:
                yield opened.start(), edge.end()
                opened, floor = None, edge.end()
                continue
            found = _AFTER_BEGIN.match(text, start, min(limit, start + _KEY_SPAN))
            if found:
                yield opened.start(), found.end()
            opened, floor = None, found.end() if found else start
        if edge and edge["begin"]:
            opened = edge
        elif edge:
            runs = list(_RUN.finditer(text, max(floor, limit - _KEY_SPAN), limit))
            if runs and limit - runs[-1].end() <= _GAP_MAX:
                yield runs[-1].start(), edge.end()
            floor = edge.end()
