"""The configuration as the command line shows and checks it, and `make demo` as it is run."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.e2e.world import ROOT, World

FIVE = {
    "command_name": "index-session",
    "status_key": "index-session",
    "min_new_user_messages": 5,
    "notification_auto_clear_ms": 3000,
    "model_keys": ["google/gemini-3.5-flash-lite", "local/extractive"],
}


def test_the_five_fields_have_their_names_and_defaults(bare_world: World) -> None:
    """Without a file nothing is wrong, and each field has its default (S0.25)."""
    for name in ("INDEXERD_MODEL_KEYS", "INDEXERD_INDEX__QUIET_SECONDS"):
        del bare_world.env[name]
    shown = bare_world.run("config", "show", "--json")
    assert {name: shown[name]["value"] for name in FIVE} == FIVE
    assert {shown[name]["source"] for name in FIVE} == {"default"}
    assert bare_world.run("config", "check")


def test_every_wrong_key_is_named(bare_world: World) -> None:
    """Unknown keys, wrong types and ranges: each with its key (S0.25).

    A model key without a provider is one of them, and the hint says how one is written (S0.29).
    """
    bare_world.configure(
        'commandName = 5\nstatus_key = ""\nmin_new_user_messages = 0\nnonsense = 1\n'
        'notificationAutoClearMs = "3"\nmodelKeys = ["claude-haiku-4-5"]\n'
    )
    del bare_world.env["INDEXERD_MODEL_KEYS"]
    told = bare_world.run("config", "check", "--json", code=78)["error"]
    assert told["code"] == "config_invalid"
    problems = {one["key"]: one for one in told["problems"]}
    wrong = {*FIVE, "nonsense"} - {"model_keys"}
    assert problems.keys() == {*wrong, "model_keys.0"}
    assert problems["nonsense"]["message"] == "no such key"
    assert {one["file"] for one in problems.values()} == {str(bare_world.config)}
    assert "provider/model" in problems["model_keys.0"]["hint"]


def test_the_demo_says_where_the_meta_file_is() -> None:
    """By its whole path, so that it can be looked for at home."""
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 90}
    done = subprocess.run([sys.executable, "tests/demo.py"], check=True, **options)
    (home,) = re.findall(r"^A home with three pi sessions, in (/.+)$", done.stdout, re.MULTILINE)
    (found,) = re.findall(r"(/\S+/sessions-meta/\S+\.meta\.json)", done.stdout)
    session = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    meta = re.escape(f"{home}/.pi/agent/sessions-meta/")
    assert re.fullmatch(meta + session + re.escape(".meta.json"), found)
