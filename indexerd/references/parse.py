r"""Find the `@@…` references of a prompt, in order.

The forms are `@@id`, `@@some-name` and `@@"some name"`, each optionally followed by `~2` (include
two ancestors) or `: a question?`. Nothing is a reference in code (CommonMark's spans and fences),
after a backslash, or in a word like an e-mail address or a path (`a@@b`, `@@b@c.org`, `x/@@y`). A
question is one sentence with a question mark, so that a mere mention asks nothing by accident.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from indexerd.privacy.patterns import lazy_pattern

REF_MAX = 200  # characters of a reference
_QUESTION_MAX = 2000  # characters of a question
FOUND_MAX = 100  # references of one prompt
UP_MAX = 10  # ancestors

# Blanks and punctuation of several scripts, which end a name; escaped because of ruff's RUF001.
_SIGNS = (
    r"""\s"'`()\[\]{}<>,;:!?@#$%^&*=+|\\/~…«»"""
    "\u2010-\u2015\u2018-\u201e\u2039\u203a\u2047-\u2049"  # dashes, quotes, question marks
    "\u2190-\u2bff\U0001f000-\U0001faff\ufe0f"  # arrows, symbols, emoji
    "\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f\u300a-\u300f\u3010\u3011"  # of CJK
)
_CHARS = rf"[^{_SIGNS}.\-_]++"
_WORD = rf"_*+{_CHARS}(?:_++{_CHARS})*+"
_NAME = rf"{_WORD}(?:(?:-+|\.){_WORD})*+(?:(?:\+\+|#)(?![^\s.,;:!?)~]))?+"
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z_-])"
_QUOTED = rf'"(?P<plain>[^"\n]{{1,{REF_MAX}}})"|[“„«](?P<fine>[^“”„«»\n]{{1,{REF_MAX}}})[”“»]'
_REFERENCE = lazy_pattern(
    r"(?<![A-Za-z0-9@/\\])(?<![A-Za-z0-9]_)@@"
    rf"(?:{_QUOTED}|(?P<name>{_UUID}|{_NAME}))(?:~(?P<up>[0-9]{{1,3}})(?![\w~]))?+(?!@)"
)
_GROUPS = ("plain", "fine", "name")
_MARKS = "?\uff1f\u061f\u2047-\u2049"  # question marks: full-width, Arabic, doubled
_QUESTION = lazy_pattern(
    rf"[:\uff1a][ \t]*(?P<question>[^\n{_MARKS}]{{1,{_QUESTION_MAX}}}[{_MARKS}][{_MARKS}!]*+)"
    r"(?=[\s\"'”»)\]*_]|$)"
)
# A full stop before a lower-case letter ends an abbreviation, not a sentence.
_SENTENCE_END = lazy_pattern("[.!;](?=\\s+[^\\sa-z])|[\u3002\uff01\uff1b]")
_BEFORE_QUESTION = " \t:\"'“„«"

# A fence may be inside quotes and list items; an unclosed fence extends to the end of the text.
_FENCED = lazy_pattern(
    r"^(?:[ \t]*(?:>|[-*+][ \t]|[0-9]{1,9}[.)][ \t]))*+[ \t]*(`{3,}|~{3,})[^`\n]*$"
    r"[\s\S]*?(?:^[ \t>]*\1[`~]*[ \t]*$|\Z)",
    re.MULTILINE,
)
_SPAN = lazy_pattern(r"(?<!`)(`{1,20})(?!`)(?:(?!\n[ \t]*\n)[\s\S])*?(?<!`)\1(?!`)")


class Reference(NamedTuple):
    """A reference. `raw` is its text in the prompt, without the question."""

    raw: str
    ref: str
    up: int = 0  # ancestors
    question: str | None = None
    start: int = 0  # characters into the text


def find(text: str) -> list[Reference]:
    plain, refs = without_code(text) if "@@" in text else "", list[Reference]()
    for match in islice(_REFERENCE.finditer(plain), FOUND_MAX):
        start, end = match.span(next(name for name in _GROUPS if match[name] is not None))
        if ref := " ".join(text[start:end].split()):
            up = min(int(match["up"] or 0), UP_MAX)
            question = _question(text, plain, match.end())
            refs.append(Reference(text[slice(*match.span())], ref, up, question, match.start()))
    return refs


def _question(text: str, plain: str, end: int) -> str | None:
    """Return the question right after a reference, if it is one sentence; it may contain code."""
    match = _QUESTION.match(plain, end)
    if match is None or _SENTENCE_END.search(match["question"]):
        return None
    question = text[slice(*match.span("question"))].strip().lstrip(_BEFORE_QUESTION)
    return question if question.strip(_MARKS + "! \t") else None


def without_code(text: str) -> str:
    """Replace fenced code and code in backticks by spaces, without changing the length."""
    for code in (_FENCED, _SPAN):
        text = code.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return text
