"""How a model's answers are validated, retried, stored and recorded."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import AlreadyRunningError, IndexerdError, OutputInvalidError
from tests.e2e.models.answering import Answering, answering, prompt
from tests.e2e.references.expanding import meta
from tests.e2e.world import World, until
from tests.fakes.gemini_server import METADATA
from tests.fakes.openai_server import reply
from tests.fakes.wire import Answer

TWELVE = {
    *("sessionId", "sessionFile", "name", "description", "summary", "tags", "cwd"),
    *("createdAt", "updatedAt", "model", "lastIndexedLeafId"),
}
ADDED = {
    *("schemaVersion", "agent", "usage", "messageCount", "userMessageCount", "firstUserMessage"),
    *("filesRead", "filesModified", "toolsUsed", "keyDecisions", "redactions"),
    *("sessionCreatedAt", "sessionModifiedAt", "parentSessionFile"),
}


def answer_with(**fields: Any) -> Answer:
    return reply(json.dumps(METADATA | fields))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    with answering(tmp_path_factory.mktemp("answers")) as place:
        yield place


def test_an_answer_is_stored_as_the_contract_says(place: Answering) -> None:
    """S0.19, S0.20, S0.27, S0.32: the first usable model's; tags verbatim; no unknown field."""
    tags = ["ticket:ABC-123", "slack:thread", "API", "ticket:#1234", "api", "tests/io"]
    session = place.session(answer_with(tags=tags, mood="good", sessionId="another", cwd="/evil"))
    meta = place.index(session)
    assert TWELVE <= meta.keys() <= TWELVE | ADDED
    assert (meta["sessionId"], meta["cwd"], meta["schemaVersion"]) == (session.id, "/w", 1)
    assert meta["tags"] == tags
    assert meta["model"] == "openai/first"  # the model before it in the list has no key
    requests = [request for request in place.server.requests if session.id in prompt(request)]
    assert [request.json["model"] for request in requests] == ["first"]


def test_a_malformed_answer_is_retried_twice_and_recorded(place: Answering) -> None:
    """S0.22, S0.44: each retry has the answer before and its error; then the run fails."""
    session = place.session(reply("Certainly! A fine talk."), answer_with(tags=["lonely"]))
    before = place.world.fingerprint()
    place.index(session)
    first, second, third = place.prompts(session)
    assert second.startswith(first)
    assert third.startswith(first)
    assert "Certainly! A fine talk." in second.removeprefix(first)
    assert "Not a JSON object" in second
    assert "lonely" in third.removeprefix(first)
    assert "tags: " in third.removeprefix(first)
    assert "Certainly" not in third
    rows = place.rows(session)
    assert [row["success"] for row in rows] == [False, False, True]
    assert ["error" in row for row in rows] == [True, True, False]
    assert "tags: " in rows[1]["error"]
    for row in rows:
        assert row["customType"] == "session-index:index"
        assert row["model"] == "openai/first"
        assert row["timestamp"].endswith("Z")
        assert row["usage"]["inputTokens"] == 1200
    stored = place.world.meta_path(session.id).read_bytes()
    place.answers_for(session, *[reply("No.")] * 9)
    with pytest.raises(OutputInvalidError, match="after 3 attempts"):
        place.index(session)
    assert len(place.prompts(session)) == 3 + 3
    assert place.world.meta_path(session.id).read_bytes() == stored
    assert place.world.fingerprint() == before


def test_a_forced_run_waits_for_the_end_of_the_turn(place: Answering) -> None:
    """A forced run does not start during a tool call; it then reads the whole turn (S0.4)."""
    session = place.session()
    session.say("user", "And now?")
    session.say("assistant", "Looking.", stopReason="toolUse")
    place.world.seen(session)
    assert place.world.call("index", ref=session.id, force=True) == {"status": "queued"}
    with pytest.raises(AlreadyRunningError, match="already in progress"):
        place.world.call("index", ref=session.id, force=True)
    assert place.prompts(session) == []
    session.say("toolResult", "seen")
    session.answer("It is done.")
    assert place.world.wait_meta(session.id)["lastIndexedLeafId"] == session.last
    assert ["It is done." in prompt for prompt in place.prompts(session)] == [True]


def test_an_unwritable_log_does_not_stop_indexing(world: World) -> None:
    """A session is indexed although the log file cannot be written (S0.45)."""
    (world.state / "log.jsonl").mkdir(parents=True)
    session = world.session(turns=5)
    assert world.run("run", "--once", "--json")["indexed"] == [session.id]
    assert world.meta(session.id)


def test_a_meta_file_of_the_older_extension_is_read_unchanged(place: Answering) -> None:
    """All its fields are returned, even beyond today's limits, with schemaVersion 1 (S0.32)."""
    world = place.world
    session = world.session(turns=6)
    named = {"sessionFile": str(session.path), "parentSessionFile": "/p.jsonl", "tags": []}
    named |= {"description": "d" * 2000, "cwd": "/elsewhere", "lastIndexedLeafId": session.last}
    upstream = meta(session.id, "Named elsewhere", **named)
    world.metas.mkdir(exist_ok=True)
    path = world.meta_path(session.id)
    path.write_text(json.dumps(upstream))
    until(lambda: world.row(session.id).get("name") == "Named elsewhere", "the name")
    found = world.call("get", ref=session.id)
    assert found["meta"] == upstream | {"schemaVersion": 1}
    assert found["session"]["newUserMessages"] == 0
    assert json.loads(path.read_text()) == upstream
    again = place.index(session)
    assert again["createdAt"] == upstream["createdAt"]
    assert again["updatedAt"] > upstream["updatedAt"]


def test_an_unreadable_meta_file_fails_only_that_session(place: Answering) -> None:
    """S0.40: a directory or a symlink loop in its place is an error for that request only."""
    world = place.world
    world.metas.mkdir(exist_ok=True)
    for make in (Path.mkdir, lambda path: path.symlink_to(path)):
        session = place.session()
        make(world.meta_path(session.id))
        with pytest.raises(IndexerdError):
            place.index(session)
        assert world.call("get", ref=session.id)["session"]["sessionId"] == session.id
