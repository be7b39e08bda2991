"""Machines of a fleet: homes with a real daemon each, or only stores with their two directions."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from indexerd.fleet.identity import Identity, load
from indexerd.fleet.inbox import Inbox
from indexerd.fleet.member import DaemonSide, Machine
from indexerd.fleet.outbox import Outbox
from indexerd.fleet.records import BadRecordError, Place, Record, unseal
from indexerd.fleet.server import TakenError
from indexerd.privacy.redact import StoredRow
from indexerd.search.index import Message
from indexerd.settings import Fleet as Settings
from tests.e2e.world import Session, World, hit_by, hooked, until
from tests.fleet.postgres import Postgres
from tests.store.rows import caches, row

PATIENCE = 40.0
Log = list[tuple[int, Record | str]]


class Home(World):
    """A machine whose daemon can be stopped and started in the middle of a test."""

    def __init__(self, root: Path, name: str, **env: str) -> None:
        super().__init__(root)
        self.install_pi()
        self.env |= {"INDEXERD_FLEET__NAME": name} | env
        self._running = ExitStack()
        self.process: Any = None

    def start(self) -> None:
        self.process = self._running.enter_context(self.daemon())

    def stop(self) -> None:
        self._running.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._running.close()

    def reload(self, config: str) -> None:
        before = len(self.log_of("daemon.config_reloaded"))
        self.configure(config)
        self.process.send_signal(1)
        until(lambda: len(self.log_of("daemon.config_reloaded")) > before, "a reload")

    def log_of(self, event: str) -> list[bytes]:
        path = self.state / "log.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [line for line in lines if event.encode() in line]

    @property
    def identity(self) -> Identity:
        found = load(self.state / "fleet.json")
        assert found
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("fleet")
        return found

    def hit_counts(self, query: str) -> list[str]:
        """List the sessions that a search finds, once for each hit."""
        return [hit["sessionId"] for hit in self.call("search", query=query)["hits"]]

    def leaves(self) -> dict[str, str]:
        """Return the last entry of each session."""
        return {key: self.row(key).get("leafId", "") for key in self.ids()}

    def ids(self) -> set[str]:
        rows = self.call("list", archived=True, limit=500)["sessions"]
        return {found["sessionId"] for found in rows}


class Fleet:
    """Some homes with running daemons, all members of one fleet."""

    def __init__(self, url: str, names: str, hook: str = "", **env: str) -> None:
        """Start them; `hook` is code that each daemon runs first."""
        self.root = Path(tempfile.mkdtemp(prefix="ix", dir="/tmp"))
        self.homes = [Home(self.root / name, f"host-{name}", **env) for name in names]
        for home in self.homes:
            if hook:
                hooked(home, hook)
            home.start()
        first, *others = self.homes
        self.code = str(first.run("fleet", "init", url)).strip().splitlines()[-1]
        for home in others:
            home.call("fleet", do="join", target=self.code)

    def close(self) -> None:
        for home in self.homes:
            home.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def another(self, name: str) -> Home:
        """Make one more home, which is not started."""
        self.homes.append(home := Home(self.root / name, f"host-{name}"))
        return home

    def agree(self, *sessions: Session, homes: list[Home] | None = None) -> None:
        """Wait until every machine has exactly these sessions, as they are now."""
        wanted = {session.id: session.last for session in sessions}
        for home in homes or self.homes:
            what = f"agreement of {home.root.name} on {len(wanted)} sessions"
            try:
                until(lambda home=home: home.leaves() == wanted, what, PATIENCE)
            except AssertionError as late:
                late.add_note(f"it has {home.leaves()} instead of {wanted}; {home.status()}")
                raise

    def told(self, pg: Postgres, home: Home) -> Log:
        """Decrypt what a machine has told; a string is why a record is refused."""
        return told(pg, home.identity)


def told(pg: Postgres, identity: Identity) -> Log:
    sql = "SELECT seq, kind, version, body FROM indexerd.log WHERE machine = %s ORDER BY seq"
    log: Log = []
    for seq, kind, version, body in pg.query(sql, identity.machine):
        place = Place(identity.fleet, identity.machine, int(str(seq)), str(kind))
        try:
            log.append((place.seq, unseal(identity.by_id, place, int(str(version)), bytes(body))))
        except BadRecordError as bad:
            log.append((place.seq, str(bad)))
    return log


def found_by(home: World, word: str, *sessions: Session) -> None:
    """Wait until a search finds exactly these sessions."""
    wanted = {session.id for session in sessions}
    until(lambda: hit_by(home, word) == wanted, f"{word} in {len(wanted)} sessions", PATIENCE)


def gone_from(homes: list[Home], session: Session, word: str) -> None:
    for home in homes:
        until(lambda home=home: not home.row(session.id), "its end", PATIENCE)
        found_by(home, word)


class CutError(Exception):
    """The connection ended here."""


class Cut:
    """A server's connection that ends before or after the transaction of a push."""

    def __init__(self, server: Any, *, after: bool) -> None:
        self._server, self._after = server, after

    async def push(self, *values: Any) -> None:
        if self._after:
            await self._server.push(*values)
        raise CutError


class Peer:
    """A machine without a daemon: its sessions are in `own`, as if they were its files."""

    def __init__(self, root: Path, runner: asyncio.Runner, name: str) -> None:
        self.root, self.name, self._runner, self._place = root, name, runner, root
        self.own: dict[str, tuple[dict[str, Any], list[str]]] = {}
        self.purged: dict[str, str] = {}
        self.hidden: set[str] = set()  # excluded by their ids
        self.text = True
        self.machine = Machine(None)
        self.open()

    def open(self, saved: Path | None = None) -> None:
        """Open a store in a new place: threads of the index may still write into the old one."""
        self._place = self.root / str(time.monotonic_ns())
        if saved:
            shutil.copytree(saved, self._place, ignore=shutil.ignore_patterns(".tmp*", "search"))
        else:
            self._place.mkdir(parents=True)
        self.store, self.index = caches(self._place)
        self.index.open()
        inbox = Inbox(self.index, lambda _file, _cwd, key: self._hides(key), dict)
        self.machine.daemon = DaemonSide(
            self.root.with_suffix(".json"),
            settings=lambda: Settings(name=self.name),
            run=self._call,
            outbox=Outbox(self.index, self._shared, self.purged, lambda: self.text),
            inbox=inbox,
            changed=lambda _: None,
            purge=self._learn,
            log=lambda *_: None,
            defect=lambda bug: None,
        )

    async def _call(self, work: Any, *values: Any) -> Any:
        return work(*values)

    def _hides(self, session_id: str) -> bool:
        return session_id in self.hidden or session_id in self.purged

    def _shared(self, session_id: str) -> tuple[StoredRow, dict[str, Any]] | None:
        found = self.store.get(session_id)
        if not found or found.get("machine"):
            return None
        documents = {"meta": None, "labels": {}, "tags": [], "digest": {"segments": []}}
        return StoredRow(found, f"Summary: {found['name']}", ()), documents

    async def _learn(self, purged: dict[str, str]) -> None:
        for session_id, agent in purged.items():
            self.purge(session_id, agent)

    def put(self, session_id: str, name: str, texts: list[str], *, replace: bool) -> None:
        """Write a session's row and messages, as after reading its file."""
        old = self.own.get(session_id, ({}, []))[1]
        found = row(session_id, name=name, messageCount=len(texts)) | _MORE
        self.own[session_id] = found, texts
        if self._hides(session_id):
            return
        new = not self.store.get(session_id) or bool(self.store.get(session_id).get("machine"))
        replace = replace or new
        first = 0 if replace else len(old)
        items = [Message(n, f"e{n}", "user", "", texts[n]) for n in range(first, len(texts))]
        self.index.put_rows([(found, f"Summary: {name}", ())])
        self.index.add_messages(session_id, items, f"{len(texts)}".encode(), 1, replace=replace)
        self.index.commit()

    def purge(self, session_id: str, agent: str = "pi") -> None:
        self.purged[session_id] = agent
        self.own.pop(session_id, None)
        self._forget(session_id)

    def hide(self, session_id: str) -> None:
        self.hidden.add(session_id)
        self._forget(session_id)

    def show(self, session_id: str) -> None:
        """Lift an exclusion, as a reload does."""
        self.hidden.discard(session_id)
        if session_id in self.own:
            self.put(
                session_id, self.own[session_id][0]["name"], self.own[session_id][1], replace=True
            )
        self.machine.daemon.inbox.again()

    def _forget(self, session_id: str) -> None:
        self.index.forget(session_id)
        self.index.commit()

    def lose_store(self, saved: Path | None = None) -> None:
        """Start with an empty store, or an older copy of it, and the same session files."""
        self.close()
        self.open(saved)
        for session_id in self.store.ids():
            if self._hides(session_id) or not (
                session_id in self.own or (self.store.get(session_id) or {}).get("machine")
            ):
                self._forget(session_id)
        for session_id, (found, texts) in self.own.items():
            self.put(session_id, found["name"], texts, replace=True)

    def save(self) -> Path:
        """Copy the store, as a backup does."""
        saved = self._place
        self.close()
        self.open(saved)
        return saved

    def close(self) -> None:
        self.index.close()
        self.store.close()

    def do(self, what: Any) -> Any:
        return self._runner.run(what)

    def sync(self, cut: str = "") -> None:
        """Exchange all that is new; or end at a place called `cut`."""
        try:
            self._runner.run(self._sync(cut))
        except TakenError:
            self._runner.run(self.machine._become_another(self.identity))
            self._runner.run(self._sync(""))
        except CutError:
            pass

    async def _sync(self, cut: str) -> None:
        machine = self.machine
        async with machine._session(self.identity) as server:
            await machine._recover(await server.position())
            inbox = machine.daemon.inbox
            if cut == "pull":
                inbox.advance = _cut
            elif cut == "index":
                inbox.apply = self._lose_index_after(inbox.apply)
            try:
                await machine._pull(server, self.identity)
            finally:
                for name in ("advance", "apply"):
                    inbox.__dict__.pop(name, None)
            to = Cut(server, after=cut == "after") if cut in ("before", "after") else server
            await machine._push(to, self.identity)

    def _lose_index_after(self, apply: Any) -> Any:
        """Make `apply` start a new index once, as if the old one were found to be damaged."""

        def lossy(*values: Any) -> Any:
            answer = apply(*values)
            self.machine.daemon.inbox.__dict__.pop("apply")
            self.store.note("index", "name", None)
            self.index.open()
            for session_id, (found, texts) in self.own.items():
                self.put(session_id, found["name"], texts, replace=True)
            return answer

        return lossy

    @property
    def identity(self) -> Identity:
        assert self.machine.identity
        return self.machine.identity

    def shows(self) -> dict[str, tuple[str, str, list[str]]]:
        """Return every session with its machine (""): this one), name and messages."""
        shown = {}
        for session_id in self.store.ids():
            found = self.store.get(session_id) or {}
            texts = [message.text for message in self.index.messages(session_id, 0)]
            shown[session_id] = found.get("machine", ""), found.get("name", ""), texts
        return shown


def _cut(*_: Any) -> None:
    raise CutError


_MORE = {
    "firstUserMessage": "", "indexed": False, "userMessageCount": 1, "state": "done",
}  # fmt: skip


@contextmanager
def peers(url: str, count: int) -> Iterator[list[Peer]]:
    """Make a fleet of machines without daemons."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name,
        asyncio.Runner() as runner,
    ):
        made = [Peer(Path(name) / f"m{n}", runner, f"m{n}") for n in range(count)]
        try:
            code = made[0].do(made[0].machine.init(url))
            for peer in made[1:]:
                peer.do(peer.machine.join(code))
            yield made
        finally:
            for peer in made:
                peer.close()


def login(identity: Identity) -> psycopg.Connection[Any]:
    """Log in as a member does."""
    server: Mapping[str, Any] = identity.server
    return psycopg.connect(**server, autocommit=True)
