r"""Prose out of messages: sentences, decisions, topic words, titles, tickets.

Work is linear and bounded. What surprised us: closing tags are often missing, because the text was
cut, so a wrapper without an end hides nothing; a line of Chinese is one word to `\w`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

from indexerd.models.extractive.lexicon import (
    HAN,
    PADDING,
    UNSPACED,
    stop_words,
    words,
)
from indexerd.privacy.sanitize import clean_line, clean_text

TITLE_MAX = 72  # characters
_READ_MAX = 60_000  # characters of one message: half from its beginning, half from its end
_SENTENCE_MAX = 2000
_WRAPPERS = words(
    """skill skills file files system-reminder environment_context instructions user_instructions
    command-message command-name local-command-stdout local-command-caveat bash-input bash-stdout
    bash-stderr task-notification document documents attachment context log logs output diff pre"""
)
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*|\Z)", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"<!--[\s\S]{0,200}?-->|</?[A-Za-z][\w:.-]{0,40}(?:\s[^<>]{0,300})?/?>")
_NOISE = re.compile(r"\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d|[|{}$/]|Traceback |File \"|at \S+\(")
_LONG = re.compile(r"\S{20,}")
_SIGN = re.compile(r"[^\w ]|[\d_]")
_BULLET = re.compile(r"(?:(?:[-*+•–]|(?:\*\*)?\d{1,3}[.)]|\[[ xX]\]|>{1,5}|#{1,6})\s+){1,3}")
_END = re.compile(r"(?<=[.!?…])[\"'’”»)\]`*]{0,3}\s+(?=[^\sa-z])|(?<=[。！？])")
_LINK = re.compile(r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{0,500}\)")
_FORGED = re.compile(r"@{2,}|\b(?:User|Assistant|Human|System)\s*[:：]+")
_MARKS = re.compile(r"[`*]|\[?redacted:[\w.-]{0,40}\]?", re.IGNORECASE)
_TOKEN = re.compile(
    rf"[\u30a1-\u30fc]{{2,12}}|[{HAN}]{{2,12}}|[^\W_{UNSPACED}](?:[^\W{UNSPACED}]|[.+#/'’-])*"
)
_TICKET = re.compile(
    r"(?<![\w-])(?!(?:UTF|SHA|ISO|RFC|CVE|HTTP|AES|RSA|MD|GPT|TLS|SSL|UTC|BASE)-)"
    r"[A-Z][A-Z0-9]{0,8}[A-Z]-\d{1,6}(?![\w-])|(?<![\w&/#])#\d{2,5}(?!\w)"
)
_OUTER = " .,;:!?¿¡…-–—/\\|*#=+&~、。，；：！？"
_DECIDED = re.compile(r"\b(?:decided\s+to|chose\s+to|will\s+use|going\s+with)\b", re.IGNORECASE)


def sentences(text: str) -> list[str]:
    """Return what was said in a message, without code, logs, tables and attachments."""
    if len(text) > _READ_MAX:
        text = f"{text[: _READ_MAX // 2]}\n\n{text[-_READ_MAX // 2 :]}"
    text = _FENCED.sub("\n", clean_text(text, len(text)))
    for name in sorted(_WRAPPERS) if "</" in text else ():
        *closed, last = text.split(f"</{name}>")
        text = "\n".join([*(one.partition(f"<{name}")[0] for one in closed), last])
    pieces = (piece for block in _blocks(_TAG.sub("", text)) for piece in _END.split(block))
    tidied = (tidy(one[:_SENTENCE_MAX]) for one in pieces)
    return [one for one in tidied if any(map(str.isalpha, one))]


def tidy(text: str) -> str:
    """Return a line without links, bold type, references and marks of a speaker."""
    return " ".join(_FORGED.sub("", _LINK.sub(r"\1", text).replace("**", "")).split())


def _blocks(text: str) -> Iterator[str]:
    """Yield lines of prose; those that an editor wrapped are one again.

    Logs, tables and code that was pasted without a fence have too many signs for prose.
    """
    held = ""
    for raw in text.split("\n"):
        line = raw.strip()
        bullet = _BULLET.match(line)
        body = line[bullet.end() :] if bullet else line
        short = _LONG.sub("", body)  # ids, paths and addresses say nothing of the rest
        if _NOISE.match(body) or 5 * len(_SIGN.findall(short)) > 2 * len(short):
            body = ""
        wrapped = 60 < len(held) <= _SENTENCE_MAX  # noqa: PLR2004 - as wide as editors wrap at
        if wrapped and body and not bullet and held[-1] not in ".!?:;。！？":
            held = f"{held} {body}"
        else:
            yield held
            held = body
    yield held


def clip(text: str, limit: int) -> str:
    """Shorten a text to whole words and an ellipsis; backquotes stay even."""
    if len(text) > limit:
        cut = text[: max(0, limit - 1)]
        space = cut.rfind(" ")
        text = (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:-") + "…"
    return text.replace("`", "") if text.count("`") % 2 else text


def plain(text: str) -> str:
    """Return a text fit for a name or a tag: without marks of code, roles and redactions."""
    return tidy(_MARKS.sub("", text))


def headline(text: str) -> str:
    """Cut a text to a title of whole words."""
    text = plain(text).lstrip(_OUTER)
    text = PADDING.sub("", text, count=1) or text
    if len(text) > TITLE_MAX:
        said = text[: TITLE_MAX + 1].split(" ")[:-1] or [text[:TITLE_MAX]]
        while said[2:] and said[-1].lower().strip(",;:") in stop_words():
            said.pop()
        text = " ".join(said)
    text = text.strip(_OUTER)
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.islower() and first.isalpha() else text


@lru_cache(maxsize=4096)  # the same words come again and again
def _topic(word: str) -> str:
    """Return the word in small letters; "" for one without a topic: a number, a hash."""
    low = word.lower().replace("’", "'").rstrip(".'/-+").rpartition("/")[2]
    low = re.sub(r"^(?:[ldjmtscn]|qu)'|'(?:s|re|ve|ll|d|m)$|n't$", "", low)
    short = low.isascii() and len(low) < 3 and not (len(low) == 2 and word.isupper())  # noqa: PLR2004 - letters and digits
    digits = sum(map(str.isdigit, low))
    unfit = short or len(low) > 40 or digits > 4 or digits == len(low) or ".." in low  # noqa: PLR2004 - letters and digits
    return "" if unfit or _TICKET.fullmatch(word) or low in stop_words() else low


def _topics(text: str) -> list[str]:
    return [found for word in _TOKEN.findall(text) if (found := _topic(word))]


def topics(text: str) -> frozenset[str]:
    """Return the topic words, in one form each."""
    return frozenset(word.removesuffix("s") for word in _topics(text))


def key_words(texts: Iterable[str], most: int) -> list[str]:
    """Return the topic words that texts have most often, each in one form."""
    counts = Counter(word for text in texts for word in _topics(text))
    forms = {word.removesuffix("s"): word for word, _ in reversed(counts.most_common())}
    return sorted(forms.values(), key=lambda word: (-counts[word], word))[:most]


def tickets(text: str) -> list[str]:
    """Return the ticket ids that are written in a text, as tags."""
    return list(dict.fromkeys(f"ticket:{one}" for one in _TICKET.findall(text)))


def decisions(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the first five sentences that put a decision into words, each once, on one line.

    What was settled early is what later work stands on.
    """
    found: dict[str, str] = {}
    for text in texts:
        for sentence in sentences(text) if _DECIDED.search(text) else ():
            if hit := _DECIDED.search(sentence):
                line = clean_line(
                    sentence[max(0, min(hit.start() - 100, len(sentence) - 300)) :], 300
                )
                found.setdefault(line.lower().rstrip(".!"), line)
    return tuple(found.values())[:5]
