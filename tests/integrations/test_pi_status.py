"""What pi's extension shows of indexing, and its command; pi and the daemon are acted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import until
from tests.integrations.acted_pi import KEY, SAID, Pi, greeting, needed
from tests.integrations.acting import Raw, Refusal, acting

pytestmark = needed


def test_the_daemons_own_runs_are_shown(pi: Pi, socket: Path) -> None:
    """S0.42, S0.43, S0.30: this session's runs, and no other's."""
    with acting(socket, hello=greeting(notificationAutoClearMs=20)) as daemon:
        pi.start()
        until(lambda: daemon.heard_by, "somebody to listen")
        mine = {"sessionId": "s-1"}
        daemon.tell(event="index.started", sessionId="s-2")
        daemon.tell(event="index.started", **mine)
        daemon.tell(event="index.retry", attempt=1, of=2, **mine)
        daemon.tell(event="session.updated", **mine)
        daemon.tell(event="index.succeeded", costUsd=0.0123456, **mine)
        pi.shows(None)
        daemon.tell(event="index.succeeded", costUsd=None, **mine)
        pi.shows(None)
        daemon.tell(event="index.failed", message="no\x1b[31m key\n" + "x" * 999, **mine)
        pi.shows(None)
        pi.ends()
    assert pi.statuses[:-2] == [
        "⏳ indexing...",
        "⏳ indexing... (retry 1/2)",
        "✅ session indexed ($0.0123)",
        None,
        "✅ session indexed (unknown cost)",
        None,
    ]
    assert re.fullmatch(r"❌ index failed: no \[31m key x+…", str(pi.statuses[-2]))
    assert len(str(pi.statuses[-2])) == 200


def test_a_lost_daemon_is_found_again_and_leaves_no_status(pi: Pi, socket: Path) -> None:
    """S0.42: what was announced is taken back when the daemon goes; a new one is heard."""
    with acting(socket) as daemon:
        pi.start()
        until(lambda: daemon.heard_by, "somebody to listen")
        daemon.tell(event="index.started", sessionId="s-1")
        pi.shows("⏳ indexing...")
        daemon.hang_up()
        pi.shows(None)
        until(lambda: daemon.heard_by, "somebody to listen again")
        daemon.tell(event="index.started", sessionId="s-1")
        pi.shows("⏳ indexing...")
        pi.ends()


def test_a_session_that_was_replaced_shows_nothing(pi: Pi, socket: Path) -> None:
    """The old user interface is refused: no exception, and nobody listens for that session."""
    with acting(socket) as daemon:
        pi.start()
        until(lambda: daemon.heard_by, "somebody to listen")
        daemon.tell(event="index.started", sessionId="s-1")
        pi.shows("⏳ indexing...")
        pi.do(stale=True)
        assert "error" not in pi.do(emit="session_shutdown")
        assert "error" not in pi.do(emit="session_shutdown")
        pi.ends()
    assert pi.statuses == ["⏳ indexing..."]


@pytest.mark.parametrize("ui", [True, False])
def test_the_command_forces_a_run(pi: Pi, socket: Path, ui: bool) -> None:
    """S0.3, S0.30: under the daemon's name for it; who has a user interface is not kept waiting."""
    hello = greeting(commandName="remember", notificationAutoClearMs=20)
    with acting(socket, hello=hello, index={"status": "indexed", "costUsd": 0.00125}) as daemon:
        pi.start()
        assert pi.do(list=True)["commands"] == ["remember"]
        pi.do(command="remember", ctx={"hasUI": ui})
        pi.shows(None)
        asked = daemon.params("index")
        pi.ends()
    assert asked == [{"ref": "s-1", "force": True, "wait": True}]
    assert pi.statuses == ["⏳ indexing...", "✅ session indexed ($0.001250)", None]


def test_a_new_sessions_file_is_waited_for(pi: Pi, socket: Path) -> None:
    """S0.4: the daemon learns of a new file a moment later than pi; then other errors count."""
    answers = iter([Refusal("not_found", "unknown")] * 2)

    def index(_params: dict[str, Any]) -> Any:
        raise next(answers, Refusal("already_running", "Session indexing already in progress"))

    with acting(socket, index=index) as daemon:
        pi.start()
        pi.do(command=KEY)
        pi.shows("❌ index failed: Session indexing already in progress")
        assert len(daemon.params("index")) == 3
        pi.ends()


def test_the_command_in_an_empty_session_says_so(pi: Pi, socket: Path) -> None:
    """S0.17: nobody has said anything, and there is no file yet: at once, and nothing is asked."""
    nothing = "❌ index failed: no user/assistant conversation to index"
    tool: dict[str, Any] = {"type": "message", "message": {"role": "toolResult"}}
    with acting(socket, index={"status": "indexed"}) as daemon:
        pi.start()
        for entries in ([], [{"type": "model_change"}], [tool]):
            pi.do(command=KEY, ctx={"entries": entries, "hasUI": False})
        assert pi.statuses == [nothing]
        assert daemon.params("index") == []
        answer: dict[str, Any] = {"type": "message", "message": {"role": "assistant"}}
        for entries in ([tool, SAID], [answer]):
            pi.do(command=KEY, ctx={"entries": entries, "hasUI": False})
        assert len(daemon.params("index")) == 2
        pi.ends()


def test_the_command_does_not_wait_for_a_hung_daemon(pi: Pi, socket: Path) -> None:
    """S0.3: a run may take minutes; a daemon that does not greet is not waited for."""
    with acting(socket, index=Raw(b"")) as daemon:
        pi.start()
        daemon.answers["hello"] = Raw(b"")
        pi.do(command=KEY)
        pi.shows("❌ index failed: indexerd did not answer in time")
        assert daemon.params("index") == []
        pi.ends()


def test_the_command_is_there_without_a_daemon(pi: Pi) -> None:
    """S0.3: under its usual name; it says that the daemon is not running."""
    pi.start()
    assert pi.do(list=True)["commands"] == [KEY]
    pi.do(command=KEY)
    pi.shows("❌ index failed: indexerd is not running")
    pi.ends()


def test_odd_settings_are_as_by_default(pi: Pi, socket: Path) -> None:
    """S0.30: names that pi cannot use are not used."""
    with acting(socket, expand={"statusText": ["told"]}) as daemon:
        for odd in (7, "", "two words", "/x", "a" * 99, None):
            told = {"commandName": odd, "statusKey": odd, "notificationAutoClearMs": "soon"}
            daemon.answers["hello"] = greeting(**told)
            pi.start()
            assert pi.do(list=True)["commands"] == [KEY]
            pi.prompt("@@a")
        pi.ends()
    assert pi.keys == {KEY}
