"""Repeated runs of one session: what is sent again, what is kept, and what is recorded."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.models.answering import Answering, answering
from tests.e2e.world import Session, World
from tests.fakes.gemini_server import METADATA
from tests.fakes.openai_server import reply
from tests.fakes.wire import Answer

KEY = "ghp_" + "a1B2c3D4e5" * 4
CAP = {"INDEXERD_INDEX__MAX_BYTES": "1024"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    with answering(tmp_path_factory.mktemp("runs"), **CAP) as place:
        yield place


def amend(place: Answering, session: Session, **fields: Any) -> None:
    """Change the meta file as another program would."""
    path = place.world.meta_path(session.id)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"name": "Theirs"} | fields))


def prompt(place: Answering, session: Session) -> str:
    """The text that would be sent now."""
    place.world.seen(session)
    return str(place.world.call("as_sent", ref=session.id)["user"])


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        (None, True),  # no new message: a forced run sends everything
        ({"model": "local/extractive"}, True),
        ({"lastIndexedLeafId": "ffffffff"}, True),
        ({"summary": "  "}, True),
        ({"model": "openai/gpt"}, False),
    ],
)
def test_everything_is_sent_if_no_summary_can_be_continued(
    place: Answering, change: dict[str, str] | None, *, whole: bool
) -> None:
    """S3.15: no new message, a summary without a model, or an unknown leaf."""
    session = place.session(turns=3)
    place.index(session)
    if change:
        amend(place, session, **change)
        session.turn()
    sent = prompt(place, session)
    assert ("Question 1:" in sent, "previous_summary" in sent) == (whole, not whole)


@pytest.mark.parametrize("model", ["google/x", "local/extractive"])
def test_an_abandoned_branchs_summary_is_not_continued(place: Answering, model: str) -> None:
    """S3.15: decisions of another branch do not belong to this one."""
    session = place.session()
    fork = session.last
    session.turn("A question.", "Many words. " * 600)
    place.world.seen(session)
    place.index(session)
    amend(place, session, summary="## Goal\n- ABANDONED.", model=model)
    on_path, session.last = session.last, fork
    session.turn("Another way.", "Other words. " * 600)
    assert "ABANDONED" not in prompt(place, session)
    session.last = on_path
    session.turn("Go on.", "Other words. " * 600)
    assert "ABANDONED" in prompt(place, session)


def test_a_secret_across_two_runs_is_never_sent(place: Answering) -> None:
    """S2.21: it begins in a message that was sent and ends in a new one."""
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 3)
    session = place.session()
    session.turn("Print it.", f"-----BEGIN PRIVATE KEY-----\n{body}")
    place.world.seen(session)
    place.index(session)
    session.turn(f"{body}\n-----END PRIVATE KEY-----\nThat was the key.")
    sent = prompt(place, session)
    assert "That was the key." in sent
    assert "previous_summary" in sent
    assert "MIIE" not in sent


def test_a_secret_in_a_bad_answer_is_not_sent_again(place: Answering) -> None:
    """The retry contains the rejected answer in redacted form."""
    bad = (reply(f"No JSON, but {KEY}."), reply(f'{{"name": "{KEY}"}}'))
    session = place.session(*bad)
    place.index(session)
    _, second, third = place.prompts(session)
    for sent in (second, third):
        assert KEY not in sent
        assert "[redacted:github-token]" in sent


def test_a_newer_meta_file_keeps_unknown_fields(place: Answering) -> None:
    """A later schema is read as far as possible; a run keeps its version and fields."""
    session = place.session()
    place.index(session)
    amend(place, session, schemaVersion=7, colour="blue")
    session.turn()
    assert "previous_summary" in prompt(place, session)
    meta = place.index(session)
    assert (meta["schemaVersion"], meta["colour"]) == (7, "blue")
    assert meta["name"] == METADATA["name"]


def test_a_concurrent_write_is_not_overwritten(place: Answering) -> None:
    """S0.36: if the older extension wrote first, its file stays, and this is no failure."""
    session = place.session()
    place.index(session)

    def meanwhile() -> Answer:
        amend(place, session)
        return reply()

    session.turn()
    place.world.seen(session)
    place.answers_for(session, meanwhile)
    place.world.call("index", ref=session.id, force=True, wait=True)
    assert (place.world.meta(session.id) or {})["name"] == "Theirs"


def test_the_built_in_model_reads_the_whole_path(world: World) -> None:
    """S0.14: the cap is for models that cost; titles of commits reach only the built-in one."""
    world.env |= CAP
    session = world.session()
    session.say("user", "Please move the billing exports from cron to the job queue.")
    commit = "Run the billing exports as jobs of a queue"
    session.tool("bash", command=f"git commit -m '{commit}'")
    for number in range(5):
        said = f"Export {number} is a job in the queue now. {'It ran. ' * 60}"
        session.turn(f"And export {number}?", said)
    world.run("run", "--once")
    sent = world.run("show", session.id, "--as-sent").partition("</conversation>")[0]
    assert not [words for words in ("Please move", commit) if words in sent]
    summary = (world.meta(session.id) or {})["summary"]
    assert "Please move the billing exports" in summary
    assert f"Commit: {commit}" in summary
