"""Rules that change one output of a context, and store nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.events import Entry, Kind, ToolCall
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
    return [one.message for one in transformed(messages, rules_of(list(rules)))]


def conversation(*spoken: tuple[str, str]) -> list[ContextMessage]:
    """Messages by role and text."""
    return [said(role, text, f"e{at}") for at, (role, text) in enumerate(spoken)]


# -- for any context -----------------------------------------------------------------------------


@given(contexts, gentle)
def test_prune_and_truncate_change_texts_alone(
    messages: list[ContextMessage], rules: list[Any]
) -> None:
    """S1.37: every message stays, with role and id, and none grows; the input is as it was."""
    before = list(messages)
    found = applied(messages, *rules)
    assert before == messages
    assert [(one.role, one.entry.id) for one in messages] == [
        (one.role, one.entry.id) for one in found
    ]
    assert all(len(new.text) <= len(old.text) for new, old in zip(found, messages, strict=True))


@given(contexts, any_rules)
def test_the_same_rules_again_change_nothing(
    messages: list[ContextMessage], rules: list[Any]
) -> None:
    """Each rule is idempotent; there are never more messages; each says what it stands for."""
    for rule in rules:
        once = applied(messages, rule)
        assert once == applied(messages, rule, rule)
        assert once == applied(once, rule)
    placed = transformed(messages, rules_of(rules))
    assert len(placed) <= len(messages)
    assert [one.first for one in placed] == sorted({one.first for one in placed})
    for one in placed:
        assert one.message.entry.id == messages[one.first].entry.id


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


def test_prune_protects_the_newest_turns() -> None:
    """A turn begins with what the user says; a result is kept where either number protects it."""
    result = ("toolResult", "r" * 400)
    messages = conversation(result, ("user", "1"), result, ("user", "2"), result)

    def kept(**rule: int) -> list[bool]:
        found = applied(messages, {"rule": "prune", **rule})
        return [one.text != CLEARED for one in found if one.role == "toolResult"]

    assert kept(protectTurns=1) == [False, False, True]
    assert kept(protectTurns=2) == [False, True, True]
    assert kept(protectTurns=0) == [False, False, False]
    assert kept(protectTurns=1, protectTokens=200) == [False, True, True]


def test_a_range_makes_way_for_one_text() -> None:
    """It stands where the first message stood, under that entry's id; ends are inclusive."""
    messages = conversation(*(("user", str(number)) for number in range(5)))
    rule = {"rule": "summary", "from": "e1", "to": "e3", "text": "One to three."}
    expected = [messages[0], said("compactionSummary", "One to three.", "e1"), messages[4]]
    assert expected == applied(messages, rule)
    assert [messages[0]] == applied(messages, {"rule": "summary", "from": "e1"})
    whole = applied(messages, {"rule": "summary", "text": "All.", "role": "user"})
    assert [said("user", "All.", "e0")] == whole


def test_ids_mean_where_entries_stood_at_first() -> None:
    """Rules hold in their order, and may overlap what an earlier one has put there."""
    messages = conversation(*(("user", str(number)) for number in range(6)))
    found = applied(
        messages,
        {"rule": "summary", "from": "e0", "to": "e2", "text": "first"},
        {"rule": "summary", "from": "e2", "to": "e3", "text": "second"},
    )
    assert [one.text for one in found] == ["second", "4", "5"]


@pytest.mark.parametrize(
    ("keep", "start", "end"), [("head", "a", "]"), ("tail", "[", "b"), ("both", "a", "b")]
)
def test_truncate_says_how_much_is_left_out(keep: str, start: str, end: str) -> None:
    """The number is that of the characters that are missing; the whole fits the limit."""
    text = "a" * 500 + "b" * 500
    (one,) = applied(conversation(("user", text)), {"rule": "truncate", "chars": 200, "keep": keep})
    kept = one.text.count("a") + one.text.count("b") - "characters".count("a")
    assert f"[{1000 - kept} characters left out]" in one.text
    assert 190 <= len(one.text) <= 200
    assert (one.text[0], one.text[-1]) == (start, end)


def test_speeches_keep_their_calls() -> None:
    """Texts change, calls and thoughts beside them stay; what no rule touches is the same."""
    entry = Entry(id="e0", kind=Kind.ASSISTANT, type="message", role="assistant", timestamp="")
    calls = (ToolCall("read", "/a"),)
    spoken = [
        ContextMessage("assistant", entry, ("x" * 200, "y" * 200), ("hm",), calls),
        ContextMessage("toolResult", entry, ("r" * 300,)),
    ]
    first, second = applied(spoken, {"rule": "prune", "protectTokens": 1})
    assert first is spoken[0]
    assert second.texts == (CLEARED,)
    (cut, _) = applied(spoken, {"rule": "truncate", "chars": 100, "roles": ["assistant"]})
    assert len("".join(cut.texts)) == 100
    assert (("hm",), calls) == (cut.thinking, cut.calls)
    (one,) = applied(spoken, {"rule": "summary", "text": "s"})
    assert (one.role, one.texts, one.calls) == ("compactionSummary", ("s",), ())


# -- rules as data -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "prune",
        {"rule": "prune"},
        ["prune"],
        [{}],
        [{"rule": ["prune"]}],
        [{"rule": "compress"}],
        [{"rule": "prune", "protectTokens": -1}],
        [{"rule": "prune", "protectTokens": True}],
        [{"rule": "prune", "protectTurns": 1.5}],
        [{"rule": "prune", "tokens": 5}],
        [{"rule": "summary"}],
        [{"rule": "summary", "text": ""}],
        [{"rule": "summary", "text": 5}],
        [{"rule": "summary", "text": "x" * 70_000}],
        [{"rule": "summary", "text": "x", "from": 3}],
        [{"rule": "summary", "roles": []}],
        [{"rule": "summary", "roles": ["user", 5]}],
        [{"rule": "truncate"}],
        [{"rule": "truncate", "chars": 99}],
        [{"rule": "truncate", "chars": 500, "keep": "middle"}],
        [{"rule": "truncate", "chars": 500, "keep": []}],
        [{"rule": "prune"}] * (20 + 1),
    ],
)
def test_wrong_rules_are_named(given: Any) -> None:
    """What is no rule is a UsageError, and never a rule that is passed over."""
    with pytest.raises(UsageError, match="transforms"):
        rules_of(given)


def test_ids_that_are_not_there_are_errors() -> None:
    """A range of nothing, or one that ends before it begins, is a mistake of the caller's."""
    messages = conversation(("user", "u"), ("assistant", "a"))
    with pytest.raises(UsageError, match="entry gone"):
        applied(messages, {"rule": "summary", "from": "gone", "text": "x"})
    with pytest.raises(UsageError, match="before"):
        applied(messages, {"rule": "summary", "from": "e1", "to": "e0", "text": "x"})
