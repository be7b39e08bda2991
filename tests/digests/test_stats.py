"""How full a context is, by each agent's own count, and what is said of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from indexerd.cli.app import App
from indexerd.cli.clicked import clicked
from indexerd.cli.stats import stats as command
from indexerd.daemon.answers import Answers
from indexerd.daemon.one_session import open_session
from indexerd.daemon.reader import Reader
from indexerd.daemon.views import Taken, ask
from indexerd.digests.segments import Segment, encode
from indexerd.digests.stats import Stats, context_size, stats
from indexerd.errors import NotFoundError
from indexerd.events import Entry, Kind, Tokens
from indexerd.protocol.params import RefParams
from indexerd.references.looks import Looks
from indexerd.sessions.context import ContextEntry, ContextMessage
from indexerd.sessions.info import info_of
from indexerd.sessions.state import SessionState
from indexerd.sessions.tree import still
from indexerd.settings import Digest, Settings
from indexerd.store.catalog import Catalog
from tests.agents import claude_files, codex_files
from tests.e2e.world import World
from tests.sessions import tree_sessions as pi
from tests.sources.lines_held import Lines


def told(
    agent: str,
    state: SessionState,
    data: bytes,
    *,
    row: dict[str, Any] | None = None,
    home: Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """What is said of a session in memory."""
    card = info_of(state, agent=agent, path="/s.jsonl", mtime_ms=0, since=None)
    assert card is not None
    lines: Any = nullcontext(Lines(state, data))
    digest = Digest(**settings)
    taken = Taken(card, still(state), lines, {}, home)
    return ask(
        lambda taken, read, _: stats(taken, read, row or {}, digest), taken, RefParams(ref="s1")
    )


def talk(tokens: int, *more: bytes, model: str = "m") -> bytes:
    """A pi session whose one answer used so many tokens."""
    usage = {"input": tokens - 10, "output": 10, "totalTokens": tokens}
    answered = {"usage": usage, "stopReason": "stop", "model": model, "provider": "anthropic"}
    said = [
        pi.said("a", None, "user", "Where?"),
        pi.said("b", "a", "assistant", "There.", **answered),
    ]
    return pi.session(*said, *more)


def of_pi(data: bytes, **more: Any) -> dict[str, Any]:
    """What is said of a session of pi."""
    return told("pi", pi.state_of(data), data, **more)


# -- how large it is -----------------------------------------------------------------------------


def test_pi_counts_its_newest_answer_and_estimates_what_follows() -> None:
    """S1.25, S3.23: real numbers win; four characters are a token after them."""
    found = of_pi(talk(5000))
    assert (found["contextTokens"], found["estimated"]) == (5000, False)
    found = of_pi(talk(5000, pi.said("c", "b", "user", "x" * 41)))
    assert (found["contextTokens"], found["estimated"]) == (5011, True)


def test_claudes_answer_counts_what_it_read_from_a_cache() -> None:
    """S1.25: input, cache and output together are the context."""
    data = claude_files.user("u", None, "Where?") + claude_files.answer("v", "u", "There.")
    found = told("claude", claude_files.state_of(data), data)
    assert (found["contextTokens"], found["estimated"]) == (15, False)
    more = data + claude_files.user("w", "v", "x" * 40)
    found = told("claude", claude_files.state_of(more), more)
    assert (found["contextTokens"], found["estimated"]) == (25, True)


def test_codex_says_both_itself() -> None:
    """S1.25, S2.26: the newest count and the model's window stand in its file."""
    info = {"last_token_usage": {"total_tokens": 240_000}, "model_context_window": 258_400}
    counted = codex_files.event("token_count", info=info)
    parts = [codex_files.user("Where?"), codex_files.said("Where?"), codex_files.answer("There.")]
    data = codex_files.meta() + codex_files.turn("t", *parts, counted)
    found = told("codex", codex_files.state_of(data), data)
    assert (found["contextTokens"], found["estimated"]) == (240_000, False)
    assert (found["window"], found["windowSource"]) == (258_400, "agent")
    assert found["shouldCompact"] == {"pi": False, "codex": False, "opencode": True}
    assert found["level"] == "fold"
    data = codex_files.meta() + codex_files.turn("t", *parts)
    found = told("codex", codex_files.state_of(data), data)
    assert 0 < found["contextTokens"] < 10
    assert found["estimated"]


def test_opencode_counts_its_newest_answer_alone() -> None:
    """S1.25: what is said after it is not added; where nothing was counted all is estimated."""
    asked = Entry("a", Kind.USER, "message", "user", "", ("x" * 400,))
    answered = Entry(
        "b", Kind.ASSISTANT, "message", "assistant", "", ("y",), tokens=Tokens(total=9)
    )
    steps = [
        ContextEntry(at, one, (ContextMessage(str(one.role), one, one.texts),), at)
        for at, one in enumerate((asked, answered, asked))
    ]
    state = SessionState()
    assert context_size("opencode", state, steps) == (9, 9)
    assert context_size("opencode", state, steps[:1]) == (100, 0)


def test_an_empty_session_has_an_empty_context() -> None:
    """S1.5: nothing was said, and nothing is said about it."""
    found = of_pi(pi.session())
    assert (found["contextTokens"], found["warnings"], found["estimated"]) == (0, [], False)
    assert found["totals"]["fullMessageCount"] == 0


# -- what that means -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "level", "word"),
    [
        (7999, "ok", ""),
        (8000, "warning", "80% of 10,000 usable tokens"),
        (8999, "warning", "soon"),
        (9000, "fold", "90% of 10,000 usable tokens are taken: fold"),
        (10_000, "fold", "100%"),
        (30_000, "fold", "300%"),
    ],
)
def test_a_full_context_is_warned_of(tokens: int, level: str, word: str) -> None:
    """S2.26: at 80 % of the usable tokens, and at 90 % it is time to fold."""
    found = of_pi(talk(tokens), context_window=12_000, reserve_tokens=2000)
    assert (found["window"], found["windowSource"], found["usable"]) == (12_000, "settings", 10_000)
    assert (found["level"], found["percent"]) == (level, round(tokens / 100, 1))
    assert len(found["warnings"]) == (level != "ok")
    assert word in "".join(found["warnings"])
    assert found["shouldCompact"]["pi"] is (tokens > 10_000)


def test_nobody_warns_of_a_window_that_is_not_known() -> None:
    """S2.26: no window, no level, no verdicts."""
    found = of_pi(talk(900_000))
    assert (found["level"], found["shouldCompact"], found["warnings"]) == (None, {}, [])
    assert "window" not in found
    assert "percent" not in found


def test_the_list_of_models_is_believed_until_it_is_refuted() -> None:
    """S2.26: the newest model's window; a counted context that is larger shows that it is not."""
    found = of_pi(talk(170_000, model="claude-opus-4-5"))
    assert (found["window"], found["windowSource"], found["level"]) == (200_000, "list", "fold")
    assert "window" not in of_pi(talk(200_001, model="claude-opus-4-5"))
    change = pi.entry("model_change", "c", "b", provider="nobody", modelId="claude-opus-4-5")
    assert "window" not in of_pi(talk(170_000, change, model="claude-opus-4-5"))


def test_codex_would_compact_at_nine_tenths_of_the_whole_window() -> None:
    """S1.25: its own file has the usable part of it, any other source the whole."""
    assert not of_pi(talk(179_000), context_window=200_000)["shouldCompact"]["codex"]
    assert of_pi(talk(180_000), context_window=200_000)["shouldCompact"]["codex"]


def test_a_reserve_without_a_rest_is_said_to_be_wrong() -> None:
    """S3.16: a setting that leaves nothing gives no percentages."""
    found = of_pi(talk(10), context_window=100, reserve_tokens=100)
    assert (found["level"], "usable" in found) == (None, False)
    assert "leaves nothing" in found["warnings"][0]


@hyp(max_examples=30)
@given(st.integers(1, 10**7), st.integers(1, 10**6), st.integers(0, 10**6))
def test_levels_only_rise_with_the_context(tokens: int, window: int, reserve: int) -> None:
    """S2.26: whatever the numbers are, a fuller context is never judged as less full."""
    order = [None, "ok", "warning", "fold"]
    levels = [
        order.index(of_pi(talk(size), context_window=window, reserve_tokens=reserve)["level"])
        for size in (tokens, 2 * tokens)
    ]
    assert levels == sorted(levels)


# -- totals --------------------------------------------------------------------------------------


def test_totals_are_the_rows_and_the_segments(tmp_path: Path) -> None:
    """S2.6, S3.16, S3.17: what was spent and done, and what is folded on this path."""
    row = {
        "tokens": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4},
        "costUsd": 0.5,
        "toolsUsed": {"read": 2, "bash": 3},
        "filesRead": ["/a", "/b"],
        "filesModified": ["/c"],
        "durationMs": 61_000,
    }
    asked = pi.said("c", "b", "user", "x" * 400)
    answered = pi.said("d", "c", "assistant", "y" * 400)
    lines = [
        encode(Segment("1", 0, 2, "In short.", (), (), (), "", 3, "m", "c")),
        encode(Segment("2", 0, 3, "Of another path.", (), (), (), "", 3, "m", "zzz")),
    ]
    (tmp_path / "s1.digest.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    found = of_pi(talk(50, asked, answered), row=row, home=tmp_path)["totals"]
    assert found == {
        "messages": 4,
        "userMessages": 2,
        "entries": 4,
        "compactions": 0,
        "inputTokens": 1,
        "outputTokens": 2,
        "cacheReadTokens": 3,
        "cacheWriteTokens": 4,
        "costUsd": 0.5,
        "toolCalls": 5,
        "filesRead": 2,
        "filesModified": 1,
        "durationMs": 61_000,
        "segments": 1,
        "fullMessageCount": 4,
        "foldedMessages": 3,
        "savedTokens": 2 + 2 + 100 - 3,
    }


def test_a_damaged_sidecar_is_warned_of(tmp_path: Path) -> None:
    """A10: the rest is told all the same."""
    (tmp_path / "s1.digest.jsonl").mkdir()
    found = of_pi(talk(50), home=tmp_path)
    assert found["totals"]["segments"] == 0
    assert "s1.digest.jsonl" in found["warnings"][0]


# -- asked ---------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A home with sessions that were read once; this process is at home there, too."""
    world = World(tmp_path)
    world.install_pi()
    for key, value in world.env.items():
        monkeypatch.setenv(key, value)
    return world


def printed(session_id: str, *, as_json: bool) -> str:
    """What the command prints; no daemon runs."""
    done = CliRunner().invoke(clicked(command), [session_id], obj=App(None, as_json, "never"))
    assert done.exception is None, done.output
    assert "no daemon runs" in done.stderr
    return done.stdout


async def _at_once(work: Callable[..., Any], *args: Any) -> Any:
    """The thread that owns the library is this one."""
    return work(*args)


def test_the_socket_and_the_command_say_the_same(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """interfaces.md §4, §5: without a daemon the session's file is read, by the same code."""
    session = here.session()
    session.say("user", "Where?")
    usage = {"input": 90_000, "output": 1, "totalTokens": 90_001}
    session.say("assistant", "There.", stopReason="stop", usage=usage)
    here.run("run", "--once")
    monkeypatch.setenv("INDEXERD_DIGEST__CONTEXT_WINDOW", "120000")
    found = json.loads(printed(session.id, as_json=True))
    assert (found["contextTokens"], found["level"]) == (90_001, "warning")
    assert found["totals"]["inputTokens"] == 90_000
    lines = printed(session.id, as_json=False).splitlines()
    facts = {line[:14].strip(): line[14:].strip() for line in lines}
    assert facts["context"] == "90,001 tokens"
    assert facts["window"] == "120,000 tokens, as configured"
    assert facts["messages"] == "2, 1 of a human"
    assert facts["tokens spent"] == "90,000 input, 1 output"
    assert "usable tokens are taken" in facts["warning"]
    settings = Settings(digest=Digest(context_window=120_000))
    answers = Answers(Catalog.open(here.state / "catalog.sqlite", readonly=True), lambda: 0.0, None)
    row = answers.row(session.id)
    with open_session(row, settings, here.env, here.root / "home") as library:
        looks = Looks(library, cast("Reader", _at_once))
        method = Stats(answers, looks=looks, settings=lambda: settings).stats
        assert asyncio.run(method(RefParams(ref=session.id))) == found
        with pytest.raises(NotFoundError):
            asyncio.run(method(RefParams(ref="nobody-at-all")))
