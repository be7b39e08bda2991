"""Words of a query: which of them say nothing, and in which other forms one may stand in a text.

In: single words. Out: whether a word only holds a question together ("where did we …"), and for
the others its `Forms`: an FTS5 expression that finds them, and the judgement whether a word is
one, with other endings (cache, caches, caching) and the two ways to spell -ise and -our. Endings
are those of English, and the commonest of German and French; for other languages a word stands
for itself. This is no linguistics: it is asked only after the words as they were typed, and
counts for less.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SHORT_MIN = 3  # letters of a stem
_STEM_MIN = 4  # letters of one that a vowel, or a doubled letter, may be cut off from
_LONG_MIN = 5  # letters with which all words are taken that begin so; else they are listed

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
_FORMS = ("", "s", "es", "d", "ed", "e", "er", "ing", "en", "y", "ies")
_LETTERS = re.compile(r"[^\W\d_]+")
_TWO_WAYS = (("is", "iz"), ("iz", "is"), ("our", "or"), ("or", "our"))


def is_filler(word: str) -> bool:
    """Say whether a word only holds a question together."""
    return re.sub(r"\W", "", word.lower()) in _FILLERS


class Forms(NamedTuple):
    """In which forms a folded word may stand in a text."""

    word: str
    stems: tuple[str, ...]

    def match(self, *, open_end: bool) -> str:
        """The FTS5 expression: all of them, and more; `open_end`: the word may go on."""
        listed = {one: None for stem in self.stems for one in _listed(stem)}
        if not all(len(stem) >= _LONG_MIN for stem in self.stems):
            listed[f'"{self.word}"' + " *" * open_end] = None
        return " OR ".join(listed)

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


def _listed(stem: str) -> list[str]:
    if len(stem) >= _LONG_MIN:
        return [f'"{stem}" *']
    doubled = [f"{stem}{stem[-1]}{ending}" for ending in ("ed", "ing", "er")]
    return [f'"{one}"' for one in [*(stem + form for form in _FORMS), *doubled]]
