"""What a purged session's resumes leave behind: nothing."""

from __future__ import annotations

from tests.e2e.world import World, until


def test_a_purged_session_that_is_read_again_has_its_blocks_again(world: World) -> None:
    """S4.15, X5: that it had its block, with a resume's id or without, is forgotten with it."""
    with world.daemon():
        session = world.session(turns=1, cwd=str(world.root))
        until(lambda: world.row(session.id), "the session")
        for more in ({}, {"resumeId": "once"}):
            assert world.call("resume_context", session=session.id, **more)["text"]
            assert world.call("resume_context", session=session.id, **more)["text"] is None
        world.call("purge", ref=session.id)
        assert world.call("purge", ref=session.id, undo=True)["undone"]
        until(lambda: world.row(session.id), "the session, read again")
        for more in ({}, {"resumeId": "once"}):
            assert world.call("resume_context", session=session.id, **more)["text"]
