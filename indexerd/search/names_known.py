"""What the index of names holds of one session, and the keys that it answers to.

In: a catalog row and further names. Out: a `Known`, and its names in folded form.

A session that nobody named goes by its first message, and a message may hold references to other
sessions: "please look at @@confirm-button" must neither become what `@@confirm-button` means nor
make it ambiguous. Agents make their titles of first messages, too. So a reference in a name, from
`@@` to the end of the word or of the quoted name, is no part of what the session answers to; the
name is displayed as it stands.

The folded form has no signs, and "C", "C++" and "C#" are one in it: `Known.is_written` and
`Known.has_signs` compare names as they stand.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from indexerd.errors import UsageError
from indexerd.privacy.patterns import lazy_pattern
from indexerd.search.names_fuzzy import folded, plain
from indexerd.store.store import Named
from indexerd.times import iso_ms

REF_MAX = 512  # characters of a reference
PREFIX_MIN = 6  # characters of an id
_BAD = lazy_pattern("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

# A quoted name ends with its quote, or where the name as a whole was cut.
_REFERENCE = lazy_pattern(r'@@(?:"[^"]*(?:"|\Z)|“[^”]*(?:”|\Z)|\S)\S*')

_TELLING = lazy_pattern(r"#(?!\d)|[+<>=|~^*%&$]")  # "#12" is 12
_TELLING_KINDS = frozenset(("Sm", "Sc", "So", "Mn", "Mc"))  # vowel signs and accents are marks
_VARIANTS = frozenset("\ufe0e\ufe0f")  # how a sign is drawn
_SIGNED = lazy_pattern(r"([^\W_]+)[+#]+(?![^\W_])")  # "c++", "f#"
_SLUG = lazy_pattern(r"[^\W_]+(?:[-_]+[^\W_]+)+")


class Known(Named):
    """What the index of names holds of a session."""

    __slots__ = ()

    def folds(self) -> dict[str, None]:
        """Its names in folded form, without references to others; each once, in order."""
        folds = (folded(without_references(alias)) for alias in self.aliases)
        return dict.fromkeys(key for key in folds if key)

    def is_written(self, ref: str) -> bool:
        """Say whether one of its names is the reference, but for case and blanks."""
        written = plain(ref)
        return any(plain(without_references(alias)) == written for alias in self.aliases)

    def has_signs(self, ref: str, key: str) -> bool:
        """Say whether the signs of a reference are those of a name of which `key` is the fold."""
        return any(_signs_fit(plain(ref), name, key) for name in self._names_of(key))

    def signs(self, key: str) -> set[str]:
        """The signs of each of its names of which `key` is the fold."""
        return {_signs(name) for name in self._names_of(key)}

    def _names_of(self, key: str) -> Iterator[str]:
        names = map(without_references, self.aliases)
        return (plain(name) for name in names if folded(name) == key)


RINGS = _BELOW, _ABOVE, _ELSEWHERE = 0, 1, 2


def ring_of(here: str, cwd: str) -> int:
    """How far a session's directory is from `here`: in or below it, above it, or elsewhere."""
    if not cwd:
        return _ELSEWHERE
    here, cwd = here.rstrip("/") + "/", cwd.rstrip("/") + "/"
    if cwd.startswith(here):
        return _BELOW
    return _ABOVE if here.startswith(cwd) else _ELSEWHERE


def known(row: Mapping[str, Any], aliases: Iterable[str] = ()) -> Known:
    """What the index holds of a row; the row's own names are aliases anyway."""
    name = str(row.get("name") or "")
    own = (name, str(row.get("agentTitle") or ""), *aliases)
    return Known(
        session_id=str(row["sessionId"]),
        name=name,
        aliases=tuple(dict.fromkeys(one for one in own if one)),
        cwd=sys.intern(str(row.get("cwd") or "")),
        modified=iso_ms(str(row.get("modifiedAt") or "")),
        named=row.get("nameSource") in {"user", "meta", "agent"},
        live=not (row.get("archived") or row.get("gone") or row.get("subagent")),
    )


def without_references(name: str) -> str:
    """A name without the `@@` references in it."""
    return _REFERENCE.sub(" ", name) if "@@" in name else name


def _signs_fit(ref: str, name: str, key: str) -> bool:
    """Compare the signs of two plain texts; a slug (S0.48) has none, and leaves them open."""
    asked, held = _signs(ref), _signs(name)
    if asked:
        return asked == held if folded(ref) == key else asked in held
    if not held or (_SLUG.fullmatch(ref) and folded(ref) == key):
        return True
    if any(unicodedata.category(sign)[0] == "M" for sign in held):  # a part of letters
        return False
    return set(folded(ref).split()).isdisjoint(_SIGNED.findall(name))


def _signs(text: str) -> str:
    """The signs that tell names apart; brackets, stops, hyphens and quotes do not."""
    if text.isascii():
        return "".join(_TELLING.findall(text))
    return "".join(
        char
        for at, char in enumerate(text)
        if _TELLING.match(text, at) or unicodedata.category(char) in _TELLING_KINDS
        if char not in _VARIANTS
    )


def checked(ref: str) -> str:
    """A reference as it is looked up; UsageError where it cannot be one."""
    ref = ref.strip()
    if not ref or len(ref) > REF_MAX or _BAD.search(ref):
        raise UsageError(
            "not a reference to a session",
            hint=f"an id, the first {PREFIX_MIN} or more characters of one, or a name",
        )
    return ref


def drop(held: dict[str, list[int]], key: str, slot: int) -> None:
    """Take a session out of a key's; a key that has none any more goes, too."""
    slots = held.get(key, [])
    if slot in slots:
        slots.remove(slot)
    if not slots:
        held.pop(key, None)
