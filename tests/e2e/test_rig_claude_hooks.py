"""The real Claude Code with the hooks that `indexerd integrate claude` gives it.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).

What surprised us: Claude Code puts a hook's context, with all else that it adds itself, into the
same message as the user's text, and there before it; and it moves its marks of what is to be
cached from request to request.
"""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.rig import FIVE, LINE, PICK, REDIS, RETRY, Beholder, Isle, isle, needed, watched
from tests.e2e.test_rig_claude import Claude
from tests.e2e.world import World

pytestmark = needed


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

    def turns(self) -> list[list[str]]:
        """Each turn's request so far: its messages as text, without the marks of the cache."""
        dumps = sorted((self.isle.world.root / "model").glob("*.json"))
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
    """S0.53, X8: what was meant is behind the user's text; the next turn keeps every byte of it."""
    with watched(bare_world, "claude") as (isle, eye):
        hooked = Hooked(isle)
        past, name = hooked.past(eye)
        assert hooked.integrate() == {"settings.json": "updated", ".claude.json": "updated"}
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
        }


def test_a_resumed_claude_knows_what_was_relevant(bare_world: World) -> None:
    """S4.18: the context of a session is there when it is resumed, and once."""
    with watched(bare_world, "claude") as (isle, eye):
        hooked = Hooked(isle)
        session, _ = hooked.past(eye)
        hooked.integrate()
        item = "kept-for-the-resume"
        bare_world.call("set_relevant_context", session=session, setName="notes", items=[item])
        assert hooked.claude.once(RETRY, "--resume", session) == session
        assert "\n".join(hooked.turns()[-1]).count(item) == 1


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
