"""Made-up names, messages and rows: names as people give them, words as often as in a language.

The same for the same seed. Of the characters of real sessions 0.6 to 5.5 % are beyond ASCII, and
most of these stand together: so here, 2 % are, in a third of the stretches that texts are cut from.
"""

from __future__ import annotations

import random
import uuid
from itertools import accumulate
from typing import Any

from measure import ROOT  # puts the checkout on the path, which the import below needs

from indexerd.times import iso

assert ROOT.is_dir()

SPEECH = 1_500_000  # words that texts are cut from
STRETCH, SPICED, STRANGE = 500, 0.33, 100  # words; of these with strange ones; so many in each


def _words(text: str) -> list[str]:
    return text.split()


VERBS = _words(
    "fix add refactor investigate implement debug review migrate document improve optimize remove"
    " update design explore plan write test rename upgrade"
)
NOUNS = _words(
    "login button auth token session parser cache database migration index search settings"
    " dashboard export import report invoice payment webhook queue worker scheduler logging metrics"
    " config CLI API endpoint schema validation form modal tooltip sidebar theme onboarding email"
    " template notification upload download image thumbnail chart table filter pagination"
    " permission role user profile password oauth docker deployment pipeline release changelog docs"
    " benchmark memory leak race deadlock timeout retry backoff error crash windows macos linux"
    " path unicode encoding locale currency rounding date timezone calendar"
)
COMMON = _words(
    "the to of and a in is it that for this with on we as be are not can you if or from"
)
SYLLABLES = _words("ba ce di fo gu ha je ki lo mu na pe qui ro sa te vi wo xa yu zen tor lin mar")
SIGNS = _words(
    "— – → ← • … ≤ × ✓ ✅ ❌ 🚀 💡 don’t it’s user’s “the” ‘token’ «session» “this"  # noqa: RUF001 - as written
)
ACCENTED = _words("café naïve über größe señor año coração déjà élève façade žlutý łódź résumé")
CYRILLIC = _words("поиск ошибка сессия индекс проверить запрос почему исправить")
UNSPACED = _words("検索 設定 会话 缓存 错误 修复 索引 검색 오류")
FOREIGN = [*ACCENTED, *CYRILLIC, *UNSPACED]


class Maker:
    """Made-up names and texts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        own = {"".join(self.random.choices(SYLLABLES, k=n)) for n in (2, 3, 4) for _ in range(9000)}
        self.rare = sorted(own)
        self.random.shuffle(self.rare)
        words = [*COMMON, *NOUNS, *VERBS, *self.rare]
        weights = list(accumulate(1 / (n + 2.7) for n in range(len(words))))
        self.speech = self.random.choices(words, cum_weights=weights, k=SPEECH)
        for start in range(0, SPEECH, STRETCH):
            if self.random.random() < SPICED:
                self._spice(start)

    def _spice(self, start: int) -> None:
        """Put words and signs beyond ASCII into a stretch of the speech."""
        r = self.random
        strange = r.choices(SIGNS, k=STRANGE // 2) + r.choices(FOREIGN, k=STRANGE - STRANGE // 2)
        for at, word in zip(r.sample(range(STRETCH), STRANGE), strange, strict=True):
            self.speech[start + at] = word

    def name(self) -> str:
        r = self.random
        words = [r.choice(VERBS)]
        words += [
            r.choice(NOUNS) if r.random() < 0.7 else r.choice(self.rare[:6000])
            for _ in range(r.choice((1, 2, 2, 3, 3, 4)))
        ]
        if r.random() < 0.3:
            words += [r.choice(("for", "in", "with")), r.choice(NOUNS), r.choice(self.rare[:6000])]
        if r.random() < 0.15:
            words.append(str(r.randint(1, 9999)))
        if r.random() < 0.04:
            words.append(r.choice(FOREIGN))
        return " ".join(words).capitalize()

    def text(self, size: int) -> str:
        count = max(3, size // 6)
        at = self.random.randrange(SPEECH - count)
        return " ".join(self.speech[at : at + count])

    def message(self) -> str:
        return self.text(int(min(20_000, self.random.lognormvariate(5.0, 1.1))))

    def mistyped(self, text: str) -> str:
        letters = list(text)
        for _ in range(self.random.choice((1, 1, 2))):
            at = self.random.randrange(len(letters))
            chance = self.random.random()
            if chance < 0.3:
                letters[at] = self.random.choice("abcdefghijklmnop")
            elif chance < 0.6 and len(letters) > 3:
                del letters[at]
            else:
                letters.insert(at, self.random.choice("aeiou"))
        return "".join(letters)


def row(maker: Maker, n: int) -> dict[str, Any]:
    name = maker.name()
    return {
        "sessionId": str(uuid.UUID(int=maker.random.getrandbits(128))),
        "agent": maker.random.choice(("pi", "claude", "codex")),
        "sessionFile": f"/home/user/.pi/agent/sessions/p{n % 400}/{n}.jsonl",
        "cwd": f"/home/user/src/project-{n % 400}",
        "name": name,
        "nameSource": "meta",
        "description": maker.text(250),
        "tags": maker.random.sample(NOUNS, 5),
        "createdAt": iso(1_700_000_000 + n * 900),
        "modifiedAt": iso(1_700_000_000 + n * 900 + 500),
        "messageCount": 22,
        "userMessageCount": 9,
        "newUserMessages": 0,
        "firstUserMessage": maker.text(150),
        "archived": False,
        "gone": False,
        "indexed": True,
        "state": "idle",
        "filesRead": [
            f"/home/user/src/project-{n % 400}/src/{w}.py" for w in maker.rare[n : n + 8]
        ],
        "filesModified": [],
        "toolsUsed": {"read": 8, "bash": 3},
        "resume": "pi --session x",
    }
