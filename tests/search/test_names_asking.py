"""core/names: what a reference means while other sessions hold references and their words."""

from __future__ import annotations

import pytest

from indexerd.errors import AmbiguousError, NotFoundError
from tests.search.names_known import BUTTON, HERE, PHASE_2, index, session

ASKING = "please look at @@confirm-button and tell me what was decided"


@pytest.mark.parametrize(
    "prompt",
    [
        ASKING,
        "@@confirm-button",
        "@@Confirm-Button-Refactor: what was decided?",
        '@@"Confirm button refactor" go on there',
        '@@"Confirm button re',
        f"continue @@{BUTTON.session_id} and its @@confirm-button~1, please",
    ],
)
@pytest.mark.parametrize(
    "ref", ["confirm button refactor", "confirm-button", "confrim-buton", "button", "refactor"]
)
def test_a_prompt_that_refers_to_a_session_is_not_that_session(prompt: str, ref: str) -> None:
    """S0.49: a reference in a session's first message is no part of what it answers to."""
    later = [session(20 + n, prompt, ago=-60 * n, named=False) for n in range(3)]
    names = index(BUTTON, *later)
    assert names.resolve(ref, cwd=HERE).session_id == BUTTON.session_id
    for one in later:  # also as the daemon learns of them, one by one
        names.put(one._replace(modified=one.modified + 1))
        names.forget(one.session_id)
    assert names.resolve(ref).session_id == BUTTON.session_id
    assert index(*later[:1]).complete(now=0)[0]["label"] == prompt[:59].rstrip() + (
        "…" if len(prompt) > 60 else prompt[59:60]
    )
    with pytest.raises(NotFoundError):
        index(*later[:1]).resolve(ref)


def test_the_other_words_of_such_a_prompt_still_name_it() -> None:
    """What stands beside a reference is the session's own, and still names it."""
    one = session(21, ASKING, named=False)
    other = session(22, "mail admin@@example about quotas", named=False)
    names = index(BUTTON, one, other)
    assert names.resolve("tell me what was decided").session_id == one.session_id
    assert names.resolve("please look at and tell me what was decided").how == "name"
    assert names.resolve("quotas").session_id == other.session_id


def test_the_session_that_asks_is_not_what_it_asks_for() -> None:
    """A session whose own first words are the name it asks for is passed over, but by its id."""
    asking = session(23, "Confirm button refactor", named=False)
    names = index(BUTTON, PHASE_2, asking)
    for ref in ("confirm button refactor", "confirm-buton-refactor", "confirm-button"):
        with pytest.raises(AmbiguousError):
            names.resolve(ref)
        for where in (None, HERE):
            found = names.resolve(ref, cwd=where, exclude=asking.session_id)
            assert found.session_id == BUTTON.session_id
    assert names.resolve(asking.session_id, exclude=asking.session_id).how == "id"
    with pytest.raises(NotFoundError):
        names.resolve(asking.session_id[:8], exclude=asking.session_id)
    with pytest.raises(NotFoundError):
        index(asking).resolve("button", exclude=asking.session_id)
    assert names.resolve("phase 2", exclude="unknown").session_id == PHASE_2.session_id


def test_a_prefix_that_the_asking_session_shares_is_ambiguous() -> None:
    """S1.44: ids made in the same hour begin alike; who asks does not make one of them unique."""
    rows = [session(n, f"Name {n}")._replace(session_id=f"019a8b3c-{n}") for n in range(2)]
    with pytest.raises(AmbiguousError) as raised:
        index(*rows).resolve("019a8b3c", exclude=rows[0].session_id)
    ids = [one["sessionId"] for one in raised.value.candidates]
    assert ids == [rows[1].session_id, rows[0].session_id]


def test_a_named_session_among_first_messages_is_never_mistaken() -> None:
    """S0.49: ten unnamed sessions share its words: the whole name or an error, no other one."""
    chatter = [
        "the confirm button does nothing on mobile",
        "make the confirm button green",
        "confirm button refactor, part two please",
        "refactor the dialog but keep the confirm button",
        "why is there a confirm button at all",
        "can you refactor our button component",
        "confirm before refactor",
        "Refactor: button, confirm, cancel",
        "confirm button",
        "button refactor",
    ]
    rows = [session(30 + n, text, named=False, ago=-n) for n, text in enumerate(chatter)]
    names = index(BUTTON, *rows)
    for ref in ("Confirm button refactor", "confirm-button-refactor", "confirm-buton-refactor"):
        assert names.resolve(ref).session_id == BUTTON.session_id
    for ref in ("confirm", "button", "refactor", "confirm refactor", "refactor button confirm"):
        with pytest.raises(AmbiguousError):
            names.resolve(ref)
