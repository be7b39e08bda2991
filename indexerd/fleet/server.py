"""The server's tables, and every statement that a machine sends to it.

Members log in with the fleet's own role, which owns nothing. Row-level security, forced on the
owner too, shows a role the rows of its fleet only. Statements need no session state, so a pooler
may sit in between; then LISTEN has no effect, and polling finds what is new.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection, AsyncCursor, conninfo, errors, sql

from indexerd.errors import AccessError, IndexerdError, NotFoundError, UsageError
from indexerd.fleet.identity import Identity
from indexerd.fleet.outbox import Position
from indexerd.fleet.records import BODY_MAX
from indexerd.settings import is_loopback

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 60
PATIENCE = STATEMENT_SECONDS + 10  # seconds
SEEN_SECONDS = 20
MACHINES_MAX = 1000
_BODY = f"CASE WHEN octet_length(body) <= {BODY_MAX + 100} THEN body ELSE '' END"
PAGE_RECORDS, PAGE_BYTES = 100, 1 << 20  # applied while appends wait
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS indexerd;
CREATE TABLE IF NOT EXISTS indexerd.log (
  fleet name NOT NULL DEFAULT current_user, machine text NOT NULL, seq bigint NOT NULL,
  kind text NOT NULL, version integer NOT NULL, body bytea NOT NULL,
  at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (fleet, machine, seq));
ALTER TABLE indexerd.log ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS indexerd.member (
  fleet name NOT NULL DEFAULT current_user, machine text NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY, head bigint NOT NULL DEFAULT 0,
  token bytea NOT NULL DEFAULT '', seen timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (fleet, machine));
"""
_RULES = """
ALTER TABLE indexerd.{table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE indexerd.{table} FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_fleet ON indexerd.{table};
CREATE POLICY own_fleet ON indexerd.{table}
  USING (fleet = current_user) WITH CHECK (fleet = current_user);
GRANT SELECT, INSERT, UPDATE, DELETE ON indexerd.{table} TO {role};
"""


class UnreachableError(IndexerdError, kind="provider_unavailable"):
    """The server cannot be reached or used now."""


class RemovedError(IndexerdError, kind="not_found"):
    """This machine was removed from the fleet."""


class TakenError(IndexerdError, kind="already_running"):
    """Another machine wrote under this machine's identity."""


class Member(NamedTuple):
    """A machine of the fleet; `number` orders them by when they joined."""

    machine: str
    number: int
    head: int
    seen: datetime


class Sealed(NamedTuple):
    """An encrypted record."""

    seq: int
    kind: str
    version: int
    body: bytes


def server_of(url: str) -> dict[str, str]:
    """Split an address like postgresql://user@host/database; UsageError if it is not usable."""
    hint = "write it like postgresql://me@db.example/indexerd"
    try:
        server = {key: str(value) for key, value in conninfo.conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:  # its message may quote the password
        raise UsageError("not the address of a PostgreSQL server", hint=hint) from None
    if not server.get("host") or "service" in server:
        raise UsageError("the address names no host", hint=hint)
    hosts = [*server["host"].split(","), *filter(None, server.get("hostaddr", "").split(","))]
    local = all(host.startswith("/") or is_loopback(host) for host in hosts)
    if not local and server.setdefault("sslmode", "verify-full") != "verify-full":
        raise UsageError(
            "sslmode must be verify-full for a server on another machine",
            hint="leave it out; for your own authority set [fleet] ca_file",
        )
    return server


@asynccontextmanager
async def connected(server: Mapping[str, str], ca_file: str = "") -> AsyncIterator[AsyncConnection]:
    """Connect; all errors of the server become IndexerdErrors. Each statement is a transaction."""
    if set_ := {"PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE"} & os.environ.keys():
        hint = "unset it for the daemon: it could lead to another server than the address names"
        raise UsageError(f"{min(set_)} is set", hint=hint)
    # The rule for TLS holds whatever a code says, or leaves out.
    params: dict[str, Any] = server_of(conninfo.make_conninfo("", **server)) | {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": 1000 * STATEMENT_SECONDS,
        "application_name": "indexerd",
        "client_encoding": "utf8",
        "gssencmode": "disable",  # it would replace TLS
    }
    if params.get("sslmode") == "verify-full":
        params["sslrootcert"] = ca_file or params.get("sslrootcert") or "system"
    connection: AsyncConnection | None = None
    try:
        connection = await AsyncConnection.connect(**params, autocommit=True)
        connection.prepare_threshold = None  # poolers may not keep prepared statements
        yield connection
    except (psycopg.Error, OSError) as bad:
        raise _error(bad, server) from bad
    finally:
        if connection is not None:
            await connection.close()


def _error(bad: Exception, server: Mapping[str, str]) -> IndexerdError:
    """Describe an error without texts of the server, which may quote what was sent."""
    where = server.get("host", "")
    if isinstance(bad, errors.InvalidPassword | errors.InvalidAuthorizationSpecification):
        hint = "was the key rotated? Join again with the newest code"
        return AccessError(f"{where} refuses the login", hint=hint)
    if isinstance(bad, errors.InsufficientPrivilege):
        hint = "`fleet init` needs CREATE on the database, CREATEROLE, and the tables' owner"
        return AccessError(f"{where} denies a permission", hint=hint)
    text = str(bad)
    if "password authentication failed" in text:  # libpq gives no code while it connects
        hint = "was the key rotated? Join again with the newest code"
        return AccessError(f"{where} refuses the login", hint=hint)
    if "certificate" in text or "SSL" in text:
        hint = "for your own authority set [fleet] ca_file; nothing was sent"
        return UnreachableError(f"{where} has no valid certificate", hint=hint)
    state = getattr(bad, "sqlstate", None) or type(bad).__name__
    hint = "it is tried again; everything stays here until then"
    return UnreachableError(f"{where} cannot be used now ({state})", hint=hint)


async def create_fleet(connection: AsyncConnection, server: Mapping[str, str]) -> dict[str, str]:
    """Create the tables if they are missing, and a fleet's role; return how members connect."""
    role, password = f"indexerd_{secrets.token_hex(8)}", secrets.token_urlsafe(24)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('indexerd schema'))")
        await connection.execute(_SCHEMA)
        await connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                sql.Identifier(role), _verifier(connection, role, password)
            )
        )
        grant = sql.SQL("GRANT USAGE ON SCHEMA indexerd TO {}").format(sql.Identifier(role))
        await connection.execute(grant)
        for table in ("log", "member"):
            names = {"table": sql.Identifier(table), "role": sql.Identifier(role)}
            await connection.execute(sql.SQL(_RULES).format(**names))
    return dict(server) | {"user": role, "password": password}


def _verifier(connection: AsyncConnection, role: str, password: str) -> sql.Literal:
    """Make what the server stores of a password, so that its log never has the password."""
    encrypted = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    )
    return sql.Literal(encrypted.decode())


class Server:
    """A member's statements, over one connection."""

    def __init__(self, connection: AsyncConnection, identity: Identity) -> None:
        self._connection = connection
        self._fleet, self._machine = identity.fleet, identity.machine
        self._seen = -math.inf  # when it last said that it is here, `monotonic`

    async def _execute(
        self, query: str | sql.Composed, values: Sequence[Any] = ()
    ) -> AsyncCursor[Any]:
        with self._limited():
            return await self._connection.execute(query, values or None)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Hang up on a server that accepts and never answers; cancelling would wait for it, too."""
        timer = asyncio.get_running_loop().call_later(PATIENCE, _hang_up, self._connection)
        try:
            yield
        finally:
            timer.cancel()

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when another machine has told something."""

        def notified(notice: psycopg.Notify) -> None:
            if notice.payload != self._machine:
                wake()

        self._connection.add_notify_handler(notified)
        await self._execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._fleet)))

    @property
    def descriptor(self) -> int:
        """The socket, readable when the server has sent something."""
        return self._connection.fileno()

    async def members(self) -> list[Member]:
        """List the machines; now and then also say that this one is here."""
        if time.monotonic() - self._seen > SEEN_SECONDS:
            query = "UPDATE indexerd.member SET seen = now() WHERE machine = %s"
            await self._execute(query, [self._machine])
            self._seen = time.monotonic()
        query = "SELECT machine, number, head, seen FROM indexerd.member ORDER BY number"
        query += f" LIMIT {MACHINES_MAX}"
        rows = await (await self._execute(query)).fetchall()
        return [Member(*row) for row in rows]

    async def register(self) -> Position:
        """Add this machine to the fleet, unless it is there; return how far its log goes."""
        query = "INSERT INTO indexerd.member (machine) VALUES (%s) ON CONFLICT DO NOTHING"
        await self._execute(query, [self._machine])
        return await self.position()

    async def position(self, *, lock: bool = False) -> Position:
        query = "SELECT head, token FROM indexerd.member WHERE machine = %s"
        locking = f"{query} FOR UPDATE"
        found = await self._execute(locking if lock else query, [self._machine])
        row = await found.fetchone()
        if row is None:
            hint = "`indexerd fleet leave` forgets the fleet here"
            raise RemovedError("this machine was removed from the fleet", hint=hint)
        return Position(int(row[0]), bytes(row[1]))

    async def push(
        self,
        before: Position,
        after: Position,
        rows: Iterable[Sequence[Any]],
        stale: list[int],
        through: int,
    ) -> None:
        """Append records and delete those that they replace, in one transaction.

        TakenError, and nothing happens, if the log is not as this machine left it.
        """
        connection, own = self._connection, self._machine
        with self._limited():
            async with connection.transaction():
                await self._execute(f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'")
                if await self.position(lock=True) != before:
                    raise TakenError("another machine wrote as this one")
                async with connection.cursor() as cursor:
                    query = "INSERT INTO indexerd.log (machine, seq, kind, version, body)"
                    values = [(own, *row) for row in rows]
                    await cursor.executemany(f"{query} VALUES (%s, %s, %s, %s, %s)", values)
                query = (
                    "DELETE FROM indexerd.log WHERE machine = %s AND (seq <= %s OR seq = ANY(%s))"
                )
                await self._execute(query, [own, through, stale])
                query = "UPDATE indexerd.member SET head = %s, token = %s, seen = now()"
                await self._execute(f"{query} WHERE machine = %s", [after.head, after.token, own])
                await self._execute("SELECT pg_notify(%s, %s)", [self._fleet, own])

    async def page(self, machine: str, after: int) -> list[Sealed]:
        """Return a machine's next records, in order; an empty list after the last one."""
        query = (
            f"SELECT seq, kind, version, {_BODY} FROM (SELECT *, sum(octet_length(body)) OVER"  # noqa: S608 - ours
            " (ORDER BY seq) AS size FROM (SELECT * FROM indexerd.log"
            " WHERE machine = %s AND seq > %s ORDER BY seq LIMIT %s) AS next) AS page"
            " WHERE size - octet_length(body) < %s ORDER BY seq"
        )
        values = [machine, after, PAGE_RECORDS, PAGE_BYTES]
        rows = await (await self._execute(query, values)).fetchall()
        return [Sealed(seq, kind, version, bytes(body)) for seq, kind, version, body in rows]

    async def hellos(self) -> list[tuple[str, Sealed]]:
        """Return the record with which each machine says its name."""
        query = f"SELECT machine, seq, kind, version, {_BODY} FROM indexerd.log"  # noqa: S608 - ours
        query += f" WHERE kind = 'hello' LIMIT {MACHINES_MAX}"
        rows = await (await self._execute(query)).fetchall()
        return [(row[0], Sealed(row[1], row[2], row[3], bytes(row[4]))) for row in rows]

    async def remove(self, machine: str) -> None:
        """Delete a machine and all that it told; NotFoundError if there is none."""
        async with self._connection.transaction():
            query = "DELETE FROM indexerd.member WHERE machine = %s"
            deleted = await self._execute(query, [machine])
            if not deleted.rowcount:
                raise NotFoundError("no such machine", hint="`indexerd fleet status` lists them")
            await self._execute("DELETE FROM indexerd.log WHERE machine = %s", [machine])
            await self._execute("SELECT pg_notify(%s, '')", [self._fleet])

    async def change_password(self, password: str) -> None:
        """Change the fleet's password, and end the other members' connections."""
        role = self._fleet
        verifier = _verifier(self._connection, role, password)
        query = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), verifier)
        await self._execute(query)
        await self._execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = current_user AND pid <> pg_backend_pid()"
        )


def _hang_up(connection: AsyncConnection) -> None:
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as end,
    ):
        end.shutdown(socket.SHUT_RDWR)


def new_key() -> bytes:
    return os.urandom(32)
