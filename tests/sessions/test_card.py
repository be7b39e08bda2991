"""Cards: what is told of a session without its tree."""

from __future__ import annotations

from pathlib import Path

from indexerd.agents import pi
from indexerd.sessions.info import info_of
from indexerd.sessions.state import SessionState

TWO_ROOTS = Path(__file__).parents[1] / "fixtures/real/pi-edge/two-roots.jsonl"


def test_a_pi_session_is_listed_by_the_first_message_of_its_file() -> None:
    """S1.43: as pi itself lists it, although the current path begins with another."""
    state = SessionState()
    pi.skim(state, TWO_ROOTS.read_bytes(), 0)
    card = info_of(state, agent="pi", path="/s.jsonl", mtime_ms=0, since=None)

    assert card is not None
    assert card.first_user == "Let us design a cache for the forecast results."
    assert state.first_user != card.first_user
