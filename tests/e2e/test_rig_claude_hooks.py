"""The real Claude Code with the hooks that `indexerd integrate claude` gives it.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).

What surprised us: Claude Code puts a hook's context, with all else that it adds itself, into the
same message as the user's text, and there before it; and it moves its marks of what is to be
cached from request to request.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.e2e import test_rig_claude as plain
from tests.e2e.rig import (
    FIVE,
    GROW,
    LINE,
    PICK,
    PORT,
    REDIS,
    RETRY,
    RIG,
    Beholder,
    Isle,
    isle,
    needed,
    watched,
)
from tests.e2e.test_rig_claude import Claude
from tests.e2e.world import World, until

pytestmark = needed

HEAD = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before continuing.\n\n"
CALLER = PORT + 1  # a scripted model that calls a tool of ours, too
NOTE = "Note what we work with."
TOOL = "mcp__indexerd__set_relevant_context"
# The rig's model, and one prompt to which it answers by calling our tool: argv is where the rig
# is, the port, the prompt, the tool, and what to call it with.
MODEL = """
import json, sys
rig, port, prompt, tool, noted = sys.argv[1:]
sys.path.insert(0, rig)
import fake_server as model, scenarios as s
usual = model.map_call
def call(op, args, body):
    return (op, args, False) if op == tool else usual(op, args, body)
model.map_call = call
s.sc(prompt, s.T("", "", (tool, json.loads(noted))), s.T("That is done."))
server = model.ThreadingHTTPServer(("127.0.0.1", int(port)), model.H)
server.daemon_threads = True
server.serve_forever()
"""


class Hooked:
    """An isle whose Claude Code has our hooks."""

    def __init__(self, isle: Isle) -> None:
        self.isle = isle
        isle.env |= {key: isle.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
        self.claude = Claude(isle)

    def integrate(self, *options: str) -> dict[str, str]:
        """What `indexerd integrate claude` did, by the files' names."""
        done = self.isle.world.run("integrate", "claude", *options, "--json")
        return {one["path"].rpartition("/")[2]: one["did"] for one in done["changes"]}

    def past(self, eye: Beholder) -> tuple[str, str]:
        """A session that is indexed: its id and its name."""
        with self.claude.talk() as talk:
            for prompt in FIVE:
                talk.say(prompt)
        eye.sees(talk.id, userMessageCount=len(FIVE))
        return talk.id, str(eye.indexed(talk.id)["name"])

    def model(self, noted: dict[str, Any]) -> str:
        """Start the model that calls our tool with this, and say where it is."""
        argv = (sys.executable, "-B", "-c", MODEL, str(RIG), str(CALLER), NOTE, TOOL)
        logs = str(self.isle.world.root / "calls")
        self.isle.start(*argv, json.dumps(noted), FAKE_CWD=str(self.isle.project), FAKE_LOG=logs)
        until(lambda: self.isle.answers(CALLER, "/health"), "the model that calls tools")
        return f"http://127.0.0.1:{CALLER}"

    def turns(self, model: str = "model") -> list[list[str]]:
        """Each turn's request so far: its messages as text, without the marks of the cache."""
        dumps = sorted((self.isle.world.root / model).glob("*.json"))
        said = [json.loads(one.read_text()) for one in dumps]
        bodies = [one["body"] for one in said if one["body"].get("tools")]
        return [[_text(message) for message in body["messages"]] for body in bodies]


def _text(message: dict[str, Any]) -> str:
    """A message, each of its parts a line."""
    content = message["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    told = [{key: part[key] for key in part if key != "cache_control"} for part in parts]
    lines = [one["text"] if "text" in one else json.dumps(one) for one in told]
    return "\n".join([message["role"], *lines])


def test_a_reference_in_claude(bare_world: World) -> None:
    """S0.53: what was meant is behind the user's text; the next turn keeps every byte of it."""
    with watched(bare_world, "claude") as (isle, eye):
        hooked = Hooked(isle)
        past, name = hooked.past(eye)
        assert hooked.integrate() == {
            "settings.json": "updated",
            ".claude.json": "updated",
            "SKILL.md": "created",
        }
        asked = f'{PICK} As in @@"{name}".'
        before = len(hooked.turns())
        with hooked.claude.talk() as talk:
            talk.say(asked)
            talk.say(REDIS)
        first, *_, last = hooked.turns()[before:]
        (told,) = [text for text in first if text.endswith(asked)]
        meta = bare_world.meta(past)
        assert meta is not None
        for line in meta["summary"].splitlines():
            assert line in told
        assert told.count(f"({past})") == 1
        assert last[: len(first)] == first
        assert [f"({past})" in text for text in last] == [text == told for text in last]
        assert last[-1].endswith(REDIS)
        assert hooked.integrate("--remove") == {
            "settings.json": "removed",
            ".claude.json": "removed",
            "SKILL.md": "removed",
        }


def test_a_resumed_claude_knows_what_was_relevant(
    bare_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.15, S4.18, S4.27: what its model noted by the tool is in one message of a resume.

    It is in the first request, once and to the byte; the next one has all of that as it was, and
    the message that is new in it brings nothing of ours.
    """
    noted = {"setName": "files", "items": ["src/forecast.py", "src/gone.py"]}
    with watched(bare_world, "claude") as (isle, eye):
        hooked = Hooked(isle)
        hooked.claude.once(LINE)
        hooked.integrate()
        monkeypatch.setitem(plain.ENV, "ANTHROPIC_BASE_URL", hooked.model(noted))
        with hooked.claude.talk() as talk:
            talk.say(NOTE)  # its model is so quick that the daemon may not have seen the session
            eye.sees(talk.id, userMessageCount=1, state="idle")
            talk.say(NOTE)
        assert "Set files: 2 items" in hooked.turns("calls")[-1][-1]
        before = len(hooked.turns("calls"))
        with hooked.claude.talk("--resume", talk.id) as again:
            again.say(RETRY)
            again.say(GROW)
        first, second = hooked.turns("calls")[before:]
    assert "When to call set_relevant_context" in "\n".join(first), "S4.27: the skill"
    files = "Relevant files:\n- src/forecast.py\n(1 file(s) no longer exist)"
    block = f"{HEAD}Session directory: {isle.project}\n\n{files}\n---"
    (told,) = [text for text in first if "[SESSION RESUMED]" in text]
    assert told.count(block) == 1
    assert told.endswith(RETRY)
    assert second[: len(first)] == first
    assert second[-1].endswith(GROW)
    assert "\n".join(second).count("[SESSION RESUMED]") == 1


def test_without_a_daemon_claude_goes_on(bare_world: World) -> None:
    """Nobody listens: the prompt goes through as it is, with a reference and without."""
    with isle(bare_world) as made:
        hooked = Hooked(made)
        hooked.claude.once(LINE)
        hooked.integrate()
        asked = f"{PICK} As in @@cache."
        session = hooked.claude.once(asked)
        assert hooked.turns()[-1][-1].endswith(asked)
        told = hooked.claude.file(session).read_text()
        assert "hook_non_blocking_error" not in told
        assert "hook_additional_context" not in told
