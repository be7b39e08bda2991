"""Parse a search query, and find its words in a text.

A bare word is a term; so is a `"quoted phrase"`, and `a_b.py` is the phrase a, b, py. Chinese,
Japanese, Korean, Thai, Lao, Khmer and Burmese have no spaces for a tokenizer to split at:
`indexable` puts a space around each such character, and a run of them in a query is a phrase. Parts
of `camelCase` words are indexed behind the text. A query without a letter or digit (`=>`) is
searched for literally, like a pattern (`re:`, RE2's syntax). Filters (`agent:claude`) are taken out
first, except from quoted text.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice, pairwise
from pathlib import Path

from indexerd.errors import UsageError
from indexerd.privacy.patterns import compile_re2, lazy_pattern
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.store.store import Filter
from indexerd.times import since

QUERY_MAX = 1000  # characters of a query that are read
PATTERN_MAX = 250
TERMS_MAX = 16
_SLIP_MIN = 5  # letters of a word that may be mistyped
SNIPPET_MAX = 200
_PREFIX_MIN = 3  # shorter prefixes match half of all words
_BODY_MAX = 160  # characters of a snippet without its marks
_NEAR_MAX = 800  # characters before and behind its best place of which Markdown is removed
_MARKS_MAX = 15
_SPANS_MAX = 20

Span = tuple[int, int, int]  # start and end of a match, and the number of its term

_LANGUAGES = ("en", "de", "fr", "es", "it")
_NO_STOP_WORDS = """ai alias allow area areas auth back backward bill brief buy call caption case
    cases ci clear click comment computer copy cv date describe detail down empty end ends example
    face faces fill fire fix font forward free group groups hello home homepage html http hue id
    index information inner interest join key keys kind line local logo member members million
    minus move multiple name new null number numbers off old open opens order ordering os page
    pages part parts place places plus point points problem problems ref refs research reserved
    result results ring room rooms run second seconds section shell side site state states stop
    system tag tap test text tip todo total turn turns tz ui unique value var web webpage website
    width word world year years zero"""
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_ANY_UNSPACED = lazy_pattern(f"[{UNSPACED}]")
_UNSPACED_RUN = lazy_pattern(f"[{UNSPACED}]+")
_CUTS = lazy_pattern(rf"(?<=[{UNSPACED}])(?=\w)|(?<=\w)(?=[{UNSPACED}])")
# A quoted name ends with its quote, or at the end of a truncated text.
_REFERENCE = lazy_pattern(r'@@(?:"[^"]*(?:"|\Z)|“[^”]*(?:”|\Z)|\S)\S*')
_WORD = lazy_pattern(r"[^\W_]+")
_ANY_WORD = lazy_pattern(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")  # in a text not split by _CUTS
_PARTS = lazy_pattern(r'"([^"]*)"|(\S+)')
_FILTER = re.compile(
    r'"[^"]*"|(?<!\S)(?P<name>agent|project|tag|since):(?:"(?P<quoted>[^"]+)"|(?P<value>[^\s"]+))(?!\S)'
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BLOCK = lazy_pattern(r"(?m)(?<!\S)#{2,6} |^[ \t]*(?:# |> ?|[-*+] |```.*$|[|:-][|: \t-]*+$)")
_ROW = lazy_pattern(r"(?m)^[ \t]*\|.*$")
_INLINE = lazy_pattern(r"\*\*(?=\S)|(?<=\S)\*\*|`|!?\[(?P<link>[^\]\n]{1,300})\]\([^)\s]{1,300}\)")
_LOWER_UPPER = re.compile(r"[A-Z](?<=[a-z0-9].)")  # as _HUMP, but finds capitals first: faster
_HUMPED = re.compile(r"(?<![^\W_])[A-Z]*+[a-z0-9]++(?:[A-Z]++[a-z0-9]*+)++")


def split_filters(query: str, now: float) -> tuple[list[Filter], str]:
    """Take the filters out of a query, which then may be empty; UsageError for an unknown value.

    `now` in seconds since the epoch.
    """
    filters: list[Filter] = []

    def take(part: re.Match[str]) -> str:
        name, value = part["name"], part["quoted"] or part["value"]
        if not name:
            return part[0]
        if name == "agent":
            value = value.lower()
        if name == "since":
            value = since(value, now)
        if name == "project":
            value = os.path.expanduser(value)  # noqa: PTH111 - no error without a home
        filters.append(Filter(**{name: value}))
        return " "

    return filters, _FILTER.sub(take, query[:QUERY_MAX]) + query[QUERY_MAX:]


def typed_filters(query: str) -> dict[str, tuple[str, str]]:
    """Map the names of a query's filters to their values, and to the query without them."""
    return {
        part["name"]: (
            part["quoted"] or part["value"],
            f"{query[: part.start()].rstrip()} {query[part.end() :].lstrip()}".strip(),
        )
        for part in _FILTER.finditer(query)
        if part["name"]
    }


@cache
def stop_words(*more: str) -> frozenset[str]:
    """Return the folded stop words of `_LANGUAGES` and more, but for those that name things here.

    `more` are ISO 639-1 codes.
    """
    from stopwordsiso import stopwords  # noqa: PLC0415 - a megabyte, only when needed

    words = map(fold, stopwords([*_LANGUAGES, *more]))
    return frozenset(words).difference(_NO_STOP_WORDS.split())


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return the English stem of a folded word."""
    from snowballstemmer import stemmer  # type: ignore[import-untyped] # noqa: PLC0415 - as above

    # A new stemmer each time: it keeps its current word, which threads would share.
    return str(stemmer("english").stemWord(word)) if word.isascii() else word


@cache
def _synonyms() -> dict[str, set[str]]:
    groups = Path(__file__).with_name("synonyms.txt").read_text("utf-8")
    found: dict[str, set[str]] = {}
    for group in groups.splitlines():
        stems = {*map(stem, group.split())}
        for word in stems:
            found.setdefault(word, set()).update(stems - {word})
    return found


def synonyms(base: str) -> Collection[str]:
    """Return the stems of words that mean about the same as a stem, in software work."""
    return _synonyms().get(base, ())


def is_slip(word: str, other: str) -> bool:
    """Return whether a letter of a typed word is missing, extra, or swapped with the next."""
    if len(word) < _SLIP_MIN or word[0] != other[0] or not (word + other).isalpha():
        return False  # numbers and versions must be identical
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - 4 MB, for words that nothing has

    is_near = OSA.distance(word, other, score_cutoff=1) == 1
    return is_near and (len(word) != len(other) or sorted(word) == sorted(other))


def is_filler(word: str) -> bool:
    """Return whether a word alone says nothing about a topic."""
    return re.sub(r"\W", "", fold(word)) in stop_words()


def storable(text: str) -> str:
    """Normalize a text's Unicode, so that it has the same words as its `indexable` form."""
    return text if text.isascii() else unicodedata.normalize("NFC", replace_surrogates(text))


def indexable(text: str) -> str:
    """Fold a text, and split unspaced scripts; a change here needs a new index `VERSION`."""
    text = fold(text)
    if text.isascii():
        return text
    return _UNSPACED_RUN.sub(lambda run: f" {_cut(run[0])} ", text)


def _cut(run: str) -> str:
    return " ".join(run) if run.isalnum() else _CUTS.sub(" ", run)


def humps(text: str) -> str:
    """Return the parts of a text's `camelCase` words."""
    lines = filter(_LOWER_UPPER.search, text.split("\n"))
    return _HUMP.sub(" ", " ".join(dict.fromkeys(_HUMPED.findall("\n".join(lines)))))


def fold(text: str) -> str:
    """Lower the case and drop diacritics, without changing the text's length.

    Replacing each kind of character takes a tenth of the time of `translate`.
    """
    if text.isascii():
        return text.lower()
    for char in set(text):
        if char > "\x7f" and (new := _folded(char)) != char:
            text = text.replace(char, new)
    return text.lower()  # the remaining capitals are ASCII


@cache
def _folded(char: str) -> str:
    lower = char.lower()
    if char < "\u2000":  # Latin, Greek, Cyrillic; in other scripts marks are part of letters
        whole = unicodedata.normalize("NFD", lower)
        if all(map(unicodedata.combining, whole[1:])):
            lower = whole[:1]
    return char if len(lower) != 1 or lower == char else _folded(lower)  # Å, a unit, is å, is a


class Term:
    """A word of a query, or a phrase: `spellings` are the sequences of words that mean it.

    `forms` are the words of an index that the last word of a spelling stands for.
    """

    def __init__(self, text: str, *, quoted: bool = False, open_end: bool = False) -> None:
        self.text, self.quoted = text, quoted
        plain = _words(text)
        self.spellings = [plain]
        if not quoted:
            for other in (_words(_HUMP.sub(" ", text)), ["".join(plain)]):
                if other not in self.spellings and (len(other) > 1 or other[0].isalpha()):
                    self.spellings.append(other)
        self.begins = open_end and len(plain[-1]) >= _PREFIX_MIN  # may be a prefix
        self.needed = quoted or not is_filler(text)
        self.forms: dict[str, set[str]] = {}

    def forms_of(self, word: str) -> set[str]:
        return self.forms.get(word) or {word}

    def looser(self) -> list[Term]:
        """Return the terms to look for if nothing has this one; of Chinese, pairs of characters."""
        words = self.spellings[0]
        if all(len(word) == 1 and _ANY_UNSPACED.match(word) for word in words):
            words = [first + second for first, second in pairwise(words)]
        return [Term(word) for word in words] if not self.quoted and len(words) > 1 else []


def _words(text: str) -> list[str]:
    return _WORD.findall(indexable(text))


class Finder:
    """Finds the terms of a query in a stored text."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._spellings = [
            (n, [set(words[i : i + 1]) for i in range(len(words) - 1)], term.forms_of(words[-1]))
            for n, term in enumerate(terms)
            for words in term.spellings
        ]
        self._taken: dict[str, set[int]] = {}  # word -> the terms that have it
        for n, before, last in self._spellings:
            for word in (*last, *(word for words in before for word in words)):
                self._taken.setdefault(word, set()).add(n)
        longest_first = sorted(self._taken, key=len, reverse=True)
        self._regex = re.compile(rf"(?:{'|'.join(map(re.escape, longest_first))})[^\W_]*")

    def _found(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the start and end of matching words, and the folded word."""
        folded = fold(text)
        spaced = folded.isascii() or not _ANY_UNSPACED.search(folded)
        for match in (self._regex if spaced else _ANY_WORD).finditer(folded):
            lo, hi = match.span()
            if spaced and lo and folded[lo - 1].isalnum() and not _HUMP.match(text, lo):
                continue  # a look-behind in the pattern would take four times as long
            if match[0] in self._taken:
                yield lo, hi, match[0]
                continue
            hump = _HUMP.search(text, lo + 1, hi)
            if hump and (part := folded[lo : hump.start()]) in self._taken:
                yield lo, hump.start(), part

    def terms_in(self, text: str) -> set[int]:
        """Return which terms are in `text`; of a phrase, all words must be."""
        there = {word for _, _, word in self._found(text)}
        return {
            n
            for n, before, last in self._spellings
            if not there.isdisjoint(last) and not any(map(there.isdisjoint, before))
        }

    def spans(self, text: str) -> list[Span]:
        """Return where the first matching words are."""
        spans: list[Span] = []
        for lo, hi, n in islice(self._whole(text), _SPANS_MAX * len(self._taken)):
            if spans and spans[-1][1] == lo:  # no space between the words
                spans[-1] = (spans[-1][0], hi, n)
            else:
                spans.append((lo, hi, n))
        return spans

    def _whole(self, text: str) -> Iterator[Span]:
        """Find the matching words, those of a phrase only where it is whole, if it is anywhere."""
        found = [(lo, hi, word, min(self._taken[word])) for lo, hi, word in self._found(text)]
        whole = dict[int, set[int]]()  # by phrase: places in `found`
        for n, before, last in self._spellings:
            words: list[Collection[str]] = [*before, last]
            for at in range(len(found) - len(before)) if before else ():
                run = found[at : at + len(words)]
                near = all(not _WORD.search(text, a[1], b[0]) for a, b in pairwise(run))
                if near and all(one[2] in fits for one, fits in zip(run, words, strict=True)):
                    whole.setdefault(n, set()).update(range(at, at + len(words)))
        for at, (lo, hi, _, n) in enumerate(found):
            if n not in whole or at in whole[n]:
                yield lo, hi, n


def snippet(text: str, find: Callable[[str], Sequence[Span]], *, markdown: bool) -> str:
    """Return at most SNIPPET_MAX characters around the best place, with matches in « ».

    Without the signs of Markdown, unless the only match is among them. White space is folded.
    """
    spans, cut = find(text), False
    if markdown:
        start = _best_place(spans)
        lo = max(0, start - _NEAR_MAX)
        lo = max(lo, text.rfind("\n", lo, max(0, start - _BODY_MAX)) + 1)
        near = without_markdown(text[lo : start + _NEAR_MAX])
        if (found := find(near)) or not spans:
            text, spans, cut = near, found, lo > 0
    return _excerpt(text, spans, cut=cut)


def _best_place(spans: Sequence[Span]) -> int:
    """Find where most terms are close together; 0 without a match."""
    start, best, every = 0, 0, len({n for _, _, n in spans})
    for begin, _, _ in spans[:_SPANS_MAX]:
        kinds = {n for lo, hi, n in spans if lo >= begin and hi <= begin + _BODY_MAX * 3 // 4}
        if len(kinds) > best:
            start, best = begin, len(kinds)
        if best == every:
            break
    return start


def _excerpt(text: str, spans: Sequence[Span], *, cut: bool) -> str:
    """Cut `text`, whose beginning may be `cut` already, around sorted spans, and mark them."""
    start = _best_place(spans)
    lo = max(0, min(start - _BODY_MAX // 4, len(text) - _BODY_MAX))
    if 0 < lo < start:  # advance to the start of a word
        space = re.compile(r"\s").search(text, lo - 1, start)
        lo = space.end() if space else lo
    hi = min(len(text), lo + _BODY_MAX)
    hi = next((min(e, hi + _BODY_MAX // 8) for b, e, _ in spans if b < hi < e), hi)  # a whole word
    pieces, at = list[str](), lo
    for begin, end, _ in spans:
        if at <= begin < hi and len(pieces) < _MARKS_MAX * 2:
            pieces += [text[at:begin], f"«{text[begin : min(end, hi)]}»"]
            at = min(end, hi)
    body = clean_line("".join(pieces) + text[at:hi], SNIPPET_MAX)
    return ("…" if lo > 0 or cut else "") + body + ("…" if hi < len(text) else "")


def without_markdown(text: str) -> str:
    """Remove Markdown's signs from a text; the words of links and tables stay."""
    text = _ROW.sub(lambda row: row[0].replace("|", " "), _BLOCK.sub("", text))
    return _INLINE.sub(lambda sign: sign["link"] or "", text)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed query: terms, or a pattern, or neither."""

    terms: tuple[Term, ...] = ()
    find: Callable[[str], tuple[int, int] | None] | None = None  # finds a pattern's first match
    problem: str | None = None


def parse(query: str) -> ParsedQuery:
    """Parse a query; UsageError for a pattern that is invalid."""
    text = replace_surrogates(query[:QUERY_MAX]).replace("\0", " ")
    text = unicodedata.normalize("NFC", text).strip()
    cut = (
        f"only the first {QUERY_MAX} characters are searched for"
        if len(query) > QUERY_MAX
        else None
    )
    if text.startswith("re:"):
        return ParsedQuery(find=_pattern(text[3:].strip()))
    if text.count('"') % 2:  # an unbalanced quote is an ordinary character
        text = text.replace('"', " ").strip()
    if not text:
        return ParsedQuery(problem="there is nothing to search for")
    parts = [(quoted or bare, bool(quoted)) for quoted, bare in _PARTS.findall(text)]
    typed = [
        (word, quoted)
        for part, quoted in parts
        for word in ([part.replace('"', " ")] if quoted else part.split("-"))
        if _WORD.search(word)
    ]
    typed = list(dict.fromkeys(typed))
    if not typed:
        return ParsedQuery(find=_pattern(re.escape(text[: PATTERN_MAX // 2])), problem=cut)
    if len(typed) > TERMS_MAX:  # fillers go first
        typed = [one for one in typed if one[1] or not is_filler(one[0])] or typed
    if len(typed) > TERMS_MAX:
        typed, cut = typed[:TERMS_MAX], f"only the first {TERMS_MAX} words are searched for"
    *first, (last, quoted) = typed
    terms = [Term(part, quoted=quoted) for part, quoted in first]
    terms.append(Term(last, quoted=quoted, open_end=not quoted and text[-1:].isalnum()))
    if not any(term.needed for term in terms):
        for term in terms:
            term.needed = True
    return ParsedQuery(tuple(terms), problem=cut)


def _pattern(text: str) -> Callable[[str], tuple[int, int] | None]:
    """Compile a pattern that ignores case; UsageError with the reason if it is invalid."""
    if not text or len(text) > PATTERN_MAX:
        raise UsageError(f"re: a pattern has 1 to {PATTERN_MAX} characters")
    try:
        regex = compile_re2(text, "i")
    except ValueError as bad:
        hint = "patterns have RE2's syntax: no look-around, no back-references"
        raise UsageError(f"re: not a regular expression: {bad}", hint=hint) from None

    def find(text: str) -> tuple[int, int] | None:
        spans = (match.span() for match in regex.finditer(text))
        return next(((lo, hi) for lo, hi in spans if hi > lo), None)

    return find


def without_references(name: str) -> str:
    """Remove the `@@` references from a name."""
    return _REFERENCE.sub(" ", name) if "@@" in name else name
