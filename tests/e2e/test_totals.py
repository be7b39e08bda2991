"""What a session took, as its own agent counts it, and what it did, as the daemon tells both."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.world import World, until

TOKENS = ("input", "output", "cacheRead", "cacheWrite")
SUMS = {"tokens", "costUsd", "durationMs"}
SPENT = {"tokens": {"input": 30, "output": 3, "reasoning": 0, "cache": {"read": 5, "write": 0}}}


def usage(given: int, made: int, usd: float) -> dict[str, Any]:
    """What pi writes of a model's call."""
    counts = {"input": given, "output": made, "cacheRead": 1, "cacheWrite": 2}
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": usd}
    return {**counts, "totalTokens": given + made + 3, "cost": cost}


def edit(path: str) -> dict[str, Any]:
    """A call of pi's tool that changes a file."""
    given = {"path": path, "edits": [{"oldText": "a", "newText": "b"}]}
    return {"type": "toolCall", "id": f"call_{path}", "name": "edit", "arguments": given}


def test_no_sum_is_told_of_half_a_session(world: World) -> None:
    """S0.43: until all of a session is read, what it took is left out: it is not 0, nor a part."""
    session, turns = world.session(), 4000
    lines = []
    for n in range(turns):
        lines.append(_line(n * 2, "user", [{"type": "text", "text": f"Question {n}."}]))
        lines.append(_line(n * 2 + 1, "assistant", [edit(f"f{n % 9}.py")], usage=usage(1, 1, 0.5)))
    with session.path.open("a") as file:
        file.writelines(lines)
    seen: list[dict[str, Any]] = []

    def told() -> bool:
        rows = world.call("list")["sessions"]
        seen.extend({key: row[key] for key in SUMS & row.keys()} for row in rows)
        return bool(seen and seen[-1])

    with world.daemon():
        until(told, "the sums")
        totals = world.call("stats", ref=session.id)["totals"]
    whole = seen[-1]
    assert whole["tokens"] == dict(zip(TOKENS, (turns, turns, turns, 2 * turns), strict=True))
    assert (whole["costUsd"], whole["durationMs"]) == (turns / 2, (2 * turns - 1) * 1000)
    assert [one for one in seen if one not in ({}, whole)] == []
    assert totals["inputTokens"] == turns


def _line(n: int, role: str, content: list[dict[str, Any]], **more: Any) -> str:
    """An entry as pi writes it, a second after the one before."""
    minutes, second = divmod(n, 60)
    hour, minute = divmod(minutes, 60)
    stamp = f"2026-11-21T{hour:02}:{minute:02}:{second:02}.000Z"
    said = {"role": role, "content": content, **more}
    if role == "assistant":
        said |= {"provider": "p", "model": "m", "stopReason": "stop"}
    whole = {"type": "message", "id": f"{n:08x}", "parentId": f"{n - 1:08x}" if n else None}
    whole |= {"timestamp": stamp, "message": said | {"timestamp": 1_795_255_200_000 + n * 1000}}
    return json.dumps(whole, separators=(",", ":")) + "\n"
