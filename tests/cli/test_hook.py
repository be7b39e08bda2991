"""`indexerd hook`, which agents run at prompts, and other commands that must start fast."""

import json
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.home import INDEXERD, Home
from tests.e2e.forked import ran
from tests.e2e.world import ROOT, until
from tests.fakes.daemon import FAILED, Acting, Raw, acting

ANSWERS: dict[str, Any] = {
    "hello": {"settings": {}},
    "resume_context": {"text": "the context of a session that goes on", "missingFiles": []},
    "expand": {
        "failures": FAILED,
        "messages": [
            {"customType": "session-reference", "content": "about “Cache”"},
            {"customType": "session-reference", "content": "the answer"},
        ],
    },
}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Acting]:
    with acting(tmp_path / "s.sock", **ANSWERS) as made:
        yield made


def run(socket_path: Path | str, said: str | dict[str, Any], *words: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "INDEXERD_SOCKET": str(socket_path)}
    told = said if isinstance(said, str) else json.dumps(said)
    done = ran([*INDEXERD, "hook", *(words or ["claude"])], told, env=env, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def prompt(text: str, **more: str) -> dict[str, Any]:
    told = {"session_id": "me", "cwd": "/w", "transcript_path": "/t", "permission_mode": "default"}
    return {**told, "hook_event_name": "UserPromptSubmit", "prompt": text, **more}


def start(source: str) -> dict[str, Any]:
    return {"session_id": "me", "cwd": "/w", "hook_event_name": "SessionStart", "source": source}


def test_a_prompt_with_references(fake: Acting) -> None:
    """S0.53, S1.38: all messages are added in order; the user sees the failures."""
    said = json.loads(run(fake.server_address, prompt("as in @@cache @@zebra @@deploy")))
    assert said["hookSpecificOutput"] == {
        "hookEventName": "UserPromptSubmit",
        "additionalContext": "about “Cache”\n\nthe answer",
    }
    assert said["suppressOutput"] is True
    assert said["systemMessage"].split("\n") == FAILED
    assert fake.methods == ["expand"]
    (params,) = fake.params("expand")
    assert params["maxBytes"] < 10_000  # the agent would put a longer text into a file
    held = {key: params[key] for key in ("text", "sessionId", "cwd")}
    assert held == {"text": "as in @@cache @@zebra @@deploy", "sessionId": "me", "cwd": "/w"}


def test_codex_says_which_turn_it_is(fake: Acting) -> None:
    """A question also asks how long its answer may take."""
    said = json.loads(run(fake.server_address, prompt("@@cache: why?", turn_id="t7"), "codex"))
    assert said.keys() == {"hookSpecificOutput", "systemMessage"}
    assert "the answer" in said["hookSpecificOutput"]["additionalContext"]
    assert fake.methods == ["hello", "expand"]
    assert fake.params("expand")[0]["turnId"] == "t7"


def test_a_prompt_without_references_opens_no_connection(fake: Acting) -> None:
    for text in ("plain", "a@b.c", "@one", ""):
        assert run(fake.server_address, prompt(text)) == ""
    assert run(fake.server_address, prompt("plain", cwd="/w/@@x")) == ""
    assert fake.asked == []


def test_a_resumed_session_gets_its_context(fake: Acting) -> None:
    """S4.18: only at a resume, with a new resume id each time."""
    for _ in range(2):
        said = json.loads(run(fake.server_address, start("resume")))
        assert said["hookSpecificOutput"]["hookEventName"] == "SessionStart"
        assert said["hookSpecificOutput"]["additionalContext"].startswith("the context")
    for source in ("startup", "clear", "compact", "fork"):
        assert run(fake.server_address, start(source)) == ""
    assert fake.methods == ["resume_context"] * 2
    asked = fake.params("resume_context")
    assert [params["session"] for params in asked] == ["me", "me"]
    assert asked[0]["resumeId"] != asked[1]["resumeId"]
    fake.answers["resume_context"] = {"text": None, "missingFiles": []}
    assert run(fake.server_address, start("resume")) == ""


@pytest.mark.parametrize(
    "words", [["pi"], ["nonsense"], [""], ["claude", "--json"], ["claude", "x"], ["--help"]]
)
def test_other_agents_get_no_answer(fake: Acting, words: list[str]) -> None:
    assert run(fake.server_address, prompt("as in @@cache"), *words) == ""
    assert fake.asked == []


@pytest.mark.parametrize("end", [">/dev/full", ">&-", "2>&- >/dev/full", "| true"])
def test_a_closed_stdout_is_no_error(fake: Acting, tmp_path: Path, end: str) -> None:
    if "full" in end and not Path("/dev/full").exists():
        pytest.skip("no such device here")
    hook = shlex.join([*INDEXERD, "hook", "claude"])
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    env["INDEXERD_SOCKET"] = str(fake.server_address)
    told, line = json.dumps(prompt("as in @@cache")), f"{{ {hook}; echo $? >code; }} {end}"
    done = ran(["sh", "-c", line], told, env=env, cwd=tmp_path)
    assert ((tmp_path / "code").read_text(), done.stderr) == ("0\n", "")


BAD_INPUT = {
    "nothing": "",
    "no JSON": "{@@",
    "an unknown event": '{"hook_event_name": "Stop", "prompt": "@@x"}',
    "no prompt": '{"hook_event_name": "UserPromptSubmit", "x": "@@"}',
    "a prompt that is no text": '{"hook_event_name": "UserPromptSubmit", "prompt": ["@@x"]}',
    "no session": '{"hook_event_name": "SessionStart", "source": "resume"}',
    "far too much": '{"hook_event_name": "Stop", "prompt": "@@' + "x" * 5_000_000,
    "nested deeply": '{"@@": ' + "[" * 200_000,
}


@pytest.mark.parametrize("what", BAD_INPUT)
def test_malformed_input_is_ignored(fake: Acting, what: str) -> None:
    assert run(fake.server_address, BAD_INPUT[what]) == ""
    assert fake.asked == []


BAD_REPLIES = {
    "no JSON": Raw(b"oops\n"),
    "another shape": [1],
    "an error": Raw(b'{"id": 1, "error": {"code": 1, "message": "m"}}\n'),
    "messages of another shape": {"references": [], "messages": [3]},
}


@pytest.mark.parametrize("what", BAD_REPLIES)
def test_a_broken_answer_is_ignored(fake: Acting, what: str) -> None:
    fake.answers |= dict.fromkeys(ANSWERS, BAD_REPLIES[what])
    assert run(fake.server_address, prompt("@@cache")) == ""
    assert run(fake.server_address, prompt("@@cache: why?")) == ""
    assert run(fake.server_address, start("resume")) == ""


def test_a_daemon_that_hangs_is_not_waited_for(fake: Acting) -> None:
    fake.answers["hello"] = Raw(b"")
    assert run(fake.server_address, prompt("@@cache: why?")) == ""
    assert fake.methods == ["hello"]


def test_without_a_daemon_nothing_is_printed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file", "/dev/null/x", "/" + "x" * 300):
        assert run(path, prompt("@@cache")) == ""
        assert run(path, start("resume")) == ""


OURS = {
    "indexerd", "indexerd.__main__", "indexerd.cli", "indexerd.cli.backend", "indexerd.cli.hook",
    "indexerd.client", "indexerd.errors",
}  # fmt: skip
FULL = ["--color", "never"]  # the same command in a form that the fast path does not handle

ASKED = {
    "found by its id": ["resolve", "c0ffee01-0000-4000-8000-000000000000"],
    "found by something like its name": ["resolve", "forecast"],
    "not found": ["resolve", "zebra"],
    "ambiguous": ["resolve", "deploy"],
    "too long a reference": ["resolve", "x" * 100_000],
    "candidates": ["complete"],
    "candidates of a prefix": ["complete", "tune"],
    "references": ["expand", "as in @@forecast and @@deploy and @@zebra"],
    "references inline": ["expand", "--inline", "as in @@forecast", "--session", "asking"],
    "no references": ["expand", "nothing", "--cwd", "/"],
    "references of no directory": ["expand", "as in @@forecast", "--cwd", ""],
    "references of a directory": ["expand", "as in @@forecast", "--cwd", "work/../work/shop"],
}


def imports(home: Home, *words: str) -> set[str]:
    done = ran([sys.executable, "-X", "importtime", *words], env=home.world.env)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


def test_hooks_import_the_standard_library_only(home: Home) -> None:
    """interfaces.md 4: no third-party module, and only the modules that are needed."""
    always = imports(home, "-c", "pass")
    for name in ("found by its id", "not found", "ambiguous", "candidates", "references"):
        for options in ([], ["--json"]):
            loaded = imports(home, "-m", "indexerd", *ASKED[name], *options) - always
            foreign = {module.partition(".")[0] for module in loaded} - set(sys.stdlib_module_names)
            # The standard `copy` tries to import Jython's org.python.
            assert foreign - {"org"} == {"indexerd"}
            assert {module for module in loaded if module.startswith("indexerd")} <= OURS


@pytest.mark.parametrize("name", ASKED)
def test_the_fast_path_prints_what_the_full_command_prints(home: Home, name: str) -> None:
    """Once nothing is indexed between the two."""

    def told(*argv: str) -> tuple[int, str, str]:
        done = home.ix(*argv)
        return done.returncode, done.stdout, done.stderr

    for argv in (ASKED[name], [*ASKED[name], "--json"]):
        until(lambda argv=argv: told(*argv) == told(*FULL, *argv), "the same answer")


def test_a_removed_directory_does_not_stop_a_prompt(home: Home) -> None:
    """S0.51: the relative socket path cannot be resolved; the prompt passes."""
    for options in ("", "--color never"):
        gone = home.world.root / "removed"
        gone.mkdir()
        line = f'"$0" -m indexerd {options} expand --inline "as in @@zebra" --cwd below'
        command = ["/bin/sh", "-c", f"rmdir ../removed; exec {line}", INDEXERD[0]]
        done = ran(command, env=home.world.env, cwd=gone)
        assert (done.returncode, done.stdout) == (0, "as in @@zebra\n"), done.stderr


def test_a_hanging_daemon_does_not_stop_a_prompt(tmp_path: Path) -> None:
    """S0.51: it passes after a timeout, with a line on stderr, if not of a hook, and code 0."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        program = (
            "import sys; from indexerd.cli import backend, hook;"
            "backend.QUICK = hook._SECONDS = 0.2;"
            "sys.exit(hook.attempt(sys.argv[1:]))"
        )
        env = {"HOME": str(tmp_path), "INDEXERD_SOCKET": str(tmp_path / "s")}
        for text in ("use @@this", "use @@this: why?"):
            words = [sys.executable, "-c", program]
            done = ran([*words, "expand", "--inline", text], env=env, cwd=ROOT)
            assert (done.returncode, done.stdout) == (0, f"{text}\n")
            assert "did not answer in time" in done.stderr
            done = ran([*words, "hook", "claude"], json.dumps(prompt(text)), env=env, cwd=ROOT)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
