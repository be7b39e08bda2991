"""Rows: which name is shown, what remains of a deleted session, and hostile texts."""

import json
from typing import Any

import pytest

from indexerd.meta.model import Marks, MetaFile
from indexerd.meta.session_row import gone_row, row_of
from indexerd.privacy.redact import StoredRow
from indexerd.protocol import limits
from indexerd.sessions.facts import RowFacts
from indexerd.sessions.info import SessionInfo
from tests.store.rows import info, meta


def written(
    made: SessionInfo, about: MetaFile | None = None, title: str = "", **facts: Any
) -> StoredRow:
    return row_of(made, about, Marks(title=title), RowFacts(**facts), resume="pi --session id")


STEM = "2026-01-11T10-00-00-000Z_id"
NAMES = {
    "title": "The user's title",
    "agent_title": "The agent's title",
    "meta": "The meta name",
    "first_prompt": "The first question",
}
TITLE_FIRST, META_FIRST = [*NAMES], ["title", "meta", "agent_title", "first_prompt"]


@pytest.mark.parametrize("missing", range(16))
@pytest.mark.parametrize("blank", ["", " \n\u200b\x1b[0m"])
@pytest.mark.parametrize("model", ["google/x", "local/extractive"])
@pytest.mark.parametrize("by_person", [False, True])
def test_the_order_of_names(*, missing: int, blank: str, model: str, by_person: bool) -> None:
    """S0.46: the agent's own title only wins over the built-in model's; blanks are skipped."""
    here = {key: blank if missing >> n & 1 else NAMES[key] for n, key in enumerate(NAMES)}
    titles = {"agent_title": here["agent_title"], "named_by_person": by_person}
    made = info(first_prompt=here["first_prompt"], **titles)

    row = written(made, meta(name=here["meta"], model=model), here["title"]).row

    sources = {"title": "user", "meta": "meta", "first_prompt": "first-message"}
    sources["agent_title"] = "user" if by_person else "agent"
    order = META_FIRST if model == "google/x" and not by_person else TITLE_FIRST
    wanted = [(NAMES[key], sources[key]) for key in order if here[key] == NAMES[key]]
    assert (row["name"], row["nameSource"]) == (wanted[0] if wanted else (STEM, "file"))


LONG = "\x1b]0;pwn\x07\u202ex\n" * 100_000
LIMITS = {
    **dict.fromkeys(("name", "metaName", "model"), limits.NAME_MAX),
    **dict.fromkeys(("agentTitle", "firstUserMessage"), 200),
    **dict.fromkeys(("agent", "createdAt", "modifiedAt", "updatedAt", "leafId"), limits.WORD_MAX),
    **dict.fromkeys(("cwd", "sessionFile", "parentSessionFile"), limits.PATH_MAX + 1),
    "description": limits.DESCRIPTION_MAX,
}


def bounded(made: StoredRow) -> None:
    """No text exceeds its field's limit, and texts for display have no control characters."""
    row = made.row
    for field, limit in LIMITS.items():
        assert len(row.get(field) or "") <= limit, field
    for field in ("name", "metaName", "agentTitle", "description", "model", "updatedAt"):
        assert "\x1b" not in row.get(field, "")
        assert "\u202e" not in row.get(field, "")
    assert len(row["tags"]) <= limits.TAGS_SHOWN
    assert all(0 < len(tag) <= limits.TAG_MAX for tag in row["tags"])
    for field in ("filesRead", "filesModified"):
        assert len(row[field]) <= limits.PATHS_MAX
        assert all(len(path) <= limits.PATH_MAX and path.startswith("/") for path in row[field])
    assert len(row["toolsUsed"]) <= limits.PATHS_MAX
    assert all(len(name) <= limits.WORD_MAX for name in row["toolsUsed"])
    assert len(made.summary) <= limits.SUMMARY_MAX
    assert all(len(alias) <= limits.NAME_MAX for alias in made.aliases)
    assert json.dumps(row).encode()


@pytest.mark.parametrize("gone", [False, True])
def test_hostile_texts_are_bounded(*, gone: bool) -> None:
    """Megabytes of escapes in every field of a header and of a meta file."""
    words = ("name", "description", "summary", "created_at", "updated_at", "model", "agent")
    more = ("cwd", "session_file", "first_user_message", "session_created_at")
    about = meta(
        **dict.fromkeys((*words, *more, "session_modified_at"), LONG),
        tags=[LONG, "\u202e", "ok"] * 100,
        files_read=[LONG] * 3 + ["a"] * 1000,
        files_modified=["a"] * 1000,
        tools_used={LONG: 1} | {f"t{n}": n for n in range(1000)},
    )
    marks = Marks(LONG, tags=(LONG, "mine"))
    if gone:
        made = gone_row(None, about, marks)
        assert made is not None
    else:
        hostile = info(cwd="/" + LONG, created_at=LONG, parent=LONG, leaf_id=LONG, agent_title=LONG)
        made = row_of(hostile, about, marks, RowFacts(), resume="")
    bounded(made)
    assert made.row["tags"][1:] == ["mine", "ok"]
