"""The audit trail of indexing: who asked, what range was sent, what failed, and never the words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from indexerd.errors import ProviderError
from indexerd.models.base import Prompt, Reply
from indexerd.models.scripted import Answer, Delayed, Scripted
from tests.indexing.again_bench import Bench, answer, paid, told


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A session in a home of its own."""
    return Bench(tmp_path)


def test_the_audit_says_who_asked_and_what_range_was_sent(bench: Bench) -> None:
    """S2.24: who, and which range: up to which entry, and after which where only that was sent."""
    told(bench, 0)
    first = bench.session.last
    bench.index(paid(), asked=True)
    told(bench, 1)
    bench.index(paid(), asked=False)
    bench.index(paid())  # nothing is new: it is sent as a whole
    asked, daemon, unsaid = bench.rows
    assert (asked["by"], asked["leafId"], "since" in asked) == ("user", first, False)
    assert (daemon["by"], daemon["leafId"]) == ("daemon", bench.session.last)
    assert daemon["since"] == first
    assert "by" not in unsaid
    assert "since" not in unsaid


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize("cut", [False, True])
def test_redactions_in_an_earlier_summary_are_counted(tmp_path: Path, *, cut: bool) -> None:
    """S2.24: they were sent, so they are in the row and in the meta file; each of them once."""
    bench = Bench(tmp_path, max_bytes=1024)
    told(bench, 0, "Many words. " * 600)
    bench.index(paid())
    more = {"lastIndexedLeafId": bench.session.last, "model": "local/x"} if cut else {}
    bench.amend(summary=f"## Goal\n- Use {SECRET}", **more)
    told(bench, 1)
    bench.index(paid())
    assert ("since" in bench.rows[-1]) is not cut
    assert bench.rows[-1]["redactions"] == {"github-token": 1}
    assert bench.meta["redactions"] == {"github-token": 1}


def test_a_failed_attempt_says_what_was_sent(bench: Bench) -> None:
    """S2.24: a request that failed left the machine all the same."""
    told(bench, 0, f"The key is {SECRET}.")
    with pytest.raises(ProviderError):
        bench.index(Scripted([ProviderError("it is down")], remote=False))
    (row,) = bench.rows
    assert row["success"] is False
    assert row["bytes"] == bench.prepared().sent_bytes
    assert row["redactions"] == {"github-token": 1}


class Hanging(Scripted):
    """A model whose call is cancelled while it is out."""

    async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
        """End the run in the middle of the call."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await super().generate(prompt, timeout=timeout)


@pytest.mark.parametrize("reply", [Delayed(30.0), answer("## Goal\n- Build it.")])
def test_a_cancelled_call_is_in_the_audit(bench: Bench, reply: Answer) -> None:
    """M17, S2.24: a purge, or the end of the daemon, takes nothing back of what was sent.

    It comes before the answer, or while what that cost is put down.
    """
    told(bench, 0)
    with pytest.raises(asyncio.CancelledError):
        bench.index(Hanging([reply], remote=True))
    (row,) = bench.rows
    assert (row["success"], row["error"]) == (False, "cancelled")
    assert row["bytes"] > 0
    assert row["leafId"] == bench.session.last
    assert row["ms"] >= 0


def test_a_defect_of_a_model_is_in_the_audit_without_its_words(bench: Bench) -> None:
    """S2.24, X11: of an error that is none of ours only the name is told."""
    told(bench, 0)

    class Broken(Scripted):
        """Raises what no model should."""

        async def generate(self, prompt: Prompt, *, timeout: float) -> Reply:
            """Fail."""
            assert timeout
            raise ValueError(prompt.user)

    with pytest.raises(ValueError, match="number0"):
        bench.index(Broken(remote=False))
    assert bench.rows[0]["error"] == "internal error: ValueError"
