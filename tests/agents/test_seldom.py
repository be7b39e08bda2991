"""Lines and places that sessions seldom have, agent by agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexerd.agents import ADAPTERS, claude, codex, opencode, pi
from indexerd.agents.claude.kinds import unwrapped
from indexerd.agents.claude.titles import SUMMARIES_KEPT
from indexerd.agents.codex.origin import ordinal_of
from indexerd.events import Header, Kind
from indexerd.sessions.state import SessionState
from indexerd.sources.lines import Oversize
from tests.agents import claude_files, codex_files
from tests.agents.codex_files import answer, entries, item, line, meta, user


def test_every_agent_is_found_by_its_name() -> None:
    """The names are those in settings, rows and addresses."""
    assert list(ADAPTERS) == ["pi", "claude", "codex", "opencode"]
    for module in (pi, claude, codex, opencode):
        assert ADAPTERS[module.NAME] is module


@pytest.mark.parametrize(
    ("agent", "command"),
    [
        ("pi", "cd '/a b' && pi --session '/s s.jsonl'"),
        ("claude", "cd '/a b' && X=1 claude --resume 'an id'"),
        ("codex", "cd '/a b' && X=1 codex resume 'an id'"),
        ("opencode", "cd '/a b' && X=1 opencode --session 'an id'"),
    ],
)
def test_a_session_is_opened_again_by_its_agents_own_command(agent: str, command: str) -> None:
    """From its directory, where one is known, with what tells the agent where its sessions are."""
    resume = ADAPTERS[agent].resume_command
    assert resume("an id", "/a b", "/s s.jsonl", "X=1 ") == command
    assert resume("an id", "", "/s s.jsonl", "X=1 ") == command.removeprefix("cd '/a b' && ")


def test_an_archived_session_of_codex_comes_back_first() -> None:
    """Codex resumes nothing that is archived."""
    found = codex.resume_command("an id", "", "/c/archived_sessions/r.jsonl", "X=1 ")
    assert found == "X=1 codex unarchive 'an id' && X=1 codex resume 'an id'"


def test_a_sub_agent_of_claude_is_opened_by_its_parent() -> None:
    """Nothing else can be resumed."""
    found = claude.resume_command("agent-1", "", "/p/-w/the-parent/subagents/agent-1.jsonl")
    assert found == "claude --resume the-parent"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["/home/u/.pi/agent"]),
        ({"PI_CODING_AGENT_DIR": ""}, ["/home/u/.pi/agent"]),
        ({"PI_CODING_AGENT_DIR": "/elsewhere"}, ["/elsewhere"]),
        ({"PI_CODING_AGENT_DIR": "~"}, ["/home/u"]),
        ({"PI_CODING_AGENT_DIR": "~/pi"}, ["/home/u/pi"]),
        ({"PI_CODING_AGENT_DIR": "~other/pi"}, ["~other/pi"]),
    ],
)
def test_pis_directory_is_where_pi_looks_for_it(given: dict[str, str], found: list[str]) -> None:
    """By its variable, of which `~` is the home and `~other` a name; else below the home."""
    assert pi.agent_dirs(given, "/home/u") == found


def test_what_another_agent_of_codex_said_is_no_human_and_no_answer() -> None:
    """As an item, or on a line of its own: the model gets it as user text."""
    blocks = [{"type": "input_text", "text": "from afar"}]
    data = b"".join(
        [
            meta(),
            user("hi"),
            item("agent_message", content=blocks),
            line("inter_agent_communication", {"content": blocks}),
            answer("well"),
        ]
    )
    state = codex_files.state_of(data)
    found = [(one.kind, one.texts) for one in entries(state, data)]
    assert found[-3:-1] == [(Kind.CUSTOM, ("from afar",))] * 2
    assert [state.kind(row) for row in state.path()][-3:-1] == [Kind.CUSTOM] * 2
    assert state.user_messages() == 1


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b'{"ordinal": 7}', 7),
        (b'{"ordinal": 0}', 0),
        (b'{"ordinal": true}', None),
        (b'{"ordinal": "7"}', None),
        (b"{}", None),
        (b'{"ordinal": 7', None),
        (b"\xff", None),
        (b"[" * 5000, None),
    ],
)
def test_the_number_of_a_line_is_a_whole_one_or_none(data: bytes, number: int | None) -> None:
    """Whatever else stands there."""
    assert ordinal_of(data) == number


def test_a_reminder_without_a_beginning_is_what_was_typed() -> None:
    """Only whole reminders are taken off, before and after, however many there are."""
    whole = "<system-reminder>\nx\n</system-reminder>"
    assert unwrapped(f"{whole}\n{whole} typed {whole}\n{whole}") == "typed"
    assert unwrapped("typed </system-reminder>") == "typed </system-reminder>"
    assert unwrapped(f"typed </system-reminder> {whole}") == "typed </system-reminder>"


def test_an_answer_that_is_a_compactions_summary_is_one() -> None:
    """Whoever wrote it, a line that says so holds a summary."""
    data = claude_files.user("u1", None, "hi") + claude_files.answer(
        "a1", "u1", "It was about X.", isCompactSummary=True
    )
    state = claude_files.state_of(data)
    assert state.kind(1) is Kind.COMPACTION
    assert state.compactions == 1


def test_summaries_at_the_head_of_a_file_name_it_when_their_message_comes() -> None:
    """Of very many the newest are kept."""
    heads = [
        claude_files.bare(type="summary", summary=f"Name {n}", leafUuid=f"u{n}")
        for n in range(SUMMARIES_KEPT + 1)
    ]
    for n, name in ((1, "Name 1"), (SUMMARIES_KEPT, f"Name {SUMMARIES_KEPT}"), (0, None)):
        state = claude_files.state_of(b"".join([*heads, claude_files.user(f"u{n}", None, "hi")]))
        assert state.name == name


def test_a_made_up_name_of_a_line_is_never_another_lines() -> None:
    """Lines without an id are called by their number, and by more where that is taken."""
    data = (
        claude_files.user("L2", None, "one")
        + claude_files.user("L2~", "L2", "two")
        + claude_files.line("user", None, "L2~", message={"role": "user", "content": "three"})
    )
    state = claude_files.state_of(data)
    assert [state.id(row) for row in range(len(state))] == ["L2", "L2~", "L2~~"]


def test_a_line_of_pi_that_is_no_object_is_no_entry() -> None:
    """A ValueError, as for what is no JSON."""
    for data in (b"[]", b"7", b'"x"', b"{"):
        with pytest.raises(ValueError, match=r"."):
            pi.read(data, "e")


def test_a_hook_that_answers_late_says_whose_words_it_prints() -> None:
    """Plain output is told as a success of the hook, other output as it is."""
    response = {"hookSpecificOutput": {"additionalContext": "told"}, "systemMessage": "seen"}
    for plain, text in ((True, "Stop hook success: told"), (False, "told")):
        data = claude_files.attachment(
            "h1",
            None,
            "async_hook_response",
            hookName="Stop",
            response=response,
            isPlainOutput=plain,
        )
        sent = claude.read(data, "h1").details["sent"]
        assert [one.split("\n")[1] for one in sent] == ["seen", text]
    for kind in (["hook_success"], {"a": 1}, 7):
        assert claude.read(
            claude_files.line("attachment", "h1", None, attachment={"type": kind}), "h1"
        )


def test_a_first_line_of_opencode_that_is_too_long_makes_it_no_session() -> None:
    """One further on is passed over."""
    whole = Oversize(0, 10, b"{", b"}")
    state = SessionState("/s")
    opencode.skim_oversize(state, whole)
    assert (state.foreign, state.oversized) == (True, 1)
    state = SessionState("/s")
    opencode.skim_oversize(state, replace(whole, offset=7))
    assert not state.foreign
    state.header = Header("s1", "/w", "", 1)
    opencode.skim_oversize(state, whole)
    assert (state.foreign, state.oversized) == (False, 2)
