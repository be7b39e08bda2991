"""How queries are parsed and what they find."""

from collections.abc import Iterator

import pytest

from indexerd.search.index import TextIndex
from indexerd.search.query import SNIPPET_MAX, TERMS_MAX, Finder, parse, snippet
from indexerd.search.ranking import search
from tests.store.rows import say, scratch


@pytest.fixture(scope="module")
def index() -> Iterator[TextIndex]:
    """An index of one session, filled with one text at a time."""
    with scratch() as found:
        yield found


def finds(index: TextIndex, query: str, text: str) -> bool:
    """Whether a query finds a message that has all its terms."""
    say(index, "s1", text)
    found, warnings = search(index, query)
    return any(hit["field"] == "message" for hit in found) and not warnings


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("confirm button", "the button to confirm", True),
        ("confirm button", "confirm only", False),
        ('"confirm the button"', "Confirm, the BUTTON", True),
        ('"confirm the button"', "button the confirm", False),
        ("file_name.py", "see core/file_name.py", True),
        ("file_name.py", "name the file of py", False),
        ("here conf", "config here", True),
        ("cache", "Caching is hard", True),
        ("planned", "the plan", True),
        ("cat", "a category.", True),
        ('"cat" here', "category here", False),
        ("lane", "the lan", False),
        ("where did we fix the parser", "the parser was fixed", True),
        ("功能", "搜索功能已经添加", True),
        ("を", "検索機能を追加しました", True),
        ("能機", "検索機能を追加しました", False),
        ("ค้นหา", "เพิ่มฟังก์ชันค้นหา", True),
        ("API検索", "API検索の実装", True),
        ("𠮷野", "𠮷野家で", True),
        ("cafe", "Café olé", True),
        ("café", "Cafe\u0301", True),
        ("3ef1e8c2", "pushed as 3ef1e8c2abc", True),
        ("=>", "a => b", True),
        ("=>", "a = > b", False),
    ],
)
def test_queries_match_words_in_any_order(
    index: TextIndex, query: str, text: str, *, found: bool
) -> None:
    """S1.44: words in any order, exact phrases, other endings, scripts without spaces."""
    assert finds(index, query, text) is found


def test_an_unbalanced_quote_is_no_quote() -> None:
    """A half-typed phrase searches for its words."""
    assert [term.text for term in parse('"confirm butt').terms] == ["confirm", "butt"]
    assert parse('"').problem
    assert [term.text for term in parse('oak "elm ash" "fir').terms] == ["oak", "elm", "ash", "fir"]


def shown(query: str, text: str) -> str:
    return snippet(text, Finder(parse(query).terms).spans, markdown=False)


def test_a_snippet_shows_the_words_where_they_stand_together() -> None:
    """The best place of a long text is shown, with the words marked; a phrase where it is whole."""
    text = f"token once. {'filler words ' * 60}the Refresh token of the session. {'end ' * 80}"
    found = shown("refresh token", text)
    assert "«Refresh» «token»" in found
    assert len(found) <= SNIPPET_MAX
    assert (found[0], found[-1]) == ("…", "…")
    assert shown("機能", "検索機能を追加") == "検索«機能»を追加"
    text = f"A quarter, and an hour. {'filler words ' * 60}Every quarter of an hour, an hour."
    whole = "Every «quarter» «of» «an» «hour», an hour."
    assert shown('"quarter of an hour"', text).endswith(whole)
    for length in range(130, 160):  # a match at the end is whole, too
        late = shown("token wombat", f"The token of {'x' * length} wombat {'end ' * 80}")
        assert "«w" not in late or "«wombat»" in late
        assert len(late) <= SNIPPET_MAX


def test_a_long_query_is_cut_with_a_warning() -> None:
    """The worst query costs as much as the longest allowed one."""
    asked = parse("word " * 5000)
    assert len(asked.terms) <= TERMS_MAX
    assert asked.problem
    assert parse("").problem
    assert [term.text for term in parse("fix " * 20 + "deadline").terms] == ["fix", "deadline"]


@pytest.mark.parametrize(
    ("pattern", "text", "place"),
    [
        (r"error|warning", "a Warning", "Warning"),
        (r"(\d{1,3}\.){3}\d{1,3}", "at 127.0.0.1:80", "127.0.0.1"),
        (r"(\w+\.)+py", "in a.b.c.py", "a.b.c.py"),
        (r"x*", "aaxx", "xx"),
        (r"für \w+", "naïve für alle", "für alle"),
        (r"(a+)+b", "a" * 60_000, None),
        (r"(?:a|aa)*c", "a" * 60_000, None),
    ],
)
def test_patterns_find_in_linear_time(pattern: str, text: str, place: str | None) -> None:
    """S1.44: no pattern can hang the daemon; places are those of the original text."""
    find = parse(f"re:{pattern}").find
    assert find
    span = find(text)
    assert (text[slice(*span)] if span else None) == place
