"""What made-up sessions are made of: sizes, words, code and pictures, drawn from one seed.

Sizes follow the quantiles of real sessions (of pi's own public ones, lines of which were measured
by kind), and so do escapes: line ends, tabs and quotes stand in tool results as often as there.
Texts are JSON strings already, cut out of one pool of each sort that is made once: cut at spaces,
which no escape and no character of several bytes holds. That is what makes gigabytes quick.

Of the characters of real sessions 0.6 to 5.5 % are beyond ASCII, and most of these stand together:
so here, 1 to 2 % are, in a third of a pool's stretches, as raw UTF-8, which is how all four agents
write them. They are drawn from a seed of their own: sizes are what they would be without them.
"""

# ruff: noqa: RUF001 - signs and letters as people write them

from __future__ import annotations

import base64
import math
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from random import Random

POOL = 2 << 20  # bytes of one sort of text, for a corpus of that size or larger
_STEPS = 2048  # of a table of sizes

# Bytes at the quantiles 0, 10, 50, 90, 99 and 100 %, without what the line has around them.
_AT = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
_SIZES = {
    "prompt": (12, 20, 60, 330, 2300, 5800),
    "said": (25, 50, 110, 480, 3600, 22_000),
    "thought": (250, 420, 1000, 5600, 14_000, 16_000),
    "argument": (30, 60, 110, 1350, 10_000, 56_000),
    "bash": (20, 60, 330, 2100, 7000, 52_000),
    "edit": (120, 460, 780, 3300, 9500, 24_000),
    "read": (120, 590, 2600, 10_500, 95_000, 116_000),
    "write": (40, 60, 80, 100, 120, 130),
    "summary": (2800, 3600, 4300, 5600, 8000, 9000),
    "picture": (20_000, 50_000, 200_000, 800_000, 2_500_000, 4_000_000),
}
TOOLS = ("bash", "edit", "read", "write")
_OFTEN = (49, 78, 97, 100)

_COMMON = [
    "the",
    "to",
    "of",
    "and",
    "a",
    "in",
    "is",
    "it",
    "that",
    "for",
    "this",
    "with",
    "on",
    "we",
    "as",
    "be",
    "are",
    "not",
    "can",
    "you",
    "if",
    "or",
    "from",
    "but",
    "have",
    "file",
    "test",
    "function",
    "error",
    "code",
    "run",
    "add",
    "fix",
    "make",
    "change",
    "update",
    "check",
    "read",
    "write",
    "call",
    "return",
    "type",
    "value",
    "list",
    "name",
    "path",
    "line",
    "build",
    "config",
    "server",
    "client",
    "index",
    "session",
    "message",
    "parse",
    "load",
    "save",
    "cache",
    "token",
    "stream",
    "agent",
    "tool",
    "prompt",
    "model",
    "user",
    "request",
    "response",
    "handler",
    "module",
    "class",
]
_SOUNDS = [
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "qui",
    "ro",
    "su",
    "ta",
    "ve",
    "wi",
    "xo",
    "yu",
    "za",
    "bri",
    "cle",
    "dra",
    "fli",
    "gro",
]
_FORMS = (
    "const {0} = await {1}({2});",
    'import {{ {0} }} from \\"./{1}.js\\";',
    "// {0} {1} {2}",
    "}}",
    'if ({0} === \\"{1}\\") {{',
    "return this.{0}({1}, {2});",
    "{0}: {1} {2}",
    "def {0}({1}: str) -> {2}:",
)


_SPEECH, _LISTING = 500, 40  # words, lines of a stretch
_STRANGE = 1 / 3  # of the stretches have what is beyond ASCII
_OFTEN_STRANGE, _OFTEN_DRAWN = _SPEECH // 6, 0.2  # words of such a stretch; the share of its lines
_WORDS = """
    — – → ← • … ≤ × ✓ ✅ ❌ 🚀 💡 don’t it’s user’s “the” ‘token’ «session» “this”
    café naïve über größer señor año coração déjà élève façade žlutý łódź résumé
    поиск ошибка сессия индекс проверить запрос почему 検索 設定 会话 缓存 错误 修复 索引 검색 오류
"""
_DRAWN = (
    "├── {0}.ts",
    "│   ├── {0}.ts",
    "│   └── {1}.ts",
    "✓ {0} {1} {2}",
    "✗ {0} → {1}",
    "// {0} — {1}…",
    "┌──────────────┬──────────────┐",
    "│ {0} │ {1} │",
    "└──────────────┴──────────────┘",
    "────────────────────────────────",
)


class Draw:
    """Draws from one seed: the same calls give the same bytes."""

    def __init__(self, seed: int, pool: int = POOL) -> None:
        """`pool`: bytes that each sort of text is cut from."""
        self.rng = Random(seed)
        self.random = self.rng.random
        self._sizes = {kind: _table(at) for kind, at in _SIZES.items()}
        self.words = self._words()
        weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(self.words))))
        picked = self.rng.choices(self.words, cum_weights=weights, k=max(200, pool // 6))
        strange = Random(seed + 1)
        self._prose = self._sentences(_spiced(picked, strange))
        self._code = self._lines(picked, pool, strange)
        self._base64 = base64.b64encode(self.rng.randbytes(max(3000, pool * 3 // 4)))

    # -- sizes and choices -------------------------------------------------------------------

    def size(self, kind: str) -> int:
        """Bytes of one such text."""
        return self._sizes[kind][int(self.random() * _STEPS)]

    def tool(self) -> str:
        """One of TOOLS, as often as it is used."""
        return TOOLS[bisect(_OFTEN, self.random() * 100)]

    def calls(self) -> int:
        """How many tools a turn uses."""
        return min(60, int(self.rng.expovariate(1 / 6)))

    def hex(self, digits: int) -> bytes:
        """Hexadecimal digits, as ids have them."""
        return b"%0*x" % (digits, self.rng.getrandbits(4 * digits))

    def uuid(self) -> bytes:
        """A UUID of version 4."""
        told = b"%032x" % self.rng.getrandbits(128)
        return b"-".join((told[:8], told[8:12], b"4" + told[13:16], b"a" + told[17:20], told[20:]))

    # -- texts -------------------------------------------------------------------------------

    def prose(self, kind: str, more: int = 1) -> bytes:
        """What somebody says, escaped for JSON."""
        return self._cut(self._prose, more * self.size(kind))

    def filler(self, size: int) -> bytes:
        """Words of about that many bytes."""
        return self._cut(self._prose, size)

    def code(self, kind: str) -> bytes:
        """What a tool is given or gives back, escaped for JSON."""
        return self._cut(self._code, self.size(kind))

    def picture(self) -> bytes:
        """A picture in base64."""
        size = self.size("picture") & ~3
        start = int(self.random() * (len(self._base64) - 4)) & ~3
        times = 1 + (start + size) // len(self._base64)
        return (self._base64 * times)[start : start + size]

    def name(self) -> bytes:
        """A short title."""
        return " ".join(self.rng.choices(self.words[:4000], k=self.rng.randint(2, 5))).encode()

    def _cut(self, pool: bytes, size: int) -> bytes:
        start = pool.find(b" ", int(self.random() * max(1, len(pool) - size - 100))) + 1
        stop = pool.rfind(b" ", start, start + size)
        return pool[start:stop] if stop > start else pool[start : pool.find(b" ", start)]

    # -- pools -------------------------------------------------------------------------------

    def _words(self) -> list[str]:
        found = dict.fromkeys(_COMMON)
        while len(found) < 12_000:
            word = "".join(self.rng.choices(_SOUNDS, k=self.rng.randint(2, 4)))
            found[word if self.random() < 0.997 else word + "\u00e9"] = None
        return list(found)

    def _sentences(self, words: list[str]) -> bytes:
        told = list(words)
        at = 5
        while at < len(told):
            chance = self.random()
            if chance < 0.6:
                told[at] += "."
            elif chance < 0.85:
                told[at] += ","
            elif chance < 0.91:
                told[at] = f"`{told[at]}`"
            elif chance < 0.95:
                told[at] += ".\\n\\n"
            elif chance < 0.98:
                told[at] = f'\\"{told[at]}\\"'
            else:
                told[at] = f"src/{told[at]}.ts"
            at += 4 + int(self.random() * 10)
        return " ".join(told).encode()

    def _lines(self, words: list[str], size: int, strange: Random) -> bytes:
        told: list[str] = []
        held = at = 0
        drawn = 0.0
        while held < size:
            at = (at + 3) % (len(words) - 3)
            form = _FORMS[int(self.random() * len(_FORMS))]
            tabs = "\\t" * int(self.random() * 3.6)
            line = tabs + form.format(*words[at : at + 3]) + "\\n "
            held += len(line)
            if len(told) % _LISTING == 0:
                drawn = _OFTEN_DRAWN if strange.random() < _STRANGE else 0.0
            if drawn and strange.random() < drawn:
                line = strange.choice(_DRAWN).format(*words[at : at + 3]) + "\\n "
            told.append(line)
        return "".join(told).encode()


def _spiced(words: list[str], strange: Random) -> list[str]:
    """The same words, with foreign ones and signs in some stretches in the place of others."""
    told, foreign = list(words), _WORDS.split()
    for start in range(0, len(told) - _SPEECH, _SPEECH):
        if strange.random() < _STRANGE:
            for at in strange.sample(range(_SPEECH), _OFTEN_STRANGE):
                told[start + at] = strange.choice(foreign)
    return told


@dataclass
class Written:
    """One session's file, written."""

    path: str
    size: int
    lines: int
    users: int
    pictures: int  # bytes


class Clock:
    """The time within a session, in ms since the epoch, and as lines tell it."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def tick(self, ms: int) -> bytes:
        """Go on; the time as ISO-8601."""
        self.ms += ms
        return iso(self.ms)


_MINUTES: dict[int, bytes] = {}


def iso(ms: int) -> bytes:
    """ISO-8601 in UTC, with milliseconds."""
    minute, rest = divmod(ms, 60_000)
    held = _MINUTES.get(minute)
    if held is None:
        held = _MINUTES[minute] = _minute(minute)
    return b"%s:%02d.%03dZ" % (held, rest // 1000, rest % 1000)


def _minute(minute: int) -> bytes:
    days, rest = divmod(minute, 1440)
    era, day = divmod(days + 719_468, 146_097)  # civil time, without the limits of a library
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    number = month + 3 if month < 10 else month - 9
    return b"%04d-%02d-%02dT%02d:%02d" % (
        year + era * 400 + (number <= 2),
        number,
        day - (153 * month + 2) // 5 + 1,
        rest // 60,
        rest % 60,
    )


def _table(sizes: tuple[int, ...]) -> list[int]:
    """Sizes by equal shares, between the quantiles as their logarithms go."""
    found = []
    for step in range(_STEPS):
        share = (step + 0.5) / _STEPS
        at = min(bisect(_AT, share) - 1, len(_AT) - 2)
        part = (share - _AT[at]) / (_AT[at + 1] - _AT[at])
        low, high = math.log(sizes[at]), math.log(sizes[at + 1])
        found.append(int(math.exp(low + part * (high - low))))
    return found
