"""Rules that change a context in one answer, and never the session itself.

    prune     protectTokens: clear the texts of tools' results but the newest so many tokens
    summary   from, to: one text replaces the messages of these entries and those between them
    truncate  chars, keep, roles: of a longer text keep its head or tail

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
_NUMBER_MAX = 1_000_000_000
_TOKEN = 4  # characters
_NOTE = "\n[{} characters left out]\n"

Word = Annotated[str, Meta(min_length=1, max_length=_WORD_MAX)]


class _Rule(msgspec.Struct, tag_field="rule", rename="camel", forbid_unknown_fields=True):
    """A rule as it is given."""


class Prune(_Rule, tag="prune"):
    """Clear old results of tools."""

    protect_tokens: Annotated[int, Meta(ge=0, le=_NUMBER_MAX)] = 40_000  # opencode's


class Summary(_Rule, tag="summary"):
    """Replace several messages by one text."""

    text: Annotated[str, Meta(min_length=1, max_length=65_536)]
    first: Word | None = field(default=None, name="from")  # entry ids; None: from the start
    last: Word | None = field(default=None, name="to")


class Truncate(_Rule, tag="truncate"):
    """Shorten long texts."""

    chars: Annotated[int, Meta(ge=100, le=_NUMBER_MAX)]
    keep: Literal["head", "tail"] = "head"
    roles: Annotated[list[Word], Meta(min_length=1, max_length=20)] | None = None  # None: all


Rule = Prune | Summary | Truncate
_Rules = Annotated[list[Rule], Meta(max_length=20)]


def rules_of(given: Any) -> list[Rule]:
    """Parse rules, null as none. UsageError says which rule is wrong, and how."""
    try:
        return msgspec.convert([] if given is None else given, _Rules)
    except msgspec.ValidationError as bad:
        shown = clean_line(str(bad).replace("`$", "`transforms"), _WORD_MAX)
        raise UsageError(f"transforms is a list of rules: {shown}") from None


def transformed(messages: Iterable[ContextMessage], rules: Iterable[Rule]) -> list[ContextMessage]:
    """Apply all rules; UsageError where one names an entry that no message comes from."""
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
    tokens, found = 0, []
    for one in reversed(messages):
        result = one.role == "toolResult"
        tokens += -(-len(one.text) // _TOKEN) if result else 0
        clears = result and tokens > rule.protect_tokens and len(one.text) > len(CLEARED)
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
    if end <= start:
        if not ids:
            return messages
        raise UsageError("a summary rule's `to` stands before its `from`")
    text = replace_surrogates(rule.text)
    summary = ContextMessage("compactionSummary", messages[start].entry, (text,))
    return [*messages[:start], summary, *messages[end:]]


def _shortened(one: ContextMessage, rule: Truncate) -> ContextMessage:
    text = one.text
    if len(text) <= rule.chars or (rule.roles and one.role not in rule.roles):
        return one
    room = rule.chars - len(_NOTE.format(len(text)))
    note = _NOTE.format(len(text) - room)
    cut = text[:room] + note if rule.keep == "head" else note + text[len(text) - room :]
    return replace(one, texts=(cut,))
