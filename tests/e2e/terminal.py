"""Run a command on a pseudo-terminal: what a person sees of it, with the input they type."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.forked import Forked


def on_terminal(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    columns: int | None = None,
    typed: str = "",
    then: Sequence[tuple[str, str]] = (),
) -> tuple[int, bytes]:
    """Return the exit code and the output; `then` is what to type once a text is shown."""
    master, terminal = pty.openpty()
    if columns is not None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    name = Path(os.ttyname(terminal))
    assert list(command[:3]) == [sys.executable, "-m", "indexerd"]
    run = Forked(command[3:], env, cwd, out=name, err=name, terminal=True)

    def end() -> None:
        run.wait(50)
        os.close(terminal)  # the last one: then reading ends

    threading.Thread(target=end).start()
    os.write(master, typed.encode())
    output, steps, seen = bytearray(), list(then), 0
    try:
        while chunk := os.read(master, 65536):
            output += chunk
            if steps and (at := output.find(steps[0][0].encode(), seen)) >= 0:
                seen = at + 1
                os.write(master, steps.pop(0)[1].encode())
    except OSError:  # Linux raises this when the other end has been closed
        pass
    finally:
        os.close(master)
    return run.wait(30), bytes(output)
