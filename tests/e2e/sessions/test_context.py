"""What a model would see of a session, how full that is and what follows, where it is cut."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.world import ROOT, Session, World

ENV = {"INDEXERD_MIN_NEW_USER_MESSAGES": "10000"}


def ask(world: World, method: str, session: Session, **params: Any) -> dict[str, Any]:
    world.seen(session)
    answer: dict[str, Any] = world.call(method, ref=session.id, **params)
    return answer


def texts(found: dict[str, Any]) -> list[str]:
    return [f"{one['role']} {one['text']}" for one in found["messages"]]


def compaction(session: Session, summary: str, kept: str, **more: Any) -> str:
    told = {"summary": summary, "firstKeptEntryId": kept, "tokensBefore": 9}
    return session.entry("compaction", **told, **more)


def test_a_compaction_stands_for_what_came_before_the_kept_entry(running: World) -> None:
    """Summary, kept entries, later ones; the newest counts; an unknown id keeps none (S1.19)."""
    session = running.session()
    session.turn("one", "1")
    kept = session.say("user", "two")
    session.answer("2")
    compaction(session, "S1", kept)
    three = session.say("user", "three")
    session.answer("3")
    later = ["user three", "assistant 3"]
    first = ["compactionSummary S1", "user two", "assistant 2", *later]
    assert texts(ask(running, "context", session)) == first
    compaction(session, "S2", three)
    assert texts(ask(running, "context", session)) == ["compactionSummary S2", *later]
    compaction(session, "S3", "n0b0dy")
    session.say("user", "four")
    assert texts(ask(running, "context", session)) == ["compactionSummary S3", "user four"]


def test_compactions_are_told_newest_first_as_they_were_stored(running: World) -> None:
    """With what extensions put into them; the newest is the previous summary (S1.21, S1.22)."""
    session = running.session(turns=1)
    odd = {"anything": [1, {"deep": None}], "readFiles": ["/w/hooked"]}
    one = compaction(session, "S1", str(session.last))
    session.turn()
    two = compaction(session, "S2", str(session.last), details=odd, fromHook=True)
    session.turn()
    found = ask(running, "context", session)
    assert [past["entryId"] for past in found["compactions"]] == [two, one]
    newest, oldest = found["compactions"]
    assert (newest["details"], newest["fromHook"], newest["tokensBefore"]) == (odd, True, 9)
    assert "fromHook" not in oldest
    assert found["previousSummary"] == "S2"


@pytest.mark.parametrize("hook", [{}, {"fromHook": True}], ids=["agent", "extension"])
def test_file_lists_go_on_from_the_compaction_before(running: World, hook: dict[str, Any]) -> None:
    """Read ones without the changed ones, sorted; not an extension's (S1.21, S1.23, S3.17)."""
    session = running.session(turns=1)
    listed = {"readFiles": ["/w/z", "/w/e"], "modifiedFiles": ["/w/m"]}
    compaction(session, "S1", "none", details=listed, **hook)
    session.say("user", "Go on.")
    work(session)
    details = ask(running, "compact", session, keepRecentTokens=1)["details"]
    known = {"readFiles": ["/w/b", "/w/z"], "modifiedFiles": ["/w/a", "/w/e", "/w/m"]}
    assert details == (
        {"readFiles": ["/w/b"], "modifiedFiles": ["/w/a", "/w/e"]} if hook else known
    )


def test_file_lists_of_a_branch_go_on_from_summaries_on_it(running: World) -> None:
    """What a branch's own summaries list is among its files (S1.23)."""
    session = running.session(turns=1)
    fork = session.last
    session.say("user", "Try it.")
    listed = {"readFiles": ["/w/z", "/w/e"], "modifiedFiles": ["/w/m"]}
    session.entry("branch_summary", fromId="x", summary="Tried before.", details=listed)
    leaf = work(session)
    session.last = fork
    session.turn("Something else.")
    details = ask(running, "branch_summary", session, leaf=leaf)["details"]
    assert details == {"readFiles": ["/w/b", "/w/z"], "modifiedFiles": ["/w/a", "/w/e", "/w/m"]}


def work(session: Session) -> str:
    session.tool("read", path="/w/b")
    session.tool("edit", path="/w/e", oldText="a", newText="b")
    session.tool("write", path="/w/a", content="x")
    session.tool("bash", command="cat /w/never")
    return session.answer()


def test_the_whole_as_one_text_is_in_pis_form(running: World) -> None:
    """Speakers in brackets, calls with their arguments, results of 2,000 characters (S1.24)."""
    session = running.session()
    session.say("user", "Read it.")
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "/a", "n": 1}}
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}, call, call]
    session.said("assistant", *parts, stopReason="toolUse")
    session.say("toolResult", "x" * 2345, toolCallId="c", toolName="read")
    session.answer()
    found = ask(running, "context", session, serialize=True)["serialized"]
    one = 'read(path="/a", n=1)'
    assert found == "\n\n".join(
        [
            "[User]: Read it.",
            "[Assistant thinking]: Hm.",
            "[Assistant]: Yes.",
            f"[Assistant tool calls]: {one}; {one}",
            f"[Tool result]: {'x' * 2000}\n\n[... 345 more characters truncated]",
            "[Assistant]: Done.",
        ]
    )


def test_what_nobody_counted_is_a_fourth_of_its_characters(running: World) -> None:
    """After the newest answer each message is rounded up; pictures of tools are 4,800 (S1.25)."""
    session = running.session()
    session.say("user", "Look.")
    usage = {"input": 900, "output": 100, "totalTokens": 1000}
    session.say("assistant", "Well?", stopReason="toolUse", usage=usage)
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    session.said("toolResult", picture, toolCallId="c", toolName="read")
    session.say("user", "x" * 41)
    session.say("assistant", "", stopReason="error", usage={"totalTokens": 77_777})
    found = ask(running, "stats", session)
    assert (found["contextTokens"], found["estimated"]) == (1000 + 4800 // 4 + 11, True)


def test_a_session_is_never_cut_before_a_result(running: World) -> None:
    """A turn that is split says so, and has a summary of its beginning (S1.26)."""
    session = running.session(turns=2)
    first = session.say("user", f"A long turn. {'w' * 400}")
    made = {session.tool("bash", "y" * 400, command=f"step {n}") for n in range(4)}
    end = session.say("assistant", "z" * 40, stopReason="stop")
    results = {
        one["id"] for one in ask(running, "path", session)["entries"] if one["role"] == "toolResult"
    }
    assert len(results) == 4
    kept = {}
    for keep in (1, 50, 150, 250, 350):
        found = ask(running, "compact", session, keepRecentTokens=keep)
        kept[found["firstKeptEntryId"]] = found["isSplitTurn"]
        assert found["isSplitTurn"] == ("**Turn Context (split turn):**" in found["summary"])
    assert kept.keys() <= {end} | made
    assert len(kept) > 2
    assert set(kept.values()) == {True}
    whole = ask(running, "compact", session, keepRecentTokens=500)
    assert (whole["firstKeptEntryId"], whole["isSplitTurn"]) == (first, False)


def test_injected_messages_are_cut_and_summed_up_like_a_users(running: World) -> None:
    """A session may be cut before one, it is kept with what follows, and summed up (S1.39)."""
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
    assert [one.split()[0] for one in kept] == [
        *("compactionSummary", "custom", "assistant", "user", "assistant")
    ]
    assert kept[1] == f"custom {'PLAN ' * 40}"
    later = ask(running, "compact", session, keepRecentTokens=1)
    assert later["messagesSummarized"] >= 2


def test_rules_change_one_answer_and_nothing_else(running: World) -> None:
    """Prune, summary and truncate: the next answer is as if there had been none (S1.37)."""
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
    roles = [one["role"] for one in found["messages"]]
    assert roles == ["compactionSummary", "assistant", "toolResult", "assistant"]
    asked, _, result, answer = (one["text"] for one in found["messages"])
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
def test_a_full_context_is_warned_of(
    running: World, counted: int, level: str, percent: int | None
) -> None:
    """At 80 % of the usable tokens a warning, at 90 % the advice to fold (S2.26, S3.16).

    Beyond the window less the reserve it is full (S1.25).
    """
    session = running.session()
    session.say("user", "Where?")
    usage = {"input": counted - 10, "output": 10, "totalTokens": counted}
    model = {"provider": "anthropic", "model": "claude-opus-4-5"}
    session.say("assistant", "There.", stopReason="stop", usage=usage, **model)
    found = ask(running, "stats", session)
    assert (found["window"], found["reserve"], found["usable"]) == (200_000, 16_384, 183_616)
    assert (found["contextTokens"], found["level"]) == (counted, level)
    assert [one.partition(" ")[0] for one in found["warnings"]] == [f"{percent}%"] * bool(percent)
    assert found["shouldCompact"]["pi"] is (counted > 183_616)


def test_tokens_are_counted_by_the_provider_or_else_estimated(running: World) -> None:
    """A real count wins; without one a token is four characters, as documented (S3.23, S2.26)."""
    session = running.session()
    session.say("user", "x" * 41)
    session.say("assistant", "y" * 8, stopReason="stop")
    found = ask(running, "stats", session)
    assert (found["contextTokens"], found["estimated"]) == (11 + 2, True)
    assert (found["level"], found["warnings"], "window" in found) == (None, [], False)
    usage = {"input": 4990, "output": 10, "totalTokens": 5000}
    session.say("user", "And?")
    session.say("assistant", "z" * 400, stopReason="stop", usage=usage)
    found = ask(running, "stats", session)
    assert (found["contextTokens"], found["estimated"]) == (5000, False)
    assert "a fourth of the characters" in " ".join((ROOT / "docs/CLI.md").read_text().split())


def test_an_outgrown_context_makes_a_digest_where_that_is_wanted(world: World) -> None:
    """A context beyond window less reserve is a reason only where it is switched on (S3.16)."""
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
        made = world.run("run", "--once", "--json")["digested"]
        assert made == ([sessions[10_010].id] if wanted == "true" else [])
