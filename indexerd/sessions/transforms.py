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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from indexerd.errors import UsageError
from indexerd.privacy.sanitize import clean_line, scrub
from indexerd.sessions.context import CLEARED, ContextMessage, Message

RULES_MAX = 20
ROLES_MAX = 20
WORD_MAX = 200  # characters of an id or a role
TEXT_MAX = 65_536  # characters of a summary
NUMBER_MAX = 1_000_000_000
CHARS_MIN = 100  # the note, and some text beside it
PROTECT_TOKENS = 40_000  # opencode's
KEEPS = ("both", "head", "tail")
SUMMARY_ROLE = "compactionSummary"
_RESULT = "toolResult"
_TOKEN = 4  # characters


@dataclass(frozen=True, slots=True)
class Prune:
    """Clear old results of tools. A result that either number protects stays."""

    protect_tokens: int
    protect_turns: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One text in the place of several messages, or nothing."""

    first: str | None  # entry ids; None: from the start, to the end
    last: str | None
    roles: frozenset[str]  # empty: all
    text: str | None
    role: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """Shorten long texts."""

    chars: int
    keep: str
    roles: frozenset[str]  # empty: all


Rule = Prune | Summary | Truncate


class Placed(NamedTuple):
    """A message, and the first and last of the old ones that it stands for."""

    message: Message
    first: int
    last: int
    made: bool = False  # a text of the rules' own


# -- rules as data -------------------------------------------------------------------------------


def rules_of(given: Any) -> tuple[Rule, ...]:
    """Rules out of JSON; null is none. UsageError says which one is wrong, and how."""
    given = () if given is None else given
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise UsageError("transforms is a list of rules")
    if len(given) > RULES_MAX:
        raise UsageError(f"at most {RULES_MAX} transforms at a time")
    return tuple(_rule(one, f"transforms[{at}]") for at, one in enumerate(given))


def _rule(given: Any, where: str) -> Rule:
    if not isinstance(given, Mapping):
        raise UsageError(f"{where} is an object with a rule: {', '.join(_MADE)}")
    name = given.get("rule")
    if not isinstance(name, str) or name not in _MADE:
        raise UsageError(f"{where}.rule is one of {', '.join(_MADE)}")
    keys, make = _MADE[name]
    unknown = sorted(str(key) for key in given.keys() - keys - {"rule"})
    if unknown:
        shown = clean_line(unknown[0][:WORD_MAX], WORD_MAX)
        raise UsageError(f"{where}: a {name} rule has no {shown}", hint=f"it has {', '.join(keys)}")
    return make(given, where)


def _prune(given: Mapping[str, Any], where: str) -> Prune:
    tokens, turns = given.get("protectTokens"), given.get("protectTurns")
    if tokens is None:
        tokens = PROTECT_TOKENS if turns is None else 0
    return Prune(
        _number(tokens, f"{where}.protectTokens"),
        _number(0 if turns is None else turns, f"{where}.protectTurns"),
    )


def _summary(given: Mapping[str, Any], where: str) -> Summary:
    text = given.get("text")
    if text is not None and (not isinstance(text, str) or not 0 < len(text) <= TEXT_MAX):
        raise UsageError(f"{where}.text is a text of at most {TEXT_MAX} characters")
    rule = Summary(
        first=_word(given.get("from"), f"{where}.from"),
        last=_word(given.get("to"), f"{where}.to"),
        roles=_roles(given.get("roles"), f"{where}.roles"),
        text=None if text is None else scrub(text),
        role=_word(given.get("role"), f"{where}.role") or SUMMARY_ROLE,
    )
    if text is None and not (rule.first or rule.last or rule.roles):
        raise UsageError(f"{where} needs a text, or what to leave out: from, to or roles")
    return rule


def _truncate(given: Mapping[str, Any], where: str) -> Truncate:
    keep = given.get("keep", KEEPS[0])
    if keep not in KEEPS:
        raise UsageError(f"{where}.keep is one of {', '.join(KEEPS)}")
    chars = _number(given.get("chars"), f"{where}.chars", least=CHARS_MIN)
    return Truncate(chars, keep, _roles(given.get("roles"), f"{where}.roles"))


_MADE: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any], str], Rule]]] = {
    "prune": (("protectTokens", "protectTurns"), _prune),
    "summary": (("from", "to", "roles", "text", "role"), _summary),
    "truncate": (("chars", "keep", "roles"), _truncate),
}


def _number(value: Any, where: str, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= NUMBER_MAX:  # True is an int, too
        raise UsageError(f"{where} is a whole number, at least {least}")
    return value


def _word(value: Any, where: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= WORD_MAX):
        raise UsageError(f"{where} is a word of at most {WORD_MAX} characters")
    return value


def _roles(value: Any, where: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not 0 < len(value) <= ROLES_MAX:
        raise UsageError(f"{where} is a list of 1 to {ROLES_MAX} roles")
    return frozenset(filter(None, (_word(one, where) for one in value)))


# -- what they do --------------------------------------------------------------------------------


def transformed(messages: Iterable[Message], rules: Iterable[Rule]) -> list[Placed]:
    """The messages after all rules, in their order.

    UsageError where a rule names an entry that no message comes from.
    """
    placed = [Placed(one, at, at) for at, one in enumerate(messages)]
    places: dict[str, tuple[int, int]] = {}
    for at, one in enumerate(placed):
        first, _ = places.get(one.message.entry_id, (at, at))
        places[one.message.entry_id] = first, at
    for rule in rules:
        if isinstance(rule, Prune):
            placed = _pruned(placed, rule)
        elif isinstance(rule, Summary):
            placed = _summed_up(placed, rule, places)
        else:
            placed = [_shortened(one, rule) for one in placed]
    return placed


def transformed_speeches(
    speeches: Sequence[ContextMessage], rules: Iterable[Rule]
) -> list[ContextMessage]:
    """The same for speeches, which have calls and thoughts beside their texts: these stay."""
    messages = (Message(one.role, "".join(one.texts), one.entry.id) for one in speeches)
    return [_spoken(speeches[one.first], one) for one in transformed(messages, rules)]


def _spoken(old: ContextMessage, placed: Placed) -> ContextMessage:
    text = placed.message.text
    if placed.made:
        return ContextMessage(placed.message.role, old.entry, (text,))
    return old if text == "".join(old.texts) else replace(old, texts=(text,))


def _pruned(placed: list[Placed], rule: Prune) -> list[Placed]:
    """From the newest on: once a result goes beyond what is protected, all older ones do."""
    tokens = turns = 0
    spent = False
    found: list[Placed] = []
    for one in reversed(placed):
        message = one.message
        if message.role == _RESULT:
            tokens += -(-len(message.text) // _TOKEN)
            spent = spent or tokens > rule.protect_tokens
            if spent and turns >= rule.protect_turns and len(message.text) > len(CLEARED):
                one = one._replace(message=replace(message, text=CLEARED))  # noqa: PLW2901 - the same place
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
    chosen = [
        at
        for at, one in enumerate(placed)
        if one.first <= end
        and one.last >= start
        and (not rule.roles or one.message.role in rule.roles)
    ]
    return list(_replaced(placed, chosen, rule))


def _replaced(placed: list[Placed], chosen: list[int], rule: Summary) -> Iterator[Placed]:
    gone = set(chosen)
    end = max((placed[at].last for at in chosen), default=0)
    for at, one in enumerate(placed):
        if at not in gone:
            yield one
        elif at == chosen[0] and rule.text is not None:
            summary = Message(rule.role, rule.text, one.message.entry_id)
            yield Placed(summary, one.first, end, made=True)


def _place(entry_id: str, places: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    found = places.get(entry_id)
    if found is None:
        shown = clean_line(entry_id, WORD_MAX)
        raise UsageError(f"no message of this context comes from entry {shown}")
    return found


def _shortened(one: Placed, rule: Truncate) -> Placed:
    message = one.message
    if len(message.text) <= rule.chars or (rule.roles and message.role not in rule.roles):
        return one
    return one._replace(message=replace(message, text=_cut(message.text, rule.chars, rule.keep)))


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
