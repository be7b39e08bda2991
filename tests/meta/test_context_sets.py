"""Relevant-context sets: their limits, and what may be stored in them (S4)."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import ContextTooLargeError, UsageError
from indexerd.meta.context_sets import Outcome, apply, change_of, replace_all
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import escape_path
from tests.meta.set_blocks import numbered


def put(context: dict[str, list[str]], name: str, items: list[str], mode: Any = None) -> Outcome:
    """Change one set."""
    return apply(context, change_of(name, items, mode))


def test_replace_is_the_default_and_says_what_is_in_the_set() -> None:
    """S4.3, S4.7: upstream's texts; other sets stay as they are."""
    context = {"files": ["/w/old"], "ports": ["80"]}
    expected = Outcome({"files": ["/w/a", "/w/b"], "ports": ["80"]}, "Set files: 2 items")

    assert put(context, "files", ["/w/a", "/w/b"]) == expected
    assert put(context, "files", ["/w/a", "/w/b"], "replace") == expected
    assert context == {"files": ["/w/old"], "ports": ["80"]}, "what is given is not changed"


def test_merge_is_an_ordered_union() -> None:
    """S4.3, S4.7, S4.19: what was there first stays first, and nothing is there twice."""
    found = put({"files": ["b", "a"]}, "files", ["c", "a", "c"], "merge")
    assert found == Outcome({"files": ["b", "a", "c"]}, "Merged files: 3 items")


def test_more_than_ten_items_in_a_call_are_an_error() -> None:
    """S4.4: in either mode; ten are none."""
    assert len(change_of("files", numbered(10)).items) == 10
    for mode in ("replace", "merge"):
        with pytest.raises(UsageError, match="at most 10"):
            change_of("files", numbered(11), mode)


def test_a_merge_names_what_found_no_room() -> None:
    """S4.4: the first ten stay; each that does not fit is named."""
    found = put({"files": numbered(8)}, "files", [*numbered(2), "x", "y", "z", "q"], "merge")

    assert found.context == {"files": [*numbered(8), "x", "y"]}
    assert found.text == "Merged files: 10 items"
    assert found.warnings == ("not stored, as a set holds at most 10 items: z, q",)


def test_more_than_fifty_items_in_all_are_refused() -> None:
    """S4.5: with upstream's text; fifty are not too many."""
    context = {f"s{number}": numbered(10) for number in range(4)}
    assert put(context, "s4", numbered(10)).text == "Set s4: 10 items"
    context["s4"] = numbered(9)
    with pytest.raises(ContextTooLargeError) as caught:
        put(context, "files", numbered(2))
    told = "Context too large (51 items, max 50). Remove some items first."
    assert str(caught.value) == told
    assert caught.value.kind == "context_too_large"


@pytest.mark.parametrize(
    "name",
    [
        *("", "  ", None, 5, ["files"], "n" * 65),
        *("a\nb", "files\n", "a\tb", "a\x1b[31m", "\u202efiles", "a\u200bb", "\u3164"),
        *("---", "-a", "_a", "[SESSION RESUMED]", "a: b", "a<b", "@@a", "[INST]", "a\u2028b"),
        *("System", "user", "ASSISTANT", " Human ", "tool", "system-reminder", "System prompt"),
        "\uff33ystem",
    ],
)
def test_a_sets_name_is_a_plain_word_and_no_role(name: Any) -> None:
    """It begins a line of a later prompt: it cannot pose as a speaker, a tag, or our own frame."""
    with pytest.raises(UsageError, match="setName"):
        change_of(name, ["a"])


@pytest.mark.parametrize(
    "item",
    ["a\nb", "a\n", "a\tb", "a\x1b[31mb", "a\x00b", "a\u200bb", "\u202ea", "a\udcff", "a\u2028b"],
)
def test_an_item_that_would_have_to_be_changed_is_refused(item: str) -> None:
    """Another path would be stored than was given; the error shows it, harmlessly."""
    with pytest.raises(UsageError, match="do not show") as caught:
        change_of("files", ["/w/fine", item])
    assert str(caught.value).isprintable()
    assert str(caught.value).endswith(f": {escape_path(item)}")


@given(st.text(max_size=60))
def test_an_item_is_stored_as_it_was_or_not_at_all(item: str) -> None:
    """But for blanks around it."""
    try:
        (kept,) = change_of("files", [item]).items
    except UsageError:
        return
    assert kept == item.strip(" \t")
    assert len(kept.splitlines()) == 1


@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.lists(st.text(), max_size=12))))
def test_no_calls_break_a_limit(calls: list[tuple[str, list[str]]]) -> None:
    """S4.4, S4.5: whatever is called, sets stay within the limits, and on one line each."""
    context: dict[str, list[str]] = {}
    for number, (name, items) in enumerate(calls):
        mode = "merge" if number % 2 else "replace"
        try:
            outcome = put(context, name, items, mode)
        except (UsageError, ContextTooLargeError):
            continue
        kept = set(outcome.context.get(name, ())) | set(", ".join(outcome.warnings).split(", "))
        assert {one for one in context.get(name, ()) if mode == "merge"} <= kept
        context = outcome.context
    assert sum(map(len, context.values())) <= 50
    for items in context.values():
        assert 1 <= len(items) <= 10
        for item in items:
            bad = {unicodedata.category(char) for char in item} & {"Cc", "Cs", "Zl", "Zp"}
            assert bad == set(), item
            assert 1 <= len(item) <= 1000


def test_all_sets_are_replaced_within_the_same_limits() -> None:
    """S4.21: empty ones are not kept; null clears; what is too much is refused."""
    given_ = {"files": ["/w/a"], "ports": [], "fles": ["b"]}
    found = replace_all(given_)
    assert found.context == {"files": ["/w/a"], "fles": ["b"]}
    assert len(found.warnings) == 1
    assert replace_all(None).context == {}
    twice = {"files": ["a"], "files ": ["b"]}
    for bad in (["files"], "files", {"files": "a"}, {"files": numbered(11)}, {"": ["a"]}, twice):
        with pytest.raises(UsageError):
            replace_all(bad)
    with pytest.raises(ContextTooLargeError, match=r"60 items|51 items"):
        replace_all({f"s{number}": numbered(10) for number in range(6)})


SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5 + "-AA"
GOES = "; it goes into prompts at a resume"


def test_a_secret_is_stored_as_it_is_and_told_of() -> None:
    """S2.21: to the letter, with a warning that names set, place and kind, and never the secret."""
    items = ["http://h/", f"http://h/?key={SECRET}", "https://u:hunter2hunter2@h/"]
    expected = (
        f"item 2 of endpoints looks like it holds a secret (anthropic-key){GOES}",
        f"item 3 of endpoints looks like it holds a secret (url-password){GOES}",
    )
    for mode in ("replace", "merge"):
        found = put({}, "endpoints", items, mode)
        assert found.context == {"endpoints": items}
        assert found.warnings == expected
    merged = put({"endpoints": ["a", f"b {SECRET}"]}, "endpoints", items, "merge")
    assert [warning[:7] for warning in merged.warnings] == ["item 4 ", "item 5 "]
    assert replace_all({"files": ["/w/a"], "endpoints": items}).warnings == expected
    for warning in expected:
        assert redact(warning).text == warning
    assert put({}, "files", ["/w/token.py", "/w/secrets/api-key.md", "0" * 40]).warnings == ()
