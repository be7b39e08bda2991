"""Report the daemon's state to systemd, by its notification protocol.

Never raises, and never blocks for longer than a second; without systemd every call does nothing.
A watchdog ping must follow real progress, or a hung daemon would look healthy.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress

STATUS_MAX = 200  # characters; `systemctl status` shows one line
_WAIT_SECONDS = 1.0


class Notifier:
    """Sends the messages; `watchdog_seconds` is the longest time between two pings, or None."""

    def __init__(self, env: Mapping[str, str]) -> None:
        path = env.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path  # an abstract name
        micros, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID") or str(os.getpid())
        ours = bool(path) and pid == str(os.getpid()) and re.fullmatch(r"[0-9]{1,20}", micros)
        self.watchdog_seconds = (int(micros) / 1e6 or None) if ours else None

    def ready(self) -> None:
        self._send("READY=1", wait=_WAIT_SECONDS)  # systemd acts on it once

    def status(self, text: str) -> None:
        flat = "".join(one if one.isprintable() else " " for one in text)
        self._send(f"STATUS={flat[:STATUS_MAX]}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        self._send("STOPPING=1", wait=_WAIT_SECONDS)

    def _send(self, message: str, *, wait: float = 0) -> None:
        if not self._address:
            return
        with (
            suppress(OSError, ValueError),  # gone, full, too long a path
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line,
        ):
            line.settimeout(wait)
            line.sendto(message.encode("utf-8", "replace"), self._address)
