"""What the server, other fleets in its database, and damaged records can and cannot do."""

import base64
import os
import secrets
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.msgpack import Ext

from indexerd.agents import resume_command
from indexerd.errors import UsageError
from indexerd.fleet.identity import Identity, new_machine
from indexerd.fleet.records import (
    BODY_MAX,
    BadRecordError,
    Hello,
    JoinCode,
    Place,
    Session,
    key_id,
    pack,
    seal,
    unseal,
)
from indexerd.fleet.server import server_of
from tests.e2e.world import until
from tests.fleet.machines import Fleet, found_by, login, peers, told
from tests.fleet.postgres import Postgres

Start = Callable[..., Fleet]
AWS = "AKIA" + "IOSFODNN7QWERTYU"


def test_the_server_holds_nothing_readable_and_no_record_holds_a_secret(
    fleet: Start, pg: Postgres
) -> None:
    """Names and texts are not in a dump of the server, and secrets not even in the records."""
    both = fleet("ab", INDEXERD_MIN_NEW_USER_MESSAGES="1")
    a, b = both.homes
    session = a.session(1, cwd=f"/work/plantedcwd/{AWS}")
    entry = session.turn(f"plantedprompt {AWS}", "plantedanswer")
    a.wait_meta(session.id)
    a.run("rename", session.id, f"plantedtitle {AWS}")
    a.run("tag", session.id, "plantedtag")
    a.run("label", session.id, entry, "plantedlabel")
    for word in ("plantedprompt", "plantedanswer", "plantedtitle", "plantedtag", "plantedcwd"):
        found_by(b, word, session)
    until(lambda: "plantedlabel" in str(b.call("get", ref=session.id)), "the label")
    log = both.told(pg, a)
    assert not any(isinstance(record, str) for _, record in log)
    text = b"".join(pack(record) for _, record in log if not isinstance(record, str))
    assert AWS.encode() not in text
    dump = pg.dump().lower()
    fields = ["prompt", "answer", "title", "tag", "label", "cwd"]
    words = [*(f"planted{field}".encode() for field in fields), b"host-a", session.id.encode()]
    assert len(dump) > 1000
    assert both.code.encode().lower() not in dump
    for word in (*words, a.identity.key):
        assert word in text + b"host-a" + a.identity.key, word
        for form in (word, word.hex().encode(), *_in_base64(word)):
            assert form.lower() not in dump, word
    server_log = (pg.data / "log").read_bytes()
    assert not any(
        secret in server_log for secret in (b"planted", a.identity.server["password"].encode())
    )


def _in_base64(word: bytes) -> list[bytes]:
    """Encode a word as it may stand at any place of a longer text, without its borders."""
    return [base64.b64encode(bytes(at) + word)[4 if at else 0 : -4] for at in range(3)]


FOREIGN = [  # statements of a member of another fleet; %s is the victim's fleet or machine
    "SELECT * FROM indexerd.log WHERE fleet = %(fleet)s",
    "SELECT * FROM indexerd.log WHERE machine = %(machine)s",
    "SELECT * FROM indexerd.member WHERE fleet <> current_user",
    "UPDATE indexerd.log SET body = '' WHERE fleet = %(fleet)s RETURNING 1",
    "UPDATE indexerd.log SET fleet = %(fleet)s RETURNING 1",
    "UPDATE indexerd.member SET head = 0 WHERE machine = %(machine)s RETURNING 1",
    "UPDATE indexerd.member SET machine = %(machine)s, fleet = %(fleet)s RETURNING 1",
    "DELETE FROM indexerd.log WHERE fleet = %(fleet)s RETURNING 1",
    "DELETE FROM indexerd.member WHERE fleet <> current_user RETURNING 1",
    "INSERT INTO indexerd.log VALUES (%(fleet)s, %(machine)s, 999, 'purge', 1, '') RETURNING 1",
    ("INSERT INTO indexerd.log VALUES (%(fleet)s, %(machine)s, 1, 'hello', 1, '')"
    " ON CONFLICT (fleet, machine, seq) DO UPDATE SET body = '' RETURNING 1"),
    "INSERT INTO indexerd.member (fleet, machine) VALUES (%(fleet)s, 'x') RETURNING 1",
    "TRUNCATE indexerd.log",
    "COPY (SELECT * FROM indexerd.log WHERE fleet = %(fleet)s) TO PROGRAM 'cat'",
    "SET ROLE %(fleet)s",
    "SET SESSION AUTHORIZATION %(fleet)s",
    "SET row_security = off; SELECT * FROM indexerd.log",
    "DROP POLICY own_fleet ON indexerd.log",
    "CREATE POLICY mine ON indexerd.log USING (true)",
    "ALTER TABLE indexerd.log DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE indexerd.log NO FORCE ROW LEVEL SECURITY",
    "ALTER TABLE indexerd.log ADD COLUMN x text",
    "DROP TABLE indexerd.log",
    "CREATE TABLE indexerd.mine (x text)",
    "CREATE TRIGGER t BEFORE INSERT ON indexerd.log"  # noqa: ISC004 - one statement
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "ALTER ROLE %(fleet)s PASSWORD 'x'",
    "GRANT %(fleet)s TO current_user",
    "CREATE ROLE mine SUPERUSER",
    "SELECT rolpassword FROM pg_authid",
    "SELECT most_common_vals FROM pg_stats WHERE tablename IN ('log', 'member')",
    "SELECT stavalues1 FROM pg_statistic",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %(fleet)s",
    "SELECT query FROM pg_stat_activity WHERE usename = %(fleet)s AND query NOT LIKE '<insuf%%'",
    "SELECT pg_read_file('pg_hba.conf')",
    ("CREATE FUNCTION pg_temp.leak(text) RETURNS bool COST 0.0000001 LANGUAGE plpgsql AS"
    " $$BEGIN RAISE 'leaked %%', $1; END$$;"
    "SELECT * FROM indexerd.log WHERE fleet = %(fleet)s AND pg_temp.leak(kind)"),
]  # fmt: skip


def test_a_member_of_another_fleet_sees_and_changes_nothing(pg: Postgres) -> None:
    with peers(pg.url, 1) as [victim], peers(pg.url, 1) as [thief]:
        for peer in (victim, thief):
            peer.put("s1", "Name", ["text"], replace=True)
            peer.sync()
        pg.query("ANALYZE indexerd.log; ANALYZE indexerd.member")
        before = _rows(pg, victim.identity)
        assert len(before) > 3
        named = {"fleet": victim.identity.fleet, "machine": victim.identity.machine}
        other = login(thief.identity)
        for statement in FOREIGN:
            try:
                cursor = psycopg.ClientCursor(other)
                cursor.execute(statement, named)
                while cursor.nextset():
                    pass
                rows = cursor.fetchall() if cursor.description else None
            except psycopg.Error as refused:
                rows = []
                state = str(refused.sqlstate)
                known = statement.startswith(("SET ROLE", "ALTER ROLE", "GRANT"))
                assert state in ("42501", "22P02", "23505") or (known and state == "42601"), (  # noqa: PT017 - some statements succeed
                    statement,
                    refused,
                )
                assert "leaked" not in str(refused), statement  # noqa: PT017 - some statements succeed
            assert rows == [], statement
            other.execute("RESET ALL")
        for words in ("SET ROLE", "GRANT {} TO CURRENT_USER", "ALTER ROLE {} PASSWORD 'x'"):
            role = psycopg.sql.Identifier(victim.identity.fleet)
            text = words if "{}" in words else f"{words} {{}}"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                other.execute(psycopg.sql.SQL(text).format(role))
        other.close()
        assert _rows(pg, victim.identity) == before


def _rows(pg: Postgres, identity: Identity) -> list[tuple[object, ...]]:
    sql = "SELECT seq, kind, version, body FROM indexerd.log WHERE fleet = %s ORDER BY seq"
    members = "SELECT machine, head, token FROM indexerd.member WHERE fleet = %s"
    return pg.query(sql, identity.fleet) + pg.query(members, identity.fleet)


def test_an_owner_without_special_rights_makes_fleets_and_sees_no_rows(pg: Postgres) -> None:
    pg.query("CREATE ROLE owner LOGIN CREATEROLE PASSWORD 'x'")
    pg.query("CREATE DATABASE owned OWNER owner")
    url = f"postgresql://owner:x@127.0.0.1:{pg.port}/owned"
    with peers(url, 2) as [one, two], peers(url, 1) as [other]:
        one.put("s1", "Name", ["text"], replace=True)
        one.sync()
        for peer in (two, other):
            peer.sync()
        assert two.shows().keys() == {"s1"}
        assert not other.shows()
        for table in ("log", "member"):
            assert pg.query(f"SELECT * FROM indexerd.{table}", url=url) == []  # noqa: S608 - ours
        assert len(pg.query("SELECT rolname FROM pg_roles WHERE rolname LIKE 'indexerd\\_%%'")) > 1


DAMAGES = [
    "body = (SELECT body FROM indexerd.log o WHERE o.machine = log.machine AND o.seq = log.seq + 1)",  # noqa: E501 - SQL
    (
        "body = (SELECT body FROM indexerd.log o WHERE o.machine <> log.machine"
        " AND o.fleet = log.fleet AND o.kind = log.kind ORDER BY o.seq LIMIT 1)"
    ),
    "body = set_byte(body, octet_length(body) - 1, get_byte(body, octet_length(body) - 1) # 1)",
    "body = set_byte(body, 0, get_byte(body, 0) # 1)",
    "body = ''",
    "kind = 'purge'",
    "version = 99",
]


def test_a_bad_record_is_set_aside_and_the_others_go_on(pg: Postgres) -> None:
    with peers(pg.url, 3) as [a, b, c]:
        for peer in (a, c):
            peer.sync()
            for number in range(len(DAMAGES) + 2):
                peer.put(f"s{number}-{peer.name}", "Name", ["text"], replace=True)
                peer.sync()
        log = reversed(told(pg, a.identity))  # a session comes before its texts
        seqs = {getattr(record, "id", ""): seq for seq, record in log}
        for number, damage in enumerate(DAMAGES, 1):
            sql = f"UPDATE indexerd.log SET {damage} WHERE seq = %s AND machine = %s"  # noqa: S608 - ours
            pg.query(sql, seqs[f"s{number}-m0"], a.identity.machine)
        b.sync()
        good = {f"s{number}-m2" for number in range(len(DAMAGES) + 2)}
        assert b.store.elsewhere() == good | {"s0-m0", f"s{len(DAMAGES) + 1}-m0"}
        rows = {row["id"]: row for row in b.do(b.machine.status())["machines"]}
        refused = rows[a.identity.machine]
        counts = refused["refused"], refused["behind"], bool(refused["reason"])
        assert counts == (len(DAMAGES), 0, True)
        assert rows[c.identity.machine]["refused"] == 0
        a.put("s1-m0", "New name", ["text", "more"], replace=True)
        for peer in (a, b):
            peer.sync()
        assert b.shows()["s1-m0"] == ("m0", "New name", ["text", "more"])


def test_records_of_a_hostile_member_are_checked_and_bounded(fleet: Start, pg: Postgres) -> None:
    """It has the key, but its records cannot stop, confuse or flood the others."""
    both = fleet("ab", INDEXERD_MIN_NEW_USER_MESSAGES="1")
    a, b = both.homes
    good = a.session(3)
    a.wait_meta(good.id)
    both.agree(good)
    record = next(r for _, r in both.told(pg, a) if isinstance(r, Session))
    row = record.row
    raw = pack(record).replace(b"\xa4meta", b"\xa4meta\x81\xa1x" + b"\x91" * 100_000, 1)
    none = {"meta": None, "labels": {}, "tags": [], "digest": {"segments": []}}
    meta = a.meta(good.id)
    identity, machine = a.identity, new_machine()
    packed = [
        pack(Hello("-oProxyCommand=x", "1")), pack(Hello("../x", "1")), raw, b"", b"\xc1",
        b"\xa9" + bytes(BODY_MAX + 1),
        _with(record, id="../../x"), _with(record, id=good.id + "\n"),
        _with(record, row={"agent": "sh"}), _with(record, row={"name": "x" * 100_000}),
        _with(record, row={"messageCount": -1}), os.urandom(BODY_MAX + 200),
        _with(record, row={"costUsd": float("nan")}), _with(record, row={"sessionFile": "-x"}),
        _with(record, documents=none | {"digest": {"segments": [{"x": Ext(1, b"x")}]}}),
        _with(record, id="evil-1", row={"sessionId": "other"}),
        pack(Hello("host-evil", "1")),
        _with(record, id="evil-2", row={
            "sessionId": "evil-2", "name": "\x1b]0;owned\x07 quokka", "cwd": "/w'; touch x #",
            "sessionFile": "/etc/passwd", "leafId": "\x1b[2J",
        }, documents=none | {"meta": meta | {"summary": "\x1b[2J", "usage": {"x": 5}},
            "labels": {"\x1b": "\x1b"}, "digest": {"segments": [{"x": 1}, {"number": "x"}]}}),
        *(_with(record, documents=none | wrong) for wrong in (
            {"meta": {"name": 5}}, {"labels": [[]]}, {"tags": "x"}, {"digest": {"segments": 7}})),
        _with(record, id="evil-3", row={"sessionId": "evil-3"}, documents=none),
    ]  # fmt: skip
    with login(identity) as connection, connection.transaction():
        sql = "INSERT INTO indexerd.member (machine, head) VALUES (%s, %s)"
        connection.execute(sql, [machine, len(packed)])
        for seq, data in enumerate(packed, 1):
            kind = "hello" if b"hello" in data[:12] else "session"
            body = seal(identity.key, Place(identity.fleet, machine, seq, kind), data)
            sql = "INSERT INTO indexerd.log (machine, seq, kind, version, body) VALUES (%s, %s, %s, 1, %s)"  # noqa: E501 - SQL
            connection.execute(sql, [machine, seq, kind, body])
    good.turn("And the others go on")
    until(lambda: b.row(good.id)["leafId"] == good.last, "the others' records")
    until(lambda: {"evil-2", "evil-3"} <= b.ids(), "its valid records")
    [state] = [row for row in b.status()["machines"] if row["id"] == machine]
    assert (state["refused"], state["name"]) == (len(packed) - 3, "host-evil")
    for ref in ("evil-2", "evil-3"):
        for argv in (("show", ref), ("list", "--all"), ("search", "quokka"), ("resume", ref)):
            assert "\x1b" not in b.run(*argv)
            assert "\x1b" not in b.stderr
        for argv in (("expand", f"@@{ref}"), ("history", ref), ("export", ref), ("tree", ref)):
            b.run(*argv, code=None)
            assert b.code in (0, 3), (argv, b.stderr)
            assert "root:" not in b.stderr, argv
    command = b.row("evil-2")["resume"]
    subprocess.run(["sh", "-c", f"ssh() {{ :; }}; {command}"], check=True, cwd=b.root)
    assert not [*b.root.rglob("touch*"), *Path(b.root).glob("x")]
    assert not b.log_of('"defect"')
    assert row == record.row


def test_no_path_becomes_an_option_of_an_agent() -> None:
    file = "/x/--dangerously-skip-permissions/subagents/agent-1.jsonl"
    assert resume_command("claude", "s1", "/w", file) == "cd /w && claude --resume s1"


def _with(record: Session, **changes: Any) -> bytes:
    """Pack a record with other values, some of which its type forbids."""
    import msgspec

    data = msgspec.to_builtins(record)
    data["row"] |= changes.pop("row", {"sessionId": changes.get("id", record.id)})
    return msgspec.msgpack.encode(data | changes)


def test_a_record_fits_only_its_own_place_and_key() -> None:
    key, place = secrets.token_bytes(32), Place("f", "m", 7, "hello")
    body = seal(key, place, pack(Hello("n", "1")))
    keys = {key_id(key): key}
    assert unseal(keys, place, 1, body) == Hello("n", "1")
    other = secrets.token_bytes(32)
    for keyed, where, version in (
        ({key_id(other): other}, place, 1), ({key_id(key): other}, place, 1), ({}, place, 1),
        (keys, place, 2), *((keys, place._replace(**{field: value}), 1) for field, value in (
            ("fleet", "g"), ("machine", "n"), ("seq", 8), ("kind", "purge"))),
    ):  # fmt: skip
        with pytest.raises(BadRecordError):
            unseal(keyed, where, version, body)


@pytest.mark.parametrize("host", ["db.example", "10.0.0.1", "127.0.0.1,db.example", "[::2]"])
@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_no_address_of_another_host_weakens_tls(host: str, mode: str) -> None:
    url = f"postgresql://me@{host}/db"
    assert server_of(url)["sslmode"] == "verify-full"
    with pytest.raises(UsageError):
        server_of(f"{url}?sslmode={mode}")
    assert "sslmode" not in server_of("postgresql://me@127.0.0.1/db?hostaddr=::1")
    with pytest.raises(UsageError):
        server_of(f"postgresql://me@localhost/db?hostaddr=10.0.0.1&sslmode={mode}")


def own_address() -> str | None:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
        return None if address.startswith("127.") else address


def test_a_server_without_a_valid_certificate_gets_no_login(fleet: Start, pg: Postgres) -> None:
    """Not even if a code, made by somebody else, says nothing of TLS."""
    if (address := own_address()) is None:
        pytest.skip("this machine has no address but loopback")
    pg.certify(address)
    alone = fleet("a").homes[0]
    alone.run("fleet", "leave")
    secret = f"me:{pg.password}@{address}:{pg.port}/postgres"
    alone.run("fleet", "init", f"postgresql://{secret}", code=None)
    assert alone.code
    assert "certificate" in alone.stderr
    server = {
        "host": address,
        "port": str(pg.port),
        "user": "me",
        "password": "x",
        "dbname": "postgres",
    }
    alone.run("fleet", "join", str(JoinCode(server, bytes(32))), code=None)
    assert alone.code
    assert "certificate" in alone.stderr
    alone.reload(f'[fleet]\nca_file = "{pg.data}/server.crt"\n')
    assert "indexerd-fleet-" in alone.run("fleet", "init", f"postgresql://{secret}")
