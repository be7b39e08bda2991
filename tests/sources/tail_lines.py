"""Files that grow by lines, and what was read of them."""

from __future__ import annotations

from indexerd.sources.lines import Block
from indexerd.sources.tail import Read


def cut(data: bytes) -> list[bytes]:
    """The whole lines of some bytes; no other splitter keeps to byte 0x0A alone."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def lines(read: Read) -> list[bytes]:
    """The lines of one reading; an oversized one shows as its head."""
    found: list[bytes] = []
    for one in read.lines:
        found += cut(one.data) if isinstance(one, Block) else [one.head]
    return found
