"""Words, phrases and patterns, as a user types them."""

from typing import Any

import pytest

from indexerd.disk import remove
from indexerd.errors import UsageError
from tests.e2e.references.expanding import add
from tests.e2e.world import World, chat, hit_by, listed, opencode_rows, until

IDS = ("0198aaaa-1111-7000-8000-000000000001", "0198aaaa-2222-7000-8000-000000000002")
PLACES = {session_id: place for place, session_id in enumerate(IDS)}
BUTTON = "Confirm button refactor #12"


def furnish(world: World) -> None:
    pear = world.session(session_id=IDS[0], cwd="/srv/orchid-7")
    pear.turn("The red pear is here.", "Release v2.13 has exponential backoff.")
    apple = world.session(session_id=IDS[1])
    apple.turn("A pear that is not of that colour: red is another.", "Café tokens.")
    add(world, BUTTON)


def ready(world: World) -> bool:
    texts = {(0, "message"), (1, "message")}
    return len(listed(world)) == 3 and texts <= hits(world, "backoff") | hits(world, "tokens")


def hits(world: World, query: str) -> set[tuple[Any, str]]:
    found = world.call("search", query=query)["hits"]
    return {(PLACES.get(hit["sessionId"], hit["name"]), hit["field"]) for hit in found}


def test_misspelled_words_are_found(running: World) -> None:
    """A warning says which word was searched instead (S1.44)."""
    for query, found in (("confrim buton", BUTTON), ("exponental", 0)):
        answer = running.call("search", query=query)
        assert found in {place for place, _ in hits(running, query)}
        assert answer["warnings"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"re:^0198aaaa-2", (1, "id")),
        (r"re:button refactor #\d\d$", (BUTTON, "name")),
        (r"re:V\d\.\d+ has", (0, "message")),
        (r"re:orchid-\d$", (0, "cwd")),
    ],
)
def test_patterns_search_every_field(running: World, pattern: str, found: tuple[Any, str]) -> None:
    """`re:` searches id, name, messages and directory, ignoring case (S1.44)."""
    assert found in hits(running, pattern)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("pear agent:PI", {0, 1}),
        ("pear agent:claude", set()),
        ("pear project:Orchid-7", {0}),
        ("project:srv pear", {0}),
        ("pear project:/srv", {0}),
        ("pear project:orchid", set()),
        ("tag:VALVES button", {BUTTON}),
        ('button tag:"valves"', {BUTTON}),
        ("tag:valve button", set()),
        ("since:1h agent:pi pear", {0, 1}),
        ("since:yesterday project:orchid-7 re:red.pear", {0}),
        ("re:red.pear project:w", set()),
        ("pear since:2100-01-01", set()),
        ("pear since:2100-01", set()),
        ("project:orchid-7", {0}),
        ("tag:valves", {BUTTON}),
        ('"tag:valves" pear', set()),
        ("foo:bar pear", {0, 1}),
        ("tag: pear", {0, 1}),
    ],
)
def test_filters_narrow_a_query(running: World, query: str, found: set[Any]) -> None:
    """S1.44: with words, a pattern or alone; quoted or unknown, a prefix is a word."""
    assert {place for place, _ in hits(running, query)} == found


def test_a_directory_of_windows_is_a_project(world: World) -> None:
    """By its path with any slashes and in any case, its last name, and one above it."""
    session = world.session(cwd=r"D:\Work\Café")
    session.turn("Count the pears.")
    world.session(cwd="/d/Work").turn("Count the pears.")
    shared = world.session(cwd=r"\\host\share\x")
    shared.turn("Count the apples.")
    world.run("run", "--once")
    for name in (r"d:\work\Café", "D:/work", "Café", r"Work\Café"):
        (hit,) = world.run("search", f'pears project:"{name}"', "--json")["hits"]
        assert hit["sessionId"] == session.id, name
    for place in (r"d:\Work", r"D:\Work\Café"):
        (row,) = world.run("list", "--cwd", place, "--json")["sessions"]
        assert row["sessionId"] == session.id
    assert not world.run("list", "--cwd", r"D:\Wor", "--json")["sessions"]
    (row,) = world.run("list", "--cwd", r"\\host\share", "--json")["sessions"]
    (hit,) = world.run("search", r'apples project:"\\host\share\x"', "--json")["hits"]
    assert row["sessionId"] == hit["sessionId"] == shared.id


def test_filters_alone_list_the_newest_sessions_first(running: World) -> None:
    newest = listed(running)
    for limit in (2, 20):
        found = running.call("search", query="since:7d", limit=limit)["hits"]
        assert [hit["sessionId"] for hit in found] == newest[:limit]
    assert {hit["field"] for hit in found} == {"name", "description"}
    running.run("search", "agent:codex", "pear")
    assert running.stderr == "indexerd: no session matches these filters\n"
    (tagged,) = running.call("search", query="agent:pi", tag="Valves")["hits"]
    assert (tagged["name"], tagged["snippet"]) == (BUTTON, f"About {BUTTON}.")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("agent:nobody pear", "no such agent: nobody"),
        ("agent:NOBODY", "no such agent: nobody"),
        ("since:soon", "not a time: soon"),
        ("pear since:7", "not a time: 7"),
        *((query, "re: ") for query in ("re:[", "re:(pear", "re:\\", "re:(?=a)b", r"re:(a)\1")),
    ],
)
def test_a_bad_filter_or_pattern_is_an_error(running: World, query: str, why: str) -> None:
    """S1.44: it says what is wrong, and the command exits with 2."""
    with pytest.raises(UsageError, match=why):
        running.call("search", query=query)
    assert running.run("search", query, code=2) == ""
    assert why in running.stderr


def test_one_sessions_many_matches_leave_room_for_others(world: World) -> None:
    """The limit counts sessions, not messages, so an old session is found after many hits."""
    old = world.session(turns=1)
    old.turn("Is kumquat-1 one of very many other words here, and so counts for less?")
    for _ in range(50):  # one batch of a pattern's search
        world.session(turns=1)
    often = world.session(turns=1)
    for number in range(150):
        often.turn(f"Kumquat-{number}!", "Kumquat.")
    world.run("run", "--once")
    for query in ("kumquat", r"re:kumquat-\d"):
        hits = world.run("--json", "search", query, "--limit", "4")["hits"]
        assert {hit["sessionId"] for hit in hits} == {often.id, old.id}


def test_a_hit_that_lacks_words_says_so(running: World) -> None:
    """S1.44: the socket and the command line say how many words a session has."""
    found = running.call("search", query="red pear qzxvw")["hits"]
    assert {hit["words"] for hit in found} == {"2 of 3"}
    assert "2 of 3 words" in running.run("search", "red pear qzxvw")


@pytest.mark.parametrize("new", ["*", "Y" * 9])  # shorter, or of the same length
@pytest.mark.parametrize("runs", [True, False])
def test_what_a_user_removes_from_a_file_is_not_found_any_more(
    world: World, new: str, *, runs: bool
) -> None:
    """S3.27: also if the ids of the entries stay, and if it happens while no daemon runs."""
    session = world.session()
    session.turn("The word is xylophone.", "I see.")
    session.talk(2)  # too few prompts for a summary, which would have the word, too

    def scrub() -> None:
        text = session.path.read_text()
        session.path.write_text(text.replace("xylophone", new))
        assert text != session.path.read_text()

    with world.daemon():
        until(lambda: hit_by(world, "xylophone"), "the text")
        if runs:
            scrub()
            until(lambda: not hit_by(world, "xylophone"), "its removal")
    if not runs:
        scrub()
    with world.daemon():
        until(lambda: not hit_by(world, "xylophone"), "its removal")
        assert hit_by(world, "widget")


def test_texts_are_read_once_their_database_is_readable(world: World) -> None:
    """S1.44: opencode replaces files when it ends; the session itself does not change later."""
    rows = opencode_rows(world)
    rows.session("ses_1")
    chat(rows, "ses_1", "quokka")

    def finds() -> bool:
        return "message" in {hit["field"] for hit in world.call("search", query="quokka")["hits"]}

    with world.daemon():
        until(finds, "the text")
    remove(world.state / "search")
    log = rows.path.with_name(f"{rows.path.name}-wal")
    log.write_bytes(b"without its index, so that the database cannot be read")
    with world.daemon():
        until(lambda: world.call("status")["lastScanAt"], "the scan")
        until(lambda: not world.call("status")["textPending"], "an attempt")
        assert not finds()
        log.unlink()
        until(finds, "the text again")
