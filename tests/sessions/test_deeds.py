"""What was done on a path: files, tools, models, tokens, each counted once."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from indexerd.events import Entry, Kind, Tokens, ToolCall
from indexerd.sessions.facts import FILES_MAX, TOOLS_MAX, USE_MAX, ActivityStats

CWD = "/home/u/p"


def answer(*calls: ToolCall, **fields: object) -> Entry:
    """An assistant's entry that makes these calls."""
    held: dict[str, object] = {"timestamp": "", "tools": calls, **fields}
    return Entry("a", Kind.ASSISTANT, "message", "assistant", **held)  # type: ignore[arg-type] # any field


def failed(*ids: str) -> Entry:
    """A result that says that these calls came to nothing."""
    return Entry("t", Kind.TOOL, "message", "toolResult", "", failed=ids)


def gathered(*entries: Entry) -> ActivityStats:
    """All of them taken in."""
    deeds = ActivityStats()
    for entry in entries:
        deeds.add(entry, CWD)
        deeds.pay(entry)
    return deeds


def test_a_file_that_was_written_is_not_listed_as_read() -> None:
    """S1.23: read-only minus modified, sorted, absolute against the session's directory."""
    facts = gathered(
        answer(ToolCall("read", reads=("b.py",)), ToolCall("read", reads=("/x/a.py",))),
        answer(ToolCall("edit", writes=("b.py",))),
    ).facts()

    assert facts.files_read == ("/x/a.py",)
    assert facts.files_modified == (f"{CWD}/b.py",)
    assert facts.tools_used == (("edit", 1), ("read", 2))


def test_what_failed_is_taken_back_and_what_went_well_before_stays() -> None:
    """A failed edit modified nothing; an earlier good one of the same file did."""
    good, bad = ToolCall("Edit", id="1", writes=("a",)), ToolCall("Edit", id="2", writes=("a",))
    other = ToolCall("Read", id="3", reads=("nope",))

    facts = gathered(answer(good), answer(bad, other), failed("2", "3")).facts()

    assert facts.files_modified == (f"{CWD}/a",)
    assert facts.files_read == ()
    assert dict(facts.tools_used) == {"Edit": 2, "Read": 1}, "it was used all the same"


def test_a_record_of_what_a_call_did_is_no_use_of_a_tool() -> None:
    """Codex tells of changed files on lines of their own."""
    facts = gathered(answer(ToolCall("apply_patch")), answer(ToolCall("", writes=("/x",)))).facts()

    assert (facts.tools_used, facts.files_modified) == ((("apply_patch", 1),), ("/x",))


def test_the_newest_three_uses_that_differ_are_kept_without_secrets() -> None:
    """S2.12: at most three notable uses of a tool."""
    key = "sk-ant-api03-" + "a1B2" * 24
    lines = ["ls", "make", "ls", "make test", f"curl -H 'x-api-key: {key}'", "x" * 1000]

    (uses,) = (uses for _, uses in gathered(*map(bash, lines)).facts().tool_uses)

    assert len(uses) == 3
    assert uses[0] == "make test"
    assert key not in uses[1]
    assert len(uses[2]) <= USE_MAX


def bash(line: str) -> Entry:
    """A command that the agent ran."""
    return answer(ToolCall("bash", detail=line))


def test_an_answer_on_several_lines_is_paid_once() -> None:
    """Claude Code repeats an answer's usage on each of its lines, growing."""
    lines = (Tokens(10, 1, 5, 2, answer="m"), Tokens(10, 7, 5, 2, answer="m"), Tokens(3, 3))

    facts = gathered(*(answer(tokens=one) for one in lines)).facts()

    assert facts.tokens == (13, 10, 5, 2)
    assert facts.cost_usd is None, "nobody recorded one"


def test_costs_add_up_where_they_are_recorded() -> None:
    """An unknown cost is no zero."""
    facts = gathered(*(answer(tokens=Tokens(1, 1, cost_usd=one)) for one in (0.25, None, 0.5)))
    assert facts.facts().cost_usd == 0.75


def test_copies_of_a_parents_entries_are_not_paid_again() -> None:
    """S1.17: nor done again; the models and times of the path are those of all of it."""
    deeds = ActivityStats()
    for number, stamp in ((1, "10:00:00"), (2, "10:00:05"), (4, "10:00:06")):
        call = ToolCall("edit", writes=(f"{number}",), id=f"{number}")
        spent = Tokens(number, number, number, number, cost_usd=number / 4)
        said = answer(call, tokens=spent, timestamp=f"2026-01-01T{stamp}Z", model=f"m{number}")
        deeds.add(said, CWD, copied=number == 1)
        if number != 1:
            deeds.pay(said)

    facts = deeds.facts()
    assert facts.tokens == (6, 6, 6, 6)
    assert facts.cost_usd == 1.5
    assert facts.tools_used == (("edit", 2),)
    assert facts.files_modified == (f"{CWD}/2", f"{CWD}/4")
    assert (facts.models, facts.duration_ms) == (("m1", "m2", "m4"), 6000)


def test_models_are_listed_in_the_order_of_their_last_use() -> None:
    """Not those that stand for no model."""
    models = ("a", "b", "<synthetic>", "a")
    assert gathered(*(answer(model=one) for one in models)).facts().models == ("b", "a")


def test_the_duration_is_from_the_first_message_to_the_last() -> None:
    """Whatever their order in the file."""
    times = ("2026-01-01T10:00:30Z", "2026-01-01T10:00:00Z", "2026-01-01T10:01:00Z", "odd")
    entries = (answer(timestamp=one) for one in times)
    assert gathered(*entries).facts().duration_ms == 60_000


@given(
    st.lists(
        st.tuples(st.text(), st.text(), st.lists(st.text()), st.lists(st.text()), st.text()),
        max_size=30,
    )
)
def test_any_calls_leave_something_bounded_that_survives_storing(
    calls: list[tuple[str, str, list[str], list[str], str]],
) -> None:
    """Whatever names and paths a session holds."""
    entries = [
        answer(
            ToolCall(name, detail, key, tuple(map(clean, reads)), tuple(map(clean, writes))),
            failed=(key,),
        )
        for name, detail, reads, writes, key in calls
    ]
    deeds = gathered(*entries)
    packed = msgspec.msgpack.encode(deeds)

    assert msgspec.msgpack.decode(packed, type=ActivityStats) == deeds
    assert len(deeds.facts().files_modified) <= FILES_MAX
    assert len(deeds.facts().tools_used) <= TOOLS_MAX


def clean(text: str) -> str:
    """Text as adapters give it: without lone surrogates."""
    return text.encode("utf-8", "replace").decode()
