"""The words by which the built-in model tells what a sentence is.

Stop words and stems come from libraries. The cues are English, with the commonest ones of German,
French, Spanish, Chinese and Japanese.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import Any

HAN = "\u3400-\u9fff\uf900-\ufaff"
UNSPACED = f"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff{HAN}\uac00-\ud7a3"


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _cue(cues: str, unspaced: str = "") -> re.Pattern[str]:
    either = re.sub(r"\s*\n\s*", "", cues)
    return re.compile(rf"\b(?:{either})(?!\w)" + (unspaced and f"|{unspaced}"), re.IGNORECASE)


DECIDED = _cue(
    r"""decided|decision|cho(?:se|osing|sen)|opted (?:for|to)|will use|(?:going|go|went) with
    |settled on|let(?:'s| us) (?:use|keep|drop|go)|agreed|(?:fix|solution|root cause) (?:is|was)
    |rather than|instead of|ruled out|rejected|switch(?:ed|ing)? to|suggest|recommend
    |entschieden|beschlossen|(?:an)?statt|wir nehmen|ursache (?:ist|war)|décidé|au lieu de
    |decidido|en lugar de""",
    "ことにし|を採用|決定|采用|改用|决定|而不是",
)
RULE = _cue(
    r"""must(?:n't)?|never|always|forbidden|not allowed|mandatory|strictly|requirements?
    |constraints?|at most|at least|no (?:more|less|later) than|make sure|keep the|do(?: not|n't)
    |muss|darf|niemals|immer|doit|jamais|debe|nunca""",
    "必ず|禁止|必须|不要",
)
RESULT = _cue(
    r"""fixed|added|implemented|created|wrote|updated|removed|renamed|moved|migrated|refactored
    |split|deployed|merged|committed|resolved|completed?|done|finished|works|pass(?:e[sd])?
    |restored|verified|confirmed|shipped|installed|changed|replaced|extracted|retries
    |behoben|umgesetzt|erledigt|erstellt|läuft|corrigé|ajouté|terminé|corregido|añadido""",
    "しました|完了|已完成|修复|完成",
)
PLAN = re.compile(  # announces work, and tells no result
    r"(?:(?:ok(?:ay)?|now|first|next|then|good|great|also|so)[\s,.!:]+)*"
    r"(?:let me|let's|i'll|i will|i'm (?:going|now)|i (?:need|want|have) to|looking at|checking"
    r"|reading|waiting|now i|ich werde|lass mich|je vais|voy a)(?!\w)|让我|接下来|まず",
    re.IGNORECASE,
)
OPEN = _cue(
    r"""remain(?:s|ing)|to ?do|next steps?|still (?:need|ha[vs]|to|missing|open)\w*|not yet|left to
    |follow-?ups?|pending|noch (?:offen|zu)|reste à|pendiente""",
    "残り|未完|还需",
)
STUCK = _cue(r"blocked|blocker|stuck|waiting (?:for|on)|can(?:not|'t) proceed|still fail\w*")
EXACT = re.compile(  # what nobody could guess: paths, ports, errors, causes
    r"(?<![\w/])(?:~|\.{0,2})/[\w.@+-]+(?:/[\w.@+-]+)+|\b[\w-]+/[\w./-]*\w\.\w{1,5}\b|https?://\S"
    r"|\bports?\s+`?\d|\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\b|\b[A-Z]{2,10}-\d{1,6}\b"
    r"|\b\w*(?:Error|Exception)\b|\b(?:exit|status|error) (?:code )?\d|\bv?\d+\.\d+\.\d"
    r"|\b(?:root cause|caused by|turn(?:s|ed) out|because|found that)\b"
)
PADDING = re.compile(  # in front of a request
    r"(?:(?:(?:hi|hello|hey|hallo|bonjour|hola|thanks|great|ok(?:ay)?|now|so|then|also|and|but"
    r"|please|just|bitte|something else|por favor|(?:can|could|would|will|kannst) (?:you|we|du)"
    r"|peux-tu|puedes|i(?: want|'d like| need)(?: you)? to|let(?:'?s| us)|we (?:need|should)"
    r"|there(?:'s| is| are)|the user (?:wants|wanted) to|help me(?: to)?)(?=[\s,:!.-])"
    r"|请|帮我|你好|すみません)[\s,;:.!，。-]*){0,8}",  # noqa: RUF001 - Chinese punctuation
    re.IGNORECASE,
)
_TOPICS = words("group index line order page part state system test")  # of software
_OWN_STOPS = words(
    """add agree answer ask call change check clean code continue create current day default easy
    end ensure error existing explain file finally found good great happen hello hey implement
    issue job look main make minute note old please print question read ready reason remove
    rename request review sure tell thank thanks thought ticket time today try understand update
    user verify want week write http https www session conversation bitte aufgabe datei fehler
    hallo nehmen"""
)
QUESTION_STOPS = words(
    """what when where which who whom whose why how did does do done was were are is the a an we you
    i it its they them of to in on for with about our your my and or any some this that there be
    been have has had can could will would should not end finally say said tell happen thing used
    der die das den dem ein eine und oder wie was wer wo wann warum wir ich ist sind war im le la
    les un une des du de et ou est que qui quoi comment pourquoi los las el como cuando donde por"""
)


@cache
def stop_words() -> frozenset[str]:
    """Return the words that carry no topic."""
    from stopwordsiso import stopwords  # noqa: PLC0415 - a megabyte, where it is needed

    return (frozenset(stopwords(["en", "de", "fr", "es", "it", "zh", "ja"])) - _TOPICS) | _OWN_STOPS


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return one form for all endings of a word in small letters."""
    return str(_stemmer().stemWord(word)) if word.isascii() else word


@cache
def _stemmer() -> Any:
    import snowballstemmer  # type: ignore[import-untyped] # noqa: PLC0415 - where it is needed

    return snowballstemmer.stemmer("english")


def fold(text: str) -> str:
    """Return a text in small letters without diacritics."""
    if text.isascii():
        return text.lower()
    spread = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in spread if not unicodedata.combining(char))
