"""The family of a session: its members, their order, and bounds on the answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.daemon.answers import Answers
from indexerd.errors import NotFoundError
from indexerd.search.index import TextIndex
from tests.store.rows import fill, row, texts


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[TextIndex]:
    found = texts(tmp_path)
    yield found
    found.close()
    found.store.close()


def related_row(session_id: str, parent: str | None = None, minute: int = 0, **more: Any) -> Any:
    """A row of a session, possibly with a parent."""
    usual = {"state": "idle", "userMessageCount": 1, "subagent": False}
    named = {"parentSessionId": parent} if parent else {}
    return row(session_id, minute, **usual | named | more)


def family(ask: Answers, ref: str) -> Any:
    return ask.family(ask.row(ref))


def outline(found: dict[str, Any]) -> str:
    """Ids and depths of the members, after the missing parent if there is one."""
    members = [f"{member['sessionId']}{member['depth']}" for member in found["members"]]
    return " ".join([*filter(None, [found.get("missingParent")]), *members])


@pytest.mark.parametrize("session_id", "abcde")
def test_a_cycle_starts_at_its_oldest_session(catalog: TextIndex, session_id: str) -> None:
    """S1.7: a cycle of parents ends, and each member gets the same answer."""
    ring = {"a": "c", "b": "a", "c": "b", "d": "d", "e": "c"}
    fill(
        catalog, *(related_row(key, parent, 9 - n) for n, (key, parent) in enumerate(ring.items()))
    )
    found = family(Answers(catalog), session_id)
    assert outline(found) == ("d0" if session_id == "d" else "c0 e1 a1 b2")
    assert found["members"][0]["relation"] == "root"


def test_excluded_sessions_are_not_members(catalog: TextIndex) -> None:
    """S4.22, F: children of an excluded session have a missing parent; nothing else shows it."""
    fill(
        catalog,
        related_row("a"),
        related_row("b", "a"),
        related_row("c", "b"),
        related_row("d", "b"),
        related_row("e", "a"),
    )
    catalog.store.forget("b")
    ask = Answers(catalog)
    assert outline(family(ask, "a")) == "a0 e1"
    assert outline(family(ask, "c")) == "b c0 d0"
    with pytest.raises(NotFoundError):
        family(ask, "b")
