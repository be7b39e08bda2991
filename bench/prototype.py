"""The limit of following files: inotify in the event loop, a read of what is new, a socket.

    python bench/prototype.py ROOT SOCKET

The least that anything in Python does which tells a client of an append, for `bench_live.py`: of
each file under ROOT it counts the lines. A client sends a path and gets that number, or sends
`subscribe` and gets `[path, lines]` with each change, a line of JSON each. It parses nothing,
stores nothing, and believes the kernel: after an overflow it looks at every file again.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import struct
import sys

IN_MODIFY, IN_CREATE, IN_MOVED_TO, IN_Q_OVERFLOW = 0x2, 0x100, 0x80, 0x4000
EVENT = struct.Struct("iIII")


class Prototype:
    """Files, how far each was read, and who listens."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.folders: dict[int, str] = {}
        self.read: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.ears: list[asyncio.Transport] = []
        self.sweep()

    def sweep(self) -> None:
        """Watch every directory, and look at every file."""
        stack = [self.root]
        while stack:
            folder = stack.pop()
            mask = IN_MODIFY | IN_CREATE | IN_MOVED_TO
            self.folders[self.libc.inotify_add_watch(self.fd, os.fsencode(folder), mask)] = folder
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    elif self.read.get(entry.path) != entry.stat().st_size:
                        self.look(entry.path)

    def look(self, path: str) -> None:
        """Read what is new in a file, and tell of it."""
        place = os.open(path, os.O_RDONLY)
        try:
            data = os.pread(place, 1 << 26, self.read.get(path, 0))
        finally:
            os.close(place)
        self.read[path] = self.read.get(path, 0) + len(data)
        self.lines[path] = self.lines.get(path, 0) + data.count(b"\n")
        told = json.dumps([path, self.lines[path]]).encode() + b"\n" if self.ears else b""
        for one in self.ears:
            if not one.is_closing():
                one.write(told)

    def hinted(self) -> None:
        """Take what the kernel has to say, and look there."""
        data, at, paths = os.read(self.fd, 1 << 18), 0, dict[str, None]()
        while at < len(data):
            watch, mask, _, length = EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + 16 : at + 16 + length].rstrip(b"\0"))
            at += 16 + length
            if mask & IN_Q_OVERFLOW:
                self.sweep()
            elif name.endswith(".jsonl"):
                paths[f"{self.folders[watch]}/{name}"] = None
        for path in paths:
            self.look(path)


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, of: Prototype) -> None:
        self.of = of
        self.held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self.held = (self.held + data).split(b"\n")
        for one in lines:
            if one == b"subscribe":
                self.of.ears.append(self.transport)
            self.transport.write(b"%d\n" % self.of.lines.get(os.fsdecode(one), 0))

    def connection_lost(self, _why: Exception | None) -> None:
        if self.transport in self.of.ears:
            self.of.ears.remove(self.transport)


async def main() -> None:
    """Serve until killed."""
    root, path = sys.argv[1:3]
    loop, one = asyncio.get_running_loop(), Prototype(root)
    loop.add_reader(one.fd, one.hinted)
    server = await loop.create_unix_server(lambda: Connection(one), path)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
