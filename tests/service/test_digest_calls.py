"""Digests, compactions and branch summaries of one session, called without a daemon."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from indexerd.core.compact_pi import estimate_tokens
from indexerd.core.speech import Speech
from indexerd.errors import (
    BudgetError,
    ContextTooLargeError,
    IndexerdError,
    ModelUnavailableError,
    NotFoundError,
    OutputInvalidError,
    ProviderError,
    RefusedError,
    SessionEmptyError,
    UsageError,
    WriteError,
)
from indexerd.events import Entry, Kind
from indexerd.llm.base import Finish, Reply, Tokens
from indexerd.llm.offline import Extractive
from indexerd.llm.scripted import Answer, Scripted
from tests.e2e.world import Session
from tests.service.digest_bench import Bench

KEY = "ghp_" + "a1B2c3D4e5F6" * 3
FIELDS = ["id", "covering_messages", "content", "key_decisions", "files_modified", "tools_used"]
FIELDS += ["generated_at", "token_count", "model", "leafId"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def calls(session: Session, name: str, arguments: dict[str, Any], output: str = "ok") -> None:
    """An answer that calls a tool, and the tool's result."""
    call = {"type": "toolCall", "id": f"c{session.turns}", "name": name, "arguments": arguments}
    session.entry(
        "message", message={"role": "assistant", "content": [call], "stopReason": "toolUse"}
    )
    result = [{"type": "text", "text": output}]
    told = {"role": "toolResult", "toolCallId": call["id"], "toolName": name, "content": result}
    session.entry("message", message=told)


def working(bench: Bench, turns: int = 20) -> Session:
    """A session in which things were done and decided."""
    session = bench.session
    session.turn("Where do the alerts go?", "We decided to write alerts to a file. It is small.")
    session.say("user", "Please write it.")
    session.turns += 1
    calls(session, "write", {"path": "/w/alerts.py", "content": "x"})
    session.turns += 1
    calls(session, "bash", {"command": f"deploy --token {KEY} CUSTOM-42"}, f"used {KEY}")
    session.say("assistant", f"Deployed with {KEY}.", stopReason="stop")
    session.talk(turns)
    return session


# -- segments ------------------------------------------------------------------------------------


def test_a_segment_as_it_is_stored(bench: Bench) -> None:
    """S2.8, S2.11-S2.13, S2.22: exactly the fields of interfaces.md, true facts, 0600 in 0700."""
    working(bench)
    bench.scripted("- Alerts go to a file.")
    found = bench.digest()
    (line,) = bench.lines()
    assert list(line) == FIELDS
    assert line == found["segment"]
    assert line["covering_messages"] == [0, found["before"] - 11]
    assert line["content"] == "- Alerts go to a file."
    assert line["key_decisions"] == ["We decided to write alerts to a file."]
    assert line["files_modified"] == ["/w/alerts.py"]
    assert [(one["tool"], one["count"]) for one in line["tools_used"]] == [
        ("bash", 1),
        ("write", 1),
    ]
    assert line["token_count"] == 6
    assert line["generated_at"] == "2027-01-15T08:00:00.000Z"
    assert line["model"] == "scripted/list"
    tree = {json.loads(one).get("id") for one in bench.session.path.read_text().splitlines()}
    assert line["leafId"] in tree
    assert stat.S_IMODE(bench.sidecar.stat().st_mode) == 0o600
    assert stat.S_IMODE(bench.metas.stat().st_mode) == 0o700


def test_no_secret_reaches_model_sidecar_or_answer(bench: Bench) -> None:
    """S2.21: known ones, and those of the user's own patterns, in texts, calls and results."""
    bench.made(redact={"extra_patterns": ["CUSTOM-[0-9]+"]})
    working(bench)
    model = bench.scripted(f"- Deployed with {KEY} and CUSTOM-42.")
    found = bench.digest()
    sent = json.dumps([[call.system, call.user] for call in model.calls])
    assert "deploy --token" in sent
    kept = bench.sidecar.read_text()
    for text in (sent, kept, json.dumps(found), json.dumps(bench.heard)):
        assert KEY not in text
        assert "CUSTOM-42" not in text
    (row,) = bench.rows()
    assert sum(row["redactions"].values()) >= 3


def test_what_others_wrote_beside_a_session_is_redacted_before_it_is_sent(bench: Bench) -> None:
    """S2.21: a segment by another hand is a part of the next one's prompt."""
    working(bench)
    bench.scripted("x")
    bench.digest()
    (line,) = bench.lines()
    bench.sidecar.write_text(json.dumps(line | {"content": f"They used {KEY} here."}) + "\n")
    bench.session.talk(10)
    bench.models = []
    model = bench.scripted("y")
    bench.digest()
    assert "They used [redacted:github-token] here." in model.calls[0].user


def test_the_figures_are_true(bench: Bench) -> None:
    """S2.10, S2.16: counted again here, from the session's own file and the sidecar."""
    working(bench)
    text = "- Alerts go to a file.\n" * 20
    bench.scripted(text)
    found = bench.digest()
    speeches = _spoken(bench.session.path)
    spoken = [at for at, one in enumerate(speeches) if one.role != "toolResult"]
    assert found["before"] == len(spoken)
    assert found["after"] == 11
    assert found["reduction"] == round(100 * (found["before"] - 11) / found["before"], 1)
    border = spoken[-10]
    covered = sum(map(estimate_tokens, speeches[:border]))
    recent = sum(map(estimate_tokens, speeches[border:]))
    summary = -(-len(found["segment"]["content"]) // 4)
    assert found["tokensBefore"] == covered + recent
    assert found["tokensAfter"] == summary + recent
    assert found["tokensSaved"] == covered - summary
    assert found["compression"] == round(summary / covered, 4)
    assert (found["targetCompression"], found["targetMet"]) == (0.3, summary / covered <= 0.3)
    assert found["files"] == ["/w/alerts.py"]
    assert found["decisions"] == ["We decided to write alerts to a file."]
    assert found["commands"] == ["deploy --token [redacted:github-token] CUSTOM-42"]
    assert found["topics"]


def _spoken(path: Path) -> list[Speech]:
    """What a pi session says, without any code of ours but the estimate."""
    found = []
    for line in path.read_text().splitlines():
        held = json.loads(line).get("message")
        if held is None:
            continue
        texts = tuple(one["text"] for one in held["content"] if one["type"] == "text")
        entry = Entry("", Kind.OTHER, "", held["role"], "")
        asked = [one for one in held["content"] if one["type"] == "toolCall"]
        extra = "".join(
            one["name"] + json.dumps(one["arguments"], separators=(",", ":")) for one in asked
        )
        found.append(Speech(held["role"], entry, (*texts, extra) if extra else texts))
    return found


def test_the_newest_messages_stay_and_segments_follow_each_other(bench: Bench) -> None:
    """S2.4, S2.5, S2.7, S2.14, S2.15: no gap, no overlap, the newest ten word for word."""
    bench.models = [Extractive()]
    covering = []
    for n in range(4):
        bench.session.talk(7 + n)
        covering.append(bench.digest()["segment"]["covering_messages"])
        assert bench.digest()["segment"] is None
    assert covering[0][0] == 0
    assert all(one[1] + 1 == two[0] for one, two in zip(covering, covering[1:], strict=False))
    found = bench.history(full=True)
    total = found["fullMessageCount"]
    assert total == 2 * bench.session.turns == covering[-1][1] + 11
    assert [one["covering_messages"] for one in found["segments"]] == covering
    assert [one["n"] for one in found["recent"]] == list(range(total - 10, total))
    folded, *recent = found["context"]
    blocks = re.findall(r"\[Previous conversation summarized - (\d+) messages\]", folded["text"])
    assert [int(one) for one in blocks] == [b - a + 1 for a, b in covering]
    assert folded["text"].startswith("Previous conversation context:\n\n--- Earlier in convers")
    assert [one["text"] for one in recent] == [one["text"] for one in found["recent"]]


def test_system_messages_come_first_unless_they_are_not_wanted(bench: Bench) -> None:
    """S2.7, S2.14: verbatim, before what was folded."""
    bench.session.say("system", "Never touch main.")
    bench.session.talk(20)
    bench.models = [Extractive()]
    bench.digest()
    roles = [one["role"] for one in bench.history(full=True)["context"]]
    assert roles[:2] == ["system", "user"]
    assert bench.history(full=True)["context"][0]["text"] == "Never touch main."
    bench.made(digest={"preserve_system": False})
    assert "system" not in [one["role"] for one in bench.history(full=True)["context"]]


@pytest.mark.parametrize(
    ("digest", "reason"),
    [
        ({"enabled": False}, "enabled"),
        ({"exclude": ["/w"]}, "exclude"),
        ({"exclude": ["*--w--*"]}, "exclude"),
    ],
)
def test_switched_off_there_are_no_digests(bench: Bench, digest: Any, reason: str) -> None:
    """S2.2: everywhere, by directory, or by the session's file; asked for by hand, too."""
    bench.made(digest=digest)
    bench.session.talk(40)
    model = bench.scripted("x")
    found = bench.digest()
    assert found["segment"] is None
    assert reason in found["reason"]
    assert (model.calls, bench.lines()) == ([], [])


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_nothing_to_fold_is_no_error(bench: Bench, turns: int) -> None:
    """S2.4: an empty range does nothing, and asks no model."""
    bench.session.talk(turns)
    bench.session.say("user", "More?") if not turns else None
    model = bench.scripted("x")
    found = bench.digest()
    assert (found["segment"], found["before"], found["after"]) == (
        *(None, max(1, 2 * turns)),
        max(1, 2 * turns),
    )
    assert found["reason"]
    assert (model.calls, bench.lines()) == ([], [])


def test_messages_without_a_word_make_no_segment(bench: Bench) -> None:
    """S2.20: there is nothing to sum up, and nothing is stored in its place."""
    for _ in range(20):
        bench.session.turn("", "")
        bench.session.say("user", "")
    bench.scripted("x")
    with pytest.raises(SessionEmptyError):
        bench.digest()
    assert bench.lines() == []


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ([ProviderError("down")], ProviderError),
        ([RefusedError("no")], RefusedError),
        (["", "", ""], OutputInvalidError),
        ([Reply("half", "m", finish=Finish.LENGTH)] * 3, OutputInvalidError),
        ([BudgetError("spent")], BudgetError),
        ([ContextTooLargeError("big")] * 9, ContextTooLargeError),
        (None, ModelUnavailableError),
    ],
)
def test_a_failure_changes_nothing(
    bench: Bench, replies: list[Answer] | None, kind: type[IndexerdError]
) -> None:
    """S2.20: the sidecar stays byte for byte; the next try makes what this one did not."""
    bench.models = [Extractive()]
    bench.session.talk(20)
    bench.digest()
    before = bench.sidecar.read_bytes(), bench.sidecar.stat().st_mtime_ns
    bench.session.talk(20)
    bench.models = [] if replies is None else [Scripted(replies)]
    history = bench.history(full=True)
    with pytest.raises(kind):
        bench.digest()
    assert (bench.sidecar.read_bytes(), bench.sidecar.stat().st_mtime_ns) == before
    assert bench.history(full=True) == history
    assert all(not row["success"] for row in bench.rows()[1:])
    bench.models = [Extractive()]
    assert bench.digest()["segment"]["covering_messages"] == [30, 69]


def test_a_directory_that_cannot_be_written_changes_nothing(bench: Bench) -> None:
    """S2.20: what was paid is on record, and the next try makes the segment."""
    bench.metas.parent.mkdir(exist_ok=True)
    bench.metas.write_text("in the way")
    bench.session.talk(20)
    bench.scripted("One.", "Two.")
    with pytest.raises((WriteError, NotFoundError, IndexerdError)):
        bench.digest()
    assert bench.metas.read_text() == "in the way"
    bench.metas.unlink()
    assert bench.digest()["segment"]["covering_messages"] == [0, 29]


def test_lines_of_other_hands_stay(bench: Bench) -> None:
    """S0.38: unknown fields and unknown lines are kept where they are."""
    bench.session.talk(20)
    bench.metas.mkdir()
    bench.sidecar.write_text('{"note": "mine", "x": 1}\nno json\n')
    bench.models = [Extractive()]
    bench.digest()
    assert bench.lines()[0] == {"note": "mine", "x": 1}
    assert len(bench.lines()) == 2


def test_a_dry_run_only_counts(bench: Bench) -> None:
    """S2.16: no model, no file."""
    bench.session.talk(30)
    model = bench.scripted("x")
    found = bench.digest(dryRun=True)
    assert (found["segment"], found["before"], found["tokensSaved"]) == (None, 60, 0)
    assert (model.calls, bench.lines()) == ([], [])


# -- iteration -----------------------------------------------------------------------------------


class Quoting(Scripted):
    """A model that repeats the facts it is shown, as `FACT n`."""

    async def generate(self, prompt: Any, *, timeout: float) -> Reply:
        self.calls.append(prompt)
        facts = dict.fromkeys(re.findall(r"FACT \d+", prompt.user))
        return Reply("; ".join(facts), "m", tokens=Tokens(1, 1))


def test_facts_outlive_ten_rounds(bench: Bench) -> None:
    """S2.27, S3.15: each prompt has earlier summaries and only new messages; nothing is lost."""
    model = Quoting()
    bench.models = [model]
    for n in range(10):
        bench.session.turn(f"Mind this: FACT {n}.")
        bench.session.talk(9)
        bench.digest()
        context = bench.history(full=True)["context"][0]["text"]
        facts = set(re.findall(r"FACT \d+", context))
        assert facts == {f"FACT {one}" for one in range(n + 1)}
    for n, call in enumerate(model.calls):
        talk, _, rest = call.user.partition("</conversation>")
        assert re.findall(r"Mind this: FACT (\d+)", talk) == [str(n)]
        assert ("<previous-summary>" in rest) == (n > 0)
        assert (f"FACT {n - 1}" in rest) == (n > 0)


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


# -- branches ------------------------------------------------------------------------------------


def test_branches_share_what_they_share(bench: Bench) -> None:
    """S2.5, issue 5: a switch keeps the segment from before the fork, and the other comes back."""
    bench.models = [Extractive()]
    session = bench.session
    session.talk(20)
    first = bench.digest()["segment"]
    fork = session.last
    session.talk(10)
    second = bench.digest()["segment"]
    old = session.last
    session.last = fork
    session.turn("Another way.")
    found = bench.history()
    assert [one["id"] for one in found["segments"]] == [first["id"]]
    assert found["fullMessageCount"] == 42
    session.talk(9)
    third = bench.digest()["segment"]
    assert third["covering_messages"] == [30, 49]
    assert [one["id"] for one in bench.history()["segments"]] == [first["id"], third["id"]]
    session.last = old
    session.turn("Back.")
    assert [one["id"] for one in bench.history()["segments"]] == [first["id"], second["id"]]
    other = bench.history(leaf=fork)
    assert [one["id"] for one in other["segments"]] == [first["id"]]
    assert len(bench.lines()) == 3


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
    assert found["tokensBefore"] == sum(map(estimate_tokens, _spoken(bench.session.path)))
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
        digest, branch = held.digests.methods(), held.compactions.methods()
        ref = {"ref": bench.session.id}
        for _ in range(5):
            await asyncio.gather(
                digest["digest"](ref, None),
                branch["branch_summary"](ref | {"leaf": leaf}, None),
            )
            kinds = sorted(line.get("kind", "segment") for line in bench.lines())
            assert kinds == ["branch", "segment"]
            bench.sidecar.unlink()

    bench.scripted()
    bench.run(both)
