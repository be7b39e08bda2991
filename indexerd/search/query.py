"""Parse a search query, and find its words in a text.

A bare word is a term; so is a `"quoted phrase"`, and `a_b.py` is the phrase a, b, py. Filler words
of a question ("where did we fix …") are left out if others remain. Chinese, Japanese, Korean, Thai,
Lao, Khmer and Burmese have no spaces for a tokenizer to split at: `indexable` puts a space around
each such character, and a run of them in a query is a phrase. A query without a letter or digit
(`=>`) is searched for literally, like a pattern (`re:`, RE2's syntax).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from indexerd.privacy.patterns import compile_re2, lazy_pattern
from indexerd.privacy.sanitize import clean_line, replace_surrogates

QUERY_MAX = 1000  # characters of a query that are read
PATTERN_MAX = 250
TERMS_MAX = 16
SNIPPET_MAX = 200
_PREFIX_MIN = 3  # shorter prefixes match half of all words
_BODY_MAX = 160  # characters of a snippet without its marks
_MARKS_MAX = 15
_SPANS_MAX = 20

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_ANY_UNSPACED = lazy_pattern(f"[{_UNSPACED}]")
_CUTS = lazy_pattern(rf"(?<=[{_UNSPACED}])(?=\w)|(?<=\w)(?=[{_UNSPACED}])")
# A quoted name ends with its quote, or at the end of a truncated text.
_REFERENCE = lazy_pattern(r'@@(?:"[^"]*(?:"|\Z)|“[^”]*(?:”|\Z)|\S)\S*')
_WORD = lazy_pattern(r"[^\W_]+")
_ANY_WORD = lazy_pattern(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")  # in a text not split by _CUTS
_PARTS = lazy_pattern(r'"([^"]*)"|(\S+)')

# Filler words of questions in English, German, French and Spanish.
_FILLING = """
a an the this that these those there here it its i me my mine we us our ours you your he she
they them their who whom whose which what when where why how is are was were be been being am
do does did done doing have has had having can could shall should will would may might must
not no nor and or but if then than so as of at by for from in into on onto to with without
about after again also any all some just only one ones once ever did didnt dont doesnt wasnt
isnt thats whats wheres ive chat conversation session sessions talk talked talking discuss
discussed remember something thing stuff please tell said say says
der die das den dem des ein eine einen einem einer und oder aber nicht ist sind war waren wir
ich du sie er es wo wie was wann warum wieso welche welcher welches haben hat hatten habe mit
von zu zum zur im am auf für bei nach über dass
la le les un une des du de et ou mais est sont nous vous je tu il elle où quand comment
pourquoi quel quelle avons avec pour dans sur que qui
el los las una y pero es son fue donde dónde cuando cuándo como cómo por qué para con hemos
"""
_FILLERS = frozenset(_FILLING.split())
_STEM_MIN, _CUT_STEM_MIN = 3, 4  # letters of a stem; if a vowel or a double letter is cut off
_CUT_OFF = "ungen ings ing ung ers ied ies ed er es en em ly s e y"  # the first match counts
_OTHERS = "ion ions ation ations ment ments d n t te ten al able"  # endings of the same stem
_ENDINGS = _CUT_OFF.split()
_ENDED = {"", *_ENDINGS, *_OTHERS.split()}


def storable(text: str) -> str:
    """Normalize a text's Unicode, so that it has the same words as its `indexable` form."""
    return text if text.isascii() else unicodedata.normalize("NFC", replace_surrogates(text))


def indexable(text: str) -> str:
    """Fold a text, and split unspaced scripts; a change here needs a new index `VERSION`."""
    text = fold(text)
    if text.isascii() or not _ANY_UNSPACED.search(text):
        return text
    return _CUTS.sub(" ", text)


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
    """A word or phrase of a query. `begins` are prefixes of words that may match."""

    def __init__(self, text: str, *, open_end: bool = False, inflect: bool = False) -> None:
        self.words: list[str] = _WORD.findall(indexable(text))
        single = self.words[0] if len(self.words) == 1 else ""
        self._begun = single if open_end else ""
        self._stem = _stem(single) if inflect and len(single) >= _STEM_MIN else ""
        self.begins = tuple(filter(None, (self._begun, self._stem)))

    def takes(self, word: str) -> bool:
        """Return whether a folded word is the term, one of its forms, or a word of the phrase."""
        if word in self.words or (self._begun and word.startswith(self._begun)):
            return True
        if not self._stem or not word.startswith(self._stem):
            return False
        rest = word.removeprefix(self._stem)
        return rest in _ENDED or (rest[0] == self._stem[-1] and rest[1:] in _ENDED)


def _stem(word: str) -> str:
    """Cut off a folded word's ending; its other forms begin with the rest."""
    for ending in _ENDINGS:
        rest = word.removesuffix(ending)
        if rest == word or len(rest) < _STEM_MIN:
            continue
        if len(rest) < _CUT_STEM_MIN and ending in {"e", "y"}:
            continue  # "lane" is not "lan"
        doubled = rest[-1] == rest[-2] and rest[-1] not in "aeoufslz"
        return rest[:-1] if doubled and len(rest) >= _CUT_STEM_MIN else rest
    return word


class Finder:
    """Finds the terms of a query in a stored text."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = terms
        self._taken: dict[str, list[int]] = {}  # word -> the terms that it matches
        begins = {begin for term in terms for begin in (*term.words, *term.begins)}
        self._regex = re.compile(rf"(?:{'|'.join(map(re.escape, begins))})[^\W_]*")

    def _found(self, folded: str) -> Iterator[tuple[int, int, int]]:
        """Yield the start and end of matching words, and the number of their term."""
        spaced = folded.isascii() or not _ANY_UNSPACED.search(folded)
        for match in (self._regex if spaced else _ANY_WORD).finditer(folded):
            if spaced and match.start() and folded[match.start() - 1].isalnum():
                continue  # a look-behind in the pattern would take four times as long
            if (taken := self._taken.get(match[0])) is None:
                taken = [n for n, term in enumerate(self._terms) if term.takes(match[0])]
                self._taken[match[0]] = taken
            for n in taken:
                yield *match.span(), n

    def terms_in(self, text: str) -> set[int]:
        """Return which terms are in `text`; of a phrase, all words must be."""
        folded, terms = fold(text), self._terms
        words = {(n, folded[lo:hi]) for lo, hi, n in self._found(folded)}
        return {n for n, _ in words if all((n, word) in words for word in terms[n].words[1:])}

    def snippet(self, text: str) -> str:
        """Return at most SNIPPET_MAX characters around the best place, with matches in « »."""
        spans: list[tuple[int, int, int]] = []
        for lo, hi, n in islice(self._found(fold(text)), _SPANS_MAX * len(self._terms)):
            if spans and spans[-1][1] == lo:  # no space between the words
                spans[-1] = (spans[-1][0], hi, n)
            else:
                spans.append((lo, hi, n))
        return excerpt(text, spans)


def excerpt(text: str, spans: Sequence[tuple[int, int, int]]) -> str:
    """Cut `text` around sorted spans (start, end, term), mark them, and fold white space."""
    start, best, every = 0, 0, len({n for _, _, n in spans})
    for begin, _, _ in spans[:_SPANS_MAX]:
        kinds = {n for lo, hi, n in spans if lo >= begin and hi <= begin + _BODY_MAX * 3 // 4}
        if len(kinds) > best:
            start, best = begin, len(kinds)
        if best == every:
            break
    lo = max(0, min(start - _BODY_MAX // 4, len(text) - _BODY_MAX))
    if 0 < lo < start:  # advance to the start of a word
        space = re.compile(r"\s").search(text, lo - 1, start)
        lo = space.end() if space else lo
    hi = min(len(text), lo + _BODY_MAX)
    pieces, at = list[str](), lo
    for begin, end, _ in spans:
        if at <= begin < hi and len(pieces) < _MARKS_MAX * 2:
            pieces += [text[at:begin], f"«{text[begin : min(end, hi)]}»"]
            at = min(end, hi)
    body = clean_line("".join(pieces) + text[at:hi], SNIPPET_MAX)
    return ("…" if lo > 0 else "") + body + ("…" if hi < len(text) else "")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed query: terms, or a pattern, or neither."""

    terms: tuple[str, ...] = ()
    open_end: bool = False  # the last term may be a prefix of a word
    quoted: bool = False  # some of it is a quoted phrase
    typed: int = 0  # number of words, including those left out
    find: Callable[[str], tuple[int, int] | None] | None = None  # finds a pattern's first match
    problem: str | None = None

    def as_terms(self, *, widen: bool = False) -> list[Term]:
        """Make the terms; `widen`: also match their other forms, and the last as a prefix."""
        inflect = widen and not self.quoted
        return [
            Term(term, open_end=widen and self.open_end and term is self.terms[-1], inflect=inflect)
            for term in self.terms
        ]


def parse(query: str) -> ParsedQuery:
    text = replace_surrogates(query[:QUERY_MAX]).replace("\0", " ")
    text = unicodedata.normalize("NFC", text).strip()
    cut = (
        f"only the first {QUERY_MAX} characters are searched for"
        if len(query) > QUERY_MAX
        else None
    )
    if text.startswith("re:"):
        try:
            return ParsedQuery(find=_pattern(text[3:].strip()))
        except ValueError as refused:
            return ParsedQuery(problem=f"re: {refused}")
    if not text:
        return ParsedQuery(problem="there is nothing to search for")
    if text.count('"') % 2:  # an unbalanced quote is an ordinary character
        text = text.replace('"', " ")
    parts = [(quoted or bare, bool(bare)) for quoted, bare in _PARTS.findall(text)]
    typed = [(part, bare) for part, bare in parts if _WORD.search(part)]
    if not typed:
        return ParsedQuery(find=_pattern(re.escape(text[: PATTERN_MAX // 2])), problem=cut)
    kept = [(part, bare) for part, bare in typed if not (bare and is_filler(part))] or typed
    if len(kept) > TERMS_MAX:
        kept, cut = kept[:TERMS_MAX], f"only the first {TERMS_MAX} words are searched for"
    last, bare = kept[-1]
    goes_on = bare and last[-1:].isalnum() and kept[-1] == typed[-1]
    return ParsedQuery(
        terms=tuple(part.replace('"', " ") for part, _ in kept),
        open_end=goes_on and len(_WORD.findall(indexable(last))[-1]) >= _PREFIX_MIN,
        quoted=not all(bare for _, bare in kept),
        typed=len(typed),
        problem=cut,
    )


def _pattern(text: str) -> Callable[[str], tuple[int, int] | None]:
    """Compile a pattern that ignores case; ValueError with the reason if it is invalid."""
    if not text or len(text) > PATTERN_MAX:
        raise ValueError(f"a pattern has 1 to {PATTERN_MAX} characters")
    try:
        regex = compile_re2(text, "i")
    except ValueError as bad:
        raise ValueError(f"not a regular expression: {bad}") from None

    def find(text: str) -> tuple[int, int] | None:
        spans = (match.span() for match in regex.finditer(text))
        return next(((lo, hi) for lo, hi in spans if hi > lo), None)

    return find


def is_filler(word: str) -> bool:
    """Return whether a word is a filler of a question."""
    return re.sub(r"\W", "", word.lower()) in _FILLERS


def without_references(name: str) -> str:
    """Remove the `@@` references from a name."""
    return _REFERENCE.sub(" ", name) if "@@" in name else name
