"""Abandoned branches, copies in other directories, and files of a newer version."""

from typing import Any

import pytest

from tests.e2e.world import Session, World

PREAMBLE = (
    "The user explored a different conversation branch before returning here.\n"
    "Summary of that exploration:\n\n"
)


def session_with_branch(world: World) -> tuple[Session, str, str]:
    session = world.session()
    fork = session.turn("Where do alerts go?")
    leaf = session.turn("Take Redis.", "It is too big.")
    session.last = fork
    return session, fork, leaf


def tips(world: World, session: Session) -> dict[str, dict[str, Any]]:
    world.seen(session)
    return {tip["leafId"]: tip for tip in world.call("branches", ref=session.id)["tips"]}


@pytest.mark.parametrize("named", ["leaf", "fork", "root"])
def test_a_branch_summary_is_attached_by_its_parent(running: World, named: str) -> None:
    """`fromId` can be the old leaf, the target or "root"; only the parent counts (S1.15)."""
    session, fork, leaf = session_with_branch(running)
    from_id = {"leaf": leaf, "fork": fork, "root": "root"}[named]
    said = f"{PREAMBLE}Redis is out.\n\n<read-files>\na.py\n</read-files>"
    summary = session.entry("branch_summary", fromId=from_id, summary=said)
    end = session.turn("Take files.")
    found = tips(running, session)
    assert found.keys() == {leaf, end}
    assert found[leaf]["branchPointId"] == fork
    assert (found[leaf]["gist"], found[leaf]["gistSource"]) == ("Redis is out.", "agent")
    path = [entry["id"] for entry in running.call("path", ref=session.id)["entries"]]
    assert path.index(summary) == path.index(fork) + 1
    assert leaf not in path


def test_a_branchs_reason_is_its_label(running: World) -> None:
    """A label on the agent's summary is the reason; without one there is none (S1.29)."""
    session, _, leaf = session_with_branch(running)
    summary = session.entry("branch_summary", fromId=leaf, summary="Redis is out.")
    session.turn("Take files.")
    assert "reason" not in tips(running, session)[leaf]
    session.entry("label", targetId=summary, label="too big for this host")
    assert tips(running, session)[leaf]["reason"] == "too big for this host"
    bare, _, other = session_with_branch(running)
    bare.turn("Take files.")
    tip = tips(running, bare)[other]
    assert (tip["gist"], tip["gistSource"]) == ("Take Redis.", "ask")
    assert "reason" not in tip


def test_a_newer_version_is_read_with_one_warning(running: World) -> None:
    """Known entries are served, and `status` warns once (S1.12)."""
    session = Session(running.sessions, version=9, novelty={"x": 1})
    session.entry("hologram", shape="cube")
    session.turn("Is this read?", "It is.")
    session.turn()
    running.seen(session)
    row = running.row(session.id)
    messages = running.call("context", ref=session.id)["messages"]
    assert (row["version"], row["userMessageCount"]) == (9, 2)
    assert [message["text"] for message in messages[:2]] == ["Is this read?", "It is."]
    problems = running.call("status")["problems"]
    causes = [problem["cause"] for problem in problems if problem["code"] == "newer_version"]
    assert len(causes) == 1
    assert session.id in causes[0]
