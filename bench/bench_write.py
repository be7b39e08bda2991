"""Durable meta writes, against the least that durability costs, in the same run.

The limit is a bare temp + write + fsync + rename + fsync of the directory: no lock, no comparison,
no checks, no clearing up. Measured beside it: `MetaWriter.write_meta`, and the same call with
unchanged content, which must write nothing. All of them start from the same model and encode it;
what that costs is printed too.

The methods take turns write by write, in one directory, and the ratio is taken inside one round,
so that what else the machine does falls on both alike. One directory, because ext4 looks for an
inode that was not freed within the last seconds: in a directory of its own, the method that has
written more pays up to 150 us more for each new file.

Target: at least 0.8 of the bare rate (performance.md section 8). Exit status 1 if it is missed,
except with --smoke.

    python bench/bench_write.py [--rounds 7] [--writes 300] [--dir DIR] [--json] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from indexerd.io import metas
from indexerd.io.writer import MetaWriter
from indexerd.meta import MetaFile, Usage

TARGET = 0.8
METHODS = ("bare", "ours", "unchanged", "encode")


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


def bare(directory: Path, held: MetaFile, number: int) -> None:
    """Do the least: temp, write, fsync, rename, fsync of the directory."""
    target, temp = directory / "bare.meta.json", directory / f".bare.{number}.tmp"
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.write(fd, held.to_json())
    os.fsync(fd)
    os.close(fd)
    os.rename(temp, target)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def timed(call: Callable[[], object]) -> float:
    """Call, and say how many seconds it took."""
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def measure(place: Path, rounds: int, writes: int) -> dict[str, list[list[float]]]:
    """Run the rounds; return the seconds of every write, by method and round."""
    writer = MetaWriter()
    found: dict[str, list[list[float]]] = {name: [] for name in METHODS}
    for turn in range(-1, rounds):  # the first round warms up and is thrown away
        timings: dict[str, list[float]] = {name: [] for name in found}
        for number in range((turn + 1) * writes, (turn + 2) * writes):
            held = meta(number)
            timings["encode"].append(timed(held.to_json))
            timings["bare"].append(timed(partial(bare, place, held, number)))
            timings["ours"].append(timed(partial(writer.write_meta, place, held)))
            timings["unchanged"].append(unchanged(writer, place, held))
        if turn >= 0:
            for name, seconds in timings.items():
                found[name].append(seconds)
    return found


def unchanged(writer: MetaWriter, directory: Path, held: MetaFile) -> float:
    """Write what is there already, and see that the file is left alone."""
    path = directory / f"{held.session_id}.meta.json"
    before = metas.stamp(path)
    seconds = timed(partial(writer.write_meta, directory, held))
    if metas.stamp(path) != before:
        sys.exit("unchanged content was written")
    return seconds


def report(found: dict[str, list[list[float]]]) -> dict[str, object]:
    """Sum the rounds up: rates, percentiles in microseconds, and the ratio round by round."""
    ratios = [
        sum(bare) / sum(ours) for bare, ours in zip(found["bare"], found["ours"], strict=True)
    ]
    result: dict[str, object] = {"ratio": round(statistics.median(ratios), 3), "target": TARGET}
    result["ratios"] = [round(ratio, 3) for ratio in ratios]
    bare_p50, ours_p50 = (
        statistics.median(second for turn in found[name] for second in turn)
        for name in ("bare", "ours")
    )
    result["ratio_p50"] = round(bare_p50 / ours_p50, 3)
    for name, turns in found.items():
        every = sorted(second for turn in turns for second in turn)
        result[name] = {
            "per_second": round(statistics.median(len(turn) / sum(turn) for turn in turns)),
            "p50_us": round(every[len(every) // 2] * 1e6, 1),
            "p99_us": round(every[len(every) * 99 // 100] * 1e6, 1),
        }
    return result


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--writes", type=int, default=300)
    parser.add_argument(
        "--dir", help="where to write; the file system under it is what is measured"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a few writes, no judgement")
    asked = parser.parse_args()
    rounds, writes = (1, 5) if asked.smoke else (asked.rounds, asked.writes)
    with tempfile.TemporaryDirectory(dir=asked.dir) as place:
        result = report(measure(Path(place), rounds, writes))
    if asked.json:
        print(json.dumps(result, indent=2))
    else:
        for name in METHODS:
            print(f"{name:10}", result[name])
        print(f"ours / bare, by rate: {result['ratio']} (target {TARGET}); {result['ratios']}")
        print(f"ours / bare, by the median write: {result['ratio_p50']}")
    return 0 if asked.smoke or float(str(result["ratio"])) >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
