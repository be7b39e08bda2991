"""Small functions on many words, lines and patterns: what each says of each, to be written down."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from indexerd import times
from indexerd.digests.spoken import summary_words
from indexerd.indexing import policy
from indexerd.indexing.transcript import truncate_tail
from indexerd.integrations import agent_settings, jsonc
from indexerd.models import phrases, sentences
from indexerd.models.question_words import stem, terms_of
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import clean_line, clean_text, escape_path
from indexerd.references.inject import harmless
from indexerd.references.parse import find, without_code
from indexerd.search import query
from indexerd.search.names_fuzzy import folded, plain
from indexerd.search.names_known import ring_of, without_references
from indexerd.search.names_words import has_content, is_filler, slips, stands_for
from indexerd.search.query_pattern import escaped, vetted
from indexerd.search.query_words import forms_of
from indexerd.web import token as web_token
from indexerd.web.home_address import filters_of, session_address
from indexerd.web.home_view import since_time

WORDS = tuple(
    re.findall(
        r"\S+",
        """
fix fixes fixed fixing cache caches cached caching run running stop stopped parser
parsers parse parsing test tests tested studies study studied process processes undo do
reset set connect disconnect refactor refactoring refacotr lgoin login logout v2 v3
phase2 3.1 api apis the of my session fehler fehlers tests-e2e größe groesse 東京 東京旅行 不安 安
ml ci button buttons confirmation confirm confrim authenticate authentication auth
database databse data
""",
    )
)
PATTERNS = (
    *("a", "ab+c", "a*", "a*b", "a*a", "a*a*b", "a*a*a*b", "(a+)+", "(a|aa)*", "(a|b)*", "a|b|cd"),
    *(r"\w+\s+x", r"\w+\w+x", r".*x", r".*.*x", r".*.*.*x", r"\d+\.\d+", r"\d+\w+", r"[a-c]+d"),
    *("[a-c]+b", "[^a]+a", "[^a]+b", "[^ab]*[ab]x", "(ab)?c", "(ab){2,3}", "(a{1,3}){2}", "x{5}"),
    *("(?=ab)a", "(?!ab)a", "(?>a+)b", "a++b", "a*+a", r"(a)\1", "(?i)A", "(?a)a", "(?a:a)", "a$"),
    *("^a", r"\ba+\b", "é+e", "[à-ü]+x", "[A-Z]+[0-9]*[a-z]", r"[\w-]+@[\w-]+", r"\S+\s*", r"\D+1"),
    *(
        "a{0,1000}b",
        "a{0,9}a{0,9}b",
        "(a|b|c|d)(a|b|c|d)(a|b)e",
        "x" * 250,
        "x" * 251,
        "",
        "(" * 99,
    ),
)
SECRETS = (
    "password = hunter2hunter2",
    "PASSWORD=hunter2 and more",
    "password: correct-horse-battery",
    'api_key = "sk-abcdefghij0123456789"',
    "api_key=some_function_name",
    "apiKey: getKey()",
    "API_KEY=Zm9vYmFyYmF6cXV4MTIzNDU2",
    "secret_token: 'a b c d'",
    "tokens: 12345",
    "token = 0123456789abcdef0123456789abcdef",
    "max_tokens=4096",
    "the password is: Tr0ub4dor&3",
    "Authorization: Bearer abcdefghijklmnopqrstuvwxyz012345",
    "curl -u user:passw0rd123 https://example.org",
    "https://user:passw0rd@example.org/x",
    "mysql -psecretpass db",
    "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "xoxb-123456789012-abcdefghijklmnop",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAAA\n-----END RSA PRIVATE KEY-----\nafter",
    "password_hash = sha256(x)",
    "DB_PASS=123456",
    "pwd: /home/user",
    "secret:\n  value-on-the-next-line-1234",
    '{"password": "hunter2", "user": "ana"}',
    "passwd=$PASSWORD",
    "client_secret=<your secret>",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
)
LINES = (
    "## Goal\nMake it fast.\n\n- first point\n- second point, longer\n  wrapped here\n\nThe end.",
    "I decided to use sqlite because it is there. We will not use redis!  Does it work? Yes.",
    "```py\nx = 1\n```\nAfter the code: it works now. See `a.py` and **bold** and [a link](http://x).",
    "Traceback (most recent call last):\n  File 'x', line 1\nValueError: bad thing happened here",
    "ERROR in src/app.ts:3: Cannot find name 'foo'\nnpm ERR! code 1",
    "1. One thing\n2) Another thing\n* a star\n> quoted words\n| a | b |\n|---|---|",
    "please fix ABC-123 and #42 and issue 7, then GH-9; UTF-8 is not one, PR #1234567 neither",
    "this is a line that an editor has wrapped, as it was long\nenough for that",
    "e.g. version 3.1 of foo.bar vs. the other. Dr. Who said so... and so on",
    "東京に行きたい。京都も行きたい\uff01いつ\uff1f",
    "Refactor the confirm button of the checkout page into a component, and keep the loading state",
    "can you please help me to find out why the login fails after the upgrade?",
    "x" * 300 + " and the rest of the words that follow it; here. " * 8,
    "- [x] done\n- [ ] to do: write tests\nNext steps: deploy it.",
    "",
)
REFERENCES = (
    "see @@confirm-button and @@'a b' and @@\"a name\" please",
    "@@abc123: why did we?",
    "@@name? what",
    "mail a@@b.c, `@@code`, ```\n@@block\n```, @@last.",
    "@@.. and @@../up and @@^2 and @@ alone @@@three",
    "@@name[why sqlite?] and @@x(y)",
    f"@@{'n' * 200} @@{'m' * 201}",
    f"@@name[{'q' * 2000}] and @@other[{'p' * 2001}]",
    " ".join(f"@@n{n}" for n in range(40)),
    "@@.._up @@../../../../../../../../../../../../far",
    "(@@in-brackets), @@\u00fcmlaut/part and @@UPPER_case-1.2",
)
ADDRESSES = (
    "",
    "q=cache&agent=pi&since=7d&project=/w&before=x",
    "q=%C3%A4+b&archived=1&subagents=1&state=active&since=never&agent=" + "x" * 300,
    'q=agent:pi since:today project:shop "agent:x" re:a b&unknown=1',
)
TIMES = (
    *(
        "2026-01-02T03:04:05.678Z",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05+02:00",
        "2026-01-02",
    ),
    *("", "no time", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-02T03:04:05.9999Z"),
)


def tables() -> Iterator[tuple[str, Any]]:
    """All of them."""
    yield "patterns", {one[:40]: _tried(lambda one=one: _pattern(one)) for one in PATTERNS}
    yield "secrets", {one: [redact(one).text, redact(one).counts] for one in SECRETS}
    pairs = itertools.product(WORDS, repeat=2)
    yield "stands for", [f"{a} {b}" for a, b in pairs if stands_for(a, b, alone=False, firm=False)]
    pairs = itertools.product(WORDS, repeat=2)
    yield "stands alone", [f"{a} {b}" for a, b in pairs if stands_for(a, b, alone=True, firm=False)]
    pairs = itertools.product(WORDS, repeat=2)
    yield "stands firm", [f"{a} {b}" for a, b in pairs if stands_for(a, b, alone=False, firm=True)]
    pairs = itertools.combinations(WORDS, 2)
    yield "slips", [f"{a} {b}" for a, b in pairs if slips(a, b, 2)]
    yield (
        "words",
        {
            one: [
                is_filler(one),
                has_content([one]),
                stem(one),
                forms_of(one),
                folded(one.title()),
                plain(one),
            ]
            for one in WORDS
        },
    )
    yield "lines", {one[:60]: _line(one) for one in LINES}
    yield "references", {one: [find(one), without_code(one)] for one in REFERENCES}
    yield "names", [[without_references(one), folded(one)] for one in (*REFERENCES, *LINES)]
    yield (
        "rings",
        [ring_of("/w/a/b", one) for one in ("/w/a/b", "/w/a", "/w/a/b/c", "/w/x", "/", "")],
    )
    yield "addresses", {one[:60]: _filters(one) for one in ADDRESSES}
    yield "links", [session_address(one) for one in ("s1", "a/b", "..", "ä ü", "a?b#c")]
    yield "times", {one: times.iso_ms(one) for one in TIMES}
    yield "since", [since_time(one, 1_795_176_000.0, _zone) for one in ("today", "7d", "30d", "x")]
    yield "back-off", [policy.back_off(failures) for failures in range(12)]
    yield "tokens", _tokens()
    yield "settings", dict(_settings())
    yield "json", {one[:40]: _tried(lambda one=one: _changed(one)) for one in DOCUMENTS}


def _pattern(text: str) -> Any:
    made, literally = vetted(text), escaped(text)
    return [made.window, made.literal, literally.regex.pattern[:40], literally.window]


def _line(text: str) -> Any:
    return [
        phrases.sentences(text),
        phrases.sentences(text, headings=False),
        phrases.headline(text),
        phrases.error_line(text),
        phrases.topic_runs(text),
        phrases.tickets([text], 5),
        phrases.tidy(text),
        phrases.plain(text),
        [phrases.clip(text, most) for most in (10, 40)],
        phrases.dense(text),
        sentences.unpadded(text),
        [tuple(one) for one in terms_of(text)],
        [clean_line(text, 50), clean_text(text, 50), escape_path(text)[:80], harmless(text)[:80]],
        [query.segment(text)[:80], query.fold(text)[:80], query.shown(text)[:80]],
        [truncate_tail(text, most, lines) for most, lines in ((20, 99), (60, 2), (999, 3))],
        [summary_words(text, agent)[:80] for agent in ("claude", "pi")],
    ]


def _filters(text: str) -> list[Any]:
    found = filters_of(dict(_pairs(text)))
    return [found, found.kept(), found.narrowed, found.address(), found.address(q="")]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for one in text.split("&"):
        key, _, value = one.partition("=")
        yield key, value


def _zone(_then: float) -> int:
    return 7200


def _tokens() -> list[Any]:
    key, origin = b"k" * 32, "http://127.0.0.1:7117"
    token = web_token.make_token(key, b"n" * 16, origin, 1e9)
    cookie = web_token.make_cookie(key, 7117, 1e9)
    proof = web_token.make_proof(key, "c" * 32, origin)
    late = (0, 59, 61, 299, 301, 3600, 86_400, 40 * 86_400)
    return [
        token,
        cookie,
        proof,
        [web_token.nonce_of(token, key, origin, 1e9 + one) is not None for one in late],
        [web_token.good_cookie(cookie, key, 7117, 1e9 + one) for one in late],
        [web_token.make_proof(key, "c" * size, origin) is not None for size in (15, 16, 128, 129)],
    ]


GROUP = {"hooks": [{"type": "command", "command": "indexerd hook claude", "timeout": 9}]}
DOCUMENTS = (
    "{}",
    '{"a": 1}',
    '{\n  "a": [1, 2],\n  "b": {"c": "d"}\n}\n',
    '{\n\t"a": 1, // told\n\t/* more */ "b": [\n\t\t1,\n\t\t2,\n\t],\n}\n',
    '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "x"}]}]}}',
    '{\r\n    "mcpServers": {\r\n        "other": {"command": "y"}\r\n    }\r\n}\r\n',
    '{"mcpServers": {"indexerd": {"command": "/old/indexerd", "args": ["mcp"]}}}',
    "[1]",
    '{"a": }',
    '{"a": 1} x',
    '{"a": 1, "a": 2}',
    '{"hooks": []}',
    "",
)


def _settings() -> Iterator[tuple[str, Any]]:
    for agent, text in itertools.product(("claude", "codex"), DOCUMENTS):
        given = _tried(lambda one=(agent, text): _hooked(*one))
        yield f"{agent} {text[:40]}", given


def _hooked(agent: str, text: str) -> list[Any]:
    put = agent_settings.with_hooks(agent, {"SessionStart": GROUP, "Stop": GROUP}, text)
    server = agent_settings.with_server({"command": "/bin/indexerd", "args": ["mcp"]}, text)
    return [
        put,
        agent_settings.without_hooks(agent, put),
        server,
        agent_settings.without_server(server),
    ]


def _changed(text: str) -> list[Any]:
    root = jsonc.parse(text)
    first = root.children[0].node if root.children else root
    more = jsonc.insert(text, root, {"x": [1]}, "new" if text.startswith("{") else None)
    return [
        more,
        jsonc.replace(text, first, ["other", {"y": None}]),
        [jsonc.remove(text, [(root, at)]) for at in range(len(root.children))],
        jsonc.document(json.loads("[1, {}]")),
    ]


def _tried(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except ValueError as error:
        return ["ValueError", str(error)]
