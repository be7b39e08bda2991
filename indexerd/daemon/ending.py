"""The end of the process, which comes whatever hangs.

In: that an end has begun, and with which exit code. Out: nothing, where all comes to its end by
itself. Otherwise, after a while, a line in the log and the end of the process: a thread that waits
for a file system which does not answer cannot be ended, and neither the event loop nor the
interpreter ends before its threads do (V1). What is lost then is read anew by the next daemon:
store and index are caches, and every file is replaced as a whole or not at all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

END_SECONDS = 10.0  # systemd kills after 15
LAST_SECONDS = 1.0  # for the line in the log


class Ending:
    """The end of this process; `late()` is called, in a thread, where it does not come by itself.

    Once begun, it cannot be taken back: this is for a process that has nothing to do after it.
    """

    def __init__(self, late: Callable[[], None]) -> None:
        self._late = late
        self._begun = False
        self._code = 0

    def begin(self, code: int = 0) -> None:
        """The end has begun; said again, it may be with another exit code."""
        self._code = max(code, self._code)
        if not self._begun:
            self._begun = True
            _after(END_SECONDS, self._overdue)

    def _overdue(self) -> None:
        _after(LAST_SECONDS, lambda: os._exit(self._code))  # the log may hang, too
        self._late()
        os._exit(self._code)


def _after(seconds: float, work: Callable[[], None]) -> None:
    """Do something later, in a thread that keeps nobody from ending."""
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
