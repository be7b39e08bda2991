"""`make demo` shows the daemon's main job from end to end in a temporary home, then removes it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SECONDS = 30.0  # maximum duration of a step

CACHE = """
Design a cache for the forecast results in src/forecast.py.|A dictionary by city and day.
How long does an entry live?|Fifteen minutes: the grid is refreshed every quarter of an hour.
What about eviction?|We decided to evict the least recently used entry, and to keep at most 512.
Should it survive a restart?|Yes: we will use one SQLite table behind it, in write-ahead mode.
How do we test expiry without sleeping?|With an injected clock that the test moves past the limit.
"""
SHORT = "What does this repository do?|It serves weather forecasts."
LIVE = """
Let us move the confirm button into its own component.|Moved to src/ui/ConfirmButton.tsx.
Make the destructive variant red.|Done: it takes a tone, and danger is red.
Keyboard: Enter must not confirm a deletion.|Agreed; only a click or Space does now.
Add tests for that.|Three tests, in src/ui/ConfirmButton.test.tsx.
Rename the prop to intent.|Renamed in the component, its users and its tests.
"""


def write_session(home: Path, cwd: str, talk: str) -> str:
    """Write a session as pi does, from lines of `question|answer`, and return its id."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    session_id, last = str(uuid.uuid4()), None
    header = {"type": "session", "version": 3, "id": session_id, "timestamp": now, "cwd": cwd}
    lines = [json.dumps(header)]
    for text in talk.strip().replace("\n", "|").split("|"):
        message: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": text}]}
        if len(lines) % 2 == 0:
            message |= {"role": "assistant", "stopReason": "stop"}
        entry = {"type": "message", "id": uuid.uuid4().hex[:8], "parentId": last}
        lines.append(json.dumps({**entry, "timestamp": now, "message": message}))
        last = entry["id"]
    folder = home / ".pi/agent/sessions" / f"--{cwd.strip('/').replace('/', '-')}--"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{now.replace(':', '-').replace('.', '-')}_{session_id}.jsonl"
    (folder / name).write_text("\n".join(lines) + "\n")
    return session_id


def until(what: str, found: Callable[[], object]) -> None:
    """Poll until `found` returns something true, or end the demo with an error."""
    end = time.monotonic() + SECONDS
    while not found():
        if time.monotonic() > end:
            raise SystemExit(f"demo: {what} did not happen within {SECONDS:.0f} s")
        time.sleep(0.05)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show(home: Path, env: dict[str, str]) -> None:
    """Run the commands that people use against a running daemon."""

    def run(*argv: str) -> None:
        say(f"$ indexerd {shlex.join(argv)}")
        subprocess.run([sys.executable, "-m", "indexerd", *argv], env=env, check=True)

    metas = home / ".pi/agent/sessions-meta"
    until("the first index run", lambda: list(metas.glob("*.meta.json")))
    say("\n# One of the three sessions is long enough to be named (5 messages from you).")
    run("list", "--all")
    say("\n# A session appears while the daemon watches.")
    path = metas / f"{write_session(home, '/work/shop', LIVE)}.meta.json"
    until("the meta file", path.exists)
    meta = json.loads(path.read_bytes())
    say(f"{path}:")
    say(
        json.dumps({key: meta[key] for key in ("name", "description", "tags", "summary")}, indent=2)
    )
    name = "-".join(meta["name"].split()).lower()
    say("\n# Find it by its name, or by its words.")
    run("resolve", name)
    run("search", '"quarter of an hour"')
    say("\n# In a prompt, @@ adds its summary as data, or an answer from it.")
    run("expand", f"Do the same for the invoices as in @@{name}.", "--cwd", "/work/shop")
    run("ask", name, "Which key confirms a deletion?")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="indexerd-demo-") as folder:
        home, socket = Path(folder), Path(folder) / "indexerd.sock"
        env = {key: value for key, value in os.environ.items() if not key.startswith("INDEXERD_")}
        env |= {f"XDG_{kind}_HOME": f"{folder}/{kind}" for kind in ("CONFIG", "STATE", "DATA")}
        env |= {"HOME": folder, "PI_CODING_AGENT_DIR": f"{folder}/.pi/agent"}
        env |= {"INDEXERD_SOCKET": str(socket), "INDEXERD_LOG__LEVEL": "warning"}
        env |= {"INDEXERD_MODEL_KEYS": '["local/extractive"]'}
        env |= {"INDEXERD_INDEX__QUIET_SECONDS": "1.0"}
        for cwd, talk in (("/work/weather", CACHE), ("/work", SHORT), ("/work/shop", SHORT)):
            write_session(home, cwd, talk)
        say(f"A home directory with three pi sessions: {folder}")
        process = subprocess.Popen([sys.executable, "-m", "indexerd", "run"], env=env)
        try:
            until("the daemon's start", socket.exists)
            show(home, env)
        finally:
            process.terminate()
            process.wait(10)
        say(f"\n# The daemon exited with code {process.returncode}; everything is removed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
