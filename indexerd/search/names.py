"""Which session a reference means: an index of ids and names, held in memory.

In: what is known of each session (`Known`, from catalog rows), one by one or all at once. Out:
one `Match`, or NotFoundError, or AmbiguousError with candidates; never a guess.

The order (S0.49): exact id, id prefix that only one session of all has, exact name, fuzzy name.
Names are compared in one form, NFKC, lower case, words joined by a space, so
`confirm-button-refactor` is "Confirm button refactor"; where two names differ in signs only, the
one written as in the reference wins, and a "C++" is no "C#" (names_known). Two sessions of the
same name are ambiguous unless exactly one of them is live (neither gone, archived, nor a
sub-agent's). Sessions that are not live do resolve.

With a cwd and the scope "project", three rings are asked for names, the next only where the one
before has nothing that fits: sessions in cwd and below; then those in directories above it (an
agent started at the root of a repository); then all others (S0.68). An exact id fits anywhere, and
an exact name anywhere stands before a fuzzy one nearby.

A fuzzy name is taken if only one session's names are meant by the reference (`Judge`); of several,
one that is nearly the whole reference and clearly nearer than the next. Names that are only like
it are never taken: they are the candidates of the error. Completions follow the same rings, and
leave out sessions that are not live.

A reference of the form of a whole id is an id and nothing else: where no session has it, none is
meant, whatever sessions are called that speak of it. Who is about to change something does not
want a fuzzy name: with `fuzzy=False` it is the candidate of the error (S4.26).

A session that asks is told what else is meant, not itself: `exclude` is passed over by all but
its exact id. References inside names are no part of what a session answers to (names_known).
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from indexerd.errors import AmbiguousError, AskError, NotFoundError
from indexerd.privacy.patterns import lazy_pattern
from indexerd.search.names_complete import candidate, item, nearest_of
from indexerd.search.names_fuzzy import Near, Nearness, folded
from indexerd.search.names_known import PREFIX_MIN, RINGS, Known, checked, drop, known, ring_of
from indexerd.search.names_recent import Recent

__all__ = ["Known", "Match", "Names", "Scope", "known"]

CANDIDATES_MAX = 10
_NEARLY, _CLEARLY = 90.0, 10.0  # of 100: one of several is meant

# Ids as the agents make them. Those that a user of pi chose look like names; a commit is no id.
_WHOLE_ID = lazy_pattern(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|[0-9a-f]{32}"
    r"|agent-(?=[a-f]*[0-9])[0-9a-f]{8,}"
    r"|ses_(?=[a-z]*[0-9])[0-9a-z]{16,}",
    re.IGNORECASE,
)
Scope = Literal["project", "all"]
How = Literal["id", "prefix", "name", "fuzzy"]


class Match(NamedTuple):
    """The session meant. `score` (0 to 1) is there for fuzzy names only."""

    session_id: str
    how: How
    score: float | None = None


class Names:
    """The index. Not for several threads at once."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._slots: list[Known | None] = []
        self._ids: dict[str, list[int]] = {}  # lower case
        self._sorted: list[str] = []
        self._exact: dict[str, list[int]] = {}
        self._near = Nearness()
        self._recent = Recent()

    @classmethod
    def load(cls, rows: Iterable[Known]) -> Names:
        """Build the index of many sessions at once."""
        names = cls()
        for row in rows:
            names._add(row)
        names._sorted = sorted(names._ids)
        return names

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))

    def get(self, session_id: str) -> Known | None:
        """What is held of a session."""
        slot = self._slot(session_id)
        return None if slot is None else self._slots[slot]

    def put(self, row: Known) -> None:
        """Add a session, or take over what changed in it."""
        slot = self._slot(row.session_id)
        held = None if slot is None else self._slots[slot]
        if slot is not None and held is not None:
            if held.aliases == row.aliases:
                self._slots[slot] = row
                self._recent.moved(slot, held.modified, row.modified)
                return
            self.forget(row.session_id)
        lower = row.session_id.lower()
        if lower not in self._ids:
            insort(self._sorted, lower)
        self._add(row)

    def forget(self, session_id: str) -> None:
        """Drop a session; one that is not there is no error."""
        slot = self._slot(session_id)
        held = None if slot is None else self._slots[slot]
        if slot is None or held is None:
            return
        self._slots[slot] = None
        self._recent.moved(slot, held.modified, None)
        lower = session_id.lower()
        drop(self._ids, lower, slot)
        if lower not in self._ids:
            del self._sorted[bisect_left(self._sorted, lower)]
        for key in held.folds():
            drop(self._exact, key, slot)
        if len(self._slots) > 2 * len(self._sorted) + CANDIDATES_MAX:
            self._rebuild()

    def _rebuild(self) -> None:
        held = [row for row in self._slots if row is not None]
        self._clear()
        for row in held:
            self._add(row)
        self._sorted = sorted(self._ids)

    def _add(self, row: Known) -> None:
        slot = len(self._slots)
        self._slots.append(row)
        self._recent.moved(slot, None, row.modified)
        lower = row.session_id.lower()
        self._ids.setdefault(row.session_id if lower == row.session_id else lower, []).append(slot)
        for key in row.folds():
            self._exact.setdefault(key, []).append(slot)
            self._near.add(key, slot)

    def _slot(self, session_id: str) -> int | None:
        for slot in self._ids.get(session_id.lower(), ()):
            row = self._slots[slot]
            if row is not None and row.session_id == session_id:
                return slot
        return None

    def warm(self, names: int | None = None) -> bool:
        """Make `names` more names, or words, ready for fuzzy look-ups; True when all are.

        The first fuzzy look-up does what is left: some 50 ms for 10,000 names.
        """
        return self._near.warm(names)

    @property
    def cold(self) -> bool:
        """Whether much is not ready for fuzzy look-ups."""
        return self._near.cold

    def resolve(
        self,
        ref: str,
        *,
        cwd: str | None = None,
        scope: Scope = "project",
        exclude: str | None = None,
        fuzzy: bool = True,
    ) -> Match:
        """Find the one session that is meant; `exclude`, an id, is found by that id only.

        Raises UsageError (no reference at all), NotFoundError, AmbiguousError.
        """
        ref = checked(ref)
        here = (cwd or None) if scope == "project" else None
        asking = None if exclude is None else self._slot(exclude)
        if (match := self._exactly(ref, here, asking)) is not None:
            return match
        found, score = self._fuzzy(ref, here, asking)
        if not fuzzy:
            raise self._ambiguous([(found, score)], here, only_like=True)
        return self._match(found, "fuzzy", score)

    def is_fuzzy(self, ref: str, exclude: str | None = None) -> bool:
        """Whether `resolve` has to look for names that are only like a reference."""
        asking = None if exclude is None else self._slot(exclude)
        try:
            return self._exactly(checked(ref), None, asking) is None
        except AskError:
            return False

    def _exactly(self, ref: str, here: str | None, asking: int | None) -> Match | None:
        """The session that has this id, beginning of an id, or name; None: a fuzzy name, maybe."""
        by_id = self._by_id(ref)
        if len(by_id) == 1:
            return self._match(by_id[0], "id")
        prefixed = self._by_prefix(ref)  # in the whole store: an id means the same everywhere
        if len(prefixed) == 1 and prefixed[0] != asking:
            return self._match(prefixed[0], "prefix")
        is_id = _WHOLE_ID.fullmatch(ref) is not None
        same = [] if is_id else self._by_name(ref, here, asking)
        if same:
            return self._match(self._one_of(same), "name")
        several = by_id or prefixed
        if len(several) > 1:
            raise self._ambiguous([(slot, None) for slot in several], here, asking)
        if is_id:
            raise NotFoundError("no session has this id")
        return None

    def _match(self, slot: int, how: How, score: float | None = None) -> Match:
        return Match(self._row(slot).session_id, how, score)

    def _row(self, slot: int) -> Known:
        row = self._slots[slot]
        if row is None:
            raise NotFoundError("the session was forgotten meanwhile")
        return row

    def _by_id(self, ref: str) -> list[int]:
        slots = self._ids.get(ref.lower(), [])
        return [slot for slot in slots if self._row(slot).session_id == ref] or slots

    def _by_prefix(self, ref: str, least: int = PREFIX_MIN) -> list[int]:
        if len(ref) < least:
            return []
        lower, found = ref.lower(), []
        for at in range(bisect_left(self._sorted, lower), len(self._sorted)):
            if not self._sorted[at].startswith(lower):
                break
            found += self._ids[self._sorted[at]]
        return found

    def _by_name(self, ref: str, here: str | None, asking: int | None) -> list[int]:
        key = folded(ref)
        slots = [slot for slot in self._exact.get(key, ()) if slot != asking]
        if not slots:
            return slots
        as_written = [slot for slot in slots if self._row(slot).is_written(ref)]
        if as_written:
            return self._nearest_ring(as_written, here)
        slots = [slot for slot in slots if self._row(slot).has_signs(ref, key)]
        if len({frozenset(self._row(slot).signs(key)) for slot in slots}) > 1:
            raise self._ambiguous([(slot, None) for slot in slots], here)
        return self._nearest_ring(slots, here)

    def _nearest_ring(self, slots: list[int], here: str | None) -> list[int]:
        """Of some sessions those of the nearest ring."""
        if here is None or not slots:
            return slots
        rings = [ring_of(here, self._row(slot).cwd) for slot in slots]
        nearest = min(rings)
        return [slot for slot, ring in zip(slots, rings, strict=True) if ring == nearest]

    def _one_of(self, slots: Sequence[int]) -> int:
        """The only one, or the only live one."""
        if len(slots) > 1:
            live = [slot for slot in slots if self._row(slot).live]
            if len(live) != 1:
                raise self._ambiguous([(slot, None) for slot in slots])
            return live[0]
        return slots[0]

    def _ambiguous(
        self,
        found: Sequence[tuple[int, float | None]],
        here: str | None = None,
        asking: int | None = None,
        *,
        only_like: bool = False,
    ) -> AmbiguousError:
        """The error; of the candidates the nearest come first, the session that asks last."""

        def order(one: tuple[int, float | None]) -> tuple[bool, int, float, int, int]:
            slot, score = one
            row = self._row(slot)
            ring = 0 if here is None else ring_of(here, row.cwd)
            return slot == asking, ring, -(score or 0), -row.modified, slot

        first = sorted(found, key=order)[:CANDIDATES_MAX]
        candidates = [candidate(self._row(slot), score) for slot, score in first]
        text = f"{len(found)} sessions fit this reference"
        if only_like:
            which = "this one" if len(found) == 1 else f"one of these {len(found)}"
            text = f"no session has exactly this name; did you mean {which}?"
        return AmbiguousError(text, candidates)

    def _fuzzy(self, ref: str, here: str | None, asking: int | None) -> tuple[int, float]:
        shared = self._near.shared(folded(ref))
        alike: dict[int, Near] = {}
        for ring in (None,) if here is None else RINGS:
            found, others = self._fitting(ref, shared, self._within(here, ring, asking))
            if found:
                return self._nearest_of(folded(ref), found, others, here)
            alike |= {near.owner: near for near in others}
        if alike:
            near = [(one.owner, _share(one.score)) for one in alike.values()]
            raise self._ambiguous(near, here, only_like=True)
        raise NotFoundError("no session fits this reference")

    def _within(
        self, here: str | None, ring: int | None, asking: int | None
    ) -> Callable[[int], bool]:
        """What says of slots whether they are in a ring."""
        rings: dict[str, int] = {}

        def allowed(slot: int) -> bool:
            row = None if slot == asking else self._slots[slot]
            if row is None or here is None:
                return row is not None
            if row.cwd not in rings:
                rings[row.cwd] = ring_of(here, row.cwd)
            return rings[row.cwd] == ring

        return allowed

    def _fitting(
        self, ref: str, shared: Mapping[int, int], allowed: Callable[[int], bool]
    ) -> tuple[list[Near], list[Near]]:
        """Of every session the nearest name: of those that are meant, and of those only like it."""
        key = folded(ref)
        judge = self._near.judge(key)
        found: dict[int, Near] = {}
        alike: dict[int, Near] = {}
        for near in self._near.nearest(key, shared, allowed):
            if near.owner in found or not judge.likes(near.key):
                continue
            if judge.means(near.key) and self._row(near.owner).has_signs(ref, near.key):
                found[near.owner] = near
            else:
                alike.setdefault(near.owner, near)
        return list(found.values()), [one for one in alike.values() if one.owner not in found]

    def _nearest_of(
        self, key: str, found: Sequence[Near], alike: Sequence[Near], here: str | None
    ) -> tuple[int, float]:
        """The only one, or of several the one that is nearly the whole reference, and clearly so.

        Where the same words stand in another order elsewhere, a half name is not enough.
        """
        from rapidfuzz import fuzz  # noqa: PLC0415 - hooks load this module and need it rarely

        words = set(key.split())
        rivals = [near for near in alike if words.issubset(near.key.split())]
        if len(found) == 1 and not rivals:
            return found[0].owner, _share(found[0].score)
        whole = [(fuzz.ratio(key, near.key), near.owner) for near in found]
        best = max(ratio for ratio, _ in whole)
        top = [owner for ratio, owner in whole if ratio > best - _CLEARLY]
        if best >= _NEARLY and len(top) == 1:
            return top[0], _share(best)
        several = [(near.owner, _share(near.score)) for near in (*found, *rivals)]
        raise self._ambiguous(several, here)

    def nearest(self, ref: str, limit: int = CANDIDATES_MAX) -> list[tuple[str, float]]:
        """Ids of the sessions whose names look most like a reference, with scores from 0 to 1."""
        found: dict[str, float] = {}
        key = folded(ref)
        shared = self._near.shared(key)
        for near in self._near.nearest(key, shared, lambda at: self._slots[at] is not None):
            found.setdefault(self._row(near.owner).session_id, _share(near.score))
        return list(found.items())[:limit]

    def complete(
        self,
        prefix: str = "",
        *,
        cwd: str | None = None,
        exclude: str | None = None,
        limit: int = 20,
        now: float,
    ) -> list[dict[str, Any]]:
        """What `@@prefix` could become, newest first (S0.59); `now` in seconds since the epoch."""
        rows = map(self._slots.__getitem__, self._begun(prefix.strip()))
        live = (row for row in rows if row and row.live and row.session_id != exclude)
        return [item(row, now) for row in nearest_of(live, cwd, limit)]

    def _begun(self, prefix: str) -> Iterable[int]:
        """Sessions whose id, or a word of whose names, begins so; newest first."""
        if not prefix:
            return self._recent.newest(
                (n, row.modified) for n, row in enumerate(self._slots) if row
            )
        slots = dict.fromkeys(self._by_prefix(prefix, 1) + self._near.begun(folded(prefix)))
        times = sorted((row.modified, -at) for at in slots if (row := self._slots[at]))
        return (-at for _, at in reversed(times))


def _share(score: float) -> float:
    return round(score / 100, 3)
