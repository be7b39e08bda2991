"""Made-up names, messages and rows: names as people give them, words as often as in a language.

The same for the same seed.
"""

from __future__ import annotations

import random
import uuid
from itertools import accumulate
from typing import Any

from measure import ROOT  # puts the checkout on the path, which the import below needs

from indexerd.core.times import iso

assert ROOT.is_dir()

SPEECH = 1_500_000  # words that texts are cut from


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
        return " ".join(words).capitalize()

    def text(self, size: int) -> str:
        count = max(3, size // 6)
        at = self.random.randrange(SPEECH - count)
        return " ".join(self.speech[at : at + count])

    def message(self) -> str:
        return self.text(int(min(20_000, self.random.lognormvariate(5.4, 1.1))))

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
