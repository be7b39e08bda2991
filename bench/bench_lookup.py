"""Look-ups: names, rows, full text. nothing outside a scratch directory is touched.

    python bench/bench_lookup.py [--sessions 10000] [--messages 218000] [--queries 500] [--seed 1]

Every figure stands beside its limit, measured in the same run: fuzzy names against rapidfuzz's
WRatio over all names, building against nothing but the same texts through a bare FTS5 table.
All data is made up here, the same for the same seed: names as people give them, messages of
words with the frequencies of a natural language. Latencies are p50 / p99 in milliseconds, of the
clock and of this thread's own time: on a busy machine only the second says much.
"""

from __future__ import annotations

import gc
import random
import sqlite3
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from measure import Bench, Target, percentile, wall
from obvious import begun, said
from rapidfuzz import fuzz, process

from indexerd.core.names import Names
from indexerd.core.names_fuzzy import folded
from indexerd.core.times import iso
from indexerd.errors import AmbiguousError, NotFoundError
from indexerd.io.catalog import Catalog, SearchText

SPEECH = 1_500_000  # words that texts are cut from
PROMISED = ("rare word", "two words", "common words")


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


@dataclass
class Asking:
    """Questions are asked and timed through this, and the figures kept."""

    bench: Bench

    def latency(
        self,
        label: str,
        ask: Callable[[Any], Any],
        queries: Sequence[Any],
        promise: float | None = None,
    ) -> tuple[list[Any], float]:
        """The answers, and the p99 in milliseconds; `promise` is the most that it may be."""
        taken, used, answers = [], [], []
        for query in queries:
            start, used_before = time.perf_counter(), time.thread_time()
            answers.append(ask(query))
            used.append((time.thread_time() - used_before) * 1e3)
            taken.append((time.perf_counter() - start) * 1e3)
        self.bench.add(f"{label}, p50", percentile(taken, 0.5), "ms")
        worst = percentile(taken, 0.99)
        note = f"of the processor {percentile(used, 0.99):.3g} ms"
        target = Target(promise) if promise else None
        self.bench.add(f"{label}, p99", worst, "ms", target=target, note=note)
        return answers, sum(taken)

    def rate(self, label: str, act: Callable[[], Any], amount: float, unit: str) -> float:
        """How much a second."""
        return self.bench.add(label, amount / wall(act), unit).value


def names_part(asking: Asking, maker: Maker, catalog: Catalog, queries: int) -> None:
    rows = catalog.known()
    names = Names.load(rows)
    asking.bench.add("the first fuzzy look-up's preparation", wall(names.warm) * 1e3, "ms")
    keys = [folded(one.name) for one in rows]
    picked = [maker.random.choice(rows) for _ in range(queries)]

    def resolve(ref: str) -> tuple[str, str | None]:
        try:
            found = names.resolve(ref, scope="all")
        except AmbiguousError:
            return "ambiguous", None
        except NotFoundError:
            return "not found", None
        return found.how, found.session_id

    found, _ = asking.latency("resolve: id", resolve, [one.session_id for one in picked], 1)
    asking.bench.check("an id is its session", ok=found == [("id", o.session_id) for o in picked])
    by_prefix, _ = asking.latency(
        "resolve: id prefix", resolve, [one.session_id[:12] for one in picked], 1
    )
    asking.bench.check(
        "a prefix is its session", ok=by_prefix == [("prefix", one) for _, one in found]
    )
    by_name, _ = asking.latency("resolve: exact name", resolve, [one.name for one in picked], 1)
    often, wanted = Counter(keys), [("name", one.session_id) for one in picked]
    several = ("ambiguous", None)
    wanted = [
        several if often[folded(one.name)] > 1 else own
        for one, own in zip(picked, wanted, strict=True)
    ]
    asking.bench.check("a name is its session, or of several", ok=by_name == wanted)
    kinds = {
        "mistyped": [maker.mistyped(folded(one.name)) for one in picked],
        "two words": [" ".join(folded(one.name).split()[:2]) for one in picked],
    }
    for kind, refs in kinds.items():
        asking.latency(f"resolve: {kind}", resolve, refs, 2.5)
        fuzzy(asking, kind, names, keys, refs)
    offered, _ = asking.latency(
        "complete", lambda one: names.complete(one.name[:4], cwd=one.cwd, now=1.8e9), picked
    )
    for one, items in zip(picked[:20], offered, strict=False):
        same = [item["sessionId"] for item in items] == begun(rows, keys, one)
        asking.bench.check(f"what begins with {one.name[:4]!r}", ok=same)
    asking.latency("complete, all, empty", lambda _: names.complete("", now=1.8e9), picked[:100])


def fuzzy(asking: Asking, kind: str, names: Names, keys: list[str], refs: list[str]) -> None:
    """The nearest name, beside WRatio over all names: as good a best, and how much sooner."""
    some = refs[:60]  # WRatio takes 50 ms for each
    near, took = asking.latency(f"nearest: {kind}", lambda ref: names.nearest(ref, 1), some)
    full, took_all = asking.latency(
        f"  limit, WRatio over all names: {kind}",
        lambda ref: process.extract(folded(ref), keys, scorer=fuzz.WRatio, limit=5),
        some,
    )
    best = [round(one[0][1] / 100, 3) for one in full]
    same = sum(1 for n, b in zip(near, best, strict=True) if n and n[0][1] >= b)
    asking.bench.add(
        f"nearest: {kind}, all together",
        took,
        "ms",
        limit="WRatio over all names",
        floor=took_all,
        ratio=took / took_all,
        target=Target(0.1, of="ratio"),
    )
    share = 100 * same / len(some)
    asking.bench.add(f"nearest: {kind}, as good a best", share, "%", target=Target(99, most=False))
    asking.bench.check("nine of ten nearest names are as good", ok=share >= 90)


def rows_part(
    asking: Asking, maker: Maker, catalog: Catalog, rows: list[dict[str, Any]], queries: int
) -> None:
    newest = rows[::-1]
    some = maker.random.choices(rows, k=queries)
    held, _ = asking.latency("get", catalog.get, [one["sessionId"] for one in some], 1)
    asking.bench.check("a row is what was put", ok=held == some)
    pages, _ = asking.latency("list, first page of all", lambda _: catalog.list(), some[:200])
    right = all(list(page.rows) == newest[:50] for page in pages)
    asking.bench.check("a page has the newest", ok=right)
    places = [f"/home/user/src/project-{n}" for n in range(200)]
    pages, _ = asking.latency(
        "list, first page of a project", lambda cwd: catalog.list(cwd=cwd), places
    )
    for cwd, page in zip(places[:20], pages, strict=False):
        own = [row for row in newest if row["cwd"] == cwd][:50]
        asking.bench.check(f"a page of {cwd} has its newest", ok=list(page.rows) == own)
    before = min(1000, len(rows) // 2)
    cursor = catalog.list(limit=before).next_cursor
    pages, _ = asking.latency(
        "list, a page in the middle", lambda _: catalog.list(cursor=cursor), some[:200]
    )
    right = all(list(page.rows) == newest[before : before + 50] for page in pages)
    asking.bench.check("a page goes on where the one before ended", ok=right)


def search_part(
    asking: Asking, maker: Maker, catalog: Catalog, texts: list[list[str]], queries: int
) -> None:
    r = maker.random
    rare = r.choices(maker.rare[500:12_000], k=queries)
    asked = {
        "rare word": rare,
        "two words": [f"{r.choice(NOUNS)} {r.choice(maker.rare[:400])}" for _ in range(queries)],
        "common words": r.choices([*COMMON[:12], *NOUNS[:30], "the token", "in the"], k=queries),
        "phrase": [f'"{r.choice(COMMON)} {r.choice(NOUNS)}"' for _ in range(200)],
        "beginning of a word": [word[:5] for word in rare],
        "nothing has it": [f"{word}qqq" for word in rare[:100]],
    }
    for kind, some in asked.items():
        promise = 15 if kind in PROMISED else None
        answers, _ = asking.latency(f"search: {kind}", catalog.search, some, promise)
        found = kind == "nothing has it" or any(one.hits for one in answers)
        asking.bench.check(f"search: {kind}: something is found", ok=found)
        if kind in PROMISED:
            for query, answer in [*zip(some, answers, strict=True)][:10]:
                told, least = len(answer.hits), said(texts, query)
                asking.bench.check(f"{query}: {told} of {least}", ok=told >= min(20, least))
    asking.latency(
        "search: common, in one project",
        lambda word: catalog.search(word, cwd="/home/user/src/project-7"),
        asked["common words"][:100],
    )
    asking.latency("search: re:", catalog.search, [rf"re:\b{word}\s+\w+ing" for word in rare[:5]])


def bare(path: Path, texts: Sequence[str]) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE VIRTUAL TABLE f USING fts5 (text)")
    db.execute("BEGIN")
    db.executemany("INSERT INTO f VALUES (?)", ((text,) for text in texts))
    db.execute("COMMIT")
    db.close()


def build_part(
    asking: Asking, maker: Maker, directory: Path, sessions: int, messages: int
) -> tuple[Catalog, list[dict[str, Any]], list[list[str]]]:
    rows = [row(maker, n) for n in range(sessions)]
    summaries = [maker.text(700) for _ in rows]
    each = max(1, messages // sessions)
    texts = [[maker.message() for _ in range(each)] for _ in rows]
    size = sum(len(text) for one in texts for text in one)
    catalog = Catalog.open(directory / "catalog.sqlite")
    filled = [(one, SearchText(text)) for one, text in zip(rows, summaries, strict=True)]
    asking.rate("put all rows", lambda: catalog.put(filled), sessions, "rows/s")
    asking.rate("put all rows again, unchanged", lambda: catalog.put(filled), sessions, "rows/s")

    def add_all() -> None:
        for first in range(0, sessions, 400):
            with catalog.batch():
                for n in range(first, min(first + 400, sessions)):
                    items = [(f"{n:x}-{k:x}", "user", "", text) for k, text in enumerate(texts[n])]
                    catalog.add_messages(rows[n]["sessionId"], items, mark=str(n))

    ours = wall(add_all)
    least = wall(lambda: bare(directory / "bare.sqlite", [text for one in texts for text in one]))
    asking.bench.add(
        f"add {each * sessions} messages",
        size / 1e6 / ours,
        "MB/s",
        limit="a bare FTS5 table",
        floor=size / 1e6 / least,
        ratio=least / ours,
    )
    asking.latency(
        "add one message",
        lambda n: catalog.add_messages(
            rows[n]["sessionId"], [(f"new-{n}", "user", "", texts[n][0])]
        ),
        range(200),
    )
    files = sum(one.stat().st_size for one in directory.glob("catalog.sqlite*"))
    asking.bench.add(
        "the catalog's file",
        files / 1e6,
        "MB",
        limit="the messages' text",
        floor=size / 1e6,
        ratio=files / size,
    )
    return catalog, rows, texts


def main() -> int:
    bench = Bench("lookup", "Names, rows and full text: 10,000 sessions, 218,000 messages")
    bench.options.add_argument("--sessions", type=int, default=10_000)
    bench.options.add_argument("--messages", type=int, default=218_000)
    bench.options.add_argument("--queries", type=int, default=500)
    bench.options.add_argument("--seed", type=int, default=1)
    asked = bench.asked
    sessions, messages, queries = asked.sessions, asked.messages, asked.queries
    if bench.smoke:
        sessions, messages, queries = 500, 5000, 100
    maker, asking = Maker(asked.seed), Asking(bench)
    with tempfile.TemporaryDirectory(prefix="bench-lookup-") as scratch:
        catalog, rows, texts = build_part(asking, maker, Path(scratch), sessions, messages)
        gc.collect()
        gc.freeze()  # as the daemon does: the texts made up here are not its to look through
        rows_part(asking, maker, catalog, rows, queries)
        names_part(asking, maker, catalog, queries)
        search_part(asking, maker, catalog, texts, queries)
        catalog.close()
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
