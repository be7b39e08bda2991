"""Resolve references (`@@name`) to sessions, with the ids and names of all sessions in memory.

The order: exact id, unique id prefix, exact name, a name with typos, search; never a guess. With a
cwd, sessions in and below it come first, then those above, then all others.
A substituted letter is no typo ("sprint", "spring"), and neither is a word that some name contains
as typed. A search resolves only if one session has all words and clearly leads; else the best of
those whose name, tags or summary have the words are the candidates of the error.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from shlex import quote
from typing import Any, Literal, NamedTuple

from indexerd.errors import AmbiguousError, NotFoundError, UsageError
from indexerd.paths import within
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.params import Complete
from indexerd.search.query import indexable, is_slip, stem, stop_words, without_references
from indexerd.search.ranking import Candidate
from indexerd.store.store import Named
from indexerd.times import age, iso_of_ms

PREFIX_MIN = 6  # characters of an id
_REF_MAX, _NAME_MAX, _LABEL_MAX = 512, 400, 60  # characters
CANDIDATES_MAX = 10
_COMPARED = 20  # names that are compared in full
_ALIKE = 80  # percent of a name's letters
_CONTENT_MIN = 4  # letters of a word that distinguishes names
_LEAD = 1.2  # the best session's score relative to all others; with 1.05 some resolve wrong
_BELOW, _ABOVE, _ELSEWHERE = 0, 1, 2  # distances

# Ids as the agents make them. Ids that a user of pi chose look like names; a commit is not an id.
_WHOLE_ID = lazy_pattern(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}"
    r"|agent-(?=[a-f]*[0-9])[0-9a-f]{8,}|ses_(?=[a-z]*[0-9])[0-9a-z]{16,}",
    re.IGNORECASE,
)
_WORD = lazy_pattern(r"[^\W_]+(?:[+#]+(?![^\W_+#]))?")  # "c++" is a word, "#12" is 12
_NO_SIGNS = lazy_pattern(r"(?<![^\W_])[+#]+|[+#]+(?=[^\W_])")  # signs that end no word

# Numbers next to each other are one, as in a date or a version.
_IN_NUMBER = lazy_pattern(r"(?<=\d) (?=\d)")
_NEAR = 3  # words from a negation to the last one that it may change
_NEGATIONS = re.compile(
    "no|not|never|none|non|without|cannot|(do|does|is|ca|wo)nt|t|[不未非无無反没沒]"
)
Search = Callable[[str], Sequence[Candidate]]  # the sessions that a text may mean, best first


class Match(NamedTuple):
    """The session that a reference means. Only a name with typos has a `score` (0 to 1)."""

    session_id: str
    how: Literal["id", "prefix", "name", "fuzzy", "search"]
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
    if within(cwd, here):
        return _BELOW
    return _ABOVE if within(here, cwd) else _ELSEWHERE


class Names:
    """The names of all sessions; one thread at a time."""

    def __init__(self, rows: Iterable[Named] = ()) -> None:
        self._rows: dict[str, Named] = {}  # by id
        self._ids: dict[str, str] = {}  # by id in lower case
        self._ordered: list[str] = []  # the same, sorted; empty until it is needed
        self._names: dict[str, set[str]] = {}  # ids, by folded name
        for row in rows:
            self.put(row)

    def put(self, row: Named) -> None:
        old = self._rows.get(row.session_id)
        if old is None or old.aliases != row.aliases:
            self.forget(row.session_id)
            self._ids[row.session_id.lower()] = row.session_id
            self._ordered = []
            for key in _keys(row):
                self._names.setdefault(key, set()).add(row.session_id)
        self._rows[row.session_id] = row

    def forget(self, session_id: str) -> None:
        row = self._rows.pop(session_id, None)
        if row is None:
            return
        self._ids.pop(session_id.lower(), None)
        self._ordered = []
        for key in _keys(row):
            self._names[key].discard(session_id)
            if not self._names[key]:
                del self._names[key]

    def resolve(
        self,
        ref: str,
        *,
        cwd: str | None = None,
        exclude: str | None = None,
        fuzzy: bool = True,
        search: Search = lambda _: (),
    ) -> Match:
        """Find the session that a reference means; `exclude` is found only by its whole id.

        Without `fuzzy`, only an id or an exact name resolves; others are candidates of the error.
        Raises UsageError (no reference), NotFoundError, AmbiguousError.
        """
        ref = ref.strip().removeprefix("@@")  # as it is typed in prompts
        if not ref or len(ref) > _REF_MAX:
            hint = f"an id, the first {PREFIX_MIN} or more characters of one, or a name"
            raise UsageError("not a session reference", hint=hint)
        if own := ref if ref in self._rows else self._ids.get(ref.lower()):
            return Match(own, "id")
        begun = self._begun_ids(ref) if len(ref) >= PREFIX_MIN else set()
        if len(begun) == 1 and exclude not in begun:
            return Match(begun.pop(), "prefix")
        is_id = _WHOLE_ID.fullmatch(ref) is not None
        if not is_id and (named := self._nearest(self._names.get(folded(ref), ()), cwd, exclude)):
            whole = ref.casefold()  # "café" rather than "cafe"
            exact = [key for key in named if whole in map(str.casefold, self._rows[key].aliases)]
            named = exact or named
            live = named if len(named) == 1 else [key for key in named if self._rows[key].live]
            if len(live) != 1:
                raise self._ambiguous(dict.fromkeys(named))
            return Match(live[0], "name")
        if len(begun) > 1:
            raise self._ambiguous(dict.fromkeys(begun), cwd, exclude)
        if is_id:
            raise NotFoundError("no session has this id")
        near = self._mistyped(ref, cwd, exclude)
        if len(near) == 1 and fuzzy:
            return Match(*next((key, "fuzzy", score) for key, score in near.items()))
        if near:
            raise self._ambiguous(near, cwd)
        found = search(ref.replace("-", " "))
        try:
            return self._by_search(ref, found, cwd, exclude, fuzzy=fuzzy)
        except (NotFoundError, AmbiguousError):
            begun = self._begun_ids(ref) if any(map(str.isdecimal, ref)) else set()
            if not begun or len(ref) >= PREFIX_MIN:
                raise
        short = f"{ref} is too short for an id: type at least {PREFIX_MIN} characters"
        raise self._ambiguous(dict.fromkeys(begun), cwd, exclude, text=short)

    def _by_search(
        self,
        ref: str,
        candidates: Sequence[Candidate],
        here: str | None,
        exclude: str | None,
        *,
        fuzzy: bool,
    ) -> Match:
        """Choose among the sessions that a search found, or raise an error that lists them."""
        found = self._nearest_first(candidates, here, exclude)
        fit = [each for each in found if self._may_mean(ref, each)]
        first = fit and (fit[0] is found[0] or fit[0].titled)
        if fuzzy and first and self._is_clear(folded(ref), fit):
            return Match(fit[0].session_id, "search")
        offered = [each.session_id for each in (*fit, *found) if self._offers(ref, each)]
        if not offered:
            raise self._not_found(ref, len(found))
        raise self._ambiguous(dict.fromkeys(offered), ranked=True)

    def _offers(self, ref: str, found: Candidate) -> bool:
        """Whether a session's name, or the prompt it is listed by, has the words.

        Of several words, its description, summary and tags count, too.
        """
        words = {word for key in _keys(self._rows[found.session_id]) for word in key.split()}
        wanted = {*map(stem, folded(ref).split())} - stop_words()
        described = found.titled or (found.described and len(wanted) > 1)
        return described or 2 * len(wanted & {*map(stem, words)}) >= max(1, len(wanted))

    def _not_found(self, ref: str, mentions: int = 0) -> NotFoundError:
        """Build the error; `mentions` counts the sessions with these words in their texts."""
        label, hint = clean_line(ref, _LABEL_MAX), None
        if mentions:
            many = "session has" if mentions == 1 else "sessions have"
            least = "at least " * (mentions >= CANDIDATES_MAX)
            hint = f"{least}{mentions} {many} such words: `indexerd search {quote(label)}`"
        return NotFoundError(f'no session matches "{label}"', hint=hint)

    def _is_clear(self, key: str, found: Sequence[Candidate]) -> bool:
        """Whether a reference says enough, and the first of these sessions clearly leads."""
        if not any(map(str.isalpha, key)) or stop_words().issuperset(key.split()):
            return False
        is_word = " " not in key or found[0].total == 1
        return not (is_word and self._apart(key)) and _leads(found, is_word=is_word)

    def _apart(self, word: str) -> bool:
        """Whether a name has a typed word as two words: "backup" may be "back up"."""
        return self._has(f"{word[:cut]} {word[cut:]}" for cut in range(1, len(word)))

    def _has(self, words: Iterable[str]) -> bool:
        """Whether some name has one of these words, or pairs of words."""
        names = f" {' | '.join(self._names)} "
        return any(f" {each} " in names for each in words)

    def _is_typo(self, typed: Sequence[str], words: Sequence[str]) -> bool:
        """Whether a typed name is a name with letters missing, extra or swapped in some words."""
        pairs = [(one, other) for one, other in zip(typed, words, strict=False) if one != other]
        slips = len(typed) == len(words) and all(is_slip(*pair) for pair in pairs)
        return slips and not self._has(one for one, _ in pairs)

    def _begun_ids(self, begin: str) -> set[str]:
        begin, ids = begin.lower(), self._ordered or sorted(self._ids)
        self._ordered = ids
        begun = ids[bisect_left(ids, begin) : bisect_left(ids, begin + "\U0010ffff")]
        return {self._ids[key] for key in begun}

    def _nearest(self, ids: Iterable[str], here: str | None, exclude: str | None) -> list[str]:
        scopes = {key: _distance(here, self._rows[key].cwd) for key in ids if key != exclude}
        nearest = min(scopes.values(), default=_BELOW)
        return [key for key, distance in scopes.items() if distance == nearest]

    def _ambiguous(
        self,
        scores: Mapping[str, Any],
        here: str | None = None,
        exclude: str | None = None,
        *,
        ranked: bool = False,
        text: str = "",
    ) -> AmbiguousError:
        """Build the error; unless `ranked`, the nearest candidates come first, `exclude` last."""

        def order(key: str) -> tuple[Any, ...]:
            row = self._rows[key]
            return key == exclude, _distance(here, row.cwd), -(scores[key] or 0), -row.modified, key

        candidates = []
        for session_id in ([*scores] if ranked else sorted(scores, key=order))[:CANDIDATES_MAX]:
            row, score = self._rows[session_id], scores[session_id]
            candidate: dict[str, Any] = {"sessionId": session_id, "name": row.name, "cwd": row.cwd}
            candidate["modifiedAt"] = iso_of_ms(row.modified)
            candidates.append(candidate if score is None else candidate | {"score": score})
        if text:
            return AmbiguousError(text, candidates)
        text = f"{len(scores)} sessions match this reference"
        if ranked or any(scores.values()):
            which = "this one" if len(scores) == 1 else f"one of these {len(candidates)}"
            text = f"no session has exactly this name; did you mean {which}?"
        elif len(scores) > len(candidates):
            text += f"; these are {len(candidates)} of them"
        return AmbiguousError(text, candidates)

    def _mistyped(self, ref: str, here: str | None, exclude: str | None) -> dict[str, float]:
        """Return the nearest sessions whose name differs from a reference by typos alone."""
        from rapidfuzz import fuzz, process  # noqa: PLC0415 - 4 MB, for names that are not exact

        key, scores = folded(ref), dict[str, float]()
        best = process.extract(
            key, [*self._names], scorer=fuzz.ratio, score_cutoff=_ALIKE, limit=_COMPARED
        )
        for name, ratio, _ in best:
            if self._is_typo(key.split(), name.split()):
                ids = (key for key in self._names[name] if not self._rows[key].hidden)
                scores |= dict.fromkeys({*ids} - {exclude or ""}, round(ratio / 100, 3))
        return {key: scores[key] for key in self._nearest(scores, here, None)}

    def _may_mean(self, ref: str, found: Candidate) -> bool:
        """Whether a session's name has the words of a reference, and not just in another order.

        "Convert PNG to JPG" is not `convert-jpg-to-png`, and "do not deploy" not `deploy`: a
        negation counts if it stands shortly before one of the words. If the words are in other
        texts, there must be no sign or number that only a name could tell.
        """
        typed = _IN_NUMBER.sub(".", folded(ref)).split()
        kept = [
            word for word in typed if word not in stop_words() or not 1 < len(word) < _CONTENT_MIN
        ]
        wanted = [*map(stem, kept)]
        negated = set(filter(_NEGATIONS.fullmatch, typed))
        for key in _keys(self._rows[found.session_id]) if found.titled else ():
            words = _IN_NUMBER.sub(".", key).split()
            there = [word for word in map(stem, words) if word in wanted]
            if {*there} == {*wanted}:
                others = {*map(stem, words)} - {*wanted} - stop_words()
                places = (at for at, word in enumerate(words) if stem(word) in wanted)
                before = chain.from_iterable(words[max(0, at - _NEAR) : at + 1] for at in places)
                same = negated == set(filter(_NEGATIONS.fullmatch, before))
                return same and (there == wanted or bool(others))
        plain = all(word.isalpha() and len(word) > 1 for word in typed)
        return not found.titled or (plain and len(wanted) == found.total)

    def _nearest_first(
        self, found: Sequence[Candidate], here: str | None, exclude: str | None
    ) -> list[Candidate]:
        """Return the sessions with half of the words or more: titles, then those with all words."""

        def order(each: Candidate) -> tuple[bool, bool, int]:
            cwd = self._rows[each.session_id].cwd
            return not each.titled, each.matched < each.total, _distance(here, cwd)

        known = self._rows.keys() - {exclude}
        near = (c for c in found if c.session_id in known and 2 * c.matched >= c.total)
        return sorted(near, key=order)

    def complete(self, args: Complete, now: float) -> list[dict[str, Any]]:
        """List live sessions whose id, or a word of whose name, starts with a prefix.

        Only the nearest project's, newest first; `now` is in seconds since the epoch.
        """
        rows: Iterable[Named] = self._rows.values()
        if prefix := (args.prefix or "").strip():
            key = folded(prefix)  # its last word may be incomplete
            named = (ids for name, ids in self._names.items() if f" {key}" in f" {name}")
            rows = map(self._rows.__getitem__, self._begun_ids(prefix).union(*named))
        live = (row.session_id for row in rows if row.live)
        near = map(self._rows.__getitem__, self._nearest(live, args.cwd, args.exclude))
        found = sorted(near, key=attrgetter("modified"), reverse=True)
        items = []
        for row in found[: args.limit]:
            name = label = clean_line(row.name, _NAME_MAX)
            seconds = now - row.modified / 1000
            if len(label) > _LABEL_MAX:
                label = label[: _LABEL_MAX - 1].rstrip() + "…"
            shown = {"sessionId": row.session_id, "name": name, "label": label or row.session_id}
            ago, day = age(seconds).removesuffix(" ago"), iso_of_ms(row.modified)[:10]
            shown["age"] = ago if seconds < 7 * 86_400 else day
            items.append(shown | {"named": row.named, "insert": f"@@{row.session_id} "})
        return items


def _keys(row: Named) -> set[str]:
    return {folded(without_references(alias)) for alias in row.aliases} - {""}


def _leads(found: Sequence[Candidate], *, is_word: bool) -> bool:
    """Whether the first session has all words and clearly leads: by its title, or its score."""
    first, *others = found
    if first.matched < first.total:
        return False
    if is_word:  # "backup" may mean any session that has it
        return first.titled and not any(other.matched for other in others)
    if first.titled and not any(other.titled for other in others):
        return True
    return first.score >= _LEAD * max((other.score for other in others), default=0.0)
