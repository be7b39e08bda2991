"""Targets for texts: what people type, what models answer, and what is made safe to show.

Bytes that are no UTF-8 come in as lone surrogates, as Python keeps such file names. Where a target
wants several texts, 0x00 parts them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable

from indexerd.indexing.check import validate
from indexerd.models.attempts import Rejected
from indexerd.privacy import sanitize as cleaning
from indexerd.privacy.patterns import compile_pattern
from indexerd.privacy.redact import redact as redacted
from indexerd.protocol.limits import (
    DESCRIPTION_MAX,
    NAME_MAX,
    SUMMARY_MAX,
    TAG_MAX,
    TAGS_MAX,
    TAGS_MIN,
)
from indexerd.references.parse import (
    FOUND_MAX,
    QUESTION_MAX,
    REF_MAX,
    UP_MAX,
    find,
    without_code,
)
from indexerd.search import query as asking

_GONE = frozenset({"Cc", "Cs", "Co", "Zl", "Zp"})
_LIMITS = (0, 1, 7, 120)


def text_of(data: bytes) -> str:
    """Any bytes as a text."""
    return data.decode("utf-8", "surrogateescape")


def parts_of(data: bytes, count: int) -> list[str]:
    """Bytes as so many texts; the last ones may be empty."""
    parts = [text_of(one) for one in data.split(b"\0", count - 1)]
    return parts + [""] * (count - len(parts))


def references(data: bytes) -> None:
    """What is found stands there as it is written, in order, within its bounds, and not in code."""
    text = text_of(data)
    plain, found = without_code(text), find(text)
    assert len(plain) == len(text)
    assert len(found) <= FOUND_MAX
    assert [one.start for one in found] == sorted({one.start for one in found})
    for one in found:
        assert text.startswith(one.raw, one.start)
        assert plain.startswith("@@", one.start)
        assert 0 < len(one.ref) <= REF_MAX or '"' not in one.raw
        assert 0 <= one.up <= UP_MAX
        assert one.question is None or 0 < len(one.question) <= 2 * QUESTION_MAX
        assert "\n" not in (one.question or "")


def check(data: bytes) -> None:
    """A model's answer is taken, clean and within limits, or rejected in words; none is cut."""
    said = validate(text_of(data), cut=False, redact=lambda text: redacted(text).text)
    if isinstance(said, Rejected):
        said.error.encode()
        assert said.error
        return
    assert TAGS_MIN <= len(said.tags) <= TAGS_MAX
    limits = ((said.name, NAME_MAX), (said.description, DESCRIPTION_MAX))
    for text, limit in (
        *limits,
        (said.summary, SUMMARY_MAX),
        *((tag, TAG_MAX) for tag in said.tags),
    ):
        assert 0 < len(text) <= limit
        assert not _GONE & {unicodedata.category(char) for char in text if char not in "\n\t"}
    assert "\n" not in said.name + "".join(said.tags)
    assert validate(said.model_dump_json(), cut=True, redact=str) == Rejected(
        "The reply was cut by the output limit: answer more briefly"
    )


def query(data: bytes) -> None:
    """A query is a problem, a pattern, or terms; snippets are short."""
    typed, text = parts_of(data, 2)
    asked = asking.parse(typed)
    assert not (asked.terms and asked.pattern)
    assert asked.terms or asked.pattern or asked.problem
    assert len(asked.terms) <= asking.TERMS_MAX
    if asked.problem is not None:
        asked.problem.encode()
    stored = asking.storable(text)
    assert len(asking.fold(stored)) == len(stored)
    if asked.pattern is not None:
        span = asked.pattern.find(stored)
        assert span is None or 0 <= span[0] < span[1] <= len(stored)
    if asked.terms:
        _found(asked, stored)


def _found(asked: asking.Asked, stored: str) -> None:
    for widen in (False, True):
        finder = asking.Finder(asked.as_terms(widen=widen))
        assert finder.terms_in(stored) <= set(range(len(asked.terms)))
        shown = finder.snippet(stored)
        assert len(shown) <= asking.SNIPPET_MAX
        shown.encode()
        assert not re.search(r"[\x00-\x1f\x7f\u200b\u202e\u2066]", shown)


def redact(data: bytes) -> None:
    """What is left holds no secret any more, and has not grown out of bounds."""
    text = cleaning.replace_surrogates(text_of(data))  # as all that is read of a session
    once = redacted(text)
    again = redacted(once.text)
    assert again.text == once.text
    assert not again.counts
    assert len(once.text) <= 6 * len(text) + 64
    plain = redacted(cleaning.bare(text))
    if plain.counts == once.counts:  # then what nobody sees has hidden no part of one either
        assert len(cleaning.bare(once.text)) <= len(plain.text)
    marks = len(re.findall(r"\[redacted:[a-z0-9-]+\]", once.text))
    assert bool(once.counts) <= bool(marks)


def extra(data: bytes) -> None:
    """A pattern of the user's is refused as a ValueError, or works on any text."""
    pattern, text = parts_of(data, 2)
    try:
        compiled = compile_pattern(pattern[:120])
    except ValueError:
        return
    redacted(text[:200], [compiled])


def clean(data: bytes) -> None:
    """Cleaned text is short, shows, can be encoded, and stays as it is when cleaned again."""
    text = text_of(data)
    for limit in (*_LIMITS, len(text)):
        line, lines = cleaning.clean_line(text, limit), cleaning.clean_text(text, limit)
        assert len(line) <= limit
        assert len(lines) <= limit
        assert cleaning.clean_line(line, limit) == line
        assert cleaning.clean_text(lines, limit) == lines
        _shows(line)
        _shows(lines.replace("\n", "").replace("\t", ""))
    bare = cleaning.bare(text)
    assert cleaning.bare(bare) == bare
    assert cleaning.escape_path(text).isprintable() or not text.isprintable()
    cleaning.escape_path(text).encode()
    cleaning.replace_surrogates(text).encode()


def _shows(text: str) -> None:
    text.encode()
    assert not _GONE & {unicodedata.category(char) for char in text}


def as_json(data: bytes) -> object:
    """A JSON value where bytes hold one, else their text."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return text_of(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "references": references,
    "check": check,
    "query": query,
    "redact": redact,
    "extra": extra,
    "clean": clean,
}
