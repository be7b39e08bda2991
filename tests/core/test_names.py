"""core/names: which session a reference means, and never another one."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.core.names import Known, Names, known
from indexerd.core.names_fuzzy import folded
from indexerd.core.times import iso_of_ms
from indexerd.errors import AmbiguousError, AskError, NotFoundError, UsageError

NOW_MS = 1_780_000_000_000
HERE, BESIDE = "/home/user/src/shop", "/home/user/src/shop-2"


def session(
    n: int,
    name: str,
    *others: str,
    cwd: str = HERE,
    ago: float = 0.0,
    live: bool = True,
    named: bool = True,
) -> Known:
    """A session; `ago` in seconds."""
    session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, str(n)))
    modified = NOW_MS - round(ago * 1000)
    return Known(session_id, name, (name, *others), cwd, modified, named, live)


def index(*rows: Known) -> Names:
    """The index of some sessions."""
    return Names.load(rows)


BUTTON = session(1, "Confirm button refactor")
LOGIN = session(2, "Fix login bug after OAuth upgrade", ago=60)
PHASE_2 = session(3, "Phase 2 parser rewrite", ago=120)
PHASE_3 = session(4, "Phase 3 parser rewrite", ago=180)
FEW = (BUTTON, LOGIN, PHASE_2, PHASE_3)


def test_an_id_is_found_whatever_its_case() -> None:
    """S0.47, S0.49: ids come first, and their case does not count."""
    for ref in (BUTTON.session_id, BUTTON.session_id.upper(), f"  {BUTTON.session_id}\n"):
        match = index(*FEW).resolve(ref)
        assert (match.session_id, match.how, match.score) == (BUTTON.session_id, "id", None)


def test_ids_that_differ_in_case_only_stay_apart() -> None:
    """Two such ids are two sessions: the exact one is meant, and neither by a third spelling."""
    one = session(1, "One")._replace(session_id="ses_abcDEF")
    other = session(2, "Other")._replace(session_id="ses_ABCdef")
    names = index(one, other)
    assert names.resolve("ses_abcDEF").session_id == "ses_abcDEF"
    assert names.resolve("ses_ABCdef").session_id == "ses_ABCdef"
    with pytest.raises(AmbiguousError):
        names.resolve("SES_ABCDEF")


def test_a_unique_prefix_of_six_characters_is_enough() -> None:
    """S1.44: a unique prefix of an id resolves; a shorter one is no prefix at all."""
    names = index(*FEW)
    match = names.resolve(BUTTON.session_id[:6].upper())
    assert (match.session_id, match.how) == (BUTTON.session_id, "prefix")
    with pytest.raises(NotFoundError):
        names.resolve(BUTTON.session_id[:5])


def test_an_ambiguous_prefix_lists_its_sessions() -> None:
    """S10: a prefix of several ids is an error that names them."""
    rows = [session(n, f"Name {n}", ago=n)._replace(session_id=f"019a8b3c-{n}") for n in range(3)]
    with pytest.raises(AmbiguousError) as raised:
        index(*rows).resolve("019a8b3c")
    ids = [one["sessionId"] for one in raised.value.candidates]
    assert ids == [row.session_id for row in rows]


@pytest.mark.parametrize(
    "ref",
    [
        "Confirm button refactor",
        "CONFIRM BUTTON REFACTOR",
        "confirm-button-refactor",
        "confirm_button_refactor",
        "  Confirm  button refactor ",
        "Ｃonfirm button refactor",  # noqa: RUF001 - full-width on purpose: NFKC
    ],
)
def test_a_name_is_found_in_every_spelling_of_it(ref: str) -> None:
    """S0.48: a name resolves without regard to case, also as a slug."""
    match = index(*FEW).resolve(ref)
    assert (match.session_id, match.how) == (BUTTON.session_id, "name")


def test_every_alias_is_a_name() -> None:
    """The user's title, the generated name and the agent's own title all resolve."""
    row = session(9, "My title", "Generated name", "Agent title")
    for ref in row.aliases:
        assert index(row, *FEW).resolve(ref).session_id == row.session_id


def test_of_names_that_differ_in_signs_the_one_as_written_is_meant() -> None:
    """A slug may stand for two names; written out, it is clear which."""
    plus, plain = session(1, "C++ parser"), session(2, "C parser")
    names = index(plus, plain)
    assert names.resolve("c++ parser").session_id == plus.session_id
    assert names.resolve("C parser").session_id == plain.session_id
    with pytest.raises(AmbiguousError):
        names.resolve("c-parser")


def test_names_without_letters_are_names() -> None:
    """A name of signs resolves as it stands, and does not stand for all others of that kind."""
    names = index(session(1, "???"), session(2, "!!!"))
    assert names.resolve("???").session_id == session(1, "").session_id
    with pytest.raises(NotFoundError):
        names.resolve("...")


def test_two_sessions_of_one_name_are_ambiguous() -> None:
    """S0.49: never a silent pick, not even of the newer one; the newest is listed first."""
    rows = (session(1, "Fix tests", ago=50), session(2, "fix tests", ago=5))
    with pytest.raises(AmbiguousError) as raised:
        index(*rows).resolve("Fix tests")
    assert raised.value.candidates == [
        {
            "sessionId": row.session_id,
            "name": row.name,
            "cwd": HERE,
            "modifiedAt": iso_of_ms(row.modified),
        }
        for row in reversed(rows)
    ]


def test_the_only_live_session_of_a_name_is_meant() -> None:
    """A session that is gone or archived resolves, but does not make a live one ambiguous."""
    gone, live = session(1, "Fix tests", live=False), session(2, "Fix tests")
    assert index(gone, live).resolve("fix tests").session_id == live.session_id
    assert index(gone).resolve("fix tests").session_id == gone.session_id
    with pytest.raises(AmbiguousError):
        index(gone, session(3, "Fix tests", live=False)).resolve("fix tests")


@pytest.mark.parametrize(
    ("ref", "meant"),
    [
        ("confirm buton refactor", BUTTON),
        ("cofirm button refactro", BUTTON),
        ("confirmbutton refactor", BUTTON),
        ("confirm but ton refactor", BUTTON),
        ("button", BUTTON),
        ("refac", BUTTON),
        ("refactor button", BUTTON),
        ("login bug", LOGIN),
        ("oauth-upgrade", LOGIN),
        ("phase 2 parsr", PHASE_2),
        ("phase-3", PHASE_3),
    ],
)
def test_a_unique_near_name_is_found(ref: str, meant: Known) -> None:
    """S0.49: a part of a name, or one with slips, resolves where only one session fits."""
    match = index(*FEW).resolve(ref)
    assert (match.session_id, match.how) == (meant.session_id, "fuzzy")
    assert match.score is not None
    assert 0 < match.score <= 1


@pytest.mark.parametrize(
    "ref",
    [
        "fixture",
        "phase 4 parser rewrite",
        "phase 22",
        "confirm button design",
        "logout",
        "upgrade of everything",
        "conform",
        "zzzzzzzz",
        "parser rewrite for phase",
    ],
)
def test_a_reference_that_no_name_accounts_for_means_nothing(ref: str) -> None:
    """S0.49: likeness is not enough: every word and number must be accounted for."""
    with pytest.raises(NotFoundError):
        index(*FEW).resolve(ref)


def test_several_near_names_are_ambiguous() -> None:
    """S0.49: several fuzzy hits give an error with candidates, best first, with scores."""
    with pytest.raises(AmbiguousError) as raised:
        index(*FEW).resolve("parser rewrite")
    candidates = raised.value.candidates
    assert {one["sessionId"] for one in candidates} == {PHASE_2.session_id, PHASE_3.session_id}
    scores = [one["score"] for one in candidates]
    assert scores == sorted(scores, reverse=True)


def test_of_several_near_names_the_nearly_whole_one_is_meant() -> None:
    """A mistyped whole name is not made ambiguous by longer names that begin like it."""
    longer = session(7, "Confirm button refactor of the checkout dialogs")
    match = index(BUTTON, longer).resolve("confirm buttn refactor")
    assert match.session_id == BUTTON.session_id
    with pytest.raises(AmbiguousError):
        index(BUTTON, longer).resolve("confirm button")


def test_a_word_of_another_name_is_no_slip() -> None:
    """ "oauth" is a word that names have, so it does not stand for "auth"."""
    names = index(session(1, "Debug auth"), session(2, "OAuth rate chart"))
    with pytest.raises(NotFoundError):
        names.resolve("debug oauth")


def test_at_most_ten_candidates_are_listed() -> None:
    """An ambiguous reference never answers with hundreds of sessions."""
    rows = [session(n, f"Fix the build {n} times") for n in range(300)]
    with pytest.raises(AmbiguousError) as raised:
        index(*rows).resolve("fix the build")
    assert len(raised.value.candidates) == 10


ABOVE = "/home/user/src"


@pytest.mark.parametrize("ref", ["fix tests", "fix-tests", "fix tsts"])
def test_the_project_comes_first(ref: str) -> None:
    """S0.68: in and below cwd first, then above, then elsewhere; a sibling is elsewhere."""
    below = session(1, "Fix tests", cwd=HERE + "/web")
    above = session(2, "Fix tests", cwd=ABOVE)
    beside = session(3, "Fix tests", cwd=BESIDE)
    for rows in ((below, above, beside), (above, beside), (beside,)):
        assert index(*rows).resolve(ref, cwd=HERE).session_id == rows[0].session_id


def test_every_project_is_asked_at_once_when_told_to() -> None:
    """S0.68: with scope "all", or without a directory, no project comes first."""
    names = index(session(1, "Fix tests"), session(2, "Fix tests", cwd=BESIDE))
    for arguments in ({"cwd": HERE, "scope": "all"}, {"cwd": None}):
        with pytest.raises(AmbiguousError):
            names.resolve("fix tests", **arguments)


def test_an_ambiguity_nearby_is_not_settled_elsewhere() -> None:
    """Others are asked only when nothing nearby fits; two that fit do fit."""
    names = index(
        session(1, "Fix tests"), session(2, "Fix tests"), session(3, "Fix tests", cwd=BESIDE)
    )
    with pytest.raises(AmbiguousError) as raised:
        names.resolve("fix tests", cwd=HERE)
    assert {one["cwd"] for one in raised.value.candidates} == {HERE}


def test_ids_and_exact_names_elsewhere_stand_before_likeness_nearby() -> None:
    """S0.49: id, exact name, fuzzy: in this order, wherever they are."""
    near, far = session(1, "Auth refactor notes"), session(2, "Auth refactor", cwd=BESIDE)
    names = index(near, far)
    assert names.resolve("auth refactor", cwd=HERE).session_id == far.session_id
    assert names.resolve(far.session_id, cwd=HERE).session_id == far.session_id
    assert names.resolve("auth refac", cwd=HERE).session_id == near.session_id


def test_a_directory_of_signs_is_a_directory() -> None:
    """Project directories are compared word by word, the root and empty ones included."""
    names = index(session(1, "Fix tests", cwd="/"), session(2, "Fix tests", cwd=""))
    assert names.resolve("fix tests", cwd="/srv/100%_x").session_id == session(1, "").session_id


HOSTILE = [
    "",
    " \n",
    "a\0b",
    "\x1b[31m",
    "\ud800",
    "x" * 10_240,
    "../../etc/passwd",
    "／etc／passwd",  # noqa: RUF001 - U+FF0F on purpose
    "..",
    "/",
    "%",
    "' OR 1=1 --",
    "\ufdfa" * 500,
]


@pytest.mark.parametrize("ref", HOSTILE)
def test_hostile_references_give_typed_errors(ref: str) -> None:
    """S10: whatever a reference is made of, the answer is one of our own errors."""
    for names in (index(), index(*FEW)):
        with pytest.raises(AskError):
            names.resolve(ref, cwd=HERE)


@pytest.mark.parametrize("ref", ["", "a\0b", "\ud800", "x" * 10_240])
def test_what_cannot_be_a_reference_is_a_usage_error(ref: str) -> None:
    """S10: what no session could be called is told from what no session is called."""
    with pytest.raises(UsageError):
        index(*FEW).resolve(ref)


WORDS = st.sampled_from(
    "fix add login bug parser phase 2 3 oauth auth test text tests cache race rate 検索 機能".split()
)
PHRASES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
TYPED = (
    PHRASES | st.text(max_size=30) | st.tuples(PHRASES, st.text("abx -", max_size=3)).map("".join)
)


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
@given(changes(), st.lists(PHRASES, min_size=1, max_size=4), st.booleans())
def test_an_index_that_grew_answers_like_one_made_anew(
    steps: list[tuple[str, Any]], refs: list[str], warm: bool
) -> None:
    """Incremental changes leave the index as if it had been loaded with what is there now."""
    grown, held = Names(), {}
    for act, value in steps:
        getattr(grown, act)(value)
        if act == "put":
            held[value.session_id] = value
        else:
            held.pop(value, None)
        if warm:
            grown.warm(1)
    fresh = Names.load(held.values())
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


def test_warming_in_steps_ends() -> None:
    """The index for fuzzy names can be built a little at a time."""
    names = index(*FEW)
    steps = [names.warm(1) for _ in range(len(FEW))]
    assert steps == [False, False, False, True]


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


def test_a_row_becomes_what_the_index_holds() -> None:
    """Rows of interfaces.md section 5 are understood, with what may be missing in them."""
    row = {
        "sessionId": "a",
        "name": "Title",
        "nameSource": "user",
        "agentTitle": "Agent's",
        "cwd": "/x",
        "modifiedAt": "2026-01-02T03:04:05.678Z",
        "gone": True,
    }
    found = known(row, ["Meta", "Title"])
    assert found.aliases == ("Title", "Agent's", "Meta")
    assert (found.named, found.live) == (True, False)
    assert iso_of_ms(found.modified) == row["modifiedAt"]
    bare = known({"sessionId": "b"})
    assert bare == Known("b", "", (), "", 0, named=False, live=True)
