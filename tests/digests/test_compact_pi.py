"""Where pi cuts a session and what it summarizes: recorded answers, rules, any session."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from indexerd.digests.compact_pi import (
    KEEP_RECENT,
    Cut,
    context_tokens,
    estimate_tokens,
    find_cut,
    prepare,
)
from indexerd.entries import Entry, Kind, Tokens
from indexerd.sessions.clipped import units
from indexerd.sessions.context import (
    ContextEntry,
    ContextMessage,
    context_entries,
    entries_of,
    serialize,
)
from tests.sessions.tree_sessions import PUBLIC, reader, state_of

KINDS = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "toolResult": Kind.TOOL,
    "bashExecution": Kind.BASH,
    "system": Kind.SYSTEM,
    "compactionSummary": Kind.COMPACTION,
    "branchSummary": Kind.BRANCH_SUMMARY,
}


def step(place: int, role: str, size: int = 0, **more: Any) -> ContextEntry:
    kind = KINDS.get(role, Kind.SETTING)
    held = Entry(f"e{place}", kind, "x", role or None, "", ("x" * 4 * size,), **more)
    speeches = (ContextMessage(role, held, held.texts),) if role else ()
    return ContextEntry(place, held, speeches, place)


def steps(*roles: tuple[str, int]) -> list[ContextEntry]:
    return [step(place, role, size) for place, (role, size) in enumerate(roles)]


ROLES = st.sampled_from([*KINDS, "", "assistant", "toolResult", "user"])
TALKS = st.lists(st.tuples(ROLES, st.integers(0, 30)), max_size=25)


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


def test_a_count_from_before_an_edit_or_compaction_is_ignored() -> None:
    """In pi 0.87 the whole context is then an estimate."""
    old = replace(step(0, "assistant", 3, tokens=Tokens(500)), place=1)
    summary = replace(step(1, "compactionSummary", 4), place=2)
    assert context_tokens([summary, old])[0] == 7
    newer = replace(old, place=3)
    assert context_tokens([summary, newer])[0] == 500
    edit = step(9, "")
    edit = replace(edit, entry=structs.replace(edit.entry, type="context_edit"))
    assert context_tokens([newer, edit])[0] == 3


# -- the cut -------------------------------------------------------------------------------------

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
    assert find_cut(steps(*TURN, *TURN), 0, 8, keep) == cut


@settings(max_examples=100, deadline=None)
@given(TALKS, st.integers(1, 200))
def test_any_context_is_split_without_a_gap(talk: list[tuple[str, int]], keep: int) -> None:
    """S1.26: history, beginning of the turn and kept entries are all messages, in order."""
    context = steps(*(message for message in talk if message[0] != "compactionSummary"))
    cut = find_cut(context, 0, len(context), keep)
    kept = context[cut.first_kept :]
    assert 0 <= cut.first_kept <= len(context)
    if any(_is_place(entry) for entry in context):
        first = next(entry for entry in kept if entry.speeches)
        assert _is_place(first)
    found = prepare(context, keep)
    if found is None:
        assert not _conversation(context[: cut.first_kept])
        return
    parts = [*found.history, *found.turn_prefix, *_conversation(kept)]
    assert parts == _conversation(context)
    assert found.first_kept_id == kept[0].entry.id
    if found.split:
        assert found.turn_prefix[0].role not in ("assistant", "toolResult")
    rest = sum(estimate_tokens(speech) for speech in _conversation(kept))
    assert rest >= min(keep, 1) or not rest


def _is_place(one: ContextEntry) -> bool:
    return any(speech.role not in ("toolResult", "system") for speech in one.speeches)


def _conversation(context: Sequence[ContextEntry]) -> list[ContextMessage]:
    return [speech for step in context for speech in step.speeches if speech.role != "system"]
