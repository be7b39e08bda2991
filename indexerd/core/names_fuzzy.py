"""Names that look like a reference: which come near, how near, and which could be meant.

In: names in folded form (`folded`), each with its owner, a number. Out: the nearest of
them, scored from 0 to 100 by rapidfuzz's WRatio. Comparing a reference with every name takes
18 ms for 10,000; so names are found by their words, words by their triples of letters (pairs,
too, in short words and where one letter is a word), and only the best 100 are compared in full.

`Judge` decides: a name could be meant only if it accounts for every word of the
reference, by the same word, by one that begins so, or by one that is a slip of the finger away,
unless the word as typed is a word of some other name. Numbers must be the same. Without it,
WRatio gives "fix" in "fixture" 90 of 100.

rapidfuzz is imported with the first comparison: hooks load this module and need it rarely.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import islice, pairwise
from typing import NamedTuple

ALIAS_MAX = 400  # characters of a name that are looked at
_WORDS_TRIED = 60  # words of all names that a reference is compared with, best first
_POSTINGS_MAX = 2500  # names looked at for their words
_ASIDES_MAX = 2  # further words of very many names that are looked for in those found
_KEPT = 100  # names compared in full
_SHORT = 5  # words up to this length have pairs of letters in the index
_BEGIN_MIN = 3  # letters that may stand for the word that they begin
_SLIP_MIN, _TWO_SLIPS_MIN, _ALONE_MIN = 4, 8, 6  # letters of a word that may be mistyped

_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W_]+")


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
        self._indexed = 0  # keys that the words below know
        self._words: dict[str, list[int]] = {}
        self._grams: dict[str, list[str]] = {}

    def add(self, key: str, owner: int) -> None:
        """Take a name in; it is indexed when needed."""
        self._keys.append(key)
        self._owners.append(owner)

    def warm(self, keys: int | None = None) -> bool:
        """Index up to `keys` more names (all, if None); say whether all are in now."""
        upto = len(self._keys) if keys is None else min(len(self._keys), self._indexed + keys)
        for at in range(self._indexed, upto):
            for word in set(_WORD.findall(self._keys[at])):
                held = self._words.get(word)
                if held is not None:
                    held.append(at)
                    continue
                self._words[word] = [at]
                for gram in _grams(word):
                    self._grams.setdefault(gram, []).append(word)
        self._indexed = upto
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
        for word in set(_WORD.findall(ref)):
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
        """Owners of names in which a word begins with `key` (which may be several words)."""
        inside = f" {key}"
        return [
            self._owners[at]
            for at, held in enumerate(self._keys)
            if key in held and (held.startswith(key) or inside in held)
        ]

    def judge(self, ref: str) -> Judge:
        """What says of names whether a folded reference could mean them."""
        return Judge(ref, self._words)


class Judge:
    """Says whether a name accounts for every word of one reference."""

    def __init__(self, ref: str, known: Container[str]) -> None:
        self._words = list(dict.fromkeys(_WORD.findall(ref)))
        self._joined = "".join(_WORD.findall(ref))
        self._numbers = _NUMBER.findall(ref)
        self._firm = [word for word in self._words if word in known]  # as typed, no slip
        self._verdicts: dict[tuple[str, str], bool] = {}

    def covers(self, key: str) -> bool:
        """Say it of a folded name."""
        others = key.split()
        pairs = {one + other for one, other in pairwise(others)}  # "back up" is a "backup"
        if not self._words or "".join(others) == self._joined:  # "log in bug" is "login bug"
            return bool(self._words)
        if any(word not in key and word not in pairs for word in self._firm):
            return False
        if all(
            word in pairs or any(self._stands(word, other) for other in others)
            for word in self._words
        ):
            return True
        # As a whole: slips in short words and numbers' neighbours, words cut or joined wrongly.
        return (
            all(word in others for word in self._firm)
            and _NUMBER.findall(key) == self._numbers
            and _slips(self._joined, "".join(others), len(self._joined) // _TWO_SLIPS_MIN)
        )

    def _stands(self, word: str, other: str) -> bool:
        pair = (word, other)
        verdict = self._verdicts.get(pair)
        if verdict is None:
            verdict = self._verdicts[pair] = self._compare(word, other)
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
        return _slips(word, other, 2 if len(word) >= _TWO_SLIPS_MIN else 1)


def _slips(one: str, other: str, most: int) -> bool:
    """Say whether a few letters missing, doubled, wrong or swapped make one word the other."""
    if abs(len(one) - len(other)) > most:
        return False
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - see the head

    return OSA.distance(one, other, score_cutoff=most) <= most


def _grams(word: str) -> Iterator[str]:
    padded = f" {word} "
    for at in range(len(padded) - 2):
        yield padded[at : at + 3]
    if len(word) <= _SHORT or not word.isascii():
        for at in range(len(word) - 1):
            yield word[at : at + 2]
