"""Metadata of a session without a language model: what `local/extractive` answers to facts.

Valid `Metadata` for any input. Its sentences were said in the session (shortened at most) or
stand in the summary that it continues; our own words are labels such as "Asked:".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from indexerd.events import Facts
from indexerd.meta.model import Metadata
from indexerd.models.extractive.candidates import (
    ASKING,
    CHOSEN,
    DOING,
    DONE,
    ENDED,
    EXACT,
    GOAL,
    ITEM_MAX,
    NEXT,
    RESULT,
    RULES,
    Candidates,
    Item,
    Line,
    Turns,
    candidates_of,
    distinct,
    extract_candidates,
    item,
    listed,
    main_request,
    read_turns,
    requests,
    shown_paths,
)
from indexerd.models.extractive.sentences import (
    clip,
    dense,
    error_line,
    headline,
    key_phrases,
    plain,
    tickets,
    topic_runs,
)
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.limits import SUMMARY_MAX, TAGS_MIN

NOTHING = "Nothing explicit was found."
_TAGS_MAX = 10


def describe(facts: Facts, check: Callable[[], None] = lambda: None) -> Metadata:
    """Describe a session from its facts alone; always the same for the same facts."""
    turns = read_turns(facts.messages, check)
    new, old = extract_candidates(turns), candidates_of(facts.previous_summary or "")
    main = main_request(requests(turns), turns)
    task = old[GOAL][0].text if old[GOAL] else _task(main) if main else ""
    changed = shown_paths(facts.files_modified, facts.cwd)
    read = shown_paths(facts.files_read, facts.cwd)
    name = next(_names(task, turns, facts, changed), "Conversation without a topic")
    results = _best(new[DONE] + new[ENDED], 4)
    steps = _open(turns, new)
    users = sum(role == "user" for role, _ in facts.messages)
    files = listed([clip(_base(one), 60) for one in changed or read], 3)
    files = f"; {'changed' if changed else 'read'} {files}" if files else ""
    sections = {
        "Goal": _merged(old[GOAL], _best(new[GOAL], 4), 1, 3) or [name],
        "Key Decisions": _merged(old[CHOSEN], _best(new[CHOSEN] + new[RULES] + new[EXACT], 6), 6, 6)
        or [NOTHING],
        "Outcome": [f"Earlier: {one.text}" for one in old[DONE][-2:] if "Earlier:" not in one.text]
        + [one.text for one in results]
        or [NOTHING] * (not steps),
        "Next Steps": steps,
        "Files": [
            f"{label}: " + listed([f"`{clip(one, 100)}`" for one in names], 8)
            for label, names in (("Changed", changed), ("Read", read))
            if names
        ],
    }
    return Metadata(
        name=name,
        description=_description(task, new, steps, users, files),
        summary="\n\n".join(
            "\n- ".join([f"## {title}", *items]) for title, items in sections.items() if items
        )[:SUMMARY_MAX],
        tags=_tags(facts, turns, changed or read),
    )


def _task(ask: Line) -> str:
    """Return the request; "There is an X. Please fix it." is the request to fix the X."""
    problem = re.match(r"(?:there(?:'s| is| are)|we have|i see) an? ", ask.text, re.IGNORECASE)
    order = re.match(r"(?:please )?(fix|remove|change|update) it\b", ask.after, re.IGNORECASE)
    return f"{order[1]} the {ask.text[problem.end() :]}" if problem and order else ask.text


def _names(task: str, turns: Turns, facts: Facts, changed: Sequence[str]) -> Iterator[str]:
    """Yield names that make sense: of requests, errors, answers, files, anything."""
    lines = [line for turn in turns for line in turn]
    texts = [task, *(error_line(text[:16_000]) for _, text in facts.messages[:20])]
    texts += [line.text for line in lines if len(line.topics) > 1][:1]
    texts += [f"Changes to {_base(one)}" for one in changed[:1]]
    texts += [line.text for line in lines[:20] if line.topics and " " in line.text]
    texts += [f"Conversation in {one}" for one in [_base(clean_line(facts.cwd[-400:], 400))] if one]
    for text in texts:
        name = headline(text)
        if (" " in name or dense(name)) and any(map(str.isalpha, name)):
            yield name


def _base(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _best(items: Sequence[Item], limit: int) -> list[Item]:
    """Return the items with the highest scores, in the order in which they were said."""
    ranked = distinct(sorted(items, key=lambda one: -one.score)[:60])[:limit]
    return sorted(ranked, key=items.index)


def _merged(old: Sequence[Item], new: Sequence[Item], first: int, last: int) -> list[str]:
    """Return old and new without doubles; of too many the oldest and the newest."""
    both = distinct([*old[:20], *new])
    kept = both if len(both) <= first + last else both[:first] + both[-last:]
    return [clip(one.text, ITEM_MAX) for one in kept]


def _open(turns: Turns, new: Candidates) -> list[str]:
    """Return what is still open: a message without an answer, a question, announced work."""
    last = turns[-1] if turns else []
    found: list[Item] = []
    if last and last[0].user:
        if not last[0].topics and not dense(last[0].text):
            return []  # "thanks"
        found.append(item(f"Unanswered: {last[0].text} {last[0].after}".strip()))
    elif last and last[-1].text.endswith(ASKING):
        found.append(item(f"Awaiting an answer: {last[-1].text}"))
    else:
        found += new[DOING]
    newest = {line.text for line in last if not line.user}
    return [one.text for one in distinct([*found, *(n for n in new[NEXT] if n.text in newest)])][:4]


def _description(task: str, new: Candidates, steps: Sequence[str], users: int, files: str) -> str:
    ends = new[ENDED] or new[DONE]
    lead = max(ends, key=lambda one: one.score).text if ends else ""
    if lead and len(ends) > 1 and all(one.score < RESULT for one in ends) and lead[-1].isalnum():
        lead = "; ".join(one.text for one in ends)  # a list is told whole
    parts = {"Asked": task, "Outcome": lead, "Open": "" if lead else "".join(steps[:1])}
    said = []
    for label, text in parts.items():
        short = clip(plain(text), 260).rstrip(" ,;:")
        end = "" if short[-1:] in ".!?…。！？" else "。" if dense(short) else "."  # noqa: RUF001
        said += [f"{label}: {short}{end}"] if short else []
    size = f"{users} request" + "s" * (users != 1)
    return " ".join([*said, f"{size}{files}."])


def _tags(facts: Facts, turns: Turns, files: Sequence[str]) -> list[str]:
    lines = sorted((line for turn in turns for line in turn), key=lambda line: not line.user)
    found = [
        *tickets((line.text for line in lines), 3),
        *key_phrases(((topic_runs(one.text), 3 if one.user else 1) for one in lines), 6),
        *(_base(one).lower() for one in files[:2]),
        _base(clean_line(facts.cwd[-400:], 400)).lower(),
    ]
    tags = list(dict.fromkeys(tag for one in found if (tag := plain(one)[:40].strip())))[:_TAGS_MAX]
    tools = (plain(clean_line(tool[:80], 40)).lower() for tool in sorted(facts.tools_used)[:9])
    more = [one for one in (*tools, "conversation", "agent session", "untagged") if one]
    return tags + [one for one in more if one not in tags][: max(0, TAGS_MIN - len(tags))]
