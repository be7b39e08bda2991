"""The text index after a crash, damage and a purge, and the order of hits."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from indexerd.search.index import Message, TextIndex
from indexerd.search.ranking import search
from tests.store.rows import fill, hits, row, say, texts


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TextIndex]:
    found = texts(tmp_path)
    yield found
    found.close()
    found.store.close()


def stored(directory: Path) -> bytes:
    """All bytes of the index."""
    files = (path for path in (directory / "search").rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)


def test_names_rank_first_then_rarer_words(index: TextIndex) -> None:
    """S1.44: at most one field and one message per session, the best ones."""
    fill(index, row("named", name="Forecast cache"), row("tagged", tags=["cache"]), row("said"))
    say(index, "said", "a cache", "another cache of the forecast", "nothing")
    assert [one for one, _ in hits(index, "cache")] == ["named", "tagged", "said"]
    assert hits(index, "cache", limit=2) == [("named", "name"), ("tagged", "tags")]
    assert hits(index, "cache", cwd="/elsewhere") == []


def test_a_worktree_is_found_by_its_projects_directory(index: TextIndex) -> None:
    fill(index, row("tree", cwd="/tmp/wt-4711", project="/srv/quokka"), row("other"))
    assert hits(index, "quokka") == [("tree", "cwd")]


def test_a_copied_message_is_found_once_in_the_oldest_session(index: TextIndex) -> None:
    """S0.68: a fork has its parent's words, and its name unless it was given one."""
    opening = "where do alerts go to"
    fill(
        index,
        row("parent", 1, name="Alerts"),
        row("fork", 5, name=opening, nameSource="first-message", parentSessionId="parent"),
    )
    for one in ("parent", "fork"):
        message = Message(0, "e1", "user", "", opening)
        index.add_messages(one, [message], b"all read", 1, replace=False)
    index.commit()
    assert {*hits(index, "alerts go")} == {("parent", "message"), ("parent", "name")}
    assert hits(index, "name of nobody") == []


def test_a_short_stem_finds_its_plural_among_many_words(index: TextIndex) -> None:
    """S1.44: "api" has the stem of "apis", and many words begin like it."""
    fill(index, row("chosen", name="Forecasts"), row("other"))
    say(index, "chosen", "choose the forecast APIs")
    say(index, "other", " ".join(f"ap{first}{then}" for first in "bcdefghi" for then in "klmnopqr"))
    assert hits(index, "api forecast")[0] == ("chosen", "message")


def test_synonyms_are_found_if_nothing_has_all_words(index: TextIndex) -> None:
    """Words of the same meaning count if no session has all the typed ones (S1.44)."""
    fill(index, row("typed"), row("meant"), row("neither"))
    say(index, "typed", "the login screen")
    say(index, "meant", "authenticating took long, it crashed")
    say(index, "neither", "the weather of tomorrow")
    assert hits(index, "login") == [("typed", "message")]
    found, warnings = search(index, "login failures")
    assert [hit["sessionId"] for hit in found] == ["meant"]
    assert "«crashed»" in found[0]["snippet"]
    assert "same meaning" in warnings[0]
    assert search(index, '"login" "failures"')[0] == []


def test_a_crash_leaves_the_index_as_of_its_last_commit(tmp_path: Path) -> None:
    """The index knows what it lacks: messages are read and rows put again."""
    index = texts(tmp_path)
    fill(index, row("s"))
    said = [Message(n, f"e{n}", "user", "", f"zebra {n}") for n in range(6)]
    index.add_messages("s", said[:2], b"2 read", 0, replace=False)
    index.commit()
    index.add_messages("s", said[2:], b"6 read", 1, replace=False)
    index.put_rows([(row("s", name="Giraffes"), "", ())])
    assert index.mark("s") == b"6 read"
    index.close()
    index.store.close()
    index = texts(tmp_path)
    assert index.mark("s") == b"2 read"
    assert index.behind == {"s"}
    index.add_messages("s", said[2:], b"6 read", 1, replace=False)
    index.put_rows([(row("s", name="Giraffes"), "", ())])
    index.commit()
    with index.searcher() as searcher:
        assert searcher.doc_freq("text", "zebra") == len(said)
    assert hits(index, "giraffes") == [("s", "name")]
    index.close()
    index.store.close()


def test_a_purge_leaves_no_word(index: TextIndex, tmp_path: Path) -> None:
    """S2.23: the index is rebuilt from the other sessions while these grow."""
    fill(index, *(row(f"s{n}", n) for n in range(4)))
    for n in range(4):
        say(index, f"s{n}", f"{'abcd'[n]}zebra stays")
    index.forget("s0", wholly=True)
    assert index.rebuild()
    index.put_rows([(row("s3", name="Marimba"), "", ())])
    index.forget("s1", wholly=True)  # it may already have been copied
    index.commit()
    while index.rebuild():
        pass
    assert not index.owes_rebuild
    files = stored(tmp_path)
    assert [b"%czebra" % one in files for one in b"ab"] == [False, False]
    assert [len(hits(index, f'"{letter}zebra"')) for letter in "abcd"] == [0, 0, 1, 1]
    assert index.mark("s3") == b"all read"
    index.commit()
    assert hits(index, "marimba") == [("s3", "name")]


def test_a_kill_during_a_rebuild_loses_nothing(index: TextIndex, tmp_path: Path) -> None:
    """S2.23: the old index is still used, and is copied again."""
    fill(index, row("kept"), row("purged"))
    say(index, "kept", "azebra stays")
    say(index, "purged", "bzebra goes")
    index.forget("purged", wholly=True)
    assert index.rebuild()
    index.open()
    assert [len(hits(index, f'"{letter}zebra"')) for letter in "ab"] == [1, 0]
    while index.rebuild():
        pass
    files = stored(tmp_path)
    assert (b"bzebra" in files, len(hits(index, '"azebra"'))) == (False, True)


@pytest.mark.parametrize(
    "query",
    ["shadow-branch-suffix", "shadow_branch_suffixes.md", "shadow branch suffix", "suffixes.md"],
)
def test_file_names_match_without_extension_and_separators(index: TextIndex, query: str) -> None:
    """Singular and plural, too; a file that is only listed is found as well."""
    path = "/work/shop/docs/shadow-branch-suffixes.md"
    fill(index, row("said"), row("listed", filesModified=[path]), row("other"))
    say(index, "said", "I wrote `shadow-branch-suffixes.md`.")
    say(index, "other", "a branch in the shadow")
    found = [hit["sessionId"] for hit in search(index, query)[0] if "words" not in hit]
    assert {*found} == {"said", "listed"}


@pytest.mark.parametrize("text", ["textIndexer", "text_indexer", "the text indexer"])
@pytest.mark.parametrize("query", ["textIndexer", "text_indexer", "text indexers"])
def test_spellings_of_an_identifier_meet(index: TextIndex, query: str, text: str) -> None:
    """camelCase, snake_case and separate words are the same words."""
    fill(index, row("s"))
    say(index, "s", f"see {text} for that")
    found, warnings = search(index, query)
    assert ([hit["sessionId"] for hit in found], warnings) == (["s"], [])
    assert "«" in found[0]["snippet"]


def test_a_smaller_limit_gives_the_first_of_the_same_hits(index: TextIndex) -> None:
    words, draw = ("code", "report", "other"), Random(1)
    said = {f"s{n}": [" ".join(draw.choices(words, k=20)) for _ in range(3)] for n in range(150)}
    for session_id, spoken in said.items():
        say(index, session_id, *spoken, commit=False)
    fill(index, *map(row, said))
    most = hits(index, "code report", limit=60)
    assert len(most) == 60
    for limit in (1, 5, 20):
        assert hits(index, "code report", limit=limit) == most[:limit]
