"""The hand-off document: everything needed to go on, and nothing forged in it."""

import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.digests.compaction import document, instruction_files
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


def test_every_agents_files_are_named_up_to_the_repositorys_root(tmp_path: Path) -> None:
    """S3.19: outermost first; files above the repository are not the project's."""
    repo = tmp_path / "repo"
    for name in (
        *("../AGENTS.md", "AGENTS.md", ".git/x", ".github/copilot-instructions.md"),
        *("pkg/GEMINI.md", "pkg/deep/CLAUDE.local.md", "pkg/deep/.claude/rules/a.md"),
        ".pi/SYSTEM.md",  # pi reads that of the cwd alone
        "pkg/deep/.pi/APPEND_SYSTEM.md",
    ):
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert instruction_files(str(repo / "pkg/deep")) == [
        "../../AGENTS.md",
        "../../.github/copilot-instructions.md",
        "../GEMINI.md",
        ".claude/rules/",
        "CLAUDE.local.md",
        ".pi/APPEND_SYSTEM.md",
    ]
