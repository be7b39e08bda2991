"""An hour of work at the sessions of four agents, as fast as it can be done: for soaks.

What is stored stays level on purpose: a session that has grown long is written anew, deleted or
purged. So whatever grows in the daemon is not what it was asked to keep.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from indexerd.client import Client
from indexerd.errors import DaemonDownError, IndexerdError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import Session, World, chat, opencode_rows
from tests.sessions.opencode_rows import Rows

LONG = 12  # turns after which a session is not let grow
REMEMBERED = 20  # sessions whose files are gone; older ones are purged
WORDS_A_SIDE = 300  # of a turn: about 2 KB


class Lines:
    path: Path
    turns: int

    def cut(self, lines: int) -> Any:
        kept = self.path.read_bytes().splitlines(keepends=True)[:lines]
        self.path.write_bytes(b"".join(kept))
        self.turns = 1
        return json.loads(kept[-1])

    def delete(self) -> None:
        self.path.unlink()


class Pi(Session, Lines):
    agent = "pi"

    def alter(self, name: str) -> None:
        if self.turns % 2:
            self.entry("session_info", name=name)
        else:  # another name of the same file
            self.path = self.path.rename(self.path.with_name(f"moved-{self.turns}_{self.id}.jsonl"))

    def anew(self) -> None:
        self.last = self.cut(3)["id"]


class Claude(ClaudeSession, Lines):
    agent = "claude"

    def alter(self, name: str) -> None:
        self.title(name)

    def anew(self) -> None:
        self.last = self.cut(2).get("uuid")


class Codex(CodexThread, Lines):
    agent = "codex"

    def alter(self, name: str) -> None:
        if self.turns % 3 == 0:
            self.roll_back(1)
        elif self.turns % 3 == 1 or "archived" in str(self.path):
            self.rename(name)
        else:
            self.archive()

    def anew(self) -> None:
        self.cut(6)


class Opencode:
    agent = "opencode"

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.id, self.turns = f"ses_{rows.tick():x}", 0
        self._asked: list[str] = []
        rows.session(self.id, directory="/w")

    def turn(self, text: str) -> None:
        self._asked.append(chat(self._rows, self.id, text))
        self._change("time_updated = time_updated")
        self.turns += 1

    def alter(self, name: str) -> None:
        self._change("title = ?", name)
        if self._asked:
            revert = json.dumps({"messageID": self._asked[-1]}) if self.turns % 2 else None
            self._change("revert = ?", revert)

    def anew(self) -> None:
        for table in ("part", "message"):
            self._rows.run(f"DELETE FROM {table} WHERE session_id = ?", self.id)  # noqa: S608 - ours
        self._asked, self.turns = [], 0
        self._change("title = title")

    def delete(self) -> None:
        self.anew()
        self._rows.run("DELETE FROM session WHERE id = ?", self.id)

    def _change(self, what: str, *given: Any) -> None:
        statement = f"UPDATE session SET {what}, time_updated = ? WHERE id = ?"  # noqa: S608 - ours
        self._rows.run(statement, *given, self._rows.tick(), self.id)


Actor = Pi | Claude | Codex | Opencode
# How often each kind of event comes in a thousand: its share of an hour.
OFTEN = "turn:400 ask:440 alter:50 edit_meta:40 die:30 hang_up:30 listen:20 purge:8 reload:2"
SHARES = {kind: int(share) for kind, _, share in (one.partition(":") for one in OFTEN.split())}
ABOUT = [
    "get",
    "tree",
    "path",
    "context",
    "stats",
    "branches",
    "family",
    "footer",
    "compact",
    "digest",
]


class Traffic:
    def __init__(self, world: World, daemon: subprocess.Popen[bytes], sessions: int) -> None:
        self.world = world
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._daemon = daemon
        self._random = random.Random(8)
        self._words = [f"{self._random.randrange(16**6):06x}" for _ in range(3000)]
        self._rows = opencode_rows(world)
        self._client = Client(world.socket, timeout=30)
        self._ears: list[ExitStack] = []
        self._dead: list[str] = []  # deleted by their agents; meta file and text are kept
        self.actors = [self._born() for _ in range(sessions)]

    def step(self) -> None:
        (kind,) = self._random.choices([*SHARES], [*SHARES.values()])
        self.done[kind] += 1
        try:
            getattr(self, kind)()
        except DaemonDownError:
            raise
        except IndexerdError as bad:  # what is asked for may have gone, be at work, be ambiguous
            self.refused[bad.kind] += 1

    def turn(self) -> None:
        actor = self._one()
        actor.turn(self._text())
        if actor.turns > LONG:
            self._random.choice([actor.anew, lambda: self._replace(actor)])()

    def alter(self) -> None:
        self._one().alter(f"Name {self._text(3)}")

    def die(self) -> None:
        self._replace(self._one())

    def purge(self) -> None:
        actor = self._one()
        if actor.agent != "opencode":  # its database is not ours to delete from
            self._ask("purge", ref=actor.id, transcript=True)
            self.actors[self.actors.index(actor)] = self._born()

    def edit_meta(self) -> None:
        actor = self._one()
        path = self.world.meta_path(actor.id, actor.agent)
        with suppress(FileNotFoundError, ValueError):
            held = json.loads(path.read_bytes())
            match self._random.randrange(4):
                case 0:
                    path.unlink()
                case 1:
                    path.write_text("{broken")
                case _:
                    path.write_text(json.dumps(held | {"summary": self._text(200)}))

    def ask(self) -> None:
        one, other = self._one().id, self._one().id
        told = {"text": f"as in @@{one} and @@{other}: which steps?", "sessionId": one}
        asked = {"session": one, "question": "Which widget?", "turnId": str(self._random.random())}
        title = f"Mine {self._text(2)}" if self._random.randrange(2) else None
        questions: list[tuple[str, dict[str, Any]]] = [
            *((method, {"ref": one}) for method in ABOUT),
            *(("resolve", {"ref": one[:10]}), ("history", {"ref": one, "full": True})),
            *(("list", {"limit": 50, "archived": True}), ("status", {}), ("expand", told)),
            ("complete", {"prefix": "name", "cwd": "/w"}),
            ("search", {"query": self._random.choice(self._words)}),
            ("search", {"query": f'"{self._text(2)}"', "rows": True}),
            *(("query_session", asked), ("index", {"ref": one, "force": True})),
            ("update", {"ref": one, "title": title, "envHint": self._text(5)}),
        ]
        method, params = self._random.choice(questions)
        self._ask(method, **params)

    def listen(self) -> None:
        stack = ExitStack()
        client = stack.enter_context(Client(self.world.socket, timeout=30))
        client.call("subscribe")
        self._ears.append(stack)
        if len(self._ears) > 3:
            self._ears.pop(0).close()

    def hang_up(self) -> None:
        request = {"jsonrpc": "2.0", "id": 1, "method": "tree", "params": {"ref": self._one().id}}
        line = json.dumps(request).encode() + b"\n"
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.connect(str(self.world.socket))
            sock.sendall(line[: self._random.choice([len(line), len(line) // 2])])

    def reload(self) -> None:
        self.world.configure(f"[index]\nconcurrency = {self._random.randrange(1, 4)}\n")
        self._daemon.send_signal(signal.SIGHUP)

    def close(self) -> None:
        for ear in self._ears:
            ear.close()
        self._ears.clear()
        self._client.close()

    def _ask(self, method: str, **params: Any) -> Any:
        return self._client.call(method, params)

    def _one(self) -> Actor:
        return self._random.choice(self.actors)

    def _born(self) -> Actor:
        home = self.world.root / "home"
        made: list[Callable[[], Actor]] = [
            *(lambda: Pi(self.world.sessions), lambda: Claude(home)),
            *(lambda: Codex(home), lambda: Opencode(self._rows)),
        ]
        actor = self._random.choice(made)()
        actor.turn(self._text())
        return actor

    def _replace(self, actor: Actor) -> None:
        actor.delete()
        self.actors[self.actors.index(actor)] = self._born()
        self._dead.append(actor.id)
        if len(self._dead) > REMEMBERED:
            self._ask("purge", ref=self._dead.pop(0))

    def _text(self, words: int = WORDS_A_SIDE) -> str:
        return " ".join(self._random.choices(self._words, k=words))
