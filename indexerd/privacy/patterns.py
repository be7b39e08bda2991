r"""Patterns of secrets: tokens by their prefix, passwords by the text around them.

A rule is a kind, keywords of which one must occur, a pattern whose group `v` is the secret (without
that group, the whole match is), and a check of the match. So that no input makes redaction slow, a
pattern begins with a literal, the rest is bounded or possessive, and nothing must follow an
unbounded run. Specific rules come first: of overlapping matches, the first gives the kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, AnyStr, cast

Check = Callable[[str], bool]
Rule = tuple[str, str, str, Check]  # kind, keywords, pattern, check
MARKER = r"\[redacted:[a-z0-9-]+\]"


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._arguments = pattern, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._arguments), name)
        setattr(self, name, method)
        return method


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Make a constant pattern that is compiled on first use: compiling all takes 0.12 s."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


def compile_re2(pattern: str, flags: str, *, never_nl: bool = False) -> Any:
    """Compile a pattern with RE2, which is linear; ValueError with the reason if it is invalid."""
    import re2  # noqa: PLC0415 - 13 ms, which most commands do not need

    options = re2.Options()
    options.log_errors, options.never_nl = False, never_nl
    try:
        return re2.compile(f"(?{flags}){pattern}", options)
    except re2.error as bad:
        why = bad.args[0].decode("utf-8", "replace").replace(f"(?{flags})", "")
        raise ValueError(why) from None


@lru_cache(256)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern from the settings; it is matched against each line by itself."""
    try:
        compiled = compile_re2(pattern, "m", never_nl=True)
    except ValueError as bad:
        raise ValueError(f"is not an RE2 expression: {bad}") from None
    if compiled.search("") is not None:
        raise ValueError("matches the empty text")
    return compiled


_SHORTEST, _SHORTEST_BARE = 4, 6  # characters, quoted and in running text
_SHORTEST_BELOW = 8  # on the line after its name
_JUDGED = 100  # characters of a value that are checked
_WORDS_MAX = 6  # of a pass phrase

_REFERENCE = lazy_pattern(  # a placeholder for a secret, or its type
    r"""(?ix) \$[({].* | \$[a-z_]+ | \$(?-i:[A-Z0-9_]+) | %[a-z_]+% | %\(?[a-z_]*\)?s | \{.*\}
    | <.* | .*(?:\.\.\.|…) | [.*•-]+ | x{3,} | (?:your|change|insert|example|placeholder)[\s_-]?.*
    | (?:process\.env|os\.environ|env|secrets|settings|config|self|this|args)\b[.\[(].*
    | pass(?:word|wd|phrase) | secret | token | api[_-]?key | bearer | basic | credentials?
    | str(?:ing)? | text | bytes | bool(?:ean)? | number | any | object | null | none | nil
    | undefined | true | false | required | optional | empty | unknown | hidden | invalid
    | u?int\d+ | float\d+ | (?:base|sha-?|md|utf-?|aes-?|[hrep]s|oauth|argon|x)\d+(?:[-_\s].*)?
    | [a-z][a-z0-9+.-]*://.* | (?:~|\.{1,2})?/(?-i:[a-z_.][a-z0-9_.-]*|Users|Library)(?:/.*)?"""
)
_CODE = lazy_pattern(r"(?i)[a-z_]\w*(?:(?:\.|->|::)[a-z_]\w*)+|\w+_(?:token|secret|password|key)")
_NUMBER = lazy_pattern(
    r"[v~^<>=+-]*\d[\d._,:eExXT/+-]*(?:[a-zA-Z%]{0,3}|-[a-z]+)|(?:0x|#)[0-9a-fA-F]{1,8}"
)
_SLUG = lazy_pattern(r"[A-Za-z]{1,11}|[A-Za-z]+(?:[-_.][A-Za-z]+)+")
_ODD = lazy_pattern(r"[0-9!@#$%^*+~](?:(?<=[0-9])|(?<=[\w.-].)(?=[\w.-]))")
_PROSE = lazy_pattern(
    r"(?i)[.?!:]$|\b(?:the|an?|is|are|was|your|my|to|must|please|enter|and|or|of|for|not|with)\b"
)


def _mixed(value: str) -> bool:
    return re.search(r"[0-9]", value) is not None and re.search(r"[A-Za-z]", value) is not None


def _random(value: str) -> bool:
    return _mixed(value) or re.search(r"[A-Za-z0-9]{20}", value) is not None


def _base64(value: str) -> bool:
    return re.search(r"[a-z][A-Z]|[0-9=]", value) is not None and value.lower() != value


def _literal(value: str) -> bool:
    """Return whether a value is literal: not a reference, type, path or earlier marker."""
    value = re.sub(MARKER, "", value[:_JUDGED]).strip()
    return len(value) >= _SHORTEST and not _REFERENCE.fullmatch(value)


def _opaque(value: str) -> bool:
    """Return whether a bare value in running text looks unlike anything that a person writes."""
    value = value[:_JUDGED].rstrip(".,:")
    if len(value) < _SHORTEST_BARE or not _ODD.search(value):
        return False
    return not (_NUMBER.fullmatch(value) or _CODE.fullmatch(value)) and _literal(value)


def _credential(value: str) -> bool:
    """Return whether the text after `Authorization:` and its scheme is a credential."""
    return _literal(value) and (_random(value) or _base64(value))


# Passwords on command lines: the meaning of a flag depends on the program.
WORD = r"(?P<v>[^\s\x1b\"'\\]{4,}+)"
_ARGS = r"(?:(?!&&|\\n)[^\n|;]){0,200}?[ \t]"  # between a program and its flag
_PROGRAM = r"(?:(?<![\w.-])|(?<=\\[nrt]))"  # the start of a word, perhaps after an escaped newline
_S, _B = r"[ \t]{1,8}", r"[ \t]{0,8}"
_OPEN = r"\\?[\"']?"  # a quote, perhaps escaped
_LOGIN = r"(?:docker|podman|nerdctl|buildah|skopeo|oras|helm registry|az(?: acr)?)"
_FLAGS = (  # keywords, program, flag
    (
        "mysql mariadb",
        r"(?:mysql|mariadb)(?:dump|admin|import|show|sh|check|-[a-z]{2,9})?",
        "-p|--password=",
    ),
    ("mongo", "mongo(?:sh|dump|restore|export|import)?", rf"-p{_B}|--password[= ]"),
    ("ldap", "ldap(?:search|add|modify|delete|passwd|whoami)", f"-w{_B}"),
    ("sqlcmd mosquitto_", "(?:sqlcmd|mosquitto_[a-z]{3,5})", f"-P{_B}"),
    ("zip", "(?:un)?zip", f"-P{_B}"),
    ("7z", "7za?", "-p"),
    ("smbclient", "smbclient", rf"(?:-U{_B}|--user[= ]){_OPEN}[^\s%]{{1,99}}%"),
)
COMMANDS = (
    *(
        (words, rf"{_PROGRAM}{program}\b{_ARGS}(?:{flag}){_OPEN}{WORD}")
        for words, program, flag in _FLAGS
    ),
    (" login", rf"{_LOGIN} login\b{_ARGS}-p[ =]?{_OPEN}{WORD}"),
    ("-cli", rf"(?:redis|valkey|keydb)-cli\b{_ARGS}-a{_S}{_OPEN}{WORD}"),
    ("-pass", rf"-pass(?:in|out|wd)?[ =]{_OPEN}pass:{WORD}"),
    (
        "htpasswd",
        rf"{_PROGRAM}htpasswd{_S}-\w{{0,9}}b\w{{0,9}}{_S}\S{{1,200}}{_S}\S{{1,99}}{_S}{WORD}",
    ),
    ("sshpass", rf"sshpass +-p *{_OPEN}{WORD}"),
    ("curl wget", rf"\s(?:-[uU]|--user)[ =]{_OPEN}[^\s:\"'/]{{1,99}}:{WORD}"),
)

_TOKENS = (  # kind, prefixes, pattern of the rest
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
    ("wandb-key", "wandb_v1_", r"\w{24,}+"),
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
_GAP = r"(?:\s|\\[nrt]){1,8}+"  # white space, perhaps JSON-escaped
_USER = r"[^\s/?:@\[\"'<>`\\]"
_TO_HOST = r"(?P<v>[^\s/?\"'<>`\\]{1,512})@"
_NAME = r"(?:[a-z0-9]{1,20}[-_]){0,3}(?:pass(?:word|wd|phrase)?|token|secret|api[-_]?key)"
_COOKIE = r"(?P<v>[\w.-]{1,64}=[^\s\x1b\"'\\,\[]{12,}+)"
_Q = r"[\"'\\]{0,4}"  # quotes, perhaps escaped
_CRED = r"(?P<v>[^\s\x1b\"'\\,;<>{}$\[\]]{6,}+)"
RULES: tuple[Rule, ...] = (
    *(
        (kind, starts, f"(?:{'|'.join(map(re.escape, starts.split()))}){rest}", _random)
        for kind, starts, rest in _TOKENS
    ),
    ("openai-key", "sk-", _LEFT.format("sk-") + r"[\w-]{20,}+", _mixed),
    (
        "openai-key",
        "_sk-",
        r"_(?P<v>sk-(?:(?:proj|svcacct|admin|or-v1)-[\w-]{20,}+|\w{32,}+))",
        _mixed,
    ),
    ("jwt", "eyJ", _LEFT.format("eyJ") + r"[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){0,3}", bool),
    ("vendor-token", ":AA", r":AA(?<=\d:AA)[\w-]{30,}+", bool),  # Telegram
    ("vendor-token", ".", r"\.(?<=[0-9a-f]{32}\.)(?P<v>[A-Za-z0-9]{16})(?![\w.])", _mixed),  # z.ai
    ("url-password", r":// :\/\/", rf":\\?/\\?/{_USER}{{0,256}}+:{_TO_HOST}", _literal),
    ("url-password", "://", rf"://(?P<v>{_USER}{{20,256}}+)@", _opaque),
    *(("password", words, shape, _literal) for words, shape in COMMANDS),
)
_AUTH = rf"authorization{_Q}[ \t]{{0,4}}[:=](?:{_GAP})?f?{_Q}"
_SAID = r"value[ \t:=]{0,3}(?:is )?[`\"'](?P<v>[a-z0-9+/=_-]{24,}+)"  # of a variable, in prose
_NETRC = rf"machine{_GAP}[^\s\\]{{1,200}}{_GAP}login{_GAP}[^\s\\]{{1,200}}{_GAP}password{_GAP}"
FOLDED_RULES: tuple[Rule, ...] = (  # for lower-cased text
    ("authorization", "authorization", rf"{_AUTH}(?:[a-z]{{3,9}}{_GAP})?{_CRED}", _credential),
    ("authorization", "bearer", rf"bearer{_GAP}(?P<v>[a-z0-9._~+/=-]{{16,}}+)", _opaque),
    ("authorization", "basic ", r"basic (?P<v>[a-z0-9+/]{12,}+={0,2})", _base64),
    ("cookie", "cookie", rf"cookie{_Q}: {{0,4}}{_Q}{_COOKIE}", _mixed),
    ("signature", "sig", r"[?&;][a-z-]{0,20}?sig(?:nature)?=(?P<v>[a-z0-9%+/=_-]{20,}+)", bool),
    ("password", "machine", _NETRC + WORD, _literal),
    ("password", "--", rf"--{_NAME}\s{{1,4}}[\"']?{WORD}", _opaque),
    ("secret", "value", _SAID, _opaque),
    ("password", "</", rf"<(?:[\w.-]{{1,40}}:)?{_NAME}>(?P<v>[^<>\s]{{4,200}})</", _literal),
)

_KEYS = ("access", "account", "api", "auth", "encryption", "master", "private", "signing")
_NAMED = lazy_pattern(
    r"(?P<key>pass(?:word|wd|phrase|code)|pass(?=[\"'`\\]{0,3}[ \t]?[:=]>?[ \t]?[\"'`\\])"
    r"|_pass(?![a-z])|-pass(?![a-z])|pwd|secret[_-]?(?:access[_-]?)?key|secret|token"
    rf"|{'|'.join(f'{word}[_-]?key' for word in _KEYS)}|credentials?|_auth(?:token)?(?![\w-]))"
    r"(?P<tail>[\w.-]{0,40}+)(?:\\{0,8}[\"'`]\]?|\*\*)?[ \t]{0,8}"
    r"(?P<sep>:[ \t]{0,4}(?!pass|pwd|secret|token)[a-z_][\w.\[\]| ]{0,40}?=(?![=~>])"
    r"|=>|:=|[!=]?={1,2}|:(?!:)|,(?=[ \t]?[\"'])|\||\((?=[\"'`\\])|(?:is|was)(?::|(?=\s)))"
    r"(?P<gap>(?:\*\*)?(?:\s|\\[nrt]|[|>]-?(?=\s)){0,20}+)",
    re.ASCII,
)
_VALUE = lazy_pattern(
    r"[FfBbRrUu]{0,2}(?:\"(?P<double>(?:[^\"\\\n]|\\[^\n])*+)|'(?P<single>(?:[^'\\\n]|\\[^\n])*+)"
    r"|`(?P<back>[^`\n]*+)|\\\"(?P<once>(?:[^\"\\\n]|\\\\\\[\"\\]|\\(?!\")[^\n])*+)"
    r"|\\{1,8}(?P<mark>[\"'])(?P<more>(?:(?!(?P=mark))[^\n])*+))"
    r"|(?P<bare>[^\s\x1b\"'`,;&|<>(){}\[\]\\]{4,128}+)"
)
_REST_OF_VALUE = lazy_pattern(r"[^\s\x1b\"'`,;&|<>(){}\[\]\\]*+")
_ABOUT = lazy_pattern(  # endings of names that describe a secret but do not contain it
    r"(?i:age|algorithm|arn|budget|count|dir|endpoint|env|error|expir\w+|field|file|format|helper"
    r"|hint|index|label|length|limits?|manager|message|names?|path|pattern|policy|prompt|provider"
    r"|ref|required|size|state|status|store|ttl|types?|uri|url|usage|used|variable|version)\d*\Z"
)


def assignments(text: str, lowered: str) -> Iterator[tuple[int, int, str]]:
    """Find values that are assigned to names of secrets: start, end, kind."""
    done = 0
    for named in _NAMED.finditer(lowered):
        name = text[named.start() : named.end("tail")]
        kind = _kind_of_name(named["key"], name) if named.end() >= done else ""
        value = _VALUE.match(text, named.end()) if kind else None
        if value and value.lastgroup and _is_value(kind, name, named, value):
            start, done = value.span(value.lastgroup)
            rest = _REST_OF_VALUE.match(text, done) if value.lastgroup == "bare" else None
            done = rest.end() if rest else done
            yield start, done, kind


def _kind_of_name(key: str, name: str) -> str:
    """Return the kind of secret that a name is for; "" for a plural or a name like _ABOUT's."""
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
    """Return whether a name's value is a secret, not a reference, call or number."""
    text = value[value.lastgroup or 0]
    if named["sep"] == "(" and named["tail"]:
        return False  # a method of the secret
    if value.lastgroup != "bare" and named["sep"] not in ",|":
        return _is_quoted_value(kind, text.rstrip("\\"))
    if value.string[value.end() : value.end() + 1] in ("(", "["):
        return False  # a call
    if kind == "password" and text.isdigit():
        return len(text) >= _SHORTEST_BARE
    if name.isupper() and named["sep"] == "=" and not named["gap"]:  # a shell's assignment
        return _literal(text) and not _NUMBER.fullmatch(text) and not _CODE.fullmatch(text)
    return _opaque(text) and (not named["gap"].strip(" \t") or len(text) >= _SHORTEST_BELOW)


def _is_quoted_value(kind: str, text: str) -> bool:
    if not _literal(text):
        return False
    words = len(text[:_JUDGED].split())
    if words > 1:
        return kind in {"password", "secret"} and words <= _WORDS_MAX and not _PROSE.search(text)
    plain = len(text) < _SHORTEST_BARE or _NUMBER.fullmatch(text) or _SLUG.fullmatch(text)
    return kind == "password" or not plain
