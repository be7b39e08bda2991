"""Prompts that an agent stores twice, or with its own text, count once."""

import json
from typing import Any

from indexerd.agents.codex.parse_entry import read
from indexerd.entries import Kind
from tests.agents.codex_files import answer, event, line, meta, said, state_of, texts, turn, user
from tests.agents.feeding import fed

SURROUNDINGS = "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"


def test_codex_context_before_a_prompt_is_ignored() -> None:
    """formats.md 3.7: in the same block as the prompt or in its own."""
    data = meta() + user(f"{SURROUNDINGS}\nSort the imports.") + answer("Done.")
    assert state_of(data).first_prompt == "Sort the imports."
    assert state_of(meta(), user(SURROUNDINGS, "Sort them."), answer("Done.")).user_messages() == 1
    assert state_of(meta(), user(SURROUNDINGS), answer("Yes?")).user_messages() == 0


def test_codex_repeats_the_first_prompt_after_an_interruption() -> None:
    """formats.md 3.7: the user typed it once."""
    data = meta() + turn("t1", user("Sort the imports."), end="turn_aborted")
    data += user("<turn_aborted>\nThe user stopped it.\n</turn_aborted>")
    again = data + user("Sort the imports.") + answer("Done.")
    assert state_of(again).user_messages() == 1
    assert texts(data, user("Sort the tests."))[-1] == "Sort the tests."
    assert state_of(again + user("Sort the imports.") + answer("Twice.")).user_messages() == 2


def test_codex_also_stores_a_summary_as_an_answer() -> None:
    """formats.md 3.10: only the record of a local compaction counts."""
    data = meta() + user("Sort them.") + answer("Done.") + answer("So far: sorted.")
    start = "Another language model started to solve this problem. Go on:\n"
    state = state_of(data + line("compacted", {"message": f"{start}So far: sorted."}))
    kinds = [state.kind(row) for row in state.path()]
    assert kinds == [Kind.USER, Kind.ASSISTANT, Kind.OTHER, Kind.COMPACTION]
    other = state_of(data + line("compacted", {"message": "Something else."}))
    assert other.kind(other.path()[-2]) is Kind.ASSISTANT


def test_a_rejected_codex_patch_changed_no_file() -> None:
    """formats.md 3.12: files of a call count unless its result says otherwise."""
    change = {"call_id": "c1", "changes": {"/w/a": {"type": "add"}}}
    for success, failed in ((False, ("c1",)), (True, ())):
        assert read(event("patch_apply_end", success=success, **change), "x").failed == failed


def test_codex_uses_the_users_role_for_program_output() -> None:
    """formats.md 3.7: one that is a single tag, or before a prompt with an event, is no prompt."""
    data = meta() + turn("t1", user("Sort them."), said("Sort them."), answer("Done."))
    before = user("A new kind of context."), user("Go on."), said("Go on.")
    assert state_of(data + turn("t2", *before, answer("Yes."))).user_messages() == 2
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


def test_opencode_repeats_a_prompt_after_an_overflow() -> None:
    """formats.md 4.5: after an overflow compaction it counts once, otherwise twice."""
    for overflow, count in ((True, 1), (False, 2)):
        data = opencode(
            message(1, "user", words("Sort it.")),
            message(2, "user", {"type": "compaction", "auto": True, "overflow": overflow}),
            message(3, "assistant", words("So far."), summary=True, finish="stop"),
            message(4, "user", words("Sort it."), {"type": "text", "text": "[Attached image]"}),
        )
        assert fed("opencode", data).user_messages() == count


def test_opencode_records_that_it_stopped() -> None:
    """S0.1: the turn has ended or failed, whatever its last answer looks like."""
    asked = message(1, "user", words("Sort it.")) + message(2, "assistant", words("I will"))
    assert fed("opencode", opencode(asked)).turn.name == "OPEN"
    for outcome, how in (("succeeded", "ENDED"), ("interrupted", "FAILED")):
        data = opencode(asked, message(3, "idle", outcome=outcome))
        assert fed("opencode", data).turn.name == how
