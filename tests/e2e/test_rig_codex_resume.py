"""The real Codex, resumed: what a session was working with comes back with the first prompt.

Only where `INDEXERD_RIG` names a directory in which the rig is installed (see rig.py).
"""

from __future__ import annotations

from typing import Any

from tests.e2e import test_rig_codex as plain
from tests.e2e.rig import GROW, LINE, RETRY, needed, watched
from tests.e2e.test_rig_codex_mcp import VERSION, Integrated
from tests.e2e.world import World

pytestmark = needed

HEAD = "[SESSION RESUMED]\nShell state was reset. Re-run environment setup before continuing.\n\n"


def test_a_resumed_codex_knows_what_was_relevant(bare_world: World) -> None:
    """S4.15, S4.18: once and to the byte with the first prompt; nothing more with the next."""
    with watched(bare_world, "codex") as (isle, eye):
        put_in = Integrated(isle)
        with plain.codex(isle, VERSION) as app:
            thread = app.thread()
            app.say(thread, LINE)
        eye.sees(thread, userMessageCount=1)
        put_in.integrate()
        items = ["src/forecast.py", "src/gone.py"]
        bare_world.call("set_relevant_context", session=thread, setName="files", items=items)
        with put_in.codex(*put_in.hooks()) as app:
            assert app.thread("thread/resume", threadId=thread) == thread
            app.say(thread, RETRY, GROW)
        first, second = map(_said, put_in.turns()[-2:])
    files = "Relevant files:\n- src/forecast.py\n(1 file(s) no longer exist)"
    block = f"{HEAD}Session directory: {isle.project}\n\n{files}\n---\n\n"
    (told,) = [text for text in first if "[SESSION RESUMED]" in text]
    assert told == block
    assert second[: len(first)] == first
    assert [text for text in second[len(first) :] if "[SESSION RESUMED]" in text] == []
    assert GROW in second[-1]


def _said(body: dict[str, Any]) -> list[str]:
    """The text of each message of a request."""
    said = [one for one in body["input"] if one["type"] == "message"]
    return ["".join(str(part["text"]) for part in one["content"]) for one in said]
