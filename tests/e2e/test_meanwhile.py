"""Questions that are asked while something is being written: the answers are old or new."""

from __future__ import annotations

import threading

import pytest

from indexerd.client import Client
from tests.e2e.world import World

pytestmark = pytest.mark.faults
RENAMES = 60


def test_lookups_during_writes_are_old_or_new(world: World) -> None:
    """S11: no answer is an error, half of one, or older than the one before it."""
    seen: list[str] = []
    done = threading.Event()
    with world.daemon():
        session = world.session(turns=5)
        first = world.wait_meta(session.id)["name"]

        def ask() -> None:
            with Client(world.socket, timeout=20) as client:
                while not done.is_set():
                    stored = client.call("get", {"ref": session.id})
                    seen.append(stored["session"]["name"])

        asking = threading.Thread(target=ask)
        asking.start()
        names = [first, *(f"The {number}th name" for number in range(RENAMES))]
        try:
            for name in names[1:]:
                world.call("update", ref=session.id, title=name)
        finally:
            done.set()
            asking.join(30)
        last = world.call("get", ref=session.id)["session"]["name"]
    places = [names.index(one) for one in seen]
    assert places == sorted(places)
    assert len(set(places)) > 1
    assert last == names[-1]
