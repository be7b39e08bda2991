"""io/catalog_search: what a search finds, in which order, and what it says of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexerd.errors import UsageError
from indexerd.search.query import SNIPPET_MAX
from indexerd.store.catalog import Catalog, SearchText
from indexerd.times import iso_of_ms
from tests.store.catalog_rows import BASE_MS, SHOP, fill, hits, row, say, scratch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the catalog is."""
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    """An empty catalog."""
    found = Catalog.open(path)
    yield found
    found.close()


# Search.


def test_every_text_of_a_session_is_searched(catalog: Catalog) -> None:
    """S1.44: names of all kinds, tags, description, summary, messages, id and directory."""
    one = row(
        "0198-abcd-walnut",
        cwd="/srv/orchid",
        tags=["tulip"],
        description="A daisy",
        agentTitle="Iris",
    )
    catalog.put([(one, SearchText("Some clover", ("My rose", "Violet")))])
    fill(catalog, row("other", name="Nothing", cwd="/srv/weeds"))
    say(catalog, "0198-abcd-walnut", "a poppy here")
    places = {
        "iris": "name",
        "rose": "name",
        "violet": "name",
        "tulip": "tags",
        "daisy": "description",
        "clover": "summary",
        "poppy": "message",
        "abcd-waln": "id",
        "/orch": "cwd",
        "rchi": "cwd",
    }
    assert {query: hits(catalog, query) for query in places} == {
        query: [(one["sessionId"], place)] for query, place in places.items()
    }


def test_all_words_in_one_place_come_first(catalog: Catalog) -> None:
    """S1.44: a session with the words in two places is found, too, but after those with one."""
    fill(
        catalog,
        row("apart", 9, name="red apple", description="green pear"),
        row("other", 8, name="red fig", description="of a pear tree, and no more"),
        row("at once", 1, name="x", description="a red pear"),
        row("half", 9, name="red plum"),
    )
    assert hits(catalog, "red pear") == [
        ("at once", "description"),
        ("apart", "name"),
        ("other", "name"),
    ]
    assert hits(catalog, "red pear", limit=1) == [("at once", "description")]
    assert catalog.search("red pear").hits[1]["snippet"] == "«red» apple"
    assert hits(catalog, '"red" grape') == []


def test_words_may_stand_in_any_two_places(catalog: Catalog) -> None:
    """S1.44: as if name, texts, messages, id and directory of a session were one text."""
    one = row("0198-walnut", cwd="/srv/orchid", name="red", tags=["tulip"], description="daisy")
    catalog.put([(one, SearchText("clover", ("Violet",)))])
    say(catalog, "0198-walnut", "a poppy here", "検索機能を追加")
    fill(catalog, row("b", name="red violet tulip daisy clover"))
    say(catalog, "b", "poppy")
    words = ["walnut", "/orch", '"/srv/orchid"', "tulip", "daisy", "clover", "violet", "検索"]
    for word in words:
        assert "0198-walnut" in [one for one, _ in hits(catalog, f"{word} poppy")], word
        assert [one for one, _ in hits(catalog, f"red {word} orchid")] == ["0198-walnut"], word
    assert hits(catalog, '"a poppy" red') == [("0198-walnut", "name")]
    assert hits(catalog, '"poppy a" red') == []
    assert hits(catalog, "daisy pop") == [("b", "name"), ("0198-walnut", "description")]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(*(st.sets(st.sampled_from(["oak", "elm", "ash"])) for _ in range(4))), max_size=6
    ),
    st.lists(st.sampled_from(["oak", "elm", "ash"]), min_size=2, max_size=3, unique=True),
)
def test_every_session_with_all_words_is_found(
    made: list[tuple[set[str], ...]], asked: list[str]
) -> None:
    """S1.44: wherever the words stand, and no session without one of them."""
    with scratch() as catalog:
        for n, (name, description, cwd, said) in enumerate(made):
            texts = {"name": " ".join(sorted(name)) or "x", "description": " ".join(description)}
            fill(catalog, row(f"s{n}", n, cwd="/" + "-".join(sorted(cwd)), **texts))
            say(catalog, f"s{n}", *(f"{n} {word}" for word in sorted(said)))
        wanted = {f"s{n}" for n, places in enumerate(made) if set(asked) <= set().union(*places)}
        found = catalog.search(" ".join(asked))
        told = () if found.warnings else found.hits  # what is only alike is said to be
        assert {hit["sessionId"] for hit in told} == wanted


def test_words_apart_keep_to_filters_and_originals(catalog: Catalog) -> None:
    """S1.44: within the scope of the search; a message copied into a fork is the parent's."""
    items = [("e1", "user", "", "the walrus"), ("e2", "user", "", "a carpenter")]
    fill(catalog, row("parent", 1, cwd="/a"), row("fork", 9, cwd="/b"))
    fill(catalog, row("named", 9, cwd="/b", name="carpenter"))
    for session_id in ("parent", "fork", "named"):
        catalog.add_messages(session_id, items)
    assert hits(catalog, "walrus carpenter") == [("named", "name"), ("parent", "message")]
    assert hits(catalog, "walrus carpenter", cwd="/b")[0] == ("named", "name")
    assert hits(catalog, "walrus carpenter", cwd="/c") == []


def test_many_common_words_apart(catalog: Catalog) -> None:
    """Each session is looked up by itself where a word is too common to list what has it."""
    for n in range(3):
        fill(catalog, row(f"s{n}", n, name="seldom" if n == 1 else "x"))
        say(catalog, f"s{n}", *(f"often {n} {k}" for k in range(1500)))
    fill(catalog, row("s3", 9, name="seldom"))
    assert hits(catalog, "seldom often") == [("s1", "name")]


def test_names_stand_before_all_else(catalog: Catalog) -> None:
    """Best first: name, tags, description, summary, message, whatever is newer."""
    fill(catalog, row("message", 9, name="x"))
    catalog.put([(row("summary", 8, name="x"), SearchText("walrus"))])
    fill(
        catalog,
        row("description", 7, name="x", description="walrus"),
        row("tags", 6, name="x", tags=["walrus"]),
        row("name", 5, name="walrus"),
    )
    say(catalog, "message", "walrus " * 20)
    found = catalog.search("walrus").hits
    assert [hit["sessionId"] for hit in found] == [
        "name",
        "tags",
        "description",
        "summary",
        "message",
    ]
    scores = [hit["score"] for hit in found]
    assert scores == sorted(scores, reverse=True)


def test_more_and_newer_counts(catalog: Catalog) -> None:
    """Of two messages the one with more of the words comes first, of two alike the newer."""
    year = 525_600
    fill(catalog, row("new", 0))
    fill(catalog, row("old", -2 * year), row("much", -2 * year))
    say(catalog, "old", "one walrus was seen among many other animals today")
    say(catalog, "new", "one walrus was seen among many other animals there")
    say(catalog, "much", "walrus walrus walrus walrus walrus walrus walrus walrus")
    assert [one for one, _ in hits(catalog, "walrus")] == ["much", "new", "old"]


def test_one_session_does_not_fill_the_list(catalog: Catalog) -> None:
    """At most one field and one message of each session, even where one talks of nothing else."""
    fill(catalog, row("quiet", 1), row("loud", 2, name="walrus", description="walrus"))
    say(catalog, "quiet", "a walrus")
    say(catalog, "loud", *(f"walrus {n}" for n in range(3000)))
    found = hits(catalog, "walrus")
    assert sorted(found) == [("loud", "message"), ("loud", "name"), ("quiet", "message")]


def test_a_session_in_use_is_found_however_common_the_word(catalog: Catalog) -> None:
    """Only the newest matches are looked at, but sessions used lately are looked at anyway."""
    fill(catalog, row("first", 0, name="x"))
    say(catalog, "first", "walrus 0 0")
    for n in range(40):
        fill(catalog, row(f"s{n}", n + 1, name="x"))
        say(catalog, f"s{n}", *(f"walrus {n} {k}" for k in range(60)))
    assert ("first", "message") not in hits(catalog, "walrus", limit=2)
    fill(catalog, row("first", 1_000_000, name="x"))
    assert ("first", "message") in hits(catalog, "walrus", limit=2)


def test_a_search_filters_like_a_list(catalog: Catalog) -> None:
    """Agent, directory and time narrow a search, and common words do not hide what is left."""
    fill(catalog, row("it", 1, cwd="/srv/it", agent="codex"))
    say(catalog, "it", "common word")
    for n in range(70):
        fill(catalog, row(f"s{n}", n + 2))
        say(catalog, f"s{n}", *(f"common word {n} {k}" for k in range(40)))
    assert hits(catalog, "common word", cwd="/srv") == [("it", "message")]
    assert hits(catalog, "common word", agent="codex") == [("it", "message")]
    late = iso_of_ms(BASE_MS + 71 * 60_000)
    assert hits(catalog, "common word", since=late) == [("s69", "message")]
    assert len(hits(catalog, "common word", cwd=SHOP, limit=100)) == 70
    assert len(hits(catalog, "common word", agent="pi", limit=5)) == 5
    assert hits(catalog, "re:common w", agent="codex") == [("it", "message")]
    with pytest.raises(UsageError):
        catalog.search("x", since="never")


def test_a_hit_says_where_it_is(catalog: Catalog) -> None:
    """A hit of a message has its entry, role and time, and shows the words in context."""
    fill(catalog, row("a", name="Shown name"))
    text = (
        "Long ago. " * 40 + "Then the Café token expired\nand \x1b[31mall was lost. " + "End. " * 90
    )
    catalog.add_messages("a", [("e9", "assistant", "2026-01-01T00:00:00.000Z", text)])
    (hit,) = catalog.search("cafe token").hits
    assert (hit["sessionId"], hit["name"], hit["field"]) == ("a", "Shown name", "message")
    assert (hit["entryId"], hit["role"], hit["at"]) == (
        "e9",
        "assistant",
        "2026-01-01T00:00:00.000Z",
    )
    assert "«Café» «token» expired and" in hit["snippet"]
    assert len(hit["snippet"]) <= SNIPPET_MAX
    assert "\x1b" not in hit["snippet"]
    assert hit["score"] > 0


def test_a_word_being_typed_finds_longer_ones(catalog: Catalog) -> None:
    """S1.44: the last word may be a beginning; whole words still come first."""
    fill(catalog, row("begins", 9, name="configuration"), row("whole", 1, name="config"))
    assert [one for one, _ in hits(catalog, "config")] == ["whole", "begins"]
    assert hits(catalog, "configu") == [("begins", "name")]
    assert hits(catalog, '"configu"') == []


def test_typing_errors_find_names(catalog: Catalog) -> None:
    """S1.44: where nothing matches, names that look alike are shown, and it is said."""
    fill(catalog, row("a", name="Confirm button refactor"), row("b", name="Invoice export"))
    found = catalog.search("confrim buton")
    assert [(hit["sessionId"], hit["field"]) for hit in found.hits] == [("a", "name")]
    assert found.hits[0]["snippet"] == "Confirm button refactor"
    assert found.warnings
    assert catalog.search("confirm button").warnings == ()
    assert catalog.search("qqqqqqq").hits == ()


def test_typing_errors_find_texts(catalog: Catalog) -> None:
    """S1.44: where no name is alike, the nearest words of the texts are, and it is said."""
    fill(catalog, row("a", name="x", description="Pagination"), row("b", name="y"))
    say(catalog, "a", "exponential backoff, please", "humid", "humid")
    say(catalog, "b", "humidity")
    found = catalog.search("exponental backof")
    assert [hit["snippet"] for hit in found.hits] == ["«exponential» «backoff», please"]
    assert found.warnings == ("nothing has these words; looked for: exponential backof",)
    assert hits(catalog, "humidty") == [("b", "message")]
    assert hits(catalog, "pagniation") == [("a", "description")]
    assert hits(catalog, "pagniation humidty") == []
    assert hits(catalog, "pagniation bakcoff") == [("a", "description")]
    for exact in ('"humidty"', "hmd", "zzumidity", "humidity qqqqqqq", "humidtyyyy"):
        assert catalog.search(exact).hits == (), exact
    fill(catalog, row("c", name="z"))
    say(catalog, "c", "humiditz")
    assert hits(catalog, "humiditz") == [("c", "message")], "what is there is meant"


def test_text_without_spaces_is_found(catalog: Catalog) -> None:
    """Parts of Chinese, Japanese and Korean names and messages are found, two characters too."""
    fill(catalog, row("name", name="検索機能を追加"), row("message"))
    say(catalog, "message", "我们添加了搜索功能。")
    assert hits(catalog, "機能") == [("name", "name")]
    assert hits(catalog, "搜索") == [("message", "message")]
    assert catalog.search("搜索").hits[0]["snippet"] == "我们添加了«搜索»功能。"
    assert catalog.search("機能").hits[0]["name"] == "検索機能を追加"


def test_patterns_search_everything(catalog: Catalog) -> None:
    """S1.44: `re:` looks at ids, names, texts, directories and messages, without regard to case."""
    fill(
        catalog, row("0198-walnut", 1, name="Fix #123", cwd="/srv/orchid-7"), row("b", 2, name="x")
    )
    say(catalog, "b", "version v2.13 and 検索機能")
    assert hits(catalog, r"re:fix #\d{3}") == [("0198-walnut", "name")]
    assert hits(catalog, r"re:V\d\.\d+") == [("b", "message")]
    assert hits(catalog, r"re:索機") == [("b", "message")]
    assert hits(catalog, r"re:orchid-\d$") == [("0198-walnut", "cwd")]
    assert hits(catalog, r"re:^0198-wal") == [("0198-walnut", "id")]
    assert "«v2.13»" in catalog.search(r"re:v\d\.\d+").hits[0]["snippet"]
    assert hits(catalog, "#") == [("0198-walnut", "name")]


@pytest.mark.parametrize("query", ["re:[", "re:(a+)+$", "re:", "re:" + "a" * 999])
def test_a_bad_pattern_gives_no_hits_and_a_reason(catalog: Catalog, query: str) -> None:
    """S1.44: bad and dangerous expressions find nothing, say why, and cost nothing."""
    fill(catalog, row("a", name="a" * 100))
    found = catalog.search(query)
    assert found.hits == ()
    assert found.warnings[0].startswith("re: ")


def test_a_pattern_s_time_is_bounded(catalog: Catalog) -> None:
    """A pattern over everything stops when the caller's patience ends, and says so."""
    fill(catalog, row("a", name="x"))
    say(catalog, "a", *(f"text {n}" for n in range(50)))
    assert catalog.search("re:nothing.like.this", patience=5.0).warnings == ()
    for query in ("re:nothing.like.this", "re:[yz]{3}"):
        assert catalog.search(query, patience=0.0).warnings


@settings(deadline=None, max_examples=150)
@given(st.text(st.characters(), max_size=40) | st.text('ab "*:^(){}-+~\0_.re:検', max_size=25))
@example('" OR name MATCH "x')
@example("NEAR(a b)")
@example("a AND")
@example("re:\ud800")
@example("'; DROP TABLE session; --")
def test_whatever_is_typed_is_answered(query: str) -> None:
    """Any text is a search: no error of SQLite's, or of anybody's, comes out."""
    found = _shared().search(query, patience=0.2)
    for hit in found.hits:
        assert len(hit["snippet"]) <= SNIPPET_MAX
        assert hit["sessionId"]


_SHARED: list[Catalog] = []


def _shared() -> Catalog:
    if not _SHARED:
        directory = tempfile.mkdtemp()
        found = Catalog.open(Path(directory) / "catalog.sqlite")
        fill(found, row("a", name="ab 検索", tags=["re", "x"]), row("b", name="b-a_re:x"))
        say(found, "a", "a b ab re", "検 a.b")
        _SHARED.append(found)
    return _SHARED[0]


@pytest.fixture(scope="module", autouse=True)
def _close_shared() -> Iterator[None]:
    yield
    for found in _SHARED:
        found.close()
    _SHARED.clear()


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "say", "drop", "forget"]),
            st.sampled_from("abc"),
            st.lists(st.sampled_from(["oak", "elm", "ash", "検索"]), min_size=1, max_size=3),
        ),
        max_size=25,
    )
)
def test_the_index_follows_every_change(steps: list[tuple[str, str, list[str]]]) -> None:
    """After any changes a search finds what is there, and nothing that was there before."""
    names: dict[str, list[str]] = {}
    said: dict[str, set[str]] = {one: set() for one in "abc"}
    with scratch() as catalog:
        for n, (act, one, words) in enumerate(steps):
            if act == "put":
                fill(catalog, row(one, name=" ".join(words), cwd="/"))
                names[one] = words
            elif act == "say":
                catalog.add_messages(one, [(f"{n}", "user", "", " ".join(words))])
                said[one].update(words)
            else:
                said[one] = set()
                catalog.drop_messages(one)
                if act == "forget":
                    catalog.forget(one)
                    names.pop(one, None)
        for word in ("oak", "elm", "ash", "検索"):
            wanted = {(one, "name") for one, words in names.items() if word in words}
            wanted |= {(one, "message") for one in names if word in said[one]}
            assert set(hits(catalog, word)) == wanted
