"""`make demo`: the daemon's main job, end to end, in a temporary home that is removed again.

Sample sessions are written as pi writes them, the real daemon runs on them with the built-in
model, one session grows while it watches, and the names are looked up over its socket.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from indexerd.client import Client

PATIENCE = 30.0  # seconds that any one step may take
_T = TypeVar("_T")

Talk = tuple[str, str]
CACHE: list[Talk] = [
    ("Design a cache for the forecast results in src/forecast.py.",
     "A dictionary keyed by city and day, with a time-to-live of fifteen minutes."),
    ("Why fifteen minutes?",
     "The upstream grid is refreshed every quarter of an hour, so a longer one serves old data."),
    ("What about eviction?",
     "We decided to evict the least recently used entry, and to keep at most 512 of them."),
    ("Should it survive a restart?",
     "Yes: we will use one SQLite table behind it, in write-ahead mode."),
    ("How do we test expiry without sleeping?",
     "Going with an injected clock: the test moves a fake clock past the limit, expects a miss."),
]  # fmt: skip
DEPLOY: list[Talk] = [
    ("The nightly deploy to staging fails since Tuesday, find out why.",
     "The job runs out of disk: the build cache on the runner has grown to 38 GB."),
    ("Can we cap it?",
     "Yes. We chose a limit of 10 GB in deploy/runner.toml, with the oldest layers going first."),
    ("Is ticket OPS-412 about the same?",
     "It is: OPS-412 reports the same error on the second runner."),
    ("Apply it there as well.", "Applied to both runners, and the deploy passed."),
    ("Write a note for the team.", "The note is in docs/runbook.md, under disk space."),
]  # fmt: skip
SHORT: list[Talk] = [("What does this repository do?", "It serves weather forecasts.")]
LIVE: list[Talk] = [
    ("Let us move the confirm button into its own component.",
     "Moved to src/ui/ConfirmButton.tsx; both dialogs use it now."),
    ("Make the destructive variant red.", "Done: it takes a tone, and danger is red."),
    ("Keyboard: Enter must not confirm a deletion.", "Agreed; only a click or Space does now."),
    ("Add tests for that.", "Three tests, in src/ui/ConfirmButton.test.tsx."),
    ("Rename the prop to intent.", "Renamed in the component, its users and its tests."),
]  # fmt: skip


class Pi:
    """Writes one session file, entry by entry, the way pi does."""

    def __init__(self, home: Path, cwd: str) -> None:
        now = datetime.now(UTC)
        self.id = str(uuid.uuid4())
        folder = home / ".pi/agent/sessions" / f"--{cwd.strip('/').replace('/', '-')}--"
        folder.mkdir(parents=True, exist_ok=True)
        stamp = _iso(now).replace(":", "-").replace(".", "-")
        self.path = folder / f"{stamp}_{self.id}.jsonl"
        self._last: str | None = None
        header = {"type": "session", "version": 3, "id": self.id, "timestamp": _iso(now)}
        self._append({**header, "cwd": cwd})

    def talk(self, turns: list[Talk]) -> None:
        """Append turns: a question and its answer each."""
        for question, answer in turns:
            self._say("user", question)
            self._say("assistant", answer, stopReason="stop")

    def _say(self, role: str, text: str, **more: Any) -> None:
        entry = {"type": "message", "id": uuid.uuid4().hex[:8], "parentId": self._last}
        self._last = str(entry["id"])
        now = datetime.now(UTC)
        said = {"role": role, "content": [{"type": "text", "text": text}], **more}
        said["timestamp"] = int(now.timestamp() * 1000)
        self._append({**entry, "timestamp": _iso(now), "message": said})

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def _iso(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def until(what: str, found: Callable[[], _T | None]) -> _T:
    """Ask again and again until there is an answer; give up after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.05)
    raise SystemExit(f"demo: {what} did not happen within {PATIENCE:.0f} s")


def _show(title: str) -> None:
    sys.stdout.write(f"\n{title}\n{'-' * len(title)}\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _tell(home: Path, socket: Path) -> None:
    """What the demo shows, against a running daemon."""
    metas = home / ".pi/agent/sessions-meta"
    with Client(socket) as daemon:
        _show("Two of three sessions are long enough to be named (threshold: 5 of your messages)")
        until("the first indexing", lambda: len(list(metas.glob("*.meta.json"))) == 2 or None)  # noqa: PLR2004 - of three
        for row in daemon.call("list", {})["sessions"]:
            _say(f"{row['name']}   [{row['nameSource']}]")
            if row["tags"]:
                _say(f"    {', '.join(row['tags'])}")

        _show("A session grows while the daemon watches")
        live = Pi(home, "/work/shop")
        live.talk(LIVE)
        ended = time.monotonic()
        path = metas / f"{live.id}.meta.json"
        meta = until("the meta file", lambda: _meta(path))
        _say(f"{time.monotonic() - ended:.1f} s after the turn ended (quiet time 1 s included), in")
        _say(f"{path}:")
        _say(json.dumps({key: meta[key] for key in ("name", "description", "tags")}, indent=2))
        _say(meta["summary"])

        _show("Its name is enough to find it again")
        words = meta["name"].split()
        for ref in (meta["name"], "-".join(words).lower(), live.id[:8]):
            found = daemon.call("resolve", {"ref": ref})
            _say(f"{ref!r} -> {found['sessionId']} (by {found['how']})")
        hits = daemon.call("search", {"query": "quarter of an hour"})["hits"]
        _say(f"search 'quarter of an hour' -> {hits[0]['name']}: {hits[0]['snippet']}")
        _refer(daemon, "-".join(words).lower())


def _refer(daemon: Client, name: str) -> None:
    """A new session names an old one, and asks it something."""
    _show("In a prompt of a new session, @@ brings its summary along")
    prompt = f"Do the same for the invoices as in @@{name}."
    _say(f"the prompt:   {prompt}")
    found = daemon.call("expand", {"text": prompt, "cwd": "/work/shop"})
    _say(f"behind it the agent gets {found['injectedBytes']} bytes, quoted as data:")
    _say("\n".join(f"    {line}" for line in found["message"]["content"].splitlines()[:9]))

    question = "Which key confirms a deletion?"
    _show(f"indexerd ask {name} {question!r}")
    answer = daemon.call("query_session", {"session": name, "question": question})
    _say(answer["answerMarkdown"])


def _meta(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_bytes()) if path.exists() else None


def main() -> int:
    """Run the demo."""
    with tempfile.TemporaryDirectory(prefix="indexerd-demo-") as folder:
        home = Path(folder)
        socket = home / "indexerd.sock"
        env = {key: value for key, value in os.environ.items() if not key.startswith("INDEXERD_")}
        env |= {
            "HOME": folder,
            "XDG_CONFIG_HOME": f"{folder}/config",
            "XDG_STATE_HOME": f"{folder}/state",
            "XDG_DATA_HOME": f"{folder}/data",
            "PI_CODING_AGENT_DIR": f"{folder}/.pi/agent",
            "INDEXERD_SOCKET": str(socket),
            "INDEXERD_MODEL_KEYS": '["local/extractive"]',
            "INDEXERD_INDEX__QUIET_SECONDS": "1.0",
        }
        _say(f"A home with three pi sessions, in {folder}")
        for cwd, talk in (("/work/weather", CACHE), ("/work/weather", DEPLOY), ("/tmp", SHORT)):  # noqa: S108 - a name
            Pi(home, cwd).talk(talk)
        with (home / "stderr").open("wb") as log:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "indexerd", "run"], env=env, stderr=log
            )
        try:
            until("the daemon's start", lambda: socket.exists() or daemon.poll() is not None)
            if daemon.poll() is not None:
                raise SystemExit((home / "stderr").read_text())
            _say(
                f"The daemon runs (process {daemon.pid}), with the built-in model: nothing leaves."
            )
            _tell(home, socket)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(10)
        _show("Done")
        _say(f"The daemon ended with exit code {daemon.returncode}; everything is removed again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
