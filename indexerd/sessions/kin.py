"""Which session another one came from, for forks, copies and sub-agents (S1.16).

Some agents write the parent's id, pi its file's path (which a moved home makes wrong), Claude and
opencode nothing; but a session of Claude that carries out a plan names the one in which it was
made. Copies of one history in one place share its beginning. In Claude the one whose file began
first is the parent, also where what they share names another. In opencode a fork's title names its
parent's, so that of several older copies one can be told from the others; where it cannot, none is
named. What is told of one session can so depend on another that is met later.
"""

from __future__ import annotations

from typing import NamedTuple

from indexerd.sessions.card import Card


class Parent(NamedTuple):
    """The session before; either may be all that is known."""

    session_id: str | None = None
    file: str | None = None


class Kin:
    """Every session's relations, by card. One thread uses this."""

    def __init__(self) -> None:
        self._cards: dict[str, Card] = {}
        self._files: dict[str, str] = {}  # path, and its last part -> session id, where not in it
        self._named: dict[str, dict[str, None]] = {}  # parent's id or path -> its children
        self._families: dict[tuple[str, str], dict[str, None]] = {}

    def put(self, session_id: str, card: Card | None) -> set[str]:
        """A session is this now, or gone; says which others are told something new by it."""
        old = self._cards.get(session_id)
        if old is not None and card is not None and _relations(old) == _relations(card):
            self._cards[session_id] = card
            return set()
        others: set[str] = set()
        if old is not None:
            self._forget(session_id, old, others)
        if card is not None:
            self._remember(session_id, card, others)
        others.discard(session_id)
        return others

    def _remember(self, session_id: str, card: Card, others: set[str]) -> None:
        self._cards[session_id] = card
        name = _leaf(card.path)
        if _id_in(name) != session_id:
            self._files[card.path] = self._files[name] = session_id
        if card.parent or card.parent_id:
            for key in _parents(card):
                self._named.setdefault(key, {})[session_id] = None
        self._children(session_id, name, others)
        if card.first:
            family = self._families.setdefault(_family(card), {})
            others.update(family)
            family[session_id] = None

    def _forget(self, session_id: str, card: Card, others: set[str]) -> None:
        del self._cards[session_id]
        name = _leaf(card.path)
        for key in (card.path, name):
            if self._files.get(key) == session_id:
                del self._files[key]
        for key in _parents(card):
            children = self._named.get(key, {})
            children.pop(session_id, None)
            if not children:
                self._named.pop(key, None)
        self._children(session_id, name, others)
        if card.first:
            family = self._families.get(_family(card), {})
            family.pop(session_id, None)
            others.update(family)

    def _children(self, session_id: str, name: str, others: set[str]) -> None:
        """Add those that name a session, or its file, as what they came from."""
        if self._named:
            others.update(self._named.get(name, ()), self._named.get(session_id, ()))

    def _owner(self, path: str) -> str | None:
        """The session of a file, by its path, or else by its name."""
        if path in self._files:
            return self._files[path]
        name = _leaf(path)
        told = _id_in(name)
        held = self._cards.get(told)
        if held is not None and _leaf(held.path) == name:
            return told
        return self._files.get(name)

    def parent(self, card: Card) -> Parent:
        """The session that a card's came from."""
        older = self._older(card) if card.agent == _COPIED else []
        if older:
            return Parent(older[0].session_id, older[0].file)
        if card.parent_id:
            known = self._cards.get(card.parent_id)
            return Parent(card.parent_id, known.file if known else None)
        if card.parent:
            return Parent(self._owner(card.parent), card.parent)
        found = _forked(card, self._older(card))
        return Parent(found[0].session_id, found[0].file) if len(found) == 1 else Parent()

    def _older(self, card: Card) -> list[Card]:
        """Copies of a card's history that are older, oldest first."""
        if not card.first:
            return []
        family = (self._cards[one] for one in self._families.get(_family(card), ()))
        return sorted((one for one in family if _age(one) < _age(card)), key=_age)


_COPIED = "claude"  # the agent whose forks say nothing, and copy all that their origin said
_TITLED = "opencode"  # the agent whose forks say in their title what they came from


def _forked(card: Card, older: list[Card]) -> list[Card]:
    """Of the older copies of a history, those that a fork can have come from.

    A user can rename either. Then the only older copy is it, unless that is a fork itself, whose
    sibling this one may be.
    """
    named = [one for one in older if card.fork_of and one.agent_title == card.fork_of]
    return named or [one for one in older if len(older) == 1 and not one.fork_of]


def _relations(card: Card) -> tuple[object, ...]:
    title = card.agent_title if card.agent == _TITLED else None
    return (
        *(card.path, card.parent_id, card.parent, card.first, card.born_ms),
        *(card.fork_of, title),
    )


def _parents(card: Card) -> list[str]:
    return [one for one in (card.parent_id, _leaf(card.parent or "")) if one]


def _leaf(path: str) -> str:
    """A file's name: pi's holds time and id, and outlives a directory that was moved."""
    return path.rpartition("/")[2]


def _id_in(name: str) -> str:
    """What stands where most agents put a session's id into the name of its file.

    Thousands of files are found by it, and only of others is more than the session kept.
    """
    return name.removesuffix(".zst").removesuffix(".jsonl").rpartition("_")[2][-_ID:]


_ID = 36  # characters of a UUID


def _family(card: Card) -> tuple[str, str]:
    return card.path.rpartition("/")[0], card.first


def _age(card: Card) -> tuple[int, str]:
    return card.born_ms, card.path
