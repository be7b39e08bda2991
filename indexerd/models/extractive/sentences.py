r"""Find words and sentences in messages: prose, topics, titles, tickets, decisions.

The time is linear and bounded. Pitfall: a line of Chinese is one word to `\w`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain

from indexerd.models.extractive import lexicon
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.search.query import UNSPACED, fold, stem, stop_words

TITLE_MAX = 72  # characters
_READ_MAX = 60_000  # characters of a message that are read, half from each end
_SENTENCE_MAX = 2000
KEY_WORDS, _WORD_MAX = 6, 40
_HAN = "\u3400-\u9fff\uf900-\ufaff"
WORD = lazy_pattern(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
UNSPACED_BEGIN = lazy_pattern(f"[{UNSPACED}]")
_GRAMMAR = lazy_pattern("[\u3040-\u309f的了是我你这那在有不吗呢就都也和个么什没要说一下给把]")
_CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_TOKEN = lazy_pattern(  # like WORD, but a file name, C++, katakana or a few Han signs are one
    rf"[\u30a1-\u30fc]{{2,12}}|(?<![{_HAN}])[{_HAN}]{{2,6}}(?![{_HAN}])"
    rf"|[^\W_{UNSPACED}](?:[^\W{UNSPACED}]|[.+#/'’-])*"
)
_TICKET = lazy_pattern(
    r"(?<![\w-])(?!(?:UTF|SHA|ISO|RFC|CVE|HTTP|AES|RSA|MD|GPT|TLS|SSL|UTC|BASE|MS|FR|NFR|SC)-)"
    r"[A-Z][A-Z0-9]{0,8}[A-Z]-\d{1,6}(?![\w-])|(?<![\w&/#])#\d{2,5}(?!\w)"
)
_HASH = lazy_pattern(r"g?[0-9a-f]{7,40}(?!\w).*", re.IGNORECASE)  # and what follows it
_FENCED = lazy_pattern(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*|\Z)", re.DOTALL | re.MULTILINE)
_TAG = lazy_pattern(  # but what stands in a code span is meant to be read
    r"(`[^`\n]{1,200}`)|<!--[\s\S]{0,200}?-->|</?[A-Za-z][\w:.-]{0,40}(?:\s[^<>]{0,300})?/?>"
)
_NOISE = lazy_pattern(  # logs, lines of a pasted chat, messages of the client
    r"\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d|[|{}]|\$ |[$/]\S*\Z|Traceback |File \"|at \S+\("
    r"|\[[A-Z]{1,2}\] |.{1,80}?-->"  # of a menu, of a diagram
    r"|(?i:[<\[]?(?:user|assistant|human|system)[>\]]?\s*[:：])"
    r"|API Error|Prompt is too long|Credit balance is|You've hit your|Claude (?:AI )?usage limit"
    r"|No response requested|Not logged in|Invalid API key|Request timed out"
)
_LONG = lazy_pattern(r"\S{20,}")
_SIGN = lazy_pattern(r"[^\w ]|[\d_]")
_BULLET = lazy_pattern(
    r"(?:(?:[-*+•–]|(?:\*\*)?\d{1,3}[.)]|\[[ xX]\]|>{1,5}|#{1,6})\s+){1,3}|\d{1,2}\)(?=\w)"
)
_END = lazy_pattern(
    r"(?<=[.!?…])[\"'’”»)\]`*]{0,3}\s+(?=[^\sa-z])|(?<=[。！？])"
    r"|(?<=[a-z)])\.{2,4}(?=[ a-z])"  # typed in haste: "that is wrong..fix it"
)
_LINK = lazy_pattern(r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{0,500}\)")
_PULL = lazy_pattern(
    r"https?://[^\s/]+(?:/[\w.-]+){2,4}/(pull|merge_requests|issues)/(\d+)[^\s,;)]*"
)
_PATH = lazy_pattern(  # "/srv/app/readme", "src/app/main.py", but not "rules/skills/agents"
    r"(?<![\w:/.-])(?:(?:[A-Z]:)?[~/\\][\w.-]{0,80}[/\\](?:[\w.-]{1,80}[/\\]){0,12}([\w.-]{1,80})"
    r"|@?(?:\.?[\w-]{1,80}/){2,12}([\w-]{1,80}\.\w{1,5})(?![\w/]))",
    re.ASCII,  # a path may stand between words of Chinese
)
_UNCLOSED = lazy_pattern(r"[(\[{（「][^()\[\]{}（）「」]{0,80}\Z")
_ADDRESS = lazy_pattern(r"\s+https?://\S+")
_COMMAND = lazy_pattern(r"\A\s*/(?:[\w-]{1,40}:){0,4}(?=[a-z][\w-]+\b(?!/))")  # "/team:review 12"
_FORGED = lazy_pattern(r"@{2,}|\b(?:User|Assistant|Human|System)\s*[:：]+", re.IGNORECASE)
_SECRET = lazy_pattern(r"\[redacted:[\w.-]{0,40}\]")
_MARKS = lazy_pattern(r"[`*]|\[?redacted:[\w.-]{0,40}\]?", re.IGNORECASE)
_SIGNS = lazy_pattern(r"^[^\w\s.(]+\s+")  # "🚀 Deployment"
_OUTER = " .,;:!?¿¡…-–—/\\|*#=+&~、。，；：！？"
_DECIDED = lazy_pattern(r"\b(?:decided\s+to|chose\s+to|will\s+use|going\s+with)\b", re.IGNORECASE)


@cache
def _dull_words() -> frozenset[str]:
    return stop_words("id", "nl", "pl", "pt", "ru", "tr", "vi").union(lexicon.DULL.split())


def terms(text: str) -> frozenset[str]:
    """Return the stems of words; for unspaced scripts, pairs of characters."""
    return frozenset(chain.from_iterable(map(_terms_of, _words(text))))


def topics(text: str) -> frozenset[str]:
    """Return the terms that tell a text's subject; none for "ok, please continue".

    Numbers and hashes tell none.
    """
    return frozenset(chain.from_iterable(map(_topics_of, _words(text))))


def _words(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFKC", text))


def bare_words(text: str) -> str:
    """Return a text's words in lower case, with single spaces."""
    return " ".join(re.findall(r"\w+", text.lower()))


@lru_cache(32_768)
def _terms_of(word: str, skip: Callable[[], frozenset[str]] = stop_words) -> tuple[str, ...]:
    """Return the terms of a word, and of the words that a name like `fooBar` joins."""
    if UNSPACED_BEGIN.match(word):
        return tuple(word[at : at + 2] for at in range(max(1, len(word) - 1)))
    joined = unicodedata.normalize("NFKD", f"{word} {_CAMEL.sub(' ', word)}").casefold()
    parts = "".join(char for char in joined if not unicodedata.combining(char)).split()
    told = (part for part in dict.fromkeys(parts) if part not in skip())
    return tuple(stem(part) for part in told if len(part) > 1 or part.isdigit())


@lru_cache(32_768)
def _topics_of(word: str) -> tuple[str, ...]:
    found = _terms_of(word, _dull_words)
    if UNSPACED_BEGIN.match(word):
        return tuple(term for term in found if not _GRAMMAR.search(term))
    return tuple(term for term in found if sum(map(str.isdigit, term)) < min(4, len(term)))


def meaning(terms: frozenset[str]) -> frozenset[str]:
    """Return the terms of a subject, without those of procedure ("commit", "review")."""
    return terms - _stems(lexicon.PROCEDURE)


@cache
def _stems(words: str) -> frozenset[str]:
    return frozenset(map(stem, words.split()))


def key_words(texts: Iterable[str], most: int = KEY_WORDS) -> list[str]:
    """Return the words that tell a subject in most of the texts, each in its most frequent form."""
    counts, written = Counter[str](), dict[str, str]()  # of texts with a word; a word as written
    for text in texts:
        found = dict[str, str]()
        for token in dict.fromkeys(_TOKEN.findall(text)):
            if word := _key_word(token):
                found.setdefault(word.lower(), word)
        counts.update(found.keys())
        written |= found
    forms = dict[str, str]()  # by stem
    dull = _stems(f"{lexicon.DULL} {lexicon.VAGUE}")
    for word in sorted(counts, key=lambda word: (-counts[word], -len(word), word)):
        if word.endswith(("ly", "ing")) or not meaning(topics(word)) - dull:
            continue
        forms.setdefault(stem(word), written[word])
        if len(forms) == most:
            break
    return [*forms.values()]


@lru_cache(16_384)
def _key_word(token: str) -> str:
    word = token.rstrip(".'’/-+").rpartition("/")[2].partition("'")[0].partition("’")[0]
    fits = 2 < len(word) <= _WORD_MAX or not word.isascii() or word.isupper()  # noqa: PLR2004 - letters
    code = _TICKET.fullmatch(token) or _HASH.fullmatch(word)
    return word if fits and word[:1].isalpha() and not code else ""


def tickets(text: str) -> list[str]:
    """Return the ticket ids in a text, as tags."""
    return list(dict.fromkeys(f"ticket:{key}" for key in _TICKET.findall(text)))


def sentences(text: str) -> list[str]:
    """Return the sentences of a message, without code, logs and tables."""
    if len(text) > _READ_MAX:
        text = f"{text[: _READ_MAX // 2]}\n\n{text[-_READ_MAX // 2 :]}"
    text = _SECRET.sub("…", text)
    text = clean_text(text, len(text)).replace("’", "'")
    text = _FENCED.sub("\n", _COMMAND.sub("", text, count=1))
    blocks = _blocks(_TAG.sub(r"\1", text))
    pieces = chain.from_iterable(_END.split(b) for b in blocks)
    tidied = (tidy(piece[:_SENTENCE_MAX]) for piece in pieces)
    return [sentence for sentence in tidied if any(map(str.isalpha, sentence))]


def _blocks(text: str) -> Iterator[str]:
    """Yield lines of prose, and join lines that an editor wrapped.

    Logs, tables and unfenced code are left out: they have too many signs for prose.
    """
    block = ""
    for raw in text.split("\n"):
        line = raw.strip()
        bullet = _BULLET.match(line)
        body = line[bullet.end() :] if bullet else line
        short = _LONG.sub("", body)  # ids, paths and addresses do not count
        if _NOISE.match(body) or 5 * len(_SIGN.findall(short)) > 2 * len(short):
            body = ""
        wrapped = 60 < len(block) <= _SENTENCE_MAX  # noqa: PLR2004 - the width of wrapped lines
        if wrapped and body and not bullet and block[-1] not in ".!?:;。！？":
            block = f"{block} {body}"
        else:
            yield block
            block = body
    yield block


def tidy(text: str) -> str:
    """Remove links, bold type, references, swear words and speakers' labels from a line."""
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    if "://" in text:
        text = _PULL.sub(lambda at: f"{'issue' if at[1] == 'issues' else 'PR'} #{at[2]}", text)
    text = text.replace("**", "")
    text = lexicon.OUTCRY.sub("", text)
    if ":" in text or "@@" in text or "\uff1a" in text:
        text = _FORGED.sub("", text)
    return " ".join(text.split())


def plain(text: str) -> str:
    """Make a text for a name or a tag: without marks of code, speakers, redactions and emoji."""
    return _SIGNS.sub("", tidy(_MARKS.sub("", text)))


def clip(text: str, limit: int) -> str:
    """Shorten a text to whole words and an ellipsis, without an unpaired backquote."""
    if len(text) > limit:
        cut = text[: max(0, limit - 1)]
        space = cut.rfind(" ")
        text = (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:-") + "…"
    return text.replace("`", "") if text.count("`") % 2 else text


def headline(text: str) -> str:
    """Cut a text to a title: at the end of a clause if it is long, else of a word.

    Of a path, the last part is enough.
    """
    text = _ADDRESS.sub("", _COMMAND.sub("", plain(text), count=1))
    text = _PATH.sub(lambda path: path[1] or path[2], text).lstrip(_OUTER)
    text = lexicon.PADDING.sub("", text, count=1).lstrip(_OUTER) or text
    if len(text) > TITLE_MAX:
        ends = [gap.start() for gap in lexicon.CLAUSE.finditer(text[: TITLE_MAX + 2])]
        whole = [end for end in ends if len(topics(text[:end])) > 2]  # noqa: PLR2004 - a subject
        words = text[: TITLE_MAX + 1].split(" ")[:-1] or [text[:TITLE_MAX]]
        while len(words) > 1 and fold(words[-1]) in _dull_words():
            words.pop()
        text = text[: whole[-1]] if whole else " ".join(words)
    text = _UNCLOSED.sub("", text).strip(_OUTER)
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.islower() and first.rstrip(":").isalpha() else text


def decisions(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the first five sentences that state a decision, without repeats, each on one line."""
    lines: dict[str, str] = {}
    for text in texts:
        for sentence in sentences(text) if _DECIDED.search(text) else ():
            if hit := _DECIDED.search(sentence):
                start = max(0, min(hit.start() - 100, len(sentence) - 300))
                line = clean_line(sentence[start:], 300)
                lines.setdefault(line.lower().rstrip(".!"), line)
    return tuple(lines.values())[:5]
