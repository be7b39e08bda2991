"""Rows: which name counts, and what a session shows whose file is gone."""

from __future__ import annotations

import pytest

from indexerd.meta.session_row import gone_row
from tests.meta.row_infos import info, meta, written

STEM = "2026-01-11T10-00-00-000Z_id"
NAMES = [
    ("title", "user", "The user's title"),
    ("meta", "meta", "The meta name"),
    ("agent_title", "agent", "The agent's title"),
    ("first_user", "first-message", "The first question"),
]


@pytest.mark.parametrize("missing", range(16))
@pytest.mark.parametrize("blank", ["", " \n\u200b\x1b[0m"])
def test_the_order_of_names(missing: int, blank: str) -> None:
    """S0.46: the user's title, meta, the agent's own, the first message, the stem; no blank one."""
    here = {key: blank if missing >> n & 1 else text for n, (key, _, text) in enumerate(NAMES)}
    made = info(agent_title=here["agent_title"], first_user=here["first_user"])

    row = written(made, meta(name=here["meta"]), here["title"]).row

    wanted = [(text, source) for n, (_, source, text) in enumerate(NAMES) if not missing >> n & 1]
    assert (row["name"], row["nameSource"]) == (wanted[0] if wanted else (STEM, "file"))


# -- gone -------------------------------------------------------------------------------------


def test_a_file_that_is_gone_leaves_what_was_known() -> None:
    """S0.68: the row is marked gone, still resolves, and keeps its facts."""
    was = written(info(agent_title="Agent's"), meta(), files_read=("/a",)).row
    left = gone_row(was, meta(), None)

    assert left is not None
    changed = {"gone": True, "archived": True, "state": "archived", "resume": ""}
    assert left.row == was | changed
    assert was["resume"], "it could be resumed before"
    assert was["gone"] is False
    assert left.aliases == ("The meta name", "Agent's")


# -- infos ------------------------------------------------------------------------------------
