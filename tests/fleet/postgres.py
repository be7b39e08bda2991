"""A PostgreSQL server of its own on loopback, which tests may stop, kill and restart."""

from __future__ import annotations

import contextlib
import copy
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
max_connections = 200
max_wal_size = '4GB'
"""


def programs() -> Path | None:
    """The directory of initdb and pg_ctl: Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    named = shutil.which("initdb")
    first = next(iter(found), Path(named) if named else None)
    return first.parent if first else None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Postgres:
    """One cluster. PostgreSQL refuses to run as root, so root runs it as another user."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.data, self._programs = directory / "pg", programs
        self.port, self.password = free_port(), secrets.token_hex(8)
        self._user = None
        if os.getuid() == 0:
            self._user = next(
                u.pw_name for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody")
            )
        self.data.mkdir()
        secret = directory / "secret"
        secret.write_text(self.password)
        if self._user:
            for path in (self.data, secret):
                shutil.chown(path, self._user)
            directory.chmod(0o711)
        self._call("initdb", "-U", "me", "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{SETTINGS}port = {self.port}\n")

    def _call(self, name: str, *words: str) -> None:
        subprocess.run(
            [str(self._programs / name), "-D", str(self.data), *words],
            check=True,
            user=self._user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

    @property
    def url(self) -> str:
        return f"postgresql://me:{self.password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        self._call("pg_ctl", "-w", "-l", str(self.data / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        self._call("pg_ctl", "-w", "-m", mode, "stop")

    def standby(self, directory: Path) -> Postgres:
        """Start a copy that follows this server until it is promoted."""
        other = copy.copy(self)
        other.data, other.port = directory / "pg", free_port()
        other.data.mkdir(mode=0o700)
        if self._user:
            shutil.chown(other.data, self._user)
            directory.chmod(0o711)
        other._call("pg_basebackup", "-R", "-X", "stream", "-d", self.url)
        with (other.data / "postgresql.conf").open("a") as file:
            file.write(f"port = {other.port}\n")
        other.start()
        return other

    def promote(self) -> None:
        self._call("pg_ctl", "-w", "promote")

    def processes(self) -> list[int]:
        """List the server and all processes that it has started."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def certify(self, address: str) -> None:
        """Listen on another address, too, with TLS and a certificate that nobody has signed."""
        names = ["-subj", "/CN=test", "-addext", f"subjectAltName=IP:{address}"]
        key, certificate = self.data / "server.key", self.data / "server.crt"
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        files = ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*make, *names, *files], check=True, capture_output=True)
        key.chmod(0o600)
        if self._user:
            shutil.chown(key, self._user)
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"ssl = on\nlisten_addresses = '127.0.0.1,{address}'\n")
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host all all all scram-sha-256\n")
        self.stop()
        self.start()

    def query(self, statement: str, *values: object, url: str = "") -> list[tuple[object, ...]]:
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def dump(self) -> bytes:
        """All that the server has, as pg_dumpall prints it."""
        done = subprocess.run(
            [str(self._programs / "pg_dumpall"), "-d", self.url],
            check=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"], "PGPASSWORD": self.password},
        )
        return done.stdout


@contextlib.contextmanager
def running() -> Iterator[Postgres]:
    """Start a server of its own; skip the test where PostgreSQL is not installed."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with tempfile.TemporaryDirectory(prefix="indexerd-pg-", ignore_cleanup_errors=True) as name:
        server = Postgres(Path(name), found)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                server.stop("immediate")
