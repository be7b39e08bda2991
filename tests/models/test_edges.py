"""The edges of small decisions: the last line of a limit, the second of two names."""

from __future__ import annotations

import pytest

from indexerd.digests.spoken import conversation, summed
from indexerd.digests.talk import taken
from indexerd.errors import UsageError
from indexerd.events import Kind
from indexerd.meta.context_sets import absolute
from indexerd.models import heard, phrases, sentences
from indexerd.privacy.redact import redact
from indexerd.protocol import wire
from indexerd.search.names_fuzzy import Judge
from indexerd.sessions.transforms import TEXT_MAX, rules_of
from tests.sessions.speeches import said, state_of


def test_an_empty_line_is_a_line_that_is_ready() -> None:
    """It is answered as what it is, and does not stop the lines behind it."""
    lines = wire.Lines(10)
    lines.feed(b"\nab\n")
    assert lines.ready
    assert lines.take() == b""
    assert lines.ready
    assert lines.take() == b"ab"
    assert not lines.ready


def test_a_rules_text_may_be_as_long_as_is_said_and_no_longer() -> None:
    """And it says something."""
    for text in ("x", "x" * TEXT_MAX):
        assert rules_of([{"rule": "summary", "text": text}])
    for text in ("", "x" * (TEXT_MAX + 1)):
        with pytest.raises(UsageError, match=r"text is a text of at most"):
            rules_of([{"rule": "summary", "text": text}])


def test_a_file_is_below_the_sessions_directory_whatever_that_is_called() -> None:
    """Only slashes at its end are taken off."""
    for cwd in ("/w/X", "/w/X/", "/w/X//"):
        assert absolute(cwd, "a.py") == "/w/X/a.py"
        assert absolute(cwd, "./a.py") == "/w/X/a.py"


def test_a_mark_that_is_talked_about_ends_no_sentence() -> None:
    """The full stop after it does."""
    text = "It ends with `?` Then more words follow here. And more."
    assert phrases.sentences(text) == [
        "It ends with `?` Then more words follow here.",
        "And more.",
    ]


def test_an_agents_summaries_belong_to_no_message() -> None:
    """Neither of what was compacted nor of a branch that was left."""
    roles = ("user", "branchSummary", "compactionSummary", "assistant")
    kinds = {"branchSummary": Kind.BRANCH_SUMMARY, "compactionSummary": Kind.COMPACTION}
    speeches = [said(role, f"by {role}", kind=kinds.get(role)) for role in roles]
    assert len(summed(speeches, state_of(1), "pi")) == len(roles)
    found = [*conversation(speeches, state_of(1), "pi")]
    assert [one.role for one in found] == ["user", "assistant"]


@pytest.mark.parametrize(
    "word", ["access", "account", "api", "auth", "encryption", "master", "private", "signing"]
)
def test_a_key_is_a_secret_whatever_it_is_the_key_of(word: str) -> None:
    """In a name of any spelling, and with a quoted value of any kind."""
    for name in (f"{word}_key", f"{word.upper()}_KEY", f"{word}Key", f"MY_{word.upper()}_KEY"):
        for quote in ('"', "'", 'b"', "r'", 'f"', "u'"):
            told = redact(f"{name} = {quote}Zm9vYmFyYmF6cXV4MTIzNDU2{quote[-1]}").text
            assert "Zm9v" not in told, told


@pytest.mark.parametrize("word", ["it", "this", "that", "them"])
def test_what_points_at_something_names_nothing(word: str) -> None:
    """What "fix it" asks for was said before; "fix all" asks for all."""
    said = [("user", f"fix {word}"), ("assistant", "Done."), ("user", "fix all")]
    turns = sentences.read_turns(said, len(said), lambda: None)
    assert [sentences.is_request(turn[0]) for turn in turns if turn[0].user] == [False, True]


@pytest.mark.parametrize("cwd", ["/w", "/w/", "/w//"])
def test_files_are_shown_relative_to_the_session(cwd: str) -> None:
    """Below its directory, however that is written; elsewhere by their whole path."""
    assert sentences.paths(["/w/a/b.py", "/w", "/wide/c.py"], cwd) == ["a/b.py", "/w", "/wide/c.py"]


@pytest.mark.parametrize("end", ["", ".", ",", ":", ".,:"])
def test_code_at_the_end_of_a_sentence_is_no_secret(end: str) -> None:
    """What ends the sentence is no part of a value."""
    for before in ("password: ", "it sends the bearer ", "run it with --password "):
        text = f"{before}first.second.third.part1{end}"
        assert redact(text).text == text


@pytest.mark.parametrize(
    "words",
    [
        *("We decided to use plan 7.", "The decision was plan 7.", "We chose plan 7."),
        *("We will use plan 7.", "I'll use plan 7.", "We are going with plan 7."),
        *("We went with plan 7.", "We agreed on plan 7.", "It must be plan 7."),
        *("Never use plan 7.", "Always use plan 7.", "The root cause is plan 7."),
        *("It turned out to be plan 7.", "Plan 7 instead of 8.", "It is important: plan 7."),
        *("Plan 7 is ruled out.", "Wir haben uns für Plan 7 entschieden.", "Niemals Plan 7."),
        *("計画7に決定した。", "我们决定用计划7。", "必须用计划7。", "必ず計画7を使う。"),
    ],
)
def test_a_decision_is_read_wherever_it_stands(words: str) -> None:
    """Of a long stretch the middle is thinned, and lines of decisions and rules stay."""
    filler = "The importer reads a row and writes a row, and so it goes on.\n" * 40
    said = [("assistant", filler)] * 90
    said[50] = ("assistant", f"{filler}{words}\n{filler}")
    told = heard.thinned(said, lambda: None)
    assert sum(len(text) for _, text in told) < sum(len(text) for _, text in said) / 2
    assert [text for _, text in told if words in text] == [words]


def test_tags_in_what_was_attached_do_not_end_the_reading() -> None:
    """What is enclosed was not said; what follows was, without its tags."""
    text = "Look: <attachment><b>x</b> inner words</attachment> It <b>stops</b> at <i>commas</i>."
    assert phrases.sentences(text) == ["Look:", "It stops at commas."]


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("the proxy wants Basic ", "dXNlcjpwYXNzd29yZDEyMw==", " from us"),
        ("it sends bearer ", "abcDEF1234567890ghiJKL", " along"),
        ("machine example.org login ana password ", "hunter2x", "\n"),
        ("run --password ", "hunter2x9", " now"),
        ("<db:password>", "hunter2x", "</db:password>"),
        ("GET /blob?se=1&sig=", "abcdEFGH1234%2Bijkl5678", "&x=1"),
        ("Cookie: ", "sid=abcDEF1234567890ghiJKL", ""),
    ],
)
def test_a_secret_is_known_by_what_stands_around_it(before: str, secret: str, after: str) -> None:
    """Without a name that it is assigned to; and nothing else goes."""
    told = redact(before + secret + after).text
    assert secret not in told
    assert told.endswith(after)
    assert told.startswith(before)


def test_a_word_that_a_name_has_in_two_is_in_the_name() -> None:
    """A "backup job" is a "job to back up", whichever way the words stand."""
    judge = Judge("backup job", {"backup", "job"})
    assert judge.likes("job back up")
    assert not judge.likes("job back down")


def test_half_a_character_takes_room_and_is_no_error() -> None:
    """What an agent wrote may be cut anywhere."""
    parts = ["ab\ud800", "c"]
    assert taken(parts, 8) == (parts, [])
    assert taken(parts, 7) == (parts[:1], parts[1:])
