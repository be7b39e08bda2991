r"""Finding `@@…` in a prompt: text in, `Reference`s out, in the order in which they stand.

    @@0199c3f2-…            an id, or the beginning of one
    @@confirm-button        a name, its words joined by signs
    @@"Confirm button"      a name with spaces; typographic quotes do as well
    @@ref~2                 its two ancestors, too
    @@ref: what was left?   a question to that session: one sentence, on the same line

No reference stands in a code span or a fenced block (CommonMark's rules), behind a backslash,
or in a word like an e-mail address or a path (`a@@b`, `@@b@c.org`, `x/@@y`). Signs at the end
belong to the sentence and not to the name. A question ends with its question mark; text that is
more than one sentence is none, so that a request that mentions a session asks nobody by accident.

Whatever the text, the work is linear in its length; names are cut at REF_MAX characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

REF_MAX = 200  # characters of a reference
QUESTION_MAX = 2000  # characters of a question
FOUND_MAX = 100  # references of one prompt that are looked at
UP_MAX = 10  # ancestors

# Blanks, and signs of several scripts, that end a name; ruff's RUF001 takes them for mistakes.
_SIGNS = (
    r"""\s"'`()\[\]{}<>,;:!?@#$%^&*=+|\\/~…«»"""
    "\u2039\u203a\u2018-\u201e"  # quotes
    "\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f\u300a-\u300f\u3010\u3011"  # of CJK
)
_WORD = rf"[^{_SIGNS}.\-]++"
_NAME = rf"{_WORD}(?:[.\-]+{_WORD})*+"
_QUOTED = rf'"(?P<plain>[^"\n]{{1,{REF_MAX}}})"|[“„«](?P<fine>[^“”„«»\n]{{1,{REF_MAX}}})[”“»]'
_REFERENCE = re.compile(
    rf"(?<![A-Za-z0-9_.+\-@/\\])@@(?:{_QUOTED}|(?P<name>{_NAME}))"
    r"(?:~(?P<up>[0-9]{1,3})(?![\w~]))?+(?!@)"
)
_MARKS = "?\uff1f\u061f"  # question marks, full-width and Arabic
_QUESTION = re.compile(
    rf"[:\uff1a][ \t]*(?P<asked>[^\n{_MARKS}]{{1,{QUESTION_MAX}}}[{_MARKS}]++)(?=[\s\"'”»)\]*_]|$)"
)
# A full stop before a small letter is an abbreviation's.
_SENTENCE_END = re.compile("[.!;](?=\\s+[^\\sa-z])|[\u3002\uff01\uff1b]")

_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)
_TICKS = re.compile(r"`+")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


class Reference(NamedTuple):
    """One `@@…`. `raw` is how it is written, without its question."""

    raw: str
    ref: str
    up: int = 0  # how many ancestors are wanted, too
    question: str | None = None
    start: int = 0  # characters into the text


def find(text: str) -> list[Reference]:
    """Every reference of a prompt, at most FOUND_MAX of them."""
    if "@@" not in text:
        return []
    plain = without_code(text)
    return list(islice(_found(plain), FOUND_MAX))


def _found(text: str) -> Iterator[Reference]:
    for match in _REFERENCE.finditer(text):
        named = match["plain"] or match["fine"] or match["name"] or ""
        ref = " ".join(named.split())
        if not ref or len(ref) > REF_MAX:
            continue
        up = min(int(match["up"] or 0), UP_MAX)
        yield Reference(match[0], ref, up, _question(text, match.end()), match.start())


def _question(text: str, end: int) -> str | None:
    """The question that follows a reference at once, if it is one sentence."""
    match = _QUESTION.match(text, end)
    if match is None:
        return None
    asked = match["asked"].strip()
    return None if _SENTENCE_END.search(asked) or not asked.strip(_MARKS) else asked


def without_code(text: str) -> str:
    """The text with spaces where code stands; exactly as long."""
    return _without_spans(_without_fences(text))


def _without_fences(text: str) -> str:
    if "```" not in text and "~~~" not in text:
        return text
    pieces: list[str] = []
    at = 0
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        fence = match["fence"]
        if opened is None:
            if fence[0] == "`" and "`" in match["info"]:
                continue  # a code span that begins its line
            opened = match
            pieces.append(text[at : match.start()])
            at = match.start()
        elif (
            fence[0] == opened["fence"][0]
            and len(fence) >= len(opened["fence"])
            and not match["info"].strip()
        ):
            pieces.append(_blank(text[at : match.end()]))
            at, opened = match.end(), None
    rest = text[at:]
    pieces.append(rest if opened is None else _blank(rest))
    return "".join(pieces)


def _without_spans(text: str) -> str:
    """Blank what stands between two equal runs of backticks of one paragraph."""
    if "`" not in text:
        return text
    pieces: list[str] = []
    at = 0
    for end in [*(match.start() for match in _PARAGRAPH.finditer(text)), len(text)]:
        pieces.append(_spans(text[at:end]))
        at = end
    return "".join(pieces)


def _spans(paragraph: str) -> str:
    runs = [match.span() for match in _TICKS.finditer(paragraph)]
    last: dict[int, int] = {}  # length of a run -> where its last one is
    for number, (start, end) in enumerate(runs):
        last[end - start] = number
    pieces: list[str] = []
    at = number = 0
    while number < len(runs):
        start, end = runs[number]
        closing = number + 1
        if last[end - start] > number:
            while runs[closing][1] - runs[closing][0] != end - start:
                closing += 1
            pieces += [paragraph[at:start], _blank(paragraph[start : runs[closing][1]])]
            at = runs[closing][1]
            closing += 1
        number = closing
    return "".join(pieces) + paragraph[at:]


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
