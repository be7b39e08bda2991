"""Tell the service manager the daemon's state, by systemd's notification protocol.

Never raises, and never blocks for longer than a second: an unreachable manager is no reason to stop
indexing. Without a manager (a terminal, launchd) every call just returns False. READY and STOPPING
wait for a full queue, because systemd acts on each of them once; status and pings do not.

A ping must be earned: the caller sends it after real progress, never from a timer thread of
its own, or a wedged daemon would look healthy for ever.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

STATUS_MAX = 200  # bytes; `systemctl status` shows one line
_WAIT_SECONDS = 1.0


class Notifier:
    """The manager's end of the line.

    `watchdog_seconds` is the manager's deadline between two pings (ping at half of it), or
    None where no watchdog was asked for or it is meant for another process.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        path = env.get("NOTIFY_SOCKET", "")
        self._address = os.fsencode(path) if len(path) > 1 and path[0] in "/@" else b""
        if path.startswith("@"):  # an abstract name
            self._address = self._address.replace(b"@", b"\0", 1)
        self.watchdog_seconds = _watchdog(env) if self._address else None

    def ready(self, status: str) -> bool:
        """Say that the start is complete: the socket answers."""
        return self._send(f"READY=1\nSTATUS={_line(status)}", wait=True)

    def status(self, text: str) -> bool:
        """Show one line in `systemctl status`; cut to 200 bytes, control characters blanked."""
        return self._send(f"STATUS={_line(text)}")

    def watchdog(self) -> bool:
        """Ping: real work was done since the last one."""
        return self._send("WATCHDOG=1")

    def stopping(self) -> bool:
        """Say that the end has begun."""
        return self._send("STOPPING=1", wait=True)

    def _send(self, message: str, *, wait: bool = False) -> bool:
        if not self._address:
            return False
        data = message.encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(_WAIT_SECONDS if wait else 0)
                return line.sendto(data, self._address) == len(data)
        except (OSError, ValueError):  # gone, full, too long a path: see the contract above
            return False


def _watchdog(env: Mapping[str, str]) -> float | None:
    micros, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if (pid and pid != str(os.getpid())) or not re.fullmatch(r"[0-9]{1,20}", micros):
        return None
    return int(micros) / 1e6 or None  # 0 is no deadline


def _line(text: str) -> str:
    """Text without newlines, each of which would start a message of its own."""
    flat = "".join(c if c.isprintable() else " " for c in text).strip()
    return flat.encode("utf-8", "replace")[:STATUS_MAX].decode("utf-8", "ignore")
