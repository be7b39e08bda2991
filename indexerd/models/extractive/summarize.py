"""Names, descriptions and summaries without a language model.

Every sentence was said in the session (shortened at most) or stands in the earlier summary that is
continued; our own words are labels. Space goes first to what cannot be found elsewhere: of rules,
decisions and exact facts the oldest are kept, of progress the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from indexerd.events import Facts, Stretch
from indexerd.meta.model import Metadata
from indexerd.models.extractive import lexicon
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
KINDS = (GOAL, CHOSEN, RULES, EXACT, DONE, ENDED, NEXT, DOING, BLOCKED)  # who has room first
ITEM_MAX = 240  # characters
CHECKPOINT_MAX, DESCRIBED_MAX = 16_000, 3600  # characters of any summary, of a session's
_CHARS = 4  # of a token
_RECENT = 6  # messages whose open ends are still open
_ASKS, _LEADS = ("?", "？"), (":", "：")  # noqa: RUF001 - of other scripts
_FACTS, _OPEN = (CHOSEN, RULES, EXACT), (BLOCKED, DOING, NEXT)
_LAYOUTS = {  # heading, what stands below it, its share of the room
    "session": (
        ("## Goal", (GOAL,), 0.15),
        ("## Key Decisions", _FACTS, 0.45),
        ("## Outcome", (DONE, ENDED), 0.25),
        ("## Next Steps", _OPEN, 0.15),
    ),
    "segment": (
        ("**Goal**", (GOAL,), 0.2),
        ("**Actions**", (DONE,), 0.18),
        ("**Decisions and discoveries**", _FACTS, 0.4),
        ("**End state**", (ENDED, *_OPEN), 0.22),
    ),
    "checkpoint": (
        ("## Goal", (GOAL,), 0.1),
        ("## Constraints & Preferences", (RULES,), 0.18),
        ("## Progress", (), 0.0),
        ("### Done", (DONE, ENDED), 0.14),
        ("### In Progress", (DOING,), 0.04),
        ("### Blocked", (BLOCKED,), 0.02),
        ("## Key Decisions", (CHOSEN,), 0.27),
        ("## Next Steps", (NEXT,), 0.05),
        ("## Critical Context", (EXACT,), 0.2),
    ),
    "turn": (
        ("## Original Request", (GOAL,), 0.35),
        ("## Progress So Far", (DONE, ENDED), 0.25),
        ("## Context Needed to Continue", (*_FACTS, *_OPEN), 0.4),
    ),
}
_LAYOUTS["branch"] = _LAYOUTS["checkpoint"][:-1]
_SPARSE = ("session", "segment")  # without headings that nothing stands below
_LEAST = {"segment": 420, "turn": 500, "checkpoint": 1600, "branch": 1200}  # characters always had

Items = dict[str, list[str]]

_OF_USERS = ((CHOSEN, lexicon.DECIDED), (RULES, lexicon.RULE), (EXACT, lexicon.EXACT))
_OF_AGENTS = (
    (BLOCKED, lexicon.STUCK),
    (NEXT, lexicon.OPEN),
    (CHOSEN, lexicon.DECIDED),
    (DONE, lexicon.RESULT),
    (RULES, lexicon.RULE),
    (EXACT, lexicon.EXACT),
)


def _sort(messages: Sequence[tuple[str, str]], focus: str = "") -> Items:
    """Sort what was said by what a summary would call it, in the order in which it was said."""
    found: Items = {name: [] for name in KINDS}
    wanted = topics(focus[:2000])
    for number, (role, text) in enumerate(messages):
        said, user = sentences(text), role == "user"
        recent = len(messages) - number <= _RECENT
        cues = _OF_USERS if user else _OF_AGENTS[0 if recent else 2 :]
        request = next((one for one in said[:40] if len(topics(one)) > 1), "") if user else ""
        found[GOAL] += [request] * bool(request)
        ended: list[str] = []
        for one in said:
            states = topics(one) and not one.endswith(_ASKS + _LEADS)
            if not states or lexicon.PLAN.match(one) or (one is request and not found[GOAL][1:]):
                continue
            kind = next((kind for kind, cue in cues if cue.search(one)), "")
            ended += [one] * (kind == DONE or not (kind or user or ended))
            if kind != DONE and (kind or wanted & topics(one)):
                found[kind or EXACT].append(one)
        if not user and said:
            found[DONE] += [one for one in found[ENDED] if lexicon.RESULT.search(one)]
            found[ENDED] = ended
        found[DOING] = [
            one for one in said[-1:] if user or lexicon.PLAN.match(one) or one.endswith(_ASKS)
        ]
    return {name: _distinct([*items[:100], *items[100:][-100:]]) for name, items in found.items()}


def _distinct(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Return the items that are not known in the same words, each once, short enough to list."""
    found = {_words(one): "" for one in known}
    for one in items:
        found.setdefault(_words(one), clip(one.rstrip(":：") or one, ITEM_MAX))  # noqa: RUF001 - wide
    return [one for one in found.values() if one]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower())) or text


_HEADINGS = (  # what a heading announces; the first that fits counts
    (RULES, r"constraint|preference|instruction|requirement|rule"),
    (BLOCKED, r"block|obstacle|stuck"),
    (DOING, r"in progress|ongoing|current(?:ly)?\b(?! state)|doing|underway"),
    (NEXT, r"next|todo|to do|remaining|pending|open|follow|unresolved"),
    (CHOSEN, r"decision|decided|choices"),
    (DONE, r"done|progress|accomplish|complet|outcome|result|action|end state|current state"),
    (EXACT, r"context|discover|finding|file|critical|technical|fact|learn|note"),
    (GOAL, r"goal|objective|request|purpose|task|intent|overview|summary"),
)
_HEAD = re.compile(r"(?:#{1,6}\s+(.{1,120})|\*\*([^*]{1,80}?):?\*\*:?|([A-Z][\w &]{2,40}):)\s*")
_BULLET = re.compile(r"(\s*)(?:[-*+•]|\d{1,3}[.)])\s+(?:\[([ xX])\]\s+)?")
_FILES = re.compile(r"<(read|modified)-files>.*?(?:</\1-files>|\Z)", re.DOTALL)
_NONE = re.compile(r"[\W_]*(?:none|n/?a|nothing)?[\W_]*|```.*", re.IGNORECASE)


def _earlier(summary: str) -> Items:
    """Take a summary by any hand apart; what stands before any heading is its goal."""
    found: Items = {name: [] for name in KINDS}
    name, place, goes_on = GOAL, found[GOAL], False
    for line in clean_text(_FILES.sub("\n", summary[:60_000]), 60_000).split("\n")[:2000]:
        if head := _HEAD.fullmatch(line):
            low = (head[1] or head[2] or head[3]).lower()
            known = next((kind for kind, cues in _HEADINGS if re.search(cues, low)), None)
            name, goes_on = known or (EXACT if name == GOAL else name), False
            continue
        bullet = _BULLET.match(line)
        body = tidy(line[bullet.end() :] if bullet else line)
        if _NONE.fullmatch(body):
            goes_on = False
        elif goes_on and (bullet is None or bullet[1]):  # it belongs to the item before it
            place[-1] = clip(f"{place[-1]} {body}", 2 * ITEM_MAX)
        else:
            box = bullet[2] if bullet and name in (DONE, DOING) else None
            place = found[{None: name, " ": DOING}.get(box, DONE)]
            place.append(body)
            goes_on = True
    return {name: _distinct(items[:100]) for name, items in found.items()}


def _settle(old: Items, new: Items) -> None:
    """Move what was begun, stuck or next to what is done, where the new part says so."""
    ended = [topics(one) for one in new[DONE] + new[ENDED]]
    for name in _OPEN:
        for one in list(old[name]):
            mine = topics(one)
            over = any(2 * len(mine & done) > len(mine) for done in ended)
            old[DONE] += [one] * over
            if over or one.endswith(_ASKS) or lexicon.PLAN.match(one):
                old[name].remove(one)


def _written(kind: str, old: Items, new: Items, room: int) -> str:
    """Fill each section up to its share, and with what those before it left over."""
    layout, kept, over = _LAYOUTS[kind], dict[str, list[str]](), 0
    room -= sum(len(head) + 9 for head, _, _ in layout)
    filled = (section for section in layout if section[1])
    for head, kinds, share in sorted(filled, key=lambda one: KINDS.index(one[1][0])):
        mine = int(share * room) + over
        said = [one for items in kept.values() for one in items]
        before = _distinct((one for name in kinds for one in old.get(name, ())), said)
        now = _distinct((one for name in kinds for one in new[name]), said + before)
        if kinds[0] in (GOAL, *_FACTS):
            first = _taken(before, int(0.7 * mine) if now else mine)
            kept[head] = first + _taken(now, mine - _size(first))
        else:
            kept[head] = _taken([*before, *now][::-1], mine)[::-1]
        over = mine - _size(kept[head])
    parts = list[str]()
    for head, kinds, _ in layout:
        items = [f"- {one}" for one in kept.get(head, ())]
        if items or kind not in _SPARSE:
            parts.append("\n".join([head, *(items or ["(none)"] * bool(kinds))]))
    return ("\n" if kind == "segment" else "\n\n").join(parts) or "(none)"


def _size(items: Iterable[str]) -> int:
    return sum(len(one) + 3 for one in items)


def _taken(items: Iterable[str], room: int) -> list[str]:
    """Return items in their order as far as there is room; the first one may be cut."""
    found: list[str] = []
    for one in items:
        left = room - _size(found) - 3
        if len(one) <= left or (not found and left > 40):  # noqa: PLR2004 - that still says something
            found.append(clip(one, left))
    return found


def summarize(stretch: Stretch) -> str:
    """Summarize a stretch as Markdown in the layout of its kind, in at most `max_tokens`.

    A checkpoint carries the earlier summary on; a segment or a turn uses it only as context.
    """
    kind = stretch.kind if stretch.kind in _LEAST else "segment"
    new, old = _sort(stretch.messages, stretch.instructions), _earlier(stretch.previous)
    aim = int(0.3 * sum(len(text) for _, text in stretch.messages))
    if kind in ("checkpoint", "branch"):
        _settle(old, new)
        aim += min(len(stretch.previous), CHECKPOINT_MAX)
    else:
        known = [one for items in old.values() for one in items]
        new, old = {name: _distinct(items, known) for name, items in new.items()}, {}
    if kind == "turn" and not new[GOAL]:  # whatever it is, it is what was asked for
        asked = next((text for role, text in stretch.messages if role == "user"), "")
        new[GOAL] = [one for one in [clean_line(asked[:960], 480)] if one]
    most = _CHARS * stretch.max_tokens
    text = _written(kind, old, new, min(most, CHECKPOINT_MAX, max(_LEAST[kind], aim)))
    return text if len(text) <= most else text[:most].rpartition("\n")[0] or clip(text, most)


_PLANNED = re.compile(
    r"^#{1,3}[ \t]+(?:implementation[ \t]+)?plan\b[ \t:—-]*(?:for[ \t]+)?(\S[^\n]{3,160})"
    r"|\AImplement the following plan:\s+#{1,3}[ \t]+(\S[^\n]{3,160})",
    re.IGNORECASE | re.MULTILINE,
)
_CREATED = re.compile(
    r"\bgh (?:pr|issue) create\b[^\n]{0,200}?--title[ =]+[\"']([^\"'\n]{8,160})"
    r"|\b(?:opened|created) (?:PR|pull request|issue) #?\d*[:,]? ?[\"“`]([^\"”`\n]{8,160})",
    re.IGNORECASE,
)
_COMMIT = re.compile(r"\bgit commit\b[^\n]{0,80}?-\w*m[ =]?[\"']([^\"'\n]{8,160})")
_TYPE = re.compile(r"^\w{2,12}(?:\([^)]{0,40}\))?!?: ")  # feat(parser): …


def describe(facts: Facts) -> Metadata:
    """Describe a session from its facts alone: valid for any, always the same for the same."""
    new, old = _sort(facts.messages), _earlier(facts.previous_summary or "")
    changed = _shown_paths(facts.files_modified, facts.cwd)
    files = changed or _shown_paths(facts.files_read, facts.cwd)
    label = "Changed" if changed else "Read"
    goals = old[GOAL] + new[GOAL]
    name = next(_titles(facts, goals[:1], changed), "Conversation without a topic")
    new[GOAL] = new[GOAL] or [name]
    summary = _written("session", old, new, DESCRIBED_MAX)
    if files:
        summary += f"\n\n## Files\n- {label}: " + ", ".join(f"`{clip(f, 100)}`" for f in files)
    ends = new[DONE] + new[ENDED]
    asked = {"Asked": goals[:1], "Outcome": ends[-1:], "Open": [] if ends else new[DOING][:1]}
    said = [f"{head}: {_sentence(one)}" for head, texts in asked.items() for one in texts]
    users = sum(role == "user" for role, _ in facts.messages)
    done = f"; {label.lower()} {', '.join(clip(_base(one), 60) for one in files[:3])}"
    said.append(f"{users} request{'s' * (users != 1)}{done * bool(files)}.")
    return Metadata(
        name=name,
        description=" ".join(said),
        summary=summary[:SUMMARY_MAX],
        tags=_tags(facts, files),
    )


def _titles(facts: Facts, goals: Sequence[str], changed: Sequence[str]) -> Iterator[str]:
    """Yield what a session may be called, best first.

    Titles that somebody gave come first: the agent's own, a plan's, that of a pull request or an
    issue, the subject of the last commit. Then the request, and what there is.
    """
    texts = [text[:60_000] for _, text in facts.messages]
    ran = [*facts.commands, *texts]
    given = [facts.title, *_hits(_PLANNED, texts), *_hits(_CREATED, ran)]
    given += _hits(_COMMIT, ran)[-1:]
    found = [*(_TYPE.sub("", one) for one in given), *goals]
    found += [one for text in texts[:20] for one in sentences(text) if len(topics(one)) > 1][:1]
    found += [f"Changes to {_base(one)}" for one in changed[:1]]
    found += [f"Conversation in {one}" for one in [_base(clean_line(facts.cwd[-400:], 400))] if one]
    for text in found:
        name = headline(clean_line(text, 400))
        if (" " in name or not name.isascii()) and any(map(str.isalpha, name)):
            yield name


def _hits(pattern: re.Pattern[str], texts: Iterable[str]) -> list[str]:
    return [next(filter(None, hit.groups())) for text in texts for hit in pattern.finditer(text)]


def _shown_paths(paths: Sequence[str], cwd: str) -> list[str]:
    """Return file names, relative to the session's directory where they are below it."""
    base = cwd.rstrip("/") + "/"
    shown = (plain(clean_line(path[:600].removeprefix(base), 160)) for path in paths[:8])
    return [one for one in shown if one]


def _base(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _sentence(text: str) -> str:
    short = clip(plain(text), 260).rstrip(" ,;:")
    return short if short[-1:] in ".!?…。！？" else f"{short}."  # noqa: RUF001 - wide


def _tags(facts: Facts, files: Sequence[str]) -> list[str]:
    typed = [text[:8000] for role, text in facts.messages if role == "user"][:200]
    found = [
        *tickets("\n".join(typed))[:3],
        *key_words((" ".join(sentences(text)) for text in typed), 6),
        *(_base(one).lower() for one in files[:2]),
        _base(clean_line(facts.cwd[-400:], 400)).lower(),
    ]
    tags = list(dict.fromkeys(tag for one in found if (tag := plain(one)[:40].strip())))[:10]
    more = [one for one in ("conversation", "agent session", "untagged") if one not in tags]
    return tags + more[: max(0, TAGS_MIN - len(tags))]
