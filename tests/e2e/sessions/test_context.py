"""The context a model would get: compactions, file lists, fill level and cut points."""

import re
from typing import Any

import pytest

from tests.e2e.world import ROOT, Session, World

ENV = {"INDEXERD_MIN_NEW_USER_MESSAGES": "10000"}


def ask(world: World, method: str, session: Session, **params: Any) -> dict[str, Any]:
    world.seen(session)
    answer: dict[str, Any] = world.call(method, ref=session.id, **params)
    return answer


def texts(found: dict[str, Any]) -> list[str]:
    return [f"{message['role']} {message['text']}" for message in found["messages"]]


def compaction(session: Session, summary: str, kept: str, **more: Any) -> str:
    fields = {"summary": summary, "firstKeptEntryId": kept, "tokensBefore": 9}
    return session.entry("compaction", **fields, **more)


def test_a_compaction_replaces_earlier_entries(running: World) -> None:
    """S1.19, S1.21, S1.22: the newest counts; all are listed, unchanged, the newest first."""
    session = running.session()
    session.turn("one", "1")
    kept = session.say("user", "two")
    session.answer("2")
    first = compaction(session, "S1", kept)
    three = session.say("user", "three")
    session.answer("3")
    later = ["user three", "assistant 3"]
    shown = ["compactionSummary S1", "user two", "assistant 2", *later]
    assert texts(ask(running, "context", session)) == shown
    odd = {"anything": [1, {"deep": None}], "readFiles": ["/w/hooked"]}
    second = compaction(session, "S2", three, details=odd, fromHook=True)
    found = ask(running, "context", session)
    assert texts(found) == ["compactionSummary S2", *later]
    assert found["previousSummary"] == "S2"
    newest, oldest = found["compactions"]
    assert (newest["entryId"], oldest["entryId"]) == (second, first)
    assert (newest["details"], newest["fromHook"], newest["tokensBefore"]) == (odd, True, 9)
    assert "fromHook" not in oldest
    compaction(session, "S3", "n0b0dy")  # an unknown id keeps none
    session.say("user", "four")
    assert texts(ask(running, "context", session)) == ["compactionSummary S3", "user four"]


LISTED = {"readFiles": ["/w/z", "/w/e"], "modifiedFiles": ["/w/m"]}
WITH_LISTED = {"readFiles": ["/w/b", "/w/z"], "modifiedFiles": ["/w/a", "/w/e", "/w/m"]}


@pytest.mark.parametrize("hook", [{}, {"fromHook": True}], ids=["agent", "extension"])
def test_file_lists_continue_those_of_the_last_compaction(
    running: World, hook: dict[str, Any]
) -> None:
    """Changed files are not listed as read; extensions' lists are ignored (S1.21, S1.23, S3.17)."""
    session = running.session(turns=1)
    compaction(session, "S1", "none", details=LISTED, **hook)
    session.say("user", "Go on.")
    work(session)
    details = ask(running, "compact", session, keepRecentTokens=1)["details"]
    own = {"readFiles": ["/w/b"], "modifiedFiles": ["/w/a", "/w/e"]}
    assert details == (own if hook else WITH_LISTED)


def test_a_branchs_file_lists_include_its_summaries(running: World) -> None:
    """A branch's files include those listed in summaries on it (S1.23)."""
    session = running.session(turns=1)
    fork = session.last
    session.say("user", "Try it.")
    session.entry("branch_summary", fromId="x", summary="Tried before.", details=LISTED)
    leaf = work(session)
    session.last = fork
    session.turn("Something else.")
    assert ask(running, "branch_summary", session, leaf=leaf)["details"] == WITH_LISTED


def work(session: Session) -> str:
    session.tool("read", path="/w/b")
    session.tool("edit", path="/w/e", oldText="a", newText="b")
    session.tool("write", path="/w/a", content="x")
    session.tool("bash", command="cat /w/never")
    return session.answer()


def test_the_serialized_context_has_pis_format(running: World) -> None:
    """Bracketed speakers, calls with arguments, tool results of 2,000 characters (S1.24)."""
    session = running.session()
    session.say("user", "Read it.")
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "/a", "n": 1}}
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}, call, call]
    session.said("assistant", *parts, stopReason="toolUse")
    session.say("toolResult", "x" * 2345, toolCallId="c", toolName="read")
    session.answer()
    found = ask(running, "context", session, serialize=True)["serialized"]
    call_text = 'read(path="/a", n=1)'
    assert found == "\n\n".join(
        [
            "[User]: Read it.",
            "[Assistant thinking]: Hm.",
            "[Assistant]: Yes.",
            f"[Assistant tool calls]: {call_text}; {call_text}",
            f"[Tool result]: {'x' * 2000}\n\n[... 345 more characters truncated]",
            "[Assistant]: Done.",
        ]
    )


def test_a_cut_never_separates_a_tool_result(running: World) -> None:
    """A split turn is marked, and its beginning is summarized (S1.26)."""
    session = running.session(turns=2)
    first = session.say("user", f"A long turn. {'w' * 400}")
    calls = {session.tool("bash", "y" * 400, command=f"step {n}") for n in range(4)}
    end = session.say("assistant", "z" * 40, stopReason="stop")
    kept = set()
    for keep in (1, 150, 350):
        found = ask(running, "compact", session, keepRecentTokens=keep)
        kept.add(found["firstKeptEntryId"])
        assert found["isSplitTurn"]
        assert "**Turn Context (split turn):**" in found["summary"]
    assert kept <= {end} | calls
    assert len(kept) == 3
    whole = ask(running, "compact", session, keepRecentTokens=500)
    assert (whole["firstKeptEntryId"], whole["isSplitTurn"]) == (first, False)
    assert "(split turn)" not in whole["summary"]


def test_injected_messages_are_treated_as_user_messages(running: World) -> None:
    """They can be cut points, are kept with later entries and are summarized (S1.39)."""
    session = running.session()
    session.turn("Start.", "a" * 400)
    note = session.entry("custom_message", customType="x", content="PLAN " * 40, display=False)
    session.say("assistant", "b" * 400, stopReason="stop")
    cut = ask(running, "compact", session, keepRecentTokens=140)
    assert (cut["firstKeptEntryId"], cut["messagesSummarized"]) == (note, 2)
    serialized = ask(running, "context", session, serialize=True)["serialized"]
    assert f"[User]: {'PLAN ' * 40}".strip() in serialized
    compaction(session, "S", note)
    session.turn("More.", "c" * 400)
    kept = texts(ask(running, "context", session))
    assert [text.split()[0] for text in kept] == [
        *("compactionSummary", "custom", "assistant", "user", "assistant")
    ]
    assert kept[1] == f"custom {'PLAN ' * 40}"
    later = ask(running, "compact", session, keepRecentTokens=1)
    assert later["messagesSummarized"] >= 2


def test_transform_rules_affect_one_answer_only(running: World) -> None:
    """Prune, summary and truncate change nothing in the next answer (S1.37)."""
    session = running.session()
    session.say("user", "Read it.")
    session.tool("read", "x" * 1000, path="/a")
    end = session.say("assistant", "d" * 1000, stopReason="stop")
    plain = ask(running, "context", session)
    files = running.fingerprint()
    rules = [
        {"rule": "prune", "protectTokens": 0},
        {"rule": "truncate", "chars": 100, "keep": "head", "roles": ["assistant"]},
        {"rule": "summary", "to": plain["messages"][0]["entryId"], "text": "It was asked."},
    ]
    found = running.call("context", ref=session.id, transforms=rules)
    roles = [message["role"] for message in found["messages"]]
    assert roles == ["compactionSummary", "assistant", "toolResult", "assistant"]
    asked, _, result, answer = (message["text"] for message in found["messages"])
    assert asked == "It was asked."
    assert result == "[Old tool result content cleared]"
    assert answer.startswith("dddd")
    assert len(answer) <= 200
    assert found["messages"][-1]["entryId"] == end
    assert found["transformed"] is True
    assert running.call("context", ref=session.id) == plain
    assert running.fingerprint() == files
    assert not running.metas.exists() or not list(running.metas.glob(f"{session.id}*"))


@pytest.mark.parametrize(
    ("counted", "level", "percent"),
    [
        (146_000, "ok", None),
        (147_000, "warning", 80),
        (165_300, "fold", 90),
        (183_616, "fold", 100),
        (183_617, "fold", 100),
        (190_000, "fold", 103),
    ],
)
def test_a_full_context_causes_warnings(
    running: World, counted: int, level: str, percent: int | None
) -> None:
    """S2.26, S3.16, S1.25: a warning at 80 % of the usable tokens, advice to fold at 90 %."""
    session = running.session()
    session.say("user", "Where?")
    usage = {"input": counted - 10, "output": 10, "totalTokens": counted}
    model = {"provider": "anthropic", "model": "claude-opus-4-5"}
    session.say("assistant", "There.", stopReason="stop", usage=usage, **model)
    found = ask(running, "stats", session)
    assert (found["window"], found["reserve"], found["usable"]) == (200_000, 16_384, 183_616)
    assert (found["contextTokens"], found["level"]) == (counted, level)
    assert [warning.partition(" ")[0] for warning in found["warnings"]] == [f"{percent}%"] * bool(
        percent
    )
    assert found["shouldCompact"]["pi"] is (counted > 183_616)
    shown = running.run("stats", session.id)
    assert re.search(
        rf"^context +{counted / 1000:.0f}k of 200k tokens \(\d\d%\)$", shown, re.MULTILINE
    )
    assert ("due by the rules of pi" in shown) is (counted > 183_616)


def test_provider_token_counts_win_over_the_estimate(running: World) -> None:
    """S1.25, S2.26, S3.23: a token is four characters, as documented; an image of a tool 1,200."""
    session = running.session()
    session.say("user", "x" * 41)
    session.say("assistant", "y" * 8, stopReason="stop")
    found = ask(running, "stats", session)
    assert (found["contextTokens"], found["estimated"]) == (11 + 2, True)
    assert (found["level"], found["warnings"], "window" in found) == (None, [], False)
    usage = {"input": 900, "output": 100, "totalTokens": 1000}
    session.say("assistant", "Well?", stopReason="toolUse", usage=usage)
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    session.said("toolResult", picture, toolCallId="c", toolName="read")
    session.say("user", "x" * 41)
    session.say("assistant", "", stopReason="error", usage={"totalTokens": 77_777})
    found = ask(running, "stats", session)
    assert (found["contextTokens"], found["estimated"]) == (1000 + 1200 + 11, True)
    usage = {"input": 4990, "output": 10, "totalTokens": 5000}
    session.say("user", "And?")
    session.say("assistant", "z" * 400, stopReason="stop", usage=usage)
    found = ask(running, "stats", session)
    assert (found["contextTokens"], found["estimated"]) == (5000, False)
    assert "a quarter of the characters" in " ".join((ROOT / "docs/CLI.md").read_text().split())


def test_a_full_context_triggers_a_digest_if_configured(world: World) -> None:
    """A context beyond the window less the reserve counts only if `token_trigger` is on (S3.16)."""
    world.env |= {
        "INDEXERD_DIGEST__CONTEXT_WINDOW": "30000",
        "INDEXERD_DIGEST__RESERVE_TOKENS": "20000",
        "INDEXERD_INDEX__QUIET_SECONDS": "0",
    }
    sessions = {counted: world.session(turns=12) for counted in (9_990, 10_010)}
    world.run("run", "--once")
    for wanted in ("false", "true"):
        world.env["INDEXERD_DIGEST__TOKEN_TRIGGER"] = wanted
        for counted, session in sessions.items():
            usage = {"input": counted - 10, "output": 10, "totalTokens": counted}
            session.say("user", "Go on.")
            session.say("assistant", "Gone.", stopReason="stop", usage=usage)
        digested = world.run("run", "--once", "--json")["digested"]
        assert digested == ([sessions[10_010].id] if wanted == "true" else [])
