"""Measure a scan of all lines of sessions, next to parsing every line with orjson.

Processor time with the files in the page cache, on one core; made-up sessions and real ones. This
is the only benchmark that imports the package, and only in `scan`.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
from corpus import PLACES, make
from home import Home, check
from measure import Bench, Beside, cpu, in_turns

ROOT = Path(__file__).resolve().parent.parent
REAL = [ROOT.parent / "shared/fixtures/real", ROOT / "tests/fixtures/real"]
AGAIN = 4  # scans of the real files in a round, since they are few


def scan(agent: str, path: str) -> int:
    """Scan a session with the package; return its number of human messages."""
    from indexerd.agents import ADAPTERS  # noqa: PLC0415 - nothing else here imports the package
    from indexerd.entries import Kind  # noqa: PLC0415 - after the path is set
    from indexerd.sessions.state import SessionState  # noqa: PLC0415 - after the path is set
    from indexerd.sources.source import source_of  # noqa: PLC0415 - after the path is set

    state, tail, more = SessionState(path), source_of(agent, path).tail(), True
    while more:
        read = tail.read(path)
        for piece in read.lines:
            ADAPTERS[agent].scan(state, piece.data, piece.offset)  # no line here is over the limit
        more = read.more
    return sum(state.kind(row) is Kind.USER for row in range(len(state)))


def run(bench: Bench) -> None:
    bench.heading("State scan")
    with Home() as home:
        for name, agent, paths, users in corpora(home.root, bench.size(24, 1)):
            size = sum(map(len, lines(agent, paths))) / 1e6
            work = {
                "ours": partial(scanned, agent, paths, users),
                "orjson": partial(parsed, agent, paths),
            }
            ways = {who: lambda do=do, size=size: size / cpu(do) for who, do in work.items()}
            found = in_turns(ways, bench.size(5, 1), warm=1)
            limit = Beside("orjson", found["orjson"])
            bench.amount(name, found["ours"], "MB/s", limit, "≥ 0.8 x")


def corpora(root: Path, megabytes: int) -> Iterator[tuple[str, str, list[str], int | None]]:
    """Return made-up sessions of each agent, then real ones, with their human messages."""
    for seed, agent in enumerate(PLACES):
        made = make(root, agent, 3 * megabytes, megabytes * 1_000_000, seed)
        yield f"{agent}, made", agent, [one.path for one in made], sum(one.users for one in made)
    real = next(one for one in REAL if one.is_dir())
    for agent in PLACES:
        folder = Path(shutil.copytree(real / agent, root / "real" / agent))
        paths = [str(one) for one in folder.rglob("*.jsonl") if one.name != "session_index.jsonl"]
        if agent == "opencode":
            path = folder / "opencode.db"
            with closing(sqlite3.connect(path)) as db:
                paths = [f"{path}/{own}" for (own,) in db.execute("SELECT id FROM session")]
        yield f"{agent}, real", agent, paths * AGAIN, None


def lines(agent: str, paths: list[str]) -> Iterator[bytes]:
    """Return all lines of sessions; for opencode, the data of their rows."""
    if agent != "opencode":
        for path in paths:
            yield from Path(path).read_bytes().splitlines()
        return
    with closing(sqlite3.connect(paths[0].rpartition("/")[0])) as db:
        for path in paths:
            for table in ("message", "part"):
                asked = f"SELECT CAST(data AS BLOB) FROM {table} WHERE session_id = ?"
                for (data,) in db.execute(asked, (path.rpartition("/")[2],)):
                    yield data


def scanned(agent: str, paths: list[str], users: int | None) -> None:
    found = sum(scan(agent, path) for path in paths)
    check(f"{agent}: {found} human messages, not {users}", ok=found == (users or found) > 0)


def parsed(agent: str, paths: list[str]) -> None:
    for line in lines(agent, paths):
        orjson.loads(line)
