"""Rules that change one output of a context, and store nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.events import Entry, Kind
from indexerd.sessions.context import CLEARED, ContextMessage
from indexerd.sessions.transforms import rules_of, transformed


def said(role: str, text: str, name: str) -> ContextMessage:
    """A message, and the entry it comes from."""
    entry = Entry(id=name, kind=Kind.OTHER, type="message", role=None, timestamp="")
    return ContextMessage(role, entry, (text,))


ROLES = ("user", "assistant", "toolResult", "bashExecution")
texts = st.text(alphabet="ab \nüé\U0001f600", max_size=300)
contexts = st.lists(st.tuples(st.sampled_from(ROLES), texts), max_size=12).map(
    lambda spoken: conversation(*spoken)
)
prunes = st.fixed_dictionaries(
    {"rule": st.just("prune")},
    optional={"protectTokens": st.integers(0, 200), "protectTurns": st.integers(0, 4)},
)
truncates = st.fixed_dictionaries(
    {"rule": st.just("truncate"), "chars": st.integers(100, 250)},
    optional={
        "keep": st.sampled_from(["both", "head", "tail"]),
        "roles": st.just(["toolResult", "user"]),
    },
)
summaries = st.fixed_dictionaries(
    {"rule": st.just("summary"), "text": st.just("It was done.")},
    optional={"roles": st.just(["toolResult", "assistant"])},
)
gentle = st.lists(prunes | truncates, max_size=4)
any_rules = st.lists(prunes | truncates | summaries, max_size=4)


def applied(messages: list[ContextMessage], *rules: dict[str, Any]) -> list[ContextMessage]:
    """The messages that come out."""
    return transformed(messages, rules_of(list(rules)))


def conversation(*spoken: tuple[str, str]) -> list[ContextMessage]:
    """Messages by role and text."""
    return [said(role, text, f"e{at}") for at, (role, text) in enumerate(spoken)]


# -- for any context -----------------------------------------------------------------------------


@given(contexts, any_rules)
def test_the_same_rules_again_change_nothing(
    messages: list[ContextMessage], rules: list[Any]
) -> None:
    """Each rule is idempotent; there are never more messages."""
    for rule in rules:
        once = applied(messages, rule)
        assert once == applied(messages, rule, rule)
        assert once == applied(once, rule)
    assert len(applied(messages, *rules)) <= len(messages)


# -- each rule -----------------------------------------------------------------------------------


def test_prune_clears_results_beyond_the_newest_tokens() -> None:
    """Counted from the newest result; from the first that does not fit on, all older ones go."""
    old, middle, new = "a" * 4000, "b" * 4000, "c" * 4000
    messages = conversation(
        *(("user", "q"), ("toolResult", old), ("toolResult", "tiny"), ("assistant", "d" * 9000)),
        *(("toolResult", middle), ("toolResult", new)),
    )
    found = [one.text for one in applied(messages, {"rule": "prune", "protectTokens": 2000})]
    assert ["q", CLEARED, "tiny", "d" * 9000, middle, new] == found
    found = [one.text for one in applied(messages, {"rule": "prune", "protectTokens": 1999})]
    assert ["q", CLEARED, "tiny", "d" * 9000, CLEARED, new] == found
    assert messages == applied(messages, {"rule": "prune"})  # 40,000 tokens
    assert (
        applied(conversation(("toolResult", "x" * 160_004)), {"rule": "prune"})[0].text == CLEARED
    )


def test_a_range_makes_way_for_one_text() -> None:
    """It stands where the first message stood, under that entry's id; ends are inclusive."""
    messages = conversation(*(("user", str(number)) for number in range(5)))
    rule = {"rule": "summary", "from": "e1", "to": "e3", "text": "One to three."}
    expected = [messages[0], said("compactionSummary", "One to three.", "e1"), messages[4]]
    assert expected == applied(messages, rule)
    assert [messages[0]] == applied(messages, {"rule": "summary", "from": "e1"})
    whole = applied(messages, {"rule": "summary", "text": "All.", "role": "user"})
    assert [said("user", "All.", "e0")] == whole


# -- rules as data -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        ["prune"],
        [{}],
        [{"rule": "compress"}],
        [{"rule": "prune", "protectTokens": -1}],
        [{"rule": "prune", "tokens": 5}],
        [{"rule": "summary"}],
        [{"rule": "summary", "text": "x" * 70_000}],
        [{"rule": "summary", "roles": ["user", 5]}],
        [{"rule": "truncate"}],
        [{"rule": "truncate", "chars": 99}],
        [{"rule": "truncate", "chars": 500, "keep": "middle"}],
        [{"rule": "prune"}] * (20 + 1),
    ],
)
def test_wrong_rules_are_named(given: Any) -> None:
    """What is no rule is a UsageError, and never a rule that is passed over."""
    with pytest.raises(UsageError, match="transforms"):
        rules_of(given)
