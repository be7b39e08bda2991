"""A stretch of a conversation, summed up without a model: what `local/extractive` says of it.

In: what was said, redacted, and the summary of what came before. Out: Markdown in the shape that
the stretch's kind has: short heads for a segment, pi's headings for a checkpoint, which takes the
earlier summary up. Every bullet was said (shortened at most) or stands in that summary; only heads
are our own. It is never longer than asked for. What a reader cannot find again has the first
right to its room: goals, rules, decisions and exact facts each have a share, the oldest of them
first; of progress the newest is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from indexerd.events import Stretch
from indexerd.models import cues, earlier
from indexerd.models.earlier import BLOCKED, CHOSEN, DOING, DONE, EXACT, GOAL, NEXT, RULES
from indexerd.models.heard import ENDED, RESULT, Item, Items, heard, item, thinned
from indexerd.models.phrases import clip, topic_runs
from indexerd.models.sentences import ASKING, listed, paths, read_turns, topics
from indexerd.privacy.sanitize import clean_line

REQUEST_MAX = 240  # characters of what a turn began with
COMPRESSION = 0.3  # what is aimed at: characters of the summary to those of the stretch
CHECKPOINT_MAX = 16_000  # characters of any summary
CHARS = 4  # of a token
_LEAST = {"segment": 420, "turn": 500, "checkpoint": 1600, "branch": 1200}  # characters always had
_ANCHORED = 0.7  # of a section's room that the first items have before the newest
_FIRST = 2.5  # what decisions are worth more than other facts beside them
_SHORTEST = 40  # characters of a bullet that is cut to its room
_NOTE = "(none)"

_SECTIONS = {
    "segment": (
        ("**Goal**", GOAL),
        ("**Actions**", DOING),
        ("**Decisions and discoveries**", CHOSEN),
        ("**End state**", DONE),
    ),
    "checkpoint": (
        ("## Goal", GOAL),
        ("## Constraints & Preferences", RULES),
        ("## Progress", ""),
        ("### Done", DONE),
        ("### In Progress", DOING),
        ("### Blocked", BLOCKED),
        ("## Key Decisions", CHOSEN),
        ("## Next Steps", NEXT),
        ("## Critical Context", EXACT),
    ),
    "turn": (
        ("## Original Request", GOAL),
        ("## Progress So Far", DONE),
        ("## Context Needed to Continue", CHOSEN),
    ),
}
_SECTIONS["branch"] = _SECTIONS["checkpoint"][:-1]
# Parts of the room; what one leaves over, the others get.
_SHARES = {
    CHOSEN: 0.27,
    RULES: 0.18,
    EXACT: 0.2,
    GOAL: 0.1,
    DONE: 0.14,
    NEXT: 0.05,
    DOING: 0.04,
    BLOCKED: 0.02,
}
_FEW = {
    "segment": {CHOSEN: 0.4, GOAL: 0.2, DONE: 0.22, DOING: 0.18},
    "turn": {CHOSEN: 0.4, GOAL: 0.35, DONE: 0.25},
}
_LASTING = (GOAL, RULES, CHOSEN, EXACT)  # the first ones are kept, of the others the newest


def gist(stretch: Stretch, check: Callable[[], None]) -> str:
    """Sum a stretch up, in at most `max_tokens`; always the same for the same stretch.

    `check` is called now and then, and may raise to end the work.
    """
    kind = stretch.kind if stretch.kind in _SECTIONS else "segment"
    turns = read_turns(thinned(stretch.messages, check), len(stretch.messages), check)
    check()
    new = heard(turns, topics(topic_runs(stretch.instructions[:2000])))
    check()
    before = earlier.parts_of(stretch.previous)
    old = {name: [item(one) for one in items] for name, items in before.items()}
    if kind in ("checkpoint", "branch"):
        new[DONE] += new.pop(ENDED)
        _settle(old, new)
    else:
        new, old = _folded(kind, new, old), {}
    if kind == "turn" and not new.get(GOAL):  # whatever it is, it is what was asked for
        new[GOAL] = [item(one) for one in _request(stretch) if one]
    _once(old, new)
    room = _room(kind, stretch)
    files = _files(stretch, room) if kind == "segment" else ""
    heads = _SECTIONS[kind]
    sparse = kind == "segment"
    fixed = sum(len(head) + 2 + (0 if sparse else len(_NOTE)) for head, _ in heads)
    kept = _fitted(kind, old, new, max(0, room - fixed - len(files)))
    return _cut(_rendered(heads, kept, files, sparse=sparse), CHARS * stretch.max_tokens)


def _request(stretch: Stretch) -> list[str]:
    asked = next((text for role, text in stretch.messages if role == "user" and text.strip()), "")
    return [clip(clean_line(asked[: 4 * REQUEST_MAX], 2 * REQUEST_MAX), REQUEST_MAX)]


# -- old and new ---------------------------------------------------------------------------


def _settle(old: Items, new: Items) -> None:
    """Move what was begun, stuck or next to what is done, where the new part says so.

    Of the rest, a question and work that was just announced are left out: what came of them is
    in the new part.
    """
    ended = [topics(topic_runs(one.text)) for one in new.get(DONE, ()) if one.score >= RESULT]
    for name in (DOING, BLOCKED, NEXT):
        held = old.get(name, [])
        over = [one for one in held if _ended(one, ended)]
        old.setdefault(DONE, []).extend(over)
        old[name] = [one for one in held if one not in over and not _passing(one.text)]


def _passing(text: str) -> bool:
    return text.endswith(ASKING) or bool(cues.PLAN.match(text.lower()))


def _ended(held: Item, ended: Iterable[set[str]]) -> bool:
    mine = topics(topic_runs(held.text))
    return bool(mine) and any(2 * len(mine & one) > len(mine) for one in ended)


def _folded(kind: str, new: Items, old: Items) -> Items:
    """The sections of a segment and of a turn hold several things; what is known is left out."""
    known = [one for items in old.values() for one in items]
    fresh = {name: [one for one in items if not one.within(known)] for name, items in new.items()}
    chosen = [one._replace(score=one.score + _FIRST) for one in fresh[CHOSEN]]
    facts = chosen + fresh[RULES] + fresh[EXACT]
    ends = fresh[BLOCKED] + fresh[DOING] + fresh[NEXT]
    if kind == "turn":
        return {GOAL: fresh[GOAL], DONE: fresh[DONE] + fresh[ENDED], CHOSEN: facts + ends}
    return {GOAL: fresh[GOAL], DOING: fresh[DONE], CHOSEN: facts, DONE: fresh[ENDED] + ends}


def _once(old: Items, new: Items) -> None:
    """Leave doubles out, in every section: what lasts is kept rather than what passes."""
    seen: list[Item] = []
    for items in (old, new):
        for name in _SHARES:
            kept: list[Item] = []
            for one in sorted(items.get(name, ()), key=lambda one: -one.score)[:80]:
                if not one.within(seen):
                    seen.append(one)
                    kept.append(one)
            order = {id(one): at for at, one in enumerate(items.get(name, ()))}
            items[name] = sorted(kept, key=lambda one: order[id(one)])


# -- within its room -----------------------------------------------------------------------


def _room(kind: str, stretch: Stretch) -> int:
    """Characters of the summary: a third of the stretch or less, and what is carried on."""
    size = sum(len(text) for _, text in stretch.messages)
    aim = int(COMPRESSION * size)
    if kind in ("checkpoint", "branch"):
        aim += min(len(stretch.previous), CHECKPOINT_MAX)
    return min(CHARS * stretch.max_tokens, CHECKPOINT_MAX, max(_LEAST[kind], aim))


def _cost(items: Iterable[Item]) -> int:
    return sum(len(one.text) + 3 for one in items)


def _fitted(kind: str, old: Items, new: Items, room: int) -> dict[str, list[str]]:
    """Give each section its share, then what others leave over, and fill it."""
    names = [name for _, name in _SECTIONS[kind] if name]
    shares = {name: part for name, part in _FEW.get(kind, _SHARES).items() if name in names}
    needs = {name: _cost([*old.get(name, ()), *new.get(name, ())]) for name in shares}
    rooms = {name: min(needs[name], int(part * room)) for name, part in shares.items()}
    for _ in shares:  # what some leave over, the others share, until nobody wants more
        over = room - sum(rooms.values())
        wanting = {name: part for name, part in shares.items() if rooms[name] < needs[name]}
        for name, part in wanting.items():
            more = int(over * part / sum(wanting.values()))
            rooms[name] = min(needs[name], rooms[name] + more)
    return {
        name: _filled(old.get(name, []), new.get(name, []), rooms[name], lasting=name in _LASTING)
        for name in names
    }


def _filled(old: list[Item], new: list[Item], room: int, *, lasting: bool) -> list[str]:
    """Those that fit. Where not all do: of lasting ones the first, and room for new ones."""
    for_new = min(_cost(new), room - int(_ANCHORED * room) if lasting and old else room)
    for_new = max(for_new, room - _cost(old))
    fresh = _taken(sorted(new, key=lambda one: -one.score), for_new)
    kept = _taken(old if lasting else reversed(old), room - _cost(fresh))
    said = {one.key: one.text for one in [*kept, *fresh]}
    return [said[one.key] for one in [*old, *new] if one.key in said]


def _taken(items: Iterable[Item], room: int) -> list[Item]:
    """Items in their order of rank, as far as there is room."""
    found: list[Item] = []
    for one in items:
        if (cost := len(one.text) + 3) <= room:
            found.append(one)
            room -= cost
        elif not found and room > _SHORTEST:
            found.append(one._replace(text=clip(one.text, room - 3)))
            room = 0
    return found


def _files(stretch: Stretch, room: int) -> str:
    """One line of files that were changed, or else read, as the agent's calls named them."""
    for label, held in (("Changed", stretch.files_modified), ("Read", stretch.files_read)):
        names = [f"`{clip(one, 60)}`" for one in paths(held, stretch.cwd)]
        for count in (8, 4, 2, 1):
            line = f"\n**Files**\n- {label}: {listed(names, count)}"
            if names and len(line) * 4 <= room:
                return line
    return ""


def _rendered(
    heads: Iterable[tuple[str, str]], kept: dict[str, list[str]], files: str, *, sparse: bool
) -> str:
    parts: list[str] = []
    for head, name in heads:
        items = [f"- {one}" for one in kept.get(name, ())]
        if items or not sparse:
            parts.append("\n".join([head, *(items or [_NOTE] * bool(name))]))
    gap = "\n" if sparse else "\n\n"
    return (gap.join(parts) + files).strip() or _NOTE


def _cut(text: str, limit: int) -> str:
    """Whole lines within the limit; a first line that is longer is cut."""
    if len(text) <= limit:
        return text
    return text[:limit].rpartition("\n")[0] or clip(text, max(limit, 1))
