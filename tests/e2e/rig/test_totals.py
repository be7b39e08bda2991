"""Tokens and cost of sessions match those that the real pi and opencode report."""

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
# Two branches, a summary of the abandoned one, a compaction, and pi's own totals.
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
const stats = JSON.stringify({{ ...session.getSessionStats(), leaf, kinds }});
process.stdout.write(stats, () => process.exit(0));
"""


def test_pi_and_the_daemon_have_the_same_totals(world: World) -> None:
    """S1.13: including the abandoned branch, its summary and a compaction."""
    (world.pi / "settings.json").write_text(json.dumps(pi.SETTINGS | {"compaction": COMPACTION}))
    (world.pi / "models.json").write_text(json.dumps({"providers": {"fake": FAKE}}))
    argv = (str(NODE), "--input-type=module", "-e", WORK, PICK, REDIS, RETRY, LINE)
    with sandbox(world) as box, world.daemon():
        stats = json.loads(box.run(*argv, PI_OFFLINE="1", PI_TELEMETRY="0"))
        assert {"branch_summary", "compaction"} <= {*stats["kinds"]}
        tokens = {key: count for key, count in stats["tokens"].items() if key != "total"}
        wanted = {"leafId": stats["leaf"], "tokens": tokens, "costUsd": round(stats["cost"], 6)}
        wait(world, stats["sessionId"], **wanted)
    assert wanted["costUsd"] > 0


def test_opencode_and_the_daemon_have_the_same_totals(bare_world: World) -> None:
    """S1.13, S3.10: including reverted messages and the summary of a compaction."""
    with watched(bare_world, "opencode") as (box, _), opencode(box, "opencode") as app:
        session = app.session()
        prompts = app.say(session, PICK, REDIS)
        app.do(session, "summarize", **WHO)
        app.say(session, LINE)
        app.do(session, "revert", messageID=prompts[1])
        stats = app.call("GET", f"/session/{session}")
        cache = stats["tokens"]["cache"]
        counts = {key: stats["tokens"][key] for key in ("input", "output")}
        tokens = counts | {"cacheRead": cache["read"], "cacheWrite": cache["write"]}
        wanted = {"userMessageCount": 1, "tokens": tokens, "costUsd": round(stats["cost"], 6)}
        wait(bare_world, session, **wanted)
    assert wanted["costUsd"] > 0
