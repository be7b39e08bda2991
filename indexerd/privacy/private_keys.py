"""Private keys in a text, which stand on many lines: where each begins and ends.

In: any text. Out: spans. A key may have lost its first or its last line, or hold a section label
(`User: `) where two messages meet; its line ends may be escaped as JSON, pages or addresses do, or
be spaces or tabs where lines were joined to one; each may be indented, quoted, commented or
numbered. So a key is read word by word: words of data, and between them nothing but such marks.
What is looked through for one key is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from indexerd.privacy.late import late

_KEY_SPAN = 20_000  # characters between the first and the last line of one key
_EDGE = late(
    r"(?P<begin>-----? ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"|PuTTY-User-Key-File-\d(?:: ?[\w-]{1,40}+)?)"
    r"|(?P<end>-----? ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: [0-9a-f]*+)"
)
_LONG = 16  # characters; a shorter word is data only beside a longer one
_EOL = r"[\n\r\x0b\x0c\u2028\u2029]\+?|\\++[nr]"
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
    r"\+(?=[\s\\])|[\s>|\"'`,;:#*~^$│·↵⏎¶-]|\\++(?:t|x0[ad]|u000[ad])?"
    r"|%0[ADad]|<br ?/?>|</?p>|&(?:#1[03]|#x0?[ADad]|nbsp|gt|quot);"
)
_LINE_END = late(_EOL)
_GAP = late(rf"(?:{_EOL}|{_LABEL}|{_NUMBER}|{_HEADER}|{_MARK})*+")  # a group in it breaks `re`
_WORD = late(r"[A-Za-z0-9+/]++={0,2}|={1,2}")
_ENDS = late(rf"(?:(?!{_EOL})[\s,;+*|)])*+(?:{_EOL}|\\*+[\"'`]|\Z)")  # a line, or a quoted one
_MIXED = late(r"[0-9+/=]|[A-Za-z][A-Z]")  # as words that people write seldom are


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
            last = edge.end() if edge and whole else _last(text, opened.end(), limit)
            floor = max(opened.end(), last)
            if last:
                yield opened.start(), last
            opened = None
            if whole:
                continue
        if edge is not None and edge["begin"]:
            opened = edge
        elif edge is not None:
            first = _first(text, floor, edge.start())
            if first >= 0:
                yield first, edge.end()
            floor = edge.end()


def _last(text: str, start: int, end: int) -> int:
    """Where the data that begins at `start` ends; 0 where there is none."""
    last = 0
    for word, is_data in _words(text, start, min(end, start + _KEY_SPAN)):
        if word is None:
            break
        if is_data:
            last = word.end()
    return last


def _first(text: str, start: int, end: int) -> int:
    """Where the data that ends at `end` begins; -1 where there is none."""
    first = before = -1  # `before`: of a short word, which is data if a longer one follows
    for word, is_data in _words(text, max(start, end - _KEY_SPAN), end):
        if word is None:
            first = before = -1
        elif is_data and first < 0:
            first = word.start() if before < 0 else before
        else:
            before = word.start()
    return first


def _words(text: str, start: int, end: int) -> Iterator[tuple[re.Match[str] | None, bool]]:
    """Words that a key may be made of, and whether they are data; None for any other text."""
    at, beside = start, False
    while at < end:
        gap = _GAP.match(text, at, end)
        word = _WORD.match(text, gap.end() if gap else at, end)
        if gap is None or word is None:
            at = (gap.end() if gap else at) + 1
            if at <= end:
                yield None, False
            beside = False
            continue
        at = word.end()
        is_long = at - word.start() >= _LONG
        odd = _MIXED.search(word[0]) is not None
        ends = _ENDS.match(text, at, end) is not None
        if is_long or (beside and (odd or ends)):
            yield word, True
        else:
            alone = ends and _LINE_END.search(text, gap.start(), gap.end()) is not None
            yield word if odd or alone else None, False
        beside = is_long
