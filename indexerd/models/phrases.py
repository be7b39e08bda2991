r"""Plain words out of messy messages: sentences, topic words, headlines, key phrases, tickets.

In: any text that a person or a model wrote, Markdown, pasted logs and damage included. Out: its
sentences as they were written, without marks that are no words, and phrases cut from them. Work
is linear and bounded: `SENTENCES_MAX` a message, of `SENTENCE_MAX` characters each, and no pattern
looks ahead without a limit. What surprised us: closing tags are often missing (the text was cut),
so a wrapper without an end hides nothing; and a line of Chinese or Thai is one word to `\w`.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from indexerd.privacy.late import late
from indexerd.privacy.sanitize import clean_text

SENTENCE_MAX = 4_000
SENTENCES_MAX = 300
NAME_WORDS = 8
NAME_CHARS = 100
DENSE_NAME_CHARS = 28  # of a headline in a script without spaces
_WORD_MAX = 40  # a longer one is a token, a hash or noise


def word_set(text: str) -> frozenset[str]:
    """Make a set of the words of a table."""
    return frozenset(text.split())


_CLAUSES = word_set("""and or but because so when which that while where if since as then until
    after before unless und oder aber weil damit wenn dass denn nachdem bevor sowie et ou mais
    parce car quand qui puis afin y pero porque cuando""")
_PREPOSITIONS = word_set("""in on at to for with from by into onto over under via about between
    using without through across per against inside von vom mit für im auf aus bei zu zum zur über
    unter nach vor durch ohne gegen pour dans avec sur par chez entre sans con para sin desde""")
_OF = word_set("of de du des del")  # what follows belongs to the noun before
_MINOR = word_set("""a an the is are was be has have my our your its their this not can will instead
    der die das den dem ein eine einen als wie ist le la les un une au est el los una al es""")
_NEVER_LAST = _CLAUSES | _PREPOSITIONS | _OF | _MINOR  # in a headline
_BORDERS = {**dict.fromkeys(_OF, 0.5), **dict.fromkeys(_PREPOSITIONS, 1.0)}
_BORDERS |= dict.fromkeys(_CLAUSES, 2.5)  # how well a headline may end before such a word
# Words of grammar and of work itself, which make no topic; those under three letters never do.
_ENGLISH = word_set("""
    above again all almost already also always any anything away back been being below best better
    cannot could did does done down during each else even ever every everything few get getting
    going got had having here his how instead itself just keep let like made make many may maybe
    more most much must near need new next nothing now off often okay once one only other out own
    please put really same say some something still sure take than them there these they thing those
    though together too two upon use very want way well went were what who why within would yes yet
    you actual actually add agree answer ask call change check clean clear code come complete
    compute continue correct create current day default detail different easy end ensure error
    example existing explain feel file final find fine first fix follow found full give good great
    happen hello help hey hope idea implement important include issue job know last later leave line
    list little long look main mean minute name nice note number old open option part pass
    perfect pick plan point print problem question ran read ready real reason related remove rename
    request right run running second section session set show side simple single small start state
    step stop tell test thank think thought ticket time today try turn understand update user verify
    week work write amazing rather both should https http www
""")
_OTHERS = word_set("""
    see seen three thanks danke kannst gestellt peux-tu alle allem allen alles andere auch beim bin
    bis bist bitte dabei dafür daher danach dann daran darauf dies diese diesen dieser dir doch dort
    einem einer eines einmal gibt habe haben hat hier ich ihm ihn ihnen ihr ihre immer ins jede
    jeden jetzt kann kein keine keinen können könnte machen mal man mehr mein mich mir muss müssen
    nehmen nein nicht nichts noch nun nur schon sehr sein seine sich sie sind soll sollen sollte
    sollten uns unser war warum weiter welche wer werden wieder wir wird wurde wurden zwischen
    aufgabe beheben behoben datei dateien erstellen fehler fertig hallo neue neuen genau zeile
    alors après aussi autre aux avoir avant bien bonjour cela ces cet cette chaque comme comment
    depuis dont être faire fait faut merci mes mon nous ont pas peu peut peux plus pourquoi que quel
    quelle quoi ses son sont sous tes ton toujours tous tout toute très vos votre vous ajouter
    corriger erreur fichier problème ahora así como cómo debe donde dos esa ese eso esta este está
    están favor fue gracias hacer hasta hay hola las más mientras mismo mucho otra otro puede puedes
    quiero ser sobre solo también tan tener tenemos tiene todo todos uno usar vamos archivo cambiar
    実際 更新 修正 追加 確認 変更 必要 場合 最新 現在 内容 問題 可以 我们 需要 进行 这个 什么
""")
_STOP = _NEVER_LAST | _ENGLISH | _OTHERS | {word + "s" for word in _ENGLISH}
_STOP |= {word.removesuffix("e") + end for word in _ENGLISH for end in ("ed", "ing")}
_WRAPPERS = word_set("""skill skills file files system-reminder environment_context instructions
    user_instructions command-message command-name local-command-stdout local-command-caveat
    bash-input bash-stdout bash-stderr task-notification document documents attachment context log
    logs output stdout stderr diff code pre""")  # what they enclose was not said

_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_DENSE = late(f"[{_UNSPACED}\u3040-\u30ff{_HAN}\uff66-\uff9f]")
_COMMA = late("[\u3001\u3002\uff0c\uff1b\uff01\uff1f,;!?]")
_RUNS = late(  # words of such scripts: katakana, kanji; Chinese between its particles
    f"[\u30a1-\u30fa\u30fc]{{2,12}}|(?:(?![\u7684\u4e86\u662f\u5728\u548c\u6211\u4f60\u628a\u8bf7\u5c31])"
    f"[{_HAN}]){{2,12}}|[{_UNSPACED}]{{4,16}}|[A-Za-z][A-Za-z0-9_.]{{1,30}}"
)
_TAG = late(
    r"<!--[\s\S]{0,200}?-->|</[A-Za-z][\w:.-]{0,40}\s?>"
    r"|(?<!\w)<(?P<name>[A-Za-z][\w:.-]{0,40})(?:\s[^<>]{0,300})?/?>"
)
_PICTURE = r"[\u2190-\u21ff\u2300-\u2bff\u3030\ufe0e\ufe0f\U0001f000-\U0001faff]"
_BULLETS = late(
    r"(?:(?:[-+*\u2022\u00b7\u2023\u25aa\u2013]|(?:\*\*)?\d{1,3}[.)]|\[[ xX]\]|>{1,5}"
    rf"|{_PICTURE}{{1,4}})\s+){{1,3}}"
)
_NOISE = late(
    r"""(?x)Traceback\ \(|File\ "|at\ [\w$<>\[\]]{1,80}[./][\w.$<>/\[\]]{1,200}\s?\(|\^+$
    |\[?\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d|[A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:|goroutine\ \d
    |\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL|npm\ ERR!)\b[\]: |]|(?:\$|>>>|PS\ [A-Z]:\S*)\s
    |diff\ --git|index\ [0-9a-f]{7}|(?:[-+]{3}|@@)\s|\|.*\||[-+=|_*~\#.]{3,}$|Caused\ by:|panic:
    |error(?:\[\w+\])?:|-->\ |FAILED\ |E\s{3}|[\w.]{0,80}(?:Error|Exception|Panic):|!\w|\#include
    |\d{1,3}(?:\.\d{1,3}){3}\ -|import\ (?:\w+\.\w|\w+\ as\ |.*['"{;])|using\ [\w.]+;$
    |from\ \S+\ import\ |def\ \w+\(|class\ \w+\s?[:({]|(?:const|let|var)\ [\w{}, ]+\s?=
    |(?:export|public|private|static|async)\ .*[{;]$|func(?:tion)?\ \w*\(|fn\ \w+\(
    |\[[^\]]{1,120}\]$|Caveat:\ The\ messages\ below
    |/(?!(?:tmp|etc|var|home|usr|dev|opt|proc)\b)[A-Za-z][\w:-]*(?:\s|$)"""
)
_ERROR = late(r"(?:E\s+)?((?:[\w.]{0,80}(?:Error|Exception)|panic|fatal|error):\s.{3,200})")
_CODE_MARK = late(r"[{}\[\]()=;<>|&$\\^~\"]")
_END = late(  # a plain character class first: that is what makes the search quick
    r"[.!?\u2026\u3002\uff01\uff1f][.!?\u2026\u3002\uff01\uff1f]{0,3}"
    r"[\"'\u2019\u201d\u00bb\u300d\u300f)\]`*]{0,3}"
)
_NO_END = late(  # abbreviations, numbers, and marks that are talked about
    r"(?:(?:^\d{1,3}|(?:^|[\s(])(?:(?:\w\.)+\w|[^\W\d_]|vs|etc|bzw|usw|ca|nr|vgl|approx|dr|mrs?))\."
    r"|(?:^|[^\w)\]\"'\u2019\u201d%`])[.!?\u2026]|`[.!?]`)$",
    re.IGNORECASE,
)
_ROLE_LEAD = late(r"\s*(?i:(?:user|assistant|human|system|agent|ai|tool)\s*[:\uff1a]+\s*)+")
_ROLE = late(r"\b(User|Assistant|Human|System)\s*[:\uff1a]+")
_MARKS = late(r"@{2,}|\*\*(?=\S)|(?<=\S)\*\*|(?<![\w*/])\*(?=\w)|(?<=\w)\*(?![\w*])")
_OUTER = " .,;:!?\u2026-\u2013\u2014/\\|*#=+&~\u3001\u3002\uff0c\uff1b\uff1a\uff01\uff1f"
_LINK = late(r"!?\[([^\[\]\n]{1,200})\]\((?:[^()\s]{0,500})\)")
_EDGE = late(rf"(?:\s|{_PICTURE})*")
_REDACTED = late(r"\[?redacted:[\w.-]{0,40}\]?", re.IGNORECASE)
_WORD = late(r"[^\W_][\w.+#/'\u2019-]*")
_TOKEN = late(r"`[^`\n]{1,80}`|[^\W_][\w.+#/'\u2019-]*|[^\s\w]")
_ELIDED = late(r"^(?:[ldjmtscn]|qu)'|(?:'(?:s|re|ve|ll|d|m)|n't)$")
_LETTER = late(r"[^\W\d_]")
_JIRA = late(r"(?<![\w-])([A-Z][A-Z0-9]{0,8}[A-Z])-\d{1,6}(?![\w-])")
_NOT_JIRA = word_set("UTF SHA ISO RFC CVE HTTP AES RSA MD GPT TLS SSL UTC IEC DIN PEP BASE RC")
_NUMBER = late(r"(?<![\w&/#])#(\d{1,7})(?!\w)")
_CALLED = late(r"\b(?:issue|pr|PR|MR|pull(?: request)?|bug|ticket|fix(?:es)?|closes|see)\s?$")


def dense(text: str) -> bool:
    """Say whether a text is largely written in a script without spaces."""
    part = text[:400]
    return not part.isascii() and 3 * len(_DENSE.findall(part)) >= len(_LETTER.findall(part))


def sentences(text: str, *, headings: bool = True) -> list[str]:
    """Find what was said in a message, sentence by sentence, without code, logs and attachments."""
    if not text.replace("\n", "").isprintable():
        text = clean_text(text, len(text))
    found: list[str] = []
    for block in _blocks(_unwrapped(text) if "<" in text else text, headings=headings):
        lines = [tidy(piece[:SENTENCE_MAX]) for piece in _split(block)]
        found += [line for line in lines if _LETTER.search(line)]
    over = max(0, len(found) - SENTENCES_MAX)  # the middle of a long message counts least
    return found[: SENTENCES_MAX // 2] + found[SENTENCES_MAX // 2 + over :]


def error_line(text: str) -> str:
    """Find the last error that a pasted log or trace names; empty if there is none."""
    hits = [_ERROR.match(line.strip()) for line in clean_text(text, len(text)).split("\n")]
    return tidy(next((hit[1] for hit in reversed(hits) if hit), ""))


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
        name = (tag["name"] or "").lower()
        if name in _WRAPPERS - endless and not tag[0].endswith("/>"):
            end = text.find(f"</{tag['name']}>", at)
            if end < 0:
                endless.add(name)  # looked for once: the search stays linear
                continue
            at = end + len(name) + 3
            parts.append("\n")
    return "".join(parts) + text[at:]


def _blocks(text: str, *, headings: bool) -> Iterator[str]:
    """Yield paragraphs, bullets and headings; lines that were wrapped are one block again."""
    held = ""
    for line in _spoken(text):
        body = re.sub(r"^#{1,6}\s+", "", line) if line[:1] == "#" else line
        bare = _BULLETS.sub("", body, count=1) if _BULLETS.match(body) else body
        if held and bare == line and bare and not line.startswith("**") and _wraps(held, bare):
            held += " " + bare
            continue
        if held:
            yield held
        held = bare
        if body != line:
            if headings:
                yield bare
            held = ""
    if held:
        yield held


def _wraps(held: str, following: str) -> bool:
    long = len(held) > 1.5 * _WORD_MAX  # shorter lines were not wrapped by an editor
    ended = held[-1] in ".!?:;\u3002\uff01\uff1f" or len(held) > SENTENCE_MAX
    return not ended and (following[0].islower() or (long and following[0].isalpha()))


def _spoken(text: str) -> Iterator[str]:
    """Yield the lines that are prose, and an empty one for each that is not."""
    fence = ""
    noisy = False
    for raw in text.split("\n"):
        line = raw.strip()
        mark = re.match(r"`{3,}|~{3,}", line) if line[:1] in "`~" else None
        if fence:
            closes = mark and mark[0].startswith(fence) and line == mark[0]
            fence = "" if closes else fence
            continue
        fence = mark[0] if mark and mark[0] not in line[len(mark[0]) :] else ""
        noisy = bool(line) and (_is_noise(line) or (noisy and raw[0] in " \t+-"))
        yield "" if noisy or mark else line


def _is_noise(line: str) -> bool:
    """Say whether a line is code, a log or a table rather than prose."""
    if _NOISE.match(line) or (len(line) > 2 * _WORD_MAX and line.isascii() and " " not in line):
        return True
    marks = len(_CODE_MARK.findall(line, 0, 400))
    if line[-1] in "{};" and (marks > 1 or " " not in line):
        return True
    return marks > 3 and marks * 5 > min(len(line), 400)  # noqa: PLR2004 - a few belong to prose


def _split(block: str) -> Iterator[str]:
    start = 0
    for mark in _END.finditer(block):
        at, end = mark.span()
        if block[at] in ".!?\u2026":
            last = at + 2 if block[at + 1 : at + 2] == "`" else at + 1
            before = block[max(start, at - 12) : last]
            if not block[end : end + 1].isspace() or _NO_END.search(before):
                continue
        yield block[start:end]
        start = end
    yield block[start:]


def tidy(piece: str) -> str:
    """One line without Markdown's marks, link targets, leading pictures and role markers."""
    text = _unmarked(_LINK.sub(r"\1", piece) if "](" in piece else piece)
    if not text.isascii():
        text = _EDGE.sub("", _EDGE.sub("", text, count=1)[::-1], count=1)[::-1]
    if ":" in text or "\uff1a" in text:
        lead = _ROLE_LEAD.match(text)
        text = _ROLE.sub(r"\1", text[lead.end() :] if lead else text)
    return _even(" ".join(text.split()))


def _unmarked(text: str) -> str:
    return _MARKS.sub("", text) if "*" in text or "@@" in text else text


def _even(text: str) -> str:
    return text.replace("`", "") if text.count("`") % 2 else text


def clip(text: str, limit: int) -> str:
    """Cut a text at a word's border; an ellipsis says so."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ")
    return _even((cut[:space] if space > limit // 2 else cut).rstrip(" ,;:-")) + "\u2026"


def plain(text: str) -> str:
    """Make a sentence fit for a name or a tag: no back-ticks, reference and redaction marks."""
    text = _unmarked(text.replace("`", ""))
    if "edacted:" in text.lower():
        text = _unmarked(_REDACTED.sub("", text))
    return " ".join(_ROLE.sub(r"\1", text).split())


def words(text: str) -> list[str]:
    """All words, in lower case; file names and identifiers are one word each."""
    return [hit.rstrip(".'/\u2019-+").lower() for hit in _WORD.findall(text)]


def topic_runs(text: str) -> list[list[str]]:
    """The words that carry a topic, in lower case; a run is what stands together."""
    text = _REDACTED.sub(" ; ", text) if "edacted:" in text.lower() else text
    runs: list[list[str]] = [[]]
    for token in _TOKEN.findall(text):
        found = () if token in _STOP else _topic(token)
        if len(found) == 1:
            runs[-1] += found
        elif found or runs[-1]:
            runs += [*([one] for one in found), []]
    return [run for run in runs if run]


@functools.lru_cache(maxsize=4096)  # the same words come again and again
def _topic(token: str) -> tuple[str, ...]:
    """The word in its plain form, if it has a topic; of an unspaced script, the words within."""
    word = token.strip("`")
    if not word.isascii() and _DENSE.search(word):
        found = (run for run in _RUNS.findall(word) if len(run) < 7 or run[0] < "\u3400")  # noqa: PLR2004 - a clause
        return tuple(run for run in found if run not in _STOP)
    low = word.lower()
    if not low.isalpha():
        numbers = sum(map(str.isdigit, low)) > 4 or _JIRA.fullmatch(word)  # noqa: PLR2004 - a date, an id
        if numbers or " " in low or ".." in low or not low[:1].isalnum():
            return ()
        low = _ELIDED.sub("", low.rstrip(".'/\u2019-+").replace("\u2019", "'").rpartition("/")[2])
    short = len(low) < 3 and not (len(low) == 2 and word.isupper())  # noqa: PLR2004 - as for _STOP
    return () if short or low in _STOP or low.isdecimal() or len(low) > _WORD_MAX else (low,)


def headline(text: str) -> str:
    """Cut a request without its padding to a name: 5 to 8 words, at a clause's border."""
    if dense(text):
        end = _COMMA.search(text, DENSE_NAME_CHARS // 3, DENSE_NAME_CHARS + 1)
        return _finished(text[: end.start() if end else DENSE_NAME_CHARS])
    parts = text.split(" ")
    if len(parts) > NAME_WORDS:
        parts = parts[: _border(parts)]
        while parts[2:] and parts[-1].lower().strip(",;:") in _NEVER_LAST:
            parts.pop()
    return _finished(" ".join(parts))


def _border(parts: list[str]) -> int:
    """Find the best place to cut among the first words: the stronger the border, the better."""
    best, place = 0.0, NAME_WORDS
    for at in range(NAME_WORDS // 2, NAME_WORDS + 1):
        strength = _BORDERS.get(parts[at].lower().strip(",.;:()"), 0.0)
        if parts[at - 1][-1:] in ",;:)" or parts[at][:1] in "(\u2013\u2014-":
            strength = 3.0
        if strength and 2 * strength + at > best:
            best, place = 2 * strength + at, at
    return place


def _finished(name: str) -> str:
    """Sentence case, no trailing punctuation, no bracket or quote without its other half."""
    name = clip(name, NAME_CHARS)
    for left, right in ("()", "[]", '""', "\u201c\u201d", "\u201e\u201c", "\u300c\u300d"):
        if name.count(left) != name.count(right) or (left == right and name.count(left) % 2):
            name = name.replace(left, "").replace(right, "")
    name = " ".join(name.split()).strip(_OUTER)
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
            for at, word in enumerate(run):
                counts[(word,)] += weight
                for size in (2, 3)[: len(run) - at - 1]:
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
    """Ticket ids that are written in the texts, as tags, in their order."""
    found: dict[str, None] = {}
    for text in texts:
        for hit in _JIRA.finditer(text if "-" in text else ""):
            if hit[1] not in _NOT_JIRA:
                found[f"ticket:{hit[0]}"] = None
        for hit in _NUMBER.finditer(text if "#" in text else ""):
            called = _CALLED.search(text[max(0, hit.start() - 14) : hit.start()])
            if called or 2 <= len(hit[1]) <= 5:  # noqa: PLR2004 - "#1" is a place, "#112233" a colour
                found[f"ticket:#{hit[1]}"] = None
    return list(found)[:limit]
