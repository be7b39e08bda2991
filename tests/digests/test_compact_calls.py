"""Compactions and branch summaries of one session, called without a daemon."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from indexerd.digests.compact_pi import estimate_tokens
from indexerd.errors import (
    SessionEmptyError,
    UsageError,
)
from indexerd.protocol import params
from tests.models.digest_bench import KEY, Bench, Quoting, calls, spoken, working


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A session that holds nothing yet."""
    return Bench(tmp_path)


def left(bench: Bench) -> str:
    """A branch that was left, by its last entry."""
    session = bench.session
    session.turn("Start.")
    fork = session.last
    session.turn("Try Redis.", "We chose to try Redis.")
    calls(session, "edit", {"path": "/w/redis.py"})
    session.say("assistant", "It is too big.", stopReason="stop")
    leaf = str(session.last)
    session.last = fork
    session.turn("Try files.", "Files work.")
    return leaf


def test_a_branch_that_was_left_is_summed_up(bench: Bench) -> None:
    """S1.27: from the old leaf to the common ancestor, stored once; the session is not changed."""
    leaf = left(bench)
    before = bench.session.path.read_bytes(), bench.session.path.stat().st_mtime_ns
    model = bench.scripted("## Goal\nRedis.", "## Goal\nRedis again.")
    found = bench.branch_summary(leaf)
    assert found["summary"].startswith("The user explored a different conversation branch before")
    assert "## Goal\nRedis." in found["summary"]
    assert found["summary"].endswith("\n\n<modified-files>\n/w/redis.py\n</modified-files>")
    assert found["details"] == {"readFiles": [], "modifiedFiles": ["/w/redis.py"]}
    user = model.calls[0].user
    assert "Try Redis." in user
    assert "Start." not in user
    assert "Try files." not in user
    bench.branch_summary(leaf)
    (line,) = bench.lines()
    assert (line["kind"], line["leafId"], line["covering_messages"]) == ("branch", leaf, [2, 5])
    assert line["content"] == "## Goal\nRedis again."
    assert line["key_decisions"] == ["We chose to try Redis."]
    assert bench.history()["segments"] == []
    assert (bench.session.path.read_bytes(), bench.session.path.stat().st_mtime_ns) == before
    assert [row["task"] for row in bench.rows()] == ["branch"] * 2


def test_instructions_are_added_to_a_branchs_prompt_or_replace_it(bench: Bench) -> None:
    """S1.28."""
    leaf = left(bench)
    model = bench.scripted("a", "b")
    bench.branch_summary(leaf, instructions="Mind the size.")
    bench.branch_summary(leaf, instructions="Mind the size.", replaceInstructions=True)
    first, second = (call.user for call in model.calls)
    assert "## Key Decisions" in first
    assert first.endswith("Dwell on this: Mind the size.")
    assert "## Key Decisions" not in second
    assert second.endswith("</conversation>\n\nMind the size.")


def test_of_a_branch_without_content_there_is_nothing_to_say(bench: Bench) -> None:
    """S1.28: pi's words, no model, and nothing stored; also where only a picture was sent."""
    bench.session.turn("Start.")
    fork = bench.session.last
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    picture = bench.session.entry("message", message={"role": "user", "content": [image]})
    bench.session.last = fork
    bench.session.turn("Go on.")
    model = bench.scripted("x")
    for leaf in (str(fork), picture):
        assert bench.branch_summary(leaf)["summary"] == "No content to summarize"
    assert (model.calls, bench.lines()) == ([], [])


def test_a_branchs_budget_is_spent_newest_first(bench: Bench) -> None:
    """S1.28: the window less what is kept free; the oldest is what goes."""
    bench.made(digest={"context_window": 1000, "reserve_tokens": 500})
    bench.session.turn("Start.")
    fork = bench.session.last
    bench.session.turn("oldest " * 300, "middle " * 100)
    bench.session.turn("newest question")
    leaf = str(bench.session.last)
    bench.session.last = fork
    bench.session.turn("Go on.")
    model = bench.scripted("x")
    bench.branch_summary(leaf)
    assert "newest question" in model.calls[0].user
    assert "middle" in model.calls[0].user
    assert "oldest" not in model.calls[0].user


# -- compaction ----------------------------------------------------------------------------------


def test_pis_compaction(bench: Bench) -> None:
    """S1.25, S1.26, issue 5: pi's result, file blocks and all; nothing is changed or stored."""
    working(bench)
    before = bench.session.path.read_bytes(), bench.session.path.stat().st_mtime_ns
    model = bench.scripted("## Goal\nAlerts.")
    found = bench.compact(keepRecentTokens=100, instructions="Mind the alerts.")
    assert found["firstKeptEntryId"] in bench.session.path.read_text()
    assert found["tokensBefore"] == sum(map(estimate_tokens, spoken(bench.session.path)))
    assert (
        found["summary"] == "## Goal\nAlerts.\n\n<modified-files>\n/w/alerts.py\n</modified-files>"
    )
    assert found["details"] == {"readFiles": [], "modifiedFiles": ["/w/alerts.py"]}
    assert (found["isSplitTurn"], found["alreadyCompacted"]) == (False, False)
    assert model.calls[0].user.endswith("Dwell on this: Mind the alerts.")
    assert KEY not in model.calls[0].user
    assert bench.lines() == []
    assert (bench.session.path.read_bytes(), bench.session.path.stat().st_mtime_ns) == before
    (row,) = bench.rows()
    assert (row["task"], row["success"]) == ("compaction", True)


def test_a_turn_that_is_split_has_two_summaries(bench: Bench) -> None:
    """S1.26: what was before it, and its own beginning, under pi's heading."""
    session = bench.session
    session.turn("Before.", "Yes.")
    session.say("user", "A long turn.")
    for n in range(6):
        session.say("assistant", f"step {n} " * 50, stopReason="toolUse")
    model = bench.scripted("HISTORY", "PREFIX")
    found = bench.compact(keepRecentTokens=150)
    assert found["isSplitTurn"] is True
    assert found["summary"] == "HISTORY\n\n---\n\n**Turn Context (split turn):**\n\nPREFIX"
    assert "Before." in model.calls[0].user
    assert "## Original Request" in model.calls[1].user
    assert "A long turn." in model.calls[1].user
    assert found["usage"]["calls"] == 2


def test_a_split_turn_right_after_a_compaction_keeps_its_summary(bench: Bench) -> None:
    """S3.15: with no history to sum up, the summary there is stays as it is."""
    session = bench.session
    session.turn("Old.")
    session.entry("compaction", summary="FACT 1", firstKeptEntryId="gone", tokensBefore=9)
    session.say("user", "A long turn.")
    for n in range(6):
        session.say("assistant", f"step {n} " * 50, stopReason="toolUse")
    bench.scripted("PREFIX", "x")
    found = bench.compact(keepRecentTokens=150)
    assert found["summary"] == "FACT 1\n\n---\n\n**Turn Context (split turn):**\n\nPREFIX"


@pytest.mark.parametrize("strategy", [None, "pi", "codex", "opencode"])
def test_what_is_compacted_already_is_told_as_it_is(bench: Bench, strategy: str | None) -> None:
    """formats.md 1.7: its own summary, without a model, by any rules."""
    session = bench.session
    session.turn("Old.")
    session.entry("compaction", summary="FACT 1", firstKeptEntryId="gone", tokensBefore=9)
    model = bench.scripted("x")
    found = bench.compact(strategy=strategy) if strategy else bench.compact()
    assert "FACT 1" in found["summary"]
    assert (found["alreadyCompacted"], model.calls) == (True, [])


def test_nothing_to_compact(bench: Bench) -> None:
    """S2.20: an error that says what to do; without a strategy by name all of it is summed up."""
    with pytest.raises(SessionEmptyError):
        bench.compact()
    bench.session.talk(2)
    model = bench.scripted("All of it.")
    with pytest.raises(SessionEmptyError, match="20000"):
        bench.compact(strategy="pi")
    assert model.calls == []
    found = bench.compact()
    assert (found["summary"], found["firstKeptEntryId"]) == ("All of it.", None)


def test_codex_keeps_what_humans_said(bench: Bench) -> None:
    """formats.md 3.10: verbatim, then the summary; within 20,000 tokens."""
    bench.session.turn("First " + "x" * 60_000, "One.")
    bench.session.turn("Second " + "y" * 60_000, "Two.")
    bench.scripted("All of it.")
    found = bench.compact(strategy="codex")
    *users, summary = found["replacementHistory"]
    assert (summary["role"], summary["text"]) == ("user", "All of it.")
    assert users[-1]["text"] == "Second " + "y" * 60_000
    assert users[0]["text"].startswith("First xxx")
    assert len(users[0]["text"]) < 21_000
    assert "modified-files" not in found["summary"]


def test_opencode_prunes_old_output_first(bench: Bench) -> None:
    """S3.22: beyond the newest 40,000 tokens, where more than 20,000 go, not in the last turns."""
    session = bench.session
    for _ in range(4):
        session.say("user", "More.")
        session.turns += 1
        calls(session, "bash", {"command": "seq"}, f"output{session.turns} " + "z" * 120_000)
        session.say("assistant", "Seen.", stopReason="stop")
    model = bench.scripted("All of it.")
    bench.compact(strategy="opencode")
    user = model.calls[0].user
    assert "[Old tool result content cleared]" in user
    assert "output4" in user
    assert "output1" not in user


def test_a_handoff_is_one_document(bench: Bench) -> None:
    """Issue 5, S3.19: with the summary, the newest messages, files, decisions, and no secret."""
    working(bench)
    bench.scripted("## Goal\nAlerts.")
    text = bench.compact(handoff=True)["handoff"]
    assert text.startswith("# Hand-off: ")
    for words in ("## Goal\n> Alerts.", "alerts.py", "We decided to write alerts to a file."):
        assert words.replace("\n> ", "\n") in text.replace("\n> ", "\n"), words
    assert bench.session.id in text
    assert KEY not in text
    assert "## Last messages" in text


@pytest.mark.parametrize(
    "params",
    [
        {"strategy": "claude"},
        {"instructions": "x" * 4001},
        {"leaf": ""},
        {"keepRecentTokens": -1},
        {"keepRecentTokens": True},
        {"handoff": "yes"},
    ],
)
def test_what_cannot_be_asked(bench: Bench, params: dict[str, Any]) -> None:
    """S0.64: told before anything is read."""
    bench.session.talk(1)
    with pytest.raises(UsageError):
        bench.compact(**params)


def test_a_digest_and_a_branchs_summary_at_once_are_both_kept(bench: Bench) -> None:
    """S3.26: neither undoes what the other has written."""
    leaf = left(bench)
    bench.session.talk(20)

    async def both(held: Any) -> None:
        ref = bench.session.id
        for _ in range(5):
            await asyncio.gather(
                held.digests.digest(params.Digest(ref=ref)),
                held.compactions.branch_summary(params.BranchSummary(ref=ref, leaf=leaf)),
            )
            kinds = sorted(line.get("kind", "segment") for line in bench.lines())
            assert kinds == ["branch", "segment"]
            bench.sidecar.unlink()

    bench.scripted()
    bench.run(both)


def test_a_compaction_goes_on_from_the_one_before(bench: Bench) -> None:
    """S1.22, S3.15: the agent's own summary is merged, and not summed up as if it were said."""
    bench.session.turn("x", "y")
    kept = bench.session.say("user", "kept question")
    bench.session.say("assistant", "kept answer", stopReason="stop")
    details = {"readFiles": ["/w/old.py"], "modifiedFiles": []}
    bench.session.entry(
        "compaction", summary="FACT 1", firstKeptEntryId=kept, tokensBefore=9, details=details
    )
    bench.session.turn("Mind this: FACT 2.")
    bench.models = [Quoting()]
    found = bench.compact(keepRecentTokens=1)
    assert set(re.findall(r"FACT \d", found["summary"])) == {"FACT 1", "FACT 2"}
    assert found["details"]["readFiles"] == ["/w/old.py"]
