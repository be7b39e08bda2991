"""Private keys in a text: where each begins and ends.

A key may have lost its first or its last line, or hold a section label (`User: `) where two
messages meet. Its line ends may be escaped as JSON, pages or addresses do, or be spaces, full
stops or tags where lines were joined to one; each line may be indented, quoted, commented, numbered
or logged. So a key is read word by word: words of data, and between them nothing but such marks.
At most 20,000 characters are searched for one key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from indexerd.privacy.patterns import lazy_pattern

_KEY_SPAN = 20_000  # characters between the first and the last line of one key
_EDGE = lazy_pattern(
    r"(?P<begin>-----? ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"|PuTTY-User-Key-File-\d(?:: ?[\w-]{1,40}+)?)"
    r"|(?P<end>-----? ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: [0-9a-f]*+)"
)
_LEAD_MAX = 200  # characters of what a log puts before each line
_LONG = 16  # characters; a shorter word is data only beside a longer one
_EOL = r"[\n\r\x0b\x0c\u2028\u2029]\+?|\\++[nr]"
_LOGGED = (  # what stands before a whole line of data: a time, a level, a program's name
    r"(?:(?<=\n)|(?<=\\n))(?:[^\s\\]{1,30}[ \t]){1,6}?"
    r"(?=[A-Za-z0-9+/]{48,}+={0,2}(?:[\s\\\"]|\Z))(?=[a-z0-9+/]{0,40}[A-Z])"
)
_LABEL = (
    r"(?:\[[\w.-]{1,128}\] )?(?:User|Assistant): ?"
    r"|\[(?:User|Assistant|Tool)(?: [a-z]{1,9}){0,2}\]: "
)
_NUMBER = r"\d{1,6}(?:[:|→\t ]|\\++t)"  # of a line
_HEADER = (  # its value ends where data was joined to it
    r"(?:Proc-Type|DEK-Info|Comment|Version|Hash|Encryption|\w{4,10}-Lines|Argon2-\w{1,20}): ?"
    rf"(?:[^\n\\]{{0,200}}?(?=[\s\"'][A-Za-z0-9+/]{{{_LONG}}})|[^\n\r\\]{{0,200}}+)"
)
_MARK = (  # quotes, comments, lists, concatenation; what stands for a line's end elsewhere
    r"\+(?=[\s\\])|\.(?=[\s\\])|[\s>|\"'`,;:#*~^$_│·↵⏎¶-]|\\++(?:t|x0[ad]|u000[ad])?"
    r"|%0[ADad]|</?[a-z]{1,10} ?/?>|&(?:#1[03]|#x0?[ADad]|nbsp|gt|quot);"
)
_LINE_END = lazy_pattern(_EOL)
_GAP = lazy_pattern(  # a group in it breaks `re`
    rf"(?:{_EOL}|{_LOGGED}|{_LABEL}|{_NUMBER}|{_HEADER}|{_MARK})*+"
)
_WORD = lazy_pattern(r"[A-Za-z0-9+/]++={0,2}|={1,2}")
_ENDS = lazy_pattern(rf"(?:(?!{_EOL})[\s,;+*|)])*+(?:{_EOL}|\\*+[\"'`]|\Z)")  # a line, or quotes
_MIXED = lazy_pattern(r"[0-9+/=]|[A-Za-z][A-Z]")  # as words that people write seldom are


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Find keys from first to last line; one that has lost either, as far as its data goes."""
    if "PRIVATE KEY" not in text and "PuTTY-" not in text:
        return
    opened = None
    floor = 0
    for edge in [*_EDGE.finditer(text), None]:
        if opened is not None:
            start, limit = opened.end(), edge.start() if edge else len(text)
            whole = edge and edge["end"] and limit - start < _KEY_SPAN
            if edge and whole:
                last = edge.end()
            else:
                end = min(limit, start + _KEY_SPAN)
                last = next(_data(text, start, end, _lead(text, opened.start())))[1]
            floor = max(start, last)
            if last:
                yield opened.start(), last
            opened = None
            if whole:
                continue
        if edge is not None and edge["begin"]:
            opened = edge
        elif edge is not None:
            begin, lead = max(floor, edge.start() - _KEY_SPAN), _lead(text, edge.start())
            *_, (first, _) = _data(text, begin, edge.start(), lead)
            if first >= 0:
                yield first, edge.end()
            floor = edge.end()


def _lead(text: str, at: int) -> re.Pattern[str] | None:
    """What stands before this place on its line, with any numbers: a log's time, level, name."""
    begin = max(0, at - _LEAD_MAX)
    start = max((end.end() for end in _LINE_END.finditer(text, begin, at)), default=begin)
    parts = re.split(r"([0-9]+|[ \t]+)", text[start:at])
    if (start == begin and begin) or not "".join(parts).strip():
        return None
    kinds = {True: "[0-9]{1,30}+", False: "[ \t]{1,30}+"}
    found = (kinds[p[0].isdigit()] if n % 2 else re.escape(p) for n, p in enumerate(parts))
    return re.compile("\n?" + "".join(found))


def _data(text: str, at: int, end: int, lead: re.Pattern[str] | None) -> Iterator[tuple[int, int]]:
    """Of each stretch up to a word that is no key's: where its data begins and ends; or -1, 0."""
    first, last, before, beside = -1, 0, -1, False  # `before`: a short word, data if a long follows
    ends = _ENDS.match(text, at, end)
    while at < end:
        led = lead.match(text, ends.end(), end) if lead and ends else None
        at = led.end() if led else at
        gap = _GAP.match(text, at, end)
        at = gap.end() if gap else at
        word = _WORD.match(text, at, end)
        at = word.end() if word else at + 1
        ends = _ENDS.match(text, at, end)
        if word:
            is_long = len(word[0]) >= _LONG
            odd = _MIXED.search(word[0]) is not None
            if is_long or (beside and (odd or ends)):
                if first < 0:
                    first = word.start() if before < 0 else before
                last, beside = at, is_long
                continue
            beside = False
            new = led or (gap and _LINE_END.search(text, gap.start(), gap.end()))
            if odd or (ends and new):
                before = word.start()
                continue
        if at <= end:
            yield first, last
            first, last, before, beside = -1, 0, -1, False
    yield first, last
