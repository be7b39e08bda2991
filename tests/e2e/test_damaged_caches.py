"""Store and index are damaged in every way: the daemon starts, and finds what it found before.

The caches are damaged at rest, as a daemon left them that ended well or was killed, and then a real
daemon is started over them. What it must come to does not depend on where the damage was.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import IndexerdError
from tests.e2e.world import Session, World, until

PAGE = 4096
SESSIONS = 4
STORE, INDEX = "store.sqlite", "search"
# Which daemon left the caches, and which file of theirs is damaged; of the index any.
PLACES = [
    ("ended", STORE),
    ("ended", INDEX),
    ("killed", STORE),
    ("killed", INDEX),
    ("killed", f"{STORE}-wal"),
]


class Template:
    """Sessions that were described, and the caches of two daemons that knew them."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.install_pi()
        self.world.scripted()
        self.world.env["INDEXERD_BUDGET__REQUESTS_PER_MINUTE"] = "1000"
        self.world.env["INDEXERD_BUDGET__DAILY_USD"] = "100"
        self.words = {f"zebra{number:03}": self._session(number) for number in range(SESSIONS)}
        self.left = {"ended": root / "ended", "killed": root / "killed"}
        with self.world.daemon():
            for session in self.words.values():
                self.world.wait_meta(session.id)
            until(self._is_settled, "the rest")
        shutil.copytree(self.world.state, self.left["ended"])
        shutil.rmtree(self.world.state)
        shutil.copytree(self.left["ended"], self.world.state)
        for session in self.words.values():  # the log has much of what the files had, and more
            session.turn()
        with self.world.daemon() as process:
            until(self._is_stored, "the store's write")
            self.known = until(lambda: self.told() if self._is_settled() else None, "the rest")
            process.send_signal(signal.SIGKILL)
            process.wait()
        shutil.copytree(self.world.state, self.left["killed"])
        self.calls = len(self.world.calls())

    def _session(self, number: int) -> Session:
        session = self.world.session(turns=5)
        text = " ".join(f"word{number}n{place}" for place in range(400))
        session.turn(f"zebra{number:03} {text} Session: {session.id}")
        return session

    def _is_settled(self) -> bool:
        status = self.world.call("status")
        return bool(status["lastScanAt"]) and not (status["textPending"] or status["indexing"])

    def _is_stored(self) -> bool:
        log = (self.world.state / f"{STORE}-wal").read_bytes()
        return all(one.path.name.encode() in log for one in self.words.values())

    def told(self) -> Any:
        """What the daemon tells of every session; None where that is not all of it yet."""
        call = self.world.call
        rows = {one["sessionId"]: one for one in call("list", limit=100)["sessions"]}
        found = []
        for word, session in self.words.items():
            hits = [one["sessionId"] for one in call("search", query=word)["hits"]]
            got = call("get", ref=session.id)
            tree = call("tree", ref=session.id)
            keys = ("name", "description", "userMessageCount", "messageCount", "tokens", "cost")
            row = [got["session"].get(key) for key in keys]
            same = rows.get(session.id) == got["session"]
            found.append([word, hits, same, row, got["meta"]["name"], len(json.dumps(tree))])
        return [sorted(rows), found]

    def fresh(self, how: str) -> Path:
        """Caches as they were left."""
        shutil.rmtree(self.world.state, ignore_errors=True)
        shutil.copytree(self.left[how], self.world.state)
        return self.world.state

    def comes_to_it(self, why: str) -> None:
        """Start a daemon, and see that it tells all there is, without a call of a model."""
        with self.world.daemon() as process:
            until(self._tells, f"all that was known, after {why}")
            codes = [one["code"] for one in self.world.call("status")["problems"]]
            assert codes == [], why
            assert process.poll() is None, why
        assert len(self.world.calls()) == self.calls, why
        said = Counter(
            line["path"]
            for line in map(json.loads, (self.world.state / "log.jsonl").read_text().splitlines())
            if line["event"] == "cache.damaged"
        )
        assert all(count == 1 for count in said.values()), (why, said)

    def _tells(self) -> bool:
        with suppress(IndexerdError):
            return bool(self.told() == self.known)
        return False


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Made once: only the caches are another for each damage."""
    return Template(tmp_path_factory.mktemp("caches"))


def flip(data: bytearray, dice: random.Random) -> None:
    """Change some bytes anywhere."""
    for _ in range(dice.choice([1, 8, 64])):
        data[dice.randrange(len(data))] ^= dice.randrange(1, 256)


def zero(data: bytearray, dice: random.Random) -> None:
    """Leave some pages empty."""
    for _ in range(dice.choice([1, 4])):
        at = dice.randrange(-(-len(data) // PAGE)) * PAGE
        data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))


def double(data: bytearray, dice: random.Random) -> None:
    """Write some pages over others."""
    for _ in range(dice.choice([1, 4])):
        first, other = (dice.randrange(max(1, len(data) // PAGE)) * PAGE for _ in range(2))
        data[other : other + PAGE] = data[first : first + PAGE]


def cut(data: bytearray, dice: random.Random) -> None:
    """Lose the end."""
    del data[
        dice.choice([0, dice.randrange(len(data)), dice.randrange(len(data)) // PAGE * PAGE]) :
    ]


DAMAGES: list[Callable[[bytearray, random.Random], None]] = [flip, zero, double, cut]


def damaged(template: Template, seed: int) -> None:
    """One damage, all of which follows from its number."""
    dice = random.Random(seed)
    (how, name), damage = PLACES[seed % len(PLACES)], dice.choice(DAMAGES)
    path = template.fresh(how) / name
    if path.is_dir():
        files = [one for one in sorted(path.glob("*/*")) if one.stat().st_size]
        path = dice.choice([one for one in files if not one.name.endswith(".lock")])
    data = bytearray(path.read_bytes())
    damage(data, dice)
    path.write_bytes(data)
    template.comes_to_it(f"damage {seed}: {damage.__name__} in {path.name}, daemon {how}")


@pytest.mark.parametrize("seed", [1000, 1001, 1005, 1009, 1014, 1015, 1026, 1039])
def test_a_damaged_cache_costs_a_reading(template: Template, seed: int) -> None:
    """V6: every session is listed, found and read as before, and no model is called."""
    damaged(template, seed)


@pytest.mark.faults
@pytest.mark.parametrize("ten", range(20))
@pytest.mark.timeout(200)
def test_two_hundred_damages(template: Template, ten: int) -> None:
    """V6: the same at random; the number of each is in what a failure says."""
    for seed in range(1000 + 10 * ten, 1010 + 10 * ten):
        damaged(template, seed)


@pytest.mark.parametrize("kind", ["directory", "lost link", "link to itself", "pipe", "log"])
def test_a_store_whose_place_holds_no_file(template: Template, kind: str) -> None:
    """V6: what stands there is put aside; so is a directory where the log should be."""
    path = template.fresh("ended") / STORE
    if kind == "log":
        (path.with_name(f"{STORE}-wal") / "x").mkdir(parents=True)
    else:
        path.unlink()
    if kind == "directory":
        (path / "x").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(path)
    elif "link" in kind:
        path.symlink_to(path if kind == "link to itself" else "/no/such/place")
    template.comes_to_it(f"{kind} in place of the store")


@pytest.mark.parametrize("name", [STORE, INDEX])
def test_a_cache_that_is_damaged_under_a_daemon(world: World, name: str) -> None:
    """V6: page after page goes bad while it runs: the daemon makes the cache anew, and goes on."""
    world.scripted()
    sessions = {f"giraffe{number}": world.session(turns=5) for number in range(4)}
    for word, session in sessions.items():
        session.turn(f"Look for {word}, please. Session: {session.id}")

    def found(said: int = 6) -> bool:
        with suppress(IndexerdError):
            rows = world.call("list")["sessions"]
            told = {one["sessionId"]: one["userMessageCount"] for one in rows}
            hits = [world.call("search", query=word)["hits"] for word in sessions]
            ours = [world.call("get", ref=one.id)["meta"]["name"] for one in sessions.values()]
            trees = [world.call("tree", ref=one.id) for one in sessions.values()]
            right = all(
                hit and hit[0]["sessionId"] == one.id
                for hit, one in zip(hits, sessions.values(), strict=True)
            )
            return (
                right
                and all(ours)
                and all(trees)
                and told == {s.id: said for s in sessions.values()}
            )
        return False

    with world.daemon() as process:
        for session in sessions.values():
            world.wait_meta(session.id)
        until(found, "all of it")
    with world.daemon() as process:
        until(found, "all of it again")
        path = world.state / name
        for one in [path] if path.is_file() else path.glob("*/*"):
            with one.open("r+b") as file:
                pages = -(-os.fstat(file.fileno()).st_size // PAGE)
                file.write(b"\xa5" * PAGE * pages)
        for word, session in sessions.items():
            session.turn(f"And once more for {word}. Session: {session.id}")
        until(lambda: found(7), "all of it, and what was said since")
        assert process.poll() is None
    with world.daemon():
        until(lambda: found(7), "all of it, at the next start")
        assert world.call("status")["problems"] == []
    assert len(world.calls()) == len(sessions)
