"""What a search asks for: the words of a query, and how they are found again in a text.

In: what a user typed. Out: an `Asked` with terms, or a pattern (`re:`). `parse` never raises; what
cannot be searched for is said in `problem`.

A bare word is a term; so is a `"quoted phrase"`. `a_b.py` is the phrase a, b, py. Words that only
hold a question together ("where did we fix …") are left out, where others remain. Chinese,
Japanese, Korean, Thai, Lao, Khmer and Burmese have no spaces that a tokenizer could cut at, so
`indexable` puts one around each such character, and a run of them in a query is a phrase of
characters. A change to `indexable` needs a new version of the index.

Patterns are RE2's, which takes linear time whatever is typed: no look-around, no references back
to a group. A query without one letter or digit (`=>`) is searched for as it stands, like a pattern.

Words have other forms (cache, caches, caching; -ise and -ize, -our and -or). Endings are those of
English, and the commonest of German and French; for other languages a word stands for itself. This
is no linguistics: it is asked only after the words as they were typed, and counts for less.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.sanitize import scrub

QUERY_MAX = 1000  # characters of a query that are looked at
PATTERN_MAX = 250
TERMS_MAX = 16
PREFIX_MIN = 3  # shorter beginnings stand in half of all words
SNIPPET_MAX = 200
_PATTERN_MEMORY = 8 << 20  # bytes that a pattern may take, compiled
_BODY_MAX = 160  # characters of a snippet without its marks
_MARKS_MAX = 15
_SPANS_MAX = 40

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_ANY_UNSPACED = lazy_pattern(f"[{_UNSPACED}]")
_CUTS = lazy_pattern(rf"(?<=[{_UNSPACED}])(?=\w)|(?<=\w)(?=[{_UNSPACED}])")
_WORD = lazy_pattern(r"[^\W_]+")
_PARTS = lazy_pattern(r'"([^"]*)"|(\S+)')
_BLANKS = lazy_pattern(
    r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+"
)  # control and direction characters, too: a snippet is shown on terminals


def storable(text: str) -> str:
    """A text as it is stored: in one form of Unicode, so that it has the words of `indexable`."""
    return text if text.isascii() else unicodedata.normalize("NFC", scrub(text))


def indexable(text: str) -> str:
    """The form in which a stored text is indexed: folded, and cut where words have no spaces."""
    text = fold(text)
    if text.isascii() or not _ANY_UNSPACED.search(text):
        return text
    return _CUTS.sub(" ", text)


def words_of(text: str) -> list[str]:
    """The words of a term, as they are indexed."""
    return _WORD.findall(indexable(text))


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
        first, *others = words_of(term)
        whole = "".join([_begun(first), *(_then(word) for word in others)])
        unspaced = _ANY_UNSPACED.match((others or [first])[-1])
        self._regex = re.compile(whole if open_end or unspaced else whole + r"(?![^\W_])")

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
    if _ANY_UNSPACED.match(word):
        return letters
    return rf"{letters}(?<![^\W_{_UNSPACED}]{letters})"


def _then(word: str) -> str:
    """The next word of a phrase; one without spaces may stand right behind."""
    return rf"[\W_]{'*' if _ANY_UNSPACED.match(word) else '+'}{re.escape(word)}"


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
    body = _BLANKS.sub(" ", "".join(pieces) + text[at:hi]).strip()
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
        return Asked(pattern=Pattern(text[:PATTERN_MAX], literal=True), problem=cut)
    typed = len(kept)
    telling = [one for one in kept if not (one[1] and is_filler(one[0].strip("?!.,;:")))]
    ending, kept = kept[-1], telling or kept
    if len(kept) > TERMS_MAX:
        kept, cut = kept[:TERMS_MAX], "too many words: only the first of them count"
    last, bare = kept[-1]
    words = words_of(last)
    open_end = bare and len(words[-1]) >= PREFIX_MIN and last[-1:].isalnum() and kept[-1] == ending
    terms = tuple(part.replace('"', " ") for part, _ in kept)
    quoted = not all(bare for _, bare in kept)
    return Asked(terms=terms, open_end=open_end, quoted=quoted, typed=typed, problem=cut)


def _pattern(text: str) -> Asked:
    try:
        return Asked(pattern=Pattern(text))
    except ValueError as refused:
        return Asked(problem=f"re: {refused}")


class Pattern:
    """A pattern that takes linear time; case never counts."""

    def __init__(self, text: str, *, literal: bool = False) -> None:
        """`literal`: it stands for itself. ValueError says why it is refused."""
        import re2  # noqa: PLC0415 - few searches need it

        if not text or len(text) > PATTERN_MAX:
            raise ValueError(f"a pattern has 1 to {PATTERN_MAX} characters")
        options = re2.Options()
        options.case_sensitive, options.log_errors = False, False
        options.max_mem = _PATTERN_MEMORY
        try:
            self._regex: Any = re2.compile(re2.escape(text) if literal else text, options)
        except re2.error as bad:
            why = bad.args[0] if bad.args else ""
            why = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
            raise ValueError(f"not a regular expression: {why}") from None

    def find(self, text: str) -> tuple[int, int] | None:
        """The first place that fits; one of no length counts as none."""
        spans = (one.span() for one in self._regex.finditer(text))
        return next(((lo, hi) for lo, hi in spans if hi > lo), None)


_SHORT_MIN = 3  # letters of a stem
_STEM_MIN = 4  # letters of one that a vowel, or a doubled letter, may be cut off from

# What questions and half-sentences are held together with: English, German, French, Spanish.
_FILLERS = frozenset(
    re.findall(
        r"\w+",
        """
    a an the this that these those there here it its i me my mine we us our ours you your he she
    they them their who whom whose which what when where why how
    is are was were be been being am do does did done doing have has had having can could shall
    should will would may might must not no nor
    and or but if then than so as of at by for from in into on onto to with without about after
    again also any all some just only one ones once ever
    did didnt dont doesnt wasnt isnt thats whats wheres ive
    chat conversation session sessions talk talked talking discuss discussed remember something
    thing stuff please tell said say says
    der die das den dem des ein eine einen einem einer und oder aber nicht ist sind war waren wir
    ich du sie er es wo wie was wann warum wieso welche welcher welches haben hat hatten habe mit
    von zu zum zur im am auf für bei nach über dass
    le la les un une des du de et ou mais est sont nous vous je tu il elle où quand comment
    pourquoi quel quelle avons avec pour dans sur que qui
    el los las una y pero es son fue donde dónde cuando cuándo como cómo por qué para con hemos
    """,
    )
)
# These are cut off, the first that fits; any of them may stand in the text instead.
_CUT = "ungen ings ing ung ers ied ies ed er es en em ly s e y"
_ENDINGS = tuple(re.findall(r"\w+", _CUT))
_MORE = re.findall(r"\w+", "ion ions ation ations ment ments d n t te ten al able")
_ENDED = frozenset({"", *_ENDINGS, *_MORE})
_LETTERS = re.compile(r"[^\W\d_]+")
_TWO_WAYS = (("is", "iz"), ("iz", "is"), ("our", "or"), ("or", "our"))


def is_filler(word: str) -> bool:
    """Say whether a word only holds a question together."""
    return re.sub(r"\W", "", word.lower()) in _FILLERS


class Forms(NamedTuple):
    """In which forms a folded word may stand in a text."""

    word: str
    stems: tuple[str, ...]

    def take(self, word: str) -> bool:
        """Say whether a folded word is one of the forms."""
        return word == self.word or any(
            word[len(stem) :] in _ENDED
            or (word[len(stem) : len(stem) + 1] == stem[-1] and word[len(stem) + 1 :] in _ENDED)
            for stem in self.stems
            if word.startswith(stem)
        )


def forms_of(word: str) -> Forms | None:
    """The forms of a folded word; None where it has but one."""
    if not _LETTERS.fullmatch(word) or len(word) < _SHORT_MIN:
        return None
    stem = _stem(word)
    return Forms(word, (stem, *_spelt_otherwise(stem)))


def _stem(word: str) -> str:
    """The part of a word that its forms share."""
    for ending in _ENDINGS:
        rest = word.removesuffix(ending)
        if rest == word or len(rest) < _SHORT_MIN:
            continue
        if len(rest) < _STEM_MIN and ending in {"e", "y"}:
            continue  # "lane" is not "lan"
        doubled = len(rest) >= _STEM_MIN and rest[-1] == rest[-2] and rest[-1] not in "aeoufslz"
        return rest[:-1] if doubled else rest
    return word


def _spelt_otherwise(stem: str) -> list[str]:
    for one, other in _TWO_WAYS:
        if stem.endswith(one) and len(stem) > _STEM_MIN:
            return [stem.removesuffix(one) + other]
    return []
