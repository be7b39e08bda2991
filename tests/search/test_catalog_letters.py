"""Letters anywhere in ids and directories, and lists below a directory: as the slow way says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.search import candidates as catalog_candidates
from indexerd.search import letters as catalog_letters
from indexerd.search.letters import latest_with
from indexerd.store import filters as catalog_filters
from indexerd.store.catalog import Catalog
from tests.store.catalog_rows import fill, hits, ids, row, say

DIRECTORIES = ("/home/me/shop", "/home/me/shop/api", "/home/me/Shopping", "/srv/o'rchid", "/é/日本")
WORDS = ("shop", "me/", "ome", "o'r", "/日本", "abc", "c-0", "-00", "zzz", "ab", '"or', "019")
INDEXES = ("about_words", "name_words", "about_letters", "id_letters", "place_letters")
SLOW = """SELECT no FROM session WHERE row_seal IS NOT NULL
    AND (instr(lower(id), :word) OR instr(lower(cwd), :word))
    AND (:scope IS NULL OR no IN (SELECT value FROM json_each(:scope)))
    ORDER BY modified DESC, id LIMIT :most"""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog of 120 sessions in a few directories, some moved, some forgotten."""
    made = Catalog.open(tmp_path / "catalog.sqlite")
    dice = random.Random(5)
    rows = [_row(dice, number) for number in range(120)]
    fill(made, *rows)
    say(made, "abc-of-words-alone", "its row is still to come")
    fill(made, *(one | {"cwd": dice.choice(DIRECTORIES)} for one in rows[::7]))
    for one in rows[::5]:
        made.forget(one["sessionId"])
    yield made
    made.close()


def _row(dice: random.Random, number: int) -> dict[str, Any]:
    session_id = f"019AB-{dice.choice(('abc', 'xyz'))}-{number:03}"
    return row(session_id, dice.randrange(60), cwd=dice.choice(DIRECTORIES))


@pytest.mark.parametrize("few", [0, 3, 1000], ids=["walked", "some walked", "looked up"])
def test_letters_are_found_as_by_looking_at_every_session(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Whichever way is taken, it finds what `instr` finds in all rows, newest first."""
    monkeypatch.setattr(catalog_letters, "_FEW", few)
    db = catalog._reader()
    for word in WORDS:
        for scope in (None, "[3, 4, 7, 11, 12, 13, 40, 41, 99]"):
            for most in (5, 1000):
                given = {"word": word, "scope": scope, "most": most}
                slow = [no for (no,) in db.execute(SLOW, given)] if len(word) > 2 else []
                found = [no for no, _, _ in latest_with(db, [word], scope, most)]
                assert found == slow, given
    assert latest_with(db, ["shop"], None, 1)


def test_a_directory_is_known_as_long_as_a_session_is_in_it(catalog: Catalog) -> None:
    """V12: the letters of what was forgotten, or has moved, are in no index."""
    fill(catalog, row("one", cwd="/orchard"), row("two", cwd="/orchard"))
    fill(catalog, row("one", cwd="/garden"))
    assert hits(catalog, "rchar") == [("two", "cwd")]
    catalog.forget("two")
    assert hits(catalog, "rchar") == []
    assert hits(catalog, "arde") == [("one", "cwd")]
    db = catalog._writer
    assert db is not None
    held = {cwd for (cwd,) in db.execute("SELECT cwd FROM place")}
    assert held == {cwd for (cwd,) in db.execute("SELECT DISTINCT cwd FROM session")} - {None}
    for index in INDEXES:
        db.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")  # noqa: S608 - ours


@pytest.mark.parametrize("few", [1, 500], ids=["walked", "looked up"])
def test_a_list_below_a_directory_is_the_same_either_way(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """S3.12: sessions of a directory and all below, newest first, page by page."""
    monkeypatch.setattr(catalog_filters, "_FEW", few)
    everything = catalog.list(limit=1000).rows
    for cwd in ("/home/me/shop", "/home", "/", "/nowhere"):
        below = cwd.rstrip("/") + "/"
        wanted = [
            one["sessionId"]
            for one in everything
            if one["cwd"] == cwd or one["cwd"].startswith(below)
        ]
        assert ids(catalog, cwd=cwd, limit=1000) == wanted
        found, cursor = [], None
        for _ in range(20):
            page = catalog.list(cwd=cwd, limit=9, cursor=cursor)
            found += [one["sessionId"] for one in page.rows]
            if (cursor := page.next_cursor) is None:
                break
        assert found == wanted


def test_only_what_changed_of_a_row_is_written(catalog: Catalog) -> None:
    """A session that goes on changes its time, and no index of names, files or directories."""
    db = catalog._writer
    assert db is not None
    fill(catalog, row("goes-on", 1, description="as it was"))
    seen: list[str] = []
    db.set_trace_callback(seen.append)
    fill(catalog, row("goes-on", 2, description="as it was"))
    db.set_trace_callback(None)
    [update] = [one for one in seen if one.startswith("UPDATE session")]
    assert "modified =" in update
    assert "cwd =" not in update
    assert "file =" not in update
    assert not [one for one in seen if "_words" in one or "_letters" in one]


def test_words_with_forms_are_looked_for_in_all_sessions_at_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass over many sessions finds each one's newest messages, as one by one does."""
    for number in range(12):
        session_id = f"forms-{number}"
        say(catalog, session_id, *(f"refactored {number} {n}" for n in range(number * 4)))
        fill(catalog, row(session_id, number))
    monkeypatch.setattr(catalog_candidates, "_ROUND", 30)
    look = catalog_candidates.Candidates(catalog._reader(), None, 20)
    numbers = [no for (no,) in catalog._reader().execute("SELECT no FROM session")]
    for match in ('"refactored"', '"refact" *', '"nothing" *'):
        at_once = look._messages_of(numbers, match, forms=True)
        assert at_once == look._messages_of(numbers, match, forms=False)
    assert ("forms-11", "message") in hits(catalog, "refactoring")
