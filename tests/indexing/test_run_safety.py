"""What a model says, and what others left behind, seen through a whole indexing run."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from indexerd.errors import OutputInvalidError
from indexerd.meta.cache import TOPIC, MetaCache
from indexerd.models.attempts import ATTEMPTS
from indexerd.models.base import Finish, Reply, Tokens
from indexerd.models.scripted import Scripted
from indexerd.store.store import StateStore
from tests.indexing.again_bench import Bench, answer, indexed, told

KEY = "ghp_" + "a1B2c3D4e5" * 4
MARK = "[redacted:github-token]"
NONCE = re.compile(r"[0-9a-f]{16}")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A session of one turn."""
    bench = Bench(tmp_path)
    told(bench, 0)
    return bench


def scripted(*replies: Any) -> Scripted:
    """A model that says these, one after another, and is not paid for."""
    return Scripted(list(replies), remote=False)


@pytest.mark.parametrize("field", ["name", "description", "summary", "tags"])
def test_a_secret_that_the_model_says_is_not_kept(bench: Bench, field: str) -> None:
    """X7: whatever part of the answer it is in, the meta file has a mark in its place."""
    said = json.loads(answer("## Goal\n- Build it."))
    said[field] = [*said["tags"], KEY] if field == "tags" else f"Uses {KEY} now."
    bench.index(scripted(json.dumps(said)))
    assert KEY not in json.dumps(bench.meta)
    assert KEY[4:20] not in json.dumps(bench.meta).lower()
    assert field == "tags" or MARK in bench.meta[field]
    assert KEY not in bench.audit.read_text()


def test_a_secret_in_a_bad_answer_is_not_sent_again(bench: Bench) -> None:
    """X7: the retry carries the answer that was of no use; what it said goes out redacted."""
    model = scripted(f"No JSON, but {KEY}.", f'{{"name": "{KEY}"}}', answer("## Goal\n- Build it."))
    bench.index(model)
    assert len(model.calls) == 3
    for prompt in model.calls[1:]:
        assert KEY not in prompt.user + prompt.system
        assert MARK in prompt.user
    assert KEY not in bench.audit.read_text()


def test_an_answer_that_was_cut_is_none(bench: Bench) -> None:
    """M10: whole JSON, and yet the provider says that its limit cut it: asked for again."""
    whole = answer("## Goal\n- Build it.")
    cut = Reply(whole, "list", Finish.LENGTH, Tokens(9, 9))
    model = scripted(cut, cut, whole)
    bench.index(model)
    assert len(model.calls) == 3
    assert bench.meta["usage"]["calls"] == 3

    told(bench, 1)
    kept = bench.meta
    model = scripted(*[cut] * ATTEMPTS, whole)
    with pytest.raises(OutputInvalidError):
        bench.index(model)
    assert len(model.calls) == ATTEMPTS
    assert bench.meta == kept


def no_number(word: str) -> Any:
    """What JSON does not know was written."""
    raise AssertionError(f"{word} is no JSON")


# -- what others left (A10) ----------------------------------------------------------------------


def test_a_newer_meta_file_keeps_what_we_do_not_know(bench: Bench) -> None:
    """A10: of a later schema: read as well as can be; a due run keeps its version and fields."""
    indexed(bench, 2, schemaVersion=7, colour="blue", name="Theirs")
    told(bench, 5)
    assert "previous_summary" in bench.prepared().prompt.user
    model = scripted(answer("## Goal\n- Go on.", name="Ours"))
    bench.index(model)
    assert len(model.calls) == 1
    assert (bench.meta["schemaVersion"], bench.meta["colour"]) == (7, "blue")
    assert bench.meta["name"] == "Ours"


BROKEN = {
    "half": b'{"sessionId": "',
    "NULs": bytes(400),
    "another's": b'{"sessionId": "other"}',
    "vast": None,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_meta_file_is_told_of_once_and_written_anew(bench: Bench, kind: str) -> None:
    """A10, S0.38: left in place until then; one call makes it anew, whatever it was."""
    indexed(bench, 1)
    (path,) = bench.metas.glob("*.meta.json")
    broken = BROKEN[kind]
    if broken is None:
        with path.open("wb") as file:
            file.truncate(50 * 1024 * 1024)
    else:
        path.write_bytes(broken)
    size = path.stat().st_size

    heard: list[str] = []
    ledger = StateStore(bench.root / "shelf.sqlite")
    shelf = MetaCache(ledger, lambda _session, why: heard.append(why))
    for _ in range(3):
        shelf.sweep([str(bench.metas)], lambda _session: None)
        shelf.touched(str(path))
    assert len(heard) == 1
    assert list(shelf.problems()) == [bench.session.id]
    for session_id, packed in shelf.unstored.items():
        ledger.note(TOPIC, session_id, packed)
    again = MetaCache(ledger, lambda _session, why: heard.append(why))  # after a restart
    again.load()
    again.sweep([str(bench.metas)], lambda _session: None)
    assert len(heard) == 1
    ledger.close()
    assert path.stat().st_size == size

    model = scripted(answer("## Goal\n- Build it."))
    bench.index(model)
    assert len(model.calls) == 1
    assert bench.meta["summary"] == "## Goal\n- Build it."


def test_a_cancelled_run_writes_nothing(bench: Bench) -> None:
    """M17: who is stopped while the model thinks leaves no meta file, and no half of one."""

    class Stopped(Scripted):
        async def generate(self, prompt: Any, *, timeout: float) -> Reply:
            """End like a task that is cancelled."""
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        bench.index(Stopped(remote=False))
    assert not list(bench.metas.iterdir())
