"""What a model is asked when something is summed up, and that the conversation cannot ask it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.digests.summary_prompts import (
    CHECKPOINT_TOKENS,
    FOCUS_MAX,
    PREVIOUS_MAX,
    SEGMENT_TOKENS,
    SYSTEM,
    Wish,
    instructions,
    shorter_prompt,
    summary_prompt,
)
from indexerd.events import Stretch

NONCE = "0123456789abcdef"
SKELETON = ["## Goal", "## Constraints & Preferences", "## Progress", "### Done"]
SKELETON += ["### In Progress", "### Blocked", "## Key Decisions", "## Next Steps"]


def stretch(kind: str = "segment", previous: str = "", most: int = SEGMENT_TOKENS) -> Stretch:
    """What is to be summed up."""
    return Stretch(kind=kind, messages=(), previous=previous, max_tokens=most)


def test_a_segment_is_asked_for_in_bullets() -> None:
    """S2.9: goal, actions, decisions and discoveries, end state; at most 1,000 tokens."""
    found = summary_prompt("[User]: x", stretch(), NONCE)
    for words in ("technical bullet points", "Goal", "Actions", "Decisions and discoveries"):
        assert words in found.user
    assert "End state" in found.user
    assert found.max_output_tokens == 1000
    assert found.system == SYSTEM
    assert "previous-summary" not in found.user
    assert found.stretch == stretch()


def test_a_short_segment_is_asked_to_be_shorter_but_not_cut() -> None:
    """S2.10: the aim is told in words; the answer's limit stays, so that it can end by itself."""
    found = summary_prompt("[User]: x", stretch(most=150), NONCE)
    assert "at most 90 words" in found.user
    assert found.max_output_tokens == SEGMENT_TOKENS


@pytest.mark.parametrize(("kind", "critical"), [("checkpoint", True), ("branch", False)])
def test_checkpoints_and_branches_have_pis_headings(kind: str, *, critical: bool) -> None:
    """formats.md 1.7: in pi's order, so that pi can merge them."""
    lines = instructions(stretch(kind)).split("\n")
    heads = [line for line in lines if line.startswith("#")]
    assert heads == SKELETON + ["## Critical Context"] * critical


def test_a_turns_beginning_has_its_own_headings() -> None:
    """S1.26: what a split turn began with."""
    heads = [line for line in instructions(stretch("turn")).split("\n") if line.startswith("#")]
    assert heads == ["## Original Request", "## Progress So Far", "## Context Needed to Continue"]


def test_an_earlier_summary_is_merged_by_a_checkpoint_and_not_repeated_by_a_segment() -> None:
    """S3.15: the update's words, with the same headings; a segment tells only what is new."""
    update = instructions(stretch("checkpoint", previous="old"))
    assert "Write that summary\nanew" in update
    assert [line for line in update.split("\n") if line.startswith("#")][:8] == SKELETON
    assert "Do\nnot say it again" in instructions(stretch(previous="old"))
    assert "say it again" not in instructions(stretch())


@given(st.text(max_size=300), st.text(max_size=300))
def test_the_conversation_stays_within_its_frame(text: str, before: str) -> None:
    """X8: between lines with a nonce that its author could not know; ours come after it."""
    found = summary_prompt(text, stretch(previous=before), NONCE)
    assert found.user.startswith(f"<conversation>\n[begin {NONCE}]\n{text}\n[end {NONCE}]\n")
    rest = found.user[len(text) :]
    assert rest.count(f"[end {NONCE}]") == 1 + bool(before)
    assert found.user.endswith(instructions(stretch(previous=before)))


def test_an_endless_earlier_summary_is_cut() -> None:
    """X12: another hand may have written it."""
    found = summary_prompt("x", stretch("checkpoint", "y" * 10 * PREVIOUS_MAX), NONCE)
    assert PREVIOUS_MAX <= found.user.count("y") < PREVIOUS_MAX + 500


def test_wishes_are_added_or_take_the_place_of_ours() -> None:
    """S1.28, S3.29: the frame and the system prompt stay in any case."""
    added = summary_prompt("x", stretch(), NONCE, Wish(focus="  the tests ", context=("a", "b")))
    assert added.user.endswith(f"{instructions(stretch())}\n\nDwell on this: the tests")
    assert "\n\nKnown besides: a\n\nKnown besides: b\n\n" in added.user
    other = summary_prompt("x", stretch(), NONCE, Wish(instead="Sing."))
    assert other.user.endswith("</conversation>\n\nSing.")
    assert other.system == SYSTEM
    assert f"[begin {NONCE}]\nx\n[end {NONCE}]" in other.user
    long = summary_prompt("x", stretch(), NONCE, Wish(focus="z" * 9 * FOCUS_MAX))
    assert long.user.count("z") <= FOCUS_MAX + 50


def test_asking_again_says_what_was_wrong() -> None:
    """Once, after the same prompt."""
    base = summary_prompt("x", stretch("checkpoint", most=CHECKPOINT_TOKENS), NONCE)
    again = shorter_prompt(base, "it was empty")
    assert again.user.startswith(base.user)
    assert "it was empty" in again.user[len(base.user) :]
    assert (again.max_output_tokens, again.stretch) == (CHECKPOINT_TOKENS, base.stretch)
