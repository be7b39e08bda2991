"""All sessions there are: what a hint is about, what is gone, and what only cannot be seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from indexerd.sources.census import PAUSE, Census
from indexerd.sources.stores import Kind, Store
from tests.sessions.opencode_rows import Rows


class World:
    """Stores of several agents, a clock that is set by hand, and who looks at them."""

    def __init__(self, root: Path) -> None:
        self.data, self.codex = root / "opencode", root / "codex"
        for one in (self.data, self.codex / "sessions"):
            one.mkdir(parents=True)
        self.storage = self.data / "storage"
        self.rows = Rows(self.data / "opencode.db")
        self.rows.session("ses_a")
        self.now = 100.0
        self.census = Census(lambda: self.now)
        self.stores = [
            Store("codex", str(self.codex / "sessions"), str(root / "m"), beside=str(self.codex)),
            self.store(self.rows.path, Kind.DATABASE, self.data),
            self.store(self.storage / "session", Kind.TREE, self.storage),
        ]
        self.census.renew(self.stores)

    def store(self, sessions: Path, kind: Kind, beside: Path) -> Store:
        """A store of opencode."""
        return Store("opencode", str(sessions), "/meta", kind=kind, beside=str(beside))

    def plant(self, name: str) -> Path:
        """A session in the tree."""
        path = self.storage / f"session/p/{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": name}))
        return path

    def scan(self) -> tuple[list[str], list[str]]:
        """The sessions there are, and what could not be seen."""
        found = self.census.scan(self.stores)
        blind = [*found.unreadable, *found.missing]
        return sorted(Path(one.path).name for one in found.files), sorted(blind)

    def hint(self, *paths: Path | str) -> list[str]:
        """The sessions that a hint leads to."""
        found = self.census.hinted([str(one) for one in paths])
        return [*found.paths, *(Path(one.path).name for one in found.sessions), *found.titled]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A fresh one."""
    return World(tmp_path)


def test_what_a_hint_is_about(world: World) -> None:
    """S3.9, S3.3: a log is its database, the index is names, the rest is nobody's."""
    world.scan()
    world.rows.session("ses_b")
    assert world.hint(f"{world.rows.path}-wal") == ["ses_b"]
    thread = world.codex / "sessions/rollout-1.jsonl"
    assert world.hint(thread) == [str(thread)]
    index = world.codex / "session_index.jsonl"
    index.write_text('{"id":"t","thread_name":"one"}\n')
    assert world.hint(index) == ["t"]
    assert world.census.title("codex", "t") == "one"
    world.plant("ses_t")
    assert "ses_t.json" in world.hint(world.storage / "message/ses_t/msg_1.json")
    world.rows.session("ses_c")
    world.now += PAUSE
    assert world.hint(world.data / "log.txt", world.data / "opencode.dbx", "/else/where-wal") == []


def test_a_database_is_looked_at_only_so_often(world: World) -> None:
    """S3.9: what is hinted in between waits, and is not forgotten."""
    world.scan()
    world.rows.session("ses_b")
    assert world.hint(world.rows.path) == ["ses_b"]
    world.rows.session("ses_c")
    world.now += PAUSE / 2
    assert world.hint(f"{world.rows.path}-wal") == []
    assert world.census.late == {str(world.rows.path)}
    world.now += PAUSE / 2
    assert world.hint() == ["ses_c"]
    assert world.census.late == set()


def test_a_directory_that_is_away_says_nothing_of_its_sessions(world: World) -> None:
    """S3.9: moved, or not mounted: its sessions are not gone, whatever their database is called."""
    world.plant("ses_t")
    tree = str(world.storage / "session")
    assert world.scan() == (["ses_a", "ses_t.json"], [])
    away = world.data.rename(world.data.with_name("away"))
    assert world.scan() == ([], sorted([str(world.data), tree]))
    away.rename(world.data)
    assert world.scan() == (["ses_a", "ses_t.json"], [])
    shutil.rmtree(tree)
    assert world.scan() == (["ses_a"], [tree])


def test_a_database_that_was_deleted_has_no_sessions(world: World) -> None:
    """S0.31: its directory is there, and without it."""
    world.plant("ses_t")
    for end in ("", "-wal", "-shm"):
        Path(f"{world.rows.path}{end}").unlink(missing_ok=True)
    assert world.scan() == (["ses_t.json"], [])


def test_what_helps_is_said_where_it_is_known(world: World, tmp_path: Path) -> None:
    """S3.9: a log without its index is opened by its owner; of other damage no more is known."""
    path = str(world.rows.path)
    world.rows.path.write_bytes(b"this is no database" * 500)
    assert world.scan() == ([], [path, str(world.storage / "session")])
    assert (path in world.census.troubles, path in world.census.cures) == (True, False)
    shutil.rmtree(world.data)
    other = Rows(tmp_path / "copied.db")
    with other.writing() as db:
        db.execute("SELECT 1")
        db.execute("UPDATE session SET title = ''")
        world.data.mkdir()
        shutil.copy(other.path, path)
        Path(f"{path}-wal").write_bytes(Path(f"{other.path}-wal").read_bytes())
    Path(f"{path}-wal").write_bytes(b"0" * 4152)
    world.scan()
    assert "index" in world.census.troubles[path]
    assert "open and close it" in world.census.cures[path]
    Path(f"{path}-wal").unlink()
    world.scan()
    assert (world.census.troubles, world.census.cures) == ({}, {})


def test_names_that_were_taken_back_are_empty(world: World) -> None:
    """S3.3: none is another thing than one that no file knows."""
    world.census.named([("codex", "t", "one"), ("claude", "c", "two"), ("codex", "u", None)])
    assert world.census.retitled() == {"t"}
    titles = [world.census.title(agent, one) for agent, one in (("codex", "t"), ("codex", "u"))]
    assert (titles, world.census.title("claude", "c")) == (["", None], None)


def test_meta_files_may_lie_among_sessions(world: World) -> None:
    """C6: a digest of ours is no session, and the sessions in its directory are not passed over."""
    place = world.codex / "sessions"
    world.stores = [Store("codex", str(place), str(place), beside=str(world.codex))]
    world.census.renew(world.stores)
    names = ("a.jsonl", "a.meta.json", "a.digest.jsonl")
    for name in names:
        (place / name).touch()

    found = world.census.scan(world.stores).files
    assert [Path(one.path).name for one in found if one.path.startswith(str(place))] == ["a.jsonl"]
    hinted = world.census.hinted([str(place / name) for name in names])
    assert hinted.paths == [str(place / "a.jsonl")]
