"""Real daemons share their sessions through a real server."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from indexerd.errors import IndexerdError, UsageError
from indexerd.fleet.records import Drop, JoinCode, Purge, Text
from tests.e2e.world import World, clock, until
from tests.fleet.machines import Fleet, Home, found_by, gone_from
from tests.fleet.postgres import Postgres

Start = Callable[..., Fleet]


def test_two_commands_show_one_machines_sessions_on_the_other(fleet: Start) -> None:
    both = fleet("ab")
    a, b = both.homes
    b.reload('[fleet]\nhosts = {host-a = "me@gate"}\n')
    session = a.session(1)
    entry = session.turn("Please polish the zebra crossing", "The crossing gleams.")
    both.agree(session)
    a.run("index", session.id, "--wait", "--force")
    until(lambda: b.row(session.id).get("name") == a.row(session.id)["name"], "the model's name")
    summary = a.call("get", ref=session.id)["meta"]["summary"]
    assert b.call("get", ref=session.id)["meta"]["summary"] == summary
    a.run("rename", session.id, "Zebra polish")
    a.run("tag", session.id, "shiny")
    a.run("pin", session.id)
    a.run("label", session.id, entry, "the gleam")
    until(lambda: b.row(session.id).get("name") == "Zebra polish", "the title")
    until(lambda: b.row(session.id).get("pinned"), "the pin")
    assert b.row(session.id)["tags"] == a.row(session.id)["tags"]
    assert b.row(session.id)["tags"][0] == "shiny"
    until(lambda: "the gleam" in str(b.call("get", ref=session.id)), "the label")

    listed = b.run("list", "--all")
    assert "Zebra polish" in listed
    assert "host-a" in listed
    found_by(b, "gleams", session)
    found_by(b, "shiny", session)
    assert "Zebra polish" in b.run("search", "shiny")
    assert "Zebra polish" in b.run("show", session.id)
    assert b.run("resume", session.id).splitlines()[-1].startswith("ssh me@gate -t ")
    for ref in (session.id, '"Zebra polish"'):
        assert session.id in b.run("expand", f"see @@{ref}")
    for argv in (
        ("tree", session.id), ("ask", session.id, "why?"), ("rename", session.id, "x"),
        ("tag", session.id, "x"), ("pin", session.id), ("label", session.id, entry, "x"),
        ("digest", session.id), ("export", session.id),
    ):  # fmt: skip
        b.run(*argv, code=None)
        assert b.code > 0, argv
        assert "host-a" in b.stderr, argv
    assert not b.session().path.samefile(session.path)
    statuses = {row["name"]: row for row in b.status()["machines"]}
    assert (statuses["host-a"]["sessions"], statuses["host-b"]["own"]) == (1, True)


def test_that_there_is_a_copy_travels(fleet: Start) -> None:
    """The copy itself stays: its machine restores it."""
    a, b = fleet("ab").homes
    a.reload("[archive]\nenabled = true\nquiet_seconds = 0.1\n")
    session = a.session(1)
    copies = a.root / "data/indexerd/archive/live"
    until(lambda: [*copies.rglob(f"{session.path.name}.zst")], "the copy")
    session.path.unlink()
    until(lambda: b.row(session.id).get("copyOnly"), "that only the archive has it")
    for command in ("resume", "restore"):
        b.run(command, session.id, code=None)
        assert b.code > 0
        assert "on host-a" in b.stderr
    a.run("restore", session.id)
    until(lambda: "copyOnly" not in b.row(session.id), "the session's return")
    assert b.row(session.id)["resume"].startswith("ssh host-a ")


def test_what_is_purged_anywhere_is_forgotten_everywhere(fleet: Start, pg: Postgres) -> None:
    three = fleet("abc")
    a, b, c = three.homes
    own, bs, stays = a.session(1), b.session(1), a.session(1)
    own.turn("The quokka question")
    bs.turn("The wombat question")
    three.agree(own, bs, stays)
    found_by(c, "quokka", own)
    c.stop()
    a.run("purge", own.id, "--yes")
    a.run("purge", bs.id, "--yes")  # of another machine
    gone_from([a, b], own, "quokka")
    gone_from([a, b], bs, "wombat")
    for home in (a, b):
        until(lambda home=home: not home.status()["unsent"], "the telling")
        until(lambda home=home: _about(three, pg, home, own.id, bs.id) == {Purge}, "the deletion")
    b.stop()  # nothing comes back to a machine that was away, nor to one whose store is new
    for path in b.state.glob("*.sqlite*"):
        path.unlink()
    own.turn("One more quokka question")
    b.start()
    c.start()
    three.agree(stays)
    for home in three.homes:
        gone_from([home], own, "quokka")
        gone_from([home], bs, "wombat")
        assert stays.id in home.ids()
    until(lambda: not stored(c, b"quokka"), "the removal from c's files")


def stored(home: Home, word: bytes) -> bool:
    """Whether a machine's files contain a word; files that go meanwhile do not count."""
    for path in home.state.rglob("*"):
        with suppress(OSError):
            if word in path.read_bytes().replace(b"\0", b""):
                return True
    return False


def _about(fleet: Fleet, pg: Postgres, home: Home, *ids: str) -> set[type]:
    return {type(record) for _, record in fleet.told(pg, home) if getattr(record, "id", "") in ids}


def test_an_exclusion_holds_everywhere_for_own_sessions_and_here_for_others(
    fleet: Start, pg: Postgres
) -> None:
    both = fleet("ab")
    a, b = both.homes
    secret, plain = a.session(1, cwd="/secret/x"), a.session(1, cwd="/plain/x")
    secret.turn("The quokka question")
    plain.turn("The wombat question")
    both.agree(secret, plain)
    found_by(b, "quokka", secret)
    a.reload('[privacy]\nexclude = ["/secret"]\n')
    gone_from([a, b], secret, "quokka")
    until(lambda: _about(both, pg, a, secret.id) == {Drop}, "the deletion")
    b.reload('[privacy]\nexclude = ["/plain"]\n')
    gone_from([b], plain, "wombat")
    plain.turn("More of the wombat")  # its new texts are not taken either
    both.agree(plain, homes=[a])
    a.reload("")
    both.agree(secret, homes=[b])
    found_by(b, "quokka", secret)
    gone_from([b], plain, "wombat")
    assert _held(b, plain.id) == []
    b.reload("")
    both.agree(secret, plain)
    found_by(b, "wombat", plain)
    until(lambda: b.hit_counts('"question"').count(plain.id) == 1, "its text, once")


def _held(home: Home, session_id: str) -> list[object]:
    """Read the messages that a machine's index has of a session."""
    from indexerd.search.index import TextIndex
    from indexerd.store.store import StateStore

    store = StateStore(next(home.state.glob("*.sqlite")), readonly=True)
    index = TextIndex(home.state / "search", store, readonly=True)
    try:
        index.open()
        return [*index.messages(session_id, 0)]
    finally:
        index.close()
        store.close()


@pytest.mark.faults
@pytest.mark.parametrize("how", ["copied", "identity", "restored", "deleted"])
def test_a_copied_restored_or_deleted_store_loses_and_doubles_nothing(
    fleet: Start, pg: Postgres, how: str
) -> None:
    both = fleet("ab")
    a, b = both.homes
    old = [a.session(2), b.session(1)]
    both.agree(*old)
    identity = a.identity
    until(lambda: not a.status()["unsent"], "the telling")
    last = max(seq for seq, _ in both.told(pg, a))
    a.stop()
    if how == "deleted":
        for path in a.state.glob("*.sqlite*"):
            path.unlink()
        new = [a.session(1)]
        a.start()
    elif how == "restored":
        shutil.copytree(a.state, a.root / "backup")
        a.start()
        new = [a.session(1), a.session(1)]
        both.agree(*old, *new)
        a.stop()
        shutil.rmtree(a.state)
        (a.root / "backup").rename(a.state)
        new.append(a.session(1))
        a.start()
    else:
        copy = both.another("d")
        for source, target in ((a.state, copy.state), (a.pi, copy.pi)):
            if how == "copied":
                shutil.copytree(source, target, dirs_exist_ok=True)
        if how == "identity":  # without the store
            copy.state.mkdir(parents=True, exist_ok=True)
            shutil.copy(a.state / "fleet.json", copy.state)
        new = [a.session(1), copy.session(1)]
        a.start()
        both.agree(*old, new[0], homes=[a, b])
        copy.start()
    for session in new:
        session.turn("The quokka question")
    both.agree(*old, *new)
    for home in both.homes:
        found_by(home, "quokka", *new)
        assert sorted(home.hit_counts("quokka")) == sorted(session.id for session in new)
    changed = [home for home in both.homes if home.identity.machine != identity.machine]
    if how != "identity":  # either of the two joins again
        assert (a in changed) == (how == "restored")
    names = [home.identity.name for home in both.homes]
    assert len({*names}) == len(names) == len({home.identity.machine for home in both.homes})
    if how == "deleted":
        until(lambda: not a.status()["unsent"], "the telling")  # of the old texts again
        about = [record.id for _, record in both.told(pg, a) if isinstance(record, Text)]
        assert sorted(about) == sorted(session.id for session in (old[0], *new))
        assert min(seq for seq, _ in both.told(pg, a)) > last


def test_rotation_shuts_out_all_who_do_not_have_the_new_code(fleet: Start, pg: Postgres) -> None:
    three = fleet("abc")
    a, b, c = three.homes
    sessions = [home.session(1) for home in three.homes]
    three.agree(*sessions)
    assert b.run("fleet", "remove", "host-c").strip() == "removed: host-c"
    sessions[2].turn("More")
    until(lambda: "removed" in str(c.status()["problem"]), "the removal")
    three.agree(*sessions[:2], homes=[a, b])
    code = a.run("fleet", "rotate-key").strip().splitlines()[-1]
    for home in (b, c):
        until(lambda home=home: home.status()["problem"], "the refusal")
    sessions += [a.session(1), b.session(1)]
    three.agree(*sessions[:2], sessions[3], homes=[a])
    for refused in (three.code, code[:-3], "x"):
        with pytest.raises(IndexerdError):
            b.call("fleet", do="join", target=refused)
    # It is refused until the first machine has told its name again, with the new key.
    until(lambda: "joined" in b.run("fleet", "join", code, code=None), "the joining")
    three.agree(*sessions[:2], *sessions[3:], homes=[a, b])
    assert not any(row["refused"] for row in a.status()["machines"] + b.status()["machines"])
    assert sessions[3].id not in c.ids()

    b.stop()
    b.start()
    file = b.state / "fleet.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert b.run("fleet", "leave").strip() == "left"
    assert not file.exists()
    assert b.status() == {"fleet": None, "machines": []}
    three.agree(sessions[1], sessions[4], homes=[b])
    three.agree(sessions[0], sessions[3], homes=[a])
    rows = pg.query("SELECT 1 FROM indexerd.log WHERE fleet = %s", a.identity.fleet)
    assert len(rows) == len(three.told(pg, a))
    b.run("fleet", "join", code)
    three.agree(*sessions[:2], *sessions[3:], homes=[a, b])


def test_a_wrong_code_or_a_damaged_file_changes_nothing(fleet: Start, pg: Postgres) -> None:
    both = fleet("ab")
    a, b = both.homes
    session = a.session(1)
    both.agree(session)
    right = JoinCode.parse(both.code)
    third = both.another("c")
    third.start()
    before = pg.query("SELECT * FROM indexerd.member WHERE fleet = %s", right.server["user"])
    for code in (str(JoinCode(right.server, bytes(32))), both.code[:-1], both.code[:40] + "x"):
        with pytest.raises(UsageError, match="code"):
            third.call("fleet", do="join", target=code)
        assert not (third.state / "fleet.json").exists()
    known = [row[1] for row in before]
    now = pg.query("SELECT machine FROM indexerd.member WHERE fleet = %s", right.server["user"])
    assert sorted(row[0] for row in now) == sorted(known)
    b.stop()
    path = b.state / "fleet.json"
    good = path.read_bytes()
    path.write_bytes(good[:50])
    b.start()
    own = b.session(1)
    until(lambda: own.id in b.ids(), "local work")
    until(lambda: "damaged" in str(b.call("status")["problems"]), "the problem")
    assert path.read_bytes() == good[:50]
    assert session.id in b.ids()
    for do in ("status", "leave"):
        b.run("fleet", do, code=None)
        assert b.code, do
        assert "damaged" in b.stderr, do
    path.unlink()
    assert b.run("fleet", "join", both.code).strip() == "joined as host-b-2"
    both.agree(session, own, homes=[a, b])
    now = pg.query("SELECT machine FROM indexerd.member WHERE fleet = %s", right.server["user"])
    assert len(now) == len(known) + 1


def test_texts_travel_only_while_the_setting_says_so(fleet: Start, pg: Postgres) -> None:
    both = fleet("ab")
    a, b = both.homes
    session = a.session(1)
    session.turn("The quokka question", "About wombats.")
    both.agree(session)
    found_by(b, "wombats", session)
    a.reload("[fleet]\ntext = false\n")
    found_by(b, "wombats")
    other = a.session(0)
    other.turn("Hello", "The numbat answers")
    both.agree(session, other)
    found_by(b, "numbat")
    assert not any(record.messages for _, record in both.told(pg, a) if isinstance(record, Text))
    a.reload("")
    for word, found in (("wombats", session), ("numbat", other)):
        found_by(b, word, found)
        assert b.hit_counts(word) == [found.id]


def test_huge_and_many_messages_arrive(fleet: Start, pg: Postgres) -> None:
    both = fleet("ab")
    a, b = both.homes
    huge, long = a.session(1), a.session(0)
    huge.turn("start " + "gigantic filler " * 300_000, "The quokka ends it.")
    for number in range(30):
        long.turn(f"Question {number}", f"wombat{number} " + "lorem ipsum dolor " * 3000)
    both.agree(huge, long)
    found_by(b, "quokka", huge)
    for number in (0, 17, 29):
        found_by(b, f"wombat{number}", long)
    told = [record for _, record in both.told(pg, a) if isinstance(record, Text)]
    assert len([record for record in told if record.id == long.id]) > 3


@pytest.mark.faults
@pytest.mark.parametrize("year", [1970, 2090])
def test_dates_of_a_wrong_clock_lose_and_order_nothing(fleet: Start, year: int) -> None:
    both = fleet("ab")
    a, b = both.homes
    try:
        clock.now = datetime(year, 1, 2, tzinfo=UTC)
        odd = a.session(1)
        both.agree(odd)
        clock.now = None
        odd.turn("The quokka question")
        right = b.session(1)
        both.agree(odd, right)
        clock.now = datetime(year, 1, 2, tzinfo=UTC)
        odd.turn("The wombat question")
        a.run("rename", odd.id, "Odd times")
    finally:
        clock.now = None
    both.agree(odd, right)
    until(lambda: b.row(odd.id)["name"] == "Odd times", "the title")
    found_by(b, "wombat", odd)
    a.run("rename", odd.id, "")
    until(lambda: b.row(odd.id)["name"] != "Odd times", "the end of the title")


def test_a_daemon_without_a_fleet_loads_nothing_of_it(world: World) -> None:
    session = world.session(2)
    with world.daemon() as daemon:
        until(lambda: world.row(session.id), "the session")
        assert world.call("fleet")["fleet"] is None
        assert world.run("fleet", "status") == ""
        maps = Path(f"/proc/{daemon.pid}/maps")
        assert not maps.exists() or "psycopg" not in maps.read_text()
        store = f"file:{world.state / 'store.sqlite'}?mode=ro"
        with sqlite3.connect(store, uri=True) as db:
            for table in ("outbox", "sent", "remote"):
                assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608 - ours
            assert db.execute("SELECT * FROM sqlite_schema WHERE type = 'trigger'").fetchall() == []
