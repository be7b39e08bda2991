"""Secrets of the user's own kinds (`[redact] extra_patterns`), in what is kept to be searched.

In: the patterns of the settings, and texts. Out: the texts without what fits one, and a mark that
is another for other patterns: kept beside what was indexed, it tells what has to be indexed anew.
Built-in kinds are taken out as well, whether or not a text that is sent is redacted: an index has
no need of secrets. Used by the thread that reads.

Paths that a program goes to are left as they are, the session's file, its directory, the command;
what people are shown in their place is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b

from indexerd.privacy.patterns import compile_patterns
from indexerd.privacy.redact import redact
from indexerd.privacy.redact_paths import with_shown
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol.limits import (
    DESCRIPTION_MAX,
    FIRST_MESSAGE_MAX,
    NAME_MAX,
    SUMMARY_MAX,
    TAG_MAX,
    WORD_MAX,
)
from indexerd.protocol.results import StoredRow
from indexerd.sessions.facts import USE_MAX

_REMEMBERED = 1024  # texts of rows: a row is made anew whenever its session grows
_LINES = {"name": NAME_MAX, "metaName": NAME_MAX, "firstUserMessage": FIRST_MESSAGE_MAX}
_LINES |= {"agentTitle": FIRST_MESSAGE_MAX, "gitBranch": WORD_MAX, "model": NAME_MAX}


class OwnSecrets:
    """Takes them out. `mark` is empty where the user has no patterns."""

    def __init__(self, patterns: Callable[[], Sequence[str]]) -> None:
        self._patterns = patterns
        self._held: tuple[str, ...] = ()
        self._extra: tuple[re.Pattern[str], ...] = ()
        self._clean = lru_cache(_REMEMBERED)(self._redacted)
        self.mark = ""
        self.renew()

    def renew(self) -> bool:
        """Take over the patterns in force; says whether they are others than before."""
        now = tuple(sorted(set(self._patterns())))
        if now == self._held:
            return False
        self._extra, self._held = compile_patterns(now), now
        self._clean.cache_clear()
        digest = blake2b(json.dumps(now).encode(), digest_size=6).hexdigest()
        self.mark = f"~{digest}" if now else ""
        return True

    def _redacted(self, text: str) -> str:
        return redact(text, self._extra).text

    def message(self, text: str, limit: int) -> str:
        """What was said, as it is searched."""
        return clean_text(redact(text, self._extra).text, limit)

    def written(self, written: StoredRow) -> StoredRow:
        """A row and the texts beside it; secrets of built-in kinds are in neither."""
        if not self.mark:
            return written
        row = dict(written.row)
        for key, most in _LINES.items():
            if row.get(key):
                row[key] = self._line(row[key], most)
        if row.get("description"):
            row["description"] = clean_text(
                self._clean(_whole(row["description"], DESCRIPTION_MAX)), DESCRIPTION_MAX
            )
        row["tags"] = [self._line(one, TAG_MAX) for one in row.get("tags", ())]
        for key in ("filesRead", "filesModified"):
            if row.get(key):
                row[key] = [*dict.fromkeys(map(self._clean, row[key]))]
        if row.get("models"):
            row["models"] = [self._line(one, WORD_MAX) for one in row["models"]]
        counts = dict[str, int]()
        for name, count in row.get("toolsUsed", {}).items():
            shown = self._line(name, WORD_MAX)
            counts[shown] = counts.get(shown, 0) + count
        row["toolsUsed"] = counts
        row["toolUses"] = {
            self._line(name, WORD_MAX): [self._line(one, USE_MAX) for one in uses]
            for name, uses in row.get("toolUses", {}).items()
        }
        summary = self._text(written.summary, SUMMARY_MAX)
        aliases = tuple(self._line(one, NAME_MAX) for one in written.aliases)
        row = with_shown(row, self._redacted)
        return written._replace(row=row, summary=summary, aliases=aliases)

    def _text(self, text: str, most: int) -> str:
        return clean_text(self._clean(_whole(text, most)), most)

    def _line(self, text: str, most: int) -> str:
        return clean_line(self._clean(_whole(text, most)), most)


def _whole(text: str, most: int) -> str:
    """Without the last word, where the text may have been cut in it: it may be half a secret."""
    if len(text) < most - 1 or " " not in text or text.endswith(" …"):
        return text
    return text.rstrip("…").rpartition(" ")[0] + " …"
