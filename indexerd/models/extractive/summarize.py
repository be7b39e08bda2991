"""Summarize a stretch of a conversation without a language model.

Every sentence is from the session, perhaps shortened, or from the earlier summary that is
continued; only labels are our own. Cue words sort sentences into kinds. Of rules, decisions and
exact facts the oldest are kept first, of everything else the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from indexerd.entries import Stretch
from indexerd.models.extractive import lexicon
from indexerd.models.extractive.sentences import bare_words, clip, sentences, tidy, topics
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.sanitize import clean_line, clean_text

GOAL, RULES, DONE, ENDED, DOING = "goal", "rules", "done", "ended", "doing"
BLOCKED, CHOSEN, NEXT, EXACT = "blocked", "chosen", "next", "exact"
TOLD = "told"  # what an earlier turn ended with, if it has no cue: kept last
KINDS = (GOAL, RULES, TOLD, DONE, ENDED, DOING, BLOCKED, CHOSEN, NEXT, EXACT)
ITEM_MAX = 240  # characters
SUMMED_MAX = 16_000  # characters of a summary
_RECENT = 6  # newest messages, of which blocked and next items still count
_NO_STATEMENT = ("?", "？", ":", "：")  # noqa: RUF001 - of other scripts
_FACTS, _OPEN = (CHOSEN, RULES, EXACT), (BLOCKED, DOING, NEXT)
_LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {  # heading -> kinds of items below it
    "segment": {
        "**Goal**": (GOAL,),
        "**Actions**": (TOLD, DONE),
        "**Decisions and discoveries**": _FACTS,
        "**End state**": (ENDED, *_OPEN),
    },
    "checkpoint": {
        "## Goal": (GOAL,),
        "## Constraints & Preferences": (RULES,),
        "## Progress": (),
        "### Done": (TOLD, DONE, ENDED),
        "### In Progress": (DOING,),
        "### Blocked": (BLOCKED,),
        "## Key Decisions": (CHOSEN,),
        "## Next Steps": (NEXT,),
        "## Critical Context": (EXACT,),
    },
    "turn": {
        "## Original Request": (GOAL,),
        "## Progress So Far": (TOLD, DONE, ENDED),
        "## Context Needed to Continue": (*_FACTS, *_OPEN),
    },
}
_LAYOUTS["branch"] = dict([*_LAYOUTS["checkpoint"].items()][:-1])
_ANNOUNCED = {
    head.strip("#* "): next(kind for kind in kinds if kind != TOLD)
    for layout in _LAYOUTS.values()
    for head, kinds in layout.items()
    if kinds
}
# Sections of Claude Code's compactions; "": nothing to take over, as prompts and files are known.
_ANNOUNCED |= {
    "Primary Request and Intent": GOAL,
    "Key Technical Concepts": EXACT,
    "Files and Code Sections": "",
    "Errors and fixes": EXACT,
    "Problem Solving": DONE,
    "All user messages": "",
    "Pending Tasks": NEXT,
    "Current Work": DOING,
    "Optional Next Step": NEXT,
}
_SPARSE = ("segment",)  # without empty headings

_CUES = {  # the first match gives the kind of a sentence
    BLOCKED: lexicon.BLOCKED,
    NEXT: lexicon.NEXT,
    CHOSEN: lexicon.CHOSEN,
    DONE: lexicon.DONE,
    RULES: lexicon.RULES,
    EXACT: lexicon.EXACT,
}
# What is open, planned, proposed or taken back tells no end of a turn.
_NOT_TOLD = (
    *(lexicon.BLOCKED, lexicon.NEXT, lexicon.COMING, lexicon.OFFER, lexicon.MUSING),
    lexicon.TAKEN_BACK,
)

Items = dict[str, list[str]]


def _sort(messages: Sequence[tuple[str, str]], focus: str = "") -> Items:
    """Sort the sentences of messages into the parts of a summary."""
    parts: Items = {kind: [] for kind in KINDS}
    wanted, lines, last = topics(focus[:2000]), list[str](), list[str]()
    for number, (role, text) in enumerate(messages):
        lines, user = sentences(text), role == "user"
        skipped = [BLOCKED, NEXT] if user or len(messages) - number > _RECENT else []
        skipped += [DONE] * user
        if user:
            parts[GOAL] += islice((text for text in lines[:40] if len(topics(text)) > 1), 1)
            parts[TOLD] += [] if last else parts[ENDED]
        first, results = list[str](), list[str]()
        for sentence in lines:
            if (
                not topics(sentence)
                or sentence.endswith(_NO_STATEMENT)
                or lexicon.SPEAKING.match(sentence)
            ):
                continue
            cued = (kind for kind, cue in _CUES.items() if cue.search(sentence))
            fits = (kind for kind in cued if kind not in skipped)
            if kind := next(fits, EXACT if wanted and wanted & topics(sentence) else ""):
                (results if kind == DONE else parts[kind]).append(sentence)
            elif not any(cue.search(sentence) for cue in _NOT_TOLD):
                first = first or [sentence]
        if not user and lines:
            parts[DONE] += last
            last, parts[ENDED] = results, results or first
    if lines and (
        messages[-1][0] == "user" or lexicon.SPEAKING.match(lines[-1]) or lines[-1].endswith("?")
    ):
        parts[DOING] = lines[-1:]
    parts[NEXT] = [item for item in parts[NEXT] if item.strip(" :") not in _ANNOUNCED]
    return {kind: _distinct(items) for kind, items in parts.items()}


def _distinct(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Return the items that are not in `known`, shortened and without repeats."""
    distinct = {_words(item): "" for item in known}
    for item in items:
        distinct.setdefault(_words(item), clip(item.rstrip(":：") or item, ITEM_MAX))  # noqa: RUF001 - wide
    return [item for item in distinct.values() if item]


def _words(text: str) -> str:
    return bare_words(text) or text


_HEAD = lazy_pattern(r"#{1,6}\s+(.{1,120})|\*\*([^*]{1,80})\*\*:?\s*|\d\. ([A-Z][\w ]{1,40}):")
_BY_CLAUDE = "Primary Request and Intent:"
_ASIDE = lazy_pattern(
    r"If you need specific details from before compaction|(?:Please )?[Cc]ontinue the conversation"
)
_BULLET = lazy_pattern(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
_FILES = lazy_pattern(r"<(read|modified)-files>.*?(?:</\1-files>|\Z)", re.DOTALL)
_NONE = lazy_pattern(r"[\W_]*(?:none|n/?a|nothing)?[\W_]*|```.*", re.IGNORECASE)


def _earlier(summary: str, new: Items) -> Items:
    """Split an earlier summary into items, without open items that the new part completes.

    Text before any heading is the goal; text below an unknown heading is a fact.
    """
    parts: Items = {kind: [] for kind in KINDS}
    ended = [topics(item) for item in new[DONE] + new[ENDED]] if summary else []
    kind = GOAL
    text = clean_text(_FILES.sub("\n", summary[:60_000]), 60_000)
    before, mark, sections = text.partition(_BY_CLAUDE)  # first come an introduction, an analysis
    for line in (f"1. {mark}{sections}" if mark else before).split("\n")[:2000]:
        if head := _HEAD.fullmatch(line):
            kind = _ANNOUNCED.get((head[1] or head[2] or head[3]).strip(" :"), EXACT)
            continue
        if not kind or (mark and _ASIDE.match(line)):
            continue
        body = tidy(line[bullet.end() :] if (bullet := _BULLET.match(line)) else line)
        about = topics(body) if kind in _OPEN else frozenset()
        over = any(2 * len(about & done) > len(about) for done in ended)
        if not over and not _NONE.fullmatch(body):
            parts[kind].append(body)
    return {kind: _distinct(items) for kind, items in parts.items()}


def _written(layout: str, old: Items, new: Items, room: int) -> str:
    """Fill the sections of a layout in turns until `room` characters are used.

    At each turn a section takes one goal, four earlier facts and two new ones, or two other items.
    """
    room -= sum(len(head) + 9 for head in _LAYOUTS[layout])
    items: Items = {}
    queue = list[tuple[int, str, str]]()  # turn, heading, item
    for head, kinds in _LAYOUTS[layout].items():
        before = [item for kind in kinds for item in old.get(kind, ())]
        now = [item for kind in kinds for item in new[kind]]
        items[head] = _distinct(before + now)
        if GOAL in kinds:
            queue += [(n, head, item) for n, item in enumerate(items[head])]
        elif any(kind in _FACTS for kind in kinds):
            queue += [(n // 4, head, item) for n, item in enumerate(before)]
            queue += [(n // 2, head, item) for n, item in enumerate(now)]
        else:
            queue += [(n // 2, head, item) for n, item in enumerate(items[head][::-1])]
    kept: dict[str, str] = {}  # the words of an item -> its heading
    for _, head, item in sorted(queue, key=lambda place: place[0]):
        if _words(item) not in kept and len(item) + 3 <= room:
            kept[_words(item)] = head
            room -= len(item) + 3
    parts = list[str]()
    for head, kinds in _LAYOUTS[layout].items():
        lines = [f"- {item}" for item in items[head] if kept.get(_words(item)) == head]
        if lines or layout not in _SPARSE:
            parts.append("\n".join([head, *(lines or ["(none)"] * bool(kinds))]))
    return ("\n" if layout == "segment" else "\n\n").join(parts) or "(none)"


def summarize(stretch: Stretch) -> str:
    """Summarize a stretch as Markdown in the layout of its kind, in at most `max_tokens`.

    A checkpoint or a branch continues the earlier summary; a segment or a turn does not repeat it.
    """
    kind = stretch.kind if stretch.kind in _LAYOUTS else "segment"
    new = _sort(stretch.messages, stretch.instructions)
    old = _earlier(stretch.previous, new)
    if kind not in ("checkpoint", "branch"):
        known = [item for items in old.values() for item in items]
        new, old = {name: _distinct(items, known) for name, items in new.items()}, {}
    if kind == "turn" and not new[GOAL]:  # even "ok" is a request
        request = next((text for role, text in stretch.messages if role == "user"), "")
        new[GOAL] = [goal for goal in [clean_line(request[:960], 480)] if goal]
    most = 4 * stretch.max_tokens  # characters
    text = _written(kind, old, new, min(most, SUMMED_MAX))
    return text if len(text) <= most else text[:most].rpartition("\n")[0] or clip(text, most)
