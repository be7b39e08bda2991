"""`config show` and `config check`, and the output of `make demo`."""

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
    """Without a file each field has its default, and `config check` passes (S0.25)."""
    for name in ("INDEXERD_MODEL_KEYS", "INDEXERD_INDEX__QUIET_SECONDS"):
        del bare_world.env[name]
    shown = bare_world.run("config", "show", "--json")
    assert {name: shown[name]["value"] for name in FIVE} == FIVE
    assert {shown[name]["source"] for name in FIVE} == {"default"}
    assert bare_world.run("config", "check")


def test_every_wrong_key_is_named(bare_world: World) -> None:
    """S0.25, S0.29: each problem is reported with its key, and with a hint for model keys."""
    bare_world.configure(
        'commandName = 5\nstatus_key = ""\nmin_new_user_messages = 0\nnonsense = 1\n'
        'notificationAutoClearMs = "3"\nmodelKeys = ["claude-haiku-4-5"]\n'
    )
    del bare_world.env["INDEXERD_MODEL_KEYS"]
    error = bare_world.run("config", "check", "--json", code=78)["error"]
    assert error["code"] == "config_invalid"
    problems = {problem["key"]: problem for problem in error["problems"]}
    wrong = {*FIVE, "nonsense"} - {"model_keys"}
    assert problems.keys() == {*wrong, "model_keys.0"}
    assert problems["nonsense"]["message"] == "no such key"
    assert {problem["file"] for problem in problems.values()} == {str(bare_world.config)}
    assert "provider/model" in problems["model_keys.0"]["hint"]


def test_the_demo_prints_the_path_of_the_meta_file() -> None:
    """`make demo` prints the whole path, so that a reader can open the file."""
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 90}
    done = subprocess.run([sys.executable, "tests/demo.py"], check=True, **options)
    (home,) = re.findall(
        r"^A home directory with three pi sessions: (/.+)$", done.stdout, re.MULTILINE
    )
    (found,) = re.findall(r"(/\S+/sessions-meta/\S+\.meta\.json)", done.stdout)
    session = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    meta = re.escape(f"{home}/.pi/agent/sessions-meta/")
    assert re.fullmatch(meta + session + re.escape(".meta.json"), found)
