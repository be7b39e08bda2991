"""Which session a reference means: the ids and names of all sessions, in memory.

The order (S0.49): exact id, beginning of an id that only one session has, exact name, fuzzy name;
never a guess. Names are compared folded: NFKC, lower case, words joined by a space, so that
`confirm-button-refactor` is "Confirm button refactor"; "C++" and "C#" are words. Of sessions with
the same name the one written as in the reference is meant, or the only live one (neither gone,
archived, nor a sub-agent's); the others do resolve by themselves.

With a cwd and the scope "project" a name is looked for in three rings, the next one only where
nothing fits in the one before: sessions in cwd and below; in directories above it (an agent that
was started at the root of a repository); all others (S0.68). Ids mean the same everywhere, and an
exact name anywhere stands before a fuzzy one nearby.

A fuzzy name is *meant* if its words stand in the name in their order: the same, inflected, begun
(five letters) or mistyped; numbers are the same. Names that have all words in another order, a
shorter beginning or another word in one's place are only *like* it, and are offered with the
error: "Convert PNG to JPG" is not `convert-jpg-to-png`. One letter in another's place is no slip:
"sprint" and "spring" are both words. Nor is a word that some name has as it was typed.

A session that nobody named goes by its first message, and that may refer to other sessions;
`@@…` within a name is no part of what it answers to.
"""

from __future__ import annotations

import asyncio
import re
import sys
import unicodedata
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, NamedTuple

from indexerd.errors import AmbiguousError, IndexerdError, NotFoundError, UsageError
from indexerd.privacy.patterns import lazy_pattern
from indexerd.search.query import indexable, is_filler
from indexerd.store.store import Named, StateStore
from indexerd.times import iso_ms, iso_of_ms

Scope = Literal["project", "all"]
How = Literal["id", "prefix", "name", "fuzzy"]

PREFIX_MIN = 6  # characters of an id
_REF_MAX, _NAME_MAX, _LABEL_MAX = 512, 400, 60  # characters
_CANDIDATES_MAX = 10
_COMPARED = 100  # names that are compared in full
_NEARLY, _CLEARLY = 90.0, 10.0  # of 100: one of several is meant
_LIKE_BEGIN, _MEANT_BEGIN = 3, 5  # letters that may stand for the word that they begin
_SLIP_MIN, _MEANT_SLIP_MIN, _ALONE_MIN = 4, 5, 6  # letters of a word that may be mistyped
_TWO_SLIPS_MIN = 8
_CONTENT_MIN = 3  # letters of a word that says something
_RINGS = _BELOW, _ABOVE, _ELSEWHERE = 0, 1, 2

_BAD = lazy_pattern("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_BLANKS = lazy_pattern(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
# A quoted name ends with its quote, or where the name as a whole was cut.
_REFERENCE = lazy_pattern(r'@@(?:"[^"]*(?:"|\Z)|“[^”]*(?:”|\Z)|\S)\S*')
# Ids as the agents make them. Those that a user of pi chose look like names; a commit is no id.
_WHOLE_ID = lazy_pattern(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}"
    r"|agent-(?=[a-f]*[0-9])[0-9a-f]{8,}|ses_(?=[a-z]*[0-9])[0-9a-z]{16,}",
    re.IGNORECASE,
)
_WORD = lazy_pattern(r"[^\W_]+(?:[+#]+(?![^\W_+#]))?")  # "c++" is one, "#12" is 12
_NO_SIGNS = lazy_pattern(r"(?<![^\W_])[+#]+|[+#]+(?=[^\W_])")  # of a word
_IN_NUMBER = lazy_pattern(r"(?<=\d) (?=\d)")  # a date or a version is one word
_NEGATIONS = re.compile(
    "(no|not|never|none|non|without|cannot|(do|does|is|ca|wo)nt|t|un|nicht|keine?|ohne|nie|pas"
    "|sans|ne|sin|nunca|[不未非无無反没沒])"
)
_ENDINGS = ("s", "es", "d", "ed", "ing")
_TURNING_ENDS = ("less", "free", "out", "off")  # "server" begins "serverless", and is not it


class Match(NamedTuple):
    """The session meant. `score` (0 to 1) is there for fuzzy names only."""

    session_id: str
    how: How
    score: float | None = None


# -- texts -----------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Bring a name to one form but for its signs: case, blanks, compatibility characters."""
    text = text[:_NAME_MAX]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def folded(text: str) -> str:
    """Bring a name to the form in which names are the same: words with a space between them."""
    written = plain(text)
    if written.isascii():
        return " ".join(_WORD.findall(written)) or written
    letters = "".join(one if _is_letter(one) else " " for one in written)
    return " ".join(indexable(_NO_SIGNS.sub(" ", letters)).split()) or written


def _is_letter(char: str) -> bool:
    is_mark = unicodedata.category(char)[0] == "M" and not "\ufe00" <= char <= "\ufe0f"
    return char.isalnum() or char in "+#" or is_mark


def without_references(name: str) -> str:
    """Leave out the `@@` references in a name."""
    return _REFERENCE.sub(" ", name) if "@@" in name else name


def known(row: Mapping[str, Any], aliases: Iterable[str] = ()) -> Named:
    """Take what names need out of a row; its own names are aliases anyway."""
    name = str(row.get("name") or "")
    own = (name, str(row.get("agentTitle") or ""), *aliases)
    return Named(
        session_id=str(row["sessionId"]),
        name=name,
        aliases=tuple(dict.fromkeys(one for one in own if one)),
        cwd=sys.intern(str(row.get("cwd") or "")),
        modified=iso_ms(str(row.get("modifiedAt") or "")),
        named=row.get("nameSource") in {"user", "meta", "agent"},
        live=not (row.get("archived") or row.get("gone") or row.get("subagent")),
    )


def _folds(row: Named) -> dict[str, None]:
    folds = (folded(without_references(alias)) for alias in row.aliases)
    return dict.fromkeys(key for key in folds if key)


def _ring(here: str, cwd: str) -> int:
    """Say how far a session's directory is from `here`."""
    if not cwd:
        return _ELSEWHERE
    here, cwd = here.rstrip("/") + "/", cwd.rstrip("/") + "/"
    if cwd.startswith(here):
        return _BELOW
    return _ABOVE if here.startswith(cwd) else _ELSEWHERE


def _checked(ref: str) -> str:
    ref = ref.strip()
    if not ref or len(ref) > _REF_MAX or _BAD.search(ref):
        hint = f"an id, the first {PREFIX_MIN} or more characters of one, or a name"
        raise UsageError("not a reference to a session", hint=hint)
    return ref


# -- all names -------------------------------------------------------------------------------


class Names:
    """All names there are. Not for several threads at once."""

    def __init__(self, rows: Iterable[Named] = ()) -> None:
        self._rows: dict[str, Named] = {}  # by id; newest last, where `_in_order`
        self._in_order = True
        self._ids: dict[str, list[str]] = {}  # by id in lower case
        self._exact: dict[str, list[str]] = {}  # ids, by folded name
        self._words: dict[str, set[str]] = {}  # folded names, by word
        for row in sorted(rows, key=lambda one: one.modified):
            self._add(row)
        self._sorted_ids = sorted(self._ids)
        self._sorted_words = sorted(self._words)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, session_id: str) -> Named | None:
        """Give what is known of a session."""
        return self._rows.get(session_id)

    def put(self, row: Named) -> None:
        """Add a session, or take over what changed in it."""
        held = self._rows.get(row.session_id)
        if held is not None and held.aliases == row.aliases:
            if held.modified != row.modified:
                del self._rows[row.session_id]  # to stand at the end
                self._in_order &= self._newest <= row.modified
            self._rows[row.session_id] = row
            return
        self.forget(row.session_id)
        self._in_order &= self._newest <= row.modified
        new = self._add(row)
        if len(self._ids[lower := row.session_id.lower()]) == 1:
            insort(self._sorted_ids, lower)
        for word in new:
            insort(self._sorted_words, word)

    def forget(self, session_id: str) -> None:
        """Drop a session, if it is there."""
        row = self._rows.pop(session_id, None)
        if row is None:
            return
        _drop(self._ids, session_id.lower(), session_id, self._sorted_ids)
        for key in _folds(row):
            self._exact[key].remove(session_id)
            if not self._exact[key]:
                del self._exact[key]
                for word in set(key.split()):
                    _drop(self._words, word, key, self._sorted_words)

    def _add(self, row: Named) -> list[str]:
        """Add a session; the words that no name had before."""
        self._rows[row.session_id] = row
        self._ids.setdefault(row.session_id.lower(), []).append(row.session_id)
        new = []
        for key in _folds(row):
            if held := self._exact.get(key):
                held.append(row.session_id)
                continue
            self._exact[key] = [row.session_id]
            for word in dict.fromkeys(key.split()):
                if word not in self._words:
                    new.append(word)
                    self._words[word] = set()
                self._words[word].add(key)
        return new

    @property
    def _newest(self) -> int:
        return next(reversed(self._rows.values())).modified if self._rows else 0

    # -- references ------------------------------------------------------------------------

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
        ref = _checked(ref)
        here = (cwd or None) if scope == "project" else None
        by_id = self._ids.get(ref.lower(), [])
        by_id = [ref] if ref in by_id else by_id
        if len(by_id) == 1:
            return Match(by_id[0], "id")
        begun = self._begun_ids(ref, PREFIX_MIN)
        if len(begun) == 1 and begun[0] != exclude:
            return Match(begun[0], "prefix")
        is_id = _WHOLE_ID.fullmatch(ref) is not None
        if not is_id and (same := self._by_name(ref, here, exclude)):
            return Match(self._only(same), "name")
        if len(by_id or begun) > 1:
            raise self._ambiguous(dict.fromkeys(by_id or begun), here, exclude)
        if is_id:
            raise NotFoundError("no session has this id")
        session_id, score = self._fuzzy(ref, here, exclude)
        if not fuzzy:
            raise self._ambiguous({session_id: score}, here, only_like=True)
        return Match(session_id, "fuzzy", score)

    def _begun_ids(self, ref: str, least: int) -> list[str]:
        if len(ref) < least:
            return []
        return [one for key in _range(self._sorted_ids, ref.lower()) for one in self._ids[key]]

    def _by_name(self, ref: str, here: str | None, exclude: str | None) -> list[str]:
        """Sessions of the nearest ring that have exactly this name."""
        rows = [self._rows[one] for one in self._exact.get(folded(ref), ()) if one != exclude]
        written = [one for one in rows if plain(ref) in map(plain, one.aliases)]
        same = written or rows
        rings = [_ring(here, one.cwd) if here else _BELOW for one in same]
        nearest = min(rings, default=_BELOW)
        return [one.session_id for one, ring in zip(same, rings, strict=True) if ring == nearest]

    def _only(self, ids: Sequence[str]) -> str:
        """Give the only one, or the only live one."""
        live = [one for one in ids if self._rows[one].live]
        if len(ids) > 1 and len(live) != 1:
            raise self._ambiguous(dict.fromkeys(ids))
        return live[0] if len(ids) > 1 else ids[0]

    def _ambiguous(
        self,
        scores: Mapping[str, float | None],
        here: str | None = None,
        exclude: str | None = None,
        *,
        only_like: bool = False,
    ) -> AmbiguousError:
        """Make the error; of the candidates the nearest come first, the session that asks last."""

        def order(one: str) -> tuple[Any, ...]:
            row = self._rows[one]
            ring = _ring(here, row.cwd) if here else _BELOW
            return one == exclude, ring, -(scores[one] or 0), -row.modified, one

        candidates = []
        for one in sorted(scores, key=order)[:_CANDIDATES_MAX]:
            row, score = self._rows[one], scores[one]
            found: dict[str, Any] = {"sessionId": one, "name": row.name, "cwd": row.cwd}
            found["modifiedAt"] = iso_of_ms(row.modified)
            candidates.append(found if score is None else found | {"score": score})
        text = f"{len(scores)} sessions fit this reference"
        if only_like:
            which = "this one" if len(scores) == 1 else f"one of these {len(scores)}"
            text = f"no session has exactly this name; did you mean {which}?"
        return AmbiguousError(text, candidates)

    def _fuzzy(self, ref: str, here: str | None, exclude: str | None) -> tuple[str, float]:
        from rapidfuzz import fuzz, process  # noqa: PLC0415 - seldom needed

        key = folded(ref)
        fuzzy = _Fuzzy(key, self._words, self._sorted_words)
        names = sorted(fuzzy.like())
        if len(names) > _COMPARED:
            best = process.extract(key, names, scorer=fuzz.ratio, limit=_COMPARED)
            names = [name for name, _, _ in best]
        near: dict[str, _Near] = {}
        for name, score, _ in process.extract(key, names, scorer=fuzz.WRatio, limit=None):
            meant = fuzzy.means(name)
            for one in self._exact[name]:
                if one != exclude and (one not in near or (meant and not near[one].meant)):
                    ring = _ring(here, self._rows[one].cwd) if here else _BELOW
                    near[one] = _Near(name, round(score / 100, 3), meant, ring)
        for ring in _RINGS:
            nearby = {one: held for one, held in near.items() if held.ring == ring}
            if any(one.meant for one in nearby.values()):
                return self._nearest_of(key, nearby, here)
        if near:
            scores = {one: held.score for one, held in near.items()}
            raise self._ambiguous(scores, here, only_like=True)
        raise NotFoundError("no session fits this reference")

    def _nearest_of(
        self, key: str, near: Mapping[str, _Near], here: str | None
    ) -> tuple[str, float]:
        """Give the only one meant, or of several the one that is nearly the whole reference.

        Where the same words stand in another order elsewhere, a half name is not enough.
        """
        from rapidfuzz import fuzz  # noqa: PLC0415 - as above

        words = set(key.split())
        rivals = {
            one: held
            for one, held in near.items()
            if held.meant or words.issubset(held.name.split())
        }
        if len(rivals) == 1:
            return next((one, held.score) for one, held in rivals.items())
        whole = {one: fuzz.ratio(key, held.name) for one, held in near.items() if held.meant}
        best = max(whole.values())
        top = [one for one, ratio in whole.items() if ratio > best - _CLEARLY]
        if best >= _NEARLY and len(top) == 1:
            return top[0], round(best / 100, 3)
        raise self._ambiguous({one: held.score for one, held in rivals.items()}, here)

    # -- completions -----------------------------------------------------------------------

    def complete(
        self,
        prefix: str = "",
        *,
        cwd: str | None = None,
        exclude: str | None = None,
        limit: int = 20,
        now: float,
    ) -> list[dict[str, Any]]:
        """List live sessions whose id, or a word of whose names, begins so (S0.59).

        Those of the nearest ring, newest first; `now` in seconds since the epoch.
        """
        found: dict[int, list[Named]] = {ring: [] for ring in _RINGS}
        rings: dict[str, int] = {}
        for row in self._newest_first(prefix.strip()):
            if not row.live or row.session_id == exclude:
                continue
            if (ring := rings.get(row.cwd)) is None:
                ring = rings[row.cwd] = _ring(cwd, row.cwd) if cwd else _BELOW
            found[ring].append(row)
            if len(found[_BELOW]) == limit:
                break
        nearest = next(filter(None, found.values()), [])
        return [_completion(row, now) for row in nearest[:limit]]

    def _newest_first(self, prefix: str) -> Iterable[Named]:
        if not prefix:
            if not self._in_order:
                self._rows = dict(sorted(self._rows.items(), key=lambda one: one[1].modified))
                self._in_order = True
            return reversed(self._rows.values())
        ids = set(self._begun_ids(prefix, 1))
        ids.update(*(self._exact[key] for key in self._begun(folded(prefix))))
        if len(ids) > _COMPARED:
            return (row for row in self._newest_first("") if row.session_id in ids)
        return sorted((self._rows[one] for one in ids), key=lambda one: -one.modified)

    def _begun(self, key: str) -> Iterator[str]:
        """Names in which a word begins with `key`, which may be several words."""
        *whole, last = key.split() or ["\0"]
        some: set[str] = set().union(
            *(self._words[one] for one in _range(self._sorted_words, last))
        )
        for word in whole:
            some &= self._words.get(word, set())
        return (name for name in some if name.startswith(key) or f" {key}" in name)


class _Near(NamedTuple):
    """A session's name that is like a reference, or meant by it."""

    name: str
    score: float  # 0 to 1
    meant: bool
    ring: int


def _drop(held: dict[str, Any], key: str, value: str, in_order: list[str]) -> None:
    held[key].remove(value)
    if not held[key]:
        del held[key]
        del in_order[bisect_left(in_order, key)]


def _range(in_order: list[str], begun: str) -> list[str]:
    """Give those of a sorted list that begin so."""
    return in_order[bisect_left(in_order, begun) : bisect_left(in_order, begun + "\U0010ffff")]


def _completion(row: Named, now: float) -> dict[str, Any]:
    label = _BLANKS.sub(" ", row.name).strip() or row.session_id
    cut = label[: _LABEL_MAX - 1].rstrip() + "…"
    return {
        "sessionId": row.session_id,
        "label": label if len(label) <= _LABEL_MAX else cut,
        "age": _age(int(now - row.modified / 1000), row.modified),
        "named": row.named,
        "insert": f"@@{row.session_id} ",
    }


def _age(seconds: int, modified: int) -> str:
    """Say how long ago: now, 5m, 3h, 2d, and after a week the date."""
    for size, letter, below in ((1, "", 60), (60, "m", 60), (3600, "h", 24), (86_400, "d", 7)):
        if seconds < size * below:
            return f"{seconds // size}{letter}" if letter else "now"
    return iso_of_ms(modified)[:10]


# -- fuzzy names -----------------------------------------------------------------------------


class _Fuzzy:
    """One folded reference, compared with the words that names have."""

    def __init__(self, key: str, names: Mapping[str, set[str]], in_order: list[str]) -> None:
        self._words = key.split()
        self._units = _units(key)
        self._names, self._in_order = names, in_order
        self._alone = len(set(self._words)) == 1
        self._says_something = (
            any(
                not is_filler(one) and len(one) >= _CONTENT_MIN and any(map(str.isalpha, one))
                for one in self._words
            )
            or sum(1 for one in self._words if len(one) == 1 and not one.isascii()) > 1
        )

    def like(self) -> set[str]:
        """Find the names that account for every word, in whatever order."""
        each = []
        for at, word in enumerate(self._words):
            some = [self._names[one] for one in self._alike(word)]
            for cut in range(1, len(word)):  # "backup" may be "back up"
                both = self._names.get(word[:cut], set()) & self._names.get(word[cut:], set())
                some.append({one for one in both if f"{word[:cut]} {word[cut:]}" in one})
            pairs = zip(self._words, self._words[1:], strict=False)
            near = [one + other for one, other in islice(pairs, max(0, at - 1), at + 1)]
            some += [self._names[one] for one in near if one in self._names]  # the other way round
            each.append([one for one in some if one])
        each.sort(key=lambda some: sum(map(len, some)))
        found: set[str] = set().union(*each[0]) if each else set()
        for some in each[1:]:
            found = {one for one in found if any(one in names for names in some)}
        return found

    def _alike(self, word: str) -> set[str]:
        """Find the words of names that may stand for a word that was typed."""
        found = {word} & self._names.keys()
        if len(word) >= _LIKE_BEGIN and not word[-1].isdecimal():
            found.update(_range(self._in_order, word))
        if word in self._names or not word.isalpha():
            return found
        found |= {one for one in _stems(word) if one in self._names}
        if len(word) >= _SLIP_MIN:
            from rapidfuzz import process  # noqa: PLC0415 - seldom needed
            from rapidfuzz.distance import OSA  # noqa: PLC0415 - as above

            most = 2 if len(word) >= _TWO_SLIPS_MIN else 1
            for begin in word[:2]:  # the first letter may be one too many, or lacking
                if not found:
                    some = _range(self._in_order, begin)
                    near = process.extract(
                        word, some, scorer=OSA.distance, score_cutoff=most, limit=_COMPARED
                    )
                    found.update(one for one, _, _ in near)
        return found

    def means(self, name: str) -> bool:
        """Say whether a name that is like the reference is meant by it."""
        if not self._says_something:
            return False
        others = _units(name)
        if "".join(others) == "".join(self._units):  # "log in bug" is "login bug"
            return True
        at = begun = 0
        while at < len(self._units):
            step = self._step(at, others, begun)
            if step is None:
                return False
            at, begun = step
        return True

    def _step(self, at: int, others: Sequence[str], begun: int) -> tuple[int, int] | None:
        """Find the next word in the rest of a name: where to go on in both, or nothing."""
        word = self._units[at]
        joined = "".join(self._units[at : at + 2]) if at + 1 < len(self._units) else None
        for n in range(begun, len(others)):
            if self._stands_for(word, others[n]):
                return at + 1, n + 1
            if n + 1 < len(others) and others[n] + others[n + 1] == word:
                return at + 1, n + 2
            if others[n] == joined:
                return at + 2, n + 1
            if _NEGATIONS.fullmatch(others[n]):
                return None  # "deploy" is not "do not deploy"
        return None

    def _stands_for(self, word: str, other: str) -> bool:
        if word == other:
            return True
        if not (word + other).isalpha():  # numbers and versions are the same, or others
            return False
        if word in self._names or _is_inflected(word, other):  # as typed, it is no slip
            return _is_inflected(word, other)
        if len(word) >= _MEANT_BEGIN and other.startswith(word):
            return not other[len(word) :].startswith(_TURNING_ENDS)
        return _is_inflected(other, word) or self._is_slip(word, other)

    def _is_slip(self, word: str, other: str) -> bool:
        """Say whether letters are missing, doubled or swapped; one, or two in a long word."""
        if len(word) < (_ALONE_MIN if self._alone else _MEANT_SLIP_MIN) or word[0] != other[0]:
            return False
        if word.endswith(other) or other.endswith(word):  # "rerender" is not "render"
            return False
        from rapidfuzz.distance import OSA, Indel  # noqa: PLC0415 - as above

        most = 2 if len(word) >= _TWO_SLIPS_MIN and word[1] == other[1:2] else 1
        if OSA.distance(word, other, score_cutoff=most) > most:
            return False
        if len(word) == len(other):
            return sorted(word) == sorted(other)
        return bool(Indel.distance(word, other) == abs(len(word) - len(other)))


def _units(key: str) -> list[str]:
    """Split a folded text into words; numbers side by side are one, as in a date or a version."""
    return _IN_NUMBER.sub(".", key).split()


def _is_inflected(word: str, other: str) -> bool:
    """Say whether the other is this word with a common ending."""
    if len(word) < _CONTENT_MIN or not other.startswith(word):
        return False
    rest = other[len(word) :].removeprefix(word[-1])  # "plan" is "planned"
    return other[len(word) :] in _ENDINGS or rest in ("ed", "ing")


def _stems(word: str) -> Iterator[str]:
    for ending in _ENDINGS:
        if word.endswith(ending):
            stem = word[: -len(ending)]
            yield stem
            if stem[-1:] == stem[-2:-1]:
                yield stem[:-1]


# -- kept in step with the store -------------------------------------------------------------


class NameIndex:
    """The names of a store's sessions: made when first asked for, and kept in step since.

    For 10,000 sessions that takes 100 ms. A daemon does it in a thread (`prepare`); what changes
    meanwhile is made up for.
    """

    def __init__(self, store: StateStore, hides: Callable[[str], bool]) -> None:
        """`hides(session_id)` says what is not to be shown."""
        self._store = store
        self._hides = hides
        self._names: Names | None = None
        self._version = -1  # `renamed` of the store that they were made of
        self._lock = asyncio.Lock()
        self._changes: list[tuple[str, dict[str, Any] | None]] = []  # while names are made

    @property
    def ready(self) -> bool:
        """Whether nothing has to be put together."""
        return self._names is not None and self._version == self._store.renamed

    def now(self) -> Names:
        """Give the names; where they are not ready, this takes its time."""
        if self._names is None or not self.ready:
            self._version = self._store.renamed
            self._names = self._made()
        return self._names

    async def prepare(self) -> None:
        """Make the names in a thread; where that fails, whoever asks next is told."""
        async with self._lock:
            if self.ready:
                return
            version = self._store.renamed
            self._changes.clear()
            with suppress(IndexerdError):
                names = await asyncio.to_thread(self._made)
                for session_id, row in self._changes:
                    _take(names, session_id, row)
                self._names, self._version = names, version

    def _made(self) -> Names:
        import rapidfuzz.distance  # noqa: PLC0415 - 30 ms
        import rapidfuzz.process  # noqa: F401, PLC0415

        return Names(one for one in self._store.names() if not self._hides(one.session_id))

    def changed(self, session_id: str, row: dict[str, Any] | None) -> None:
        """Take over a row that the store has by now; None: that it has no more."""
        if self._lock.locked():
            self._changes.append((session_id, row))
        if self._names is not None:
            _take(self._names, session_id, row)


def _take(names: Names, session_id: str, row: dict[str, Any] | None) -> None:
    if row is None:
        names.forget(session_id)
    else:
        other = row.get("metaName")
        names.put(known(row, (other,) if other else ()))
