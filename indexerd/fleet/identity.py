"""Who this machine is in its fleet: `fleet.json` in the state directory (0600)."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from indexerd.disk import write_atomically
from indexerd.errors import AccessError, ConfigError, WriteError
from indexerd.fleet.records import KEY_BYTES, MACHINE_NAME, JoinCode, key_id
from indexerd.protocol.params import Text

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of a fleet. All but `machine` and `name` is the same on every machine."""

    machine: Text  # random; never the same on two machines
    name: Annotated[str, Meta(pattern=MACHINE_NAME)]
    server: dict[str, str]  # parameters of libpq
    keys: Annotated[list[Key], Meta(min_length=1)]  # the newest one, which encrypts, is last
    before: str = ""  # password before the last rotation, in case that was interrupted

    @property
    def fleet(self) -> str:
        return self.server["user"]

    @property
    def key(self) -> bytes:
        return self.keys[-1]

    @property
    def by_id(self) -> dict[bytes, bytes]:
        return {key_id(key): key for key in self.keys}

    @property
    def code(self) -> str:
        return str(JoinCode(self.server, self.key))


def new_machine() -> str:
    return os.urandom(16).hex()


def own_name(named: str) -> str:
    """Return the configured name, or else the host's, in letters that a name may have."""
    host = "".join(
        c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname()
    )
    return named or host.split(".")[0].strip("._-")[:63] or "machine"


def load(path: Path) -> Identity | None:
    """Read the identity; None if this machine is in no fleet. ConfigError if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except OSError as bad:
        raise AccessError(f"cannot read {path}: {bad.strerror}") from None
    except ValueError:
        hint = "remove the file, and join again with a code from another machine"
        problem = {"file": str(path), "key": "", "message": "it is damaged", "hint": hint}
        raise ConfigError([problem]) from None


def save(path: Path, identity: Identity) -> None:
    try:
        write_atomically(path, msgspec.json.encode(identity))
    except OSError as bad:
        raise WriteError(f"cannot write {path}: {bad.strerror}") from None
