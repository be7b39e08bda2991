"""The real opencode, with its database and its older tree of files, plain and with the plugin."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import indexerd
from tests.e2e.rig import sandbox as rig
from tests.e2e.rig.opencode import Opencode, both, opencode
from tests.e2e.rig.sandbox import Sandbox, needed, program, watched
from tests.e2e.world import World, until

pytestmark = needed

TITLE = "Weather CLI maintenance session"  # the scripted model gives every session this title
PLUGIN = Path(indexerd.__file__).parent / "integrations/opencode/indexerd.js"
TWO = rig.FIVE[1:3]  # turns that make a session due in `keen_world`


@both
def test_turns_of_the_real_opencode(bare_world: World, version: str) -> None:
    """S0.1, S0.7, S3.9: each turn is seen; due turns are sent once; a session goes on."""
    with watched(bare_world, "opencode") as (sandbox, observer):
        with opencode(sandbox, version) as app:
            session = app.session()
            for count, prompt in enumerate(rig.FIVE, 1):
                app.say(session, prompt)
                observer.sees(session, userMessageCount=count, cwd=str(sandbox.project))
            observer.sees(session, agentTitle=TITLE, firstUserMessage=rig.FIVE[0])
            observer.indexed(session)
            app.say(session, rig.FIX)
            changed = [str(sandbox.project / path) for path in rig.FIXED]
            observer.sees(session, userMessageCount=6, newUserMessages=1)
            until(
                lambda: sorted(observer.sees(session)["filesModified"]) == changed, "changed files"
            )
            app.change(session, title="Forecast cache design")
        with opencode(sandbox, version) as app:
            app.say(session, rig.MODES)
            observer.sees(session, userMessageCount=7, agentTitle="Forecast cache design")
        observer.paid(**{session: 1})


@pytest.fixture
def keen_world(bare_world: World) -> World:
    bare_world.env["INDEXERD_MIN_NEW_USER_MESSAGES"] = "2"
    return bare_world


def plug(sandbox: Sandbox, version: str) -> None:
    config = Path(sandbox.env["XDG_CONFIG_HOME"]) / "opencode"
    (config / "plugins").mkdir(parents=True)
    command = json.dumps([sys.executable, "-m", "indexerd"])
    source = PLUGIN.read_text().replace("__INDEXERD_COMMAND__", command)
    (config / "plugins/indexerd.js").write_text(source)
    (config / "node_modules").mkdir()
    package = json.loads(Path(program(version, "opencode-linux-x64/package.json")).read_text())
    wanted = {"dependencies": {"@opencode-ai/plugin": package["version"]}}
    (config / "package.json").write_text(json.dumps(wanted))
    (config / "package-lock.json").write_text(json.dumps({"packages": {"": wanted}}))
    sandbox.env |= {key: sandbox.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}


def turns(sandbox: Sandbox) -> list[list[dict[str, Any]]]:
    return [
        [message for message in b["messages"] if message["role"] != "system"]
        for b in sandbox.bodies()
    ]


def texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [str(block["text"]) for block in content]


def parts(app: Opencode, session: str, nth: int = 0) -> list[dict[str, Any]]:
    messages = app.call("GET", f"/session/{session}/message")
    prompts = [message["parts"] for message in messages if message["info"]["role"] == "user"]
    found: list[dict[str, Any]] = prompts[nth]
    return found


@both
def test_references_reach_opencodes_model(keen_world: World, version: str) -> None:
    """S0.53, S0.55, S1.38: the summary follows the prompt and is the same in later requests."""
    with watched(keen_world, "opencode") as (sandbox, observer):
        plug(sandbox, version)
        with opencode(sandbox, version) as app:
            past = app.session(title="Forecast cache design")
            app.say(past, *TWO)
            name = observer.indexed(past)["name"]
            session = app.session(title="Alerts")
            prompt = f'{rig.PICK} As in @@"{name}".'
            app.say(session, prompt, rig.REDIS)
        first, second = turns(sandbox)[-2:]
        (asked,) = first
        own, added = texts(asked)
        assert own == prompt
        assert added.startswith("Referenced session summaries:")
        assert past in added
        assert json.dumps(second[:1]) == json.dumps(first)
        observer.sees(session, userMessageCount=2, firstUserMessage=prompt)
        with opencode(sandbox, version) as app:
            kept, hidden = parts(app, session)
            assert (kept["text"], kept.get("synthetic")) == (prompt, None)
            assert (hidden["text"], hidden["synthetic"]) == (added, True)
            app.say(session, rig.GROW)
        third = turns(sandbox)[-1]
        assert json.dumps(third[: len(second)]) == json.dumps(second)
        assert texts(third[-1])[0] == rig.GROW
