"""Questions that are refused or cut short: their shape, their number, files that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import (
    AmbiguousError,
    CallLimitError,
    NotFoundError,
    ProviderError,
    SessionEmptyError,
    SessionUnreadableError,
    UsageError,
)
from indexerd.models.extractive import Extractive
from indexerd.references.question_prompt import QUESTION_MAX
from indexerd.references.turns import TURNS_MAX, Turns
from indexerd.store.catalog import SearchText
from tests.models.question_desk import GOOD, Desk, desks, made


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A session of two turns."""
    yield from desks(tmp_path)


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["", " \n\x1b[0m\u200b", "x" * (QUESTION_MAX + 1)])
def test_a_question_has_words_and_an_end(desk: Desk, question: str) -> None:
    """S0.60: 1 to 4,000 characters, once it is cleaned."""
    model = desk.scripted(GOOD)
    bad = desk.fails(question)
    assert isinstance(bad, UsageError)
    assert (bad.upstream, model.calls) == ("INVALID_ARGS", [])
    assert desk.ask("x" * QUESTION_MAX)["confidence"] == "high"


def test_questions_of_a_turn_are_counted(desk: Desk) -> None:
    """S0.64: so many for a turn, local models as well; without a turn, as many as you like."""
    desk.models = [Extractive()]
    desk.ask(turn_id="t1")
    bad = desk.fails(turn_id="t1")
    assert isinstance(bad, CallLimitError)
    assert bad.upstream == "CALL_LIMIT_EXCEEDED"
    desk.ask(turn_id="t2")
    desk.ask()
    desk.ask()
    desk.settings = made(query={"max_calls_per_turn": 2})
    desk.ask(turn_id="t1")
    assert isinstance(desk.fails(turn_id="t1"), CallLimitError)


def test_what_fails_before_a_call_does_not_count(desk: Desk) -> None:
    """S0.64: counted just before the model is called; a call that fails counts."""
    desk.settings = made(budget={"daily_calls": 0})
    desk.scripted(ProviderError("down"), GOOD)
    for leaf, kind in (("nope", "not_found"), (None, "budget_exhausted")):
        assert desk.fails(turn_id="t", leaf=leaf).kind == kind
    desk.settings = made()
    assert desk.fails(turn_id="t").kind == "provider_unavailable"
    assert desk.fails(turn_id="t").kind == "call_limit_exceeded"


def test_several_questions_at_once_do_not_slip_through(desk: Desk) -> None:
    """S0.64: of five questions of one turn one is answered."""
    desk.models = [Extractive()]
    questions = desk.open()

    async def five() -> list[Any]:
        asked = (questions.answer(desk.session.id, "Why?", turn_id="t") for _ in range(5))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    kinds = sorted(type(one).__name__ for one in asyncio.run(five()))
    assert kinds == [*["CallLimitError"] * 4, "dict"]


def test_the_built_in_model_says_where_it_stopped_looking(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4: in the answer itself, and in words of its own bound; with a daemon and without."""
    monkeypatch.setattr("indexerd.references.ask.LOCAL_BYTES", 3000)
    for n in range(40):
        desk.session.turn(f"Question {n}?", "word " * 60)
    desk.models = [Extractive()]
    found = desk.ask("words of question 39?")
    told = "Only the most recent 0.003 MB of the conversation were looked through."
    assert found["notes"] == [told]
    assert found["answerMarkdown"].split("\n\n")[0].endswith(f" best. {told}")


def test_escape_sequences_hide_nothing_from_a_question(desk: Desk) -> None:
    """X9: a word is found, and cited, whatever colour it was printed in."""
    desk.session.turn("What was printed?", "The \x1b[31mgizmo\x1b[0m hums... and `rests`.")
    desk.models = [Extractive()]
    (cited,) = desk.ask("gizmo")["citations"]
    assert cited["excerpt"] == "The gizmo hums... and `rests`."


def test_turns_are_not_remembered_for_ever() -> None:
    """S0.64: bounded; the turn asked in longest ago is forgotten."""
    turns = Turns()
    for n in range(TURNS_MAX):
        turns.take(f"t{n}", 1)
    with pytest.raises(CallLimitError):
        turns.take("t0", 1)
    turns.take("new", 1)
    turns.take("t1", 1)
    with pytest.raises(CallLimitError):
        turns.take("t0", 1)
    turns.give_back("t0")
    turns.take("t0", 1)


# -- failures ------------------------------------------------------------------------------------


def gone(desk: Desk) -> None:
    """The file was deleted, and nobody has noticed yet."""
    desk.session.path.unlink()


def changed(desk: Desk) -> None:
    """The file is another one now."""
    desk.session.path.write_bytes(b"{not json}\n" * 500)


def torn(desk: Desk) -> None:
    """All that is left is shorter than the first line was."""
    desk.session.path.write_bytes(b"{not json}\n")


def beheaded(desk: Desk) -> None:
    """The first line is left, and what follows is no JSON."""
    head = desk.session.path.read_bytes().splitlines()[0]
    desk.session.path.write_bytes(head + b"\n" + b"{not json}\n" * 500)


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize(
    ("do", "code", "retryable"),
    [
        (gone, "FILE_MISSING", False),
        (changed, "PARSE_FAILED", True),
        (torn, "PARSE_FAILED", True),
        (beheaded, "PARSE_FAILED", True),
    ],
)
def test_a_file_that_cannot_be_read(
    desk: Desk,
    do: Callable[[Desk], None],
    code: str,
    retryable: bool,
    noticed: bool,
) -> None:
    """S0.64: gone, or no session any more: two codes, the same before and after it is noticed."""
    model = desk.scripted(GOOD)
    desk.open()
    do(desk)
    if noticed:
        list(desk.library.hinted([str(desk.session.path)]))
    bad = desk.fails()
    assert isinstance(bad, SessionUnreadableError)
    assert (bad.upstream, bad.retryable) == (f"SESSION_{code}", retryable)
    assert model.calls == []


def test_a_session_without_a_word(tmp_path: Path) -> None:
    """S0.64: there is nothing to ask about."""
    with ExitStack() as stack:
        desk = Desk(tmp_path, stack)
        desk.session.entry("session_info", name="quiet")
        desk.session.say("assistant", "", stopReason="toolUse")
        model = desk.scripted(GOOD)
        bad = desk.fails()
        assert isinstance(bad, SessionEmptyError)
        assert (bad.upstream, model.calls) == ("SESSION_EMPTY", [])
        assert bad.hint == "there is no conversation in it yet"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"session": "SELF"},
        {"session": "", "question": "x"},
        {"session": "SELF", "question": 7},
        {"session": "SELF", "question": ""},
        {"session": "SELF", "question": "x", "leaf": 7},
        {"session": "SELF", "question": "x", "turnId": ["t"]},
        {"session": "SELF", "question": "x", "turnId": ""},
        {"session": "SELF", "question": "x", "turnId": "t" * 1001},
    ],
)
def test_params_of_the_wrong_shape(desk: Desk, params: dict[str, Any]) -> None:
    """S0.64: usage, with the original tool's code."""
    desk.scripted(GOOD)
    given = {key: desk.session.id if one == "SELF" else one for key, one in params.items()}
    with pytest.raises(UsageError) as caught:
        desk.call(**given)
    assert caught.value.upstream == "INVALID_ARGS"


def test_the_method_takes_references(desk: Desk) -> None:
    """S0.60: an id, its beginning, a name; an unknown one has a code."""
    desk.scripted(GOOD, GOOD, GOOD)
    for ref in (desk.session.id, desk.session.id[:13], "where do alerts go?"):
        assert desk.call(session=ref, question="Why?", extra=1)["sessionId"] == desk.session.id
    with pytest.raises(NotFoundError) as caught:
        desk.call(session="0" * 36, question="Why?")
    assert caught.value.upstream == "SESSION_NOT_FOUND"
    assert caught.value.data()["upstream"] == "SESSION_NOT_FOUND"


def test_several_sessions_of_one_name_are_an_error(desk: Desk) -> None:
    """S0.64: never a silent pick; the candidates go with the error."""
    desk.scripted(GOOD)
    desk.open()
    row = desk.library.catalog.get(desk.session.id)
    assert row is not None
    desk.library.catalog.put([(row | {"sessionId": "1" * 36}, SearchText())])
    with pytest.raises(AmbiguousError) as caught:
        desk.call(session="where do alerts go?", question="Why?")
    data = caught.value.data()
    assert (data["upstream"], len(data["candidates"])) == ("SESSION_AMBIGUOUS", 2)


def kinds(rows: Sequence[dict[str, Any]]) -> set[str]:
    """The custom types of telemetry."""
    return {row["customType"] for row in rows}


def test_nothing_is_kept(desk: Desk) -> None:
    """S0.66: no file of ours but the books and the telemetry, and the session's own as it was."""
    before = desk.session.path.read_bytes()
    desk.scripted(GOOD)
    desk.ask()
    assert desk.session.path.read_bytes() == before
    files = {path.name for path in desk.root.rglob("*") if path.is_file()}
    assert files == {desk.session.path.name, "budget.jsonl", "telemetry.jsonl"}
    assert kinds(desk.telemetry()) == {"query-session:query_session"}
    assert "alerts" not in (desk.root / "budget.jsonl").read_text()
