"""Ids and names of a reference: as plain programs hold them, and as rapidfuzz compares them.

In: the names that a catalog has. Out: figures of how long they take to be found, each beside the
plain way (`obvious.py`, WRatio over all names), and checks that both find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from asking import Asking, Plain
from lookup_corpus import Maker
from measure import Target, wall
from obvious import Held, alike, by_threes, plain_key
from rapidfuzz import fuzz, process

from indexerd.daemon.process import settle_memory
from indexerd.errors import AmbiguousError, NotFoundError
from indexerd.search.names import Known, Names
from indexerd.search.names_fuzzy import folded
from indexerd.store.catalog import Catalog

HELD, WRATIO, EVERY_NAME = "a dict, a bisect", "WRatio over all names", "a look at every name"
SOONER = 0.1  # of the time that a comparison with all names takes
RIGHT, OTHERS = 0.75, 0.04  # of names nearly given: those that find their session; another's
OUTRIGHT = {"mistyped": 0.4, "two words": 0.15}  # of them without a choice of candidates
Answer = tuple[str, list[str]]  # how a reference is meant; the session, or the candidates


def resolved(names: Names, ref: str) -> tuple[str, str | None]:
    """How a reference is meant, and which session."""
    try:
        found = names.resolve(ref, scope="all")
    except AmbiguousError:
        return "ambiguous", None
    except NotFoundError:
        return "not found", None
    return found.how, found.session_id


def guessed(names: Names, ref: str) -> Answer:
    """How a reference is meant, and the session, or those of which one may be meant."""
    try:
        found = names.resolve(ref, scope="all")
    except AmbiguousError as error:
        return "ambiguous", [one["sessionId"] for one in error.candidates]
    except NotFoundError:
        return "not found", []
    return found.how, [found.session_id]


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
        likest, guess = by_likeness(held.keys, 25), partial(guessed, names)
        told = {"promise": 2.5, "times": SOONER}
        turns = asking.latency(f"resolve: {kind}", guess, refs, likest, **told)
        asked = [*zip(refs, picked, turns.answers, strict=True)]
        intended(asking, kind, [one for one in asked if plain_key(one[0]) not in held.named])
        fuzzy(asking, kind, names, refs, by_likeness(held.keys, 40))
    completions(asking, names, held, picked)


def intended(asking: Asking, kind: str, asked: Sequence[tuple[str, Known, Answer]]) -> None:
    """Whether names that are nearly given find the session that each was made from.

    It is found outright, or is one of the candidates. Names that are exactly another's are none of
    these questions.
    """
    own = [one.session_id in found for _, one, (_, found) in asked]
    chosen = [how != "ambiguous" and bool(found) for *_, (how, found) in asked]
    both = [*zip(own, chosen, strict=True)]
    of, least = max(1, len(asked)), OUTRIGHT[kind]
    right, outright, others = (
        sum(own) / of,
        both.count((True, True)) / of,
        both.count((False, True)),
    )
    for what, ok in (
        (f"{right:.0%} find their session, {RIGHT:.0%} are due", right >= RIGHT),
        (f"{outright:.0%} find it outright, {least:.0%} are due", outright >= least),
        (f"{others} of {of} find another, {OTHERS:.0%} may", others <= OTHERS * of),
    ):
        asking.bench.check(f"resolve: {kind}: {what}", ok=ok)


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


def by_likeness(keys: list[str], most: int) -> Plain:
    """The ten names that are likest, by a comparison with each: it takes its time."""

    def all_names(ref: str) -> list[tuple[str, float, int]]:
        return process.extract(folded(ref), keys, scorer=fuzz.WRatio, limit=10)

    return Plain(WRATIO, all_names, most)


def fuzzy(
    asking: Asking,
    kind: str,
    names: Names,
    refs: list[str],
    plain: Plain,
    *,
    promise: float | None = None,
) -> None:
    """The names that are nearest, beside the likest of all: as good a best, and how much sooner."""
    turns = asking.latency(
        f"nearest: {kind}", names.nearest, refs, plain, promise=promise, times=SOONER
    )
    best = [(near, full[0][1]) for _, near, full in turns.pairs]
    good = [bool(near) and near[0][1] >= round(score / 100, 3) for near, score in best]
    share = 100 * sum(good) / len(good)
    told = {"limit": WRATIO, "floor": 100.0, "target": Target(99, most=False)}
    told["note"] = f"of {len(good)} questions"
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
    refs = [maker.mistyped(folded(maker.random.choice(rows).name)) for _ in range(100)]
    keys = [folded(one.name) for one in rows]
    settle_memory()
    kind, likest = f"mistyped, of {count} names", by_likeness(keys, 10)
    fuzzy(asking, kind, names, refs, likest, promise=15)
