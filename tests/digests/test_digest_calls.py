"""Digests of one session, called without a daemon."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from indexerd.digests.compact_pi import estimate_tokens
from indexerd.models.extractive import Extractive
from tests.digests.digest_bench import KEY, Bench, spoken, working

FIELDS = ["id", "covering_messages", "content", "key_decisions", "files_modified", "tools_used"]
FIELDS += ["generated_at", "token_count", "model", "leafId"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A session that holds nothing yet."""
    return Bench(tmp_path)


# -- segments ------------------------------------------------------------------------------------


def test_a_segment_as_it_is_stored(bench: Bench) -> None:
    """S2.8, S2.11-S2.13, S2.22: exactly the fields of interfaces.md, true facts, 0600 in 0700."""
    working(bench)
    bench.scripted("- Alerts go to a file.")
    found = bench.digest()
    (line,) = bench.lines()
    assert list(line) == FIELDS
    assert line == found["segment"]
    assert line["covering_messages"] == [0, found["before"] - 11]
    assert line["content"] == "- Alerts go to a file."
    assert line["key_decisions"] == ["We decided to write alerts to a file."]
    assert line["files_modified"] == ["/w/alerts.py"]
    assert [(one["tool"], one["count"]) for one in line["tools_used"]] == [
        ("bash", 1),
        ("write", 1),
    ]
    assert line["token_count"] == 6
    assert line["generated_at"] == "2027-01-15T08:00:00.000Z"
    assert line["model"] == "scripted/list"
    tree = {json.loads(one).get("id") for one in bench.session.path.read_text().splitlines()}
    assert line["leafId"] in tree
    assert stat.S_IMODE(bench.sidecar.stat().st_mode) == 0o600
    assert stat.S_IMODE(bench.metas.stat().st_mode) == 0o700


def test_what_others_wrote_beside_a_session_is_redacted_before_it_is_sent(bench: Bench) -> None:
    """S2.21: a segment by another hand is a part of the next one's prompt."""
    working(bench)
    bench.scripted("x")
    bench.digest()
    (line,) = bench.lines()
    bench.sidecar.write_text(json.dumps(line | {"content": f"They used {KEY} here."}) + "\n")
    bench.session.talk(10)
    bench.models = []
    model = bench.scripted("y")
    bench.digest()
    assert "They used [redacted:github-token] here." in model.calls[0].user


def test_the_figures_are_true(bench: Bench) -> None:
    """S2.10, S2.16: counted again here, from the session's own file and the sidecar."""
    working(bench)
    text = "- Alerts go to a file.\n" * 20
    bench.scripted(text)
    found = bench.digest()
    speeches = spoken(bench.session.path)
    said = [at for at, one in enumerate(speeches) if one.role != "toolResult"]
    assert found["before"] == len(said)
    assert found["after"] == 11
    assert found["reduction"] == round(100 * (found["before"] - 11) / found["before"], 1)
    border = said[-10]
    covered = sum(map(estimate_tokens, speeches[:border]))
    recent = sum(map(estimate_tokens, speeches[border:]))
    summary = -(-len(found["segment"]["content"]) // 4)
    assert found["tokensBefore"] == covered + recent
    assert found["tokensAfter"] == summary + recent
    assert found["tokensSaved"] == covered - summary
    assert found["compression"] == round(summary / covered, 4)
    assert (found["targetCompression"], found["targetMet"]) == (0.3, summary / covered <= 0.3)
    assert found["files"] == ["/w/alerts.py"]
    assert found["decisions"] == ["We decided to write alerts to a file."]
    assert found["commands"] == ["deploy --token [redacted:github-token] CUSTOM-42"]
    assert found["topics"]


def test_lines_of_other_hands_stay(bench: Bench) -> None:
    """S0.38: unknown fields and unknown lines are kept where they are."""
    bench.session.talk(20)
    bench.metas.mkdir()
    bench.sidecar.write_text('{"note": "mine", "x": 1}\nno json\n')
    bench.models = [Extractive()]
    bench.digest()
    lines = bench.sidecar.read_text().splitlines()
    assert lines[:2] == ['{"note": "mine", "x": 1}', "no json"]
    assert len(lines) == 3
