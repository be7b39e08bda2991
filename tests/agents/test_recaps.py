"""What the summary of a compaction says that a session is about."""

import pytest

from indexerd.agents import ADAPTERS
from indexerd.agents.recaps import RECAP_MAX, goal_in
from indexerd.sessions.state import SessionState
from tests.agents import claude_files as claude
from tests.agents.feeding import fed

CLAUDE = """Analysis: …

Summary:
1. **Primary Request and Intent:**
   The user wants **a cache** for forecasts:
   - keep them a day
   - no new dependency

2. Key Technical Concepts:
   - SQLite"""
PI = "## Goal\nMove the cache to SQLite.\n\n## Constraints\n- none"


@pytest.mark.parametrize(
    ("summary", "goal"),
    [
        (CLAUDE, "Asked: a cache for forecasts: keep them a day; no new dependency"),
        (PI, "Asked: Move the cache to SQLite."),
        (
            "## Goal\nThe user asked:\n- for a\n- User asked about b",
            "Asked: for a; about b",
        ),
        ("## Goal\n1. Do this\n2. User asked to do that", "Asked: Do this; do that"),
        ("## Goal", ""),
        ("A free text about goals.", ""),
    ],
)
def test_the_goal_of_a_summary(summary: str, goal: str) -> None:
    assert goal_in(summary) == goal


@pytest.mark.parametrize(
    "opening",
    [
        "The user's primary request is to ",
        "The user (Ann) had three requests throughout the conversation: A. ",
        "This session continued from an earlier one. The user's requests were: Initial: ",
        "User asked to ",
        "Main request: ",
        "Session continuation: ",
        "Request 2: ",
        "Initially: ",
    ],
)
def test_what_only_introduces_a_goal_is_left_out(opening: str) -> None:
    goal = "Let the user's first request: wait."
    assert goal_in(f"## Goal\n{opening}{goal}") == f"Asked: {goal}"


def test_a_long_goal_is_cut() -> None:
    goal = goal_in(f"## Goal\n{'many words ' * 200}")
    assert len(goal) <= RECAP_MAX
    assert goal.endswith(("words…", "many…"))


def test_it_stands_for_a_session_unless_most_came_later() -> None:
    data = claude.user("u1", None, "Cache them") + claude.answer("a1", "u1")
    data += claude.boundary("b1", "a1") + claude.summary("s1", "b1", CLAUDE)
    state = fed("claude", data)
    assert state.told.startswith("Asked: a cache")
    for n in range(2):
        ADAPTERS["claude"].scan(state, claude.user(f"v{n}", "s1" if n == 0 else "v0", "More"), 9**9)
    assert (state.user_messages(), state.told) == (3, "")
    assert SessionState().told == ""
