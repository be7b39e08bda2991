"""Resolve references (`@@name`) to sessions, with the ids and names of all sessions in memory.

The order: exact id, unique id prefix, exact name, fuzzy name; never a guess. With a cwd and the
scope "project", sessions in and below it come first, then those above, then all others. A fuzzy
reference *means* a name if its words occur there in order: identical, inflected, as a prefix of
five letters or more, or with a typo; numbers must be identical. Other names with such words are
only candidates of the error: "Convert PNG to JPG" is not `convert-jpg-to-png`. A substituted letter
is no typo ("sprint", "spring"), and neither is a word that some name contains as typed.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from indexerd.errors import AmbiguousError, NotFoundError, UsageError
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.params import Complete, Scope
from indexerd.search.query import indexable, is_filler, without_references
from indexerd.store.store import Named, StateStore, named
from indexerd.times import age, iso_of_ms

PREFIX_MIN = 6  # characters of an id
_REF_MAX, _NAME_MAX, _LABEL_MAX = 512, 400, 60  # characters
_CANDIDATES_MAX = 10
_COMPARED = 100  # names that are compared in full
_NEARLY, _CLEARLY = 0.9, 0.1  # the best of several needs this score, and this lead
_LIKE_BEGIN, _MEANT_BEGIN = 3, 5  # letters of a prefix for a candidate, and for a match
_TYPO_MIN = 5  # letters of a word that may be mistyped
_CONTENT_MIN = 3  # letters of a word that distinguishes names
_BELOW, _ABOVE, _ELSEWHERE = 0, 1, 2  # distances

# Ids as the agents make them. Ids that a user of pi chose look like names; a commit is not an id.
_WHOLE_ID = lazy_pattern(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}"
    r"|agent-(?=[a-f]*[0-9])[0-9a-f]{8,}|ses_(?=[a-z]*[0-9])[0-9a-z]{16,}",
    re.IGNORECASE,
)
_WORD = lazy_pattern(r"[^\W_]+(?:[+#]+(?![^\W_+#]))?")  # "c++" is a word, "#12" is 12
_NO_SIGNS = lazy_pattern(r"(?<![^\W_])[+#]+|[+#]+(?=[^\W_])")  # signs that end no word
_IN_NUMBER = lazy_pattern(r"(?<=\d) (?=\d)")
_NEGATIONS = re.compile(
    "(no|not|never|none|non|without|cannot|(do|does|is|ca|wo)nt|t|un|nicht|keine?|ohne|nie|pas"
    "|sans|ne|sin|nunca|[不未非无無反没沒])"
)
_ENDINGS = ("s", "es", "d", "ed", "ing")
_TURNING_ENDS = ("less", "free", "out", "off")  # "serverless" is not a kind of "server"


class Match(NamedTuple):
    """The session that a reference means. Only a fuzzy match has a `score` (0 to 1)."""

    session_id: str
    how: Literal["id", "prefix", "name", "fuzzy"]
    score: float | None = None


def folded(text: str) -> str:
    """Fold a name to its words, with single spaces, for comparison."""
    text = unicodedata.normalize("NFKC", text[:_NAME_MAX]).casefold()
    if text.isascii():
        words = _WORD.findall(text)
    else:
        letters = "".join(char if _is_letter(char) else " " for char in text)
        words = indexable(_NO_SIGNS.sub(" ", letters)).split()
    return " ".join(words or text.split())


def _is_letter(char: str) -> bool:
    is_mark = unicodedata.category(char)[0] == "M" and not "\ufe00" <= char <= "\ufe0f"
    return char.isalnum() or char in "+#" or is_mark


@lru_cache(maxsize=4096)
def _distance(here: str | None, cwd: str) -> int:
    """Return how far a session's directory is from `here`; if that is None, all are equal."""
    if not here or not cwd:
        return _ELSEWHERE if here else _BELOW
    here, cwd = here.rstrip("/") + "/", cwd.rstrip("/") + "/"
    if cwd.startswith(here):
        return _BELOW
    return _ABOVE if here.startswith(cwd) else _ELSEWHERE


class _Lookup(dict[str, set[str]]):
    """Values by key, and keys by prefix."""

    _ordered: Sequence[str] = ()

    def add(self, key: str, value: str) -> None:
        self.setdefault(key, set()).add(value)

    def drop(self, key: str, value: str) -> None:
        self[key].discard(value)
        if not self[key]:
            del self[key]
            self._ordered = ()

    def begun(self, begin: str) -> Sequence[str]:
        if len(self._ordered) != len(self):
            self._ordered = sorted(self)
        keys, end = self._ordered, begin + "\U0010ffff"
        return keys[bisect_left(keys, begin) : bisect_left(keys, end)]

    def any_of(self, keys: Iterable[str]) -> set[str]:
        return set[str]().union(*(self.get(key, ()) for key in keys))


class Names:
    """The names of all sessions; one thread at a time."""

    def __init__(self, rows: Iterable[Named] = ()) -> None:
        self._rows: dict[str, Named] = {}  # by id
        self._ids = _Lookup()  # by id in lower case
        self._names = _Lookup()  # ids, by folded name
        self._words = _Lookup()  # folded names, by word
        for row in rows:
            self.put(row)

    def put(self, row: Named) -> None:
        old = self._rows.get(row.session_id)
        if old is None or old.aliases != row.aliases:
            self.forget(row.session_id)
            self._ids.add(row.session_id.lower(), row.session_id)
            for key in _keys(row):
                self._names.add(key, row.session_id)
                for word in key.split():
                    self._words.add(word, key)
        self._rows[row.session_id] = row

    def forget(self, session_id: str) -> None:
        row = self._rows.pop(session_id, None)
        if row is None:
            return
        self._ids.drop(session_id.lower(), session_id)
        for key in _keys(row):
            self._names.drop(key, session_id)
            for word in set(key.split()) if key not in self._names else ():
                self._words.drop(word, key)

    def resolve(
        self,
        ref: str,
        *,
        cwd: str | None = None,
        scope: Scope = "project",
        exclude: str | None = None,
        fuzzy: bool = True,
    ) -> Match:
        """Find the session that a reference means; `exclude` is found only by its whole id.

        Raises UsageError (no reference), NotFoundError, AmbiguousError.
        """
        ref = ref.strip()
        if not ref or len(ref) > _REF_MAX:
            hint = f"an id, the first {PREFIX_MIN} or more characters of one, or a name"
            raise UsageError("not a session reference", hint=hint)
        here = cwd if scope == "project" else None
        same = self._ids.get(ref.lower(), set())
        if ref in same or len(same) == 1:
            return Match(ref if ref in same else next(iter(same)), "id")
        begun = self._begun_ids(ref) if len(ref) >= PREFIX_MIN else set()
        if len(begun) == 1 and exclude not in begun:
            return Match(begun.pop(), "prefix")
        is_id = _WHOLE_ID.fullmatch(ref) is not None
        if not is_id and (named := self._nearest(self._names.get(folded(ref), ()), here, exclude)):
            live = named if len(named) == 1 else [key for key in named if self._rows[key].live]
            if len(live) != 1:
                raise self._ambiguous(dict.fromkeys(named))
            return Match(live[0], "name")
        if len(begun) > 1:
            raise self._ambiguous(dict.fromkeys(begun), here, exclude)
        if is_id:
            raise NotFoundError("no session has this id")
        session_id, score = self._fuzzy(ref, here, exclude)
        if not fuzzy:
            raise self._ambiguous({session_id: score}, here)
        return Match(session_id, "fuzzy", score)

    def _begun_ids(self, begin: str) -> set[str]:
        return self._ids.any_of(self._ids.begun(begin.lower()))

    def _nearest(self, ids: Iterable[str], here: str | None, exclude: str | None) -> list[str]:
        scopes = {key: _distance(here, self._rows[key].cwd) for key in ids if key != exclude}
        nearest = min(scopes.values(), default=_BELOW)
        return [key for key, distance in scopes.items() if distance == nearest]

    def _ambiguous(
        self, scores: Mapping[str, Any], here: str | None = None, exclude: str | None = None
    ) -> AmbiguousError:
        """Build the error; the nearest candidates come first, the excluded session last."""

        def order(key: str) -> tuple[Any, ...]:
            row = self._rows[key]
            return key == exclude, _distance(here, row.cwd), -(scores[key] or 0), -row.modified, key

        candidates = []
        for session_id in sorted(scores, key=order)[:_CANDIDATES_MAX]:
            row, score = self._rows[session_id], scores[session_id]
            candidate: dict[str, Any] = {"sessionId": session_id, "name": row.name, "cwd": row.cwd}
            candidate["modifiedAt"] = iso_of_ms(row.modified)
            candidates.append(candidate if score is None else candidate | {"score": score})
        text = f"{len(scores)} sessions match this reference"
        if any(scores.values()):
            which = "this one" if len(scores) == 1 else f"one of these {len(scores)}"
            text = f"no session has exactly this name; did you mean {which}?"
        return AmbiguousError(text, candidates)

    def _fuzzy(self, ref: str, here: str | None, exclude: str | None) -> tuple[str, float]:
        from rapidfuzz import fuzz, process  # noqa: PLC0415 - 4 MB, for names that are not exact

        key, words = folded(ref), self._words
        each = [
            words.any_of(other for other in words.begun(word[0]) if _is_like(word, other, words))
            | self._apart(word)
            for word in key.split()
        ]
        likely = sorted(set.intersection(*each)) if each else []
        near, meant = dict[str, float](), dict[str, float]()
        best = process.extract(key, likely, scorer=fuzz.ratio, limit=_COMPARED)
        for name, ratio, _ in reversed(best):
            scores = dict.fromkeys(self._names[name] - {exclude or ""}, round(ratio / 100, 3))
            near |= scores
            if _means(key, name, words):
                meant |= scores
        if not near:
            raise NotFoundError(f'no session matches "{clean_line(ref, _LABEL_MAX)}"')
        if not meant:
            raise self._ambiguous(near, here)
        ids = sorted(self._nearest(meant, here, None), key=meant.__getitem__, reverse=True)
        score, *others = map(meant.__getitem__, ids)
        if not others or (score >= _NEARLY and score - max(others) >= _CLEARLY):
            return ids[0], score
        raise self._ambiguous({session_id: meant[session_id] for session_id in ids}, here)

    def _apart(self, word: str) -> set[str]:
        """Find names that contain a typed word as two words: "backup" may be "back up"."""
        names = set[str]()
        for pair in ((word[:cut], word[cut:]) for cut in range(1, len(word))):
            both = self._words.get(pair[0], set()) & self._words.get(pair[1], set())
            names |= {name for name in both if " ".join(pair) in name}
        return names

    def complete(self, args: Complete, now: float) -> list[dict[str, Any]]:
        """List live sessions whose id, or a word of whose name, starts with a prefix.

        Only the nearest project's, newest first; `now` is in seconds since the epoch.
        """
        rows: Iterable[Named] = self._rows.values()
        if prefix := (args.prefix or "").strip():
            key = folded(prefix)  # its last word may be incomplete
            names = self._words.any_of(self._words.begun(key.rpartition(" ")[2] or "\0"))
            begun = self._names.any_of(name for name in names if f" {key}" in f" {name}")
            rows = map(self._rows.__getitem__, self._begun_ids(prefix) | begun)
        live = [row.session_id for row in rows if row.live]
        nearest = (self._rows[key] for key in self._nearest(live, args.cwd, args.exclude))
        newest = sorted(nearest, key=attrgetter("modified"), reverse=True)
        items = []
        for row in newest[: args.limit]:
            label, seconds = clean_line(row.name, _NAME_MAX), now - row.modified / 1000
            if len(label) > _LABEL_MAX:
                label = label[: _LABEL_MAX - 1].rstrip() + "…"
            shown = {"sessionId": row.session_id, "label": label or row.session_id}
            ago, day = age(seconds).removesuffix(" ago"), iso_of_ms(row.modified)[:10]
            shown["age"] = ago if seconds < 7 * 86_400 else day
            items.append(shown | {"named": row.named, "insert": f"@@{row.session_id} "})
        return items


def _keys(row: Named) -> set[str]:
    return {folded(without_references(alias)) for alias in row.aliases} - {""}


def _means(key: str, name: str, words: Mapping[str, Any]) -> bool:
    """Whether a reference means a similar name; `words` are those of all names."""
    content = [word for word in key.split() if len(word) >= _CONTENT_MIN and not is_filler(word)]
    signs = [word for word in key.split() if len(word) == 1 and not word.isascii()]  # 東京
    if all(word.isdecimal() for word in content) and len(signs) < 2:  # noqa: PLR2004 - more than one
        return False
    # Numbers next to each other are one, as in a date or a version.
    own, before = _IN_NUMBER.sub(".", key).split(), ""
    for other in _IN_NUMBER.sub(".", name).split():
        if own and (own[0] == before + other or _stands_for(own[0], other, words)):
            del own[0]
        elif own and _NEGATIONS.fullmatch(other):
            return False  # "deploy" is not "do not deploy"
        before = other
    return not own


def _is_like(word: str, other: str, words: Mapping[str, Any]) -> bool:
    can_go_on = len(word) >= _LIKE_BEGIN and not word[-1].isdecimal()
    return (can_go_on and other.startswith(word)) or _stands_for(word, other, words)


def _stands_for(word: str, other: str, words: Mapping[str, Any]) -> bool:
    if word == other:
        return True
    if not (word + other).isalpha():  # numbers and versions must be identical
        return False
    short, long = sorted((word, other), key=len)
    if len(short) >= _CONTENT_MIN and long.startswith(short) and long[len(short) :] in _ENDINGS:
        return True
    if word in words:  # a word of some name is no typo
        return False
    if len(word) >= _MEANT_BEGIN and other.startswith(word):
        return not other[len(word) :].startswith(_TURNING_ENDS)
    # A letter is missing, extra, or swapped with the next; "rerender" is not "render".
    if len(word) < _TYPO_MIN or word[0] != other[0] or word.endswith(other) or other.endswith(word):
        return False
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - as in `_fuzzy`

    is_near = OSA.distance(word, other, score_cutoff=1) == 1
    return is_near and (len(word) != len(other) or sorted(word) == sorted(other))


class NameIndex:
    """The names of a store's visible sessions, built on first use and kept up to date."""

    def __init__(self, store: StateStore, hides: Callable[[str], bool]) -> None:
        self._store, self._hides = store, hides
        self._names: Names | None = None

    def now(self) -> Names:
        if self._names is None:
            rows = self._store.names()
            self._names = Names(row for row in rows if not self._hides(row.session_id))
        return self._names

    def changed(self, session_id: str, row: dict[str, Any] | None) -> None:
        """Apply a new row; None: the session is no longer there."""
        if self._names is not None and row is None:
            self._names.forget(session_id)
        elif self._names is not None and row is not None:
            other = row.get("metaName")
            self._names.put(named(row, (other,) if other else ()))
