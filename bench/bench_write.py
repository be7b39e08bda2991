"""Durable meta writes, against the least that durability costs, in the same run.

The limit is a bare temp + write + fsync + rename + fsync of the directory: no lock, no comparison,
no checks, no clearing up. Measured beside it: `MetaWriter.write_meta`, and the same call with
unchanged content, which must write nothing: its limit is to read the file and compare its bytes.
All of them start from the same model and encode it; what that costs is printed too, beside the
quickest encoder there is, at work on the same fields as plain values.

The methods take turns write by write, in one directory, and the ratio is taken inside one round,
so that what else the machine does falls on both alike. One directory, because ext4 looks for an
inode that was not freed within the last seconds: in a directory of its own, the method that has
written more pays up to 150 us more for each new file.

Target: at least 0.8 of the bare rate.

    python bench/bench_write.py [--rounds 5] [--writes 300] [--dir DIR]
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import msgspec
from measure import Bench, Target, percentile, ratio, wall

from indexerd.meta import reader as metas
from indexerd.meta.model import MetaFile, Usage
from indexerd.meta.writer import MetaWriter
from indexerd.paths import META_SUFFIX

STEPS = ["file", "rename", "directory"] if sys.platform != "darwin" else ["rename"]
METHODS = ("bare", "ours", "compare", "unchanged", "plain", "encode")
LIMITS = {"bare": "bare", "compare": "read and compare", "plain": "msgspec, of plain values"}


def meta(number: int) -> MetaFile:
    """Make a meta file of about 1.5 KB, as a short session has it; `number` makes it differ."""
    return MetaFile(
        session_id="4f6c0a52-6f0e-4c0e-9d54-2d5f3f0a0001",
        session_file="/home/u/.pi/agent/sessions/--home-u-project--/2026-11-01T10-00-00_4f6c.jsonl",
        name="Mend the lock of the cellar door",
        description="The lock was rusty and did not turn. It was oiled, and a spare key was cut.",
        summary="## Goal\n- open the door\n\n## Key Decisions\n" + "- oil before force\n" * 30,
        tags=["lock", "door", "oil"],
        cwd="/home/u/project",
        created_at="2026-11-01T10:00:00Z",
        updated_at=f"2026-11-01T10:00:00.{number:06}Z",
        model="local/extractive",
        last_indexed_leaf_id="a1b2c3d4",
        agent="pi",
        usage=Usage(calls=1),
        files_read=[f"src/part_{n}.py" for n in range(5)],
    )


def durably(target: Path, data: bytes) -> None:
    """Do the least: temp, write, fsync, rename, fsync of the directory."""
    temp = target.with_name(f".{target.name}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(temp, target)
    fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def bare(directory: Path, held: MetaFile) -> None:
    """The same of a meta file, encoded as ours is."""
    durably(directory / "bare.meta.json", held.to_json())


def same(path: Path, held: MetaFile) -> bool:
    """Do the least: read the file, and compare."""
    return path.read_bytes() == held.to_json()


def plainly(held: dict[str, Any]) -> bytes:
    """Encode plain values, as a meta file has them."""
    return msgspec.json.format(msgspec.json.encode(held), indent=2) + b"\n"


def measure(place: Path, rounds: int, writes: int) -> tuple[dict[str, list[list[float]]], bool]:
    """The seconds of every write, by method and round; and that the same again wrote nothing."""
    untouched = True
    writer = MetaWriter()
    path = place / f"{meta(0).session_id}{META_SUFFIX}"
    found: dict[str, list[list[float]]] = {name: [] for name in METHODS}
    for turn in range(-1, rounds):  # the first round warms up and is thrown away
        timings: dict[str, list[float]] = {name: [] for name in found}
        for number in range((turn + 1) * writes, (turn + 2) * writes):
            held = meta(number)
            values = json.loads(held.to_json())
            timings["plain"].append(wall(partial(plainly, values)))
            timings["encode"].append(wall(held.to_json))
            timings["bare"].append(wall(partial(bare, place, held)))
            timings["ours"].append(wall(partial(writer.write_meta, place, held)))
            before = metas.stamp(path)
            timings["compare"].append(wall(partial(same, path, held)))
            timings["unchanged"].append(wall(partial(writer.write_meta, place, held)))
            untouched &= metas.stamp(path) == before
        untouched &= same(path, held) and plainly(values) == held.to_json()
        if turn >= 0:
            for name, seconds in timings.items():
                found[name].append(seconds)
    return found, untouched


def ours_in_steps(place: Path) -> list[str]:
    """What one of our writes has the system do, in its order."""
    told: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(fd: int) -> None:
        told.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        real_sync(fd)

    def rename(*names: Any, **places: int) -> None:
        told.append("rename")
        real_rename(*names, **places)

    with mock.patch.object(os, "fsync", sync), mock.patch.object(os, "rename", rename):
        MetaWriter().write_meta(place / "watched", meta(1))  # the directory is there by the second
        told.clear()
        MetaWriter().write_meta(place / "watched", meta(2))
    return told


def report(bench: Bench, found: dict[str, list[list[float]]]) -> None:
    """Sum the rounds up: rates and percentiles, and the ratio round by round."""
    rates = {name: [len(one) / sum(one) for one in turns] for name, turns in found.items()}
    bench.add(
        "meta writes, durable",
        median(rates["ours"]),
        "/s",
        limit="bare temp + fsync + rename + fsync",
        floor=median(rates["bare"]),
        ratio=ratio(rates["ours"], rates["bare"]),
        target=Target(0.8, most=False, of="ratio"),
    )
    for told, name, limit, share, which in (
        ("a meta write", "ours", "bare", 0.5, "median"),
        ("a meta write", "ours", "bare", 0.99, "p99"),
        ("the same content again", "unchanged", "compare", 0.5, "median"),
        ("the same content again", "unchanged", "compare", 0.99, "p99"),
        ("of these, encoding and checking the model", "encode", "plain", 0.5, "median"),
    ):
        mine, least = ([1e6 * percentile(one, share) for one in found[of]] for of in (name, limit))
        beside = {"limit": LIMITS[limit], "floor": median(least), "ratio": ratio(mine, least)}
        bench.add(f"{told}, {which}", median(mine), "us", **beside)


def main() -> int:
    """Measure and print."""
    bench = Bench("write", "Meta files: what durability costs")
    bench.options.add_argument("--rounds", type=int, default=5)
    bench.options.add_argument("--writes", type=int, default=300)
    bench.options.add_argument(
        "--dir", help="where to write; the file system under it is what is measured"
    )
    asked = bench.asked
    rounds, writes = (1, 5) if bench.smoke else (asked.rounds, asked.writes)
    with tempfile.TemporaryDirectory(dir=asked.dir) as place:
        found, untouched = measure(Path(place), rounds, writes)
        bench.check("unchanged content writes nothing, and all encode alike", ok=untouched)
        steps = ours_in_steps(Path(place))
        bench.check(f"it is synced and renamed as a bare one is, not {steps}", ok=steps == STEPS)
        held = metas.read_meta(Path(place) / f"{meta(0).session_id}{META_SUFFIX}")
        last = meta((rounds + 1) * writes - 1)
        bench.check("the file holds what was written last", ok=held == last)
    report(bench, found)
    return bench.end()


if __name__ == "__main__":
    sys.exit(main())
