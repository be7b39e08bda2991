"""A change reaches only the session that was named exactly, never a guess (S4.26)."""

import uuid
from typing import Any

import pytest

from indexerd.errors import AmbiguousError, NotFoundError
from tests.e2e.world import World

SETS: dict[str, Any] = {"setName": "files", "items": ["/theirs.txt"]}
CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("update", "ref", {"title": "Theirs"}),
    ("label", "ref", {"entryId": "e", "text": "t"}),
    ("branch", "ref", {"leaf": "e"}),
    ("index", "ref", {"force": True}),
    ("digest", "ref", {}),
    ("branch_summary", "ref", {"leaf": "e"}),
    ("set_relevant_context", "session", SETS),
    ("resume_context", "session", {"resumeId": "r"}),
    ("purge", "ref", {}),
)


def test_an_unknown_id_matches_no_session(world: World) -> None:
    """S4.26: not even a session that mentions the id, or has it or a similar one as its title."""
    unknown = str(uuid.uuid4())
    session = world.session()
    with world.daemon():
        session.turn(f"continue session {unknown} please")
        world.seen(session)
        for title in (None, unknown, unknown[:-1] + "g"):
            world.call("update", ref=session.id, title=title)
            for method in ("get", "resolve", "footer"):
                with pytest.raises(NotFoundError):
                    world.call(method, ref=unknown)
        for method, key, params in CHANGES:
            with pytest.raises(NotFoundError):
                world.call(method, **{key: unknown}, **params)
        world.run("purge", unknown, "--yes", code=3)
        assert world.row(session.id)["name"] == unknown[:-1] + "g"
        assert world.call("get_relevant_context", session=session.id)["context"] == {}


def test_a_fuzzy_name_changes_nothing(world: World) -> None:
    """interfaces.md 4: lookups accept a fuzzy name; changes offer it as a candidate only."""
    session = world.session(turns=1)
    near, exact = "confirm buton refactor", "confirm-button-refactor"
    with world.daemon():
        world.seen(session)
        world.call("update", ref=session.id, title="Confirm button refactor")
        assert world.call("resolve", ref=near)["how"] == "fuzzy"
        assert world.call("footer", ref=near)["sessionId"] == session.id
        assert world.call("get_relevant_context", session=near)["sessionId"] == session.id
        for method, key, params in CHANGES:
            with pytest.raises(AmbiguousError) as caught:
                world.call(method, **{key: near}, **params)
            assert [candidate["sessionId"] for candidate in caught.value.candidates] == [session.id]
        refusal = world.run("rename", near, "Theirs", "--json", code=3)
        assert refusal["error"]["candidates"][0]["sessionId"] == session.id
        assert world.row(session.id)["name"] == "Confirm button refactor"
        done = world.call("set_relevant_context", session=exact, **SETS)
        assert done["sessionId"] == session.id
        assert world.call("resume_context", session=exact, resumeId="r")["text"]
        assert world.call("update", ref=session.id[:8], title="Mine")["name"] == "Mine"
        assert world.call("purge", ref="mine")["sessionId"] == session.id


def test_a_word_that_only_messages_have_is_no_name(world: World) -> None:
    """S0.49: nothing is offered for it but a search; one that a name has is offered."""
    sessions = [world.session(turns=1) for _ in range(2)]
    for session in sessions:
        session.turn(answer="There is nope in it.")
    world.run("run", "--once")
    world.run("show", "nope", code=3)
    assert 'no session matches "nope"' in world.stderr
    assert "2 sessions have such words: `indexerd search nope`" in world.stderr
    refusal = world.run("--json", "show", "adjust widget", code=3)
    assert len(refusal["error"]["candidates"]) == len(sessions)
