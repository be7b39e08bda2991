"""A command whose streams are a terminal: what a person sees of it, and what they type."""

from __future__ import annotations

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
) -> tuple[int, bytes]:
    ours, its = pty.openpty()
    if columns is not None:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    run = subprocess.Popen(command, env=env, cwd=cwd, stdin=its, stdout=its, stderr=its)
    os.close(its)
    os.write(ours, typed.encode())
    got = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            got += chunk
    except OSError:  # Linux's way to say that nobody holds the other end any more
        pass
    finally:
        os.close(ours)
    return run.wait(30), bytes(got)
