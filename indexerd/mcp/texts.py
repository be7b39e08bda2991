"""Foreign text on its way to a model: cleaned, without secrets, quoted, within bounds.

In: what sessions, agents and other models wrote, as the socket gives it. Out: the same as data.
Single lines have no tag, no reference and no chat template's mark left in them; longer texts are
quoted line by line besides, so that none of their lines can pose as a role, whatever a host
makes of the fields. Secrets go before anything is cut, as half a secret is not known for one.
Identifiers are never redacted: they are asked with again.

File names and items of context sets are used again as they are, and so they are exact (`Exact`)
in the data of an answer, and harmless in its text, which `reading` makes of the same values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import clean_line, clean_text, escape_path
from indexerd.references.inject import harmless, inline, quoted

BYTES_MAX = 18_000  # of an answer's JSON, which goes out twice: as data, and as text
LINE_MAX = 1200
PATH_MAX = 4096  # what systems allow: a path that is cut is another path
ID_MAX = 200
LOOKED_AT = 200_000  # characters of any text that are looked at
CUT_NEAR = 160  # characters; the daemon's one-line texts end between here and 200 where it cut


class Exact(str):
    """Foreign text that an answer's data holds as it was stored, on one visible line."""

    __slots__ = ()


class Safe:
    """Makes text safe, with the user's own patterns of what is secret."""

    def __init__(self, extra: Sequence[re.Pattern[str]] = (), *, redacting: bool = True) -> None:
        self._extra = extra
        self._redacting = redacting

    def line(self, text: object, limit: int = LINE_MAX) -> str:
        """One line."""
        return inline(self._redacted(clean_line(_str(text), LOOKED_AT)), limit)

    def lines(self, texts: Iterable[object] | None, most: int, limit: int = LINE_MAX) -> list[str]:
        """Several lines, the first `most` of them."""
        return [self.line(one, limit) for one, _ in zip(texts or (), range(most), strict=False)]

    def cut_line(self, text: object) -> str:
        """One line that was cut before: its last word may be the first half of a secret."""
        plain = _str(text)
        if len(plain) >= CUT_NEAR:
            plain = f"{plain[: max(plain.rfind(' '), 0)]} …"
        return self.line(plain)

    def quote(self, text: object, limit: int) -> str:
        """Several lines, each of them quoted; nothing where there is none."""
        plain = self._redacted(clean_text(_str(text), LOOKED_AT))
        return quoted(plain, limit) if plain else ""

    def fit(self, text: object, most: int) -> str:
        """As `quote`, in at most `most` bytes of JSON (ten or more); what was cut ends in "…"."""
        plain = self._redacted(clean_text(_str(text), LOOKED_AT))
        limit = most
        while plain:
            mark = " …" if len(plain) > limit else ""
            shown = quoted(plain[:limit], limit) + mark
            if size(shown) <= most:
                return shown
            limit = limit * 3 // 4
        return ""

    def block(self, text: object) -> str:
        """Text that the daemon has quoted already."""
        return self._redacted(clean_text(_str(text), LOOKED_AT))

    def exact(self, text: object, limit: int = PATH_MAX) -> Exact:
        r"""A file name, or an item of a set: what cannot be seen in it is shown as `\x1b`."""
        return Exact(self._redacted(escape_path(_str(text)[:limit])))

    def exacts(self, texts: Iterable[object] | None, most: int) -> list[str]:
        """The first `most` of several file names or items."""
        return [self.exact(one) for one, _ in zip(texts or (), range(most), strict=False)]

    def _redacted(self, text: str) -> str:
        return redact(text, self._extra).text if self._redacting else text


def _str(text: object) -> str:
    return "" if text is None else str(text)[:LOOKED_AT]


def ident(text: object) -> str:
    """An identifier, as it is but for what could act on a reader."""
    return harmless(clean_line(_str(text)[: 2 * ID_MAX], ID_MAX))


def reading(value: Any) -> Any:
    """The same answer for a reader: what is exact in its data is harmless here."""
    if isinstance(value, dict):
        told = dict[str, Any]()
        for key, one in value.items():
            name = reading(key)
            while name in told:  # two names that differ only in what is not shown
                name += "'"
            told[name] = reading(one)
        return told
    if isinstance(value, list):
        return [reading(one) for one in value]
    return harmless(value) if isinstance(value, Exact) else value


def compact(value: Any) -> str:
    """JSON in one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def size(value: Any) -> int:
    """How many bytes a value is as JSON."""
    return len(compact(value).encode("utf-8", "replace"))


def bounded(answer: dict[str, Any], most: int = BYTES_MAX) -> dict[str, Any]:
    """The answer within `most` bytes: the largest fields are cut, and `truncated` names them."""
    held, cut = dict(answer), set[str]()
    while size(held) + 200 > most:
        sizes = {key: size(one) for key, one in held.items() if _can_shrink(one)}
        if not sizes:
            break
        largest = max(sizes, key=lambda key: sizes[key])
        held[largest] = _shorter(held[largest])
        cut.add(largest)
    return held | {"truncated": sorted(cut)} if cut else held


def _can_shrink(value: Any) -> bool:
    if isinstance(value, Exact):
        return False
    return isinstance(value, str | list | dict) and len(value) > 1


def _shorter(value: Any) -> Any:
    keep = len(value) * 9 // 10
    if isinstance(value, dict):
        return dict(list(value.items())[:keep])
    return value[:keep]
