"""What a page is sent of a session that goes on."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from indexerd.web.live import VERSIONS_MAX, _LiveSession

LISTS = st.lists(st.integers(0, 3), max_size=6)


def session() -> _LiveSession:
    """One whose file is never read."""
    return _LiveSession({"agent": "pi", "sessionFile": "/x", "sessionId": "s"}, lambda _: None)


def document(nodes: list[int], beats: list[int], **more: Any) -> dict[str, Any]:
    """A document of these nodes and beats."""
    return {"nodes": nodes, "beats": beats, "exportedAt": object(), **more}


def applied(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """What a page has then: story.js does the same."""
    keep = change.get("keep", {"nodes": 0, "beats": 0})
    return {key: old.get(key, [])[: keep[key]] + change[key] for key in keep}


@given(st.lists(st.tuples(LISTS, LISTS, st.integers(0, 6)), min_size=1, max_size=12))
def test_a_page_has_what_the_session_is(steps: list[tuple[list[int], list[int], int]]) -> None:
    """Whatever changes, and whichever version a page has: the newest, an old one, or none."""
    live = session()
    known: list[tuple[str | None, dict[str, Any]]] = [(None, {})]
    for nodes, beats, which in steps:
        since, old = known[-1 - which % len(known)]
        change = live._answer(document(nodes, beats), since)
        if "nodes" in change:
            held = applied(old, change)
        else:
            assert change == {"version": since, "base": since}
            held = old
        assert held == {"nodes": nodes, "beats": beats}
        known.append((change["version"], held))
    assert len(live._versions) <= VERSIONS_MAX


def test_nothing_new_is_a_word_and_another_name_is_news() -> None:
    """The moment of an answer is no change; anything else of the document is."""
    live = session()
    first = live._answer(document([1], [], session={"name": "a"}), None)
    version = first["version"]
    again = live._answer(document([1], [], session={"name": "a"}), version)
    assert again == {"version": version, "base": version}
    other = live._answer(document([1], [], session={"name": "b"}), version)
    assert (other["keep"], other["nodes"]) == ({"nodes": 1, "beats": 0}, [])
    assert other["session"] == {"name": "b"}
    assert "keep" not in session()._answer(document([1], []), version)
