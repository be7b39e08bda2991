"""Excluded sessions stay excluded after reloads, broken configuration and deleted files."""

import json
import signal
from pathlib import Path

import pytest

from indexerd.errors import NotFoundError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import Session, World, hit_by, listed, until, wait

pytestmark = pytest.mark.faults


GOOD = '[privacy]\nexclude = ["/secret/**"]\n[redact]\nextra_patterns = ["CUSTOM-[0-9]+"]\n'
REFUSED = GOOD.replace('[0-9]+"]', '[0-9]+", "(?<=x)y"]')


def check(world: World, open_id: str, closed_id: str) -> None:
    until(lambda: world.row(open_id), "the row")
    assert listed(world) == [open_id]
    with pytest.raises(NotFoundError):
        world.call("get", ref=closed_id)
    found = world.call("expand", text=f"@@{closed_id}: secret? @@{open_id}: which alerts?")
    text = json.dumps(found)
    assert "topsecret" not in text
    assert "CUSTOM-999" not in text
    assert "[redacted" in text


@pytest.mark.parametrize(
    ("broken", "causes"),
    [
        (f'min_new_user_messages = "five"\nbogus = 1\n{GOOD}', ("min_new_user_messages", "bogus")),
        ("[privacy\n", ()),
        (REFUSED, ("(?<=x)y",)),
    ],
)
def test_exclusions_outlive_a_bad_configuration(
    world: World, broken: str, causes: tuple[str, ...]
) -> None:
    """S0.26: each error is listed, nothing is indexed, and the last valid exclusions apply."""
    seen, hidden = world.session(1, cwd="/w"), world.session(cwd="/secret/x")
    hidden.turn("The topsecret plan, please.", "The topsecret answer.")
    seen.turn("Which alerts?", "CUSTOM-999 alerts.")
    world.configure(GOOD)
    with world.daemon():
        check(world, seen.id, hidden.id)
    world.configure(broken)
    with world.daemon():
        status = world.call("status")
        assert status["state"] == "indexing-off"
        assert all(cause in json.dumps(status["problems"]) for cause in causes)
        check(world, seen.id, hidden.id)
        due = world.session(turns=6)
        until(lambda: world.row(due.id), "the session")
        answer = world.run("index", due.id, "--force", "--json", code=78)
        assert answer["error"]["code"] == "config_invalid"
        assert world.meta(due.id) is None
    assert world.run("config", "check", "--json", code=78)["error"]["code"] == "config_invalid"


def test_exclusions_follow_the_configuration(world: World) -> None:
    """A reload or restart drops an excluded session with its text, and brings it back."""
    world.scripted()
    hidden = Session(world.sessions, cwd="/secret/place")
    hidden.talk(4)
    with world.daemon() as process:
        until(lambda: world.call("search", query="widget")["hits"], "the text")
        world.configure('min_new_user_messages = 2\n[privacy]\nexclude = ["/secret"]\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: not listed(world, archived=True), "the session to go")
        assert world.call("search", query="widget")["hits"] == []
        hidden.turn()
        shown = world.session(turns=3)
        world.wait_meta(shown.id)
        assert {shown.id} == {call["session"] for call in world.calls()}
    report = world.run("run", "--once", "--json")
    assert (report["sessions"], report["indexed"]) == (1, [])
    world.configure("min_new_user_messages = 2\n")
    report = world.run("run", "--once", "--json")
    assert [hidden.id] == report["indexed"]


def test_excluded_sessions_are_shown_nowhere(world: World, home: Path) -> None:
    """This includes sessions whose file is deleted, and commands without a daemon."""
    gone, there = ClaudeSession(home, "/secret/a"), ClaudeSession(home, "/secret/b")
    gone.turn("The gone pelican.")
    there.turn("The kept pelican.")
    with world.daemon():
        for session in (gone, there):
            wait(world, session.id, userMessageCount=1)
        until(lambda: len(hit_by(world, "pelican")) == len((gone, there)), "the text")
        gone.path.unlink()
        wait(world, gone.id, gone=True)
    world.configure('[privacy]\nexclude = ["/secret"]\n')
    assert world.run("list", "--all", "--archived", "--json")["sessions"] == []
    assert world.run("search", "pelican", "--json")["hits"] == []
    for command in ("show", "tree", "context", "resume", "resolve"):
        assert world.run(command, gone.id, "--json", code=3)["error"]["code"] == "not_found"
        assert world.run(command, there.id, "--json", code=3)["error"]["code"] == "not_found"
    with world.daemon():
        until(lambda: world.call("status")["lastScanAt"], "the first scan")
        assert listed(world, archived=True) == []
        assert world.call("search", query="pelican")["hits"] == []


def test_a_bad_file_at_a_reload_keeps_the_old_values(world: World) -> None:
    """Exclusions and thresholds of the last valid file apply until the file is corrected."""
    world.configure('min_new_user_messages = 3\n[privacy]\nexclude = ["/secret"]\n')
    with world.daemon() as process:
        world.configure("min_new_user_messages = 1\nnonsense = 1\n")
        process.send_signal(signal.SIGHUP)
        log = world.state / "log.jsonl"
        until(lambda: "config.invalid" in log.read_text(), "the complaint")
        hidden, small = world.session(turns=4, cwd="/secret"), world.session(turns=2)
        shown = world.session(turns=3)
        world.wait_meta(shown.id)
        until(lambda: world.row(small.id), "the small one")
        assert (world.meta(small.id), world.row(hidden.id)) == (None, {})
        status = world.call("status")
        assert status["state"] == "degraded"
        assert [problem["code"] for problem in status["problems"]] == ["config_invalid"]
        world.configure("min_new_user_messages = 1\n")  # the corrected file is accepted
        process.send_signal(signal.SIGHUP)
        for session in (small, hidden):
            world.wait_meta(session.id)
        assert world.call("status")["state"] == "ok"


@pytest.mark.parametrize(
    "glob", ["~/.codex/sessions/2026/11/22/*-secret.jsonl", "{home}/.codex/**/*-secret.jsonl"]
)
def test_an_excluded_base_is_left_out_of_its_fork(world: World, home: Path, glob: str) -> None:
    """S2.21: the excluded part of a history is in no tree and in no export."""
    base = CodexThread(home, "-secret")
    base.turn("The topsecret plan, please.")
    fork = base.fork()
    fork.turn("Which alerts?")
    world.configure(f"[privacy]\nexclude = [{json.dumps(glob.format(home=home))}]\n")
    world.run("run", "--once")
    for command in (("tree", fork.id), ("export", fork.id, "--format", "md")):
        shown = world.run(*command)
        assert "Which alerts?" in shown
        assert "topsecret" not in shown
