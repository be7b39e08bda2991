"""A stretch of a conversation, summed up without a language model.

Markdown in the shape that the stretch's kind has: short heads for a segment, pi's headings for a
checkpoint, which takes the earlier summary up. Every bullet was said (shortened at most) or
stands in that summary. It is never longer than asked for. What a reader cannot find again has the
first right to its room: goals, rules, decisions and exact facts each have a share, the oldest of
them first; of progress the newest is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from indexerd.events import Stretch
from indexerd.models.extractive import lexicon
from indexerd.models.extractive.candidates import (
    ASKING,
    BLOCKED,
    CHOSEN,
    DOING,
    DONE,
    ENDED,
    EXACT,
    GOAL,
    NEXT,
    RESULT,
    RULES,
    Candidates,
    Item,
    candidates_of,
    distinct,
    extract_candidates,
    item,
    listed,
    read_turns,
    shown_paths,
)
from indexerd.models.extractive.sentences import clip, topics
from indexerd.privacy.sanitize import clean_line

COMPRESSION = 0.3  # aimed at: characters of the summary to those of the stretch
CHECKPOINT_MAX = 16_000  # characters of any summary
CHARS = 4  # of a token
_LEAST = {"segment": 420, "turn": 500, "checkpoint": 1600, "branch": 1200}  # characters always had
_FOR_OLD = 0.7  # of a section's room: what lasts has it before what is new
_NOTE = "(none)"

_SECTIONS = {
    "segment": (
        ("**Goal**", GOAL, 0.2),
        ("**Actions**", DOING, 0.18),
        ("**Decisions and discoveries**", CHOSEN, 0.4),
        ("**End state**", DONE, 0.22),
    ),
    "checkpoint": (
        ("## Goal", GOAL, 0.1),
        ("## Constraints & Preferences", RULES, 0.18),
        ("## Progress", "", 0.0),
        ("### Done", DONE, 0.14),
        ("### In Progress", DOING, 0.04),
        ("### Blocked", BLOCKED, 0.02),
        ("## Key Decisions", CHOSEN, 0.27),
        ("## Next Steps", NEXT, 0.05),
        ("## Critical Context", EXACT, 0.2),
    ),
    "turn": (
        ("## Original Request", GOAL, 0.35),
        ("## Progress So Far", DONE, 0.25),
        ("## Context Needed to Continue", CHOSEN, 0.4),
    ),
}
_SECTIONS["branch"] = _SECTIONS["checkpoint"][:-1]
_LASTING = (GOAL, RULES, CHOSEN, EXACT)  # of these the first are kept, of the others the newest
_RANKS = (CHOSEN, RULES, EXACT, GOAL, DONE, NEXT, DOING, BLOCKED)  # who keeps what stands twice


def summarize(stretch: Stretch, check: Callable[[], None]) -> str:
    """Sum a stretch up, in at most `max_tokens`; `check` may raise to end the work."""
    kind = stretch.kind if stretch.kind in _SECTIONS else "segment"
    turns = read_turns(stretch.messages, check)
    new = extract_candidates(turns, topics(stretch.instructions[:2000]))
    old = candidates_of(stretch.previous)
    check()
    if kind in ("checkpoint", "branch"):
        new[DONE] += new.pop(ENDED)
        _settle(old, new)
    else:
        new, old = _folded(kind, new, old), {}
    if kind == "turn" and not new[GOAL]:  # whatever it is, it is what was asked for
        asked = next(
            (text for role, text in stretch.messages if role == "user" and text.strip()), ""
        )
        new[GOAL] = [item(line) for line in [clean_line(asked[:960], 480)] if line]
    _once(old, new)
    room = _room(kind, stretch)
    files = _files(stretch, room) if kind == "segment" else ""
    fixed = sum(len(head) + 2 + (kind != "segment") * len(_NOTE) for head, _, _ in _SECTIONS[kind])
    kept = _fitted(kind, old, new, max(0, room - fixed - len(files)))
    return _cut(_rendered(kind, kept, files), CHARS * stretch.max_tokens)


# -- old and new ---------------------------------------------------------------------------------


def _settle(old: Candidates, new: Candidates) -> None:
    """Move what was begun, stuck or next to what is done, where the new part says so.

    A question, and work that was just announced, are left out: what came of it is in the new part.
    """
    ended = [topics(one.text) for one in new[DONE] if one.score >= RESULT]
    for name in (DOING, BLOCKED, NEXT):
        over = [one for one in old[name] if _is_ended(one, ended)]
        old[DONE] += over
        old[name] = [
            one
            for one in old[name]
            if one not in over
            and not one.text.endswith(ASKING)
            and not lexicon.PLAN.match(one.text)
        ]


def _is_ended(held: Item, ended: Iterable[frozenset[str]]) -> bool:
    mine = topics(held.text)
    return bool(mine) and any(2 * len(mine & one) > len(mine) for one in ended)


def _folded(kind: str, new: Candidates, old: Candidates) -> Candidates:
    """Put several sorts into the sections of a segment or a turn, without what is known already."""
    known = [one for items in old.values() for one in items]
    fresh = {name: [one for one in items if not one.within(known)] for name, items in new.items()}
    facts = [one._replace(score=one.score + 2.5) for one in fresh[CHOSEN]]
    facts += fresh[RULES] + fresh[EXACT]
    ends = fresh[BLOCKED] + fresh[DOING] + fresh[NEXT]
    if kind == "turn":
        return {GOAL: fresh[GOAL], DONE: fresh[DONE] + fresh[ENDED], CHOSEN: facts + ends}
    return {GOAL: fresh[GOAL], DOING: fresh[DONE], CHOSEN: facts, DONE: fresh[ENDED] + ends}


def _once(old: Candidates, new: Candidates) -> None:
    """Leave doubles out over all sections: what is old and what lasts is kept."""
    seen: list[Item] = []
    for items in (old, new):
        for name in _RANKS:
            ranked = sorted(items.get(name, ()), key=lambda one: -one.score)[:80]
            kept = distinct(ranked, seen)
            seen += kept
            items[name] = [one for one in items.get(name, ()) if any(one is k for k in kept)]


# -- within its room -----------------------------------------------------------------------------


def _room(kind: str, stretch: Stretch) -> int:
    """Return the characters of the summary: a third of the stretch, and what is carried on."""
    aim = int(COMPRESSION * sum(len(text) for _, text in stretch.messages))
    if kind in ("checkpoint", "branch"):
        aim += min(len(stretch.previous), CHECKPOINT_MAX)
    return min(CHARS * stretch.max_tokens, CHECKPOINT_MAX, max(_LEAST[kind], aim))


def _cost(items: Iterable[Item]) -> int:
    return sum(len(one.text) + 3 for one in items)


def _fitted(kind: str, old: Candidates, new: Candidates, room: int) -> dict[str, list[str]]:
    """Give each section its share, then what others leave over, and fill it."""
    shares = {name: share for _, name, share in _SECTIONS[kind] if name}
    needs = {name: _cost([*old.get(name, ()), *new.get(name, ())]) for name in shares}
    rooms = {name: min(needs[name], int(share * room)) for name, share in shares.items()}
    for _ in shares:  # what some leave over, the others share, until nobody wants more
        over = room - sum(rooms.values())
        wanting = {name: share for name, share in shares.items() if rooms[name] < needs[name]}
        for name, share in wanting.items():
            rooms[name] = min(needs[name], rooms[name] + int(over * share / sum(wanting.values())))
    return {
        name: _filled(name, old.get(name, []), new.get(name, []), rooms[name]) for name in shares
    }


def _filled(name: str, old: list[Item], new: list[Item], room: int) -> list[str]:
    """Return what fits: of lasting items the first, with some room for new ones."""
    lasting = name in _LASTING
    for_new = room - int(_FOR_OLD * room) if lasting and old else room
    for_new = max(min(_cost(new), for_new), room - _cost(old))
    fresh = _taken(sorted(new, key=lambda one: -one.score), for_new)
    kept = _taken(old if lasting else reversed(old), room - _cost(fresh))
    said = {one.key: one.text for one in [*kept, *fresh]}
    return [said[one.key] for one in [*old, *new] if one.key in said]


def _taken(items: Iterable[Item], room: int) -> list[Item]:
    """Return items in their order as far as there is room; the first one may be cut."""
    found: list[Item] = []
    for one in items:
        if (cost := len(one.text) + 3) <= room:
            found.append(one)
            room -= cost
        elif not found and room > 40:  # noqa: PLR2004 - characters that still say something
            found.append(one._replace(text=clip(one.text, room - 3)))
            room = 0
    return found


def _files(stretch: Stretch, room: int) -> str:
    """Return one line of files that were changed, or else read."""
    for label, held in (("Changed", stretch.files_modified), ("Read", stretch.files_read)):
        names = [f"`{clip(one, 60)}`" for one in shown_paths(held, stretch.cwd)]
        for count in (8, 4, 2, 1):
            line = f"\n**Files**\n- {label}: {listed(names, count)}"
            if names and len(line) * 4 <= room:
                return line
    return ""


def _rendered(kind: str, kept: dict[str, list[str]], files: str) -> str:
    sparse, parts = kind == "segment", list[str]()
    for head, name, _ in _SECTIONS[kind]:
        items = [f"- {one}" for one in kept.get(name, ())]
        if items or not sparse:
            parts.append("\n".join([head, *(items or [_NOTE] * bool(name))]))
    return (("\n" if sparse else "\n\n").join(parts) + files).strip() or _NOTE


def _cut(text: str, limit: int) -> str:
    """Return whole lines within the limit; a first line that is longer is cut."""
    if len(text) <= limit:
        return text
    return text[:limit].rpartition("\n")[0] or clip(text, max(limit, 1))
