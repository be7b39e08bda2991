"""The web view that a world's daemon runs, and a browser that its link has let in."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from indexerd.web.server import Running, find_running
from tests.e2e.world import World, until


def started(world: World) -> Running:
    view: Running = until(lambda: find_running(world.state), "the view's start")
    return view


@contextmanager
def browsing(world: World, *session: str) -> Iterator[tuple[Any, Any]]:
    """Yield a browser at the address of the view, and the page that the link leads to."""
    started(world)
    found = world.run("web", "--json", *session)
    with httpx2.Client(follow_redirects=True, base_url=found["url"]) as browser:
        yield browser, browser.get(found["link"])
