"""The words of a question that carry meaning, each in one form for all its endings.

In: a question. Out: terms, of which each knows the forms that it may be found by and what they
count. Words inside identifiers are words, too (`confirmButton`); runs of scripts without spaces
become pairs of characters. The stems are light and English; where they fail, a word is found by
its beginning all the same, if that is long enough.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from indexerd.models.phrases import word_set
from indexerd.privacy.late import late
from indexerd.search.query import fold

TERMS_MAX = 24
_ENDINGS = ("ingly", "edly", "ings", "ing", "ied", "ies", "ed", "es", "er", "ly", "s", "e")
STEM_LEAST = 3  # characters of a stem

_STOP = word_set("""a an and any are as at be been but by can could did do does for from had has
    have he her his how i if in into is it its me my not of on or our out please she so some tell
    than that the their them then there these they this those to up us was we were what when where
    which who whom whose why will with would you your about actually again also exactly end finally
    happen thing used session conversation say said know often many much long
    der die das den dem des ein eine einen einem einer und oder aber ist sind war waren wird
    wurde wurden hat haben hatte wir ich du sie er es uns ihr was wer wie wo wann warum wieso
    weshalb welche welcher welches welchen im in am an auf aus bei mit nach von vor zu zum zur für
    über nicht auch noch denn dass man
    le la les un une des du de et ou est sont était que qui quoi quel quelle comment pourquoi quand
    dans sur pour par avec nous vous il elle on ce cette ces pas a avons avez
    el los las una unos y o es son era fue qué quién cuál cómo cuándo dónde por para con en del al
    se nos lo su sus no hemos""")
# Words of which one may stand for another, as their stems, without diacritics.
ALIKE = (
    "decid decision choos chos chosen pick select settl opt agre",
    "entscheid entschied entschieden nehm wahl gewahlt beschloss",
    "reject drop discard abandon remov delet",
    "fail error break brok broken crash bug",
    "fix repair solv resolv correct",
    "stor storag sav persist",
)
_ALIKE_OF = {word: group.split() for group in ALIKE for word in group.split()}
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
WORDS = late(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_CAMEL = late(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """One form for the endings of an (English) word in small letters; never an empty one."""
    for ending in _ENDINGS:
        rest = len(word) - len(ending)
        if rest >= STEM_LEAST and word.endswith(ending) and not word.endswith("ss"):
            base = word[:rest]
            if ending in ("ied", "ies"):
                return base + "y"
            if len(base) > STEM_LEAST and base[-1] == base[-2] and base[-1] not in "aeiouls":
                base = base[:-1]
            return base.removesuffix("e") if len(base) > STEM_LEAST else base
    return word


class Term(NamedTuple):
    """A word of the question. `forms`: stem -> what it counts."""

    forms: dict[str, float]
    spaced: bool = True


def terms_of(question: str) -> list[Term]:
    """The words of a question that carry meaning, each once."""
    found: dict[str, Term] = {}
    spread = _CAMEL.sub(" ", question)
    for word in WORDS.findall(f"{fold(question)} {fold(spread)}"):
        if re.match(f"[{_UNSPACED}]", word):
            pairs = [word[at : at + 2] for at in range(max(1, len(word) - 1))]
            found |= {pair: Term({pair: 1.0}, spaced=False) for pair in pairs}
        elif word not in _FOLDED_STOP and (len(word) > 1 or word.isdigit()):
            base = stem(word)
            alike = dict.fromkeys(_ALIKE_OF.get(base, ()), 0.6)
            found.setdefault(base, Term(alike | {base: 1.0}))
    return list(found.values())[:TERMS_MAX]


_FOLDED_STOP = frozenset(fold(word) for word in _STOP)
