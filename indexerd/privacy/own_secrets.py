"""Removes the user's own kinds of secrets (`[redact] extra_patterns`) from what is searched.

Built-in kinds go as well, whether or not the text that is sent is redacted: an index needs no
secrets. A mark of the patterns tells what must be stored again when they change. Paths that
programs open (the file, the directory, the command) stay whole; what people see in their place is
redacted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from indexerd.privacy.patterns import compile_patterns
from indexerd.privacy.redact import redact, with_shown
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol import limits

_TEXTS = dict.fromkeys(("name", "metaName", "model"), limits.NAME_MAX)
_TEXTS |= dict.fromkeys(("firstUserMessage", "agentTitle"), limits.FIRST_MESSAGE_MAX)
_TEXTS |= dict.fromkeys(("gitBranch", "models", "toolsUsed"), limits.WORD_MAX)
_TEXTS |= dict.fromkeys(("filesRead", "filesModified"), limits.PATH_MAX)
_TEXTS |= {"description": limits.DESCRIPTION_MAX, "tags": limits.TAG_MAX}
_TEXTS |= {"toolUses": limits.USE_MAX}


class StoredRow(NamedTuple):
    """A session's row, and the other texts by which the session is found."""

    row: dict[str, Any]
    summary: str
    aliases: tuple[str, ...]


class OwnSecrets:
    """The patterns in force; `mark` is empty if the user has none."""

    def __init__(self, patterns: Callable[[], Sequence[str]]) -> None:
        self._patterns = patterns
        self.renew()

    def renew(self) -> None:
        """Read the patterns of the settings."""
        now = sorted(set(self._patterns()))
        self._extra = compile_patterns(now)
        digest = blake2b(json.dumps(now).encode(), digest_size=6).hexdigest()
        self.mark = f"~{digest}" if now else ""

    def _redacted(self, text: str) -> str:
        return redact(text, self._extra).text

    def message(self, text: str, limit: int) -> str:
        return clean_text(self._redacted(text), limit)

    def written(self, written: StoredRow) -> StoredRow:
        """Clean a row and its texts; built-in kinds were removed before."""
        if not self.mark:
            return written
        row = {
            key: self._clean(value, _TEXTS[key]) if key in _TEXTS else value
            for key, value in written.row.items()
        }
        return StoredRow(
            with_shown(row, self._redacted),
            self._clean(written.summary, limits.SUMMARY_MAX),
            tuple(self._clean(one, limits.NAME_MAX) for one in written.aliases),
        )

    def _clean(self, value: Any, most: int) -> Any:
        """Clean a value's texts, and drop a last word that was cut: it may be half a secret."""
        if isinstance(value, dict):
            return {self._clean(key, most): self._clean(one, most) for key, one in value.items()}
        if isinstance(value, list):
            return [self._clean(one, most) for one in value]
        if not isinstance(value, str):
            return value
        if len(value) >= most - 1 and " " in value and not value.endswith(" …"):
            value = value.rstrip("…").rpartition(" ")[0] + " …"
        return clean_text(self._redacted(value), most)
