r"""Prose out of messy messages: sentences, topic words, headlines, key phrases, tickets.

In: any text that a person or a model wrote, with Markdown, pasted logs and damage. Out: its
sentences as they were written, and phrases cut from them. Work is linear and bounded. What
surprised us: closing tags are often missing (the text was cut), so a wrapper without an end hides
nothing; and a line of Chinese or Thai is one word to `\w`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from indexerd.models.extractive.lexicon import (
    ARTICLE,
    CLAUSES,
    PADDING,
    POLITE_END,
    stop_words,
    word_set,
)
from indexerd.privacy.sanitize import clean_text

SENTENCE_MAX = 4_000
SENTENCES_MAX = 300
NAME_WORDS, NAME_CHARS, DENSE_NAME_CHARS = 8, 100, 28
_WORD_MAX = 40  # characters; a longer word is a token, a hash or noise
_LINE_WRAPPED = 60  # characters of a line that an editor may have wrapped

_WRAPPERS = word_set(
    """skill skills file files system-reminder environment_context instructions user_instructions
    command-message command-name local-command-stdout local-command-caveat bash-input
    bash-stdout bash-stderr task-notification document documents attachment context log logs
    output stdout stderr diff code pre"""
)
_TAG = re.compile(r"<!--[\s\S]{0,200}?-->|</?(?P<name>[A-Za-z][\w:.-]{0,40})(?:\s[^<>]{0,300})?/?>")
_NOISE = re.compile(
    r"""Traceback \(|File "|at [\w$.<>/]{1,200}\s?\(|\^+$|\[?\d{4}-\d\d-\d\d[T ]\d\d:
    |\[?\d\d:\d\d:\d\d|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL|npm ERR!)\b[\]: |]
    |(?:\$|>>>)\s|diff --git|(?:[-+]{3}|@@)\s|\|.*\||[-+=|_*~\#.]{3,}$|Caused by:|panic:
    |[\w.]{0,80}(?:Error|Exception):|!\w
    |import\s\w+(?:\.|\sas\s|$)|from\s\S+\simport\s|def\s\w+\(|class\s\w+\s?[:({]|\#include
    |(?:const|let|var)\s[\w{}, ]+=|(?:export|public|private|static|async)\s.*[{;]$|func\w*\s\w*\(
    |/(?!(?:tmp|etc|var|home|usr|dev|opt)\b)[A-Za-z][\w:-]*(?:\s|$)""".replace("\n    ", "")
)
_ERROR = re.compile(r"(?:E\s+)?((?:[\w.]{0,80}(?:Error|Exception)|panic|fatal|error):\s.{3,200})")
_CODE_MARK = re.compile(r"[{}\[\]()=;<>|&$\\^~\"]")
_BULLET = re.compile(r"(?:(?:[-+*•–]|(?:\*\*)?\d{1,3}[.)]|\[[ xX]\]|>{1,5}|#{1,6})\s+){1,3}")  # noqa: RUF001
_END = re.compile(r"[.!?…]+[\"'’”»)\]`*]{0,3}(?=\s)|[。！？]+")  # noqa: RUF001
_NO_END = re.compile(
    r"(?:^\d{1,3}|(?:^|[\s(])(?:(?:\w\.)+\w|[^\W\d_]|vs|etc|bzw|ca|nr|approx|dr|mrs?))\.$",
    re.IGNORECASE,
)
_ROLE = re.compile(r"\b(User|Assistant|Human|System)\s*[:：]+\s*")  # noqa: RUF001
_LINK = re.compile(r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{0,500}\)")
_MARKS = re.compile(r"@{2,}|\*\*(?=\S)|(?<=\S)\*\*|(?<![\w*/])\*(?=\w)|(?<=\w)\*(?![\w*])")
_REDACTED = re.compile(r"\[?redacted:[\w.-]{0,40}\]?", re.IGNORECASE)
_PATH = re.compile(r"(?<!\S)@?(?:[\w.~@:-]*/){2,}?([\w.@-]+)(?![\w/])")
_LETTER = re.compile(r"[^\W\d_]")
_HAN = "\u3400-\u9fff\uf900-\ufaff"
_DENSE = re.compile(f"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff{_HAN}]")
_RUNS = re.compile(f"[\u30a1-\u30fc]{{2,12}}|[{_HAN}]{{2,12}}|[A-Za-z][\\w.]{{1,30}}")
_WORD = re.compile(r"[^\W_][\w.+#/'’-]*")  # noqa: RUF001
_TOKEN = re.compile(r"`[^`\n]{1,80}`|[^\W_][\w.+#/'’-]*|[^\s\w]")  # noqa: RUF001
_JIRA = re.compile(r"(?<![\w-])([A-Z][A-Z0-9]{0,8}[A-Z])-\d{1,6}(?![\w-])")
_NOT_JIRA = word_set("""UTF SHA ISO RFC CVE HTTP AES RSA MD GPT TLS SSL UTC BASE""")
_NUMBER = re.compile(r"(?<![\w&/#])#(\d{2,5})(?!\w)")
_OUTER = " .,;:!?…-–—/\\|*#=+&~、。，；：！？"  # noqa: RUF001


def sentences(text: str) -> list[str]:
    """Return what was said in a message, without code, logs and attachments."""
    text = clean_text(text, len(text))
    found: list[str] = []
    for block in _blocks(_unwrapped(text) if "<" in text else text):
        lines = (tidy(piece[:SENTENCE_MAX]) for piece in _split(block))
        found += [line for line in lines if _LETTER.search(line)]
    over = max(0, len(found) - SENTENCES_MAX)  # the middle of a long message counts least
    return found[: SENTENCES_MAX // 2] + found[SENTENCES_MAX // 2 + over :]


def error_line(text: str) -> str:
    """Return the last error that a pasted log or trace names; empty if there is none."""
    hits = [hit for line in text.split("\n") if (hit := _ERROR.match(line.strip()))]
    return tidy(hits[-1][1]) if hits else ""


def _unwrapped(text: str) -> str:
    """Take out tags, and with the tags of attachments what is between them."""
    parts: list[str] = []
    at = 0
    endless: set[str] = set()
    for tag in _TAG.finditer(text):
        if tag.start() < at:
            continue
        parts.append(text[at : tag.start()])
        at = tag.end()
        name = tag["name"] or ""
        if name.lower() in _WRAPPERS - endless and tag[0][1] != "/" and tag[0][-2] != "/":
            end = text.find(f"</{name}>", at)
            if end < 0:
                endless.add(name.lower())  # looked for once: the search stays linear
            else:
                at = end + len(name) + 3
                parts.append("\n")
    return "".join(parts) + text[at:]


def _blocks(text: str) -> Iterator[str]:
    """Yield paragraphs, bullets and headings; lines that an editor wrapped are one block again."""
    held = ""
    for line in _prose(text):
        bullet = _BULLET.match(line)
        body = line[bullet.end() :] if bullet else line
        ended = held[-1:] in ".!?:;。！？" or len(held) <= _LINE_WRAPPED or len(held) > SENTENCE_MAX  # noqa: RUF001
        if (
            held
            and body
            and not bullet
            and (not ended or (body[0].islower() and held[-1] not in ".:"))
        ):
            held += " " + body
            continue
        if held:
            yield held
        held = body
        if line.startswith("#"):
            yield body
            held = ""
    if held:
        yield held


def _prose(text: str) -> Iterator[str]:
    """Yield the lines that are prose, and an empty one for each that is not."""
    fence = ""
    noisy = False
    for raw in text.split("\n"):
        line = raw.strip()
        if fence:
            fence = "" if line.startswith(fence) else fence
            continue
        if line.startswith(("```", "~~~")) and line[:3] not in line[3:]:
            fence = line[:3]
        noisy = bool(line) and (_is_noise(line) or (noisy and raw[0] in " \t+-"))
        yield "" if noisy or fence else line


def _is_noise(line: str) -> bool:
    """Whether a line is code, a log or a table rather than prose."""
    if _NOISE.match(line) or (len(line) > 2 * _WORD_MAX and line.isascii() and " " not in line):
        return True
    marks = len(_CODE_MARK.findall(line, 0, 400))
    return (line[-1] in "{};" and marks > 1) or (marks > 3 and marks * 5 > min(len(line), 400))  # noqa: PLR2004 - a few belong to prose


def _split(block: str) -> Iterator[str]:
    start = 0
    for mark in _END.finditer(block):
        if not _NO_END.search(block[max(start, mark.start() - 12) : mark.start() + 1]):
            yield block[start : mark.end()]
            start = mark.end()
    yield block[start:]


def tidy(piece: str) -> str:
    """Return one line without Markdown's marks, link targets and role markers."""
    text = _ROLE.sub("", _MARKS.sub("", _LINK.sub(r"\1", piece)))
    return _even(" ".join(text.split()))


def _even(text: str) -> str:
    return text.replace("`", "") if text.count("`") % 2 else text


def clip(text: str, limit: int) -> str:
    """Cut a text at a word's border; an ellipsis says so."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ")
    return _even((cut[:space] if space > limit // 2 else cut).rstrip(" ,;:-")) + "…"


def plain(text: str) -> str:
    """Return a text fit for a name or a tag: without marks of code, roles and redactions."""
    text = _MARKS.sub("", _REDACTED.sub("", text.replace("`", "")))
    return " ".join(_ROLE.sub(r"\1 ", text).split())


def dense(text: str) -> bool:
    """Whether a text is largely written in a script without spaces."""
    return 3 * len(_DENSE.findall(text[:400])) >= max(1, len(_LETTER.findall(text[:400])))


def words(text: str) -> list[str]:
    """Return all words, in small letters; file names and identifiers are one word each."""
    return [hit.rstrip(".'/’-+").lower() for hit in _WORD.findall(text)]  # noqa: RUF001


def topic_runs(text: str) -> list[list[str]]:
    """Return the words that carry a topic, in small letters; a run is what stands together."""
    runs: list[list[str]] = [[]]
    for token in _TOKEN.findall(_REDACTED.sub(" ; ", text)):
        found = _topic(token)
        if len(found) == 1:
            runs[-1].append(found[0])
        elif found or runs[-1]:
            runs += [*([one] for one in found), []]
    return [run for run in runs if run]


def topics(text: str) -> frozenset[str]:
    """Return the topic words, in one form each."""
    return frozenset(word.removesuffix("s") for run in topic_runs(text) for word in run)


@lru_cache(maxsize=4096)  # the same words come again and again
def _topic(token: str) -> tuple[str, ...]:
    """Return the word if it has a topic; of an unspaced script, the words within."""
    word = token.strip("`")
    if not word.isascii() and _DENSE.search(word):
        return tuple(run for run in _RUNS.findall(word) if run not in stop_words())
    low = word.lower().replace("’", "'").rstrip(".'/-+").rpartition("/")[2]  # noqa: RUF001
    low = re.sub(r"^(?:[ldjmtscn]|qu)'|'(?:s|re|ve|ll|d|m)$|n't$", "", low)
    numbers = sum(map(str.isdigit, low)) > 4 or low.isdecimal() or _JIRA.fullmatch(word)  # noqa: PLR2004 - a date, an id
    short = len(low) < 3 and not (len(low) == 2 and word.isupper())  # noqa: PLR2004 - as above
    unfit = numbers or short or " " in low or ".." in low or not low[:1].isalnum()
    return () if unfit or low in stop_words() or len(low) > _WORD_MAX else (low,)


def unpadded(text: str) -> str:
    """Leave out greetings, politeness and articles; paths keep their last part."""
    text = _PATH.sub(r"\1", plain(text).lstrip("¿¡@ "))
    text = PADDING.sub("", text, count=1) or text
    text = text[:-40] + POLITE_END.sub("", text[-40:])
    return ARTICLE.sub("", text, count=1) if ARTICLE.match(text) else text


def headline(text: str) -> str:
    """Cut a request to a name: 5 to 8 words, at a clause's border where there is one."""
    text = unpadded(text)
    if dense(text):
        comma = re.compile("[、。，；！？,;!?]").search(text, 9, DENSE_NAME_CHARS + 1)  # noqa: RUF001
        return text[: comma.start() if comma else DENSE_NAME_CHARS].strip(_OUTER)
    parts = text.split(" ")
    if len(parts) > NAME_WORDS:
        borders = [
            at
            for at in range(NAME_WORDS // 2, NAME_WORDS + 1)
            if parts[at - 1][-1:] in ",;:)." or parts[at].lower() in CLAUSES
        ]
        parts = parts[: borders[-1] if borders else NAME_WORDS]
        while parts[2:] and parts[-1].lower().strip(",;:") in stop_words():
            parts.pop()
    name = clip(" ".join(parts), NAME_CHARS)
    for left, right in ("()", "[]", '""', "“”"):
        if name.count(left) != name.count(right) or (left == right and name.count(left) % 2):
            name = name.replace(left, "").replace(right, "")
    name = name.strip(_OUTER)
    if name.isupper() and len(name) > 2 * NAME_WORDS:
        name = name.lower()
    first = name.partition(" ")[0]
    raised = first.islower() and first.replace("-", "").replace("'", "").isalpha()
    return name[:1].upper() + name[1:] if raised else name


def key_phrases(said: Iterable[tuple[Sequence[list[str]], int]], limit: int) -> list[str]:
    """Rank phrases of one to three words, from weighted runs; no two share a word."""
    counts: Counter[tuple[str, ...]] = Counter()
    for runs, weight in said:
        for run in runs:
            for at in range(len(run)):
                for size in (1, 2, 3)[: len(run) - at]:
                    counts[tuple(run[at : at + size])] += weight

    def score(phrase: tuple[str, ...]) -> float:
        alone = sum(counts[(word,)] for word in phrase) / len(phrase)
        return counts[phrase] ** 2 / alone * (0.4 + 0.6 * len(phrase))

    taken: set[str] = set()
    found: list[str] = []
    likely = [phrase for phrase, _ in counts.most_common(50 * limit)]
    for phrase in sorted(likely, key=lambda one: (-score(one), one)):
        stems = {word.removesuffix("s") for word in phrase}
        if not stems & taken:
            taken |= stems
            found.append(" ".join(phrase))
    return found[:limit]


def tickets(texts: Iterable[str], limit: int) -> list[str]:
    """Return ticket ids that are written in the texts, as tags, in their order."""
    found: dict[str, None] = {}
    for text in texts:
        ids = [hit[0] for hit in _JIRA.finditer(text) if hit[1] not in _NOT_JIRA]
        found |= {
            f"ticket:{one}": None for one in [*ids, *(hit[0] for hit in _NUMBER.finditer(text))]
        }
    return list(found)[:limit]
