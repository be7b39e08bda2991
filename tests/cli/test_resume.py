"""`resume` and `continue-recent` print or run a session's own command."""

import os
import shlex
import stat
from pathlib import Path

import pytest

from tests.cli.home import Home, forbidden, nowhere
from tests.e2e.world import Session, until

AGENT = """#!/bin/sh
{ pwd; printf '%s\\n' "$@"; } > "$TOLD"
kill -PIPE $$
exit 3
"""


@pytest.fixture
def agent(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / "bin/pi"
    program.parent.mkdir()
    program.write_text(AGENT)
    program.chmod(stat.S_IRWXU)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "TOLD": str(tmp_path / "told")}


def command_of(session: Session, cwd: Path) -> str:
    return f"cd {shlex.quote(str(cwd))} && pi --session {shlex.quote(str(session.path))}"


def test_the_agents_own_command_is_printed(home: Home) -> None:
    """S3.13: alone on stdout for any reference, also without a daemon, and in the JSON answer."""
    expected = command_of(home.retry, home.api)
    assert home.ix("resume", "retry loop").stdout == expected + "\n"
    shown = home.world.on_terminal("resume", "c0ffee02", columns=30)  # its heading would need two
    assert shown == expected + "\n"
    alone = home.ix("resume", "c0ffee02", env=nowhere(home))
    assert (alone.returncode, alone.stdout) == (0, expected + "\n")
    assert home.json("resume", "c0ffee02") == {
        "sessionId": home.retry.id,
        "name": "Tune the retry loop",
        "agent": "pi",
        "command": expected,
    }
    assert expected == home.world.row(home.retry.id)["resume"]


def test_the_newest_session_of_a_project_is_printed(home: Home) -> None:
    """S3.13: of the directory and those below, with name and command, also without a daemon."""
    expected = f"Design the forecast cache  {home.cache.id}\n{command_of(home.cache, home.shop)}\n"
    assert home.ix("continue-recent", cwd=home.shop).stdout == expected
    assert home.ix("continue-recent", cwd=home.shop, env=nowhere(home)).stdout == expected
    found = home.json("continue-recent", "--cwd", "../shop/api", cwd=home.other)
    assert (found["sessionId"], found["agent"]) == (home.retry.id, "pi")
    assert found["command"] == command_of(home.retry, home.api)
    assert home.json("continue-recent", cwd=home.api) == found


def test_deleted_sessions_are_never_continued(home: Home) -> None:
    """S3.13: a session without its file is skipped, however new it is."""
    folder = home.world.root / "work/fleeting"
    folder.mkdir()
    kept = home.session(0.2, "f1ee0001", folder, ("Keep this.", "Kept."))
    lost = home.session(0.1, "f1ee0002", folder, ("Lose this.", "Lost."))
    until(lambda: home.world.row(lost.id) and home.world.row(kept.id), "two sessions")
    assert home.json("continue-recent", cwd=folder)["sessionId"] == lost.id
    lost.path.unlink()
    until(lambda: home.world.row(lost.id)["gone"], "the end of one")
    assert home.json("continue-recent", cwd=folder)["sessionId"] == kept.id
    kept.path.unlink()
    until(lambda: home.world.row(kept.id)["gone"], "the end of the other")
    assert home.json("continue-recent", cwd=folder, code=3)["error"]["code"] == "not_found"


def test_nothing_to_continue_is_not_found(home: Home) -> None:
    """S3.13: a project without sessions, or an agent without any, exits with 3."""
    for argv in (["--cwd", "/nowhere"], ["--agent", "codex", "--cwd", str(home.shop)]):
        error = home.json("continue-recent", *argv, code=3)["error"]
        assert error["code"] == "not_found"
        assert argv[1] in error["message"]
    assert home.json("resume", "zebra", code=3)["error"]["code"] == "not_found"


@pytest.mark.parametrize("options", [[], ["--exec"]])
def test_a_deleted_session_cannot_be_resumed(home: Home, options: list[str]) -> None:
    """S3.13: the error is not_found, and its hint names what is still there."""
    error = home.json("resume", home.gone.id, *options, code=3)["error"]
    assert error["code"] == "not_found"
    assert f"`indexerd show {home.gone.id}`" in error["hint"]
    assert "gone" in home.ix("resume", home.gone.id, *options).stderr


def told(agent: dict[str, str]) -> list[str]:
    return Path(agent["TOLD"]).read_text().splitlines()


def test_exec_becomes_the_agent_in_the_sessions_directory(
    home: Home, agent: dict[str, str]
) -> None:
    """S3.13: no indexerd process remains, arguments are intact, signals have their defaults."""
    done = home.ix("resume", "c0ffee02", "--exec", env=agent, cwd=home.other)
    assert (done.returncode in (-13, 141), done.stdout) == (True, ""), "SIGPIPE must end the agent"
    assert done.stderr == "indexerd: resuming Tune the retry loop\n"
    assert told(agent) == [str(home.api), "--session", str(home.retry.path)]
    done = home.ix("continue-recent", "--exec", env=agent | nowhere(home), cwd=home.shop)
    assert told(agent) == [str(home.shop), "--session", str(home.cache.path)]


def test_hostile_directories_do_not_reach_the_terminal(home: Home, agent: dict[str, str]) -> None:
    """Control characters are not printed; JSON and the agent get the exact path."""
    folder = Path(f"{home.other}/\x1b]0;pwn\x07\u202e")
    folder.mkdir()
    session = home.session(12, "bade0001", folder, ("Look out.", "Yes."))
    until(lambda: home.world.row(session.id), "the session")
    for argv in (["resume", session.id], ["continue-recent", "--cwd", str(folder)]):
        done = home.ix(*argv)
        assert (done.returncode, forbidden(done.stdout)) == (0, set())
        assert r"/$'" not in done.stdout
        assert r"\x1b]0;pwn\x07\u202e' && pi --session " in done.stdout
        assert home.json(*argv)["command"] == command_of(session, folder)
    home.ix("resume", session.id, "--exec", env=agent)
    assert told(agent)[0] == str(folder)


@pytest.mark.parametrize("named", ["claude", "codex", "opencode", "pi"])
def test_another_agent_continues_a_session(
    home: Home, agent: dict[str, str], tmp_path: Path, named: str
) -> None:
    """It starts in the session's directory, with the hand-off as prompt, or in pi as history."""
    program = tmp_path / "bin" / named
    if named != "pi":
        (tmp_path / "bin/pi").rename(program)
    home.ix("continue", "retry loop", "--in", named, env=agent)
    place, *words = told(agent)
    assert place == str(home.api)
    if named != "pi":
        flags = ["--prompt"] if named == "opencode" else []
        assert words[: len(flags) + 1] == [*flags, "# Hand-off: Tune the retry loop"]
        return
    file = Path(words[1])
    assert words[0] == "--session"
    assert file.parent.parent == home.world.pi / "sessions"
    new = until(lambda: home.world.row(file.name.split("_")[1].removesuffix(".jsonl")), "the row")
    assert new["parentSessionId"] == home.retry.id
    (entry,) = home.json("context", new["sessionId"])["messages"]
    assert entry["text"].startswith("# Hand-off: Tune the retry loop")
    missing = home.ix("continue", "retry loop", "--in", "codex", env=agent)
    assert (missing.returncode, "codex is not installed" in missing.stderr) == (3, True)
    assert "pi --session" not in missing.stderr, "that is not Codex's command"
