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
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookup_corpus import COMMON, NOUNS, Maker, row
from measure import Bench, Target, percentile, wall
from obvious import begun, said
from rapidfuzz import fuzz, process

from indexerd.core.names import Known, Names
from indexerd.core.names_fuzzy import folded
from indexerd.errors import AmbiguousError, NotFoundError
from indexerd.io.catalog import Catalog, SearchText

PROMISED = ("rare word", "two words", "common words")


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


def known(n: int, name: str) -> Known:
    """A session with a name."""
    return Known(f"{n:012x}", name, (name,), "", n, named=True, live=True)


def many_names(asking: Asking, maker: Maker, count: int) -> None:
    """Names that are nearly given, among ten times as many."""
    rows = [known(n, maker.name()) for n in range(count)]
    names = Names.load(rows)
    names.warm()
    refs = [maker.mistyped(folded(maker.random.choice(rows).name)) for _ in range(200)]
    kind = f"mistyped, of {count} names"
    near, _ = asking.latency(f"nearest: {kind}", lambda ref: names.nearest(ref, 1), refs, 15)
    keys = [folded(one.name) for one in rows]
    some = 10  # WRatio takes half a second for each
    full, _ = asking.latency(
        f"  limit, WRatio over all names: {kind}",
        lambda ref: process.extractOne(folded(ref), keys, scorer=fuzz.WRatio),
        refs[:some],
    )
    same = sum(
        bool(n) and n[0][1] >= round(b[1] / 100, 3) for n, b in zip(near, full, strict=False)
    )
    asking.bench.check("nine of ten nearest names are as good", ok=same >= 0.9 * some)


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
        "beginning of a word": [word[:5] for word in rare[:200]],
        "nothing has it": [f"{word}qqq" for word in rare[:50]],
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
        many_names(asking, maker, 10 * sessions)
        search_part(asking, maker, catalog, texts, queries)
        catalog.close()
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
