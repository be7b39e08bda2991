"""`indexerd web` as a user runs it: a process on loopback, opened by the link it prints."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.e2e.world import World, until

COMMAND = ("web", "--no-open", "--listen", "127.0.0.1:0")
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/\S*")


@dataclass(frozen=True, slots=True)
class Site:
    """A running server. `link` holds the token, and is good for one browser."""

    link: str
    process: subprocess.Popen[bytes]

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.link)
        return f"{parts.scheme}://{parts.netloc}"

    def cookies(self) -> list[Any]:
        """The cookies of a browser that followed the link, which is then used up."""
        answer = httpx2.get(self.link)
        assert answer.status_code == 303, answer.text
        name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
        return [{"name": name, "value": value, "url": self.origin}]


@contextmanager
def site(world: World, *argv: str) -> Iterator[Site]:
    """Run the server for the block and check its exit code."""
    told, errors = world.root / "web.out", world.root / "web.err"
    with told.open("wb") as out, errors.open("ab") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "indexerd", *COMMAND, *argv],
            env=world.env,
            cwd=world.root,
            stdout=out,
            stderr=err,
        )
    try:

        def link() -> str | None:
            assert process.poll() is None, errors.read_text()
            found = _LINK.search(told.read_text())
            return found and found[0]

        yield Site(until(link, "the printed link"), process)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0, errors.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
