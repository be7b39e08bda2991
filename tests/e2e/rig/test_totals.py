"""What sessions took, as the real pi and the real opencode tell it of themselves."""

from __future__ import annotations

import json

from tests.e2e.rig import pi
from tests.e2e.rig.live_pi import NODE, PI
from tests.e2e.rig.opencode import WHO, opencode
from tests.e2e.rig.sandbox import LINE, MODEL, PICK, REDIS, RETRY, needed, sandbox, watched
from tests.e2e.world import World, wait

pytestmark = needed

COST = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}
FAKE = pi.FAKE | {"baseUrl": f"{MODEL}/v1", "models": [pi.FAKE["models"][0] | {"cost": COST}]}
COMPACTION = {"enabled": True, "reserveTokens": 16384, "keepRecentTokens": 10}
# Two branches, the summary of the one that was left, a compaction, and pi's own sums.
WORK = f"""
const {{ createAgentSession, SessionManager }} = await import({json.dumps(str(PI))});
const cwd = process.cwd(), sessionManager = SessionManager.create(cwd);
const {{ session }} = await createAgentSession({{ cwd, sessionManager }});
const [first, left, other, last] = process.argv.slice(1);
await session.prompt(first);
const fork = sessionManager.getLeafId();
await session.prompt(left);
await session.navigateTree(fork, {{ summarize: true }});
await session.prompt(other);
await session.compact();
await session.prompt(last);
const kinds = sessionManager.getEntries().map((entry) => entry.type);
const leaf = sessionManager.getLeafId();
const told = JSON.stringify({{ ...session.getSessionStats(), leaf, kinds }});
process.stdout.write(told, () => process.exit(0));
"""


def test_pi_and_the_daemon_agree_on_what_a_session_took(world: World) -> None:
    """S1.13: with its left branch, the summary of that, and a compaction."""
    (world.pi / "settings.json").write_text(json.dumps(pi.SETTINGS | {"compaction": COMPACTION}))
    (world.pi / "models.json").write_text(json.dumps({"providers": {"fake": FAKE}}))
    argv = (str(NODE), "--input-type=module", "-e", WORK, PICK, REDIS, RETRY, LINE)
    with sandbox(world) as made, world.daemon():
        told = json.loads(made.run(*argv, PI_OFFLINE="1", PI_TELEMETRY="0"))
        assert {"branch_summary", "compaction"} <= {*told["kinds"]}
        tokens = {key: one for key, one in told["tokens"].items() if key != "total"}
        wanted = {"leafId": told["leaf"], "tokens": tokens, "costUsd": round(told["cost"], 6)}
        wait(world, told["sessionId"], **wanted)
    assert wanted["costUsd"] > 0


def test_opencode_and_the_daemon_agree_on_what_a_session_took(bare_world: World) -> None:
    """S1.13, S3.10: with what was reverted, and the summary of a compaction."""
    with watched(bare_world, "opencode") as (made, _), opencode(made, "opencode") as app:
        session = app.session()
        prompts = app.say(session, PICK, REDIS)
        app.do(session, "summarize", **WHO)
        app.say(session, LINE)
        app.do(session, "revert", messageID=prompts[1])
        told = app.call("GET", f"/session/{session}")
        cache = told["tokens"]["cache"]
        counts = {key: told["tokens"][key] for key in ("input", "output")}
        tokens = counts | {"cacheRead": cache["read"], "cacheWrite": cache["write"]}
        wanted = {"userMessageCount": 1, "tokens": tokens, "costUsd": round(told["cost"], 6)}
        wait(bare_world, session, **wanted)
    assert wanted["costUsd"] > 0
