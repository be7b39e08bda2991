"""A mistake in the configuration opens nothing that its user had closed (S0.26, S2.21)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexerd.errors import NotFoundError
from indexerd.privacy import kept
from indexerd.settings import Privacy, Redact
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


def test_a_first_start_goes_by_what_is_sound(tmp_path: Path) -> None:
    """With nothing kept yet, tables without a mistake in them hold."""
    world, seen, hidden = furnished(tmp_path)
    world.config.write_text(GOOD + "[index]\nquiet_seconds = 'soon'\n")
    with world.daemon():
        check(world, seen.id, hidden.id)


@pytest.mark.parametrize("place", ["variables", "file"])
def test_a_first_start_beside_a_broken_file_opens_nothing(tmp_path: Path, place: str) -> None:
    """Nothing is kept yet and the file cannot be read: variables hold, and whole tables of it."""
    world, seen, hidden = furnished(tmp_path)
    if place == "variables":
        world.env["INDEXERD_PRIVACY__EXCLUDE"] = '["/secret/**"]'
        world.env["INDEXERD_REDACT__EXTRA_PATTERNS"] = '["CUSTOM-[0-9]+"]'
    world.config.write_text((GOOD if place == "file" else "") + "[log\n")
    with world.daemon():
        assert world.call("status")["state"] == "indexing-off"
        check(world, seen.id, hidden.id)


@pytest.mark.parametrize("broken", ["[privacy\n", "[redact]\nextra_patterns = ['(a|a)*b']\n"])
def test_what_is_kept_is_judged_piece_by_piece(tmp_path: Path, broken: str) -> None:
    """S2.21: a kept pattern that is refused today takes no exclusion with it, and no sound one."""
    world, seen, hidden = furnished(tmp_path)
    world.config.write_text(broken)
    world.state.mkdir(parents=True)
    held = {
        "privacy": {"exclude": ["/secret/**", 3]},
        "redact": {"enabled": True, "extra_patterns": ["(a+)+b", "CUSTOM-[0-9]+", None]},
    }
    (world.state / kept.NAME).write_text(json.dumps(held))
    with world.daemon():
        assert world.call("status")["state"] == "indexing-off"
        check(world, seen.id, hidden.id)
        assert not world.call("search", query="topsecret")["hits"]


def test_a_refused_pattern_takes_no_sound_one_with_it(tmp_path: Path) -> None:
    """S2.21: with nothing kept, the sound ones of its list hold: in exports, too."""
    world, seen, hidden = furnished(tmp_path)
    world.config.write_text(GOOD.replace('[0-9]+"]', '[0-9]+", "(a|a)*b"]'))
    with world.daemon():
        assert "(a|a)*b" in json.dumps(world.call("status")["problems"])
        check(world, seen.id, hidden.id)
        page = tmp_path / "page.md"
        world.run("export", seen.id, "--redact", "--format", "md", "-o", str(page))
        assert "CUSTOM-999" not in page.read_text()
        assert "CUSTOM-999" not in str(world.run("show", seen.id, "--as-sent"))


@pytest.mark.parametrize("held", [b"", b"{", b"[]", b'{"privacy": 3}', b'{"redact": {}}'])
def test_a_damaged_note_counts_as_none(tmp_path: Path, held: bytes) -> None:
    """V6: a good configuration writes it anew, and never with more rights than 0600."""
    (tmp_path / kept.NAME).write_bytes(held)
    assert kept.load(tmp_path) is None

    wanted = Privacy(exclude=["/a"]), Redact(extra_patterns=["x"])
    assert kept.keep(tmp_path, *wanted)
    assert kept.load(tmp_path) == wanted
    assert (tmp_path / kept.NAME).stat().st_mode & 0o777 == 0o600
    assert not kept.keep(tmp_path / "nowhere", *wanted)
