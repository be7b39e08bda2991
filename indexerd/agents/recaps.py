"""What an agent's own model told of a session so far, as one line that may be stored and shown."""

from __future__ import annotations

import re

from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import clean_line

RECAP_MAX = 600  # characters
_READ = 20_000  # characters of a text
# The first section of a compaction's summary, in Claude Code and in pi.
_GOAL = re.compile(
    r"(?:Primary Request and Intent:?\**:?|^#{1,3} Goal)\s{1,9}(.{20,4000}?)"
    r"(?:\n(?:\*\*)?(?:2\.|#)|\Z)",
    re.DOTALL | re.MULTILINE,
)
_ITEM = re.compile(r"^\s*(?:[-*] |\w[.)] )")


def recap(text: str) -> str:
    """Clean and redact what an agent told of a session."""
    return clean_line(redact(text[:_READ]).text, RECAP_MAX)


def goal_in(summary: str) -> str:
    """Return what a compaction's summary says that the session is about; a list gets semicolons."""
    goal, text = _GOAL.search(summary[:_READ]), ""
    for line in goal[1].split("\n") if goal else ():
        rest = _ITEM.sub("", line).strip()
        listed = rest != line.strip() and text and not text.endswith(":")
        text = f"{text.rstrip('.')}; {rest}" if rest and listed else f"{text} {rest}".strip()
    whole = clean_line(redact(text.replace("**", "")).text, 2 * RECAP_MAX)
    if len(whole) <= RECAP_MAX:
        return whole
    return f"{whole[: RECAP_MAX - 1].rpartition(' ')[0] or whole[: RECAP_MAX - 1]}…"
