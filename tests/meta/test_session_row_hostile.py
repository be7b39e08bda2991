"""Rows of hostile texts: bounded, whatever they are made of."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.meta.session_row import gone_row, row_of
from indexerd.protocol.limits import (
    DESCRIPTION_MAX,
    NAME_MAX,
    PATH_MAX,
    PATHS_MAX,
    SUMMARY_MAX,
    TAG_MAX,
    TAGS_SHOWN,
    WORD_MAX,
)
from indexerd.protocol.results import StoredRow
from indexerd.sessions.facts import Facts
from tests.meta.row_infos import info, meta, written

LONG = "\x1b]0;pwn\x07\u202ex\n" * 100_000
LIMITS = {
    **dict.fromkeys(("name", "metaName", "model"), NAME_MAX),
    **dict.fromkeys(("agentTitle", "firstUserMessage"), 200),
    **dict.fromkeys(("agent", "createdAt", "modifiedAt", "updatedAt", "leafId"), WORD_MAX),
    **dict.fromkeys(("cwd", "sessionFile", "parentSessionFile"), PATH_MAX + 1),
    "description": DESCRIPTION_MAX,
}


def bounded(made: StoredRow) -> None:
    """No text of the row is longer than its field may be; words for eyes hold no controls."""
    row = made.row
    for field, limit in LIMITS.items():
        assert len(row.get(field) or "") <= limit, field
    for field in ("name", "metaName", "agentTitle", "description", "model", "updatedAt"):
        assert "\x1b" not in row.get(field, "")
        assert "\u202e" not in row.get(field, "")
    assert len(row["tags"]) <= TAGS_SHOWN
    assert all(0 < len(tag) <= TAG_MAX for tag in row["tags"])
    for field in ("filesRead", "filesModified"):
        assert len(row[field]) <= PATHS_MAX
        assert all(len(path) <= PATH_MAX and path.startswith("/") for path in row[field])
    assert len(row["toolsUsed"]) <= PATHS_MAX
    assert all(len(name) <= WORD_MAX for name in row["toolsUsed"])
    assert len(made.summary) <= SUMMARY_MAX
    assert all(len(alias) <= NAME_MAX for alias in made.aliases)
    assert json.dumps(row).encode()


@pytest.mark.parametrize("gone", [False, True])
def test_hostile_texts_are_bounded(*, gone: bool) -> None:
    """X9, X12: megabytes of escapes in every field of a header and of a meta file."""
    words = ("name", "description", "summary", "created_at", "updated_at", "model", "agent")
    more = ("cwd", "session_file", "first_user_message", "session_created_at")
    about = meta(
        **dict.fromkeys((*words, *more, "session_modified_at"), LONG),
        tags=[LONG, "\u202e", "ok"] * 100,
        files_read=[LONG] * 3 + ["a"] * 1000,
        files_modified=["a"] * 1000,
        tools_used={LONG: 1} | {f"t{n}": n for n in range(1000)},
    )
    if gone:
        made = gone_row(None, about, LONG)
        assert made is not None
    else:
        hostile = info(cwd="/" + LONG, created_at=LONG, parent=LONG, leaf_id=LONG, agent_title=LONG)
        made = row_of(hostile, about, LONG, Facts(), resume=lambda _id, _cwd, _path: "")
    bounded(made)
    assert "ok" in made.row["tags"]


words = st.text(max_size=30) | st.sampled_from([LONG[:200], "\x1b[0m", "\u202e", "a\nb", "", "/"])


@settings(max_examples=50, deadline=None)
@given(words, words, words, st.lists(words, max_size=5), st.none() | words)
def test_any_texts_make_a_row(
    first: str, second: str, third: str, many: list[str], title: str | None
) -> None:
    """X12: never an error, always within bounds, always JSON, by both ways."""
    about = meta(
        name=first,
        description=second,
        tags=many,
        cwd=third,
        session_file=second,
        files_read=many,
        updated_at=first,
    )
    made = info(agent_title=third or None, created_at=first, cwd=second, parent=third or None)
    for one in (written(made, about, title), written(made, None, title)):
        bounded(one)
        left = gone_row(one.row, about, title)
        assert left is not None
        bounded(left)
    left = gone_row(None, about, title)
    assert left is not None
    bounded(left)
