"""Look-ups: names, rows, full text. nothing outside a scratch directory is touched.

    python bench/bench_lookup.py [--sessions 10000] [--messages 218000] [--queries 200] [--seed 1]

Every figure stands beside its limit, measured in the same run, in turns: rows and texts beside a
plain SQLite file of the same (`bare.py`), ids and names beside a dict, a bisect and a look at every
name (`obvious.py`), names that are nearly given beside rapidfuzz's WRatio over all names, patterns
beside `re` over all texts. Both answer the same questions, and their answers are compared.
All data is made up here, the same for the same seed: names as people give them, messages of
words with the frequencies of a natural language. Latencies are p50 / p99 in milliseconds, of the
clock and of this thread's own time: on a busy machine only the second says much.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from asking import Asking, Plain
from bare import Bare, quoted
from lookup_corpus import COMMON, FOREIGN, NOUNS, Maker, row
from measure import Bench, Target, wall
from obvious import Held, alike, by_threes, said
from rapidfuzz import fuzz, process

from indexerd.core.names import Known, Names
from indexerd.core.names_fuzzy import folded
from indexerd.errors import AmbiguousError, NotFoundError
from indexerd.io.catalog import Catalog, SearchResult, SearchText
from indexerd.service.process import settle_memory

PARTS = 5  # in which rows are put
AT_ONCE = 400  # sessions whose messages are added with one commit
PLAIN_FILE, HELD, WRATIO = "a plain SQLite file", "a dict, a bisect", "WRatio over all names"
EVERY_NAME, FTS = "a look at every name", "plain FTS5, ranked, with snippets"


# -- names ---------------------------------------------------------------------------------------


def resolved(names: Names, ref: str) -> tuple[str, str | None]:
    """How a reference is meant, and which session."""
    try:
        found = names.resolve(ref, scope="all")
    except AmbiguousError:
        return "ambiguous", None
    except NotFoundError:
        return "not found", None
    return found.how, found.session_id


def names_part(asking: Asking, maker: Maker, catalog: Catalog, queries: int) -> None:
    rows = catalog.known()
    names, held = Names.load(rows), Held(rows)
    preparation(asking, maker, rows, held)
    names.warm()
    settle_memory()
    picked = [maker.random.choice(rows) for _ in range(5 * queries)]
    plain = Plain(HELD, held.resolve)
    kinds = {
        "id": [one.session_id for one in picked],
        "id prefix": [one.session_id[:12] for one in picked],
        "exact name": [one.name for one in picked],
    }
    for kind, refs in kinds.items():
        turns = asking.latency(f"resolve: {kind}", partial(resolved, names), refs, plain, promise=1)
        same = [(ref, ours == theirs) for ref, ours, theirs in turns.pairs]
        asking.all(f"resolve: {kind}: as in a dict", same)
        right = [*zip(turns.answers, picked, strict=True)]
        meant = [(one, found[1] in (one.session_id, None)) for found, one in right]
        asking.all(f"resolve: {kind}: its session", meant)
    picked = picked[:queries]
    near = {
        "mistyped": [maker.mistyped(folded(one.name)) for one in picked],
        "two words": [" ".join(folded(one.name).split()[:2]) for one in picked],
    }
    for kind, refs in near.items():
        fuzzy(asking, kind, names, held.keys, refs, most=50, promise=2.5)
    completions(asking, names, held, picked)


def preparation(asking: Asking, maker: Maker, rows: Sequence[Known], held: Held) -> None:
    """What the first fuzzy look-up does once: beside the plain index of all names for likeness."""
    ours, plain = [], []
    for _ in range(3):
        ours.append(wall(Names.load(rows).warm))
        plain.append(wall(lambda: by_threes(held.keys)))
    what = "the first fuzzy look-up's preparation"
    asking.once(what, ours, plain, "each name's letters, by threes, in a dict")
    threes = by_threes(held.keys)
    some = maker.random.sample(range(len(rows)), 20)
    found = sum(n in alike(threes, maker.mistyped(held.keys[n]), 10) for n in some)
    asking.bench.check("the dict finds names that are mistyped", ok=found >= 15)


def fuzzy(
    asking: Asking,
    kind: str,
    names: Names,
    keys: list[str],
    refs: list[str],
    *,
    most: int,
    promise: float,
) -> None:
    """Names that are nearly given, beside WRatio over all: as good a best, and how much sooner.

    `most`: how often WRatio is asked, which takes its time; `promise`: what the p99 is to be.
    """

    def all_names(ref: str) -> list[tuple[str, float, int]]:
        return process.extract(folded(ref), keys, scorer=fuzz.WRatio, limit=10)

    plain = Plain(WRATIO, all_names, most)
    turns = asking.latency(
        f"resolve: {kind}", partial(resolved, names), refs, plain, promise=promise, times=0.1
    )
    best = [(names.nearest(ref, 1), full[0][1]) for ref, _, full in turns.pairs]
    good = [bool(near) and near[0][1] >= round(score / 100, 3) for near, score in best]
    share = 100 * sum(good) / len(good)
    told = {"limit": WRATIO, "floor": 100.0, "target": Target(99, most=False)}
    asking.bench.add(f"nearest: {kind}, as good a best", share, "%", **told)
    asking.bench.check(f"nine of ten nearest names are as good: {kind}", ok=share >= 90)


def completions(asking: Asking, names: Names, held: Held, picked: list[Known]) -> None:
    """What beginnings are completed to."""

    def offered(one: Known) -> list[str]:
        items = names.complete(one.name[:4], cwd=one.cwd, now=1.8e9)
        return [item["sessionId"] for item in items]

    def newest(_: Known) -> list[str]:
        return [item["sessionId"] for item in names.complete("", now=1.8e9)]

    plain = Plain(EVERY_NAME, lambda one: held.begun(one.name[:4], one.cwd), 100)
    every = Plain(EVERY_NAME, lambda _: held.newest())
    for kind, ask, asked, way in (
        ("complete", offered, picked, plain),
        ("complete, all, empty", newest, picked[:100], every),
    ):
        turns = asking.latency(kind, ask, asked, way)
        same = [(one.name, ours == theirs) for one, ours, theirs in turns.pairs]
        asking.all(f"{kind}: as by {way.name}", same)


def many_names(asking: Asking, maker: Maker, count: int) -> None:
    """Names that are nearly given, among ten times as many."""
    made = [(f"{n:012x}", maker.name()) for n in range(count)]
    rows = [Known(key, name, (name,), "", 0, named=True, live=True) for key, name in made]
    names = Names.load(rows)
    names.warm()
    refs = [maker.mistyped(folded(maker.random.choice(rows).name)) for _ in range(200)]
    keys = [folded(one.name) for one in rows]
    settle_memory()
    fuzzy(asking, f"mistyped, of {count} names", names, keys, refs, most=5, promise=15)


# -- rows ----------------------------------------------------------------------------------------


def rows_part(
    asking: Asking, maker: Maker, catalog: Catalog, bare: Bare, rows: list[dict[str, Any]]
) -> None:
    newest = rows[::-1]
    some = maker.random.choices(rows, k=1000)
    get = Plain(PLAIN_FILE + ", parsed", bare.get)
    turns = asking.latency("get", catalog.get, [one["sessionId"] for one in some], get, promise=1)
    held = zip(some, turns.pairs, strict=True)
    same = [(one["name"], ours == theirs == one) for one, (_, ours, theirs) in held]
    asking.all("a row is what was put", same)
    before = min(1000, len(rows) // 2)
    cursor, last = catalog.list(limit=before).next_cursor, newest[before - 1]
    after = (last["modifiedAt"], last["sessionId"])
    places = [f"/home/user/src/project-{n}" for n in range(200)]

    for kind, ours, plain, wanted in (
        ("first page of all", lambda _: catalog.list(), lambda _: bare.newest(), newest),
        ("first page of a project", lambda cwd: catalog.list(cwd=cwd), bare.of, None),
        (
            "a page in the middle",
            lambda _: catalog.list(cursor=cursor),
            lambda _: bare.after(*after),
            newest[before:],
        ),
    ):
        turns = asking.latency(f"list, {kind}", ours, places, Plain(PLAIN_FILE, plain))
        right = []
        for cwd, page, texts in turns.pairs[::10]:
            due = [row for row in newest if row["cwd"] == cwd] if wanted is None else wanted
            right.append((cwd, as_wanted(page.texts, texts, due[:50])))
        asking.all(f"list, {kind}: the newest, as in {PLAIN_FILE}", right)


def as_wanted(page: Sequence[str], plain: Sequence[str], wanted: list[dict[str, Any]]) -> bool:
    """Whether two pages in JSON are the rows that they should be."""
    return [*map(json.loads, page)] == [*map(json.loads, plain)] == wanted


# -- words ---------------------------------------------------------------------------------------


def queries_of(maker: Maker, queries: int) -> dict[str, tuple[list[str], int, float | None]]:
    """Of each kind: what is asked, how often of the plain way, and the promise for its p99."""
    r = maker.random
    rare = r.choices(maker.rare[500:12_000], k=queries)
    two = [f"{r.choice(NOUNS)} {r.choice(maker.rare[:400])}" for _ in range(queries)]
    common = r.choices([*COMMON[:12], *NOUNS[:30], "the token", "in the"], k=queries)
    phrases = [f'"{r.choice(COMMON)} {r.choice(NOUNS)}"' for _ in range(100)]
    return {
        "rare word": (rare, 100, 15),
        "two words": (two, 50, 15),
        "common words": (common, 15, 15),
        "words beyond ASCII": (r.choices(FOREIGN, k=60), 20, None),
        "phrase": (phrases, 25, None),
        "beginning of a word": ([word[:5] for word in rare[:100]], 25, None),
    }


def search_part(
    asking: Asking,
    maker: Maker,
    catalog: Catalog,
    bare: Bare,
    held: tuple[list[list[str]], int],
) -> None:
    texts, queries = held
    written = {"phrase": str, "beginning of a word": lambda word: f"{word}*"}
    asked = queries_of(maker, queries)
    for kind, (some, most, promise) in asked.items():
        write = written.get(kind, quoted)
        plain = Plain(FTS, lambda query, write=write: bare.find(write(query)), most)
        turns = asking.latency(f"search: {kind}", catalog.search, some, plain, promise=promise)
        asking.all(f"search: {kind}: as many as {FTS}", [enough(*one) for one in turns.pairs])
        if promise or kind == "words beyond ASCII":
            right = [spoken(texts, query, answer) for query, answer, _ in turns.pairs[:4]]
            asking.all(f"search: {kind}: as many as say it", right)
    place = "/home/user/src/project-7"
    turns = asking.latency(
        "search: common, in one project",
        partial(catalog.search, cwd=place),
        asked["common words"][0][:50],
        Plain(FTS, lambda words: bare.find_in(quoted(words), place), 5),
    )
    asking.all("search: in one project: as many", [enough(*one) for one in turns.pairs])
    rare = asked["rare word"][0]
    bare.learn()
    likeness = Plain("plain FTS5, then all words by likeness", bare.find_nearly)
    for kind, some in {
        "mistyped word": [slipped(maker, word) for word in rare[:50]],
        "nothing has it": [f"{word}qqq" for word in rare[:25]],
    }.items():
        turns = asking.latency(f"search: {kind}", catalog.search, some, likeness)
        some_found = [
            (query, bool(answer.hits) or not plain) for query, answer, plain in turns.pairs
        ]
        asking.all(f"search: {kind}: what is nearly so", some_found)
    long = [word for word in rare if len(word) > 7][:2]
    patterns(asking, catalog, bare, [rf"{word}\s+\w+ing" for word in long])


def enough(query: Any, answer: SearchResult, plain: Sequence[tuple[str, str]]) -> tuple[str, bool]:
    """Whether as many are found as the plain way finds sessions on its page."""
    told, least = len(answer.hits), len({session for session, _ in plain})
    return f"{query}: {told} of {least}", told >= least


def spoken(texts: list[list[str]], query: str, answer: SearchResult) -> tuple[str, bool]:
    """Whether as many are found as say it, by a look at every message."""
    told, least = len(answer.hits), said(texts, query)
    return f"{query}: {told} of {least}", told >= least


def slipped(maker: Maker, word: str) -> str:
    """A word with a letter too few behind its third."""
    at = maker.random.randrange(3, len(word))
    return word[:at] + word[at + 1 :]


def patterns(asking: Asking, catalog: Catalog, bare: Bare, asked: Sequence[str]) -> None:
    """Patterns that all texts are looked through for, however long that takes."""
    ours, plain = [], []
    for pattern in asked:
        found: list[SearchResult] = []
        look = partial(catalog.search, f"re:{pattern}", patience=600)
        ours.append(wall(lambda look=look, found=found: found.append(look())))
        fitting: list[str] = []
        plain.append(wall(lambda pattern=pattern, to=fitting: to.extend(bare.fitting(pattern))))
        sessions = {hit["sessionId"] for hit in found[0].hits}
        same = sessions == {*fitting} if len(fitting) < 20 else len(sessions) == 20
        asking.bench.check(f"{pattern}: {len(sessions)} of {len(fitting)}", ok=same)
    asking.once("search: re:, to the end", ours, plain, "re over all texts of " + PLAIN_FILE)


# -- what all of it is asked of ------------------------------------------------------------------


def build_part(
    asking: Asking, maker: Maker, directory: Path, sessions: int, messages: int
) -> tuple[Catalog, Bare, list[dict[str, Any]], list[list[str]]]:
    rows = [row(maker, n) for n in range(sessions)]
    summaries = [maker.text(700) for _ in rows]
    each = max(1, messages // sessions)
    texts = [[maker.message() for _ in range(each)] for _ in rows]
    catalog, bare = Catalog.open(directory / "catalog.sqlite"), Bare(directory / "bare.sqlite")
    filled = [*zip(rows, summaries, strict=True)]
    settle_memory()  # as the daemon does: the texts made up here are not its to look through
    put_part(asking, catalog, bare, filled)
    size = add_part(asking, catalog, bare, rows, texts)
    asking.latency(
        "add one message",
        lambda n: catalog.add_messages(
            rows[n]["sessionId"], [(f"new-{n}", "user", "", texts[n][0])]
        ),
        range(200),
        Plain(PLAIN_FILE, lambda n: bare.add([(rows[n]["sessionId"], texts[n][0])])),
    )
    files = sum(one.stat().st_size for one in directory.glob("catalog.sqlite*"))
    told = {"limit": "the messages' text", "floor": size / 1e6}
    told["note"] = f"{PLAIN_FILE}: {bare.size() / 1e6:.0f} MB"
    asking.bench.add("the catalog's file", files / 1e6, "MB", **told)
    return catalog, bare, rows, texts


def put_part(
    asking: Asking, catalog: Catalog, bare: Bare, filled: list[tuple[dict[str, Any], str]]
) -> None:
    """Rows with their texts, and the same again."""
    each = len(filled) // PARTS
    parts = [filled[first : first + each] for first in range(0, each * PARTS, each)]
    ready = [[(one, SearchText(text)) for one, text in part] for part in parts]
    for what, new in (("put all rows", each), ("put all rows again, unchanged", 0)):
        counts: list[int] = []
        ours, plain = [], []
        for part, own in zip(parts, ready, strict=True):
            ours.append(wall(lambda own=own, to=counts: to.append(catalog.put(own))))
            plain.append(wall(lambda part=part, to=counts: to.append(bare.put(part))))
        asking.rate(what, len(filled), "rows/s", (ours, plain), PLAIN_FILE)
        asking.bench.check(f"{what}: {new} are new", ok={*counts} == {new})


def add_part(
    asking: Asking,
    catalog: Catalog,
    bare: Bare,
    rows: list[dict[str, Any]],
    texts: list[list[str]],
) -> int:
    """All messages, some hundred sessions at once; how many characters."""
    ours, plain, sizes = [], [], []
    for first in range(0, len(rows), AT_ONCE):
        span = range(first, min(first + AT_ONCE, len(rows)))

        def add(span: range = span) -> None:
            with catalog.batch():
                for n in span:
                    items = [(f"{n:x}-{k:x}", "user", "", text) for k, text in enumerate(texts[n])]
                    catalog.add_messages(rows[n]["sessionId"], items, mark=str(n))

        ours.append(wall(add))
        said = [(rows[n]["sessionId"], text) for n in span for text in texts[n]]
        plain.append(wall(lambda said=said: bare.add(said)))
        sizes.append(sum(len(text) for _, text in said))
    what, size = f"add {sum(map(len, texts))} messages", sum(sizes)
    asking.rate(what, size / 1e6, "MB/s", (ours, plain), PLAIN_FILE)
    return size


def main() -> int:
    bench = Bench("lookup", "Names, rows and full text: 10,000 sessions, 218,000 messages")
    bench.options.add_argument("--sessions", type=int, default=10_000)
    bench.options.add_argument("--messages", type=int, default=218_000)
    bench.options.add_argument("--queries", type=int, default=200)
    bench.options.add_argument("--seed", type=int, default=1)
    asked = bench.asked
    sessions, messages, queries = asked.sessions, asked.messages, asked.queries
    if bench.smoke:
        sessions, messages, queries = 500, 5000, 25
    maker, asking = Maker(asked.seed), Asking(bench)
    with tempfile.TemporaryDirectory(prefix="bench-lookup-") as scratch:
        catalog, bare, rows, texts = build_part(asking, maker, Path(scratch), sessions, messages)
        rows_part(asking, maker, catalog, bare, rows)
        names_part(asking, maker, catalog, queries)
        many_names(asking, maker, 10 * sessions)
        search_part(asking, maker, catalog, bare, (texts, queries))
        bare.close()
        catalog.close()
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
