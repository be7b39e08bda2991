"""Repeated runs of one session: what is sent, what is kept, and the audit trail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from indexerd.entries import Kind, code
from indexerd.indexing.indexer import border
from indexerd.meta.model import MetaFile
from indexerd.models.base import Reply
from indexerd.models.extractive import Extractive
from indexerd.privacy.redact import redact
from indexerd.sessions.state import SessionState
from tests.fakes.scripted import Answer, Delayed, Scripted
from tests.indexing.offline import Bench, answer, paid

KEY = "ghp_" + "a1B2c3D4e5" * 4
MARK = "[redacted:github-token]"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# # -- incremental runs ----------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "row"), [("pi", 3), ("opencode", 1), ("codex", 1)])
def test_a_turn_that_grows_is_sent_again(agent: str, row: int) -> None:
    """Answers of opencode are written while they grow, so half an answer may have been indexed."""
    state = SessionState()
    for at, kind in enumerate([Kind.USER, Kind.ASSISTANT] * 2 + [Kind.USER]):
        state.add(f"e{at}", f"e{at - 1}" if at else None, code(kind), at, 1)
    texts = dict.fromkeys(("session_id", "session_file", "name", "description", "cwd"), "x")
    times = dict.fromkeys(("created_at", "updated_at"), "2026-01-01T00:00:00.000Z")
    meta = MetaFile(
        **texts, **times, summary="s", tags=[], model="google/x", last_indexed_leaf_id="e3"
    )
    assert border(agent, state, meta) == row
    assert border("opencode", state, meta.model_copy(update={"last_indexed_leaf_id": "e1"})) is None


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        ({}, True),  # no new message: a forced run sends everything
        ({"model": "local/extractive"}, True),
        ({"lastIndexedLeafId": "ffffffff"}, True),
        ({"summary": "  "}, True),
        ({"model": "openai/gpt"}, False),
    ],
)
def test_everything_is_sent_if_no_summary_can_be_continued(
    bench: Bench, change: dict[str, Any], *, whole: bool
) -> None:
    """S3.15: no new message, a summary without a model, or an unknown leaf."""
    bench.indexed(**change)
    if change:
        bench.turn(3)
    prompt = bench.snapshot().prompt.user
    assert ("number0" in prompt, "previous_summary" in prompt) == (whole, not whole)


@pytest.mark.parametrize("model", ["google/x", "local/extractive"])
def test_an_abandoned_branchs_summary_is_not_continued(tmp_path: Path, model: str) -> None:
    """S3.15: decisions of another branch do not belong to this one."""
    bench = Bench(tmp_path, max_bytes=1024)
    bench.turn(0)
    fork = bench.session.last
    bench.turn(1, "Many words. " * 600)
    bench.index(paid())
    bench.amend(summary="## Goal\n- ABANDONED.", model=model)
    on_path = bench.session.last
    bench.session.last = fork
    bench.turn(7, "Other words. " * 600)
    left = bench.snapshot()
    assert "ABANDONED" not in left.prompt.user
    bench.session.last = on_path
    bench.turn(8, "Other words. " * 600)
    stayed = bench.snapshot()
    assert "ABANDONED" in stayed.prompt.user


def test_a_secret_across_the_border_is_never_sent(bench: Bench) -> None:
    """S2.21: it begins in a message that was sent and ends in a new one."""
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 4)
    bench.turn(0)
    bench.session.say("user", f"-----BEGIN PRIVATE KEY-----\n{body}")
    bench.index(paid())
    bench.session.say("assistant", f"{body}\n-----END PRIVATE KEY-----\nThat was the key.")
    prompt = bench.snapshot().prompt.user
    assert "That was the key." in prompt
    assert "MIIE" not in prompt
    assert redact(prompt).counts == {}


def test_the_built_in_model_reads_the_whole_path(tmp_path: Path) -> None:
    """S0.14: the cap is for models that cost; the goal of a long session is in its beginning."""
    bench = Bench(tmp_path, max_bytes=1024)
    bench.session.say("user", "Please move the billing exports from cron to the job queue.")
    for number in range(9):
        bench.turn(number, "Other words. " * 60)
    assert "billing exports" not in bench.snapshot().prompt.user
    bench.index(Extractive())
    assert "move the billing exports" in bench.meta["summary"]


# # -- answers --------------------------------------------------------------------------


def test_a_secret_in_a_bad_answer_is_not_sent_again(bench: Bench) -> None:
    """The retry contains the rejected answer in redacted form."""
    bench.turn(0)
    model = paid(f"No JSON, but {KEY}.", f'{{"name": "{KEY}"}}', answer())
    bench.index(model)
    assert len(model.calls) == 3
    for prompt in model.calls[1:]:
        assert KEY not in prompt.user + prompt.system
        assert MARK in prompt.user


def test_a_newer_meta_file_keeps_unknown_fields(bench: Bench) -> None:
    """A later schema is read as far as possible; a run keeps its version and fields."""
    bench.indexed(schemaVersion=7, colour="blue", name="Theirs")
    bench.turn(5)
    assert "previous_summary" in bench.snapshot().prompt.user
    bench.index(paid(answer(name="Ours")))
    assert (bench.meta["schemaVersion"], bench.meta["colour"]) == (7, "blue")
    assert bench.meta["name"] == "Ours"


def test_a_concurrent_write_is_not_overwritten(bench: Bench) -> None:
    """S0.36: if the older extension wrote first, its file stays, and this is no failure."""

    class Meanwhile(Scripted):
        async def generate(self, prompt: Any, *, timeout: float) -> Reply:
            bench.amend(name="Theirs")
            return await super().generate(prompt, timeout=timeout)

    bench.indexed()
    bench.turn(5)
    assert bench.index(Meanwhile([answer(name="Ours")], remote=False)) is None
    assert bench.meta["name"] == "Theirs"


# -- the audit trail -------------------------------------------------------------------------------


class Cancelled(Scripted):
    """A model whose call is cancelled while it is out."""

    async def generate(self, prompt: Any, *, timeout: float) -> Reply:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await super().generate(prompt, timeout=timeout)


@pytest.mark.parametrize("reply", [Delayed(30.0), answer()])
def test_a_cancelled_call_writes_nothing_but_its_audit(bench: Bench, reply: Answer) -> None:
    """S2.24: a purge or shutdown does not undo that text was sent."""
    bench.turn(0)
    bench.index(Cancelled([reply], remote=True))
    (row,) = bench.rows
    assert (row["success"], row["error"]) == (False, "cancelled")
    assert row["leafId"] == bench.session.last
    assert not list(bench.metas.iterdir())
