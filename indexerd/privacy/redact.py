"""Secrets out of text, before it is cut, sent, stored or logged (S2.21, X5-X7).

In: any text. Out: the same text with each secret replaced by `[redacted:<kind>]`, and counts by
kind. Redacting twice changes nothing; prose, commit hashes, UUIDs and `token = get_token()` stay.

Linear: one pass of an automaton finds which keywords occur, and only rules with one of these run.
Finds that overlap become one, named by the most specific rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from indexerd.privacy.late import late
from indexerd.privacy.patterns import (
    FOLDED_SHAPES,
    MARKER,
    NAMED,
    REST_OF_VALUE,
    SHAPES,
    VALUE,
    Judge,
    Shape,
    is_value,
    kind_of_name,
)
from indexerd.privacy.private_keys import private_keys
from indexerd.privacy.sanitize import bare, escape_path, is_plain

_ROUNDS = 4  # a replacement may uncover another secret; the last round finds nothing
_PRIVATE_KEY, _ASSIGNED, _CUSTOM = -1, 200, 1000  # ranks; the others are places in the tables
_NAMES = ("pass", "token", "secret", "credential", "pwd", "auth", "key")  # one in each name
_STARTS = "pass|token|secret|credential|pwd|auth"
_KEY_STARTS = "access|account|api|encryption|master|private|signing"
_HIDING = late(  # escapes of terminals, and what has no width
    "[\x00-\x08\x0b\x0c\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_Span = tuple[int, int, tuple[int, str]]  # start, end, (rank, kind): the lower rank names it
_Rule = tuple[tuple[int, str], str, Judge]


@dataclass(frozen=True, slots=True)
class Redacted:
    """The safe text, and how many secrets of each kind were taken out of it."""

    text: str
    counts: dict[str, int]


def redact(text: str, extra: Sequence[Any] = ()) -> Redacted:
    """Replace every secret by `[redacted:<kind>]`; finds of `extra` are of kind `custom`.

    `extra` is what `compile_patterns` returns. Where characters that nobody sees hide more
    secrets, the text comes back without them.
    """
    found = _redacted(text, extra)
    if (text.isascii() and is_plain(text)) or _HIDING.search(text) is None:
        return found
    seen = bare(found.text)
    more = _redacted(bare(text), extra)
    if sum(more.counts.values()) > sum(found.counts.values()):
        return more
    if more.counts == found.counts and len(more.text) < len(seen):
        return more  # the same secrets, which went on behind what nobody sees
    rest = _redacted(seen, extra)  # two side by side count as one there: it may hide a third
    if not rest.counts:
        return found
    kinds = found.counts | rest.counts
    sums = {kind: found.counts.get(kind, 0) + rest.counts.get(kind, 0) for kind in kinds}
    return Redacted(rest.text, sums)


def secret_warnings(text: str, what: str) -> tuple[str, ...]:
    """A warning where a text that is kept to the letter looks like it holds a secret (S2.21)."""
    kinds = ", ".join(sorted(redact(text).counts))
    told = f"{what} looks like it holds a secret ({kinds}); it goes into prompts at a resume"
    return (told,) if kinds else ()


def quotable(text: str) -> str:
    """A text as a warning or an error may quote it: redacted, and invisible characters escaped."""
    return escape_path(redact(text).text)


def _redacted(text: str, extra: Sequence[Any]) -> Redacted:
    counts: dict[str, int] = {}
    for _ in range(_ROUNDS):
        found = [*_private_keys(text), *_by_rules(text), *_custom(text, extra)]
        if not found:
            break
        parts, done = [], 0
        for start, end, (_rank, kind) in _merged(found):
            counts[kind] = counts.get(kind, 0) + 1
            parts += [text[done:start], f"[redacted:{kind}]"]
            done = end
        text = "".join(parts) + text[done:]
    return Redacted(text, counts)


def _merged(spans: list[_Span]) -> list[_Span]:
    found: list[_Span] = []
    for start, end, named in sorted(spans):
        if found and start < found[-1][1]:
            first, last, other = found.pop()
            found.append((first, max(last, end), min(other, named)))
        else:
            found.append((start, end, named))
    return found


def _private_keys(text: str) -> Iterator[_Span]:
    for start, end in private_keys(text):
        yield start, end, (_PRIVATE_KEY, "private-key")


def _custom(text: str, patterns: Sequence[Any]) -> Iterator[_Span]:
    if not patterns:
        return
    seen = _encodable(re.sub(MARKER, lambda marker: "\n" * len(marker[0]), text))
    for pattern in patterns:
        for found in pattern.finditer(seen):
            if found[0]:
                yield *found.span(), (_CUSTOM, "custom")


def _by_rules(text: str) -> Iterator[_Span]:
    lowered = text.replace("\u0130", "i").lower()  # the only letter that grows when lowered
    for searched, rules in ((text, _rules()), (lowered, _folded_rules())):
        for named, pattern, genuine in rules(searched):
            for found in re.finditer(pattern, searched, re.ASCII):
                start, end = found.span(found.lastgroup or 0)
                if genuine(text[start:end]):
                    yield start, end, named
    yield from _assignments(text, lowered)


# -- which rules to run -----------------------------------------------------------------------


@cache
def _rules() -> Callable[[str], list[_Rule]]:
    return _by_keyword(SHAPES, 0)


@cache
def _folded_rules() -> Callable[[str], list[_Rule]]:
    return _by_keyword(FOLDED_SHAPES, 100)


def _by_keyword(shapes: Sequence[Shape], first: int) -> Callable[[str], list[_Rule]]:
    """A function that gives the rules of which a keyword occurs in a text."""
    import re2  # noqa: PLC0415 - 13 ms, which most commands do not need

    rules: list[_Rule] = []
    options = re2.Options()
    options.literal = True
    keywords = re2.Set.SearchSet(options)
    for rank, (kind, words, pattern, judge) in enumerate(shapes, first):
        for word in words.split():
            keywords.Add(word)
            rules.append(((rank, kind), pattern, judge))
    keywords.Compile()

    def called(text: str) -> list[_Rule]:
        places = keywords.Match(_encodable(text)) or ()
        return list(dict.fromkeys(rules[at] for at in places))

    return called


def _encodable(text: str) -> str:
    """A text of the same length without lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


# -- name = value -----------------------------------------------------------------------------


def _assignments(text: str, lowered: str) -> Iterator[_Span]:
    done = 0
    for named in _names(lowered):
        name = text[named.start() : named.end("tail")]
        kind = kind_of_name(named["key"], name) if named.end() >= done else ""
        value = VALUE.match(text, named.end()) if kind else None
        if value and value.lastgroup and is_value(kind, name, named, value):
            start, done = value.span(value.lastgroup)
            rest = REST_OF_VALUE.match(text, done) if value.lastgroup == "bare" else None
            done = rest.end() if rest else done
            yield start, done, (_ASSIGNED, kind)


def _names(lowered: str) -> Iterator[re.Match[str]]:
    """Matches of NAMED, which is tried only where a name may begin: that is seldom."""
    if not any(word in lowered for word in _NAMES):
        return
    starts = f"{_STARTS}|{_KEY_STARTS}" if "key" in lowered else _STARTS
    done = 0
    for found in re.finditer(starts, lowered):
        start = found.start()
        before = start - 1 if lowered[start - 1 : start] in ("_", "-") else start
        for at in dict.fromkeys((before, start)):
            named = NAMED.match(lowered, at) if at >= done else None
            if named is not None:
                done = named.end()
                yield named
                break
