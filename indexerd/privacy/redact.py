r"""Secrets out of text, before it is cut, sent, stored or logged (S2.21, X5-X7).

In: any text. Out: the same text with each secret replaced by `[redacted:<kind>]`, and counts by
kind. Redacting twice changes nothing; prose, commit hashes, UUIDs and `token = get_token()` stay.

Linear: a rule runs only if one of its keywords occurs; its pattern begins with a literal; what
follows is bounded or possessive, and nothing is demanded after an unbounded run, so that no
byte is read again for each start. Finds that overlap become one, named by the most specific.

Secrets come quoted, JSON-escaped, as variables, headers, flags. A private key may have lost its
first or last line, or hold a section label (`User: `) where two messages meet.

User patterns may be slow, so what they see is bounded: one line at a time, as if it were the
whole text, and a long line in overlapping windows of `WINDOW` characters. A secret is found
whole if it lies within one line and is at most `WINDOW - STEP` long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from indexerd.privacy.late import late
from indexerd.privacy.redact_commands import COMMANDS, WORD
from indexerd.privacy.redact_keys import private_keys
from indexerd.privacy.sanitize import bare, is_plain

WINDOW = 1024
STEP = 768
_PRIVATE_KEY, _CUSTOM = (-1, "private-key"), (1000, "custom")
_ROUNDS = 4  # a replacement may uncover another secret; the last round finds nothing
_Span = tuple[int, int, tuple[int, str]]  # start, end, (rank, kind): the lower rank names it
_MARKER = late(r"\[redacted:[a-z0-9-]+\]")
_HIDING = late(  # escapes of terminals, and what has no width
    "[\x00-\x08\x0b\x0c\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True, slots=True)
class Redacted:
    """The safe text, and how many secrets of each kind were taken out of it."""

    text: str
    counts: dict[str, int]


def redact(text: str, extra: Sequence[re.Pattern[str]] = ()) -> Redacted:
    """Replace every secret by `[redacted:<kind>]`; finds of `extra` are of kind `custom`.

    Where characters that nobody sees hide more secrets, the text comes back without them.
    """
    found = _redacted(text, extra)
    if (text.isascii() and is_plain(text)) or _HIDING.search(text) is None:
        return found
    seen = bare(found.text)
    more = _redacted(bare(text), extra)
    if sum(more.counts.values()) > sum(found.counts.values()):
        return more
    if more.counts == found.counts and len(more.text) < len(seen):
        return more  # the same secrets, which went on behind what nobody sees
    rest = _redacted(seen, extra)  # two that stand together count as one there: it may hide a third
    if not rest.counts:
        return found
    kinds = found.counts | rest.counts
    sums = {kind: found.counts.get(kind, 0) + rest.counts.get(kind, 0) for kind in kinds}
    return Redacted(rest.text, sums)


def _redacted(text: str, extra: Sequence[re.Pattern[str]]) -> Redacted:
    counts: dict[str, int] = {}
    for _ in range(_ROUNDS):
        spans = _merged([*_keys(text), *_by_rules(text), *_custom(text, extra)])
        if not spans:
            break
        parts, done = [], 0
        for start, end, (_rank, kind) in spans:
            counts[kind] = counts.get(kind, 0) + 1
            parts += [text[done:start], f"[redacted:{kind}]"]
            done = end
        text = "".join(parts) + text[done:]
    return Redacted(text, counts)


def _keys(text: str) -> Iterator[_Span]:
    for start, end in private_keys(text):
        yield start, end, _PRIVATE_KEY


def _merged(spans: list[_Span]) -> list[_Span]:
    found: list[_Span] = []
    for start, end, named in sorted(spans):
        if found and start < found[-1][1]:
            first, last, other = found.pop()
            found.append((first, max(last, end), min(other, named)))
        else:
            found.append((start, end, named))
    return found


def _custom(text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[_Span]:
    if not patterns:
        return
    bare = _MARKER.sub(lambda marker: "\n" * len(marker[0]), text)
    for piece in re.finditer(r"[^\n]+", bare):
        for at in range(piece.start(), max(piece.end() - WINDOW + STEP, piece.start() + 1), STEP):
            seen = text[at : min(at + WINDOW, piece.end())]
            for pattern in patterns:
                for found in pattern.finditer(seen):
                    if found[0]:
                        yield at + found.start(), at + found.end(), _CUSTOM


# -- what a value looks like ------------------------------------------------------------------

_SHORTEST, _SHORTEST_BARE = 4, 6  # characters, quoted and in running text
_SHORTEST_BELOW = 8  # on the line after its name
_JUDGED = 100  # characters of a value that are looked at
_WORDS_MAX = 6  # of a pass phrase

_REFERENCE = late(  # what stands for a secret, or for its type
    r"""(?ix) \$[({].* | \$[a-z_]+ | \$(?-i:[A-Z0-9_]+) | %[a-z_]+% | %\(?[a-z_]*\)?s | \{.*\}
    | <.* | .*(?:\.\.\.|…) | [.*•-]+ | x{3,} | (?:your|change|insert|example|placeholder)[\s_-]?.*
    | (?:process\.env|os\.environ|env|secrets|settings|config|self|this|args)\b[.\[(].*
    | pass(?:word|wd|phrase) | secret | token | api[_-]?key | bearer | basic | credentials?
    | str(?:ing)? | text | bytes | bool(?:ean)? | number | any | object | null | none | nil
    | undefined | true | false | required | optional | empty | unknown | hidden | invalid
    | u?int\d+ | float\d+ | (?:base|sha-?|md|utf-?|aes-?|[hrep]s|oauth|argon|x)\d+(?:[-_\s].*)?
    | [a-z][a-z0-9+.-]*://.* | (?:~|\.{1,2})?/(?-i:[a-z_.][a-z0-9_.-]*|Users|Library)(?:/.*)?"""
)
_CODE = late(r"(?i)[a-z_]\w*(?:(?:\.|->|::)[a-z_]\w*)+|\w+_(?:token|secret|password|key)")
_NUMBER = late(r"[v~^<>=+-]*\d[\d._,:eExXT/+-]*(?:[a-zA-Z%]{0,3}|-[a-z]+)|(?:0x|#)[0-9a-fA-F]{1,8}")
_SLUG = late(r"[A-Za-z]{1,11}|[A-Za-z]+(?:[-_.][A-Za-z]+)+")
_ODD = late(r"[0-9!@#$%^*+~](?:(?<=[0-9])|(?<=[\w.-].)(?=[\w.-]))")
_PROSE = late(
    r"(?i)[.?!:]$|\b(?:the|an?|is|are|was|your|my|to|must|please|enter|and|or|of|for|not|with)\b"
)


def _mixed(value: str) -> bool:
    return re.search(r"[0-9]", value) is not None and re.search(r"[A-Za-z]", value) is not None


def _random(value: str) -> bool:
    """Say whether a token's rest is no name: it has digits, or is longer than words are."""
    return _mixed(value) or re.search(r"[A-Za-z0-9]{20}", value) is not None


def _base64(value: str) -> bool:
    """Say whether letters are mixed as base64 mixes them, and words do not."""
    return re.search(r"[a-z][A-Z]|[0-9=]", value) is not None and value.lower() != value


def _held(value: str) -> bool:
    """Say whether a value stands for itself: no reference, type, path or earlier marker."""
    value = _MARKER.sub("", value[:_JUDGED]).strip()
    return len(value) >= _SHORTEST and not _REFERENCE.fullmatch(value)


def _bare(value: str) -> bool:
    """Judge a bare value in running text: it must look like nothing that a person writes."""
    value = value[:_JUDGED].rstrip(".,:")
    if len(value) < _SHORTEST_BARE or not _ODD.search(value):
        return False
    return not (_NUMBER.fullmatch(value) or _CODE.fullmatch(value)) and _held(value)


def _credential(value: str) -> bool:
    """Judge what follows `Authorization:` and its scheme."""
    return _held(value) and (_random(value) or _base64(value))


# -- rules, the specific ones first -----------------------------------------------------------

_TOKENS = (  # kind, what it begins with, what follows
    ("anthropic-key", "sk-ant-", r"[\w-]{12,}+"),
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\w{20,}+"),
    ("gitlab-token", "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat-", r"[\w.=-]{16,}+"),
    ("slack-token", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", r"[\w-]{8,}+"),
    ("webhook", "hooks.slack.com/services/ hooks.slack.com/workflows/", r"[\w/+-]{8,}+"),
    ("webhook", "/api/webhooks/", r"\d{6,24}/[\w-]{16,}+"),
    ("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", r"[\w+/=]{10,}+"),
    ("google-key", "AIza", r"[\w-]{30,}+"),
    ("google-key", "AQ.Ab GOCSPX- ya29. 1//0", r"[\w.-]{16,}+"),
    ("huggingface-token", "hf_ api_org_", r"[A-Za-z0-9]{20,}+"),
    ("npm-token", "npm_", r"[A-Za-z0-9]{20,}+"),
    ("pypi-token", "pypi-Ag", r"[\w-]{16,}+"),
    ("aws-secret", "AKIA ASIA", r"[A-Z0-9]{16}[\s,:;|\"'/\\]{1,4}[\w/+]{40}(?![\w/+])"),
    ("aws-key-id", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("age-key", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", r"[A-Z0-9]{16,}+"),
    ("vendor-token", "SG.", r"[\w-]{16,64}\.[\w-]{16,}+"),
    ("vendor-token", "dop_v1_ doo_v1_ dor_v1_ hvs. hvb. dckr_pat_ lin_api_ ntn_", r"[\w-]{20,}+"),
    ("vendor-token", "shpat_ shpca_ shppa_ shpss_ gsk_ xai- pplx- r8_ ATATT3", r"[\w=-]{20,}+"),
    ("vendor-token", "sntrys_ sntryu_ PMAK- dp.pt. dp.st. figd_ glsa_ glc_", r"[\w=-]{20,}+"),
    ("vendor-token", "tskey- nvapi- sbp_ sb_secret_ rubygems_ dapi", r"[\w-]{20,}+"),
)
_LEFT = r"{0}(?:(?<![A-Za-z0-9_-]{0})|(?<=\\[nrt]{0})|(?<=[0-9\[]m{0}))"  # not inside a word
_GAP = r"(?:\s|\\[nrt]){1,8}+"  # white space, as it is or JSON-escaped
_USER = r"[^\s/?:@\[\"'<>`\\]"
_TO_HOST = r"(?P<v>[^\s/?\"'<>`\\]{1,512})@"
_NAME = r"(?:[a-z0-9]{1,20}[-_]){0,3}(?:pass(?:word|wd|phrase)?|token|secret|api[-_]?key)"
_COOKIE = r"(?P<v>[\w.-]{1,64}=[^\s\x1b\"'\\,\[]{12,}+)"
_Q = r"[\"'\\]{0,4}"  # quotes, perhaps escaped
_CRED = r"(?P<v>[^\s\x1b\"'\\,;<>{}$\[\]]{6,}+)"
_Judge = Callable[[str], bool]
_Shapes = tuple[tuple[str, str, str, _Judge], ...]
# kind, keywords, pattern (its group `v` is the secret, if it has one), what is genuine
_SHAPES: _Shapes = (
    ("openai-key", "sk-", _LEFT.format("sk-") + r"[\w-]{20,}+", _mixed),
    ("jwt", "eyJ", _LEFT.format("eyJ") + r"[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){0,3}", bool),
    ("vendor-token", ":AA", r":AA(?<=\d:AA)[\w-]{30,}+", bool),  # Telegram
    ("url-password", r":// :\/\/", rf":\\?/\\?/{_USER}{{0,256}}+:{_TO_HOST}", _held),
    ("url-password", "://", rf"://(?P<v>{_USER}{{20,256}}+)@", _bare),
    *(("password", words, shape, _held) for words, shape in COMMANDS),
)
_AUTH = rf"authorization{_Q}[ \t]{{0,4}}[:=](?:{_GAP})?f?{_Q}"
_NETRC = rf"machine{_GAP}[^\s\\]{{1,200}}{_GAP}login{_GAP}[^\s\\]{{1,200}}{_GAP}password{_GAP}"
_FOLDED: _Shapes = (  # the same, on lower-cased text
    ("authorization", "authorization", rf"{_AUTH}(?:[a-z]{{3,9}}{_GAP})?{_CRED}", _credential),
    ("authorization", "bearer", rf"bearer{_GAP}(?P<v>[a-z0-9._~+/=-]{{16,}}+)", _bare),
    ("authorization", "basic ", r"basic (?P<v>[a-z0-9+/]{12,}+={0,2})", _base64),
    ("cookie", "cookie", rf"cookie{_Q}: {{0,4}}{_Q}{_COOKIE}", _mixed),
    ("signature", "sig", r"[?&;][a-z-]{0,20}?sig(?:nature)?=(?P<v>[a-z0-9%+/=_-]{20,}+)", bool),
    ("password", "machine", _NETRC + WORD, _held),
    ("password", "--", rf"--{_NAME}\s{{1,4}}[\"']?{WORD}", _bare),
    ("password", "</", rf"<(?:[\w.-]{{1,40}}:)?{_NAME}>(?P<v>[^<>\s]{{4,200}})</", _held),
)
_STARTS = tuple(
    (kind, starts, f"(?:{'|'.join(map(re.escape, starts.split()))}){rest}", _random)
    for kind, starts, rest in _TOKENS
)
_Rule = tuple[tuple[int, str], re.Pattern[str], _Judge]
_END, _MANY = 2, 1000
_SELDOM = "7qzJK3BCSwkbhgpu"  # in words without punctuation


_Words = list[tuple[str, _Rule]]


class _Keywords:
    """Rules by keyword, and keywords by a sign in them: most texts hold few of the signs.

    Of what is written before punctuation, the last `_END` characters are looked at together, unless
    the text has `_MANY` such places.
    """

    def __init__(self, rules: _Shapes, first: int) -> None:
        self._words: dict[str, _Words] = {}  # by sign
        self._ends: dict[str, dict[str, _Words]] = {}  # by sign, and by what stands before it
        for rank, (kind, keywords, shape, judge) in enumerate(rules, first):
            for word in keywords.split():
                self._add(word, ((rank, kind), late(shape, re.ASCII), judge))

    def _add(self, word: str, rule: _Rule) -> None:
        at = next((at for at, char in enumerate(word) if not char.isalnum()), 0)
        if at >= _END:
            self._ends.setdefault(word[at], {}).setdefault(word[at - _END : at], []).append(
                (word, rule)
            )
        else:
            sign = next(char for char in _SELDOM if char in word) if word.isalnum() else word[at]
            self._words.setdefault(sign, []).append((word, rule))

    def called(self, text: str) -> dict[_Rule, None]:
        """The rules of which a keyword occurs."""
        held = [words for sign, words in self._words.items() if sign in text]
        for sign, ends in self._ends.items():
            if not 0 < text.count(sign) <= _MANY:
                held += ends.values() if sign in text else ()
                continue
            there = {piece[-_END:] for piece in text.split(sign)}
            held += [ends[end] for end in ends.keys() & there]
        return {rule: None for words in held for word, rule in words if word in text}


_RULES, _FOLDED_RULES = _Keywords(_STARTS + _SHAPES, 0), _Keywords(_FOLDED, 100)


def _by_rules(text: str) -> Iterator[_Span]:
    lowered = text.replace("\u0130", "i").lower()  # the only letter that grows when lowered
    for searched, rules in ((text, _RULES), (lowered, _FOLDED_RULES)):
        for named, pattern, genuine in rules.called(searched):
            for found in pattern.finditer(searched):
                start, end = found.span(found.lastgroup or 0)
                if genuine(text[start:end]):
                    yield start, end, named
    yield from _assignments(text, lowered)


# -- name = value -----------------------------------------------------------------------------

_KEYS = ("access", "account", "api", "auth", "encryption", "master", "private", "signing")
_NAMED = late(
    r"(?P<key>pass(?:word|wd|phrase|code)|pass(?=[\"'`\\]{0,3}[ \t]?[:=]>?[ \t]?[\"'`\\])"
    r"|_pass(?![a-z])|-pass(?![a-z])|pwd|secret[_-]?(?:access[_-]?)?key|secret|token"
    rf"|{'|'.join(f'{word}[_-]?key' for word in _KEYS)}|credentials?|_auth(?:token)?(?![\w-]))"
    r"(?P<tail>[\w.-]{0,40}+)(?:\\{0,8}[\"'`]\]?|\*\*)?[ \t]{0,8}"
    r"(?P<sep>:[ \t]{0,4}(?!pass|pwd|secret|token)[a-z_][\w.\[\]| ]{0,40}?=(?![=~>])"
    r"|=>|:=|[!=]?={1,2}|:(?!:)|,(?=[ \t]?[\"'])|\||\((?=[\"'`\\])|(?:is|was)(?::|(?=\s)))"
    r"(?P<gap>(?:\*\*)?(?:\s|\\[nrt]|[|>]-?(?=\s)){0,20}+)",
    re.ASCII,
)
_NAME_WORDS = ("key", "pass", "token", "secret", "credential", "pwd", "_auth")  # one in each name
_BEGINNINGS = ("_pass", "-pass", *_NAME_WORDS[1:])  # with what a name begins, or as those of keys
_VALUE = late(
    r"[FfBbRrUu]{0,2}(?:\"(?P<double>(?:[^\"\\\n]|\\[^\n])*+)|'(?P<single>(?:[^'\\\n]|\\[^\n])*+)"
    r"|`(?P<back>[^`\n]*+)|\\\"(?P<once>(?:[^\"\\\n]|\\\\\\[\"\\]|\\(?!\")[^\n])*+)"
    r"|\\{1,8}(?P<mark>[\"'])(?P<more>(?:(?!(?P=mark))[^\n])*+))"
    r"|(?P<bare>[^\s\x1b\"'`,;&|<>(){}\[\]\\]{4,128}+)"
)
_REST = late(r"[^\s\x1b\"'`,;&|<>(){}\[\]\\]*+")
_ABOUT = late(  # a name that ends so is about a secret, and does not hold it
    r"(?i:age|algorithm|arn|budget|count|dir|endpoint|env|error|expir\w+|field|file|format|helper"
    r"|hint|index|label|length|limits?|manager|message|names?|path|pattern|policy|prompt|provider"
    r"|ref|required|size|state|status|store|ttl|types?|uri|url|usage|used|variable|version)\d*\Z"
)


def _assignments(text: str, lowered: str) -> Iterator[_Span]:
    done = 0
    for named in _names(lowered):
        name = text[named.start() : named.end("tail")]
        kind = _named_kind(named["key"], name) if named.end() >= done else ""
        value = _VALUE.match(text, named.end()) if kind else None
        if value and value.lastgroup and _is_value(kind, name, named, value):
            start, done = value.span(value.lastgroup)
            rest = _REST.match(text, done) if value.lastgroup == "bare" else None
            done = rest.end() if rest else done
            yield start, done, (200, kind)


def _names(lowered: str) -> Iterator[re.Match[str]]:
    """What `_NAMED.finditer` finds: it is tried only where a name may begin, which is seldom."""
    held = [word for word in _NAME_WORDS if word in lowered]
    if not held:
        return
    words = (*_BEGINNINGS, *_KEYS) if "key" in held else _BEGINNINGS
    tried, done = -1, 0
    for start in merge(*(_places(word, lowered) for word in words)):
        named = _NAMED.match(lowered, start) if start >= done and start != tried else None
        tried = start
        if named is not None:
            done = named.end()
            yield named


def _places(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _named_kind(key: str, name: str) -> str:
    """Tell what a name is the name of: `""` for a plural, another word, or what is about it."""
    tail = name[len(key) :]
    if tail[:1].isalpha() and name[len(key) - 1].islower() == tail[0].islower():
        return ""
    if _ABOUT.match(re.split(r"[_.-]|(?<=[a-z])(?=[A-Z])", tail)[-1]):
        return ""
    if "pass" in key or key == "pwd":
        return "password"
    if key.endswith("key") and "secret" not in key:
        return "api-key"
    return "token" if key == "token" else "secret"


def _is_value(kind: str, name: str, named: re.Match[str], value: re.Match[str]) -> bool:
    text = value[value.lastgroup or 0]
    if named["sep"] == "(" and named["tail"]:
        return False  # a method of the secret
    if value.lastgroup != "bare" and named["sep"] not in ",|":
        return _is_quoted_value(kind, text.rstrip("\\"))
    if value.string[value.end() : value.end() + 1] in ("(", "["):
        return False  # a call
    if kind == "password" and text.isdigit():
        return len(text) >= _SHORTEST_BARE
    if name.isupper() and named["sep"] == "=" and not named["gap"]:  # as a shell writes it
        return _held(text) and not _NUMBER.fullmatch(text) and not _CODE.fullmatch(text)
    return _bare(text) and (not named["gap"].strip(" \t") or len(text) >= _SHORTEST_BELOW)


def _is_quoted_value(kind: str, text: str) -> bool:
    if not _held(text):
        return False
    words = len(text[:_JUDGED].split())
    if words > 1:
        return kind in {"password", "secret"} and words <= _WORDS_MAX and not _PROSE.search(text)
    plain = len(text) < _SHORTEST_BARE or _NUMBER.fullmatch(text) or _SLUG.fullmatch(text)
    return kind == "password" or not plain
