"""A first start on a thousand sessions, with a provider that is down: seen by a whole daemon."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_gemini import google
from tests.e2e.world import World, until
from tests.fakes.gemini_server import GeminiServer
from tests.fakes.wire import Request

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

SESSIONS = 1000
AT_ONCE = 2  # calls, by default
FAILURES = 5  # in a row, and a provider is left in peace


def old_session(folder: Path, number: int, before: float) -> str:
    """Write a session of five turns of long ago, the longer the higher its number; its id.

    `before` is in seconds since the epoch.
    """
    last, at = None, before - 600.0 - 60.0 * number
    made = str(uuid.UUID(int=(number + 1) << 64, version=4))
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    held: list[dict[str, Any]] = []
    held.append({"type": "session", "version": 3, "id": made, "timestamp": stamp, "cwd": "/w"})
    for turn in range(10):
        role = ("user", "assistant")[turn % 2]
        text = f"Please adjust widget {turn} of {made}." if role == "user" else "Done."
        said: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
        said["timestamp"] = int(at * 1000) + turn
        said |= {"stopReason": "stop"} if role == "assistant" else {}
        entry = {"type": "message", "id": f"{turn:08x}", "parentId": last, "timestamp": stamp}
        held.append(entry | {"message": said})
        last = f"{turn:08x}"
    path = folder / f"{stamp.replace(':', '-').replace('.', '-')}_{made}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in held))
    os.utime(path, (at, at))
    return made


class Failing:
    """Answers with an error, after a moment, and sees who asks at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = self.most = 0
        self.asked: list[str] = []
        self.go_on = threading.Event()

    def __call__(self, request: Request) -> str:
        with self._lock:
            self.asked.append(request.body.decode())
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        self.go_on.wait(0.3)
        with self._lock:
            self._under_way -= 1
        return "500_json"


def _waiting(problems: list[dict[str, Any]]) -> int:
    """How many sessions wait for the provider, as `status` says it."""
    causes = " ".join(one["cause"] for one in problems)
    found = re.search(r"([0-9]+) sessions wait for it", causes)
    return int(found[1]) if found else 0


def test_a_first_run_on_a_thousand_sessions_leaves_a_failing_provider_alone(world: World) -> None:
    """M16, S11: newest first, two at once, few requests and lines; one problem; status answers."""
    ids = [old_session(world.sessions, number, time.time()) for number in range(SESSIONS)]
    world.env["INDEXERD_WATCH__RESCAN_SECONDS"] = "30"
    failing = Failing()
    answered: list[dict[str, Any]] = []

    def all_tried() -> bool:
        answered.append(world.call("status"))
        busy = answered[-1]["queued"] or answered[-1]["indexing"]
        return not busy and _waiting(answered[-1]["problems"]) == SESSIONS

    with GeminiServer() as server:
        server.default = failing
        google(world, server)
        with world.daemon():
            until(all_tried, "each session's turn", 90.0)
            status = world.call("status")
            listed = world.call("list", limit=5)["sessions"]
        hits = server.hits

    # Requests: those that were used last come first, no more at once than allowed, then peace.
    order = [next(n for n, one in enumerate(ids) if one in text) for text in failing.asked]
    assert set(order[:AT_ONCE]) == set(range(AT_ONCE))
    assert max(order) < FAILURES + AT_ONCE
    assert failing.most <= AT_ONCE
    assert FAILURES <= hits <= FAILURES + AT_ONCE  # the last may be a trial, on a slow machine

    # Meanwhile lookups were answered, and afterwards one problem is named.
    assert len(answered) > FAILURES
    assert [row["sessionId"] for row in listed] == ids[:5]
    assert [one["code"] for one in status["problems"]] == ["provider_unavailable"]
    assert (status["state"], status["queued"], status["sessions"]) == ("degraded", 0, SESSIONS)
    assert status["budget"]["calls"] == hits

    lines = [json.loads(line) for line in (world.state / "log.jsonl").read_text().splitlines()]
    events = Counter(line["event"] for line in lines)
    assert events["model.breaker_open"] == 1
    assert events["index.failed"] <= FAILURES
    assert sum(line["level"] in ("warning", "error") for line in lines) <= FAILURES + 1
    assert len(lines) <= 2 * SESSIONS + 6 * hits + 20
    assert (world.state / "log.jsonl").stat().st_size < 500 * len(lines)
