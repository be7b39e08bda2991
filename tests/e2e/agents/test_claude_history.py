"""Sessions of which Claude Code has nothing left but the prompts in `history.jsonl`."""

import json
import time
import uuid

from tests.e2e.clients import ClaudeSession
from tests.e2e.world import World, hit_by, holding, scanned, until, wait

TOKEN = "ghp_" + "Ab1" * 12


class History:
    def __init__(self, world: World) -> None:
        self.path = world.root / "home/.claude/history.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        text: str,
        session_id: str = "",
        *,
        cwd: str = "/w",
        pasted: str = "",
        days: float = 90,
    ) -> str:
        session_id = session_id or str(uuid.uuid4())
        at = int(1000 * (time.time() - days * 86_400))
        blocks = {"1": {"id": 1, "type": "text", "content": pasted}} if pasted else {}
        line = {"display": text, "pastedContents": blocks, "timestamp": at, "project": cwd}
        with self.path.open("a") as file:
            file.write(json.dumps(line | {"sessionId": session_id}) + "\n")
        return session_id


def test_prompts_of_a_session_that_is_gone(world: World) -> None:
    """It is listed as such, found by its words, shown, and never mistaken for a whole session."""
    history = History(world)
    cleared = history.add("/clear ")
    gone = history.add("Please teach the quagga to sing.")
    history.add("/model opus", gone, days=89)
    history.add(f"Now the okapi, with {TOKEN}.", gone, days=89)
    with history.path.open("a") as file:
        file.write("nonsense\n[]\n")
        file.write('{"display": "older", "timestamp": 1, "project": "/w"}\n')  # without a session
    recent = history.add("Please wait for the zebra.", days=0.1)
    live = ClaudeSession(world.root / "home")
    history.add("Please adjust a heron.", live.id)
    live.turn()
    with world.daemon():
        row = wait(world, gone, promptsOnly=True, gone=True, archived=True)
        assert row["resume"] == ""
        assert row["userMessageCount"] == 2
        assert row["cwd"] == "/w"
        assert "promptsOnly" not in wait(world, live.id, gone=False)
        until(lambda: hit_by(world, "okapi") == {gone}, "the hit")
        assert not hit_by(world, "heron")  # the session's own file counts
        assert not world.row(recent)
        assert not world.row(cleared)
        assert "(prompts only) Please teach" in world.run("show", gone)
        assert "(prompts only) Please teach" in world.run("list", "--all", "--archived")
        assert "quagga" in world.run("export", gone)
        world.run("resume", gone, code=None)
        assert "gone" in world.stderr
        assert world.code != 0
        history.add("And [Pasted text #1 +3 lines]", gone, pasted="the tapir", days=88)
        until(lambda: hit_by(world, "tapir") == {gone}, "the new hit")
    assert holding(TOKEN, world.state) == set()


def test_what_is_known_otherwise_stays(world: World) -> None:
    """A deleted session keeps its whole text; one whose file comes back is read from that.

    Of a history that was rewritten, what remains is read from its new place; the rest stays.
    """
    history, home = History(world), world.root / "home"
    seen, back = ClaudeSession(home), ClaudeSession(home)
    seen.turn("Please adjust the heron.")
    for session in (seen, back):
        history.add("Please adjust something.", session.id)
    with world.daemon():
        wait(world, back.id, promptsOnly=True)
        until(lambda: hit_by(world, "heron") == {seen.id}, "the hit")
        seen.path.unlink()
        wait(world, seen.id, gone=True)
        back.turn("Please adjust the ibis.")
        assert "promptsOnly" not in wait(world, back.id, gone=False)
        until(lambda: hit_by(world, "ibis") == {back.id}, "the hit")
        scanned(world)
        assert hit_by(world, "heron") == {seen.id}
        assert "promptsOnly" not in world.row(seen.id)
        first, second = history.add("Feed the emu."), history.add("Feed the moa.")
        until(lambda: hit_by(world, "emu OR moa") == {first, second}, "the hits")
        *_, last = history.path.read_text().splitlines(keepends=True)
        history.path.write_text(last)
        scanned(world)
        until(lambda: "moa" in world.run("export", second), "the session")
        assert world.row(first)["promptsOnly"]
        assert hit_by(world, "emu OR moa") == {first, second}
        for session_id in (first, second):  # the file is everyone's
            world.run("purge", session_id, "--transcript", "--yes", code=2)
            assert "only prompts" in world.stderr
        assert history.path.read_text() == last


def test_exclusions_and_purge_apply(world: World) -> None:
    """By directory, by the file that it had, and after a restart."""
    history = History(world)
    hidden = [history.add("Hide the kiwi.", cwd=cwd) for cwd in ("/secret/a", "/work/b.c")]
    purged, stays = history.add("Purge the kiwi."), history.add("Keep the kiwi.")
    world.configure('[privacy]\nexclude = ["/secret", "*/projects/-work-b-c/*"]\n')
    with world.daemon():
        until(lambda: hit_by(world, "kiwi") == {purged, stays}, "the hits")
        world.run("purge", purged, "--yes")
        until(lambda: hit_by(world, "kiwi") == {stays}, "the purge")
    with world.daemon():
        scanned(world)
        assert hit_by(world, "kiwi") == {stays}
        assert not any(map(world.row, (*hidden, purged)))
