"""An earlier summary, taken apart: its items by what they are.

In: the summary of an earlier stretch, by us, by a real model in pi's headings, or by another
agent (opencode's Goal, Instructions, Discoveries, Accomplished, Relevant files), or any Markdown.
Out: its items, one line each, under our own names. What surprised us: sub-bullets and wrapped
lines belong to the item before them, and pi appends its lists of files as tags.
"""

from __future__ import annotations

import re

from indexerd.models.phrases import clip, tidy
from indexerd.privacy.late import late
from indexerd.privacy.sanitize import clean_text

SUMMARY_CHARS = 60_000  # of an earlier summary that are looked at
EARLIER_MAX = 500  # characters of one item
ITEMS_MAX = 400

GOAL, RULES, DONE, DOING, BLOCKED = "goal", "rules", "done", "doing", "blocked"
CHOSEN, NEXT, EXACT = "chosen", "next", "exact"
NAMES = (GOAL, RULES, DONE, DOING, BLOCKED, CHOSEN, NEXT, EXACT)

# What a heading holds; the first that fits counts.
_HEADINGS = (
    (RULES, r"constraint|preference|instruction|requirement|rule"),
    (BLOCKED, r"block|obstacle|stuck"),
    (DOING, r"in progress|ongoing|current(?:ly)?\b(?! state)|doing|underway"),
    (NEXT, r"next|todo|to do|remaining|pending|open|follow|unresolved"),
    (CHOSEN, r"decision|decided|choices"),
    (DONE, r"done|progress|accomplish|complet|outcome|result|action|end state|current state"),
    (EXACT, r"context|discover|finding|file|critical|technical|fact|learn|note"),
    (GOAL, r"goal|objective|request|purpose|task|intent|overview|summary"),
)
_HEAD = late(r"(?:#{1,6}\s+(.{1,120})|\*\*([^*]{1,80}?):?\*\*:?|([A-Z][\w &]{2,40}):)\s*")
_BULLET = late(r"(\s*)(?:[-*+\u2022]|\d{1,3}[.)])\s+(?:\[([ xX~])\]\s+)?")
_FILES = late(r"<(read|modified)-files>.*?(?:</\1-files>|\Z)", re.DOTALL)
_NONE = late(r"[\W_]*(?:none|n/?a|nothing explicit was found|nothing)?[\W_]*", re.IGNORECASE)
_FENCE = late(r"\s*(?:`{3}|~{3}|-{3,}\s*$)")


def parts_of(summary: str) -> dict[str, list[str]]:
    """The items of a summary by name, in their order; before any heading they are its goal."""
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    text = _FILES.sub("\n", summary[:SUMMARY_CHARS])
    name, fresh, count = GOAL, True, 0
    for line in clean_text(text, SUMMARY_CHARS).split("\n"):
        head = _HEAD.fullmatch(line)
        if head:
            name, fresh = _named(head[1] or head[2] or head[3], name), True
            continue
        bullet = _BULLET.match(line)
        body = tidy(line[bullet.end() :] if bullet else line)
        if _FENCE.match(line) or _NONE.fullmatch(body):
            fresh = True
            continue
        place = _ticked(bullet, name)
        nested = bullet is None or len(bullet[1]) > 1
        if nested and not fresh and found[place]:
            found[place][-1] = clip(f"{found[place][-1]} {body}", EARLIER_MAX)
        elif (count := count + 1) <= ITEMS_MAX:
            found[place].append(clip(body, EARLIER_MAX))
        fresh = False
    return found


def _named(title: str, before: str) -> str:
    """What a heading holds; an unknown one below another holds what that one does."""
    low = title.lower()
    found = next((name for name, words in _HEADINGS if re.search(words, low)), None)
    return found or (EXACT if before == GOAL else before)


def _ticked(bullet: re.Match[str] | None, name: str) -> str:
    """A box that is ticked, or is not, says more than the heading it stands under."""
    if bullet is None or bullet[2] is None or name not in (DONE, DOING, NEXT):
        return name
    return DONE if bullet[2] in "xX" else DOING if name == DONE else name
