"""Make names, descriptions and summaries without a language model.

Every sentence is from the session, perhaps shortened, or from the earlier summary that is
continued; only labels are our own. Cue words sort sentences into kinds. Of rules, decisions and
exact facts the oldest are kept first, of everything else the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from indexerd.entries import Facts, Stretch
from indexerd.meta.model import Metadata
from indexerd.models.extractive.sentences import (
    clip,
    headline,
    key_words,
    plain,
    sentences,
    tickets,
    tidy,
    topics,
)
from indexerd.privacy.sanitize import clean_line, clean_text
from indexerd.protocol.limits import SUMMARY_MAX, TAGS_MIN

GOAL, RULES, DONE, ENDED, DOING = "goal", "rules", "done", "ended", "doing"
BLOCKED, CHOSEN, NEXT, EXACT = "blocked", "chosen", "next", "exact"
KINDS = (GOAL, RULES, DONE, ENDED, DOING, BLOCKED, CHOSEN, NEXT, EXACT)
ITEM_MAX = 240  # characters
SUMMED_MAX, DESCRIBED_MAX = 16_000, 3600  # characters of any summary, of a session's
_RECENT = 6  # newest messages, of which blocked and next items still count
_NO_STATEMENT = ("?", "？", ":", "：")  # noqa: RUF001 - of other scripts
_FACTS, _OPEN = (CHOSEN, RULES, EXACT), (BLOCKED, DOING, NEXT)
_LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {  # heading -> kinds of items below it
    "session": {
        "## Goal": (GOAL,),
        "## Key Decisions": _FACTS,
        "## Outcome": (DONE, ENDED),
        "## Next Steps": _OPEN,
    },
    "segment": {
        "**Goal**": (GOAL,),
        "**Actions**": (DONE,),
        "**Decisions and discoveries**": _FACTS,
        "**End state**": (ENDED, *_OPEN),
    },
    "checkpoint": {
        "## Goal": (GOAL,),
        "## Constraints & Preferences": (RULES,),
        "## Progress": (),
        "### Done": (DONE, ENDED),
        "### In Progress": (DOING,),
        "### Blocked": (BLOCKED,),
        "## Key Decisions": (CHOSEN,),
        "## Next Steps": (NEXT,),
        "## Critical Context": (EXACT,),
    },
    "turn": {
        "## Original Request": (GOAL,),
        "## Progress So Far": (DONE, ENDED),
        "## Context Needed to Continue": (*_FACTS, *_OPEN),
    },
}
_LAYOUTS["branch"] = dict([*_LAYOUTS["checkpoint"].items()][:-1])
_ANNOUNCED = {
    head.strip("#* "): kinds[0]
    for layout in _LAYOUTS.values()
    for head, kinds in layout.items()
    if kinds
}
_SPARSE = ("session", "segment")  # without empty headings

_CUES = {  # the first match gives the kind of a sentence
    BLOCKED: r"blocked|blocker|stuck|waiting (?:for|on)|can(?:not|'t) proceed|still fail\w*",
    NEXT: r"remain(?:s|ing)|to ?do|next steps?|still (?:need|ha[vs]|to|missing|open)\w*|not yet"
    r"|left to|follow-?ups?|pending|noch (?:offen|zu)|reste à|pendiente",
    CHOSEN: r"decided|decision|cho(?:se|osing|sen)|opted (?:for|to)|will use|settled on|agreed"
    r"|(?:going|go|went) with|let(?:'s| us) (?:use|keep|drop|go)|rather than|instead of|ruled out"
    r"|(?:fix|solution|root cause) (?:is|was)|rejected|switch(?:ed|ing)? to|suggest|recommend"
    r"|entschieden|beschlossen|(?:an)?statt|wir nehmen|décidé|au lieu de|decidido|en lugar de",
    DONE: r"fixed|added|implemented|created|wrote|updated|removed|renamed|moved|migrated|resolved"
    r"|refactored|split|deployed|merged|committed|completed?|done|finished|works|pass(?:e[sd])?"
    r"|restored|verified|confirmed|shipped|installed|changed|replaced|extracted|retries"
    r"|behoben|umgesetzt|erledigt|erstellt|läuft|corrigé|ajouté|terminé|corregido|añadido",
    RULES: r"must(?:n't)?|never|always|forbidden|not allowed|mandatory|strictly|requirements?"
    r"|constraints?|at most|at least|no (?:more|less|later) than|make sure|keep the|do(?: not|n't)"
    r"|muss|darf|niemals|immer|doit|jamais|debe|nunca",
}
_KIND = {kind: re.compile(rf"\b(?:{cue})(?!\w)", re.IGNORECASE) for kind, cue in _CUES.items()}
_KIND[EXACT] = re.compile(  # exact facts: paths, ports, errors, causes
    r"(?<![\w/])(?:~|\.{0,2})/[\w.@+-]+(?:/[\w.@+-]+)+|\b[\w-]+/[\w./-]*\w\.\w{1,5}\b|https?://\S"
    r"|\bports?\s+`?\d|\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\b|\b[A-Z]{2,10}-\d{1,6}\b"
    r"|\b\w*(?:Error|Exception)\b|\b(?:exit|status|error) (?:code )?\d|\bv?\d+\.\d+\.\d"
    r"|\b(?:root cause|caused by|turn(?:s|ed) out|because|found that)\b"
)
_PLAN = re.compile(  # announces work: not a result
    r"(?:(?:ok(?:ay)?|now|first|next|then|good|great|also|so)[\s,.!:]+)*"
    r"(?:let me|let's|i'll|i will|i'm (?:going|now)|i (?:need|want|have) to|looking at|checking"
    r"|reading|waiting|now i|ich werde|lass mich|je vais|voy a)(?!\w)",
    re.IGNORECASE,
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
        first, results = list[str](), list[str]()
        for sentence in lines:
            if not topics(sentence) or sentence.endswith(_NO_STATEMENT) or _PLAN.match(sentence):
                continue
            cued = (kind for kind, cue in _KIND.items() if cue.search(sentence))
            fits = (kind for kind in cued if kind not in skipped)
            if kind := next(fits, EXACT if wanted and wanted & topics(sentence) else ""):
                (results if kind == DONE else parts[kind]).append(sentence)
            else:
                first = first or [sentence]
        if not user and lines:
            parts[DONE] += last
            last, parts[ENDED] = results, results or first
    if lines and (messages[-1][0] == "user" or _PLAN.match(lines[-1]) or lines[-1].endswith("?")):
        parts[DOING] = lines[-1:]
    return {kind: _distinct(items) for kind, items in parts.items()}


def _distinct(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Return the items that are not in `known`, shortened and without repeats."""
    distinct = {_words(item): "" for item in known}
    for item in items:
        distinct.setdefault(_words(item), clip(item.rstrip(":：") or item, ITEM_MAX))  # noqa: RUF001 - wide
    return [item for item in distinct.values() if item]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower())) or text


_HEAD = re.compile(r"#{1,6}\s+(.{1,120})|\*\*([^*]{1,80})\*\*:?\s*")
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
_FILES = re.compile(r"<(read|modified)-files>.*?(?:</\1-files>|\Z)", re.DOTALL)
_NONE = re.compile(r"[\W_]*(?:none|n/?a|nothing)?[\W_]*|```.*", re.IGNORECASE)


def _earlier(summary: str, new: Items) -> Items:
    """Split an earlier summary into items, without open items that the new part completes.

    Text before any heading is the goal; text below an unknown heading is a fact.
    """
    parts: Items = {kind: [] for kind in KINDS}
    ended = [topics(item) for item in new[DONE] + new[ENDED]]
    kind = GOAL
    for line in clean_text(_FILES.sub("\n", summary[:60_000]), 60_000).split("\n")[:2000]:
        if head := _HEAD.fullmatch(line):
            kind = _ANNOUNCED.get((head[1] or head[2]).strip(" :"), EXACT)
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


_TITLES = (  # titles of plans, pull requests and issues; subjects of commits
    (
        r"^#{1,3}[ \t]+(?:implementation[ \t]+)?plan\b[ \t:—-]*(?:for[ \t]+)?(\S[^\n]{3,160})"
        r"|\AImplement the following plan:\s+#{1,3}[ \t]+(\S[^\n]{3,160})"
    ),
    r"\bgh (?:pr|issue) create\b[^\n]{0,200}?--title[ =]+[\"']([^\"'\n]{8,160})",
    r"\bgit commit\b[^\n]{0,80}?-\w*m[ =]?[\"']([^\"'\n]{8,160})",
)
_TYPE = re.compile(r"^\w{2,12}(?:\([^)]{0,40}\))?!?: ")  # feat(parser): …


def describe(facts: Facts) -> Metadata:
    """Describe a session by its facts; the result is valid for any facts."""
    new = _sort(facts.messages)
    old = _earlier(facts.previous_summary or "", new)
    base = facts.cwd.rstrip("/") + "/"
    paths = [path[:600].removeprefix(base) for path in facts.files_modified or facts.files_read]
    files = [clean for path in paths[:8] if (clean := plain(clean_line(path, 160)))]
    label = "Changed" if facts.files_modified else "Read"
    goals, ends = old[GOAL] + new[GOAL], new[DONE] + new[ENDED]
    name = next(_titles(facts, goals[:1]), "Conversation without a topic")
    new[GOAL] = new[GOAL] or [name]
    summary = _written("session", old, new, DESCRIBED_MAX)
    if files:
        summary += f"\n\n## Files\n- {label}: " + ", ".join(f"`{clip(f, 100)}`" for f in files)
    brief = {"Asked": goals[:1], "Outcome": ends[-1:], "Open": [] if ends else new[DOING][:1]}
    lines = [f"{head}: {_sentence(text)}" for head, texts in brief.items() for text in texts]
    users = sum(role == "user" for role, _ in facts.messages)
    done = f"; {label.lower()} {', '.join(clip(_base(file), 60) for file in files[:3])}"
    lines.append(f"{users} request{'s' * (users != 1)}{done * bool(files)}.")
    return Metadata(
        name=name,
        description=" ".join(lines),
        summary=summary[:SUMMARY_MAX],
        tags=_tags(facts, files),
    )


def _titles(facts: Facts, goals: Sequence[str]) -> Iterator[str]:
    """Yield possible names of a session, best first.

    Given titles come first: the agent's, then the newest of `_TITLES`. Then come the request,
    another sentence of the session, a changed file, and the directory.
    """
    texts, named = [text[:60_000] for _, text in facts.messages], [facts.title]
    for title in _TITLES:
        pattern = re.compile(title, re.IGNORECASE | re.MULTILINE)
        hits = (hit for text in [*facts.commands, *texts] for hit in pattern.finditer(text))
        named += [hit[hit.lastindex or 0] for hit in hits][-1:]
    titles = [_TYPE.sub("", title) for title in named] + [*goals]
    spoken = (sentence for text in texts[:20] for sentence in sentences(text))
    titles += islice((sentence for sentence in spoken if len(topics(sentence)) > 1), 1)
    titles += [f"Changes to {_base(clean_line(path, 400))}" for path in facts.files_modified[:1]]
    if directory := _base(clean_line(facts.cwd[-400:], 400)):
        titles.append(f"Conversation in {directory}")
    for text in titles:
        name = headline(clean_line(text, 400))
        if (" " in name or not name.isascii()) and any(map(str.isalpha, name)):
            yield name


def _base(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _sentence(text: str) -> str:
    short = clip(plain(text), 260).rstrip(" ,;:")
    return short if short[-1:] in ".!?…。！？" else f"{short}."  # noqa: RUF001 - wide


def _tags(facts: Facts, files: Sequence[str]) -> list[str]:
    typed = [text[:8000] for role, text in facts.messages if role == "user"][:200]
    words = [
        *tickets("\n".join(typed))[:3],
        *key_words(" ".join(sentences(text)) for text in typed),
        *(_base(file).lower() for file in files[:2]),
        _base(clean_line(facts.cwd[-400:], 400)).lower(),
    ]
    tags = list(dict.fromkeys(tag for word in words if (tag := plain(word)[:40].strip())))[:10]
    more = [word for word in ("conversation", "agent session", "untagged") if word not in tags]
    return tags + more[: max(0, TAGS_MIN - len(tags))]
