"""core/query and core/query_pattern: what a search asks for, and how it is found in a text."""

from __future__ import annotations

import re
import sqlite3
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexerd.search import query_pattern
from indexerd.search.query import (
    MATCH_TOKENIZER,
    SNIPPET_MAX,
    TERMS_MAX,
    fold,
    parse,
    segment,
    shown,
)
from indexerd.search.query_pattern import WINDOW_MAX, vetted

TYPED = st.text(st.characters(), max_size=60) | st.text('ab "*:^(){}-+\0_.\u0e01検é', max_size=20)


def stored(*texts: str) -> sqlite3.Connection:
    """Texts in a table like the catalog's."""
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5 (text, tokenize='{MATCH_TOKENIZER}')")
    db.executemany("INSERT INTO t VALUES (?)", [(segment(text),) for text in texts])
    return db


def found(query: str, *texts: str, widen: bool = False) -> list[str]:
    """Which of some texts a query finds."""
    db = stored(*texts)
    try:
        match = parse(query).match(column="text", widen=widen)
        rows = db.execute("SELECT text FROM t WHERE t MATCH ? ORDER BY rowid", (match,)).fetchall()
    finally:
        db.close()
    return [shown(text) for (text,) in rows]


def test_bare_words_must_all_match_in_any_order() -> None:
    """S1.44: words without quotes are all looked for, wherever they stand."""
    texts = ("the button to confirm", "confirm only", "button only")
    assert found("confirm button", *texts) == ["the button to confirm"]


def test_a_quoted_phrase_must_stand_as_it_is() -> None:
    """S1.44: a quoted phrase is looked for as such."""
    texts = ("confirm the button", "button the confirm", "Confirm, the BUTTON")
    assert found('"confirm the button"', *texts) == [texts[0], texts[2]]


def test_a_word_with_signs_in_it_is_a_phrase() -> None:
    """A file's name is found as one thing, not as three words anywhere."""
    texts = ("see core/file_name.py", "name the file of py", "FILE NAME PY")
    assert found("file_name.py", *texts) == [texts[0], texts[2]]


def test_an_unbalanced_quote_is_no_quote() -> None:
    """A half-typed phrase searches for its words."""
    assert parse('"confirm butt').terms == ("confirm", "butt")
    assert parse('oak "elm ash" "fir').terms == ("oak", "elm", "ash", "fir")


@pytest.mark.parametrize(
    ("query", "open_end"),
    [
        ("conf", True),
        ("con", True),
        ("co", False),
        ("the conf", True),
        ("conf.", False),
        ('"the conf"', False),
        ("x_yz", False),
        ("x_yzo", True),
    ],
)
def test_only_the_last_bare_word_may_go_on(query: str, *, open_end: bool) -> None:
    """The word being typed may be a beginning, if it is long enough to tell something."""
    assert parse(query).open_end is open_end


def test_a_beginning_finds_longer_words_only_when_widened() -> None:
    """Whole words first: "conf" stands for "config" only where that is asked for."""
    texts = ("conf here", "config here", "here conf")
    assert found("here conf", *texts) == [texts[0], texts[2]]
    assert found("here conf", *texts, widen=True) == list(texts)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("搜索功能已经添加", "功能"),
        ("検索機能を追加しました", "機能"),
        ("検索機能を追加しました", "を"),
        ("검색 기능을 추가했다", "기능"),
        ("เพิ่มฟังก์ชันค้นหา", "ค้นหา"),
        ("API検索の実装", "api"),
        ("API検索の実装", "API検索"),
        ("𠮷野家で", "𠮷野"),
        ("プログラム", "ログ"),
    ],
)
def test_text_without_spaces_is_found_by_any_part(text: str, query: str) -> None:
    """Words of two characters, and even of one, are found in Chinese, Japanese, Korean, Thai."""
    assert found(query, text, "something else") == [unicodedata.normalize("NFC", text)]


def test_parts_that_do_not_stand_together_are_not_found() -> None:
    """Cutting a text into characters does not make every character a match."""
    assert found("能機", "検索機能を追加しました") == []


@pytest.mark.parametrize(
    ("text", "query"), [("Café olé", "cafe"), ("cafe", "CAFÉ"), ("Cafe\u0301", "café")]
)
def test_case_and_diacritics_do_not_count(text: str, query: str) -> None:
    """However a letter is written or composed, it is the same letter."""
    assert len(found(query, text)) == 1


@given(TYPED)
@example('" OR text:x NEAR(')
@example("*")
@example("\ud800 x")
@example("a\0b")
def test_whatever_is_typed_is_a_query_that_sqlite_takes(text: str) -> None:
    """No text makes SQLite raise: every character of the user's is quoted or gone."""
    asked = parse(text)
    assert not (asked.terms and asked.pattern)
    assert asked.terms or asked.pattern or asked.problem
    if asked.terms:
        db = stored("one text")
        try:
            for widen in {False, asked.open_end}:
                match = asked.match(column="text", widen=widen)
                db.execute("SELECT rowid FROM t WHERE t MATCH ?", (match,)).fetchall()
        finally:
            db.close()


@given(st.text(st.characters(), max_size=80))
def test_folding_keeps_every_place(text: str) -> None:
    """Places found in the folded text are places in the text itself."""
    assert len(fold(text)) == len(text)


def test_a_character_is_folded_alike_wherever_it_stands() -> None:
    """Issue 9: what is replaced kind by kind is what a look at every character gives.

    Every character that has a case, alone with an ASCII letter, and among more than are replaced.
    """
    every = [chr(code) for code in range(0x20000)]
    alone = [fold(f"A{one}") for one in every]
    among = fold("".join(every))
    assert alone == [f"a{one}" for one in among]
    assert fold("Straße ÜNÏ İ") == "straße uni i"
    assert [one for one in among if fold(f"a{one}") != f"a{one}"] == []  # in whatever order


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_cuts_come_out_as_they_went_in(text: str) -> None:
    """What is shown is what was stored, in composed form and without zero-width spaces."""
    assert shown(segment(text)) == unicodedata.normalize("NFC", text.replace("\u200b", ""))


def test_a_snippet_shows_the_words_where_they_stand_together() -> None:
    """The best place of a long text is shown, not its beginning, with the words marked."""
    text = (
        "token once. " + "filler words " * 60 + "the Refresh token of the session. " + "end " * 80
    )
    shown_text = parse("refresh token").finder().snippet(segment(text))
    assert "«Refresh» «token»" in shown_text
    assert len(shown_text) <= SNIPPET_MAX
    assert shown_text.startswith("…")
    assert shown_text.endswith("…")


def test_a_snippet_marks_characters_of_text_without_spaces() -> None:
    """Cuts do not show, and marks are in the right place."""
    text = segment("検索機能を追加しました")
    assert parse("機能").finder().snippet(text) == "検索«機能»を追加しました"


@given(st.text(st.characters(), max_size=600) | st.text("ab\n検 \x1b\u202e", max_size=600), TYPED)
def test_a_snippet_is_short_and_safe(text: str, query: str) -> None:
    """A snippet has at most 200 characters and none that would steer a terminal."""
    asked = parse(query)
    snippet = asked.finder(widen=asked.open_end).snippet(segment(text))
    assert len(snippet) <= SNIPPET_MAX
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", snippet)


@given(st.lists(st.sampled_from(["ab", "cd", "xab", "abx", ",", "\n"]), max_size=30))
def test_words_are_counted_whole(words: list[str]) -> None:
    """A word inside another is not counted, except as a beginning where that is asked for."""
    text = " ".join(words)
    asked = parse("cd ab")
    assert asked.finder().counts(text) == [words.count("cd"), words.count("ab")]
    assert asked.finder(widen=True).counts(text)[1] == words.count("ab") + words.count("abx")


def test_a_query_of_signs_is_searched_for_as_it_stands() -> None:
    """What has no letter or digit is not lost: `=>` is looked for literally."""
    pattern = parse("=>").pattern
    assert pattern is not None
    assert list(pattern.attempts("a => b")) == [(2, 4)]
    assert list(pattern.attempts("a = > b")) == []


def test_too_much_is_cut_and_said() -> None:
    """The worst query costs as much as the longest allowed one, and the user is told."""
    asked = parse("word " * 5000)
    assert len(asked.terms) <= TERMS_MAX
    assert asked.problem
    assert parse("").problem
    assert parse("re:").problem


@pytest.mark.parametrize(
    "hostile",
    [
        "(a+)+b",
        "(a|aa)+b",
        "(a*)*",
        "(?:a|b|ab)*c",
        "(\\w+\\s?)*$",
        "a?" * 30 + "a" * 30,
        "(a?){25}b",
        ".*.*.*.*x",
        "(x+x+)+y",
        "a*b?" * 6 + "x",
        "(.)\\1*(.)\\2*$",
        "(((^){9999}){9999}){9999}",
        "(?a)\\w+\\W+x",
    ],
)
def test_a_pattern_that_could_run_away_is_refused(hostile: str) -> None:
    """S1.44: patterns cannot hang the daemon; those that might are refused with the reason."""
    asked = parse("re:" + hostile)
    assert asked.pattern is None
    assert asked.problem
    assert asked.problem.startswith("re: ")


@pytest.mark.parametrize("bad", ["[", "(", "*a", "a{2,1}", "(?P<n", "\\", "(?z)"])
def test_a_bad_pattern_says_so(bad: str) -> None:
    """S1.44: a bad expression gives an error text and nothing to search for."""
    asked = parse("re:" + bad)
    assert asked.pattern is None
    assert "regular expression" in (asked.problem or "")


@pytest.mark.parametrize(
    ("pattern", "text", "place"),
    [
        (r"error|warning", "a Warning", "Warning"),
        (r"\bfoo\w+", "x foobar", "foobar"),
        (r"(\w+)\s+error", "parse  error", "parse  error"),
        (r"(\d{1,3}\.){3}\d{1,3}", "at 127.0.0.1:80", "127.0.0.1"),
        (r"class .*\(.*\):", "class A(B):", "class A(B):"),
        (r"(\w+\.)+py", "in a.b.c.py", "a.b.c.py"),
        (r"\w+ = \w+\(.*\)", "x = f(1)", "x = f(1)"),
        (r'"[^"]*"', 'say "hi"', '"hi"'),
        (r"https?://\S+", "see http://x/y z", "http://x/y"),
        (r"x*", "aaxx", "xx"),
        (r"(?=f)foo", "foo", "foo"),
    ],
)
def test_ordinary_patterns_find_what_re_finds(pattern: str, text: str, place: str) -> None:
    """Vetting leaves the usual patterns alone."""
    spans = [span for span in vetted(pattern).attempts(text) if span]
    assert [text[lo:hi] for lo, hi in spans] == [place]


@pytest.mark.parametrize("pattern", [r"needle\w*", r".*needle", r"(?:n|m)eedle!"])
def test_a_place_far_into_a_long_text_is_found(pattern: str) -> None:
    """A text longer than a pattern's window is looked through in overlapping pieces."""
    for before in (0, 100, 1023, 1024, 2047, 2048, 5000, 65_535):
        text = "\n" * before + "needle!" + "\n" * 70_000
        spans = [span for span in vetted(pattern).attempts(text) if span]
        assert len(spans) == 1
        assert "needle" in text[slice(*spans[0])]


def test_only_texts_with_the_pattern_s_plain_part_are_tried() -> None:
    """A text without the letters that every match must hold costs no attempt."""
    pattern = vetted(r"\w+_token=.*")
    assert list(pattern.attempts("no such thing here")) == []
    assert list(pattern.attempts("MY_TOKEN=1")) == [(0, 10)]


PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", r"\w", r"\s", "(", "(?:", ")", "|", "*", "+", "?", "{2}", "{1,3}", "^"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=12).map("".join))
@example("a*a*b")
@example("(a*b?)(a*b?)c")
@example(r"(?:a?b{1,3}){2}\s")
def test_whatever_is_let_through_ends(text: str) -> None:
    """S1.44: what vetting lets through ends soon, on the worst texts of a window's length."""
    try:
        pattern = vetted(text)
    except ValueError:
        return
    assert pattern.window <= WINDOW_MAX
    for worst in ("a", "ab", "aab ", "b"):
        hostile = (worst * pattern.window)[: pattern.window]
        assert len(list(pattern.attempts(hostile))) <= 3


def test_classes_of_characters_are_those_of_re() -> None:
    r"""The bound stands on this: \d, \w and \\s split all characters as the vetting thinks."""
    letter, digit, space = re.compile(r"\w"), re.compile(r"\d"), re.compile(r"\s")
    for code in range(0x3000):
        char, kind = chr(code), query_pattern._class_of(code)
        assert bool(digit.match(char)) == (kind == query_pattern._DIGITS)
        assert bool(space.match(char)) == (kind == query_pattern._SPACES)
        words = (query_pattern._DIGITS, query_pattern._LETTERS)
        assert bool(letter.match(char)) == (kind in words)
