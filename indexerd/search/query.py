"""What a search asks for: the words of a query, and how they are found again in a text.

In: what a user typed. Out: an `Asked` with terms (an FTS5 expression is made from them, into
which no character of the user's gets unquoted) or a vetted pattern (`re:`). `parse` never
raises; what cannot be searched for is said in `problem`.

A bare word is a term; so is a `"quoted phrase"`. `a_b.py` is the phrase a, b, py. Words that only
hold a question together ("where did we fix …") are left out, where others remain. Chinese,
Japanese, Korean, Thai, Lao, Khmer and Burmese have no spaces that SQLite's tokenizer could cut
at, so `segment` puts a zero-width space around each such character before a text is stored,
and a run of them in a query is a phrase of characters. `shown` takes the spaces out again.
A change to `segment` or `MATCH_TOKENIZER` needs a new catalog version.

A query without one letter or digit (`=>`) is searched for as it stands, like a pattern.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from indexerd.privacy.late import late
from indexerd.search.query_pattern import Pattern, escaped, vetted
from indexerd.search.query_words import Forms, forms_of, is_filler

MATCH_TOKENIZER = "unicode61 remove_diacritics 2"
QUERY_MAX = 1000  # characters of a query that are looked at
TERMS_MAX = 16
PREFIX_MIN = 3  # shorter beginnings stand in half of all words
SNIPPET_MAX = 200
_BODY_MAX = 160  # characters of a snippet without its marks
_MARKS_MAX = 15
_SPANS_MAX = 40

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_CUT = "\u200b"
_ANY_UNSPACED = late(f"[{_UNSPACED}]")
_CUTS = late(rf"(?<=[{_UNSPACED}])(?=\w)|(?<=\w)(?=[{_UNSPACED}])")
_WORD = late(r"[^\W_]+")
_PARTS = late(r'"([^"]*)"|(\S+)')
_BLANKS = late(
    r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+"
)  # control and direction characters, too: a snippet is shown on terminals


def scrub(text: str) -> str:
    """Replace lone surrogates, which SQLite refuses."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def segment(text: str) -> str:
    """The form in which a text is stored for search; pure ASCII stays as it is."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", scrub(text).replace(_CUT, ""))
    return _CUTS.sub(_CUT, text) if _ANY_UNSPACED.search(text) else text


def shown(text: str) -> str:
    """A stored text without its cuts."""
    return text.replace(_CUT, "")


_ALPHABETS = 0x2000  # Latin, Greek, Cyrillic: the tokenizer drops their diacritics


class _Folding(dict[int, int]):
    """Character to folded character, one to one, so that places stay where they are."""

    def __missing__(self, code: int) -> int:
        char = chr(code)
        lower = char.lower()
        if code < _ALPHABETS:
            whole = unicodedata.normalize("NFD", lower)
            if all(unicodedata.combining(one) for one in whole[1:]):
                lower = whole[:1]
        found = ord(lower) if len(lower) == 1 else code
        self[code] = found if found == code else self[found]  # "Å", a unit, is "å", is "a"
        return self[code]


_folding = _Folding()
_ASCII = bytes(range(128))
_KINDS_MAX = 24  # replaced one after the other


def fold(text: str) -> str:
    """Lower case without diacritics; exactly as long as `text`.

    Most texts have few characters beyond ASCII: to replace each kind of these takes a tenth of the
    time that `translate` takes to look every character up.
    """
    if text.isascii():
        return text.lower()
    coded = text.encode("utf-8", "surrogatepass")
    kinds = set(coded.translate(None, _ASCII).decode("utf-8", "surrogatepass"))
    changed = [(one, new) for one in kinds if (new := chr(_folding[ord(one)])) != one]
    if len(changed) > _KINDS_MAX:
        return text.translate(_folding)
    text = coded.lower().decode("utf-8", "surrogatepass")  # the ASCII in it
    for one, new in changed:
        text = text.replace(one, new)
    return text


class Finder:
    """Finds the terms of a query in a stored text.

    `widen`: the last word may go on; `inflect`: words may have other endings.
    """

    def __init__(self, terms: Sequence[str], *, widen: bool, inflect: bool = False) -> None:
        self._terms = [
            _Term(fold(term), open_end=widen and n == len(terms) - 1, inflect=inflect)
            for n, term in enumerate(terms)
        ]

    def counts(self, text: str) -> list[int]:
        """How often each term stands in `text`."""
        folded = fold(text)
        return [sum(1 for _ in term.spans(folded)) for term in self._terms]

    def snippet(self, text: str) -> str:
        """At most SNIPPET_MAX characters around the best place, found words in « »."""
        folded = fold(text)
        spans: list[tuple[int, int, int]] = []
        for n, term in enumerate(self._terms):
            spans += [(*span, n) for span in islice(term.spans(folded), _SPANS_MAX)]
        return excerpt(text, spans)


class _Term:
    """Finds one folded term. Its letters come first: that is what `re` can look for fast."""

    def __init__(self, term: str, *, open_end: bool, inflect: bool) -> None:
        self._forms = forms_of(term) if inflect else None
        self._begun = term if open_end else None
        if self._forms is not None:
            parts = [_begun(stem) + r"[^\W_]*" for stem in self._forms.stems]
            self._regex = re.compile("|".join(parts))
            return
        first, *others = _WORD.findall(term)
        whole = "".join([_begun(first), *(rf"[\W_]+{re.escape(word)}" for word in others)])
        self._regex = re.compile(whole if open_end else whole + r"(?![^\W_])")

    def spans(self, folded: str) -> Iterator[tuple[int, int]]:
        """The places in a folded text. A word that goes on is marked as far as it was typed."""
        for found in self._regex.finditer(folded):
            lo, hi = found.span()
            if self._forms is None or self._forms.take(found[0]):
                yield lo, hi
            elif self._begun and found[0].startswith(self._begun):
                yield lo, lo + len(self._begun)


def _begun(word: str) -> str:
    """A word's letters where a word begins."""
    letters = re.escape(word)
    return rf"{letters}(?<![^\W_]{letters})"


def excerpt(text: str, spans: Sequence[tuple[int, int, int]]) -> str:
    """Cut and mark `text` around spans (start, end, which term); blanks become one space."""
    ordered = sorted(spans)
    start, best = 0, 0
    for begin, _, _ in ordered[:_SPANS_MAX]:
        kinds = {n for lo, hi, n in ordered if lo >= begin and hi <= begin + _BODY_MAX * 3 // 4}
        if len(kinds) > best:
            start, best = begin, len(kinds)
    lo = max(0, min(start - _BODY_MAX // 4, len(text) - _BODY_MAX))
    lo = _word_edge(text, lo, start)
    hi = min(len(text), lo + _BODY_MAX)
    pieces: list[str] = []
    at = lo
    for begin, end, _ in ordered:
        if begin < at or begin >= hi or len(pieces) >= _MARKS_MAX * 2:
            continue
        pieces += [text[at:begin], f"«{text[begin : min(end, hi)]}»"]
        at = min(end, hi)
    body = _BLANKS.sub(" ", shown("".join(pieces) + text[at:hi])).strip()
    return ("…" if lo > 0 else "") + body + ("…" if hi < len(text) else "")


def _word_edge(text: str, lo: int, limit: int) -> int:
    """The next beginning of a word at or after `lo`, but not after `limit`."""
    if lo == 0 or lo >= limit:
        return min(lo, limit)
    space = re.compile(r"\s").search(text, lo - 1, limit)
    return space.end() if space else lo


@dataclass(frozen=True, slots=True)
class Asked:
    """One query. Of `terms` and `pattern` at most one is there."""

    terms: tuple[str, ...] = ()
    open_end: bool = False  # the last term may be the beginning of a word
    quoted: bool = False  # some of it is meant to the letter
    typed: int = 0  # words, those left out included
    pattern: Pattern | None = None
    problem: str | None = None

    @property
    def forms(self) -> list[Forms | None]:
        """Of each term its other forms; None where it has none, or something is quoted."""
        return [None if self.quoted else forms_of(fold(term)) for term in self.terms]

    def matches(self, *, widen: bool = False, inflect: bool = False) -> list[str]:
        """The FTS5 expression of each term. `widen`: the last may go on."""
        words = [f'"{term}"' for term in self.terms]
        if widen:
            words[-1] += " *"
        if not inflect:
            return words
        last = len(words) - 1
        return [
            f"({forms.match(open_end=widen and n == last)})" if forms else word
            for n, (word, forms) in enumerate(zip(words, self.forms, strict=True))
        ]

    def match(
        self, *, column: str | None = None, widen: bool = False, inflect: bool = False
    ) -> str:
        """The FTS5 expression: every term, in one column or in any."""
        joined = " AND ".join(self.matches(widen=widen, inflect=inflect))
        return f"{{{column}}} : ({joined})" if column else joined

    def finder(self, *, widen: bool = False, inflect: bool = False) -> Finder:
        """What finds the terms again in a stored text."""
        return Finder(self.terms, widen=widen, inflect=inflect and not self.quoted)


def parse(query: str) -> Asked:
    """Read what a user typed."""
    text = unicodedata.normalize("NFC", scrub(query[:QUERY_MAX]).replace("\0", " ")).strip()
    cut = "the query is too long: only its beginning counts" if len(query) > QUERY_MAX else None
    if text.startswith("re:"):
        return _pattern(text[3:].strip())
    if not text:
        return Asked(problem="there is nothing to search for")
    if text.count('"') % 2:  # an unbalanced quote is a character like any other
        text = text.replace('"', " ")
    parts = [(quoted or bare, bool(bare)) for quoted, bare in _PARTS.findall(text)]
    kept = [(part, bare) for part, bare in parts if _WORD.search(part)]
    if not kept:
        return Asked(pattern=escaped(text), problem=cut)
    typed = len(kept)
    telling = [one for one in kept if not (one[1] and is_filler(one[0].strip("?!.,;:")))]
    ending, kept = kept[-1], telling or kept
    if len(kept) > TERMS_MAX:
        kept, cut = kept[:TERMS_MAX], "too many words: only the first of them count"
    last, bare = kept[-1]
    words = _WORD.findall(segment(last))
    open_end = bare and len(words[-1]) >= PREFIX_MIN and last[-1:].isalnum() and kept[-1] == ending
    terms = tuple(segment(part).replace('"', " ") for part, _ in kept)
    quoted = not all(bare for _, bare in kept)
    return Asked(terms=terms, open_end=open_end, quoted=quoted, typed=typed, problem=cut)


def _pattern(text: str) -> Asked:
    try:
        return Asked(pattern=vetted(text))
    except ValueError as refused:
        return Asked(problem=f"re: {refused}")
