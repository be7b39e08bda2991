"""core/names: which session a reference means, and never another one."""

from __future__ import annotations

import pytest

from indexerd.errors import AmbiguousError, AskError, NotFoundError, UsageError
from indexerd.search.names import known
from indexerd.store.store import Named
from indexerd.times import iso_of_ms
from tests.search.names_known import (
    BESIDE,
    BUTTON,
    FEW,
    HERE,
    LOGIN,
    PHASE_2,
    PHASE_3,
    index,
    session,
)


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


def test_a_prefix_is_unique_in_the_whole_store_or_ambiguous() -> None:
    """S0.49, S1.44: no project and no asking session settles what several ids begin with."""
    where = (BESIDE, HERE, "/home/user/src")
    rows = [
        session(n, f"Name {n}", cwd=cwd)._replace(session_id=f"019a8b3c-{n}")
        for n, cwd in enumerate(where)
    ]
    beside, here, above = rows
    names = index(*rows)
    for exclude, order in ((None, (here, above, beside)), (here.session_id, (above, beside, here))):
        with pytest.raises(AmbiguousError) as raised:
            names.resolve("019a8b3c", cwd=HERE, exclude=exclude)
        ids = [one["sessionId"] for one in raised.value.candidates]
        assert ids == [row.session_id for row in order]
    assert names.resolve("019a8b3c-2", cwd=HERE).session_id == above.session_id


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
        ("button refactor", BUTTON),
        ("confrim-button", BUTTON),
        ("login bug", LOGIN),
        ("oauth-upgrade", LOGIN),
        ("phase 2 parsr", PHASE_2),
        ("phase-3", PHASE_3),
    ],
)
def test_a_unique_near_name_is_found(ref: str, meant: Named) -> None:
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
    """A word that some name has is meant as it stands: "oauth" is not a mistyped "auth"."""
    names = index(session(1, "Debug auth"), session(2, "OAuth rate chart"))
    with pytest.raises(NotFoundError):
        names.resolve("debug oauth")
    names = index(session(1, "Debug oauth flow"), session(2, "Auth rate chart"))
    with pytest.raises(NotFoundError):
        names.resolve("debug auth")


def test_a_number_does_not_stand_for_one_that_it_begins() -> None:
    """Numbers must be the same as a whole: issue 123 is not issue 1234."""
    names = index(session(1, "Crash of issue 1234"))
    with pytest.raises(NotFoundError):
        names.resolve("issue 123")
    assert names.resolve("issue 1234").how == "fuzzy"


def test_at_most_ten_candidates_are_listed() -> None:
    """An ambiguous reference never answers with hundreds of sessions."""
    rows = [session(n, f"Fix the build {n} times") for n in range(300)]
    with pytest.raises(AmbiguousError) as raised:
        index(*rows).resolve("fix the build")
    assert len(raised.value.candidates) == 10


ABOVE = "/home/user/src"


@pytest.mark.parametrize("ref", ["fix tests", "fix-tests", "fix testss"])
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
    assert bare == Named("b", "", (), "", 0, named=False, live=True)
