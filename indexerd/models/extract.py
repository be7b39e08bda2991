"""Metadata of a session without a model: `extract(facts)`, what `local/extractive` answers.

In: what was said, oldest first and redacted, and what is known of files and tools. Out: valid
`Metadata` for any input. Its sentences were said in the session (shortened at most) or stand in
the summary that it continues; our own words are labels such as "Asked:". It never invents.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from indexerd.events import Facts
from indexerd.meta.limits import SUMMARY_MAX
from indexerd.meta.model import TAGS_MIN, Metadata
from indexerd.models import cues, phrases
from indexerd.models.phrases import clip, dense, plain
from indexerd.models.sentences import (
    HEAD,
    ITEM_MAX,
    OPENING,
    Line,
    Turns,
    achieved,
    asked,
    best,
    decided,
    goals,
    left_open,
    listed,
    main_ask,
    merged,
    paths,
    read_turns,
    unpadded,
)
from indexerd.privacy.sanitize import clean_line, clean_text

_NOTHING = "Nothing explicit was found."

Files = dict[str, list[str]]


def extract(facts: Facts) -> Metadata:
    """Describe a session from its facts alone; always the same for the same facts."""
    turns = read_turns(facts.messages)
    asks = asked(turns)
    main = main_ask(asks, turns)
    before = _sections(facts.previous_summary or "")
    lead, results = achieved(turns, [f"Earlier: {one}" for one in before["outcome"][-2:]])
    decisions = merged(before["key decisions"], best(decided(turns, main), 5), 6, 6)
    steps = left_open(turns)
    files = {
        "Changed": paths(facts.files_modified, facts.cwd),
        "Read": paths(facts.files_read, facts.cwd),
    }
    wanted = before["goal"][:1] + ([_task(main)] if main else [])
    name = _name(wanted, turns, facts, files)
    sections = {
        "Goal": merged(before["goal"], goals(asks, main), 1, 3) or [name],
        "Key Decisions": decisions or [_NOTHING],
        "Outcome": results or [_NOTHING] * (not steps),
        "Next Steps": steps,
        "Files": [
            f"{label}: {listed([f'`{clip(one, 100)}`' for one in names], 8)}"
            for label, names in files.items()
            if names
        ],
    }
    users = sum(role == "user" for role, _ in facts.messages)
    return Metadata(
        name=name,
        description=_description([*wanted, ""][0], lead, steps, users, files),
        summary="\n\n".join(
            "\n- ".join([f"## {title}", *items]) for title, items in sections.items() if items
        )[:SUMMARY_MAX],
        tags=_tags(facts, turns, files),
    )


def _task(ask: Line) -> str:
    """The request; "There is an X. Please fix it." is the request to fix the X."""
    problem, order = cues.PROBLEM.match(ask.text), cues.DO_IT.match(ask.after)
    if problem and order and order[1].lower() in cues.VERBS:
        thing = re.sub(r"^an?\s", "the ", ask.text[problem.end() :], flags=re.IGNORECASE)
        return f"{order[1]} {thing}"
    return ask.text


def _name(wanted: Iterable[str], turns: Turns, facts: Facts, files: Files) -> str:
    """Headline of the first text that gives one: requests, errors, answers, files, anything."""
    lines = list(itertools.chain.from_iterable(turns))
    for text in itertools.chain(
        wanted,
        (phrases.error_line(text[:HEAD]) for _, text in facts.messages[:OPENING]),
        [one.text for one in lines if sum(map(len, one.runs)) > 1][:1],
        [f"Changes to {_base(one)}" for one in files["Changed"][:1]],
        [one.text for one in lines[:OPENING] if one.runs],
        [f"Conversation: {one.text}" for one in lines if one.runs][:1],
        [f"Conversation in {one}" for one in [_base(clean_line(facts.cwd[-400:], 400))] if one],
    ):
        name = phrases.headline(unpadded(text))
        if (" " in name or dense(name)) and any(char.isalpha() for char in name):
            return name
    return "Conversation without a topic"


def _base(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _description(asked: str, lead: str, steps: Sequence[str], users: int, files: Files) -> str:
    parts = {"Asked": asked, "Outcome": lead, "Open": "" if lead else "".join(steps[:1])}
    said = []
    for label, text in parts.items():
        short = clip(plain(text), 260).rstrip(" ,;:")
        end = "" if short[-1:] in ".!?…。\uff01\uff1f" else "。" if dense(short) else "."
        said += [f"{label}: {short}{end}"] if short else []
    size = f"{users} request" + "s" * (users != 1)
    label = "Changed" if files["Changed"] else "Read"
    names = [clip(_base(one), 60) for one in files[label]]
    size += f"; {label.lower()} {listed(names, 3)}" if names else ""
    return " ".join([*said, size + "."])


def _sections(summary: str) -> dict[str, list[str]]:
    """The items of an earlier summary by heading; what stands before any heading is its goal."""
    found: dict[str, list[str]] = {"goal": [], "key decisions": [], "outcome": []}
    items = found["goal"]
    for line in clean_text(summary[: 2 * SUMMARY_MAX], SUMMARY_MAX).split("\n"):
        heading = re.match(r"#{1,6}\s+(.*)", line)
        if heading:
            items = found.setdefault(heading[1].strip(" :").lower(), [])
            continue
        text = phrases.tidy(re.sub(r"^\s*(?:[-*+]|\d+\.)\s+", "", line))
        if text and not text.startswith((_NOTHING, "Earlier: ")):
            items.append(clip(text, ITEM_MAX))
    return found


def _tags(facts: Facts, turns: Turns, files: Files) -> list[str]:
    lines = sorted(itertools.chain.from_iterable(turns), key=lambda one: not one.user)
    found = [
        *phrases.tickets((line.text for line in lines), 3),
        *phrases.key_phrases(((line.runs, 3 if line.user else 1) for line in lines), 6),
        *(_base(one).lower() for one in (files["Changed"] or files["Read"])[:2]),
        _base(clean_line(facts.cwd[-400:], 400)).lower(),
    ]
    tags = list(dict.fromkeys(tag for one in found if (tag := plain(one)[:40].strip())))[:10]
    tools = (plain(clean_line(tool[:80], 40)).lower() for tool in sorted(facts.tools_used)[:9])
    for one in (*tools, "conversation", "agent session", "untagged"):
        if len(tags) < TAGS_MIN and one and one not in tags:
            tags.append(one)
    return tags
