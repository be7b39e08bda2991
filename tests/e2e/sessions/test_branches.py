"""Branches that were left, copies in other directories, and files of a version to come."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.world import Session, World, wait

PREAMBLE = (
    "The user explored a different conversation branch before returning here.\n"
    "Summary of that exploration:\n\n"
)


def left(world: World) -> tuple[Session, str, str]:
    session = world.session()
    fork = session.turn("Where do alerts go?")
    leaf = session.turn("Take Redis.", "It is too big.")
    session.last = fork
    return session, fork, leaf


def tips(world: World, session: Session) -> dict[str, dict[str, Any]]:
    world.seen(session)
    return {one["leafId"]: one for one in world.call("branches", ref=session.id)["tips"]}


def test_branches_that_were_left_are_listed(running: World) -> None:
    """Each with its leaf, the place where it parted, and its entries; two deep (S1.14)."""
    session, fork, redis = left(running)
    inner = session.turn("Take files.", "Which?")
    one = session.turn("One.", "No.")
    session.last = inner
    two = session.turn("Two.", "Yes.")
    found = tips(running, session)
    shown = [(leaf, tip["branchPointId"], tip["entries"]) for leaf, tip in found.items()]
    assert shown == [(redis, fork, 4), (one, inner, 6), (two, inner, 6)]
    assert [tip["active"] for tip in found.values()] == [False, False, True]


@pytest.mark.parametrize("named", ["leaf", "fork", "root"])
def test_a_summary_hangs_where_its_parent_is(running: World, named: str) -> None:
    """Its `fromId` may be the old leaf, the target, or "root": the parent alone counts (S1.15)."""
    session, fork, leaf = left(running)
    told = {"leaf": leaf, "fork": fork, "root": "root"}[named]
    summary = session.entry("branch_summary", fromId=told, summary=f"{PREAMBLE}Redis is out.")
    end = session.turn("Take files.")
    found = tips(running, session)
    assert found.keys() == {leaf, end}
    assert found[leaf]["branchPointId"] == fork
    assert (found[leaf]["gist"], found[leaf]["gistSource"]) == ("Redis is out.", "agent")
    path = [one["id"] for one in running.call("path", ref=session.id)["entries"]]
    assert path.index(summary) == path.index(fork) + 1
    assert leaf not in path


def test_the_reason_of_a_branch_is_its_label_and_never_made_up(running: World) -> None:
    """A label on the agent's summary is shown; without one there is no reason (S1.29)."""
    session, _, leaf = left(running)
    summary = session.entry("branch_summary", fromId=leaf, summary="Redis is out.")
    session.turn("Take files.")
    assert "reason" not in tips(running, session)[leaf]
    session.entry("label", targetId=summary, label="too big for this host")
    assert tips(running, session)[leaf]["reason"] == "too big for this host"
    bare, _, other = left(running)
    bare.turn("Take files.")
    told = tips(running, bare)[other]
    assert (told["gist"], told["gistSource"]) == ("Take Redis.", "ask")
    assert "reason" not in told


def test_a_whole_copy_in_another_directory_is_a_session_of_its_own(running: World) -> None:
    """Its header's id and directory count, and all of the history is there (S1.17)."""
    first = running.session(turns=3)
    place = running.pi / "sessions/--elsewhere--"
    copy = Session(place, cwd="/elsewhere", parentSession=str(first.path))
    with copy.path.open("ab") as file:
        file.write(first.path.read_bytes().partition(b"\n")[2])
    copy.last, copy.turns = first.last, first.turns
    copy.turn("Only in the copy.")
    running.seen(first)
    running.seen(copy)
    row = wait(running, copy.id, parentSessionId=first.id)
    assert (row["cwd"], row["userMessageCount"]) == ("/elsewhere", 4)
    assert row["parentSessionFile"] == str(first.path)
    assert running.row(first.id)["userMessageCount"] == 3
    listed = running.call("list", cwd="/elsewhere")["sessions"]
    assert [one["sessionId"] for one in listed] == [copy.id]


def test_a_version_to_come_is_read_with_one_warning(running: World) -> None:
    """What is understood is served, and `status` says once that there is more (S1.12)."""
    session = Session(running.sessions, version=9, novelty={"x": 1})
    session.entry("hologram", shape="cube")
    session.turn("Is this read?", "It is.")
    session.turn()
    running.seen(session)
    row = running.row(session.id)
    messages = running.call("context", ref=session.id)["messages"]
    assert (row["version"], row["userMessageCount"]) == (9, 2)
    assert [one["text"] for one in messages[:2]] == ["Is this read?", "It is."]
    problems = running.call("status")["problems"]
    told = [one["cause"] for one in problems if one["code"] == "newer_version"]
    assert len(told) == 1
    assert session.id in told[0]
