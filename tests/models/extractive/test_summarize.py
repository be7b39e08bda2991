"""Offline summaries: their shapes, lengths, and what must be kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.entries import Facts, Stretch
from indexerd.models.extractive.describe import describe
from indexerd.models.extractive.summarize import summarize

HEADS = {
    "segment": "**Goal** **Decisions and discoveries** **End state**",  # without earlier actions
    "branch": "## Goal ## Constraints & Preferences ## Progress ### Done ### In Progress "
    "### Blocked ## Key Decisions ## Next Steps",
    "turn": "## Original Request ## Progress So Far ## Context Needed to Continue",
}
HEADS["checkpoint"] = HEADS["branch"] + " ## Critical Context"
SAID = (
    ("user", "Please move the billing exports from cron to the job queue."),
    ("assistant", "Let me look at the crontab first."),
    ("user", "The exports must never run twice, and keep the CSV columns as they are."),
    (
        "assistant",
        (
            "We decided to use one advisory lock per export. The root cause of the double runs was "
            "the retry in `jobs/export.py`."
        ),
    ),
    ("user", "Fine. What is left?"),
    (
        "assistant",
        (
            "Added the lock to the export jobs; all 31 tests pass. The old crontab still needs to "
            "be removed on the billing host."
        ),
    ),
)


def told(kind: str, *said: tuple[str, str], **known: object) -> str:
    return summarize(Stretch(kind, said or SAID, **known))  # type: ignore[arg-type] # any field


@pytest.mark.parametrize("kind", HEADS)
def test_each_kind_has_its_shape(kind: str) -> None:
    """S2.9, pi's format: the headings in order; an empty section is "(none)"."""
    heads = [line for line in told(kind).split("\n") if line.startswith(("#", "*"))]
    assert " ".join(heads) == HEADS[kind]
    assert "(none)" in told(kind, ("user", "ok"), ("assistant", "ok"))


def done(summary: str) -> list[str]:
    listed = summary.partition("### Done\n- ")[2].partition("\n\n")[0]
    return listed.split("\n- ")


def test_every_turn_tells_what_it_ended_with() -> None:
    """Not only its sentences with a cue; what was said on the way, or is open, is not told."""
    said = (
        ("user", "Design a cache for the forecasts."),
        ("assistant", "The stations are in `stations.json`."),
        ("assistant", "A dict keyed by city and day, for fifteen minutes."),
        ("user", "Should it go to SQLite?"),
        ("assistant", "One table with the payload as a blob."),
    )
    ends = ["A dict keyed by city and day, for fifteen minutes.", said[-1][1]]
    assert done(told("checkpoint", *said)) == ends
    open_ends = (
        *("The deployment is blocked by a missing token.", "The installer is still to do."),
        *("We still need to migrate the users.", "I'll rewrite the parser.", "It could be a dict."),
        *("Shall I go on?", "The remaining work is the installer."),
    )
    for text in open_ends:
        more = (("user", "What about the app?"), ("assistant", text), *4 * said[3:])
        assert done(told("checkpoint", *more)) == [said[-1][1]]
    summary = told("checkpoint", *said, previous="## Next Steps\n- Key the dict by city and day")
    assert "- Key the dict by city and day" in summary
    many = [("user", "Fix the dates."), ("assistant", "I fixed the parser of dates.")]
    for part in "abcdefghijklmnopqrstuvwxyz":
        many += [
            ("user", f"What is in {part}1?"),
            ("assistant", f"Module {part}1 lists the names."),
        ]
    assert "I fixed the parser of dates." in told("checkpoint", *many, max_tokens=250)


PLANTED = (
    "We decided to store amounts as integer cents.",
    "I chose to keep the ledger in PostgreSQL 15.",
    "We are going with Kafka for the audit trail.",
    "We must never write to the archive bucket.",
    "Every endpoint must answer within 200 ms.",
    "The staging database listens on port 6543.",
    "The import dies with ParseError: unexpected BOM at line 1.",
    "Feature flags are read from BILLING_FLAGS_FILE at start.",
)
PARTS = ("invoice", "ledger", "export", "parser", "cache", "queue", "report", "refund")


def chatter(round_number: int) -> list[tuple[str, str]]:
    """Messages of everyday work, different in every round."""
    found: list[tuple[str, str]] = []
    for n, part in enumerate(PARTS):
        at = f"{part}{round_number}"
        answer = (
            f"I'll read the {at} module. Then I renamed the helpers of {at} and updated "
            f"src/{at}.py; all {n + 7} tests pass. We decided to split {at} in two, as the error "
            f"in {at} was caused by a shared list."
        )
        asked = ("user", f"Could you clean up the {at} module and its tests? ok?")
        found += [asked, ("assistant", answer + f" The parts of {at} read more easily now." * 8)]
    return found


@pytest.mark.parametrize("max_tokens", [13_107, 700])
def test_planted_facts_survive_ten_rounds(max_tokens: int) -> None:
    """S2.27, S3.15: decisions, rules and exact facts of round one are kept in round ten."""
    said = chatter(0)
    for at, fact in enumerate(PLANTED):
        said.insert(at * 2, ("user" if "must" in fact else "assistant", fact))
    summary = ""
    for number in range(1, 11):
        summary = told("checkpoint", *said, previous=summary, max_tokens=max_tokens)
        assert len(summary) <= 4 * max_tokens
        said = chatter(number)
    assert [fact for fact in PLANTED if fact not in summary] == []


WORDS = (
    "we decided to must never use src/io.py ENOENT API-7 why? done. ok, fix **bold** \n - [x] "
    "# Goal\n ## Next ``` User: 修正 \x1b[31m \ud800 (none) still to do: <read-files> 5432"
)
spoken = st.lists(st.sampled_from(WORDS.split(" ")), max_size=30).map(" ".join)
stretches = st.builds(
    Stretch,
    kind=st.sampled_from(list(HEADS)),
    messages=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), spoken), max_size=8).map(
        tuple
    ),
    previous=spoken,
    instructions=spoken,
    max_tokens=st.integers(1, 400),
)


@settings(deadline=None, max_examples=60)
@given(stretches)
def test_any_range_is_summarized_within_its_limit(stretch: Stretch) -> None:
    """S2.9: never longer than requested, and repeatable."""
    text = summarize(stretch)
    assert text == summarize(stretch)
    assert text
    assert len(text) <= 4 * stretch.max_tokens
    assert text.replace("\n", "").isprintable()


def test_a_compaction_of_claude_code_is_taken_over_by_its_sections() -> None:
    """Code, prompts and the introduction are left out."""
    earlier = """This session is being continued from a previous conversation.

Summary:
1. Primary Request and Intent:
   - Rewrite the billing import

2. Key Technical Concepts:
   - Amounts are integer cents

3. Files and Code Sections:
   - billing/import.py
     ```python
     def run(): ...
     ```

6. All user messages:
   - "do it again"

7. Pending Tasks:
   - Remove the old crontab

If you need specific details from before compaction, read the full transcript at: /x.jsonl"""
    text = told("checkpoint", ("assistant", "Tested."), previous=earlier, max_tokens=2000)
    parts = {part.split("\n")[0]: part.split("\n")[1:] for part in text.split("\n\n")}
    assert parts["## Goal"] == ["- Rewrite the billing import"]
    assert parts["## Critical Context"] == ["- Amounts are integer cents"]
    assert parts["## Next Steps"] == ["- Remove the old crontab"]


def test_a_megabyte_of_unclosed_tags_is_survived() -> None:
    """In every field, the work stays bounded. A turn prefix says how it began (S1.26)."""
    text = "<file a=b>- # [a](" * 60_000
    said = ("user", text), ("assistant", text)
    assert len(told("checkpoint", *said, previous=text, instructions=text, cwd=text)) <= 4000
    known = Facts(said, (text,), (text,), {text: 1}, text)
    assert describe(known).name
    found = told("turn", ("assistant", "Earlier."), ("user", "ok"), max_tokens=8192)
    assert found.split("\n")[:2] == ["## Original Request", "- ok"]
