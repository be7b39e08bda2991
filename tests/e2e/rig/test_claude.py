"""The real Claude Code talks to a scripted model, without and with the integration."""

import json
from typing import Any

from tests.e2e.rig import sandbox as rig
from tests.e2e.rig.claude import Claude
from tests.e2e.rig.sandbox import Observer, Sandbox, needed, watched
from tests.e2e.world import World, until

pytestmark = needed


def five(claude: Claude, observer: Observer) -> str:
    with claude.talk() as talk:
        for count, prompt in enumerate(rig.FIVE, 1):
            talk.say(prompt)
            observer.sees(talk.id, userMessageCount=count)
    observer.indexed(talk.id)
    return talk.id


def test_turns_of_the_real_claude(bare_world: World) -> None:
    """S0.1, S0.7: each turn is seen, each due one is sent once, and a session is resumed."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        session = five(claude, observer)
        assert claude.once(rig.FIX, "--resume", session, "--name", "Forecast cache") == session
        changed = [str(sandbox.project / path) for path in rig.FIXED]
        row = observer.sees(
            session, userMessageCount=6, newUserMessages=1, agentTitle="Forecast cache"
        )
        assert (row["agent"], row["firstUserMessage"]) == ("claude", rig.FIVE[0])
        assert (row["cwd"], row["sessionFile"]) == (str(sandbox.project), str(claude.file(session)))
        until(
            lambda: sorted(observer.sees(session)["filesModified"]) == changed, "the changed files"
        )
        observer.paid(**{session: 1})


def integrated(sandbox: Sandbox, *options: str) -> list[str]:
    sandbox.env |= {key: sandbox.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
    done = sandbox.world.run("integrate", "claude", *options, "--json")["changes"]
    return [change["did"] for change in done]


def messages(body: dict[str, Any]) -> list[str]:
    return [_text(message) for message in body["messages"]]


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    kept = [{key: part[key] for key in part if key != "cache_control"} for part in parts]
    lines = [message["text"] if "text" in message else json.dumps(message) for message in kept]
    return "\n".join([message["role"], *lines])


def test_a_reference_in_claude(bare_world: World) -> None:
    """S0.53: the summary reaches the model, and the next request repeats every byte."""
    with watched(bare_world, "claude") as (sandbox, observer):
        claude = Claude(sandbox)
        past = five(claude, observer)
        assert sorted(integrated(sandbox)) == ["created", "updated", "updated"]
        meta = bare_world.meta(past) or {}
        asked = f'{rig.PICK} As in @@"{meta["name"]}".'
        before = len(sandbox.bodies())
        with claude.talk() as talk:
            talk.say(asked)
            talk.say(rig.REDIS)
        first, *_, last = map(messages, sandbox.bodies()[before:])
        (block,) = [text for text in first if text.endswith(asked)]
        assert all(line in block for line in meta["summary"].splitlines())
        assert block.count(f"({past})") == 1
        assert last[: len(first)] == first
        assert [f"({past})" in text for text in last] == [text == block for text in last]
        assert last[-1].endswith(rig.REDIS)
        assert sorted(integrated(sandbox, "--remove")) == ["removed", "updated", "updated"]
