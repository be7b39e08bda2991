"""Prompts that an agent stores again, or behind words of its own: each counts once."""

from __future__ import annotations

import json
from typing import Any

from indexerd.agents.codex.parse_entry import read
from indexerd.events import Kind
from tests.agents.codex_files import answer, event, line, meta, said, state_of, texts, turn, user
from tests.agents.feeding import fed

SURROUNDINGS = "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"


def test_codex_puts_its_surroundings_before_a_prompt() -> None:
    """formats.md 3.7: in one block with it, or in a block of their own."""
    data = meta() + user(f"{SURROUNDINGS}\nSort the imports.") + answer("Done.")
    assert state_of(data).first_user == "Sort the imports."
    assert state_of(meta(), user(SURROUNDINGS, "Sort them."), answer("Done.")).user_messages() == 1
    assert state_of(meta(), user(SURROUNDINGS), answer("Yes?")).user_messages() == 0


def test_codex_asks_the_first_question_again_after_an_interruption() -> None:
    """formats.md 3.7: the user asked it once."""
    data = meta() + turn("t1", user("Sort the imports."), end="turn_aborted")
    data += user("<turn_aborted>\nThe user stopped it.\n</turn_aborted>")
    again = data + user("Sort the imports.") + answer("Done.")
    assert state_of(again).user_messages() == 1
    assert texts(state_of(data + user("Sort the tests.")), data + user("Sort the tests."))[-1] == (
        "Sort the tests."
    )
    assert state_of(again + user("Sort the imports.") + answer("Twice.")).user_messages() == 2


def test_codex_stores_a_summary_as_an_answer_too() -> None:
    """formats.md 3.10: of a compaction on one's own machine the compaction tells it."""
    data = meta() + user("Sort them.") + answer("Done.") + answer("So far: sorted.")
    start = "Another language model started to solve this problem. Go on:\n"
    state = state_of(data + line("compacted", {"message": f"{start}So far: sorted."}))
    kinds = [state.kind(row) for row in state.path()]
    assert kinds == [Kind.USER, Kind.ASSISTANT, Kind.OTHER, Kind.COMPACTION]
    other = state_of(data + line("compacted", {"message": "Something else."}))
    assert other.kind(other.path()[-2]) is Kind.ASSISTANT


def test_a_patch_of_codex_that_was_not_applied_changed_nothing() -> None:
    """formats.md 3.12: the files of a call count, unless it is said that they do not."""
    change = {"call_id": "c1", "changes": {"/w/a": {"type": "add"}}}
    for success, failed in ((False, ("c1",)), (True, ())):
        assert read(event("patch_apply_end", success=success, **change), "x").failed == failed


def test_codex_puts_what_programs_say_into_the_users_role() -> None:
    """formats.md 3.7: a block that is all one tag counts as asked only if an event says so."""
    data = meta() + turn("t1", user("Sort them."), said("Sort them."), answer("Done."))
    for text, count in (("<new_context a='1'>\nx\n</new_context>", 1), ("Go on.", 2)):
        assert state_of(data + turn("t2", user(text), answer("Yes."))).user_messages() == count


def message(number: int, role: str, *parts: dict[str, Any], **more: Any) -> bytes:
    held = {"type": "message", "id": f"m{number}", "role": role, "parts": parts}
    return json.dumps(held | more).encode() + b"\n"


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def opencode(*lines: bytes) -> bytes:
    header = {"type": "session", "id": "ses_1", "directory": "/w", "title": "T"}
    return json.dumps(header).encode() + b"\n" + b"".join(lines)


def test_opencode_stores_a_prompt_that_did_not_fit_once_more() -> None:
    """formats.md 4.5: after the summary of a compaction for overflow; else it was typed twice."""
    for overflow, count in ((True, 1), (False, 2)):
        data = opencode(
            message(1, "user", words("Sort it.")),
            message(2, "user", {"type": "compaction", "auto": True, "overflow": overflow}),
            message(3, "assistant", words("So far."), summary=True, finish="stop"),
            message(4, "user", words("Sort it."), {"type": "text", "text": "[Attached image]"}),
        )
        assert fed("opencode", data).user_messages() == count


def test_opencode_says_itself_that_it_stopped() -> None:
    """S0.1: the turn has ended, or failed, whatever its last answer looks like."""
    asked = message(1, "user", words("Sort it.")) + message(2, "assistant", words("I will"))
    assert fed("opencode", opencode(asked)).turn.name == "OPEN"
    for outcome, how in (("succeeded", "ENDED"), ("interrupted", "FAILED")):
        data = opencode(asked, message(3, "idle", outcome=outcome))
        assert fed("opencode", data).turn.name == how
