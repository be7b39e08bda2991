"""core/names: what is like a name and means something else resolves to nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from indexerd.errors import AmbiguousError, AskError, NotFoundError
from indexerd.search.names import Names, Scope, folded
from tests.search.names_known import BESIDE, HERE, index, session


def slug(name: str) -> str:
    """A name as people write it behind `@@`."""
    return "-".join(re.findall(r"[^\W_]+", name.lower()))


def candidates(names: Names, ref: str, **more: str) -> list[str]:
    """The names that the error offers; none where nothing is near."""
    with pytest.raises((AmbiguousError, NotFoundError)) as raised:
        names.resolve(ref, **more)  # type: ignore[arg-type]  # keywords of the test's own
    found = raised.value
    return [one["name"] for one in found.candidates] if isinstance(found, AmbiguousError) else []


NEVER_EACH_OTHER = [
    ("Convert JPG to PNG", "Convert PNG to JPG"),
    ("Release 2025-01-10", "Release 2025-10-01"),
    ("Release 2025", "Release 2025-10-01"),
    ("Upgrade to 1.2", "Upgrade to 1.2.3"),
    ("Upgrade to 1.11", "Upgrade to 11.1"),
    ("Sprint 12 planning", "Sprint 1 2 planning"),
    ("Api v2 errors", "Api v3 errors"),
    ("Export users from CSV", "Import users from CSV"),
    ("Decrease timeout", "Increase timeout"),
    ("Unconfirm button refactor", "Confirm button refactor"),
    ("Unload file list", "Upload file list"),
    ("Rerender the list", "Render the list"),
    ("Macroservice layout", "Microservice layout"),
    ("Hypertension notes", "Hypotension notes"),
    ("Enable dark mode", "Disable dark mode"),
    ("Deactivate account", "Activate account"),
    ("Maximize window", "Minimize window"),
    ("Thursday standup", "Tuesday standup"),
    ("Spring planning", "Sprint planning"),
    ("Texts of the parser", "Tests of the parser"),
    ("Deploy with docker", "Deploy without docker"),
    ("Server migration", "Serverless migration"),
    ("Deploy on friday", "Do not deploy on friday"),
    ("Forms of the shop", "Fonts of the shop"),
    ("Author page crash", "Auth page crash"),
    ("New page", "EventBus page"),
    ("Transition of states", "Translation of states"),
    ("Полный отчёт", "Неполный отчёт"),
    ("完成の機能", "未完成の機能"),
]


@pytest.mark.parametrize("pair", NEVER_EACH_OTHER, ids=lambda pair: slug(pair[0]))
def test_a_name_is_never_its_near_opposite(pair: tuple[str, str]) -> None:
    """S0.49: in both directions, as a slug and as written, with one candidate and with both."""
    for meant, there in (pair, pair[::-1]):
        one, other = session(1, meant), session(2, there)
        for ref in (slug(meant), meant, meant.upper()):
            assert set(candidates(index(other), ref)) <= {there}
            assert set(candidates(index(other), ref, cwd=HERE)) <= {there}
            assert index(one, other).resolve(ref).session_id == one.session_id


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("convert-jpg-to-png", "Convert PNG to JPG"),
        ("release-2025-01-10", "Release 2025-10-01"),
        ("refactor-confirm-button", "Confirm button refactor"),
        ("in", "Fix memory leak in worker"),
        ("12", "Sprint 12 planning"),
        ("to the", "Port to the new runner"),
    ],
)
def test_the_only_near_name_is_offered_and_not_taken(ref: str, name: str) -> None:
    """S0.49: likeness that is not enough becomes a candidate, wherever its project is."""
    for cwd in (HERE, BESIDE):
        names = index(session(1, name, cwd=cwd), session(2, "Something else"))
        with pytest.raises(AmbiguousError, match="did you mean this one") as raised:
            names.resolve(ref, cwd=HERE)
        (found,) = raised.value.candidates
        assert (found["name"], found["cwd"]) == (name, cwd)
        assert 0 < found["score"] <= 1


def test_near_names_of_the_project_are_offered_first() -> None:
    """S0.68: of several candidates those of the project come first."""
    far, near = session(1, "Increase timeout", cwd=BESIDE), session(2, "Increase timeout of jobs")
    assert candidates(index(far, near), "timeout increase") == [far.name, near.name]
    assert candidates(index(far, near), "timeout increase", cwd=HERE) == [near.name, far.name]


def test_a_short_name_is_found_by_the_whole_of_it() -> None:
    """A reference without a word that says something is enough where it is the whole name."""
    for name in ("in", "12", "C", "of", "C++", "#1"):
        assert index(session(1, name), session(2, f"Fix {name} now")).resolve(name).how == "name"


def test_languages_that_differ_in_signs_stay_apart() -> None:
    """S0.49: "C++" and "C#" are words of their own."""
    rows = {name: session(n, f"{name} parser") for n, name in enumerate(("C", "C++", "C#"))}
    for name, row in rows.items():
        ref = f"{name} parser".lower()
        assert index(*rows.values()).resolve(ref).session_id == row.session_id
        assert index(row).resolve(f"{name} parsr").how == "fuzzy"
        for other in rows.values():
            if other != row:
                assert candidates(index(other), ref) == []


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("fix-issue-123", "Fix issue #123"),
        ("nightly back up", "Nightly backup of the shop"),
        ("nightly backup", "Nightly back up of the shop"),
        ("Confirm button", "Confirm the red button!"),
        ("kubernetes 1.33", "Kubernetes upgrade to 1.33"),
        ("python 3.12 wheels", "Python3.12 wheels of the parser"),
        ("login tests", "Login test of the app"),
        ("plan the sprints", "Planning the sprint of may"),
        ("atuhentication bug", "Authentication bug"),
        ("recieve webhooks", "Receive webhook events"),
        ("東京旅行", "家族の東京旅行の計画"),
        ("сбой входа", "Сбой при входа в систему"),
    ],
)
def test_other_spellings_and_half_names_still_resolve(ref: str, name: str) -> None:
    """S0.48, S0.49: what can mean nothing else is found."""
    other = session(2, "Something else")
    assert index(session(1, name), other).resolve(ref).session_id == session(1, "").session_id


VOCABULARY = """
    import export increase decrease enable disable confirm unconfirm load unload upload png jpg
    to from csv users in 1 2 10 01 12 2025 v1 v2 macro micro test text form from timeout render
    rerender not with without server serverless first last thursday tuesday sprint spring
"""
WORDS = st.sampled_from(VOCABULARY.split())
NAMES = st.lists(WORDS, min_size=1, max_size=5)


def is_part(some: list[str], of: list[str]) -> bool:
    """Whether all these words stand in another list, in order."""
    rest = iter(of)
    return all(word in rest for word in some)


@settings(deadline=None, max_examples=300)
@given(NAMES, st.data())
def test_the_slug_of_a_name_never_means_another_one(there: list[str], data: st.DataObject) -> None:
    """S0.49: opposites, numbers and other orders of words: with only the other there, an error."""
    changed = [*there]
    changed[data.draw(st.integers(0, len(there) - 1))] = data.draw(WORDS)
    written = data.draw(
        NAMES | st.permutations(there) | st.permutations(changed) | st.just(changed)
    )
    assume(not is_part(written, there))
    assume("".join(written) != "".join(there))
    names = index(session(1, " ".join(there), cwd=data.draw(st.sampled_from((HERE, BESIDE)))))
    for ref in (slug(" ".join(written)), " ".join(written)):
        with pytest.raises(AskError):
            names.resolve(ref, cwd=data.draw(st.sampled_from((HERE, None))))


@settings(deadline=None)
@given(NAMES)
@example(["in"])
def test_the_slug_of_a_name_means_it(there: list[str]) -> None:
    """S0.48: whatever its words, a name is found by its slug."""
    name = " ".join(there).capitalize()
    assert folded(slug(name)) == folded(name)
    assert index(session(1, name)).resolve(slug(name)).how == "name"


UNKNOWN = (
    "3f2a9c11-1111-4222-8333-444455556666",
    "3F2A9C11-1111-4222-8333-444455556666",
    "3f2a9c11111142228333444455556666",
    "ses_e000b6961ffeT7Tnu9xbOOY8iN",
    "agent-a17f3c5d9",
)


@pytest.mark.parametrize("ref", UNKNOWN)
@pytest.mark.parametrize("name", ["{}", "continue session {} please", "see {}", "{}x"])
@pytest.mark.parametrize("scope", ["project", "all"])
def test_an_id_that_no_session_has_is_no_name(ref: str, name: str, scope: Scope) -> None:
    """S4.26: a session that speaks of another one is never taken for it, nor offered."""
    names = index(session(1, name.format(ref)), session(2, "Else"))
    for fuzzy in (True, False):
        with pytest.raises(NotFoundError):
            names.resolve(ref, cwd=HERE, scope=scope, fuzzy=fuzzy)
    theirs = session(3, "Theirs")._replace(session_id=ref)
    names.put(theirs)
    assert names.resolve(ref) == (ref, "id", None)
    names.forget(ref)
    names.put(theirs._replace(session_id=f"{ref}_2"))
    assert names.resolve(ref).how == "prefix"


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("confirm-button-refactor", "Confirm button refactor"),
        ("ses_notes_of_the_week", "ses notes of the week"),
        ("agent-deadbeef", "Agent deadbeef"),
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("2026-11-21-10-00-00", "2026-11-21 10:00:00"),
    ],
)
def test_a_name_that_is_one_word_stays_a_name(ref: str, name: str) -> None:
    """S0.48: slugs, dates and commits are no ids of any agent's making."""
    assert index(session(1, name)).resolve(ref).how == "name"


def test_who_changes_something_is_offered_a_fuzzy_name() -> None:
    """S4.26, S0.49: never given it; exact names, ids and their beginnings are taken."""
    meant = session(1, "Confirm button refactor")
    names = index(meant, session(2, "Else"))
    for cwd in (HERE, BESIDE, None):
        assert names.resolve("confirm buton refactor", cwd=cwd).how == "fuzzy"
        with pytest.raises(AmbiguousError) as raised:
            names.resolve("confirm buton refactor", cwd=cwd, fuzzy=False)
        assert [one["sessionId"] for one in raised.value.candidates] == [meant.session_id]
        for ref in (meant.session_id, meant.session_id[:8], "confirm-button-refactor"):
            assert names.resolve(ref, cwd=cwd, fuzzy=False).session_id == meant.session_id
