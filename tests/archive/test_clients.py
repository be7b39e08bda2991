"""The real clients go on with sessions that were deleted and restored.

tests/e2e/rig/test_claude_retention.py has Claude Code's, which it deletes itself.
"""

from pathlib import Path

import pytest

from tests.archive.keeping import Archived, content
from tests.e2e.rig.codex import codex
from tests.e2e.rig.opencode import opencode
from tests.e2e.rig.pi import Pi
from tests.e2e.rig.sandbox import FIVE, FIX, Sandbox, needed, program, sandbox
from tests.e2e.world import World, until, wait

pytestmark = needed


def lost_and_found(archived: Archived, session_id: str, count: int) -> None:
    """Delete a session's file, and restore it."""
    path = Path(wait(archived.world, session_id, userMessageCount=count)["sessionFile"])
    archived.copied(path)
    before = path.read_bytes()
    path.unlink()
    archived.taken_over(session_id)
    archived.world.run("restore", session_id)
    assert path.read_bytes() == before
    archived.at(session_id, path)


def in_codex(box: Sandbox, archived: Archived) -> str:
    with codex(box, "codex") as app:
        thread = app.thread()
        app.say(thread, *FIVE[:3])
    lost_and_found(archived, thread, 3)
    with codex(box, "codex") as app:
        assert app.thread("thread/resume", threadId=thread) == thread
        app.say(thread, FIVE[3])
    return thread


def in_pi(box: Sandbox, archived: Archived) -> str:
    pi = Pi(box)
    with pi.talk() as talk:
        for prompt in FIVE[:3]:
            talk.prompt(prompt)
        session, path = talk.id, str(talk.command("get_state")["sessionFile"])
    lost_and_found(archived, session, 3)
    with pi.talk("--session", path) as talk:
        sent = talk.prompt(FIVE[3])
        assert talk.id == session
        assert FIVE[0] in str(sent["messages"])
    return session


def in_opencode(box: Sandbox, archived: Archived) -> str:
    world = archived.world
    folder = Path(program("opencode", "opencode-linux-x64/bin/opencode")).parent
    world.env |= {"PATH": f"{folder}:{world.env['PATH']}"}
    with opencode(box, "opencode") as app:
        session = app.session(title="Cache")
        app.say(session, FIVE[0], FIX, FIVE[1])
        wait(world, session, userMessageCount=3)
        shown = world.run("tree", session)
        copied = until(lambda: archived.copies("live", session), "the copy")
        until(lambda: FIVE[1].encode() in content(copied[0]), "all of it")
        app.call("DELETE", f"/session/{session}")
        archived.taken_over(session)
    world.run("restore", session)
    wait(world, session, archived=False, userMessageCount=3)
    assert world.run("tree", session) == shown
    with opencode(box, "opencode") as app:
        app.say(session, FIVE[2])
    return session


@pytest.mark.parametrize("go", [in_codex, in_pi, in_opencode])
def test_a_restored_session_goes_on(world: World, go: object) -> None:
    archived = Archived(world)
    with sandbox(world) as box, world.daemon():
        assert callable(go)
        session = go(box, archived)
        wait(world, session, userMessageCount=4)
