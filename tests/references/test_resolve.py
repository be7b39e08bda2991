"""Which session a reference means, and that it never means a wrong one."""

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from indexerd.errors import AmbiguousError, NotFoundError
from indexerd.references.resolve import Match, Names
from indexerd.search.ranking import best_sessions
from indexerd.store.store import Named
from indexerd.times import iso_of_ms
from tests.store.rows import fill, row, scratch

NOW_MS = 1_780_000_000_000
HERE, BESIDE, ABOVE = "/home/user/src/shop", "/home/user/src/shop-2", "/home/user/src"


def session(
    n: int,
    name: str,
    *others: str,
    cwd: str = HERE,
    ago: float = 0.0,
    live: bool = True,
    named: bool = True,
) -> Named:
    session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, str(n)))
    modified = NOW_MS - round(ago * 1000)
    return Named(session_id, name, (name, *others), cwd, modified, named, live)


def index(*rows: Named) -> Names:
    return Names(rows)


@contextmanager
def searched(*rows: Named, last: str = "") -> Iterator[Callable[..., Match]]:
    """Resolve with the names and a text index that has them, and a description of the last."""
    with scratch() as texts:
        for one in rows:
            told = {"description": last if one is rows[-1] else ""}
            told["nameSource"] = "meta" if one.named else ""
            fill(texts, row(one.session_id, name=one.name, cwd=one.cwd, **told))
        search = partial(best_sessions, texts, limit=10)
        yield partial(Names(rows).resolve, search=search)


BUTTON = session(1, "Confirm button refactor")
LOGIN = session(2, "Fix login bug after OAuth upgrade", ago=60)
PHASE_2 = session(3, "Phase 2 parser rewrite", ago=120)
PHASE_3 = session(4, "Phase 3 parser rewrite", ago=180)
FEW = (BUTTON, LOGIN, PHASE_2, PHASE_3)


def slug(name: str) -> str:
    """A name as people write it after `@@`."""
    return "-".join(re.findall(r"[^\W_]+", name.lower()))


def candidates(names: Names | Callable[..., Match], ref: str, **more: Any) -> list[str]:
    """The names that the error lists, if any are near."""
    with pytest.raises((AmbiguousError, NotFoundError)) as raised:
        (names.resolve if isinstance(names, Names) else names)(ref, **more)
    found = raised.value
    return (
        [candidate["name"] for candidate in found.candidates]
        if isinstance(found, AmbiguousError)
        else []
    )


@pytest.mark.parametrize(
    ("ref", "how"),
    [
        (BUTTON.session_id, "id"),
        (f"  {BUTTON.session_id.upper()}\n", "id"),
        (BUTTON.session_id[:6].upper(), "prefix"),
        ("CONFIRM BUTTON REFACTOR", "name"),
        ("confirm-button-refactor", "name"),
        ("  Confirm_button  refactor ", "name"),
        ("Ｃonfirm button refactor", "name"),  # noqa: RUF001 - full-width on purpose: NFKC
        ("Its former name", "name"),
        ("@@confirm-button-refactor", "name"),  # as in a prompt
    ],
)
def test_ids_their_beginnings_and_names_are_found(ref: str, how: str) -> None:
    """S0.47, S0.48, S0.49: in any case, names as slugs, and every name of a session."""
    names = index(BUTTON._replace(aliases=(BUTTON.name, "Its former name")), *FEW[1:])
    assert names.resolve(ref) == (BUTTON.session_id, how, None)


def test_a_whole_name_is_before_those_that_are_only_alike() -> None:
    """S0.49: names are alike without accents and signs."""
    accented, plain = session(1, "Naïve café"), session(2, "NAIVE CAFE!")
    names = index(accented, plain)
    assert names.resolve("naïve CAFÉ").session_id == accented.session_id
    assert names.resolve("naive cafe!").session_id == plain.session_id
    assert len(candidates(names, "naive-cafe")) == 2


def test_a_prefix_is_unique_in_the_whole_store_or_ambiguous() -> None:
    """S0.49, S1.44: neither the project nor the asking session decides between several ids."""
    where = (BESIDE, HERE, ABOVE)
    rows = [
        session(n, f"Name {n}", cwd=cwd)._replace(session_id=f"019a8b3c-{n}")
        for n, cwd in enumerate(where)
    ]
    beside, here, above = rows
    names = index(*rows)
    for exclude, order in ((None, (here, above, beside)), (here.session_id, (above, beside, here))):
        with pytest.raises(AmbiguousError) as raised:
            names.resolve("019a8b3c", cwd=HERE, exclude=exclude)
        ids = [candidate["sessionId"] for candidate in raised.value.candidates]
        assert ids == [row.session_id for row in order]
    assert names.resolve("019a8b3c-2", cwd=HERE).session_id == above.session_id
    with pytest.raises(AmbiguousError, match="too short for an id"):
        names.resolve("019a8")


UNKNOWN = (
    "3f2a9c11-1111-4222-8333-444455556666",
    "3f2a9c11111142228333444455556666",
    "ses_e000b6961ffeT7Tnu9xbOOY8iN",
    "agent-a17f3c5d9",
)


@pytest.mark.parametrize("ref", UNKNOWN)
@pytest.mark.parametrize("name", ["{}", "continue session {} please", "{}x"])
@pytest.mark.parametrize("cwd", [HERE, None])
def test_an_id_that_no_session_has_is_no_name(ref: str, name: str, cwd: str | None) -> None:
    """S4.26: a session that mentions the id is neither resolved nor offered."""
    names = index(session(1, name.format(ref)), session(2, "Else"))
    for fuzzy in (True, False):
        with pytest.raises(NotFoundError):
            names.resolve(ref, cwd=cwd, fuzzy=fuzzy)
    names.put(session(3, "Theirs")._replace(session_id=ref))
    assert names.resolve(ref) == (ref, "id", None)


@pytest.mark.parametrize(
    "name",
    [
        *("ses notes of the week", "Agent deadbeef", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        *("2026-11-21 10:00:00", "in", "12", "C++", "???"),
    ],
)
def test_a_name_that_looks_like_something_else_stays_a_name(name: str) -> None:
    """S0.48: a date or commit is no id, and a whole name always resolves."""
    names = index(session(1, name), session(2, "Fix in 12 now"), session(3, "!!!"))
    for ref in (name, slug(name) or name) if name != "C++" else (name,):
        assert names.resolve(ref).how == "name"


def test_of_sessions_of_one_name_the_only_live_one_is_meant() -> None:
    """S0.49: of several live ones none is chosen; the newest is listed first."""
    rows = (session(1, "Fix tests", ago=50), session(2, "fix tests", ago=5))
    with pytest.raises(AmbiguousError) as raised:
        index(*rows).resolve("Fix tests")
    own = ("sessionId", "name", "cwd", "modifiedAt")
    assert raised.value.candidates == [
        dict(zip(own, (row.session_id, row.name, HERE, iso_of_ms(row.modified)), strict=True))
        for row in reversed(rows)
    ]
    gone = rows[0]._replace(live=False)
    assert index(gone, rows[1]).resolve("fix tests").session_id == rows[1].session_id
    assert index(gone).resolve("fix tests").session_id == gone.session_id
    assert len(candidates(index(*(session(n, "A") for n in range(300))), "a")) == 10


@pytest.mark.parametrize(
    ("ref", "name", "how"),
    [
        ("confirm buton refactor", BUTTON.name, "fuzzy"),
        ("cofirm button refactro", BUTTON.name, "fuzzy"),
        ("button", BUTTON.name, "search"),
        ("refac", BUTTON.name, "search"),
        ("oauth-upgrade", LOGIN.name, "search"),
        ("phase-3", PHASE_3.name, "search"),
        ("fix-issue-123", "Fix issue #123", "name"),
        ("kubernetes 1.33", "Kubernetes upgrade to 1.33", "search"),
        ("login tests", "Login test of the app", "search"),
        ("plan the sprints", "Plan the sprint of may", "search"),
        ("東京旅行", "家族の東京旅行の計画", "search"),
        ("mfc harness", "细节在dll里完成的、不是你要做的 + MFC, Switch, Harness", "search"),
        ("queue retries", "Mails do not arrive at all + worker, queue, retries", "search"),
    ],
)
def test_an_unambiguous_partial_name_resolves(ref: str, name: str, how: str) -> None:
    """S0.48, S0.49: part of a name, or a misspelled one, that fits only one session."""
    rows = (session(8, name), *(session for session in FEW if session.name != name))
    with searched(*rows) as resolve:
        match = resolve(ref)
        assert (match.session_id, match.how) == (rows[0].session_id, how)
        assert (match.score is not None) == (how == "fuzzy")
        if how != "name":
            assert candidates(resolve, ref, fuzzy=False)[0] == name


def test_several_near_names_are_ambiguous() -> None:
    """S0.49: candidates are listed best first."""
    with searched(*FEW) as resolve:
        assert {*candidates(resolve, "parser rewrite")} == {PHASE_2.name, PHASE_3.name}
        assert candidates(resolve, "phase 2 parsr")[0] == PHASE_2.name
    longer = session(7, "Confirm button refactor of the checkout dialogs")
    with searched(BUTTON, longer) as resolve:
        assert resolve("confirm buttn refactor").session_id == BUTTON.session_id
        assert len(candidates(resolve, "confirm button")) == 2


def test_a_word_of_another_name_is_no_typo() -> None:
    """S0.49: what was typed right is not taken for a slip of another name."""
    meant = session(8, "Fix route tests on Windows")
    with searched(session(7, "Fix router tests"), meant) as resolve:
        assert resolve("fix route tests").session_id == meant.session_id
    assert (
        candidates(index(session(1, "Debug auth"), session(2, "OAuth chart")), "debug oauth") == []
    )


NEVER_EACH_OTHER = [
    ("Convert JPG to PNG", "Convert PNG to JPG"),
    ("Release 2025-01-10", "Release 2025-10-01"),
    ("Release 2025", "Release 2025-10-01"),
    ("Upgrade to 1.2", "Upgrade to 1.2.3"),
    ("Upgrade to 1.11", "Upgrade to 11.1"),
    ("Sprint 12 planning", "Sprint 1 2 planning"),
    ("Crash of issue 123", "Crash of issue 1234"),
    ("Api v2 errors", "Api v3 errors"),
    ("Export users from CSV", "Import users from CSV"),
    ("Decrease timeout", "Increase timeout"),
    ("Unconfirm button refactor", "Confirm button refactor"),
    ("Rerender the list", "Render the list"),
    ("Macroservice layout", "Microservice layout"),
    ("Hypertension notes", "Hypotension notes"),
    ("Enable dark mode", "Disable dark mode"),
    ("Thursday standup", "Tuesday standup"),
    ("Spring planning", "Sprint planning"),
    ("Deploy with docker", "Deploy without docker"),
    ("Server migration", "Serverless migration"),
    ("Deploy on friday", "Do not deploy on friday"),
    ("Author page crash", "Auth page crash"),
    ("New page", "EventBus page"),
    ("Transition of states", "Translation of states"),
    ("Полный отчёт", "Неполный отчёт"),
    ("完成の機能", "未完成の機能"),
    ("C parser", "C++ parser"),
    ("C# parser", "C++ parser"),
]


@pytest.mark.parametrize("pair", NEVER_EACH_OTHER, ids=lambda pair: slug(pair[0]))
def test_a_name_is_never_its_near_opposite(pair: tuple[str, str]) -> None:
    """S0.49: in both directions, as a slug and as written, with one candidate and with both."""
    for meant, there in (pair, pair[::-1]):
        one, other = session(1, meant), session(2, there)
        with searched(other) as resolve:
            for ref in (meant, meant.upper(), *([] if "C" in meant[0] else [slug(meant)])):
                assert set(candidates(resolve, ref)) <= {there}
                assert set(candidates(resolve, ref, cwd=HERE)) <= {there}
                assert index(one, other).resolve(ref).session_id == one.session_id


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("convert-jpg-to-png", "Convert PNG to JPG"),
        ("refactor-confirm-button", "Confirm button refactor"),
        ("12", "Sprint 12 planning"),
    ],
)
def test_the_only_near_name_is_offered_and_not_taken(ref: str, name: str) -> None:
    """S0.49: a name that is not near enough is a candidate, in any project."""
    for cwd in (HERE, BESIDE):
        with (
            searched(session(1, name, cwd=cwd), session(2, "Something else")) as resolve,
            pytest.raises(AmbiguousError, match="did you mean this one") as raised,
        ):
            resolve(ref, cwd=HERE)
        assert [(candidate["name"], candidate["cwd"]) for candidate in raised.value.candidates] == [
            (name, cwd)
        ]


@pytest.mark.parametrize(
    "prompt",
    [
        "please look at @@confirm-button and tell me what was decided",
        "@@Confirm-Button-Refactor: what was decided?",
        '@@"Confirm button re',
        f"continue @@{BUTTON.session_id} and its @@confirm-button~1, please",
    ],
)
@pytest.mark.parametrize("ref", ["confirm button refactor", "confirm-buton-refactor", "button"])
def test_a_prompt_that_refers_to_a_session_is_not_that_session(prompt: str, ref: str) -> None:
    """S0.49: a reference in a first message is not part of that session's names."""
    later = [session(20 + n, prompt, ago=-60 * n, named=False) for n in range(3)]
    with searched(BUTTON, *later) as resolve:
        assert resolve(ref, cwd=HERE).session_id == BUTTON.session_id
    with searched(later[0]) as resolve, pytest.raises(NotFoundError):
        resolve(ref)


def test_a_name_elsewhere_is_meant_before_a_text_here() -> None:
    """A session that only mentions the words does not hide the one that is named so."""
    named = session(24, "Flat file branch", cwd=BESIDE)
    with searched(named, BUTTON, last="Not a flat file.") as resolve:
        assert resolve("flat-file", cwd=HERE).session_id == named.session_id
        assert resolve("flat-file", cwd=BESIDE).session_id == named.session_id


def test_a_word_of_a_description_alone_offers_nothing() -> None:
    """S0.48: of one word, only sessions whose name or first prompt has it are near."""
    with searched(BUTTON, last="Not a flat file.") as resolve:
        with pytest.raises(NotFoundError):
            resolve("flat")
        assert candidates(resolve, "flat file", fuzzy=False) == [BUTTON.name]


def test_the_asking_session_is_not_resolved_by_its_own_words() -> None:
    """A session whose own first words are the name is skipped, unless its id is given."""
    asking = session(23, "Confirm button refactor", named=False)
    with searched(BUTTON, PHASE_2, asking) as resolve:
        for ref in ("confirm button refactor", "confirm-buton-refactor"):
            assert len(candidates(resolve, ref)) == 2
            for where in (None, HERE):
                found = resolve(ref, cwd=where, exclude=asking.session_id)
                assert found.session_id == BUTTON.session_id
        assert resolve(asking.session_id, exclude=asking.session_id).how == "id"
        with pytest.raises(NotFoundError):
            resolve(asking.session_id[:8], exclude=asking.session_id)
