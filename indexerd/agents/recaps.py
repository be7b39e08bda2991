"""What an agent's own model told of a session so far, as one line that may be stored and shown."""

from __future__ import annotations

import re

from indexerd.entries import ASKED
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
_USER = r"(?:the )?user(?: \([^)]{0,40}\))?"
_LED_IN = re.compile(  # "The user had two main requests: Request 1: ", "The user's goal is to "
    r"\A(?:(?:(?:(?:the|this) )?session (?:resumed|continu\w+)\b[^.:]{0,80}[.:]"
    r"|\(continued[^)]{0,60}\)"
    r"|(?:the )?(?:user|main)\b[^.:;]{0,80}\b(?:requests|tasks|intents|goals)\b[^.:;]{0,60}:"
    r"|(?:the )?(?:main|first|original|initial|primary) (?:request|task|intent|goal)"
    r"(?: \([^)]{0,60}\))?:"
    rf"|{_USER}'s [\w ]{{0,30}}(?:request|task|intent|goal) (?:is|was)(?: to)?"
    rf"|{_USER} (?:has |had )?(?:initially |first )?"
    r"(?:asked|wants?|wanted|needs|needed|requested)(?: me)?(?: to| for| that)?:?"
    r"|(?:initial|initially|completed|request \d{1,2}):|[a1][.)])[;\s]{1,3}){1,4}",
    re.IGNORECASE,
)


def recap(text: str) -> str:
    """Clean and redact what an agent told of a session."""
    return clean_line(redact(text[:_READ]).text, RECAP_MAX)


def goal_in(summary: str) -> str:
    """Return ASKED and what a compaction's summary says was asked for, "" if it does not say.

    A list gets semicolons.
    """
    goal, text = _GOAL.search(summary[:_READ]), ""
    for line in goal[1].split("\n") if goal else ():
        rest = _LED_IN.sub("", _ITEM.sub("", line).strip())
        listed = rest != line.strip() and text and not text.endswith(":")
        text = f"{text.rstrip('.')}; {rest}" if rest and listed else f"{text} {rest}".strip()
    asked = clean_line(redact(text.replace("**", "")).text, 2 * RECAP_MAX)
    whole = asked and ASKED + (_LED_IN.sub("", asked) or asked)
    if len(whole) <= RECAP_MAX:
        return whole
    return f"{whole[: RECAP_MAX - 1].rpartition(' ')[0] or whole[: RECAP_MAX - 1]}…"
