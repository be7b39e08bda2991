"""Look-ups: names, rows, full text. Nothing outside a scratch directory is touched.

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
from lookup_names import many_names, names_part
from measure import Bench, wall
from obvious import said

from indexerd.daemon.process import settle_memory
from indexerd.store.catalog import Catalog, Message, SearchResult, SearchText

PARTS = 5  # in which rows are put
AT_ONCE = 400  # sessions whose messages are added with one commit
NEWEST = "it ranks at most 200 of the newest messages that match, FTS5 all"
PLAIN_FILE, FTS = "a plain SQLite file", "plain FTS5, ranked, with snippets"


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
        "common words": (common, 10, 15),
        "words beyond ASCII": (r.choices(FOREIGN, k=60), 10, None),
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
        told = {"promise": promise, "note": NEWEST if kind == "common words" else ""}
        turns = asking.latency(f"search: {kind}", catalog.search, some, plain, **told)
        asking.all(f"search: {kind}: as many as {FTS}", [enough(*one) for one in turns.pairs])
        seen = [shows(query, found) for query, found in zip(some, turns.answers, strict=True)]
        asking.all(f"search: {kind}: a hit shows what was asked", seen)
        if promise or kind == "words beyond ASCII":
            right = [spoken(texts, query, answer) for query, answer, _ in turns.pairs[:4]]
            asking.all(f"search: {kind}: as many as say it", right)
    place = "/home/user/src/project-7"
    turns = asking.latency(
        "search: common, in one project",
        partial(catalog.search, cwd=place),
        asked["common words"][0][:50],
        Plain(FTS, lambda words: bare.find_in(quoted(words), place), 5),
        note=NEWEST,
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
    long = [word for word in maker.rare[400:600] if len(word) > 7][:2]
    patterns(asking, catalog, bare, [rf"{word}\s+\w+ing" for word in long])


def enough(query: Any, answer: SearchResult, plain: Sequence[tuple[str, str]]) -> tuple[str, bool]:
    """Whether as many are found as the plain way finds sessions on its page."""
    told, least = len(answer.hits), len({session for session, _ in plain})
    return f"{query}: {told} of {least}", told >= least


def shows(query: str, answer: SearchResult) -> tuple[str, bool]:
    """Whether all that was found has a word of the query marked, or one that begins like it."""
    words = [f"«{word[:4]}".casefold() for word in query.strip('"').split()]
    told = [hit["snippet"].casefold() for hit in answer.hits]
    return query, all(any(word in one for word in words) for one in told)


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
    size = len(filled)
    parts = [filled[n * size // PARTS : (n + 1) * size // PARTS] for n in range(PARTS)]
    ready = [[(one, SearchText(text)) for one, text in part] for part in parts]
    for what, new in (("put all rows", size), ("put all rows again, unchanged", 0)):
        counts: list[int] = []
        ours, plain = [], []
        for part, own in zip(parts, ready, strict=True):
            ours.append(wall(lambda own=own, to=counts: to.append(catalog.put(own))))
            plain.append(wall(lambda part=part, to=counts: to.append(bare.put(part))))
        asking.rate(what, size, "rows/s", (ours, plain), PLAIN_FILE)
        asking.bench.check(f"{what}: {new} are new", ok=sum(counts) == 2 * new)


def add_part(
    asking: Asking,
    catalog: Catalog,
    bare: Bare,
    rows: list[dict[str, Any]],
    texts: list[list[str]],
) -> int:
    """All messages, some hundred sessions at once; how many bytes they have."""
    ours, plain, sizes = [], [], []
    for first in range(0, len(rows), AT_ONCE):
        span = range(first, min(first + AT_ONCE, len(rows)))

        items = {
            rows[n]["sessionId"]: [
                (f"{n:x}-{k:x}", "user", "", one) for k, one in enumerate(texts[n])
            ]
            for n in span
        }
        said = [(session, text) for session, own in items.items() for *_, text in own]

        def add(items: dict[str, list[Message]] = items) -> None:
            with catalog.batch():
                for session, own in items.items():
                    catalog.add_messages(session, own, mark="1 2")

        ours.append(wall(add))
        plain.append(wall(lambda said=said: bare.add(said)))
        sizes.append(sum(len(text.encode()) for _, text in said))
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
