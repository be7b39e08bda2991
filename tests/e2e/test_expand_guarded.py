"""What `expand` never lets through: secrets, words that are not the user's, others' meta files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexerd.references.inject import joined
from tests.e2e.expanding import CANARY, add, expand, statuses
from tests.e2e.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A home where pi was started once."""
    world = World(tmp_path)
    world.install_pi()
    return world


def test_option_a_is_not_taken_for_the_users_words(world: World) -> None:
    """S0.54: a session whose messages hold a block is named, summarised and found by its own."""
    valve = add(world, "Purple valve design")
    with world.daemon():
        asking = world.session()
        for turn in range(5):
            prompt = f"Step {turn}: mend the zinc gutter like @@{valve}"
            block = expand(world, prompt)["message"]["content"]
            asking.turn(joined(block, prompt))
        meta = world.wait_meta(asking.id)
        row = world.row(asking.id)
        sent = world.call("as_sent", ref=asking.id)["user"]
        hits = world.call("search", query='"lighthouse keeper"')["hits"]

    assert row["firstUserMessage"].startswith("Step 0: mend the zinc gutter")
    assert "zinc gutter" in meta["name"].lower()
    assert CANARY not in sent
    assert {one["sessionId"] for one in hits} == {valve}


def test_secrets_of_another_hand_are_redacted(world: World) -> None:
    """X5: a meta file that nobody redacted does not put its key into a prompt."""
    key = "sk-ant-api03-" + "Ab1" * 31 + "AA"
    valve = add(world, "Valve plan", summary=f"The key is {key} as ever.")
    with world.daemon():
        found = expand(world, f"@@{valve}")

    assert key not in found["message"]["content"]
    assert "[redacted" in found["message"]["content"]


GITHUB = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def test_no_half_of_a_secret_is_left(world: World) -> None:
    """X5: redacted before it is cut, and in the heading of an answer, too."""
    valve = add(
        world,
        "Valve " + "x" * 98 + " " + GITHUB,
        description="y" * 1180 + " " + GITHUB,
        summary="z" * 7980 + " " + GITHUB,
        tags=["t" * 70 + " " + GITHUB],
    )
    with world.daemon():
        found = expand(world, f"@@{valve}: where are the widgets adjusted?")

    assert len(found["messages"]) == 2
    assert "ghp_" not in json.dumps(found["messages"])


def test_a_session_cannot_hide_what_is_ours(world: World) -> None:
    """X10: marks of a secret, spread over fields, take no label of ours away."""
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    valve = add(world, begin, description=begin, summary=f"a\n{end}\nfree", tags=["x", end, "y"])
    with world.daemon():
        content = expand(world, f"@@{valve}")["message"]["content"]

    assert f" ({valve})\nsource: " in content
    assert "\ndescription: " in content
    assert "\nsummary:\n> a\n" in content
    assert "\ntags: x, " in content


def test_a_meta_file_of_another_session_is_none(world: World) -> None:
    """S0.38: whose summary it is says the id inside, not only the file's name."""
    valve, other = add(world, "Purple valve design"), add(world, "Lamp oil ledger")
    path = world.metas / f"{other}.meta.json"
    path.write_text((world.metas / f"{valve}.meta.json").read_text())
    with world.daemon():
        assert statuses(expand(world, f"@@{other}")) == {f"@@{other}": "invalid_meta"}
