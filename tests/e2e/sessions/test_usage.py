"""What sessions used, by day, agent, model and project, and which of them wait for the user."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from genai_prices.data_snapshot import get_snapshot
from wcwidth import width

from indexerd.sessions.list_prices import BY_MODEL
from tests.e2e.clients import ClaudeSession, CodexThread
from tests.e2e.world import Session, World, clock, listed, opencode_rows, until, wait

AT = datetime(2026, 11, 21, 23, 50, tzinfo=UTC)
MODELS = ("claude-opus-4-5", "gpt-5.2")


def answer(session: Session, model: str, tokens: int, usd: float) -> str:
    cost = {"total": usd}
    counts = {"input": tokens, "output": 10, "cacheRead": 5, "cacheWrite": 1, "cost": cost}
    counts |= {"totalTokens": 150_000}
    provider = "openai" if model.startswith("gpt") else "anthropic"
    return session.answer(provider=provider, model=model, usage=counts)


def talks(world: World) -> tuple[Session, Session]:
    """A session over midnight, with two models and an abandoned branch, and its fork."""
    clock.now = AT
    session = world.session(cwd="/w/shop")
    session.say("user", "Begin.")
    fork = answer(session, MODELS[0], 100, 0.5)
    clock.now += timedelta(minutes=20)
    session.say("user", "Try this.")
    answer(session, MODELS[0], 1000, 0.25)
    session.last = fork
    session.say("user", "Try that.")
    answer(session, MODELS[1], 10, 0.125)
    clock.now += timedelta(days=1)
    other = session.fork(copied=True, cwd="/w/other")
    other.say("user", "And here?")
    answer(other, MODELS[1], 1, 0.0625)
    clock.now = None
    return session, other


def test_use_is_kept_by_day_model_and_project(world: World) -> None:
    """S1.13: days are UTC; a prompt counts for the model that answers it, a fork's copy never."""
    session, other = talks(world)
    with world.daemon():
        for one in (session, other):
            until(lambda key=one.id: world.row(key).get("costUsd"), "the facts")
        usage = world.call("usage")

        def seen(group: str, key: str) -> dict[str, Any]:
            facts = ("sessions", "prompts", "costUsd")
            return {one[key]: tuple(one[fact] for fact in facts) for one in usage[group]}

        days = {
            "2026-11-21": (1, 1, 0.5),
            "2026-11-22": (1, 2, 0.375),
            "2026-11-23": (1, 1, 0.0625),
        }
        assert seen("days", "day") == days
        models = {MODELS[0]: (1, 2, 0.75), MODELS[1]: (2, 2, 0.1875)}
        assert seen("models", "model") == models
        assert seen("projects", "cwd") == {"/w/shop": (1, 3, 0.875), "/w/other": (1, 1, 0.0625)}
        tokens = {"input": 1111, "output": 40, "cacheRead": 20, "cacheWrite": 4}
        assert usage["totals"] | {"tokens": tokens} == usage["totals"]
        assert [row["sessionId"] for row in usage["longest"]] == [other.id, session.id]
        asked = [(row["sessionId"], row["userMessageCount"]) for row in usage["mostPrompts"]]
        assert asked == [(session.id, 3), (other.id, 1)]
        assert sum(usage["context"]["tenths"]) == 2
        world.call("update", ref=other.id, hidden=True)
        shown = world.call("usage")
        assert [row["sessionId"] for row in shown["longest"]] == [session.id]
        assert shown["totals"] == usage["totals"]
        day = world.call("usage", since="2026-11-22", until="2026-11-22T12:00:00Z")
        assert [one["day"] for one in day["days"]] == ["2026-11-22"]
        assert (day["totals"]["prompts"], day["totals"]["costUsd"]) == (2, 0.375)
        assert [row["userMessageCount"] for row in day["mostPrompts"]] == [2]
        answer(other, MODELS[1], 1, 1.0)
        until(lambda: world.call("usage")["totals"]["costUsd"] == 1.9375, "the new cost")
    other.path.unlink()
    with world.daemon():
        until(lambda: world.row(other.id).get("gone"), "its end")
        assert world.call("usage")["totals"]["costUsd"] == 1.9375
        world.call("purge", ref=other.id)
        assert world.call("usage")["totals"]["costUsd"] == 0.875


def test_what_no_agent_recorded_is_estimated_at_list_prices(world: World, home: Path) -> None:
    """S1.13: marked with "~"; where tokens have no known price, the sum says what it is without."""
    tokens = {"input_tokens": 1000, "output_tokens": 10_000, "cache_read_input_tokens": 200_000}
    tokens |= {"cache_creation_input_tokens": 40_000}
    tokens |= {"cache_creation": {"ephemeral_1h_input_tokens": 20_000}}  # of these
    ids = []
    for model in ("claude-opus-4-5-20251101", "claude-of-nobody"):
        session = ClaudeSession(home)
        session.prompt("Begin.")
        session.answer("Done.", model=model, usage=tokens)
        session.common["isSidechain"] = True  # by a sub-agent, in old versions
        session.answer("Here.", model=model, usage={"input_tokens": 4000})
        ids.append(session.id)
    mixed = ClaudeSession(home)
    mixed.prompt("Begin.")
    for model in ("claude-opus-4-5", "claude-of-nobody"):
        mixed.answer("Done.", model=model, usage={"input_tokens": 100_000})
    ids.append(mixed.id)
    recorded = world.session()
    recorded.say("user", "Begin.")
    answer(recorded, "claude-opus-4-5", 1000, 0.25)
    world.run("run", "--once")
    rows = [world.run("--json", "show", key)["session"] for key in (*ids, recorded.id)]
    costs = [(row["costUsd"], row["costEstimatedUsd"]) for row in rows]
    usd = (1000 * 5 + 10_000 * 25 + 200_000 * 0.5 + 20_000 * 6.25) / 1e6
    usd += (20_000 * 10 + 4000 * 5) / 1e6
    assert costs == [(None, usd), (None, None), (None, 0.5), (0.25, None)]
    assert rows[2]["unpricedTokens"] == 100_000
    totals = world.run("--json", "stats")["totals"]
    assert (totals["costUsd"], totals["costEstimatedUsd"]) == (0.25, usd + 0.5)
    assert re.search(r"^estimated cost +~\$0.70$", world.run("show", ids[0]), re.MULTILINE)
    overview = world.run("stats")
    assert "$0.25 recorded by agents, ~$1.20 estimated at list prices\n355k of" in overview
    assert "355k of 711k tokens have no known price" in overview
    assert re.search(r"^claude-of-nobody\t.*\t-$", overview, re.MULTILINE)
    by_agent = [line.split("\t")[::4] for line in world.run("stats", "--by", "agent").splitlines()]
    assert by_agent == [["claude", "≥ $1.20"], ["pi", "$0.25"]]
    shown = world.run("show", mixed.id)
    assert re.search("^tokens without a known price +100,000$", shown, re.MULTILINE)
    exported = world.run("export", mixed.id, "--format", "md")
    assert "- Cost: ≥ $0.50\n- Tokens without a known price: 100000" in exported


def test_list_prices_are_those_of_the_price_library() -> None:
    """Of all models for coding since Claude 4 and GPT-5; of others, the price is not known."""
    agents = re.compile(
        r"claude-(?:fable|opus|sonnet|haiku)-\d(?:-\d+)?|gpt-[5-9](?:\.\d)?(?:-[a-z]+)?"
    )
    others = re.compile(r".*-(?:0|pro|image|search|cyber|rosalind)")
    coding = (
        one.id
        for provider in get_snapshot().providers
        for one in provider.models
        if provider.id in ("anthropic", "openai")
    )
    wanted = {one for one in coding if agents.fullmatch(one) and not others.fullmatch(one)}
    assert wanted - BY_MODEL.keys() == set()
    for model, prices in BY_MODEL.items():
        provider = "anthropic" if model.startswith("claude") else "openai"
        _, info = get_snapshot().find_provider_model(model, None, provider, None)
        listed = info.get_prices(datetime.now(UTC))
        known = [listed.input_mtok, listed.output_mtok, listed.cache_read_mtok]
        known.append(listed.cache_write_mtok or listed.input_mtok)
        assert [float(getattr(one, "base", one)) for one in known] == [*prices], model


def test_what_indexing_cost_is_in_the_budgets_journal(world: World) -> None:
    """S2.1: calls to remote models with their cost, by day and model."""
    world.scripted({"tokens": [1000, 200]})
    session = world.session(5)
    with world.daemon():
        world.wait_meta(session.id)
        indexing = world.call("usage")["indexing"]
        assert indexing["calls"] == 1
        assert [one["model"] for one in indexing["models"]] == ["scripted/test"]
        assert world.call("usage", until="2020-01-01")["indexing"]["calls"] == 0


def test_stats_fit_every_terminal(world: World) -> None:
    """S0.27: bars and columns fit 40, 80 and 160 columns; in a pipe there are tabs and no bars."""
    talks(world)
    world.run("run", "--once")
    for columns in (40, 80, 160):
        colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        text = world.on_terminal("stats", columns=columns, **colours).replace("\x1b[K", "")
        assert world.code == 0
        lines = [line for line in text.splitlines() if not line.startswith("indexerd:")]
        assert max(map(width, lines)) <= columns, text
        for what in ("2 sessions with use", "$0.94", "2026-11-22", "█", "pi", "/w/shop"):
            assert what in text, text
        header = next(line for line in lines if line.startswith("day "))
        assert ("sessions" in header) is (columns > 40)
    piped = world.run("stats", "--by", "day", "--since", "2026-11-22")
    assert [line.split("\t")[::4] for line in piped.splitlines()] == [
        ["2026-11-22", "$0.38"],
        ["2026-11-23", "$0.06"],
    ]
    assert world.run("stats", "--by", "day", "--until", "2026-11-22").count("\n") == 2
    world.run("stats", "some-session", "--by", "day", code=2)
    world.run("stats", "--until", "1999-12-31")
    assert world.stderr.endswith("\nnothing was used until 1999-12-31 (UTC)\n")
    assert "nothing was used" in (world.run("stats", "--since", "1h"), world.stderr)[1]


def test_long_paths_are_told_apart_on_a_terminal(world: World) -> None:
    for place in ("moon", "noon"):
        ClaudeSession(world.root / "home", f"/w/elsewhere/{place}/a-name-of-a-folder").turn()
    world.run("run", "--once")
    for columns in (40, 80):
        got = world.on_terminal("stats", "--by", "project", columns=columns)
        shown = {line.split()[0] for line in got.splitlines() if "folder" in line}
        assert shown == {"…moon/a-name-of-a-folder", "…noon/a-name-of-a-folder"}


def claude(name: str) -> Callable[[World, Path], tuple[str, Callable[[], Any]]]:
    def begin(_world: World, home: Path) -> tuple[str, Callable[[], Any]]:
        session = ClaudeSession(home)
        session.turn()
        session.prompt("Which database?")
        call = session.call(name, "I have a plan.", plan="# Move")
        return session.id, lambda: session.result(call, "SQLite", toolUseResult={"answers": {}})

    return begin


def codex(_world: World, home: Path) -> tuple[str, Callable[[], Any]]:
    thread = CodexThread(home)
    thread.turn()
    thread.event("task_started", turn_id="t2")
    thread.event("user_message", message="Which database?")
    thread.item("assistant", "I have to ask.", phase="commentary")
    call = {"type": "function_call", "name": "request_user_input", "arguments": "{}"}
    thread.write("response_item", call | {"call_id": "c1"})
    output = {"type": "function_call_output", "call_id": "c1", "output": "SQLite"}
    return thread.id, lambda: thread.write("response_item", output)


def opencode(world: World, _home: Path) -> tuple[str, Callable[[], Any]]:
    rows = opencode_rows(world)
    rows.session("ses_a")
    rows.tick(int(1000 * time.time()) - rows.tick())  # nobody waits for years
    rows.said("ses_a", "msg_1", "user", "Which database?")
    rows.message("ses_a", "msg_2", "assistant", modelID="m", providerID="p")
    state = {"status": "running", "input": {"questions": [{"question": "SQLite or files?"}]}}
    rows.part("ses_a", "msg_2", "prt_1", type="tool", callID="c", tool="question", state=state)
    done = "UPDATE part SET data = replace(data, 'running', 'completed'), time_updated = ?"
    return "ses_a", lambda: rows.run(done, rows.tick())


def test_a_session_that_asks_the_user_waits(world: World, home: Path) -> None:
    """S3.13: as far as the agents' files tell; the answer ends it."""
    asking = (claude("AskUserQuestion"), claude("ExitPlanMode"), codex, opencode)
    replies = dict(begin(world, home) for begin in asking)
    with world.daemon():
        for session_id in replies:
            wait(world, session_id, state="waiting")
        wait(world, "ses_a", question="SQLite or files?")
        assert {*listed(world, state="waiting")} == replies.keys()
        assert world.run("list", "--all").count("(waiting) ") == len(asking)
        got = world.on_terminal("resume", columns=80, typed="\x1b", TERM="xterm")
        assert got.count("(waiting) ") >= len(asking)  # it is drawn twice
        for session_id, reply in replies.items():
            reply()
            wait(world, session_id, state="active")
        assert listed(world, state="waiting") == []


def test_what_sub_agents_cost_stands_beside_what_their_parent_did(world: World, home: Path) -> None:
    parent, other = ClaudeSession(home), ClaudeSession(home)
    unpriced = other.helper("agent-9")
    for session in (parent, parent.helper("agent-0"), parent.helper("agent-1"), other, unpriced):
        session.prompt("Begin.")
        model = "nobody-knows" if session is unpriced else "claude-opus-4-5"
        session.answer("Done.", model=model, usage={"input_tokens": 100_000, "output_tokens": 0})
    world.run("run", "--once")
    row = world.run("--json", "show", parent.id)["session"]
    assert row["costEstimatedUsd"] == 0.5
    costs = {"costUsd": 0, "costEstimatedUsd": 1.0, "unpricedTokens": 0}
    assert row["subagents"] == {"sessions": 2} | costs
    assert re.search(r"^sub-agents +2, ~\$1.00$", world.run("show", parent.id), re.MULTILINE)
    unknown = world.run("show", other.id)
    assert re.search(r"^sub-agents +1, cost not known$", unknown, re.MULTILINE)
    assert "- Cost of sub-agents: ~$1.00" in world.run("export", parent.id, "--format", "md")


def test_failed_edits_and_copied_answers_do_not_count(world: World, home: Path) -> None:
    """Also if the failure is written before the call, and for Zed's names of Claude's tools.

    Claude Code copies lines to another branch with new ids of their own, but the answer's id stays.
    """
    edits, copies = ClaudeSession(home), ClaudeSession(home)
    edits.prompt("Begin.")
    for number, name in enumerate(("Edit", "mcp__acp__Edit")):
        block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "not read yet"}
        edits.prompt([block | {"is_error": not number}])
        call = {"type": "tool_use", "id": f"t{number}", "name": name}
        call["input"] = {"file_path": f"/w/{number}.py", "old_string": "a", "new_string": "b"}
        edits.answer([call], stop="tool_use")
    edits.say()
    first = copies.prompt("Begin.")
    said = {"model": "claude-opus-4-5", "usage": {"input_tokens": 100_000, "output_tokens": 0}}
    for _ in range(2):
        for n in range(12):
            copies.answer("Done.", **said, id=f"msg_{n}")
        copies.last = first
    rows = world.read_once()
    assert rows[copies.id]["costEstimatedUsd"] == 6.0
    row = rows[edits.id]
    assert (row["filesModified"], row["toolsUsed"]) == (["/w/1.py"], {"Edit": 2})
