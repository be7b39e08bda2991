"""The family of a session, out of the catalog: who is a member, and what it costs to find out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def born(session_id: str, parent: str | None = None, minute: int = 0, **more: Any) -> Any:
    """A row of a session that came from another one."""
    usual = {"state": "idle", "userMessageCount": 1, "subagent": False}
    named = {"parentSessionId": parent} if parent else {}
    return row(session_id, minute, **usual | named | more)


def family(ask: Answers, ref: str) -> Any:
    return ask.family(ask.row(ref))


def answers(catalog: TextIndex, hidden: Callable[[dict[str, Any]], bool] | None = None) -> Answers:
    return Answers(catalog, hidden)


def outline(found: dict[str, Any]) -> str:
    """Ids and depths, with the parent that is missing before them."""
    told = [f"{one['sessionId']}{one['depth']}" for one in found["members"]]
    return " ".join([*filter(None, [found.get("missingParent")]), *told])


@pytest.mark.parametrize("one", "abcde")
def test_a_circle_has_one_beginning(catalog: TextIndex, one: str) -> None:
    """S1.7: what agents write cannot hang us; the oldest begins it, whoever asks."""
    ring = {"a": "c", "b": "a", "c": "b", "d": "d", "e": "c"}
    fill(catalog, *(born(key, parent, 9 - n) for n, (key, parent) in enumerate(ring.items())))
    found = family(answers(catalog), one)
    assert outline(found) == ("d0" if one == "d" else "c0 e1 a1 b2")
    assert found["members"][0]["relation"] == "root"


def test_what_is_excluded_is_no_member(catalog: TextIndex) -> None:
    """S4.22, F: its children hang on as if it had never been met; nothing of it is told."""
    fill(catalog, born("a"), born("b", "a"), born("c", "b"), born("d", "b"), born("e", "a"))
    ask = answers(catalog, lambda row: row["sessionId"] == "b")
    assert outline(family(ask, "a")) == "a0 e1"
    assert outline(family(ask, "c")) == "b c0 d0"
    with pytest.raises(NotFoundError):
        family(ask, "b")


def test_a_family_may_be_of_any_size(catalog: TextIndex) -> None:
    """At most 500 members come, the session asked about among them; `more` counts the rest."""
    children = [born(f"s{n:04}", "a", n, subagent=n % 2 == 1) for n in range(1, 700)]
    fill(catalog, born("a"), *children, *(born(f"t{n:04}", f"t{n - 1:04}", n) for n in range(700)))
    ask = answers(catalog)
    found = family(ask, "s0699")
    assert (len(found["members"]), found["more"]) == (500, 200)
    assert outline(found).endswith("s04981 s06991")
    found = family(ask, "t0650")
    assert (found["members"][-1]["sessionId"], found["more"]) == ("t0650", 200)
    assert found["missingParent"] == "t-001"
