"""docs/PERFORMANCE.md has the benchmarks' table, and the benchmarks work."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAD = ["what", "measured", "limit of the same run (ratio)", "target"]
TARGET = re.compile(
    r"((p50|p99) ≤ [\d.]+ ms(, (?=p99))?)+(: (met|\*\*missed\*\*))?"
    r"|[≤≥] [\d.]+ (s|ms|MB|x)(: (met|\*\*missed\*\*))?|"
)


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, rule, *found = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    assert head == HEAD
    assert rule == ["---"] * len(HEAD)
    return found


def figures(text: str) -> list[str]:
    found = []
    for what, *cells in rows(text):
        if what.startswith("**"):
            assert cells == [""] * 3, what
        else:
            measured, limit, target = cells
            assert measured, what
            assert limit, what
            assert TARGET.fullmatch(target), target
            found.append(what)
    return found


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_the_benchmarks_work_and_make_the_table_of_the_document() -> None:
    argv = [sys.executable, str(ROOT / "bench/run.py"), "--smoke"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=220)
    assert done.returncode == 0, done.stderr
    document = (ROOT / "docs/PERFORMANCE.md").read_text()
    assert figures(done.stdout) == figures(document)
