"""Names that look like a reference: which come near, how near, and which could be meant.

In: names in folded form (`folded`), each with its owner, a number. Out: the nearest of
them, scored from 0 to 100 by rapidfuzz's WRatio. Comparing a reference with every name takes
18 ms for 10,000; so names are found by their words, words by their triples of letters (pairs,
too, in short words and where one letter is a word), and only the best 100 are compared in full.

`Judge` decides. A name is *like* a reference if it accounts for every word of it, by the same
word, by one that begins so, or by one that is a slip of the finger away, unless the word as typed
is a word of some other name. Without it, WRatio gives "fix" in "fixture" 90 of 100. A name is
*meant* only if, over and above, its words come in the reference's order, each may stand for
the one typed (names_words), no number is another, and no "not" is left out. What is like a
reference and not meant by it is for a person to choose: "Convert PNG to JPG" is not
`convert-jpg-to-png`.

rapidfuzz is imported with the first comparison: hooks load this module and need it rarely.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from indexerd.search.names_words import has_content, is_filler, is_negation, slips, stands_for

ALIAS_MAX = 400  # characters of a name that are looked at
_WORDS_TRIED = 60  # words of all names that a reference is compared with, best first
_POSTINGS_MAX = 2500  # names looked at for their words
_ASIDES_MAX = 2  # further words of very many names that are looked for in those found
_KEPT = 100  # names compared in full
_WARMED = 500  # names whose words are taken in while somebody waits for completions: 1 ms
_SHORT = 5  # words up to this length have pairs of letters in the index
_BEGIN_MIN = 3  # letters that may stand for the word that they begin
_SLIP_MIN, _TWO_SLIPS_MIN, _ALONE_MIN = 4, 8, 6  # letters of a word that may be mistyped

_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W_]+")
_IN_NUMBER = re.compile(r"(?<=\d) (?=\d)")  # a date or a version is one word
_WORD_OR_NUMBERS = re.compile(r"[^\W_]+(?:\.[^\W_]+)*")


def folded(text: str) -> str:
    """The form in which names are the same: words in lower case, one space between them."""
    written = plain(text)
    return " ".join(_WORD.findall(written)) or written


def plain(text: str) -> str:
    """A name as written, but for case, blanks and compatibility forms."""
    text = text[:ALIAS_MAX]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def load_comparison() -> None:
    """Import what compares names: 30 ms, which a thread may take before a loop has to."""
    import rapidfuzz.distance  # noqa: PLC0415 - see the head
    import rapidfuzz.process  # noqa: F401, PLC0415 - loaded before it is needed


class Near(NamedTuple):
    """A name near a reference."""

    owner: int
    key: str
    score: float  # 0 to 100


class Nearness:
    """The index of names by their words. Grows only; whoever owns it builds it anew."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._owners: list[int] = []
        self._worded = 0  # keys that the words below know
        self._words: dict[str, list[int]] = {}
        self._spelled = 0  # words that the parts below know
        self._grams: dict[str, list[str]] = {}
        self._sorted: list[str] = []  # the words, as far as somebody asked for beginnings

    def add(self, key: str, owner: int) -> None:
        """Take a name in; it is indexed when needed."""
        self._keys.append(key)
        self._owners.append(owner)

    @property
    def cold(self) -> bool:
        """Whether the next fuzzy look-up has more to index first than a moment's work."""
        return max(len(self._keys) - self._worded, len(self._words) - self._spelled) > _WARMED

    def warm(self, some: int | None = None) -> bool:
        """Index up to `some` more names and words (all, if None); say whether all are in now."""
        done = self._take(some)
        upto = len(self._words) if some is None else min(len(self._words), self._spelled + some)
        if self._spelled < upto:  # words are never dropped, and stay in order
            for word in islice(self._words, self._spelled, upto):
                for gram in _grams(word):
                    self._grams.setdefault(gram, []).append(word)
            self._spelled = upto
        return done and upto == len(self._words)

    def _take(self, keys: int | None) -> bool:
        """Take in the words of up to `keys` more names; completions need no more than these."""
        upto = len(self._keys) if keys is None else min(len(self._keys), self._worded + keys)
        for at in range(self._worded, upto):
            for word in dict.fromkeys(_WORD.findall(self._keys[at])):  # in order, in every run
                self._words.setdefault(word, []).append(at)
        self._worded = upto
        return upto == len(self._keys)

    def nearest(
        self, ref: str, shared: Mapping[int, int], allowed: Callable[[int], bool]
    ) -> list[Near]:
        """Of names that share something with a folded reference the nearest, best first."""
        from rapidfuzz import fuzz, process  # noqa: PLC0415 - see the head

        ranked = sorted(shared, key=shared.__getitem__, reverse=True)
        best = list(islice((at for at in ranked if allowed(self._owners[at])), _KEPT))
        texts = [self._keys[at] for at in best]
        scored = process.extract(ref, texts, scorer=fuzz.WRatio, limit=None)
        return [Near(self._owners[best[n]], key, score) for key, score, n in scored]

    def shared(self, ref: str) -> dict[int, int]:
        """For names that share words, or parts of words, with a folded reference: how much."""
        self.warm()
        similar: Counter[str] = Counter()
        for word in dict.fromkeys(_WORD.findall(ref)):
            for gram in _grams(word):
                similar.update(self._grams.get(gram, ()))
        counts: dict[int, int] = {}
        looked_at, asides = 0, _ASIDES_MAX
        for word, weight in similar.most_common(_WORDS_TRIED):
            names = self._words[word]
            if not looked_at or looked_at + len(names) <= _POSTINGS_MAX:
                looked_at += len(names)
                for at in names:
                    counts[at] = counts.get(at, 0) + weight
            elif asides:  # a word of very many names only tells those found apart
                asides -= 1
                for at in counts:
                    if word in self._keys[at]:
                        counts[at] += weight
        return counts

    def begun(self, key: str) -> list[int]:
        """Owners of names in which a word begins with `key` (which may be several words).

        All names are looked through until these calls, or a fuzzy look-up, have taken them in.
        """
        words = _WORD.findall(key)
        if not self._take(_WARMED) or words != key.split():  # signs alone are a name, too
            held = zip(self._keys, self._owners, strict=True)  # nearly all of them lack it
            return [owner for name, owner in held if key in name and _begins(name, key)]
        if len(self._sorted) != len(self._words):  # words are never dropped, and stay in order
            self._sorted += islice(self._words, len(self._sorted), None)
            self._sorted.sort()  # what is in order already takes next to no time
        *whole, last = words
        found = [self._words.get(word, []) for word in whole] + [self._beginning(last)]
        at_least = min(found, key=len)
        if not whole:
            return [self._owners[at] for at in at_least]
        return [self._owners[at] for at in at_least if _begins(self._keys[at], key)]

    def _beginning(self, part: str) -> list[int]:
        """Names with a word that begins so; one with two of them stands there twice."""
        first, last = (
            bisect_left(self._sorted, part),
            bisect_left(self._sorted, part + "\U0010ffff"),
        )
        return [at for word in self._sorted[first:last] for at in self._words[word]]

    def judge(self, ref: str) -> Judge:
        """What says of names whether a folded reference could mean them."""
        return Judge(ref, self._words)


def _begins(key: str, part: str) -> bool:
    return key.startswith(part) or f" {part}" in key


class Judge:
    """Says of names whether one reference could, or does, mean them."""

    def __init__(self, ref: str, known: Container[str]) -> None:
        self._words = list(dict.fromkeys(_WORD.findall(ref)))
        self._units = _units(ref)
        self._joined = "".join(_WORD.findall(ref))
        self._pairs = [(one, other, one + other) for one, other in pairwise(_WORD.findall(ref))]
        self._numbers = _NUMBER.findall(ref)
        self._firm = [word for word in self._words if word in known]  # as typed, no slip
        self._says_something = has_content(self._words)
        self._alike: dict[tuple[str, str], bool] = {}
        self._stand: dict[tuple[str, str], bool] = {}

    def likes(self, key: str) -> bool:
        """Say whether a folded name accounts for every word, in whatever order."""
        others = key.split()
        pairs = {one + other for one, other in pairwise(others)}  # "back up" is a "backup"
        if not self._words or "".join(others) == self._joined:  # "log in bug" is "login bug"
            return bool(self._words)
        if any(word not in key and word not in pairs for word in self._firm):
            return False
        parted = {word for *both, joined in self._pairs if joined in others for word in both}
        if all(
            word in pairs or word in parted or any(self._is_alike(word, other) for other in others)
            for word in self._words
        ):
            return True
        # As a whole: slips in short words and numbers' neighbours, words cut or joined wrongly.
        return (
            all(word in others for word in self._firm)
            and _NUMBER.findall(key) == self._numbers
            and slips(self._joined, "".join(others), len(self._joined) // _TWO_SLIPS_MIN)
        )

    def means(self, key: str) -> bool:
        """Say whether a folded name that is like the reference is also meant by it."""
        if not self._says_something:
            return False
        if "".join(_WORD.findall(key)) == self._joined and _NUMBER.findall(key) == self._numbers:
            return True
        others = _units(key)
        at = begun = 0
        while at < len(self._units):
            step = self._step(at, others, begun)
            if step is None:
                return False
            at, begun = step
        return True

    def _step(self, at: int, others: Sequence[str], begun: int) -> tuple[int, int] | None:
        """Find the next word in the rest of a name: where to go on in both, or nothing."""
        word = self._units[at]
        joined = "".join(self._units[at : at + 2]) if at + 1 < len(self._units) else None
        for n in range(begun, len(others)):
            if self._stands(word, others[n]):
                step = at + 1, n + 1
            elif n + 1 < len(others) and others[n] + others[n + 1] == word:
                step = at + 1, n + 2
            elif others[n] == joined:
                step = at + 2, n + 1
            else:
                continue
            if not _is_negated(others[begun:n]):
                return step
        return None

    def _stands(self, word: str, other: str) -> bool:
        pair = (word, other)
        verdict = self._stand.get(pair)
        if verdict is None:
            alone, firm = len(self._words) == 1, word in self._firm
            verdict = self._stand[pair] = stands_for(word, other, alone=alone, firm=firm)
        return verdict

    def _is_alike(self, word: str, other: str) -> bool:
        pair = (word, other)
        verdict = self._alike.get(pair)
        if verdict is None:
            verdict = self._alike[pair] = self._compare(word, other)
        return verdict

    def _compare(self, word: str, other: str) -> bool:
        if word == other:
            return True
        if len(word) >= _BEGIN_MIN and other.startswith(word) and not word[-1].isdecimal():
            return True
        if not word.isascii() and len(word) > 1 and word in other:  # no spaces to cut at
            return True
        least = _ALONE_MIN if len(self._words) == 1 else _SLIP_MIN
        if len(word) < least or word in self._firm or not (word + other).isalpha():
            return False
        return slips(word, other, 2 if len(word) >= _TWO_SLIPS_MIN else 1)


def _units(key: str) -> list[str]:
    """The words of a folded text; numbers side by side are one, as in a date or a version."""
    return _WORD_OR_NUMBERS.findall(_IN_NUMBER.sub(".", key))


def _is_negated(skipped: Sequence[str]) -> bool:
    """Say whether what a reference left out in front of a word turns it round."""
    for word in reversed(skipped):
        if is_negation(word):
            return True
        if not is_filler(word):
            return False
    return False


def _grams(word: str) -> Iterator[str]:
    padded = f" {word} "
    for at in range(len(padded) - 2):
        yield padded[at : at + 3]
    if len(word) <= _SHORT or not word.isascii():
        for at in range(len(word) - 1):
            yield word[at : at + 2]
