"""Sessions with summaries, and calls of `expand` that name them."""

import json
from typing import Any

from tests.e2e.world import World

CANARY = "The lighthouse keeper asked for purple valves."


def meta(session_id: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "sessionId": session_id,
        "sessionFile": f"/gone/{session_id}.jsonl",
        "name": name,
        "description": f"About {name}.",
        "summary": f"## Goal\n\n- {name}\n\n## Key Decisions\n\n- {CANARY}",
        "tags": ["valves"],
        "cwd": "/w",
        "createdAt": "2026-11-01T10:00:00.000Z",
        "updatedAt": "2026-11-01T11:00:00.000Z",
        "model": "local/extractive",
        "lastIndexedLeafId": "aaaaaaaa",
    } | more


def add(world: World, name: str, *, turns: int = 1, cwd: str = "/w", **more: Any) -> str:
    session = world.session(turns, cwd=cwd)
    world.metas.mkdir(exist_ok=True)
    stored = meta(session.id, name, cwd=cwd, sessionFile=str(session.path), **more)
    stored["lastIndexedLeafId"] = session.last
    world.meta_path(session.id).write_text(json.dumps(stored))
    return session.id


def expand(world: World, text: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = world.call("expand", text=text, **more)
    return found


def statuses(found: dict[str, Any]) -> dict[str, str]:
    return {reference["raw"]: reference["status"] for reference in found["references"]}
