"""Tell the service manager how we are: systemd's notification protocol, nothing else.

In: the environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`). Out: one datagram per
message on a Unix socket, and a bool that says whether the manager took it.

Never raises, and never blocks for longer than a second: not being heard is no reason to stop
indexing. Not under a manager (a terminal, launchd) every call is a quiet False. READY, STOPPING
and RELOADING wait up to a second for a full queue, because systemd acts on each of them once;
status and pings do not wait, because another follows soon.

A ping must be earned: the caller sends it after real progress, never from a timer thread of
its own, or a wedged daemon would look healthy for ever.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping

STATUS_MAX = 200  # bytes; `systemctl status` shows one line
_WAIT_SECONDS = 1.0


class Notifier:
    """The manager's end of the line.

    `watchdog_seconds` is the manager's deadline between two pings (ping at half of it), or
    None where no watchdog was asked for or it is meant for another process.
    """

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._address = _address(env.get("NOTIFY_SOCKET", ""))
        self.watchdog_seconds = _watchdog(env) if self._address else None

    @property
    def active(self) -> bool:
        """Whether somebody asked to be told."""
        return self._address is not None

    def ready(self, status: str = "") -> bool:
        """Say that the start, or a reload, is complete: the socket answers."""
        return self._send(["READY=1", *_status(status)], wait=True)

    def status(self, text: str) -> bool:
        """Show one line in `systemctl status`; cut to 200 bytes, control characters blanked."""
        return self._send(_status(text) or ["STATUS="], wait=False)

    def watchdog(self) -> bool:
        """Ping: real work was done since the last one."""
        return self._send(["WATCHDOG=1"], wait=False)

    def reloading(self) -> bool:
        """Say that the configuration is being read again; `ready` must follow."""
        now = time.monotonic_ns() // 1000
        return self._send(["RELOADING=1", f"MONOTONIC_USEC={now}"], wait=True)

    def stopping(self, status: str = "") -> bool:
        """Say that the end has begun."""
        return self._send(["STOPPING=1", *_status(status)], wait=True)

    def _send(self, lines: list[str], *, wait: bool) -> bool:
        if self._address is None:
            return False
        message = "\n".join(lines).encode("utf-8", "replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(_WAIT_SECONDS if wait else 0)
                return line.sendto(message, self._address) == len(message)
        except (OSError, ValueError):  # gone, full, too long a path: see the contract above
            return False


def _address(text: str) -> bytes | None:
    """The socket's address: a path, or an abstract name written with `@`."""
    if text.startswith("@") and len(text) > 1:
        return b"\0" + os.fsencode(text[1:])
    return os.fsencode(text) if text.startswith("/") else None


def _watchdog(env: Mapping[str, str]) -> float | None:
    micros, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return None
    if not re.fullmatch(r"[0-9]{1,20}", micros):
        return None
    return int(micros) / 1e6 or None  # 0 is no deadline


def _status(text: str) -> list[str]:
    """One STATUS line, or none; a newline in it would start a message of its own."""
    flat = "".join(c if c.isprintable() else " " for c in text).strip()
    cut = flat.encode("utf-8", "replace")[:STATUS_MAX].decode("utf-8", "ignore")
    return [f"STATUS={cut}"] if cut else []
