"""A home for tests of the command line: sessions of several projects, a daemon, a scripted model.

Due sessions are indexed at the start, except one whose provider fails once, so that it waits for a
minute. After that only requests index a session. Each session has its own day in the past, so order
and ages are stable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.e2e.forked import completed
from tests.e2e.world import Session, World, stamp, until

HOSTILE = "\x1b]0;pwn\x07\x1b[31mRed\x9b2J \u202eteam\u200b\U000e0041\x90q\x9c"
SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"
DAY, STOP = 86_400, {"stopReason": "stop"}
INDEXERD = [sys.executable, "-m", "indexerd"]


def meta(name: str, summary: str = "## Goal\n- All of it.") -> str:
    tags = ["one", "two", "three"]
    said = {"name": name, "description": "It was done.", "summary": summary, "tags": tags}
    return json.dumps(said)


class Home:
    def __init__(self, root: Path) -> None:
        root = root.resolve()
        self.world = world = World(root)
        self.shop, self.other = root / "work/shop", root / "work/other"
        self.api = self.shop / "api"
        self.api.mkdir(parents=True)
        self.other.mkdir()
        world.install_pi()
        world.env |= {
            "INDEXERD_WATCH__RESCAN_SECONDS": "30",
            "INDEXERD_BUDGET__DAILY_USD": "100",
            "INDEXERD_BUDGET__REQUESTS_PER_MINUTE": "1000",
        }
        world.scripted(
            {"match": "forecast", "text": meta("Design the forecast cache"), "tokens": [100, 20]},
            {"match": "short-lived", "text": meta("A short-lived session")},
            {"match": "please be hostile", "text": meta(HOSTILE, f"## Goal\n- {HOSTILE}\n")},
            {"match": "topic that is due", "error": "provider", "times": 1},
            {"match": "the model is down", "error": "provider"},
            {"match": "nothing decent", "error": "refused"},
        )
        five = [(f"And point {number}?", "Done.") for number in range(4)]
        asked = (f"Cache the forecast. The key is {SECRET}", "A table with an expiry time.")
        self.cache = self.session(1, "c0ffee01", self.shop, asked, *five)
        retry = ("Tune the loop.", "Tuned.")
        self.retry = self.session(2, "c0ffee02", self.api, retry, title="Tune the retry loop")
        self.twins = [
            self.session(day, f"b1a5ed0{day}", self.other, ("Ship it.", "Shipped."), title="Deploy")
            for day in (3, 4)
        ]
        self.gone = self.session(5, "dead0001", self.shop, ("A short-lived idea.", "Yes."), *five)
        self.due = self.session(6, "d0e00001", self.other, ("A topic that is due.", "Ok."), *five)
        self.down = self.session(7, "d0a10001", self.other, ("Here the model is down.", "Oh."))
        self.declined = self.session(8, "dec10001", self.other, ("Ask nothing decent.", "No."))
        self.pet = self.session(9, "9e700001", self.other, ("Feed the parrot.", "Fed."))
        poison = (f"please be hostile {HOSTILE}", f"poisoned answer {HOSTILE}")
        folder = Path(f"{self.other}/{HOSTILE}")
        self.evil = self.session(10, "e0110001", folder, poison, title=HOSTILE)
        old = ("An old question.", "An old answer.")
        self.old = self.session(400, "01d00001", self.shop, old, title="From another year")

    def session(
        self, days: float, head: str, cwd: Path, *turns: tuple[str, str], title: str = ""
    ) -> Session:
        session_id = f"{head}-0000-4000-8000-000000000000"
        session = Session(self.world.sessions, cwd=str(cwd), session_id=session_id)
        moment = time.time() - days * DAY - 1800
        at = {"timestamp": stamp(datetime.fromtimestamp(moment, UTC))}
        for question, answer in turns:
            for role, text, stop in (("user", question, {}), ("assistant", answer, STOP)):
                said = {"role": role, "content": [{"type": "text", "text": text}], **stop}
                session.entry("message", message=said | {"timestamp": int(moment * 1000)}, **at)
        if title:
            session.entry("session_info", name=title, **at)
        return session

    @contextmanager
    def running(self) -> Iterator[Home]:
        world = self.world
        with world.daemon():
            world.call("index", ref=self.evil.id, force=True, wait=True)
            for session in (self.cache, self.gone):
                world.wait_meta(session.id)
            until(lambda: len(world.calls()) == 4, "the call that fails")
            self.gone.path.unlink()
            until(lambda: world.row(self.gone.id)["gone"], "the end of a session")
            until(lambda: not world.call("status")["textPending"], "all words")
            yield self

    def ix(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        env, cwd = {**self.world.env, **(env or {})}, cwd or self.world.root
        if "PYTHONIOENCODING" in env:
            command = [*INDEXERD, *argv]
            done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, check=False)
        else:
            done = completed(argv, env, cwd)
        streams = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(argv, done.returncode, *streams)

    def json(self, *argv: str, code: int = 0, **options: Any) -> Any:
        done = self.ix(*argv, "--json", **options)
        assert done.returncode == code, (argv, done)
        assert done.stdout.count("\n") == 1
        return json.loads(done.stdout)


def ids(sessions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["sessionId"] for row in sessions]


def forbidden(text: str) -> set[str]:
    bad = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    return {char for char in set(text) - {"\n", "\t"} if unicodedata.category(char) in bad}


def nowhere(home: Home) -> dict[str, str]:
    return {"INDEXERD_SOCKET": os.fspath(home.world.root / "nobody.sock")}
