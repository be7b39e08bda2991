"""One machine's part in its fleet: reads what others told, and tells what is new here.

One connection does both. It waits for the server's notifications, for changes here, and for
POLL_SECONDS at most. If anything fails it closes, and a new one is opened after a pause.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from indexerd.errors import AccessError, IndexerdError, UsageError
from indexerd.fleet import records
from indexerd.fleet.identity import Identity, new_machine, own_name, save
from indexerd.fleet.inbox import Arrived, Inbox, Row
from indexerd.fleet.outbox import Outbox, Position, seal
from indexerd.fleet.records import BadRecordError, JoinCode, Place
from indexerd.fleet.server import (
    Member,
    RemovedError,
    Sealed,
    Server,
    TakenError,
    connected,
    create_fleet,
    new_key,
    server_of,
)
from indexerd.settings import Fleet
from indexerd.times import iso

POLL_SECONDS = 30.0  # between two looks at the server without a notification
RETRY_SECONDS, RETRY_MAX = 1.0, 60.0  # pause after a failure, doubled each time
BUSY_SECONDS = 0.5  # while the index is rebuilt
COMMIT_SECONDS = 2.0  # between commits while there is more to read
ID_SHOWN = 8  # characters of a machine's id that are enough to name it
GATHER = 0.05  # seconds between two batches, so that appends are gathered

Run = Callable[..., Awaitable[Any]]


@dataclass(eq=False)
class DaemonSide:
    """What the daemon gives the fleet."""

    path: Path  # of fleet.json
    settings: Callable[[], Fleet]
    run: Run  # does work in the thread that owns the store
    outbox: Outbox
    inbox: Inbox
    changed: Callable[[dict[str, Row | None]], None]  # rows of other machines
    purge: Callable[[dict[str, str]], Awaitable[None]]  # forgets sessions; each with its agent
    log: Callable[[str, dict[str, Any]], None]
    defect: Callable[[Exception], None]


@dataclass(eq=False)
class Machine:
    """This machine in its fleet, or in none."""

    daemon: DaemonSide
    identity: Identity | None = None
    trouble: str = ""  # why the server cannot be used now
    members: list[Member] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _restart: asyncio.Event = field(default_factory=asyncio.Event)  # with another identity
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # for one exchange, or one command
    reloaded: bool = False  # settings: exclusions and names of hosts may be new
    _taken: bool = False  # another machine has our identity

    async def run(self) -> None:
        """Take part until cancelled."""
        while True:
            self._restart.clear()
            work = asyncio.ensure_future(self._take_part())
            try:
                await self._restart.wait()
            finally:
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work

    async def _take_part(self) -> None:
        """Connect again and again; pauses get longer while nothing helps."""
        loop, pause = asyncio.get_running_loop(), RETRY_SECONDS
        while (identity := self.identity) is not None:
            began = loop.time()
            try:
                await self._connect(identity)
            except RemovedError as bad:
                self._report("fleet.removed", bad)
                return
            except TakenError as bad:
                self.daemon.log("fleet.taken", {"reason": str(bad)})
                self._taken = True
            except (IndexerdError, TimeoutError) as bad:
                self._report("fleet.unreachable", bad)
            except Exception as bug:  # noqa: BLE001 - a bug here must not end the daemon
                self._report("fleet.unreachable", bug)
                self.daemon.defect(bug)
            if loop.time() - began > RETRY_MAX:
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)
            pause = min(RETRY_MAX, 2 * pause)

    def _report(self, event: str, bad: Exception) -> None:
        known = isinstance(bad, IndexerdError)
        why = str(bad) if known else f"the server does not answer ({type(bad).__name__})"
        if self.trouble != why:
            self.daemon.log(event, {"reason": why})
        self.trouble = why

    async def _connect(self, identity: Identity) -> None:
        if self._taken:
            identity = await self._become_another(identity)
        async with self._session(identity) as server:
            async with self._lock:
                await server.listen(self.wake.set)
                await self._recover(await server.position(lock=True))
            self.trouble = ""
            while self.identity is identity:
                self.wake.clear()
                async with self._lock:
                    if self.identity is not identity:  # a command has changed it
                        return
                    if self.reloaded:
                        self.reloaded = False
                        await self.daemon.run(self.daemon.inbox.again)
                    ready = await self._pull(server, identity)
                    sent = await self._push(server, identity)
                await asyncio.sleep(GATHER if sent else 2 * GATHER)  # others may notify often
                await self._wait(server, POLL_SECONDS if ready else BUSY_SECONDS)

    async def _wait(self, server: Server, seconds: float) -> None:
        """Wait for a change here or there."""
        loop = asyncio.get_running_loop()
        loop.add_reader(server.descriptor, self.wake.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.wake.wait()
        finally:
            loop.remove_reader(server.descriptor)

    # -- telling

    async def _recover(self, there: Position) -> None:
        """Find out what became of the last batch; tell everything again if the store is new."""
        run, outbox = self.daemon.run, self.daemon.outbox
        batch = await run(outbox.under_way)
        if batch is not None and batch.after == there:
            await run(outbox.arrived, batch)
        known = await run(lambda: outbox.position)
        if known == Position():  # the store is new
            await run(outbox.restart, there)
        elif known != there:
            raise TakenError("another machine wrote as this one")

    async def _push(self, server: Server, identity: Identity) -> bool:
        """Send all that is new; return whether there was anything."""
        run, outbox, sent = self.daemon.run, self.daemon.outbox, False
        while (batch := await run(outbox.plan, identity.name)) is not None:
            sent = True
            rows = await asyncio.to_thread(seal, batch, identity)
            if rows or batch.stale:
                through = batch.through or 0
                await server.push(batch.before, batch.after, rows, batch.stale, through)
            else:  # nothing that others should know
                batch.after = batch.before
            await run(outbox.arrived, batch)
        return sent

    async def _become_another(self, old: Identity) -> Identity:
        """Take a new identity: another machine has ours, as after copying a home directory."""
        async with self._lock:
            new = await self._enter(msgspec.structs.replace(old, machine=new_machine()))
            self._taken = False
            return new

    async def _enter(self, identity: Identity) -> Identity:
        """Become a member of the fleet, under a name that is free, and tell everything."""
        async with self._session(identity) as server:
            name = _free(identity.name, await _names(server, identity))
            there = await server.register()
        identity = msgspec.structs.replace(identity, name=name)
        await self._adopt(identity)
        await self.daemon.run(self.daemon.outbox.restart, there)
        return identity

    async def _adopt(self, identity: Identity) -> None:
        """Store an identity, and use it from now on."""
        await asyncio.to_thread(save, self.daemon.path, identity)
        self.identity = identity

    @asynccontextmanager
    async def _session(self, identity: Identity) -> AsyncIterator[Server]:
        """Connect; after an interrupted rotation perhaps with the password before."""
        ca_file = self.daemon.settings().ca_file
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(connected(identity.server, ca_file))
            except AccessError:
                if not identity.before:
                    raise
                older = dict(identity.server) | {"password": identity.before}
                connection = await stack.enter_async_context(connected(older, ca_file))
            yield Server(connection, identity)

    # -- reading

    async def _pull(self, server: Server, identity: Identity) -> bool:
        """Read all that is new; return False if the index must be rebuilt first."""
        run, inbox = self.daemon.run, self.daemon.inbox
        self.members = await server.members()
        for machine in {*await run(inbox.machines)} - {one.machine for one in self.members}:
            self.daemon.changed(await run(inbox.leave, machine))
        others = [member for member in self.members if member.machine != identity.machine]
        while True:  # what is applied may be a reason to read all again
            cursors = await run(inbox.cursors)
            behind = (one for one in others if cursors.get(one.machine, 0) < one.head)
            member = next(behind, None)
            if member is None:
                return True
            if not await self._read(server, identity, member, cursors.get(member.machine, 0)):
                return False

    async def _read(self, server: Server, identity: Identity, member: Member, after: int) -> bool:
        """Read a machine's records after a number; return as `_pull` does."""
        run, inbox, committed = self.daemon.run, self.daemon.inbox, monotonic()
        await run(inbox.begin, member.machine)
        while after < member.head:
            page = await server.page(member.machine, after)
            opened = await asyncio.to_thread(_unsealed, identity, member.machine, page)
            applied = await run(inbox.apply, member.machine, member.number, opened)
            if applied is None:
                return False
            self.daemon.changed(applied.rows)
            await self.daemon.purge(applied.purged)
            after = page[-1].seq if page else member.head
            if applied.again:
                return True
            if after >= member.head or monotonic() > committed + COMMIT_SECONDS:
                await asyncio.to_thread(inbox.commit)
                await run(inbox.advance, member.machine, after)
                committed = monotonic()
        return True

    # -- commands

    async def init(self, url: str) -> str:
        """Make a fleet and join it; return the code for other machines."""
        server = server_of(url)
        async with self._lock:
            self._refuse_second()
            async with connected(server, self.daemon.settings().ca_file) as connection:
                members_server = await create_fleet(connection, server)
            return await self._join(JoinCode(members_server, new_key()))

    async def join(self, text: str) -> str:
        """Join a fleet, or use its newest key; return this machine's name."""
        code = JoinCode.parse(text)
        async with self._lock:
            if self.identity and self.identity.fleet == code.server.get("user"):
                keys = [key for key in self.identity.keys if key != code.key]
                new = msgspec.structs.replace(
                    self.identity, keys=[*keys, code.key], server=code.server, before=""
                )
                only = msgspec.structs.replace(new, keys=[code.key])
                async with self._session(only) as server:
                    await _names(server, only)  # UsageError for a wrong key
                await self._renew(new)
            else:
                self._refuse_second()
                await self._join(code)
            return self.identity.name if self.identity else ""

    def _refuse_second(self) -> None:
        if self.identity is not None:
            hint = "`indexerd fleet leave` leaves the other one"
            raise UsageError("this machine is in a fleet already", hint=hint)

    async def _join(self, code: JoinCode) -> str:
        name = own_name(self.daemon.settings().name)
        identity = Identity(machine=new_machine(), name=name, server=code.server, keys=[code.key])
        await self._enter(identity)
        self._restart.set()
        return identity.code

    async def _renew(self, identity: Identity) -> None:
        """Use another key: tell everything again with it, and read everything again."""
        await self._adopt(identity)
        async with self._session(identity) as server:
            await self._recover(there := await server.position(lock=True))
        await self.daemon.run(self.daemon.outbox.restart, there)
        await self.daemon.run(self.daemon.inbox.again)
        self._restart.set()

    async def rotate_key(self) -> str:
        """Change key and password; return the new code, which all other machines need."""
        async with self._lock:
            old = self._member()
            password = secrets.token_urlsafe(24)
            server = dict(old.server) | {"password": password}
            new = msgspec.structs.replace(
                old, keys=[*old.keys, new_key()], server=server, before=old.server["password"]
            )
            async with self._session(old) as connection:
                await self._adopt(new)  # the reply may be lost
                await connection.change_password(password)
            await self._renew(msgspec.structs.replace(new, before=""))
            return new.code

    async def remove(self, named: str) -> None:
        """Remove another machine, by its name or the begin of its id, and all that it told."""
        async with self._lock:
            identity, names = self._member(), await self.daemon.run(self.daemon.inbox.names)
            ids = [member.machine for member in self.members]
            found = [key for key in ids if names.get(key) == named]
            if not found and len(named) >= ID_SHOWN:
                found = [key for key in ids if key.startswith(named)]
            if named == identity.name or identity.machine in found:
                raise UsageError("this is that machine", hint="`indexerd fleet leave` leaves")
            if len(found) != 1:
                why = "several machines are called so" if found else f"no machine is called {named}"
                raise UsageError(why, hint="`indexerd fleet status` lists names and ids")
            async with self._session(identity) as server:
                await server.remove(found[0])
            self.wake.set()

    async def leave(self) -> str:
        """Leave the fleet; return why its server still has what this machine told, or ""."""
        async with self._lock:
            identity, problem = self._member(), ""
            try:
                async with self._session(identity) as server:
                    await server.remove(identity.machine)
            except (IndexerdError, TimeoutError) as bad:
                problem = str(bad)
            self.identity = None
            self._restart.set()
            await asyncio.to_thread(self.daemon.path.unlink, missing_ok=True)
            inbox = self.daemon.inbox
            for machine in await self.daemon.run(inbox.machines):
                self.daemon.changed(await self.daemon.run(inbox.leave, machine))
            await self.daemon.run(self.daemon.outbox.close)
            self.members, self.trouble = [], ""
            return problem

    def _member(self) -> Identity:
        if self.identity is None:
            hint = "`indexerd fleet init URL` makes one, `indexerd fleet join CODE` joins one"
            raise UsageError("this machine is in no fleet", hint=hint)
        return self.identity

    async def status(self) -> dict[str, Any]:
        """Describe the fleet as last seen; `behind` counts records not yet read here."""
        if self.identity is None:
            return {"fleet": None, "machines": []}
        run, inbox, identity = self.daemon.run, self.daemon.inbox, self.identity
        outbox = self.daemon.outbox
        names, counts = await run(inbox.names), await run(inbox.counts)
        refused, cursors = await run(inbox.refused), await run(inbox.cursors)
        machines = []
        for member in self.members:
            own = member.machine == identity.machine
            why = refused.get(member.machine, {})
            row = {
                "name": identity.name if own else names.get(member.machine, ""),
                "id": member.machine,
                "own": own,
                "seenAt": iso(member.seen.timestamp()),
                "sessions": None if own else counts.get(member.machine, 0),
                "behind": 0 if own else max(0, member.head - cursors.get(member.machine, 0)),
                "refused": len(why),
                "reason": next(reversed(why.values()), None),
            }
            machines.append(row)
        return {
            "fleet": identity.fleet,
            "host": identity.server["host"],
            "name": identity.name,
            "connected": not self.trouble and bool(self.members),
            "problem": self.trouble or None,
            "unsent": await run(lambda: outbox.unsent),
            "notShared": len(outbox.unshareable),
            "machines": machines,
        }


async def _names(server: Server, identity: Identity) -> set[str]:
    """Return the machines' names; UsageError if the key fits none of their records."""
    hellos = [
        arrived.record
        for machine, sealed in await server.hellos()
        for arrived in _unsealed(identity, machine, [sealed])
    ]
    names = {hello.name for hello in hellos if isinstance(hello, records.Hello)}
    if hellos and not names:
        hint = "if the key was rotated just now, try again in a moment"
        raise UsageError(f"the code's key does not fit this fleet: {hellos[0]}", hint=hint)
    return names


def _unsealed(identity: Identity, machine: str, page: list[Sealed]) -> list[Arrived]:
    keys, arrived = identity.by_id, list[Arrived]()
    for seq, kind, version, body in page:
        place = Place(identity.fleet, machine, seq, kind)
        try:
            arrived.append(Arrived(seq, records.unseal(keys, place, version, body)))
        except BadRecordError as bad:
            arrived.append(Arrived(seq, str(bad)))
    return arrived


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with a number if another machine has it."""
    names = (f"{name}-{number}" for number in count(2))
    return name if name not in taken else next(new for new in names if new not in taken)
