"""A mistake in the configuration opens nothing that its user had closed (S0.26, S2.21)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexerd.errors import NotFoundError
from tests.e2e.world import Session, World, until

pytestmark = pytest.mark.faults

GOOD = '[privacy]\nexclude = ["/secret/**"]\n[redact]\nextra_patterns = ["CUSTOM-[0-9]+"]\n'


def check(world: World, open_id: str, closed_id: str) -> None:
    """The closed session is not there, and the pattern is redacted."""
    until(lambda: world.row(open_id), "the row")
    assert [one["sessionId"] for one in world.call("list")["sessions"]] == [open_id]
    with pytest.raises(NotFoundError):
        world.call("get", ref=closed_id)
    found = world.call("expand", text=f"@@{closed_id}: secret? @@{open_id}: which alerts?")
    text = json.dumps(found)
    assert "topsecret" not in text
    assert "CUSTOM-999" not in text
    assert "[redacted" in text


def furnished(root: Path) -> tuple[World, Session, Session]:
    """A home with a session that may be seen and one that may not, and room for a configuration."""
    world = World(root)
    world.install_pi()
    seen, hidden = world.session(1, cwd="/w"), world.session(cwd="/secret/x")
    hidden.turn("The topsecret plan, please.", "The topsecret answer.")
    seen.turn("Which alerts?", "CUSTOM-999 alerts.")
    world.config.parent.mkdir(parents=True)
    return world, seen, hidden


@pytest.mark.parametrize("broken", [f"{GOOD}\nbogus_key = 1\n", "[privacy\n", "log = 3\n"])
def test_exclusions_outlive_a_bad_configuration(tmp_path: Path, broken: str) -> None:
    """Unknown key, broken file, one without them: what held at the last good start holds (V3)."""
    world = World(tmp_path)
    world.install_pi()
    seen = world.session(cwd="/w")
    seen.turn("Send the alerts to CUSTOM-999, please.", "Alerts go to CUSTOM-999 now.")
    hidden = world.session(cwd="/secret/x")
    hidden.turn("The topsecret plan, please.", "The topsecret answer.")
    world.config.parent.mkdir(parents=True)
    world.config.write_text(GOOD)
    with world.daemon():
        check(world, seen.id, hidden.id)

    world.config.write_text(broken)
    with world.daemon():
        assert world.call("status")["state"] == "indexing-off"
        check(world, seen.id, hidden.id)


def test_a_first_start_beside_a_broken_file_answers_and_asks_no_model(tmp_path: Path) -> None:
    """S0.26: with no good configuration yet sessions can be looked up; nothing is indexed."""
    world, seen, _ = furnished(tmp_path)
    world.config.write_text(GOOD + "[log]\nlevel = 'loud'\n")
    with world.daemon():
        until(lambda: world.row(seen.id), "the row")
        told = world.call("status")
        assert told["state"] == "indexing-off"
        assert "log.level" in json.dumps(told["problems"])
        until(lambda: world.call("search", query="alerts")["hits"], "the text")


def test_a_pattern_that_is_refused_is_named(tmp_path: Path) -> None:
    """C2, X6: in `status`, with its place and the reason; the last good patterns hold."""
    world, seen, hidden = furnished(tmp_path)
    world.config.write_text(GOOD)
    with world.daemon():
        check(world, seen.id, hidden.id)
    world.config.write_text(GOOD.replace('[0-9]+"]', '[0-9]+", "(?<=x)y"]'))
    with world.daemon():
        assert "(?<=x)y" in json.dumps(world.call("status")["problems"])
        check(world, seen.id, hidden.id)
        page = tmp_path / "page.md"
        world.run("export", seen.id, "--redact", "--format", "md", "-o", str(page))
        assert "CUSTOM-999" not in page.read_text()
        assert "CUSTOM-999" not in str(world.run("show", seen.id, "--as-sent"))
