"""The hand-off document: everything needed to go on, and nothing forged in it."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.digests.compaction import GUIDE, document, instruction_files
from indexerd.sessions.facts import FileLists

ROW = {
    "agent": "claude",
    "sessionId": "0196-abc",
    "name": "Alerts to a file",
    "cwd": "/",
    "gitBranch": "alerts",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "modifiedAt": "2026-01-01T01:00:00.000Z",
    "resume": "cd / && claude --resume 0196-abc",
}
TOLD: dict[str, Any] = {
    "row": ROW,
    "summary": "## Goal\nAlerts go to a file.\n\n## Next Steps\n1. Rotate it.",
    "summary_by": "local/extractive",
    "files": FileLists(("/proj/README.md",), ("/proj/alerts.py",)),
    "messages": (("user", "Rotate it daily."), ("assistant", "We decided to use a file.")),
}
# indexerd's own lines: a heading, a fact, a remark, a label before a quotation.
OURS = re.compile(r"(?:#{1,2} .*|- [a-z ]+: .*|\(.*\)|From (?:user|assistant):|What is not .*|)")


def bare(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.startswith(">")]


def section(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}")[2].partition("\n## ")[0]


def test_a_document_holds_what_is_needed_to_go_on() -> None:
    """S3.19: origin, instruction files, summary, decisions, files, last words, commands."""
    text = document(**TOLD)
    origin = section(text, "Where it comes from")
    for fact in ("claude", "0196-abc", "/", "alerts", "2026-01-01T01:00:00.000Z"):
        assert f": {fact}\n" in origin
    assert "`indexerd resume 0196-abc`" in origin
    summary = section(text, "Summary (by local/extractive)")
    assert "> ## Goal\n> Alerts go to a file.\n" in summary
    assert "> 1. Rotate it." in summary
    assert "> - We decided to use a file." in section(text, "Key decisions")
    assert section(text, "Files modified").strip() == "> - /proj/alerts.py"
    assert section(text, "Files read").strip() == "> - /proj/README.md"
    last = section(text, "Last messages")
    assert last.index("From user:\n\n> Rotate it daily.") < last.index("From assistant:")
    assert text.endswith('`indexerd ask 0196-abc "QUESTION"`\n')
    assert text.startswith(f"# Hand-off: Alerts to a file\n\n{GUIDE}\n")


TEXT = st.text(
    st.one_of(st.sampled_from("<@[`#> \n\t\x1b-*&"), st.characters(max_codepoint=0x1F600)),
    max_size=60,
)
LONG = st.builds(lambda text, times: text * times, TEXT, st.sampled_from([1, 40, 900]))


@settings(max_examples=15)
@given(
    st.builds(
        document,
        st.fixed_dictionaries(
            dict.fromkeys(ROW, LONG) | {"sessionId": st.just("0196-abc"), "resume": LONG}
        ),
        summary=LONG,
        summary_by=LONG,
        files=st.builds(FileLists, st.lists(LONG, max_size=30), st.lists(LONG, max_size=30)),
        messages=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), LONG), max_size=8),
    )
)
def test_any_document_is_bounded_and_its_own(text: str) -> None:
    """Whatever the texts are, the document is bounded, and no unquoted line is theirs."""
    assert len(text) <= 250_000
    known = set(bare(document(**TOLD)))
    for line in bare(text):
        assert line in known or OURS.fullmatch(line), line
    sections = [line for line in bare(text) if line.startswith("## ")]
    assert len({line.split("(")[0] for line in sections}) == len(sections)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "home/u/repo"
    (root / ".git").mkdir(parents=True)
    (root / "pkg/deep").mkdir(parents=True)
    return root


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_every_agents_files_are_named_up_to_the_repositorys_root(repo: Path) -> None:
    """S3.19: outermost first; files above the repository are not the project's."""
    put(repo.parent / "AGENTS.md")
    put(repo / "AGENTS.md")
    put(repo / ".github/copilot-instructions.md")
    put(repo / ".pi/SYSTEM.md")  # pi reads that of the cwd alone
    put(repo / "pkg/GEMINI.md")
    put(repo / "pkg/deep/CLAUDE.local.md")
    put(repo / "pkg/deep/.claude/rules/a.md")
    put(repo / "pkg/deep/.pi/APPEND_SYSTEM.md")
    assert instruction_files(str(repo / "pkg/deep")) == [
        "../../AGENTS.md",
        "../../.github/copilot-instructions.md",
        "../GEMINI.md",
        ".claude/rules/",
        "CLAUDE.local.md",
        ".pi/APPEND_SYSTEM.md",
    ]
