"""Remove secrets from texts and paths, before they are cut, sent, stored or shown.

Each secret is replaced by `[redacted:<kind>]` and counted by kind. Redacting twice changes nothing;
prose, commit hashes, UUIDs and `token = get_token()` stay. The time is linear: one pass of an
automaton finds the keywords that occur, and only the rules with one of them run.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from indexerd.privacy.patterns import (
    FOLDED_RULES,
    MARKER,
    RULES,
    Rule,
    assignments,
    compile_pattern,
    lazy_pattern,
)
from indexerd.privacy.sanitize import bare, clean_text, escape_path
from indexerd.protocol import limits

if TYPE_CHECKING:
    from indexerd.settings import Settings

Row = dict[str, Any]

_ROUNDS = 4  # at most: a replacement may expose another secret
_PRIVATE_KEY, _FOLDED, _ASSIGNED, _CUSTOM = -1, 100, 200, 1000  # ranks; others: table positions
_NAMES = ("pass", "token", "secret", "credential", "pwd", "auth", "key")  # each name has one
_FOLDED_BY_WORDS = [(rule[1].split(), (n, rule)) for n, rule in enumerate(FOLDED_RULES, _FOLDED)]
_Span = tuple[int, int, tuple[int, str]]  # start, end, (rank, kind): the lowest rank wins
_Piece = tuple[str, list[str]]  # a safe text, and the kind of each secret removed from it

# A private key may lack its first or last line, or contain a section label (`User: `) where two
# messages meet. Its lines may be escaped, joined, indented, quoted, commented, numbered or logged.
# So its data is long words of base64 with a few other characters between them, and after the last
# of these a shorter word of base64 that does not look like natural language.
_KEY_SPAN = 20_000  # characters between the first and the last line of one key
_GAP_MAX = 60  # characters between two lines of data
_EDGE = lazy_pattern(
    r"(?P<begin>-----? ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"|PuTTY-User-Key-File-\d(?:: ?[\w-]{1,40}+)?)"
    r"|(?P<end>-----? ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: [0-9a-f]*+)"
)
_LINE = r"(?=[a-z0-9+/]{0,39}[A-Z])[A-Za-z0-9+/]{40,}+={0,2}"  # not a path or a hash
_LAST = (  # padded or long, after a log's prefix; or after line ends, quotes, tags, a place
    r"(?:\n|\\{1,8}n)[^\n\\]{0,60}? (?:[A-Za-z0-9+/]{1,76}+={1,2}"
    r"|(?=[a-z0-9+/]{0,15}[A-Z])(?=[A-Z0-9+/]{0,15}[a-z])(?=\D{0,30}\d)[A-Za-z0-9+/]{16,76}+)|"
    r"(?:</?[a-z]{1,10} ?/?>|&#?\w{1,5};|%0[ADad]|[^A-Za-z0-9+/\\]|[+/]{1,3}(?=[\s\\])|b(?=['\"])"
    r"|\\{1,8}+(?:u[0-9a-f]{4}(?:\[[\d;]{0,8}m)?|[nrt])?){1,20}+"
    r"(?:(?:[\w./~-]{1,60}:)?\d{1,4}(?:[\t: |→]|\+(?=\s)|\\t|\\u2192){1,4})?"
    r"(?=[A-Za-z]{0,76}(?:[0-9+/=]|(?<=[A-Za-z])[A-Z]))[A-Za-z0-9+/]{1,76}+={0,2}"
)
_DATA = rf"{_LINE}(?:[\s\S]{{1,{_GAP_MAX}}}?{_LINE})*+(?:{_LAST})?"
_RUN = lazy_pattern(_DATA)
_AFTER_BEGIN = lazy_pattern(rf"[\s\S]{{0,500}}?{_DATA}")  # perhaps after headers


class Redacted(NamedTuple):
    """The safe text, and the number of secrets removed by kind."""

    text: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces every secret with `[redacted:<kind>]`; matches of `patterns` have the kind `custom`.

    A text with secrets is returned without invisible characters: they could be inside a secret.
    """

    patterns: tuple[str, ...] = ()  # from the settings
    enabled: bool = True

    def __call__(self, text: str) -> Redacted:
        ((safe, kinds),) = self.pieces([text])
        return Redacted(safe, Counter(kinds))

    def pieces(self, texts: list[str]) -> list[_Piece]:
        """Redact texts as one joined text, because a secret may span several of them.

        What replaces such a secret is in the text where the secret begins.
        """
        if not self.enabled:
            return [(text, []) for text in texts]
        seen = [*map(bare, texts)]
        found = _redacted(seen, self.patterns)
        if seen == texts or any(kinds for _, kinds in found):
            return found
        return _redacted(texts, self.patterns)


redact = Redactor()


def redactor(settings: Settings) -> Redactor:
    return Redactor(tuple(settings.redact.extra_patterns), settings.redact.enabled)


def secret_warnings(text: str, what: str) -> tuple[str, ...]:
    """Warn if a text that is stored unchanged seems to contain a secret."""
    kinds = ", ".join(sorted(redact(text).counts))
    warning = f"{what} seems to contain a secret ({kinds}); it is put into prompts on resume"
    return (warning,) if kinds else ()


def quotable(text: str) -> str:
    """Redact a text and escape its invisible characters, to quote it in an error."""
    return escape_path(redact(text).text)


def _redacted(texts: list[str], extra: Sequence[str]) -> list[_Piece]:
    pieces = [(text, list[str]()) for text in texts]
    for _ in range(_ROUNDS):
        text = "".join(piece for piece, _ in pieces)
        spans = [*_private_keys(text), *_by_rules(text), *_custom(text, extra)]
        if not spans:
            break
        merged = deque[_Span]()  # overlapping spans become one, named by the most specific rule
        for start, end, named in sorted(spans):
            if merged and start < merged[-1][1]:
                first, last, other = merged.pop()
                merged.append((first, max(last, end), min(other, named)))
            else:
                merged.append((start, end, named))
        begin = done = 0  # of the piece; of what was replaced, perhaps in later pieces as well
        for at, (piece, kinds) in enumerate(pieces):
            end, parts = begin + len(piece), list[str]()
            while merged and merged[0][0] < end:
                start, last, (_rank, kind) = merged.popleft()
                parts += [text[max(begin, done) : start], f"[redacted:{kind}]"]
                done = last
                kinds.append(kind)
            pieces[at] = "".join(parts) + text[max(begin, done) : end], kinds
            begin = end
    return pieces


def _private_keys(text: str) -> Iterator[_Span]:
    """Find keys from first to last line; if either is missing, as far as the data goes."""
    if "PRIVATE KEY" not in text and "PuTTY-" not in text:
        return
    begin, floor, named = None, 0, (_PRIVATE_KEY, "private-key")
    for edge in [*_EDGE.finditer(text), None]:
        limit = edge.start() if edge else len(text)
        if begin is not None:
            start = begin.end()
            if edge and edge["end"] and limit - start < _KEY_SPAN:
                yield begin.start(), edge.end(), named
                begin, floor = None, edge.end()
                continue
            rest = _AFTER_BEGIN.match(text, start, min(limit, start + _KEY_SPAN))
            if rest:
                yield begin.start(), rest.end(), named
            floor = rest.end() if rest else start
        begin = edge if edge and edge["begin"] else None
        if edge and not begin:
            runs = list(_RUN.finditer(text, max(floor, limit - _KEY_SPAN), limit))
            if runs and limit - runs[-1].end() <= 2 * _GAP_MAX:
                yield runs[-1].start(), edge.end(), named
            floor = edge.end()


def _custom(text: str, patterns: Sequence[str]) -> Iterator[_Span]:
    if not patterns:
        return
    seen = _encodable(re.sub(MARKER, lambda marker: "\n" * len(marker[0]), text))
    for pattern in map(compile_pattern, patterns):
        for match in pattern.finditer(seen):
            if match[0]:
                yield *match.span(), (_CUSTOM, "custom")


def _by_rules(text: str) -> Iterator[_Span]:
    lowered = text.replace("\u0130", "i").lower()  # the only letter that lower() makes longer
    ranked, keywords = _rules()
    called = dict.fromkeys(ranked[at] for at in keywords.Match(_encodable(text)) or ())
    rules = [(text, rule) for rule in called]
    for words, rule in _FOLDED_BY_WORDS:
        if any(map(lowered.__contains__, words)):
            rules.append((lowered, rule))
    for searched, (rank, (kind, _, pattern, genuine)) in rules:
        for match in re.finditer(pattern, searched, re.ASCII):
            start, end = match.span(match.lastgroup or 0)
            if genuine(text[start:end]):
                yield start, end, (rank, kind)
    if any(map(lowered.__contains__, _NAMES)):
        for start, end, kind in assignments(text, lowered):
            yield start, end, (_ASSIGNED, kind)


@cache
def _rules() -> tuple[list[tuple[int, Rule]], Any]:
    """Make an automaton that finds all keywords in a text, and the list of their rules."""
    import re2  # noqa: PLC0415 - 13 ms, which most commands do not need

    options = re2.Options()
    options.literal = True
    keywords, ranked = re2.Set.SearchSet(options), []
    for rank, rule in enumerate(RULES):
        for word in rule[1].split():
            keywords.Add(word)
            ranked.append((rank, rule))
    keywords.Compile()
    return ranked, keywords


def _encodable(text: str) -> str:
    """Replace lone surrogates without changing the length."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@lru_cache(4096)
def shown_path(path: str) -> str:
    return redact(path).text


def with_shown(row: Row, clean: Callable[[str], str] = shown_path) -> Row:
    """Add `shown` to a row: redacted paths and commands for people; programs use the fields."""
    rest = {key: value for key, value in row.items() if key != "shown"}
    keys = ("cwd", "movedTo", "project", "sessionFile", "parentSessionFile", "resume")
    whole = {key: row[key] for key in keys if row.get(key)}
    if not any(clean(text) != text for text in whole.values()):
        return rest
    folders: dict[str, str] = {}  # parts of the cwd, as agents spell them in folder names
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
    return rest | {"shown": shown}


def for_people(row: Mapping[str, Any]) -> Row:
    return {**row, **(row.get("shown") or {})}


_CACHED_MAX = 300  # characters: shorter texts, as paths, are often the same

_TEXTS = dict.fromkeys(("name", "metaName", "model"), limits.NAME_MAX)
_TEXTS |= dict.fromkeys(("firstUserMessage", "agentTitle", "question"), limits.FIRST_MESSAGE_MAX)
_TEXTS |= dict.fromkeys(("gitBranch", "models", "toolsUsed"), limits.WORD_MAX)
_TEXTS |= dict.fromkeys(("filesRead", "filesModified"), limits.PATH_MAX)
_TEXTS |= dict.fromkeys(("description", "recap"), limits.DESCRIPTION_MAX)
_TEXTS |= dict.fromkeys(("tags", "ownTags"), limits.TAG_MAX)
_TEXTS |= {"toolUses": limits.USE_MAX}


class StoredRow(NamedTuple):
    """A session's row, and its other searchable texts."""

    row: Row
    summary: str
    aliases: tuple[str, ...]


class OwnSecrets:
    """Removes the user's own kinds of secrets (`[redact] extra_patterns`) from searchable text.

    Built-in kinds are removed as well, even if redaction of sent text is off: an index needs no
    secrets. `mark` changes with the patterns, and then all is indexed again; "": no patterns.
    """

    def __init__(self, patterns: Callable[[], Sequence[str]]) -> None:
        self._patterns = patterns
        self.renew()

    def renew(self) -> None:
        """Read the patterns from the settings."""
        patterns = sorted(set(self._patterns()))
        digest = blake2b(json.dumps(patterns).encode(), digest_size=6).hexdigest()
        self.mark = f"~{digest}" if patterns else ""
        self._redactor = Redactor(tuple(patterns))
        self._redacted_cached = lru_cache(4096)(self._redacted)

    def _redacted(self, text: str) -> str:
        return self._redactor(text).text

    def message(self, text: str, limit: int) -> str:
        return clean_text(self._redacted(text), limit)

    def written(self, written: StoredRow) -> StoredRow:
        """Clean a row and its texts, of which built-in kinds were already removed."""
        if not self.mark:
            return written
        row, summary, aliases = written
        texts = {key: self._clean(row[key], most) for key, most in _TEXTS.items() if key in row}
        names = tuple(self._clean(alias, limits.NAME_MAX) for alias in aliases)
        row = with_shown(row | texts, self._redacted)
        return StoredRow(row, self._clean(summary, limits.SUMMARY_MAX), names)

    def redact_all(self, value: Any) -> Any:
        """Redact every text of a JSON value, keys included, whatever was done before."""
        if isinstance(value, dict):
            return {self.redact_all(key): self.redact_all(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_all(item) for item in value]
        if not isinstance(value, str):
            return value
        return self._redacted_cached(value) if len(value) <= _CACHED_MAX else self._redacted(value)

    def _clean(self, value: Any, most: int) -> Any:
        """Clean a value's texts, without a last word that may have been cut: half a secret."""
        if isinstance(value, dict):
            return {self._clean(key, most): self._clean(item, most) for key, item in value.items()}
        if isinstance(value, list):
            return [self._clean(item, most) for item in value]
        if not isinstance(value, str):
            return value
        if len(value) >= most - 1 and " " in value and not value.endswith(" …"):
            value = value.rstrip("…").rpartition(" ")[0] + " …"
        return self.message(value, most)
