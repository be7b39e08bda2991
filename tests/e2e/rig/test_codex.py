"""Two generations of the real Codex, plain and with indexerd's MCP server and hooks."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.rig import codex as plain
from tests.e2e.rig import sandbox as rig
from tests.e2e.rig.codex import Codex, both, codex
from tests.e2e.rig.sandbox import Observer, Sandbox, needed, watched
from tests.e2e.world import World, until

pytestmark = needed


@both
def test_turns_of_the_real_codex(bare_world: World, version: str) -> None:
    """S0.1, S0.7: each turn is seen, each due turn is sent once, and a thread is resumed."""
    with watched(bare_world, "codex") as (sandbox, observer):
        with codex(sandbox, version) as app:
            thread = app.thread()
            for count, prompt in enumerate(rig.FIVE, 1):
                app.say(thread, prompt)
                observer.sees(thread, userMessageCount=count, cwd=app.cwd)
            observer.indexed(thread)
            app.say(thread, rig.FIX)
            row = observer.sees(thread, userMessageCount=6, newUserMessages=1, gitBranch="main")
            assert row["sessionFile"] == str(app.file(thread))
            app.call("thread/name/set", threadId=thread, name="Forecast cache design")
        if version == "codex":  # the older release edits with shell commands
            changed = [str(sandbox.project / path) for path in rig.FIXED]
            until(
                lambda: sorted(observer.sees(thread)["filesModified"]) == changed, "changed files"
            )
        with codex(sandbox, version) as app:
            assert app.thread("thread/resume", threadId=thread) == thread
            app.say(thread, rig.MODES)
        observer.sees(thread, userMessageCount=7, agentTitle="Forecast cache design")
        observer.paid(**{thread: 1})


class Integrated:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        sandbox.env |= {key: sandbox.world.env[key] for key in ("INDEXERD_SOCKET", "PYTHONPATH")}
        config = Path(sandbox.env["HOME"]) / ".codex/config.toml"
        before = config.read_text()
        done = sandbox.world.run("integrate", "codex", "--json")["changes"]
        assert [change["did"] for change in done] == ["created", "updated", "created"]
        # These tests rewrite Codex's configuration, so keep what was installed. A server in it gets
        # the user's variables and, for the tests, PYTHONPATH.
        installed = config.read_text().removeprefix(before)
        installed = installed.replace("env_vars = [", 'env_vars = ["PYTHONPATH", ')
        self.config = f"{plain.CONFIG}\n{installed}"

    @contextmanager
    def codex(self, *trusted: dict[str, Any]) -> Iterator[Codex]:
        lines = [
            f'[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n'
            for hook in trusted
        ]
        app = Codex(self.sandbox, "codex", "\n".join((self.config, *lines)))
        yield app
        app.close()

    def hooks(self) -> list[dict[str, Any]]:
        with self.codex() as app:
            (found,) = app.call("hooks/list", cwds=[app.cwd])["data"]
        assert (found["warnings"], found["errors"]) == ([], [])
        assert {hook["trustStatus"] for hook in found["hooks"]} == {"untrusted"}
        return list(found["hooks"])


def past(observer: Observer, sandbox: Sandbox) -> dict[str, Any]:
    with codex(sandbox, "codex") as app:
        thread = app.thread()
        app.say(thread, *rig.FIVE)
    observer.sees(thread, userMessageCount=len(rig.FIVE))
    return observer.indexed(thread)


def texts(body: dict[str, Any]) -> list[str]:
    kept = [{key: value for key, value in item.items() if key != "id"} for item in body["input"]]
    return [json.dumps(item, ensure_ascii=False) for item in kept]


def test_a_reference_in_codex(bare_world: World) -> None:
    """S0.53: with trusted hooks the summary follows the user's text, and no byte changes later."""
    with watched(bare_world, "codex") as (sandbox, observer):
        meta = past(observer, sandbox)
        put_in = Integrated(sandbox)
        asked = f'{rig.PICK} As in @@"{meta["name"]}".'
        with put_in.codex(*put_in.hooks()) as app:
            app.say(app.thread(), asked, rig.LINE)
        first, last = map(texts, sandbox.bodies()[-2:])
        (at,) = [n for n, text in enumerate(first) if rig.PICK in text]
        mark = f"({meta['sessionId']})"
        assert [mark in text for text in first] == [n == at + 1 for n in range(len(first))]
        assert json.dumps(meta["summary"].splitlines()[-1])[1:-1] in first[at + 1]
        assert last[: len(first)] == first
        assert rig.LINE in last[-1]
