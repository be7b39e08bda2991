"""Where pi cuts a session and what it summarizes: recorded answers, rules, any session."""

import hashlib
import json

import pytest

from indexerd.digests.compact_pi import KEEP_RECENT, Cut, find_cut, prepare
from indexerd.entries import Entry, Kind
from indexerd.sessions.clipped import units
from indexerd.sessions.context import (
    ContextEntry,
    ContextMessage,
    context_entries,
    entries_of,
    serialize,
)
from tests.sessions.tree_sessions import PUBLIC, reader, state_of

KINDS = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "toolResult": Kind.TOOL}


def step(place: int, role: str, size: int) -> ContextEntry:
    held = Entry(f"e{place}", KINDS[role], "x", role, "", ("x" * 4 * size,))
    return ContextEntry(place, held, (ContextMessage(role, held, held.texts),), place)


@pytest.mark.shared
def test_public_files_are_cut_and_prepared_as_pi_does() -> None:
    """S1.24 to S1.26: cut point, preparation and text equal the answers of 0.81."""
    if not PUBLIC.is_dir():
        pytest.skip("the shared fixtures are not beside this checkout")
    compared = []
    for name, versions in json.loads((PUBLIC / "EXPECTED.json").read_text()).items():
        told = versions.get("v0.81", {}) if isinstance(versions, dict) else {}
        if "findCutPoint_all_20000" not in told:
            continue
        data = (PUBLIC / name).read_bytes()
        state = state_of(data)
        state = state.snapshot(told["leafIndex"]) if "harness" in name else state
        read, path = reader(state, data), state.path()

        cut = find_cut(entries_of(state, read, path), 0, len(path), KEEP_RECENT)
        found = prepare(context_entries(state, read))

        answer = told["findCutPoint_all_20000"]
        assert cut == (answer["firstKeptEntryIndex"], answer["turnStartIndex"]), name
        assert answer["isSplitTurn"] == (cut.turn_start >= 0), name
        expected = told["prepareCompaction"]
        assert (found is None) == (expected is None), name
        if found is not None:
            text = serialize(found.history)
            assert expected == {
                "firstKeptIndex": path.index(state.row(found.first_kept_id) or 0),
                "messagesToSummarize": len(found.history),
                "turnPrefix": len(found.turn_prefix),
                "isSplitTurn": found.split,
                "tokensBefore": found.tokens_before,
                "hasPreviousSummary": found.previous_summary is not None,
                "readFiles": list(found.files.read),
                "modifiedFiles": list(found.files.modified),
                "serialized": {
                    "chars": units(text),
                    "sha256": hashlib.sha256(text.encode()).hexdigest(),
                },
            }, name
        compared.append(name)
    assert len(compared) >= 12


TURN = (("user", 5), ("assistant", 5), ("toolResult", 5), ("assistant", 5))


@pytest.mark.parametrize(
    ("keep", "cut"),
    [
        (1, Cut(7, 4)),
        (6, Cut(7, 4)),  # never before a tool result
        (11, Cut(5, 4)),
        (16, Cut(4, -1)),
        (21, Cut(3, 0)),
        (40, Cut(0, -1)),
        (41, Cut(0, -1)),  # the session is smaller: everything is kept
    ],
)
def test_the_cut_keeps_about_the_requested_tokens(keep: int, cut: Cut) -> None:
    """S1.26: at the first allowed entry after enough tokens are kept."""
    steps = [step(place, role, size) for place, (role, size) in enumerate([*TURN, *TURN])]
    assert find_cut(steps, 0, 8, keep) == cut
