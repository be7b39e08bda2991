"""Removes secrets from texts and paths, before these are cut, sent, stored or shown.

Each secret is replaced by `[redacted:<kind>]` and counted by kind. Redacting twice changes nothing;
prose, commit hashes, UUIDs and `token = get_token()` stay.

Linear: one pass of an automaton finds which keywords occur, and only rules with one of these run.
Finds that overlap become one, named by the most specific rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from indexerd.privacy.patterns import (
    FOLDED_RULES,
    MARKER,
    RULES,
    Rule,
    assignments,
    compile_patterns,
    lazy_pattern,
)
from indexerd.privacy.sanitize import bare, escape_path

if TYPE_CHECKING:
    from indexerd.settings import Settings

Redactor = Callable[[str], tuple[str, dict[str, int]]]  # the redacted text, and counts by kind
Row = dict[str, Any]

_ROUNDS = 4  # a replacement may uncover another secret; the last round finds nothing
_PRIVATE_KEY, _FOLDED, _ASSIGNED, _CUSTOM = -1, 100, 200, 1000  # ranks; others: table positions
_NAMES = ("pass", "token", "secret", "credential", "pwd", "auth", "key")  # one is in each name
_Span = tuple[int, int, tuple[int, str]]  # start, end, (rank, kind): the lower rank names it

# A private key may have lost its first or its last line, or hold a section label (`User: `) where
# two messages meet. Its lines may be escaped, joined, indented, quoted, commented, numbered or
# logged. So data are long words of base64 with a few other characters between them, and after the
# last of them a shorter word of base64 that is no word of a language.
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


class Redacted(NamedTuple):
    """The safe text, and how many secrets of each kind were removed from it."""

    text: str
    counts: dict[str, int]


def redact(text: str, extra: Sequence[Any] = ()) -> Redacted:
    """Replace every secret by `[redacted:<kind>]`; finds of `extra` are of kind `custom`.

    `extra` is what `compile_patterns` returns. A text with secrets comes back without invisible
    characters: these could be inside a secret.
    """
    seen = bare(text)
    found = _redacted(seen, extra)
    return found if seen == text or found.counts else _redacted(text, extra)


def redactor(settings: Settings) -> Redactor:
    """Build the redaction that the settings ask for."""
    if not settings.redact.enabled:
        return lambda text: (text, {})
    return partial(redact, extra=compile_patterns(settings.redact.extra_patterns))


def secret_warnings(text: str, what: str) -> tuple[str, ...]:
    """Warn if a text that is stored as it is looks like it holds a secret."""
    kinds = ", ".join(sorted(redact(text).counts))
    warning = f"{what} looks like it holds a secret ({kinds}); it goes into prompts at a resume"
    return (warning,) if kinds else ()


def quotable(text: str) -> str:
    """Redact a text and escape its invisible characters, to quote it in an error."""
    return escape_path(redact(text).text)


def _redacted(text: str, extra: Sequence[Any]) -> Redacted:
    counts: dict[str, int] = {}
    for _ in range(_ROUNDS):
        found = [(*span, (_PRIVATE_KEY, "private-key")) for span in _private_keys(text)]
        found += [*_by_rules(text), *_custom(text, extra)]
        if not found:
            break
        parts, done = [], 0
        for start, end, (_rank, kind) in _merged(found):
            counts[kind] = counts.get(kind, 0) + 1
            parts += [text[done:start], f"[redacted:{kind}]"]
            done = end
        text = "".join(parts) + text[done:]
    return Redacted(text, counts)


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
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


def _merged(spans: list[_Span]) -> list[_Span]:
    found: list[_Span] = []
    for start, end, named in sorted(spans):
        if found and start < found[-1][1]:
            first, last, other = found.pop()
            found.append((first, max(last, end), min(other, named)))
        else:
            found.append((start, end, named))
    return found


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
    ranked, keywords = _rules()
    called = dict.fromkeys(ranked[at] for at in keywords.Match(_encodable(text)) or ())
    rules = [(text, one) for one in called]
    for rank, rule in enumerate(FOLDED_RULES, _FOLDED):
        if any(word in lowered for word in rule[1].split()):
            rules.append((lowered, (rank, rule)))
    for searched, (rank, (kind, _, pattern, genuine)) in rules:
        for found in re.finditer(pattern, searched, re.ASCII):
            start, end = found.span(found.lastgroup or 0)
            if genuine(text[start:end]):
                yield start, end, (rank, kind)
    if any(word in lowered for word in _NAMES):
        for start, end, kind in assignments(text, lowered):
            yield start, end, (_ASSIGNED, kind)


@cache
def _rules() -> tuple[list[tuple[int, Rule]], Any]:
    """Make a list of rules by keyword, and an automaton that finds all keywords of a text."""
    import re2  # noqa: PLC0415 - 13 ms, which most commands do not need

    options = re2.Options()
    options.literal = True
    keywords = re2.Set.SearchSet(options)
    ranked = []
    for rank, rule in enumerate(RULES):
        for word in rule[1].split():
            keywords.Add(word)
            ranked.append((rank, rule))
    keywords.Compile()
    return ranked, keywords


def _encodable(text: str) -> str:
    """Replace lone surrogates without changing the length."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _clean(text: str) -> str:
    return redact(text).text


@lru_cache(4096)
def shown_path(path: str) -> str:
    return _clean(path)


def shown_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Redact paths, and drop repeats."""
    return tuple(dict.fromkeys(map(shown_path, paths)))


def with_shown(row: Row, clean: Callable[[str], str] = _clean) -> Row:
    """Add `shown` to a row: what people see in place of paths and commands with secrets.

    The fields themselves stay whole, because programs use them.
    """
    rest = {key: value for key, value in row.items() if key != "shown"}
    keys = ("cwd", "sessionFile", "parentSessionFile", "resume")
    whole = {key: row[key] for key in keys if row.get(key)}
    joined = "\n".join(whole.values())
    if clean(joined) == joined:
        return rest
    folders: dict[str, str] = {}  # parts of the directory as agents write them in folder names
    for part in str(row.get("cwd") or "").split("/"):
        if (seen := clean(part)) != part:
            folders[re.sub(r"[\\:]", "-", part)] = seen
            folders[re.sub(r"[^A-Za-z0-9-]", "-", part)] = seen
    shown = {}
    for key, text in whole.items():
        seen = clean(text)
        for folder, part in folders.items():
            seen = seen.replace(folder, part)
        if seen != text:
            shown[key] = f"indexerd resume {row['sessionId']}" if key == "resume" else seen
    return rest | ({"shown": shown} if shown else {})


def for_people(row: Mapping[str, Any]) -> Row:
    return {**row, **(row.get("shown") or {})}
