"""Apply rules (protocol/params.py) to a context, one after the other, for one answer.

The same rule again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from indexerd.errors import UsageError
from indexerd.privacy.sanitize import clean_line, replace_surrogates
from indexerd.protocol.params import Prune, Rule, Summary, Truncate
from indexerd.sessions.context import CLEARED, ContextMessage

_TOKEN = 4  # characters
_NOTE = "\n[{} characters left out]\n"


def transformed(messages: Iterable[ContextMessage], rules: Iterable[Rule]) -> list[ContextMessage]:
    """Apply all rules; UsageError where one names an entry that no message comes from."""
    found = list(messages)
    for rule in rules:
        match rule:
            case Prune():
                found = _pruned(found, rule)
            case Summary():
                found = _summed_up(found, rule)
            case Truncate():
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
            raise UsageError(
                f"no message of this context comes from entry {clean_line(named, 200)}"
            )
    start = 0 if rule.first is None else ids.index(rule.first)
    end = len(ids) if rule.last is None else len(ids) - ids[::-1].index(rule.last)
    if not ids:
        return messages
    if end <= start:
        raise UsageError("a summary rule's `to` comes before its `from`")
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
