"""What is said of some real sessions, from their bytes to the last page, is what it was."""

from __future__ import annotations

import json

import pytest

from tests.indexing import known_texts
from tests.indexing.known_answers import KNOWN, answers, note_of, sessions


@pytest.mark.parametrize("name", sessions(), ids=lambda name: note_of(name).stem)
def test_a_session_is_told_as_it_was(name: str) -> None:
    """The same bytes give the same rows, entries, trees, contexts and documents.

    Where a change is meant, `python -m tests.indexing.known_answers` writes the answers down anew,
    and what it changed is there to be read.
    """
    known = json.loads(note_of(name).read_text())
    found = answers(name)
    for part in sorted(known.keys() | found.keys()):
        assert found.get(part) == known.get(part), part


@pytest.mark.parametrize("name", known_texts.MADE)
def test_texts_are_told_as_they_were(name: str) -> None:
    """The same texts give the same names, summaries, quotations and findings.

    Where a change is meant, `python -m tests.indexing.known_texts` writes the answers down anew.
    """
    known = json.loads((KNOWN / f"texts-{name}.json").read_text())
    found = known_texts.made(name)
    for part in sorted(known.keys() | found.keys()):
        assert found.get(part) == known.get(part), part
