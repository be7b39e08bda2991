"""Kills and hangs: in the end every machine has everything once."""

import asyncio
import contextlib
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexerd.fleet import server as server_module
from indexerd.fleet.outbox import Position
from indexerd.fleet.server import Server, UnreachableError, connected
from tests.e2e.world import Session, let_pass, until
from tests.fleet.machines import Fleet, Home, found_by, peers
from tests.fleet.postgres import Postgres, running

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
ROUNDS = 16
# The pauses after a failure are short here, so that there can be many.
HASTE = "import indexerd.fleet.member as m; m.RETRY_SECONDS = m.RETRY_MAX = 0.1"


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server that the test may kill."""
    with running() as server:
        yield server


class Work:
    """Two machines whose agents write all the time."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet, self.random = fleet, random.Random(seed)
        self.sessions: list[Session] = []
        self._words: dict[str, list[str]] = {}

    def round(self) -> None:
        for home in self.fleet.homes:
            mine = [one for one in self.sessions if one.path.is_relative_to(home.root)]
            if not mine or self.random.random() < 0.3:
                mine.append(home.session(1))
                self.sessions.append(mine[-1])
            for session in self.random.choices(mine, k=2):
                word = f"w{self.random.randbytes(8).hex()}"
                session.turn(f"The {word} question", "lorem " * self.random.choice([1, 1, 5000]))
                self._words.setdefault(session.id, []).append(word)

    def check(self) -> None:
        """Every machine has each session as it is, and finds each word exactly once."""
        self.fleet.agree(*self.sessions)
        for home in self.fleet.homes:
            for session in self.sessions:
                words = self._words.get(session.id, [])
                assert home.row(session.id)["messageCount"] == 2 * session.turns
                for word in words:
                    found_by(home, word, session)
                    assert home.hit_counts(word) == [session.id]
            assert not any(row["refused"] for row in home.status()["machines"])


Fault = Callable[[Work, Postgres], None]


def kill_a_daemon(work: Work, _: Postgres) -> None:
    home: Home = work.random.choice(work.fleet.homes)
    home.kill()
    work.round()
    home.start()


def stop_the_server(work: Work, server: Postgres) -> None:
    server.stop("immediate")
    work.round()
    server.start()


def freeze_the_server(work: Work, server: Postgres) -> None:
    """The processes of the server answer nothing for a while; all that is local works."""
    pids = server.processes()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        work.round()
        home, session = work.fleet.homes[0], work.sessions[0]
        until(lambda: home.row(session.id).get("leafId") == session.last, "local work")
        home.status()
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def fill_the_server(work: Work, server: Postgres) -> None:
    """Its disk is full for a while, as far as its clients can tell."""
    server.query(
        "CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'no space left' USING ERRCODE = '53100'; END$$;"
        "CREATE TRIGGER disk_full BEFORE INSERT ON indexerd.log EXECUTE FUNCTION disk_full()"
    )
    work.round()
    home = work.fleet.homes[0]
    until(lambda: "53100" in (home.status()["problem"] or ""), "the trouble")
    server.query("DROP TRIGGER disk_full ON indexerd.log; DROP FUNCTION disk_full()")


FAULTS = [kill_a_daemon, stop_the_server, freeze_the_server, fill_the_server]


@pytest.mark.parametrize("fault", FAULTS)
def test_machines_agree_after(own: Postgres, fleet: Callable[..., Fleet], fault: Fault) -> None:
    work = Work(fleet("ab", url=own.url, hook=HASTE), 7)
    for number in range(ROUNDS):
        work.round()
        let_pass(work.random.random() * 0.3)
        if number % 2:
            fault(work, own)
    work.check()


@pytest.mark.parametrize("what", ["members", "push"])
def test_a_server_that_never_answers_is_left(
    own: Postgres, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its kernel still accepts what is sent, so no limit of TCP ends this."""
    monkeypatch.setattr(server_module, "PATIENCE", 1.0)

    async def talk() -> None:
        identity = peer.identity
        async with connected(identity.server) as connection:
            server = Server(connection, identity)
            there = await server.position()
            pids.extend(own.processes())
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            if what == "members":
                await server.members()
            after = Position(there.head + 1, b"x" * 16)
            await server.push(there, after, [(after.head, "hello", 1, b"x")], [], 0)

    pids: list[int] = []
    with peers(own.url, 1) as [peer]:
        peer.sync()
        try:
            with pytest.raises(UnreachableError):
                asyncio.run(asyncio.wait_for(talk(), 20))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        peer.sync()


def test_machines_agree_after_a_failover(own: Postgres, fleet: Callable[..., Fleet]) -> None:
    """To a standby that may lack the newest records."""
    with tempfile.TemporaryDirectory(prefix="indexerd-pg-", ignore_cleanup_errors=True) as name:
        other = own.standby(Path(name))
        try:
            url = own.url.replace("/postgres", f",127.0.0.1:{other.port}/postgres")
            url += "?target_session_attrs=read-write"
            work = Work(fleet("ab", url=url, hook=HASTE), 7)
            for number in range(6):
                work.round()
                if number == 3:
                    own.stop("immediate")
                    work.round()
                    other.promote()
            work.check()
        finally:
            other.stop("immediate")
