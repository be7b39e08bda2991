"""The user's own kinds of secrets (`[redact] extra_patterns`), in what is stored to be searched.

Built-in kinds go as well, whether or not the text that is sent is redacted: an index needs no
secrets. A mark tells under which patterns something was stored, and so what is to be stored anew.
Paths that programs go to (the file, the directory, the command) stay whole; what people are shown
in their place does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from indexerd.privacy.patterns import compile_patterns
from indexerd.privacy.redact import redact, with_shown
from indexerd.privacy.sanitize import clean_text
from indexerd.protocol import limits
from indexerd.protocol.results import StoredRow

_TEXTS = dict.fromkeys(("name", "metaName", "model"), limits.NAME_MAX)
_TEXTS |= dict.fromkeys(("firstUserMessage", "agentTitle"), limits.FIRST_MESSAGE_MAX)
_TEXTS |= dict.fromkeys(("gitBranch", "models"), limits.WORD_MAX)
_TEXTS |= {"description": limits.DESCRIPTION_MAX, "tags": limits.TAG_MAX}


class OwnSecrets:
    """Takes them out. `mark` is empty where the user has no patterns."""

    def __init__(self, patterns: Callable[[], Sequence[str]]) -> None:
        self._patterns = patterns
        self._current: tuple[str, ...] = ()
        self._extra: tuple[Any, ...] = ()
        self.mark = ""
        self.renew()

    def renew(self) -> bool:
        """Take over the patterns of the settings; say whether they changed."""
        now = tuple(sorted(set(self._patterns())))
        if now == self._current:
            return False
        self._extra, self._current = compile_patterns(now), now
        digest = blake2b(json.dumps(now).encode(), digest_size=6).hexdigest()
        self.mark = f"~{digest}" if now else ""
        return True

    def _redacted(self, text: str) -> str:
        return redact(text, self._extra).text

    def message(self, text: str, limit: int) -> str:
        """A message as it is searched."""
        return clean_text(self._redacted(text), limit)

    def written(self, written: StoredRow) -> StoredRow:
        """A row and the texts beside it; built-in kinds were taken out of them before."""
        if not self.mark:
            return written
        row = dict(written.row)
        for key, most in _TEXTS.items():
            if found := row.get(key):
                row[key] = (
                    self._text(found, most)
                    if isinstance(found, str)
                    else [self._text(one, most) for one in found]
                )
        for key in {"filesRead", "filesModified"} & row.keys():
            row[key] = [*dict.fromkeys(map(self._redacted, row[key]))]
        tools = Counter[str]()
        for name, count in row.get("toolsUsed", {}).items():
            tools[self._text(name, limits.WORD_MAX)] += count
        row["toolsUsed"] = dict(tools)
        row["toolUses"] = {
            self._text(name, limits.WORD_MAX): [self._text(use, limits.USE_MAX) for use in uses]
            for name, uses in row.get("toolUses", {}).items()
        }
        return StoredRow(
            with_shown(row, self._redacted),
            self._text(written.summary, limits.SUMMARY_MAX),
            tuple(self._text(one, limits.NAME_MAX) for one in written.aliases),
        )

    def _text(self, text: str, most: int) -> str:
        """A text without secrets; nor its last word, where it was cut: that may be half of one."""
        if len(text) >= most - 1 and " " in text and not text.endswith(" …"):
            text = text.rstrip("…").rpartition(" ")[0] + " …"
        return clean_text(self._redacted(text), most)
