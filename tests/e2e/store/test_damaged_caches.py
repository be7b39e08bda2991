"""With a damaged store or index the daemon starts and finds what it found before."""

import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from indexerd.disk import remove
from indexerd.errors import IndexerdError
from tests.e2e.world import Session, World, logged, until

PAGE = 4096
STORE, INDEX = "store.sqlite", "search"
# How the daemon ended, which cache is damaged (any file of the index), and how.
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
        for session in self.words.values():  # the log now repeats and extends the database
            session.turn()
        with self.world.daemon() as process:
            until(self._is_stored, "the store's write")
            self.known = until(lambda: self.answers() if self._is_settled() else None, "the rest")
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
        return all(word.path.name.encode() in log for word in self.words.values())

    def answers(self) -> Any:
        call = self.world.call
        rows = {session["sessionId"]: session for session in call("list", limit=100)["sessions"]}
        found = []
        for word, session in self.words.items():
            hits = [hit["sessionId"] for hit in call("search", query=word)["hits"]]
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

    def recovers(self, why: str, damage_while_running: Callable[[], object] | None = None) -> None:
        with self.world.daemon() as process:
            until(self.is_complete, f"all that was known, after {why}")
            if damage_while_running is not None:
                damage_while_running()
                until(self.damaged_caches, f"a word about {why}")
                until(self.is_complete, f"all that was known, in spite of {why}")
            assert self.world.call("status")["problems"] == [], why
            assert process.poll() is None, why
        assert len(self.world.calls()) == self.calls, why
        assert all(count == 1 for count in self.damaged_caches().values()), (
            why,
            self.damaged_caches(),
        )

    def damaged_caches(self) -> Counter[str]:
        with suppress(IndexerdError):  # read every session
            self.answers()
        return Counter(Path(line["path"]).name for line in logged(self.world, "cache.damaged"))

    def is_complete(self) -> bool:
        with suppress(IndexerdError):
            return bool(self.answers() == self.known)
        return False


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("caches"))


def damage(data: bytearray, kind: str, dice: random.Random) -> None:
    pages = -(-len(data) // PAGE)
    first, other = (dice.randrange(pages) * PAGE for _ in range(2))
    match kind:
        case "flip":  # change random bytes
            for _ in range(dice.choice([1, 8, 64])):
                data[dice.randrange(len(data))] ^= dice.randrange(1, 256)
        case "zero":
            data[first : first + PAGE] = bytes(len(data[first : first + PAGE]))
        case "head":
            data[:100] = b"not a database".ljust(100)[: len(data)]
        case "double":  # copy one page over another
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
        files = [file for file in sorted(path.glob("*/*")) if file.stat().st_size]
        path = dice.choice([file for file in files if not file.name.endswith(".lock")])
    data = bytearray(path.read_bytes())
    damage(data, kind, dice)
    path.write_bytes(data)
    template.recovers(f"damage {number}: {kind} in {path.name}, daemon {how}")


@pytest.mark.parametrize("number", [0, 2, 7, 10, 16, 29])
def test_a_damaged_cache_is_rebuilt(template: Template, number: int) -> None:
    """S3.14, S3.30: sessions are listed, found and read as before, without a model call."""
    damaged(template, number)


@pytest.mark.faults
@pytest.mark.parametrize("first", range(0, 200, 10))
def test_two_hundred_kinds_of_damage(template: Template, first: int) -> None:
    """S3.30: the same for damage anywhere, after a clean end and after a kill."""
    for number in range(first, first + 10):
        damaged(template, number)


def spoil(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    with path.open("r+b") as file:
        file.write(data.replace(old, new))


ROWS = [  # old bytes, new bytes
    (b'"agent":"pi"', b'"agent":"px"'),
    (b'"sessionId":', b'"sessionId"}'),
    (b'"name":"', b'"na\xff\xfe":"'),
]


def overwrite(path: Path, part: float = 1) -> None:
    with path.open("r+b") as file:
        file.write(b"\xa5" * int(path.stat().st_size * part))


SPOILT = [partial(spoil, old=old, new=new) for old, new in ROWS]


@pytest.mark.parametrize(
    ("damage_store", "read"),
    [*((damage_store, True) for damage_store in (*SPOILT, overwrite)), (SPOILT[0], False)],
)
def test_a_store_changed_while_the_daemon_runs(
    template: Template, damage_store: Callable[[Path], None], read: bool
) -> None:
    """S3.30: the change is noticed at the next access, even if the new rows are valid.

    The checksum written at the end does not cover up damage that nobody has read.
    """
    path = template.fresh("ended") / STORE
    if not read:
        with template.world.daemon():
            until(template.is_complete, "all that was known")
            damage_store(path)
    template.recovers("a changed store", (lambda: damage_store(path)) if read else None)
    assert template.damaged_caches() == {STORE: 1}


def test_a_signal_while_the_daemon_replaces_itself(template: Template) -> None:
    """It ends, rather than to go on as the new process."""
    path = template.fresh("ended") / STORE
    with template.world.daemon() as process:
        until(template.is_complete, "all that was known")
        overwrite(path)
        until(template.damaged_caches, "a word about the damage")
        until(lambda: not template.world.socket.exists(), "the end of its answers")
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM)  # the new process starts with no handler


def test_an_index_changed_while_the_daemon_runs(template: Template) -> None:
    """S3.30: after a panic of tantivy, the index is rebuilt; after an abort, at the next start."""
    state = template.fresh("ended")
    with template.world.daemon() as process:
        until(template.is_complete, "all that was known")
        for path in state.glob(f"{INDEX}/*/*.*"):
            if path.suffix in {".store", ".idx", ".pos", ".fast"}:
                overwrite(path, 0.5)
        until(lambda: process.poll() or template.damaged_caches(), "a word about the damage")
        until(lambda: process.poll() or template.is_complete(), "all that was known")
        if process.poll() is not None:  # Rust aborts, in one of ten runs
            assert process.returncode == -signal.SIGABRT
            (state / "log.jsonl").unlink()
    template.recovers("an index overwritten")
    assert template.damaged_caches() == {INDEX: 1}


@pytest.mark.parametrize("once", [True, False])
def test_a_store_without_checksum(template: Template, *, once: bool) -> None:
    """S3.30: it is not trusted; here one row is no JSON."""
    path = template.fresh("ended") / STORE
    path.with_name(f"{STORE}.sum").unlink()
    spoil(path, *ROWS[1])
    if once:
        template.world.run("run", "--once")
    template.recovers("a checksum lost, and a row")
    assert template.damaged_caches() == {STORE: 1}


IN_THE_WAY = [
    *product(["directory"], [STORE, f"{STORE}-wal", f"{STORE}-shm", f"{STORE}.sum"]),
    *product(["directory"], [f"{INDEX}/*/*.{end}" for end in ("idx", "store", "json")]),
    *product(["link"], [STORE, f"{STORE}-wal", INDEX]),
    ("file", INDEX),
]


@pytest.mark.parametrize(("what", "name"), IN_THE_WAY)
def test_something_else_in_place_of_a_cache(template: Template, what: str, name: str) -> None:
    """S3.30: the daemon starts, and makes the cache anew."""
    state = template.fresh("killed")
    for path in [*state.glob(name)] or [state / name]:
        remove(path)
        if what == "directory":
            (path / "in the way").mkdir(parents=True)
        elif what == "link":
            path.symlink_to(state / "nowhere")
        else:
            path.write_text("in the way")
    template.recovers(f"a {what} in place of {name}")


@pytest.mark.skipif(sys.platform != "linux", reason="root may open any file")
@pytest.mark.parametrize(
    ("names", "mode"), [(INDEX, 0), (f"{INDEX}/*", 0), (f"{INDEX}/*/*", 0o400)]
)
def test_an_index_without_permissions(template: Template, names: str, mode: int) -> None:
    """S3.30: the daemon starts, and rebuilds the index if necessary."""
    for path in template.fresh("ended").glob(names):
        path.chmod(mode)
    with template.world.daemon(under=PLAIN):
        until(template.is_complete, "all that was known")
