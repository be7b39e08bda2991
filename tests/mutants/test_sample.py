"""docs/MUTANTS.md shows the record of the sample.

`UPDATE_DOCS=1 python -m pytest tests/mutants/test_sample.py` writes its table anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.mutants.recording import SAMPLE, Record, told

TESTS = Path(__file__).parents[1]
DOC = TESTS.parent / "docs/MUTANTS.md"
NAMED = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
BLOCK = re.compile(r"<!-- sample -->\n(.*?)<!-- end -->", re.DOTALL)
LEAST = 85.0  # percent of the mutants that are noticed


def test_the_document_shows_the_sample() -> None:
    """Its figures and its survivors are those of the record."""
    text, record = DOC.read_text(), Record.read(SAMPLE)
    if os.environ.get("UPDATE_DOCS"):
        text = BLOCK.sub(lambda _: f"<!-- sample -->\n{told(record)}<!-- end -->", text)
        DOC.write_text(text)
    shown = BLOCK.search(text)
    assert shown
    assert shown[1] == told(record)


def test_enough_is_noticed_and_every_survivor_has_a_reason() -> None:
    """What nobody notices is a hole, unless somebody has said why it is none."""
    record = Record.read(SAMPLE)
    assert record.percent >= LEAST
    assert [one["name"] for one in record.survivors if not one["reason"]] == []


def test_the_tests_that_hold_a_survivor_since_are_there() -> None:
    """By their names, in the suite."""
    tests = [*(TESTS / "core").glob("test_*.py"), *(TESTS / "agents").glob("test_*.py")]
    known = set(NAMED.findall("\n".join(path.read_text() for path in tests)))
    reasons = [one["reason"] for one in Record.read(SAMPLE).survivors]
    named = {name for reason in reasons for name in re.findall(r"`(test_\w+)`", reason)}
    assert named
    assert named <= known
