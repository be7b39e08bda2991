"""Rules that change a context on its way out, and nothing else (S1.37).

In: what a model would get, message by message, and rules as data, `{"rule": "prune", …}`. Out:
new messages, each with its place among the old ones. Nothing is stored, no input is changed, and
what one output was made of does not show in the next.

    prune     protectTokens, protectTurns: of tools' results only those among the newest so many
              tokens of results, or within the newest so many turns, keep their texts
    summary   from, to: entry ids; roles; text, role: what these choose makes way for one text,
              which stands where the first of them stood; without a text it is left out
    truncate  chars, keep, roles: of a text longer than that, head, tail or both, and how many
              characters are left out

Rules hold one after the other. An id means the place at which its entry stood at first, whatever
an earlier rule has put there since. The same rule again changes nothing; prune and truncate never
make a text longer, and no rule makes more messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, field

from indexerd.errors import UsageError
from indexerd.privacy.sanitize import clean_line, scrub
from indexerd.sessions.context import CLEARED, ContextMessage

_WORD_MAX = 200  # characters of an id or a role
_PROTECT_TOKENS = 40_000  # opencode's
_NUMBER_MAX = 1_000_000_000
_TOKEN = 4  # characters

Number = Annotated[int, Meta(ge=0, le=_NUMBER_MAX)]
Word = Annotated[str, Meta(min_length=1, max_length=_WORD_MAX)]
Roles = Annotated[list[Word], Meta(min_length=1, max_length=20)]


class _Rule(msgspec.Struct, tag_field="rule", rename="camel", forbid_unknown_fields=True):
    """A rule as it is given."""


class Prune(_Rule, tag="prune"):
    """Clear old results of tools. A result that either number protects stays."""

    protect_tokens: Number | None = None
    protect_turns: Number | None = None


class Summary(_Rule, tag="summary"):
    """One text in the place of several messages, or nothing."""

    first: Word | None = field(default=None, name="from")  # entry ids; None: from the start
    last: Word | None = field(default=None, name="to")
    roles: Roles | None = None  # None: all
    text: Annotated[str, Meta(min_length=1, max_length=65_536)] | None = None
    role: Word | None = None


class Truncate(_Rule, tag="truncate"):
    """Shorten long texts: to the note, and some text beside it."""

    chars: Annotated[int, Meta(ge=100, le=_NUMBER_MAX)]
    keep: Literal["both", "head", "tail"] = "both"
    roles: Roles | None = None


Rule = Prune | Summary | Truncate
_Rules = Annotated[list[Rule], Meta(max_length=20)]


class Placed(NamedTuple):
    """A message, and the first and last of the old ones that it stands for."""

    message: ContextMessage
    first: int
    last: int


def rules_of(given: Any) -> list[Rule]:
    """Rules out of JSON; null is none. UsageError says which one is wrong, and how."""
    try:
        rules: list[Rule] = msgspec.convert([] if given is None else given, _Rules)
    except msgspec.ValidationError as bad:
        shown = clean_line(str(bad).replace("`$", "`transforms"), _WORD_MAX)
        raise UsageError(f"transforms is a list of rules: {shown}") from None
    for rule in rules:
        if isinstance(rule, Summary) and not (rule.text or rule.first or rule.last or rule.roles):
            hint = "give a text, or what to leave out: from, to or roles"
            raise UsageError("transforms: a summary rule says nothing", hint=hint)
    return rules


def transformed(messages: Iterable[ContextMessage], rules: Iterable[Rule]) -> list[Placed]:
    """The messages after all rules, in their order; calls and thoughts stay with their texts.

    UsageError where a rule names an entry that no message comes from.
    """
    placed = [Placed(one, at, at) for at, one in enumerate(messages)]
    places: dict[str, tuple[int, int]] = {}
    for at, one in enumerate(placed):
        first, _ = places.get(one.message.entry.id, (at, at))
        places[one.message.entry.id] = first, at
    for rule in rules:
        if isinstance(rule, Prune):
            placed = _pruned(placed, rule)
        elif isinstance(rule, Summary):
            placed = _summed_up(placed, rule, places)
        else:
            placed = [_shortened(one, rule) for one in placed]
    return placed


def _pruned(placed: list[Placed], rule: Prune) -> list[Placed]:
    """From the newest on: once a result goes beyond what is protected, all older ones do."""
    default = _PROTECT_TOKENS if rule.protect_turns is None else 0
    most = default if rule.protect_tokens is None else rule.protect_tokens
    tokens = turns = 0
    spent = False
    found: list[Placed] = []
    for one in reversed(placed):
        message = one.message
        if message.role == "toolResult":
            tokens += -(-len(message.text) // _TOKEN)
            spent = spent or tokens > most
            if spent and turns >= (rule.protect_turns or 0) and len(message.text) > len(CLEARED):
                one = one._replace(message=replace(message, texts=(CLEARED,)))  # noqa: PLW2901 - the same place
        elif message.role == "user":
            turns += 1
        found.append(one)
    return found[::-1]


def _summed_up(
    placed: list[Placed], rule: Summary, places: Mapping[str, tuple[int, int]]
) -> list[Placed]:
    start = 0 if rule.first is None else _place(rule.first, places)[0]
    end = max((one.last for one in placed), default=0)
    end = end if rule.last is None else _place(rule.last, places)[1]
    if rule.first is not None and end < start:
        raise UsageError("a summary rule's `to` stands before its `from`")
    found: list[Placed] = []
    at: int | None = None
    last = 0
    for one in placed:
        within = one.first <= end and one.last >= start
        if not within or (rule.roles and one.message.role not in rule.roles):
            found.append(one)
            continue
        if at is None and rule.text is not None:
            role = rule.role or "compactionSummary"
            summary = ContextMessage(role, one.message.entry, (scrub(rule.text),))
            found.append(Placed(summary, one.first, one.last))
            at = len(found) - 1
        last = max(last, one.last)
    if at is not None:
        found[at] = found[at]._replace(last=last)
    return found


def _place(entry_id: str, places: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    found = places.get(entry_id)
    if found is None:
        shown = clean_line(entry_id, _WORD_MAX)
        raise UsageError(f"no message of this context comes from entry {shown}")
    return found


def _shortened(one: Placed, rule: Truncate) -> Placed:
    message = one.message
    if len(message.text) <= rule.chars or (rule.roles and message.role not in rule.roles):
        return one
    text = _cut(message.text, rule.chars, rule.keep)
    return one._replace(message=replace(message, texts=(text,)))


def _cut(text: str, chars: int, keep: str) -> str:
    """At most so many characters of a text, the note about what is left out included."""
    longest = len(_note(len(text), keep))
    room = chars - longest
    head = {"head": room, "tail": 0, "both": room - room // 2}[keep]
    tail = room - head
    return text[:head] + _note(len(text) - room, keep) + (text[-tail:] if tail else "")


def _note(count: int, keep: str) -> str:
    before = "" if keep == "tail" else "\n"
    after = "" if keep == "head" else "\n"
    return f"{before}[{count} characters left out]{after}"
