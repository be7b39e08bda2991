"""Compress an hour of work in sessions of four agents into a minute, for the soak test.

The stored size stays level on purpose: a session that has grown long is rewritten, deleted or
purged. So any growth of the daemon is a leak.
"""

import json
import random
import signal
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from indexerd.client import Client
from indexerd.errors import DaemonDownError, IndexerdError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import Process, Session, World, chat, opencode_rows
from tests.sessions.opencode_rows import Rows

LONG = 12  # turns after which a session is cut or replaced
REMEMBERED = 20  # deleted sessions to keep; older ones are purged
WORDS_A_SIDE = 300  # words per message: about 2 KB


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
        else:  # rename the file
            self.path = self.path.rename(self.path.with_name(f"moved-{self.turns}_{self.id}.jsonl"))

    def shorten(self) -> None:
        self.last = self.cut(3)["id"]


class Claude(ClaudeSession, Lines):
    agent = "claude"

    def alter(self, name: str) -> None:
        self.title(name)

    def shorten(self) -> None:
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

    def shorten(self) -> None:
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

    def shorten(self) -> None:
        for table in ("part", "message"):
            self._rows.run(f"DELETE FROM {table} WHERE session_id = ?", self.id)  # noqa: S608 - constant names
        self._asked, self.turns = [], 0
        self._change("title = title")

    def delete(self) -> None:
        self.shorten()
        self._rows.run("DELETE FROM session WHERE id = ?", self.id)

    def _change(self, what: str, *params: Any) -> None:
        statement = f"UPDATE session SET {what}, time_updated = ? WHERE id = ?"  # noqa: S608 - constant names
        self._rows.run(statement, *params, self._rows.tick(), self.id)


Actor = Pi | Claude | Codex | Opencode
# Events of each kind per 1,000.
FREQUENCIES = (
    "turn:400 ask:440 alter:50 edit_meta:40 delete_file:30 disconnect:30 listen:20 purge:8 reload:2"
)
SHARES = {
    kind: int(share) for kind, _, share in (word.partition(":") for word in FREQUENCIES.split())
}
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
    def __init__(self, world: World, daemon: Process, sessions: int) -> None:
        self.world = world
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._daemon = daemon
        self._random = random.Random(8)
        self._words = [f"{self._random.randrange(16**6):06x}" for _ in range(3000)]
        self._rows = opencode_rows(world)
        self._client = Client(world.socket, timeout=30)
        self._subscribers: list[ExitStack] = []
        self._dead: list[str] = []  # session file deleted, meta file and text kept
        self.actors = [self._new_actor() for _ in range(sessions)]

    def step(self) -> None:
        (kind,) = self._random.choices([*SHARES], [*SHARES.values()])
        self.done[kind] += 1
        try:
            getattr(self, kind)()
        except DaemonDownError:
            raise
        except IndexerdError as bad:  # the session may be gone, busy or ambiguous
            self.refused[bad.kind] += 1

    def turn(self) -> None:
        actor = self._any_actor()
        actor.turn(self._text())
        if actor.turns > LONG:
            self._random.choice([actor.shorten, lambda: self._replace(actor)])()

    def alter(self) -> None:
        self._any_actor().alter(f"Name {self._text(3)}")

    def delete_file(self) -> None:
        self._replace(self._any_actor())

    def purge(self) -> None:
        actor = self._any_actor()
        if actor.agent != "opencode":  # indexerd never deletes from opencode's database
            self._ask("purge", ref=actor.id, transcript=True)
            self.actors[self.actors.index(actor)] = self._new_actor()

    def edit_meta(self) -> None:
        actor = self._any_actor()
        path = self.world.meta_path(actor.id, actor.agent)
        with suppress(FileNotFoundError, ValueError):
            stored = json.loads(path.read_bytes())
            match self._random.randrange(4):
                case 0:
                    path.unlink()
                case 1:
                    path.write_text("{broken")
                case _:
                    path.write_text(json.dumps(stored | {"summary": self._text(200)}))

    def ask(self) -> None:
        session_id, other = self._any_actor().id, self._any_actor().id
        prompt = {
            "text": f"as in @@{session_id} and @@{other}: which steps?",
            "sessionId": session_id,
        }
        asked = {
            "session": session_id,
            "question": "Which widget?",
            "turnId": str(self._random.random()),
        }
        title = f"Mine {self._text(2)}" if self._random.randrange(2) else None
        questions: list[tuple[str, dict[str, Any]]] = [
            *((method, {"ref": session_id}) for method in ABOUT),
            *(
                ("resolve", {"ref": session_id[:10]}),
                ("history", {"ref": session_id, "full": True}),
            ),
            *(("list", {"limit": 50, "archived": True}), ("status", {}), ("expand", prompt)),
            ("complete", {"prefix": "name", "cwd": "/w"}),
            ("search", {"query": self._random.choice(self._words)}),
            ("search", {"query": f'"{self._text(2)}"', "rows": True}),
            *(("query_session", asked), ("index", {"ref": session_id, "force": True})),
            ("update", {"ref": session_id, "title": title, "envHint": self._text(5)}),
        ]
        method, params = self._random.choice(questions)
        self._ask(method, **params)

    def listen(self) -> None:
        stack = ExitStack()
        client = stack.enter_context(Client(self.world.socket, timeout=30))
        client.call("subscribe")
        self._subscribers.append(stack)
        if len(self._subscribers) > 3:
            self._subscribers.pop(0).close()

    def disconnect(self) -> None:
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tree",
            "params": {"ref": self._any_actor().id},
        }
        line = json.dumps(request).encode() + b"\n"
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.connect(str(self.world.socket))
            sock.sendall(line[: self._random.choice([len(line), len(line) // 2])])

    def reload(self) -> None:
        self.world.configure(f"[index]\nconcurrency = {self._random.randrange(1, 4)}\n")
        self._daemon.send_signal(signal.SIGHUP)

    def close(self) -> None:
        for subscriber in self._subscribers:
            subscriber.close()
        self._subscribers.clear()
        self._client.close()

    def _ask(self, method: str, **params: Any) -> Any:
        return self._client.call(method, params)

    def _any_actor(self) -> Actor:
        return self._random.choice(self.actors)

    def _new_actor(self) -> Actor:
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
        self.actors[self.actors.index(actor)] = self._new_actor()
        self._dead.append(actor.id)
        if len(self._dead) > REMEMBERED:
            self._ask("purge", ref=self._dead.pop(0))

    def _text(self, words: int = WORDS_A_SIDE) -> str:
        return " ".join(self._random.choices(self._words, k=words))
