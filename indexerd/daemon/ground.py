"""The state directory under a running daemon: whether it is still there (V10).

In: the lock that the daemon holds in it. Out: a problem for `status` while the directory is gone
and cannot be made again, and the reason to begin anew once it can be.

Without it nothing is half right: store and index are open files that nobody finds any more,
no budget can be booked, and whoever starts next to us gets a lock of the same name. Both stores
are caches, so that a new start loses nothing. One that could not succeed yet is waited with: five
in a row, and systemd would let it be; and meanwhile `status` can say why.
"""

from __future__ import annotations

from typing import Any

from indexerd.daemon.process import make_private
from indexerd.disk import Lock
from indexerd.errors import IndexerdError
from indexerd.times import iso

GONE = "the state directory was removed: ending, to begin anew"
_CURE = "make room for the directory; the daemon ends then, and begins anew"


class Ground:
    """What the daemon stands on."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._why = ""
        self._since = 0.0

    def lost(self, now: float) -> str:
        """Why to begin anew, or "". It asks the disk: not for the event loop."""
        if self._lock.stands():
            self._why = ""
            return ""
        try:
            make_private(self._lock.path.parent)
        except IndexerdError as bad:
            self._since = self._since if self._why else now
            self._why = f"the state directory is gone, and cannot be made: {bad}"
            return ""
        return GONE

    def problems(self) -> list[dict[str, Any]]:
        """What is wrong with it, for `status`."""
        if not self._why:
            return []
        told = {"cause": self._why, "since": iso(self._since), "cure": _CURE}
        return [{"code": "state_unwritable", **told}]
