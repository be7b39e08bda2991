"""Store and index are damaged: the daemon starts, and finds what it found before."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from indexerd.disk import remove
from indexerd.errors import IndexerdError
from tests.e2e.world import Session, World, logged, until

PAGE = 4096
STORE, INDEX = "store.sqlite", "search"
# How the daemon ended, which cache is damaged (of the index any file), and how.
PLACES = [*product(("ended", "killed"), (STORE, INDEX)), ("killed", f"{STORE}-wal")]
PLAIN = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
WAYS = [*product(PLACES, ["flip", "zero", "head", "double", "cut", "empty"])]


class Template:
    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.install_pi()
        self.world.scripted()
        self.world.env["INDEXERD_BUDGET__REQUESTS_PER_MINUTE"] = "1000"
        self.words = {f"zebra{number}": self._session(number) for number in range(4)}
        self.left = {"ended": root / "ended", "killed": root / "killed"}
        with self.world.daemon():
            for session in self.words.values():
                self.world.wait_meta(session.id)
            until(self._is_settled, "the rest")
        shutil.copytree(self.world.state, self.left["ended"])
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
        session.turn(f"zebra{number} {text} Session: {session.id}")
        return session

    def _is_settled(self) -> bool:
        status = self.world.call("status")
        return bool(status["lastScanAt"]) and not (status["textPending"] or status["indexing"])

    def _is_stored(self) -> bool:
        log = (self.world.state / f"{STORE}-wal").read_bytes()
        return all(one.path.name.encode() in log for one in self.words.values())

    def told(self) -> Any:
        call = self.world.call
        rows = {one["sessionId"]: one for one in call("list", limit=100)["sessions"]}
        found = []
        for word, session in self.words.items():
            hits = [one["sessionId"] for one in call("search", query=word)["hits"]]
            got = call("get", ref=session.id)
            keys = ("name", "description", "userMessageCount", "messageCount", "tokens")
            row = [got["session"].get(key) for key in keys]
            same = rows.get(session.id) == got["session"]
            tree = len(json.dumps(call("tree", ref=session.id)))
            found.append([word, hits, same, row, got["meta"]["name"], tree])
        return [sorted(rows), found]

    def fresh(self, how: str) -> Path:
        shutil.rmtree(self.world.state, ignore_errors=True)
        shutil.copytree(self.left[how], self.world.state)
        return self.world.state

    def comes_to_it(self, why: str, harm: Callable[[], object] | None = None) -> None:
        with self.world.daemon() as process:
            until(self.tells, f"all that was known, after {why}")
            if harm is not None:
                harm()
                until(self.said, f"a word about {why}")
                until(self.tells, f"all that was known, in spite of {why}")
            assert self.world.call("status")["problems"] == [], why
            assert process.poll() is None, why
        assert len(self.world.calls()) == self.calls, why
        assert all(count == 1 for count in self.said().values()), (why, self.said())

    def said(self) -> Counter[str]:
        with suppress(IndexerdError):  # looks at every session
            self.told()
        return Counter(Path(line["path"]).name for line in logged(self.world, "cache.damaged"))

    def tells(self) -> bool:
        with suppress(IndexerdError):
            return bool(self.told() == self.known)
        return False


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("caches"))


def damage(data: bytearray, kind: str, dice: random.Random) -> None:
    pages = -(-len(data) // PAGE)
    first, other = (dice.randrange(pages) * PAGE for _ in range(2))
    match kind:
        case "flip":  # some bytes anywhere
            for _ in range(dice.choice([1, 8, 64])):
                data[dice.randrange(len(data))] ^= dice.randrange(1, 256)
        case "zero":
            data[first : first + PAGE] = bytes(len(data[first : first + PAGE]))
        case "head":
            data[:100] = b"not a database".ljust(100)[: len(data)]
        case "double":  # one page over another
            data[other : other + PAGE] = data[first : first + PAGE]
        case "cut":
            del data[dice.randrange(len(data)) :]
        case "empty":
            data.clear()


def damaged(template: Template, number: int) -> None:
    dice = random.Random(number)
    (how, name), kind = WAYS[number % len(WAYS)]
    path = template.fresh(how) / name
    if path.is_dir():
        files = [one for one in sorted(path.glob("*/*")) if one.stat().st_size]
        path = dice.choice([one for one in files if not one.name.endswith(".lock")])
    data = bytearray(path.read_bytes())
    damage(data, kind, dice)
    path.write_bytes(data)
    template.comes_to_it(f"damage {number}: {kind} in {path.name}, daemon {how}")


@pytest.mark.parametrize("number", [0, 2, 7, 10, 16, 29])
def test_a_damaged_cache_costs_a_reading(template: Template, number: int) -> None:
    """S3.14, S3.30: every session is listed, found and read as before, and no model is called."""
    damaged(template, number)


@pytest.mark.faults
@pytest.mark.parametrize("first", range(0, 200, 10))
def test_two_hundred_damages(template: Template, first: int) -> None:
    """S3.30: the same, wherever the damage is, and however the daemon ended."""
    for number in range(first, first + 10):
        damaged(template, number)


def spoil(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    with path.open("r+b") as file:
        file.write(data.replace(old, new))


ROWS = [  # what was in them, and what is there instead
    (b'"agent":"pi"', b'"agent":"px"'),
    (b'"sessionId":', b'"sessionId"}'),
    (b'"name":"', b'"na\xff\xfe":"'),
]


@pytest.mark.parametrize(("old", "new"), ROWS)
def test_rows_that_change_under_a_daemon(template: Template, old: bytes, new: bytes) -> None:
    """S3.30: it is noticed at the next access, even where the new rows look well."""
    path = template.fresh("ended") / STORE
    template.comes_to_it(f"{new!r}", lambda: spoil(path, old, new))
    assert template.said() == {STORE: 1}


def test_rows_that_change_unread_under_a_daemon(template: Template) -> None:
    """S3.30: no checksum makes a damaged store look well when the daemon ends."""
    path = template.fresh("ended") / STORE
    with template.world.daemon():
        until(template.tells, "all that was known")
        spoil(path, *ROWS[0])
    template.comes_to_it("rows that nobody read")
    assert template.said() == {STORE: 1}


def test_an_index_that_changes_under_a_daemon(template: Template) -> None:
    """S3.30: tantivy panics, which is no Exception; clients are not kept waiting for ever."""

    def harm() -> None:
        for path in state.glob(f"{INDEX}/*/*.*"):
            if path.suffix in {".store", ".idx", ".pos", ".fast"}:
                with path.open("r+b") as file:
                    file.write(b"\xa5" * (path.stat().st_size // 2))

    state = template.fresh("ended")
    template.comes_to_it("an index overwritten", harm)
    assert template.said() == {INDEX: 1}


@pytest.mark.parametrize("once", [True, False])
def test_a_store_without_checksum(template: Template, *, once: bool) -> None:
    """S3.30: it is not trusted: here with a row that is no JSON."""
    path = template.fresh("ended") / STORE
    path.with_name(f"{STORE}.sum").unlink()
    spoil(path, *ROWS[1])
    if once:
        template.world.run("run", "--once")
    template.comes_to_it("a checksum lost, and a row")
    assert template.said() == {STORE: 1}


@pytest.mark.faults
@pytest.mark.parametrize("name", [STORE, f"{STORE}-wal", f"{STORE}-shm", f"{STORE}.sum"])
def test_a_directory_in_place_of_a_file(template: Template, name: str) -> None:
    """S3.30: it is put aside with the rest."""
    path = template.fresh("killed") / name
    path.unlink(missing_ok=True)
    (path / "in the way").mkdir(parents=True)
    template.comes_to_it(f"a directory in place of {name}")
    assert template.said() == {STORE: 1}


@pytest.mark.parametrize("name", [STORE, f"{STORE}-wal", INDEX, "damaged"])
def test_a_link_to_nowhere_in_place_of_a_cache(template: Template, name: str) -> None:
    """S3.30: the daemon starts, also where it cannot put a damaged store aside as usual."""
    state = template.fresh("killed")
    remove(state / name)
    (state / name).symlink_to(state / "nowhere")
    if name == "damaged":
        spoil(state / STORE, *ROWS[0])
    template.comes_to_it(f"a link in place of {name}")


@pytest.mark.skipif(sys.platform != "linux", reason="root may open any file")
@pytest.mark.parametrize(
    ("names", "mode"), [(INDEX, 0), (f"{INDEX}/*", 0), (f"{INDEX}/*/*", 0o400)]
)
def test_an_index_of_another_mode(template: Template, names: str, mode: int) -> None:
    """S3.30: the daemon starts, and makes a new one if it must."""
    for path in template.fresh("ended").glob(names):
        path.chmod(mode)
    with template.world.daemon(under=PLAIN):
        until(template.tells, "all that was known")


@pytest.mark.faults
def test_a_file_in_place_of_the_index(template: Template) -> None:
    path = template.fresh("ended") / INDEX
    shutil.rmtree(path)
    path.write_text("in the way")
    template.comes_to_it("a file in place of the index")


@pytest.mark.parametrize("end", ["idx", "store", "json"])
def test_an_index_in_which_a_directory_is_no_file(template: Template, end: str) -> None:
    """What the system says of it ends no daemon: the index is made anew."""
    for path in template.fresh("ended").glob(f"{INDEX}/*/*.{end}"):
        path.unlink()
        path.mkdir()
    template.comes_to_it(f"directories in place of *.{end}")


@pytest.mark.faults
@pytest.mark.parametrize("name", [STORE, INDEX])
def test_a_cache_that_is_damaged_under_a_daemon(template: Template, name: str) -> None:
    """S3.30: page after page goes bad: the daemon makes the cache anew, and goes on."""
    world = template.world
    path = template.fresh("killed") / name
    before = {one: (one.path.read_bytes(), one.last) for one in template.words.values()}

    def found(turns: int) -> bool:
        with suppress(IndexerdError):
            counts = [world.row(one.id).get("userMessageCount") for one in before]
            known = template.told()[1]
            return set(counts) == {turns} and all(
                hits and same and name for _, hits, same, _, name, _ in known
            )
        return False

    try:
        with world.daemon() as process:
            until(lambda: found(7), "all of it")
            for one in [path] if path.is_file() else path.glob("*/*"):
                with one.open("r+b") as file:
                    pages = -(-os.fstat(file.fileno()).st_size // PAGE)
                    file.write(b"\xa5" * PAGE * pages)
            for word, session in template.words.items():
                session.turn(f"And once more for {word}. Session: {session.id}")
            until(lambda: found(8), "all of it, and what was said since")
            assert process.poll() is None
        with world.daemon():
            until(lambda: found(8), "all of it, at the next start")
            assert world.call("status")["problems"] == []
        assert len(world.calls()) == template.calls
    finally:
        for session, (data, last) in before.items():
            session.path.write_bytes(data)
            session.last = last


def test_caches_of_earlier_versions_are_deleted(tmp_path: Path) -> None:
    """What was purged would else stay in them."""
    world = World(tmp_path)
    world.state.mkdir(parents=True, exist_ok=True)
    old = [world.state / name for name in ("ledger.sqlite", "catalog.sqlite", "catalog.sqlite-wal")]
    for path in old[1:]:
        path.write_text("text of a session")
    old[0].mkdir()
    with world.daemon():
        assert {line["path"] for line in logged(world, "cache.replaced")} == {*map(str, old)}
    assert not any(path.exists() for path in old)
