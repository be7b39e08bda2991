"""Run a command on a pseudo-terminal: what a person sees of it, with the input they type."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path


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
    run = subprocess.Popen(
        command, env=env, cwd=cwd, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
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
