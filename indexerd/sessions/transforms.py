"""Rules that change a context in one answer, and never the session itself.

    prune     protectTokens, protectTurns: of tools' results only those among the newest so many
              tokens of results, or within the newest so many turns, keep their texts
    summary   from, to: entry ids; roles; text, role: one text replaces the messages that these
              choose, where the first of them stood; without a text they are left out
    truncate  chars, keep, roles: of a text longer than that, keep head, tail or both, and say how
              many characters are left out

Rules apply one after the other; the same rule again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from indexerd.errors import UsageError
from indexerd.privacy.sanitize import clean_line, replace_surrogates
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
    """Replace several messages by one text, or by nothing."""

    first: Word | None = field(default=None, name="from")  # entry ids; None: from the start
    last: Word | None = field(default=None, name="to")
    text: Annotated[str, Meta(min_length=1, max_length=65_536)] | None = None
    role: Word | None = None
    roles: Roles | None = None  # None: all


class Truncate(_Rule, tag="truncate"):
    """Shorten long texts."""

    chars: Annotated[int, Meta(ge=100, le=_NUMBER_MAX)]
    keep: Literal["both", "head", "tail"] = "both"
    roles: Roles | None = None


Rule = Prune | Summary | Truncate
_Rules = Annotated[list[Rule], Meta(max_length=20)]


def rules_of(given: Any) -> list[Rule]:
    """Parse rules, null as none. UsageError says which rule is wrong, and how."""
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


def transformed(messages: Iterable[ContextMessage], rules: Iterable[Rule]) -> list[ContextMessage]:
    """Apply all rules; calls and thoughts stay with their texts.

    UsageError where a rule names an entry that no message comes from.
    """
    found = list(messages)
    for rule in rules:
        if isinstance(rule, Prune):
            found = _pruned(found, rule)
        elif isinstance(rule, Summary):
            found = _summed_up(found, rule)
        else:
            found = [_shortened(one, rule) for one in found]
    return found


def _pruned(messages: list[ContextMessage], rule: Prune) -> list[ContextMessage]:
    """Clear old results, from the newest on: past what is protected, every older one."""
    default = _PROTECT_TOKENS if rule.protect_turns is None else 0
    most = default if rule.protect_tokens is None else rule.protect_tokens
    tokens = turns = 0
    found: list[ContextMessage] = []
    for one in reversed(messages):
        result = one.role == "toolResult"
        turns += one.role == "user"
        tokens += -(-len(one.text) // _TOKEN) if result else 0
        spent = tokens > most and turns >= (rule.protect_turns or 0)
        clears = spent and result and len(one.text) > len(CLEARED)
        found.append(replace(one, texts=(CLEARED,)) if clears else one)
    return found[::-1]


def _summed_up(messages: list[ContextMessage], rule: Summary) -> list[ContextMessage]:
    ids = [one.entry.id for one in messages]
    for named in (rule.first, rule.last):
        if named is not None and named not in ids:
            shown = clean_line(named, _WORD_MAX)
            raise UsageError(f"no message of this context comes from entry {shown}")
    start = 0 if rule.first is None else ids.index(rule.first)
    end = len(ids) if rule.last is None else len(ids) - ids[::-1].index(rule.last)
    if end <= start < len(ids):
        raise UsageError("a summary rule's `to` stands before its `from`")
    chosen = [at for at in range(start, end) if not rule.roles or messages[at].role in rule.roles]
    gone = set(chosen)
    found = [one for at, one in enumerate(messages) if at not in gone]
    if rule.text is not None and chosen:
        text, role = replace_surrogates(rule.text), rule.role or "compactionSummary"
        found.insert(chosen[0], ContextMessage(role, messages[chosen[0]].entry, (text,)))
    return found


def _shortened(one: ContextMessage, rule: Truncate) -> ContextMessage:
    text = one.text
    if len(text) <= rule.chars or (rule.roles and one.role not in rule.roles):
        return one
    room = rule.chars - len(_note(len(text), rule.keep))
    head = {"head": room, "tail": 0, "both": room - room // 2}[rule.keep]
    note = _note(len(text) - room, rule.keep)
    return replace(one, texts=(text[:head] + note + text[len(text) - room + head :],))


def _note(count: int, keep: str) -> str:
    before = "" if keep == "tail" else "\n"
    after = "" if keep == "head" else "\n"
    return f"{before}[{count} characters left out]{after}"
