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
from typing import Any, Protocol

from indexerd.client import Client
from indexerd.errors import DaemonDownError, IndexerdError
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import Session, World
from tests.sessions.opencode_rows import Rows

LONG = 12  # turns after which a session is not let grow
REMEMBERED = 20  # sessions whose files are gone; older ones are purged
WORDS_A_SIDE = 300  # of a turn: about 2 KB


class Actor(Protocol):
    """A session, as a client of its agent drives it."""

    agent: str
    id: str
    turns: int

    def turn(self, text: str) -> None:
        """A question and its answer."""
        ...

    def alter(self, name: str) -> None:
        """Rename it, undo a turn of it, move or archive it."""
        ...

    def anew(self) -> None:
        """Write it anew, short."""
        ...

    def delete(self) -> None:
        """Delete it, as its client would."""
        ...


class _Lines:
    """What is common to sessions that are files of lines."""

    path: Path
    turns: int

    def _cut(self, lines: int) -> None:
        """Write the file anew with so many lines of it."""
        kept = self.path.read_bytes().splitlines(keepends=True)[:lines]
        self.path.write_bytes(b"".join(kept))
        self.turns = 1

    def delete(self) -> None:
        self.path.unlink()


class Pi(_Lines):
    """A session of pi."""

    agent = "pi"

    def __init__(self, world: World) -> None:
        self._session = Session(world.sessions)
        self.id, self.path, self.turns = self._session.id, self._session.path, 0

    def turn(self, text: str) -> None:
        self._session.turn(text, f"Done: {text}")
        self.turns += 1

    def alter(self, name: str) -> None:
        if self.turns % 2:
            self._session.entry("session_info", name=name)
        else:  # another name of the same file
            moved = self.path.with_name(f"moved-{self.turns}_{self.id}.jsonl")
            self.path = self._session.path = self.path.rename(moved)

    def anew(self) -> None:
        self._cut(3)
        self._session.last = json.loads(self.path.read_bytes().splitlines()[-1])["id"]


class Claude(_Lines):
    """A session of Claude Code."""

    agent = "claude"

    def __init__(self, world: World) -> None:
        self._session = ClaudeSession(world.root / "home")
        self.id, self.path, self.turns = self._session.id, self._session.path, 0

    def turn(self, text: str) -> None:
        self._session.turn(text)
        self.turns += 1

    def alter(self, name: str) -> None:
        self._session.title(name)

    def anew(self) -> None:
        self._cut(2)
        self._session.last = json.loads(self.path.read_bytes().splitlines()[-1]).get("uuid")


class Codex(_Lines):
    """A thread of Codex."""

    agent = "codex"

    def __init__(self, world: World) -> None:
        self._thread = CodexThread(world.root / "home")
        self.id, self.turns = self._thread.id, 0

    @property
    def path(self) -> Path:  # type: ignore[override] # the parent has a field
        """Where it is: archiving moves it."""
        return self._thread.path

    def turn(self, text: str) -> None:
        self._thread.turn(text, edits=f"/w/{self.turns}.py")
        self.turns += 1

    def alter(self, name: str) -> None:
        if self.turns % 3 == 0:
            self._thread.roll_back(1)
        elif self.turns % 3 == 1 or "archived" in str(self.path):
            self._thread.rename(name)
        else:
            self._thread.archive()

    def anew(self) -> None:
        self._cut(7)


class Opencode:
    """A session of opencode."""

    agent = "opencode"

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.id, self.turns = f"ses_{rows.tick():x}", 0
        self._asked: list[str] = []
        rows.session(self.id, directory="/w")

    def turn(self, text: str) -> None:
        rows = self._rows
        asked = f"msg_{rows.tick():x}"
        rows.said(self.id, asked, "user", text)
        rows.said(self.id, f"msg_{rows.tick():x}", "assistant", f"Done: {text}", parentID=asked)
        self._changed()
        self._asked.append(asked)
        self.turns += 1

    def alter(self, name: str) -> None:
        rows = self._rows
        rows.run("UPDATE session SET title = ? WHERE id = ?", name, self.id)
        if self._asked:
            revert = json.dumps({"messageID": self._asked[-1]}) if self.turns % 2 else None
            rows.run("UPDATE session SET revert = ? WHERE id = ?", revert, self.id)
        self._changed()

    def anew(self) -> None:
        for table in ("part", "message"):
            self._rows.run(f"DELETE FROM {table} WHERE session_id = ?", self.id)  # noqa: S608 - ours
        self._asked, self.turns = [], 0
        self._changed()

    def delete(self) -> None:
        self.anew()
        self._rows.run("DELETE FROM session WHERE id = ?", self.id)

    def _changed(self) -> None:
        now = self._rows.tick()
        self._rows.run("UPDATE session SET time_updated = ? WHERE id = ?", now, self.id)


class Traffic:
    """Everybody at work on one daemon. Each `step` is one event; `done` counts them by kind."""

    def __init__(self, world: World, daemon: subprocess.Popen[bytes], sessions: int) -> None:
        self.world = world
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._daemon = daemon
        self._random = random.Random(8)
        self._words = [f"{self._random.randrange(16**6):06x}" for _ in range(3000)]
        data = world.root / "data/opencode"
        data.mkdir(parents=True)
        self._rows = Rows(data / "opencode.db")
        self._client = Client(world.socket, timeout=30)
        self._ears: list[ExitStack] = []
        self._dead: list[str] = []  # deleted by their agents; meta file and text are kept
        self.actors = [self._born() for _ in range(sessions)]
        self._kinds = self._mix()

    # -- what happens --------------------------------------------------------------------

    def _mix(self) -> list[Callable[[], object]]:
        """One of each thousand events each; how often each comes is its share of an hour."""
        shares: dict[Callable[[], object], int] = {
            self.turn: 400,
            self.alter: 50,
            self.anew: 20,
            self.die: 30,
            self.edit_meta: 40,
            self.look: 300,
            self.question: 40,
            self.digest: 10,
            self.force: 20,
            self.name: 30,
            self.listen: 20,
            self.hang_up: 30,
            self.reload: 2,
            self.purge: 8,
        }
        return [kind for kind, share in shares.items() for _ in range(share)]

    def step(self) -> None:
        """One event."""
        kind = self._random.choice(self._kinds)
        self.done[kind.__name__] += 1
        try:
            kind()
        except DaemonDownError:
            raise
        except IndexerdError as bad:  # what is asked for may have gone, be at work, be ambiguous
            self.refused[bad.kind] += 1

    def turn(self) -> None:
        """A session goes on; one that has become long is written anew, or makes room."""
        actor = self._one()
        actor.turn(self._text())
        if actor.turns > LONG:
            self._random.choice([actor.anew, lambda: self._replace(actor)])()

    def alter(self) -> None:
        self._one().alter(f"Name {self._text(3)}")

    def anew(self) -> None:
        actor = self._one()
        if actor.turns:
            actor.anew()

    def die(self) -> None:
        self._replace(self._one())

    def purge(self) -> None:
        actor = self._one()
        if actor.agent != "opencode":  # its database is not ours to delete from
            self._ask("purge", ref=actor.id, transcript=True)
            self.actors[self.actors.index(actor)] = self._born()

    def edit_meta(self) -> None:
        """Another hand changes, breaks or removes a meta file."""
        actor = self._one()
        path = self._meta(actor)
        with suppress(FileNotFoundError, ValueError):
            held = json.loads(path.read_bytes())
            match self._random.randrange(4):
                case 0:
                    path.unlink()
                case 1:
                    path.write_text("{broken")
                case _:
                    path.write_text(json.dumps(held | {"summary": self._text(200)}))

    # -- who asks ------------------------------------------------------------------------

    def look(self) -> None:
        """A lookup of some kind."""
        one, other = self._one().id, self._one().id
        questions: list[tuple[str, dict[str, Any]]] = [
            ("resolve", {"ref": one[:10]}),
            ("list", {"limit": 50, "archived": True}),
            ("complete", {"prefix": "name", "cwd": "/w"}),
            ("search", {"query": self._random.choice(self._words)}),
            ("search", {"query": f'"{self._text(2)}"', "rows": True}),
            ("get", {"ref": one}),
            ("tree", {"ref": one}),
            ("path", {"ref": one}),
            ("context", {"ref": one}),
            ("history", {"ref": one, "full": True}),
            ("stats", {"ref": one}),
            ("branches", {"ref": one}),
            ("family", {"ref": one}),
            ("footer", {"ref": one}),
            ("compact", {"ref": one}),
            ("expand", {"text": f"as in @@{one} and @@{other}: which steps?", "sessionId": one}),
            ("status", {}),
        ]
        method, params = self._random.choice(questions)
        self._ask(method, **params)

    def question(self) -> None:
        turn = str(self._random.randrange(10**9))
        asked = {"question": "Which widget was adjusted last?", "turnId": turn}
        self._ask("query_session", session=self._one().id, **asked)

    def digest(self) -> None:
        self._ask("digest", ref=self._one().id)

    def force(self) -> None:
        self._ask("index", ref=self._one().id, force=True)

    def name(self) -> None:
        title = f"Mine {self._text(2)}" if self._random.randrange(2) else None
        self._ask("update", ref=self._one().id, title=title, envHint=self._text(5))

    def listen(self) -> None:
        """Somebody subscribes, and the one before hangs up without having read."""
        stack = ExitStack()
        client = stack.enter_context(Client(self.world.socket, timeout=30))
        client.call("subscribe")
        self._ears.append(stack)
        if len(self._ears) > 3:
            self._ears.pop(0).close()

    def hang_up(self) -> None:
        """A client goes in the middle of its request, or before its answer."""
        request = {"jsonrpc": "2.0", "id": 1, "method": "tree", "params": {"ref": self._one().id}}
        line = json.dumps(request).encode() + b"\n"
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.connect(str(self.world.socket))
            sock.sendall(line[: self._random.choice([len(line), len(line) // 2])])

    def reload(self) -> None:
        """The configuration is another now."""
        self.world.config.parent.mkdir(parents=True, exist_ok=True)
        self.world.config.write_text(f"[index]\nconcurrency = {self._random.randrange(1, 4)}\n")
        self._daemon.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Everybody hangs up."""
        for ear in self._ears:
            ear.close()
        self._ears.clear()
        self._client.close()

    # -- means ---------------------------------------------------------------------------

    def _ask(self, method: str, **params: Any) -> Any:
        return self._client.call(method, params)

    def _one(self) -> Actor:
        return self._random.choice(self.actors)

    def _born(self) -> Actor:
        made: list[Callable[[], Actor]] = [
            lambda: Pi(self.world),
            lambda: Claude(self.world),
            lambda: Codex(self.world),
            lambda: Opencode(self._rows),
        ]
        actor = self._random.choice(made)()
        actor.turn(self._text())
        return actor

    def _replace(self, actor: Actor) -> None:
        """A session is deleted, and another begun; what is kept of the deleted ones is bounded."""
        actor.delete()
        self.actors[self.actors.index(actor)] = self._born()
        self._dead.append(actor.id)
        if len(self._dead) > REMEMBERED:
            self._ask("purge", ref=self._dead.pop(0))

    def _text(self, words: int = WORDS_A_SIDE) -> str:
        return " ".join(self._random.choices(self._words, k=words))

    def _meta(self, actor: Actor) -> Path:
        if actor.agent == "pi":
            return self.world.metas / f"{actor.id}.meta.json"
        folder = self.world.root / "data/indexerd/sessions-meta" / actor.agent
        return folder / f"{actor.id}.meta.json"
