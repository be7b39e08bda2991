"""Transform rules of one context answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.entries import Entry, Kind
from indexerd.errors import UsageError
from indexerd.protocol import params
from indexerd.sessions.context import ContextMessage
from indexerd.sessions.tree_answers import transformed


def said(role: str, text: str, name: str) -> ContextMessage:
    entry = Entry(id=name, kind=Kind.OTHER, type="message", role=None, timestamp="")
    return ContextMessage(role, entry, (text,))


ROLES = ("user", "assistant", "toolResult", "bashExecution")
texts = st.text(alphabet="ab \nüé\U0001f600", max_size=300)
contexts = st.lists(st.tuples(st.sampled_from(ROLES), texts), max_size=12).map(
    lambda spoken: conversation(*spoken)
)
prunes = st.fixed_dictionaries(
    {"rule": st.just("prune")}, optional={"protectTokens": st.integers(0, 200)}
)
truncates = st.fixed_dictionaries(
    {"rule": st.just("truncate"), "chars": st.integers(100, 250)},
    optional={"keep": st.sampled_from(["head", "tail"]), "roles": st.just(["toolResult", "user"])},
)
summaries = st.just({"rule": "summary", "text": "It was done."})
any_rules = st.lists(prunes | truncates | summaries, max_size=4)


def applied(messages: list[ContextMessage], *rules: dict[str, Any]) -> list[ContextMessage]:
    return transformed(messages, rules_of(list(rules)))


def rules_of(given: Any) -> list[Any]:
    return params.decode(params.Context, {"ref": "s", "transforms": given}).transforms or []


def conversation(*spoken: tuple[str, str]) -> list[ContextMessage]:
    return [said(role, text, f"e{at}") for at, (role, text) in enumerate(spoken)]


@given(contexts, any_rules)
def test_rules_are_idempotent(messages: list[ContextMessage], rules: list[Any]) -> None:
    """Applying a rule again changes nothing, and rules never add messages."""
    for rule in rules:
        once = applied(messages, rule)
        assert once == applied(messages, rule, rule)
        assert once == applied(once, rule)
    assert len(applied(messages, *rules)) <= len(messages)


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
        [{"rule": "truncate", "chars": 500, "roles": ["user", 5]}],
        [{"rule": "truncate"}],
        [{"rule": "truncate", "chars": 99}],
        [{"rule": "truncate", "chars": 500, "keep": "middle"}],
        [{"rule": "prune"}] * (20 + 1),
    ],
)
def test_wrong_rules_are_errors(given: Any) -> None:
    """A wrong rule is a UsageError and never ignored."""
    with pytest.raises(UsageError):
        rules_of(given)
