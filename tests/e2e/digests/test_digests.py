"""When digests are written: automatically, on request, after failures and on branches."""

import json
import re
import stat
from pathlib import Path
from typing import Any

from indexerd.client import Client
from tests.e2e.world import Session, World, until

KEY = "ghp_" + "a1B2c3D4e5F6" * 3
ENV = {
    "INDEXERD_MIN_NEW_USER_MESSAGES": "10000",
    "INDEXERD_INDEX__QUIET_SECONDS": "0.1",
    "INDEXERD_DIGEST__EXCLUDE": '["/quiet"]',
    "INDEXERD_LOG__LEVEL": '"debug"',
}


def lines(world: World, session_id: str) -> list[dict[str, Any]]:
    path = world.metas / f"{session_id}.digest.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_lines(world: World, session: Session, count: int) -> list[dict[str, Any]]:
    until(lambda: len(lines(world, session.id)) >= count, f"digest {count}")
    return lines(world, session.id)


def rules(world: World, *rows: dict[str, Any]) -> None:
    Path(f"{world.script}.calls").unlink(missing_ok=True)
    world.scripted(*rows)


def audit(world: World, session: Session) -> list[dict[str, Any]]:
    return [row for row in world.telemetry() if row["sessionId"] == session.id]


def furnish(world: World) -> None:
    rules(world)
    world.env["INDEXERD_MODEL_KEYS"] = '["local/extractive"]'
    world.env["INDEXERD_DIGEST__MODEL"] = '"scripted/digests"'


def test_the_51st_message_creates_a_digest(running: World) -> None:
    """S2.3, S2.4, S2.5, S2.8, S2.18, S2.19, S2.24: file, event and audit row of a digest."""
    session, other = running.session(turns=25), running.session(turns=25)
    running.seen(session)
    with Client(running.socket, timeout=20) as client:
        events = client.events(["digest.created"], timeout=20)
        other.turn()
        (second,) = wait_lines(running, other, 1)
        assert second["covering_messages"] == [0, 41]
        assert lines(running, session.id) == []
        session.answer("We decided to add one more.")
        (line,) = wait_lines(running, session, 1)
        notice = {event["sessionId"]: event for event in (next(events), next(events))}[session.id]
    assert list(line) == [
        *("id", "covering_messages", "content", "key_decisions", "files_modified", "tools_used"),
        *("generated_at", "token_count", "model", "leafId"),
    ]
    assert line["covering_messages"] == [0, 40]
    assert line["model"] == "scripted/digests"
    assert line["content"].startswith("Scripted answer ")
    path = running.metas / f"{session.id}.digest.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert notice["segmentId"] == line["id"]
    assert (notice["before"], notice["after"], notice["reduction"]) == (51, 11, 78.4)
    (row,) = audit(running, session)
    assert row["customType"] == "digest:segment"
    assert row["covering_messages"] == [0, 40]
    assert row.keys() >= {"timestamp", "model", "usage", "redactions", "bytes", "success"}
    session.talk(21)
    _, line = wait_lines(running, session, 2)
    assert line["covering_messages"] == [41, 82]
    found = running.call("history", ref=session.id)
    assert found["fullMessageCount"] == 93
    assert [message["n"] for message in found["recent"]] == list(range(83, 93))


def test_a_failed_digest_is_retried_at_the_next_turn(running: World) -> None:
    """S2.20: a failure leaves the file unchanged; logs record it without the session's text."""
    session = running.session(turns=24)
    running.seen(session)
    running.call("digest", ref=session.id)
    path = running.metas / f"{session.id}.digest.jsonl"
    before = path.read_bytes(), path.stat().st_mtime_ns
    rules(running, {"match": session.id, "error": "provider", "times": 1})
    with Client(running.socket, timeout=20) as client:
        events = client.events(["digest.failed"], timeout=20)
        session.talk(26)
        failed = next(events)
    assert (failed["sessionId"], failed["retryable"]) == (session.id, True)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    session.turn()
    wait_lines(running, session, 2)
    rows = audit(running, session)
    assert [row["success"] for row in rows] == [True, False, True]
    assert rows[1]["error"] == "scripted: down"
    log = (running.state / "log.jsonl").read_text()
    assert '"digest.failed"' in log
    assert "widget" not in log
    assert "widget" not in (running.state / "telemetry.jsonl").read_text()
    assert "Scripted answer" not in log
    rules(running)


def test_secrets_are_redacted_in_digests(running: World) -> None:
    """S2.21: in the prompt, in the model's answer, and in every file of indexerd."""
    session = running.session()
    session.turn(f"Deploy with {KEY}, please.", f"Deployed with {KEY}.")
    session.talk(10)
    rules(running, {"match": re.escape(KEY), "text": "leaked"}, {"text": f"- Used {KEY}, then."})
    running.seen(session)
    found = running.call("digest", ref=session.id)
    assert found["segment"]["content"] == "- Used [redacted:github-token], then."
    rules(running)
    assert sum(audit(running, session)[0]["redactions"].values()) == 2
    kept = [
        *running.metas.iterdir(),
        running.state / "telemetry.jsonl",
        running.state / "log.jsonl",
    ]
    assert not any(KEY in path.read_text() for path in kept if path.is_file())


def test_a_too_large_compaction_drops_its_oldest_part(running: World) -> None:
    """S3.24: it is retried without that part, and says so; instructions reach the model."""
    session = running.session(turns=12)
    running.seen(session)
    rules(
        running,
        {"match": "Question 1:", "error": "too_large"},
        {"match": "Focus on this: the widgets", "text": "## Goal\nWidgets."},
    )
    text = running.run("compact", session.id, "--instructions", "the widgets")
    rules(running)
    assert "Widgets." in text
    assert re.match(r"indexerd: the oldest parts \(\d+\) were left out", running.stderr)
    assert [row["success"] for row in audit(running, session)] == [False, True]


def test_a_digest_on_request_below_the_threshold(running: World) -> None:
    """S2.4, S2.15, S2.16, S2.17: right figures; `history --full` shows ranges and numbers."""
    session = running.session()
    session.turn("Where do alerts go?", "We decided to write alerts to a file.")
    session.talk(11)
    running.seen(session)
    before = running.fingerprint()
    last = running.run("history", session.id).splitlines()[-1]
    assert last.endswith("; these are the last 10, --full has all")
    text = running.run("digest", session.id)
    assert "24 -> 11 messages (54.2% less)" in text
    assert "messages 1-14 are" in text
    assert "compression" not in text
    assert "We decided to write alerts to a file." in text
    again = running.call("digest", ref=session.id)
    assert again["reason"] == "all but the newest 10 messages are already summarised"
    full = running.run("history", session.id, "--full")
    assert full.splitlines()[0].startswith("1-14  ")
    numbers = re.findall(r"^(\d+) (?:You|Answer)  ", full, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(15, 25))
    assert full.splitlines()[-1] == "24 prompts and answers, 14 summarised"
    found = running.run("--json", "history", session.id, "--full")
    assert [segment["covering_messages"] for segment in found["segments"]] == [[0, 13]]
    assert running.fingerprint() == before


def test_excluded_sessions_have_no_digests(running: World) -> None:
    """S2.2: neither automatically nor on request, while another session gets one."""
    quiet = running.session(turns=30, cwd="/quiet/project")
    running.seen(quiet)
    quiet.turn()
    loud = running.session(turns=30)
    wait_lines(running, loud, 1)
    found = running.call("digest", ref=quiet.id)
    assert (found["segment"], lines(running, quiet.id)) == (None, [])
    assert "exclude" in found["reason"]
    assert running.run("digest", quiet.id).startswith("nothing to do: digests are off")


def test_an_existing_session_gets_no_digest_until_it_grows(world: World) -> None:
    """S2.25, S2.6, S2.1: a long session from before the first run is left alone until it grows."""
    world.scripted()
    world.env |= ENV | {"INDEXERD_DIGEST__PRESERVE_RECENT": "8"}
    session, still = world.session(turns=30), world.session(turns=30)
    world.run("run", "--once")
    assert (lines(world, session.id), world.calls()) == ([], [])
    session.turn()  # no daemon is running
    world.run("run", "--once")
    (line,) = lines(world, session.id)
    assert line["covering_messages"] == [0, 53]
    session.talk(26)
    with world.daemon():
        wait_lines(world, session, 2)
        assert world.call("history", ref=session.id)["fullMessageCount"] == 114
        still.turn()
        wait_lines(world, still, 1)
    assert len(world.calls()) == 3
