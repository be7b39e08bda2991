"""Relevant-context sets: their limits, and what may be stored in them (S4)."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexerd.errors import ContextTooLargeError, UsageError
from indexerd.meta import context_sets as sets
from indexerd.meta.context_sets import Outcome, apply, change_of, replace_all
from indexerd.privacy.redact import redact
from indexerd.privacy.sanitize import escape_path
from indexerd.privacy.suspects import suspected
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


@pytest.mark.parametrize("mode", ["append", "", 1, True, ["merge"]])
def test_other_modes_are_errors(mode: Any) -> None:
    """S4.3."""
    with pytest.raises(UsageError, match="replace or merge"):
        change_of("files", ["a"], mode)


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


def test_sets_that_a_hand_made_too_large_may_shrink() -> None:
    """S4.5: one call at a time, although they are too large after it."""
    context = {f"s{number}": numbered(10) for number in range(7)}
    found = put(context, "s0", [])
    assert (found.text, len(found.context)) == ("Cleared s0", 6)
    with pytest.raises(ContextTooLargeError):
        put(found.context, "s0", ["one"])


def test_replacing_with_nothing_clears_and_merging_nothing_does_nothing() -> None:
    """S4.6: each says which it was."""
    context = {"files": ["/w/a"], "ports": ["80"]}
    assert put(context, "files", []) == Outcome({"ports": ["80"]}, "Cleared files")
    assert put({}, "files", []) == Outcome({}, "Cleared files", changed=False)
    found = put(context, "files", [], "merge")
    assert found == Outcome(context, "Nothing to merge into files: 1 items", changed=False)


def test_a_merge_says_whether_it_changed_anything() -> None:
    """S4.7, S4.12: not where all was there, nor where nothing found room; the text is the same."""
    context = {"files": numbered(10)}
    for items in (numbered(2), ["x"]):
        found = put(context, "files", items, "merge")
        assert (found.context, found.text) == (context, "Merged files: 10 items")
        assert not found.changed
    assert put(context, "files", numbered(10)).changed, "a replacement is a write"


def test_a_merge_takes_nothing_from_a_set_made_by_hand() -> None:
    """S4.4: sixty items stay sixty, and the new one is named as not stored."""
    found = put({"files": numbered(60)}, "files", ["x"], "merge")
    assert found.context == {"files": numbered(60)}
    assert found.warnings == ("not stored, as a set holds at most 10 items: x",)


def test_an_unknown_set_is_taken_with_a_warning() -> None:
    """S4.2."""
    found = put({}, "fles", ["/w/a"])
    assert found.context == {"fles": ["/w/a"]}
    told = "unknown set 'fles'; the known ones are files, applet, endpoints, ports"
    assert found.warnings == (told,)
    for name in sets.KNOWN:
        assert put({}, name, ["1"]).warnings == ()


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
    "name",
    ["files", "my set.v2", "src/api_v1-x", "tool paths", "user stories", "2nd", "für später"],
)
def test_words_are_names(name: str) -> None:
    """Letters of every script, digits, spaces and four signs."""
    assert change_of(f" {name} ", ["a"]).name == name


@pytest.mark.parametrize("items", [None, "a", {"a": 1}, [1], ["a", None], [["a"]]])
def test_items_are_a_list_of_strings(items: Any) -> None:
    """A port is a string, too."""
    with pytest.raises(UsageError, match="list of strings"):
        change_of("ports", items)


@pytest.mark.parametrize("item", ["", " ", "\x1b[2J", "x" * 1001])
def test_an_item_says_something_and_is_never_cut(item: str) -> None:
    """A cut path would be another path."""
    with pytest.raises(UsageError):
        change_of("files", [item])
    assert change_of("files", ["x" * 1000]).items == ("x" * 1000,)


def test_items_keep_the_spaces_of_file_names() -> None:
    """Double spaces, macOS' narrow one before PM, and what joins an emoji are part of a name."""
    names = ["/w/a  b.txt", "/w/Screenshot 5.00\u202fPM.png", "/w/e\u0301.md"]
    names += ["/w/\U0001f469\u200d\U0001f4bb.md", "app/[slug]/<x>.tsx", "/w/a\u00a0 b"]
    assert change_of("files", names).items == tuple(names)
    assert change_of("files", [" \t/w/a b "]).items == ("/w/a b",)


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


def test_no_warning_and_no_error_holds_a_secret() -> None:
    """S2.21: where an item finds no room, or is refused, it is named without its secret."""
    (warning,) = put({"ports": numbered(10)}, "ports", [f"80 {SECRET}"], "merge").warnings
    told = "not stored, as a set holds at most 10 items: 80 [redacted:anthropic-key]"
    assert warning == told
    with pytest.raises(UsageError, match="do not show") as caught:
        change_of("ports", [f"80 {SECRET}\n"])
    assert SECRET not in str(caught.value)
    assert suspected(f"export KEY={SECRET}", "envHint") == (
        f"envHint looks like it holds a secret (anthropic-key){GOES}",
    )
    assert suspected("source .venv/bin/activate", "envHint") == ()
