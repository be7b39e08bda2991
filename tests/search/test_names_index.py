"""core/names: the index as it changes, what it never does, and completions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.fuzz import ratio

from indexerd.errors import AmbiguousError, AskError, NotFoundError
from indexerd.search.names import Names, folded
from indexerd.times import iso_of_ms
from tests.search.names_known import (
    BESIDE,
    BUTTON,
    FEW,
    HERE,
    LOGIN,
    NOW_MS,
    PHASE_2,
    PHASE_3,
    index,
    session,
)

WORDS = st.sampled_from(
    (
        *("fix", "add", "login", "bug", "parser", "phase", "2", "3", "oauth", "auth"),
        *("test", "text", "tests", "cache", "race", "rate", "検索", "機能"),
    )
)
PHRASES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
TYPED = (
    PHRASES | st.text(max_size=30) | st.tuples(PHRASES, st.text("abx -", max_size=3)).map("".join)
)


NEARLY_THE_SAME = 85.0  # of 100: of twenty letters three may differ


@settings(deadline=None)
@given(st.lists(PHRASES | st.text(min_size=1, max_size=20), max_size=8), TYPED)
def test_nothing_unrelated_ever_resolves(texts: list[str], ref: str) -> None:
    """S0.49: a session resolves only by its id, or where its names have letters of every word."""
    rows = {row.session_id: row for row in (session(n, text) for n, text in enumerate(texts))}
    try:
        match = index(*rows.values()).resolve(ref)
    except AskError:
        return
    row = rows[match.session_id]
    if match.how in {"id", "prefix"}:
        assert row.session_id.lower().startswith(ref.strip().lower())
        return
    key = folded(row.name)
    if match.how == "name":
        assert folded(ref) == key
        return
    if ratio(folded(ref).replace(" ", ""), key.replace(" ", "")) >= NEARLY_THE_SAME:
        return  # mistyped, or its words are joined or parted in another way
    for word in re.findall(r"[^\W_]+", folded(ref)):
        pairs = {word[at : at + 2] for at in range(max(1, len(word) - 1))}
        joined = key.replace(" ", "")
        assert any(pair in joined for pair in pairs), (ref, row.name)
    numbers = set(re.findall(r"\d+", folded(ref)))
    assert numbers <= set(re.findall(r"\d+", key))


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Sessions that come, are renamed, move and go."""
    found: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(0, 25))):
        n = draw(st.integers(0, 5))
        if draw(st.booleans()):
            row = session(n, draw(PHRASES), cwd=draw(st.sampled_from((HERE, BESIDE))))
            found.append(("put", row._replace(live=draw(st.booleans()))))
        else:
            found.append(("forget", session(n, "").session_id))
    return found


def answer(names: Names, ref: str) -> Any:
    """What the index says, errors included, in a form that can be compared."""
    try:
        return names.resolve(ref, cwd=HERE)
    except AmbiguousError as error:
        return sorted(one["sessionId"] for one in error.candidates)
    except AskError as error:
        return type(error)


@settings(deadline=None)
@given(changes(), st.lists(PHRASES, min_size=1, max_size=4))
def test_an_index_that_grew_answers_like_one_made_anew(
    steps: list[tuple[str, Any]], refs: list[str]
) -> None:
    """Incremental changes leave the index as if it had been loaded with what is there now."""
    grown, held = Names(), {}
    for act, value in steps:
        getattr(grown, act)(value)
        if act == "put":
            held[value.session_id] = value
        else:
            held.pop(value, None)
    fresh = Names(held.values())
    assert len(grown) == len(fresh) == len(held)
    for one in held.values():
        assert grown.get(one.session_id) == one
        assert answer(grown, one.session_id) == answer(fresh, one.session_id)
        assert answer(grown, one.name) == answer(fresh, one.name)
    exact = [ref for ref in refs if folded(ref) in {folded(one.name) for one in held.values()}]
    for ref in exact:
        assert answer(grown, ref) == answer(fresh, ref)
    newest = [one["sessionId"] for one in grown.complete(now=NOW_MS / 1000)]
    assert sorted(newest) == sorted(one.session_id for one in held.values() if one.live)


def test_a_forgotten_session_is_not_found_any_more() -> None:
    """S0.68: what is forgotten resolves by no id, prefix, name or likeness."""
    names = index(*FEW)
    names.resolve("confirm buton")
    names.forget(BUTTON.session_id)
    names.forget("unknown")
    for ref in (BUTTON.session_id, BUTTON.session_id[:8], BUTTON.name, "confirm buton"):
        with pytest.raises(NotFoundError):
            names.resolve(ref)


def test_a_renamed_session_answers_to_its_new_name_only() -> None:
    """A change of name takes effect at once, in exact and in fuzzy look-ups."""
    names = index(*FEW)
    names.put(BUTTON._replace(name="Dialog clean-up", aliases=("Dialog clean-up",)))
    assert names.resolve("dialog clean").session_id == BUTTON.session_id
    with pytest.raises(NotFoundError):
        names.resolve("confirm button refactor")


def items(names: Names, prefix: str = "", **more: Any) -> list[str]:
    """The labels of completions."""
    found = names.complete(prefix, now=NOW_MS / 1000, **more)
    return [one["label"] for one in found]


def test_completions_are_newest_first_without_the_current_one() -> None:
    """S0.59: newest first, the session at hand left out, as many as asked for."""
    names = index(*FEW)
    assert items(names, exclude=LOGIN.session_id) == [
        BUTTON.name,
        PHASE_2.name,
        PHASE_3.name,
    ]
    assert items(names, limit=1) == [BUTTON.name]


def test_a_completion_says_what_to_show_and_insert() -> None:
    """S0.59: label, age, whether it was named, and the text to insert."""
    row = session(1, "A very long name\n" * 9, ago=7200, named=False)
    (found,) = index(row).complete(now=NOW_MS / 1000)
    assert found["sessionId"] == row.session_id
    assert found["insert"] == f"@@{row.session_id} "
    assert found["age"] == "2h"
    assert found["named"] is False
    assert len(found["label"]) <= 60
    assert "\n" not in found["label"]


@pytest.mark.parametrize(
    ("ago", "age"),
    [
        (-500, "now"),
        (59, "now"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86_399, "23h"),
        (86_400, "1d"),
        (6 * 86_400, "6d"),
        (7 * 86_400, iso_of_ms(NOW_MS - 7 * 86_400_000)[:10]),
    ],
)
def test_ages_are_short(ago: float, age: str) -> None:
    """S0.59: minutes, hours, days, then the date."""
    (found,) = index(session(1, "One", ago=ago)).complete(now=NOW_MS / 1000)
    assert found["age"] == age


@pytest.mark.parametrize(
    "prefix", ["conf", "BUTT", "confirm-but", "refactor", BUTTON.session_id[:4]]
)
def test_a_beginning_of_any_word_or_of_the_id_completes(prefix: str) -> None:
    """S0.59: what is being typed may begin any word of a name, or the id."""
    assert items(index(*FEW), prefix) == [BUTTON.name]


def test_the_middle_of_a_word_does_not_complete() -> None:
    """Letters in the middle of words would make every completion a long list."""
    assert items(index(*FEW), "utton") == []


def test_completions_stay_in_the_project_while_something_fits() -> None:
    """S0.68: the project first; others only where nothing in it fits."""
    names = index(*FEW, session(8, "Confirm elsewhere", cwd=BESIDE, ago=-5))
    assert items(names, "confirm", cwd=HERE) == [BUTTON.name]
    assert items(names, "elsewhere", cwd=HERE) == ["Confirm elsewhere"]
    assert items(names, "confirm") == ["Confirm elsewhere", BUTTON.name]


def test_sessions_that_are_not_live_do_not_complete() -> None:
    """Completions offer what lists show; gone, archived and sub-agents' sessions they do not."""
    assert items(index(session(1, "Gone", live=False))) == []
