"""Commands for setup: configuration, doctor, service, completion and logs."""

import json
import re
import signal
import subprocess
from pathlib import Path

import click
import pytest

from indexerd.cli import completion
from indexerd.cli.main import cli
from tests.cli.home import INDEXERD, Home, nowhere
from tests.e2e.world import World, until
from tests.fakes.openai_server import OpenAIServer

FIVE = {
    "command_name": "index-session",
    "status_key": "index-session",
    "min_new_user_messages": 5,
    "notification_auto_clear_ms": 3000,
    "model_keys": ["google/gemini-3.5-flash-lite", "local/extractive"],
}


def test_config_show_says_where_each_value_came_from(tmp_path: Path) -> None:
    """S0.25: without a file, each of the five fields has its default."""
    world = World(tmp_path)
    for name in ("INDEXERD_MODEL_KEYS", "INDEXERD_INDEX__QUIET_SECONDS"):
        del world.env[name]
    shown = world.run("config", "show", "--json")
    defaults = {name: {"value": value, "source": "default"} for name, value in FIVE.items()}
    assert {name: shown[name] for name in FIVE} == defaults
    world.configure("statusKey = 'x'\n[index]\nquietSeconds = 9\n[budget]\ndaily_calls = 25\n")
    world.env["INDEXERD_INDEX__QUIET_SECONDS"] = "7"
    shown, path = world.run("config", "show", "--json"), str(world.config)
    assert shown["status_key"] == {"value": "x", "source": path}
    assert shown["budget.daily_calls"] == {"value": 25, "source": path}
    seven = {"value": 7, "source": "INDEXERD_INDEX__QUIET_SECONDS"}
    assert shown["index.quiet_seconds"] == seven
    assert shown["log.level"] == {"value": "info", "source": "default"}
    rows = [line.split("\t") for line in world.run("config", "show").splitlines()]
    assert ["budget.daily_calls", "25", path] in rows
    assert len(shown) == len(rows)
    assert world.run("config", "path", "--json") == {"path": path, "exists": True}
    assert world.run("config", "check") == "the configuration is valid\n"


def test_doctor_names_problems_and_remedies(home: Home, tmp_path: Path) -> None:
    checks = {check["name"]: check for check in home.json("doctor")["checks"]}
    assert checks["daemon"]["state"] == checks["pi"]["state"] == "ok"
    assert checks["pi"]["found"].startswith("10 files in ")
    assert "sends redacted transcripts" in checks["model"]["found"]
    bad = tmp_path / "bad.toml"
    bad.write_text("nonsense = 1")
    env = nowhere(home) | {"INDEXERD_CONFIG": str(bad), "PI_CODING_AGENT_DIR": "/nowhere"}
    done = home.ix("doctor", env=env)
    assert done.returncode == 1
    pi = "ok    pi: no sessions; /nowhere"
    for line in ("bad   configuration: .*nonsense", "note  daemon: ", pi):
        assert re.search(f"^{line}", done.stdout, re.MULTILINE), line


def test_doctor_says_whether_a_server_on_this_machine_answers(tmp_path: Path) -> None:
    world = World(tmp_path)
    with OpenAIServer() as server:
        world.openai(server)
        assert "\nok    model: openai/gpt-test (sends " in world.run("doctor")
    found = world.run("doctor", code=1)
    assert f"\nbad   model: openai/gpt-test (no server answers on {server.url}: " in found


def test_an_agents_missing_directories_are_no_trouble(tmp_path: Path) -> None:
    """A Claude user has no ~/.config/claude, and mostly no other agent; a set root must exist."""
    world = World(tmp_path)
    (world.root / "home/.claude/projects").mkdir(parents=True)
    with world.daemon():
        assert "home" not in world.run("status").replace(str(world.socket), "")
        found = world.run("doctor")
    assert "note" not in found.replace("note  daemon", "")
    assert found.count("\nok    claude: ") == 1
    assert re.search("^ok    codex: no sessions; .* does not exist$", found, re.MULTILINE)
    world.configure('[agents.codex]\nroots = ["/no/codex"]\n')
    assert "note  codex: /no/codex/sessions does not exist" in world.run("doctor")


def test_doctor_continues_after_a_failed_check(home: Home) -> None:
    odd = "/" + "x" * 300
    for env, name in (
        ({"INDEXERD_STATE_DIR": odd}, "state"),
        ({"INDEXERD_SOCKET": f"{odd}/s"}, "socket"),
        ({"PI_CODING_AGENT_DIR": odd}, "pi"),
    ):
        checks = home.json("doctor", env=env, code=1)["checks"]
        bad = {check["name"]: check["found"] for check in checks if check["state"] == "bad"}
        assert bad[name].endswith("File name too long")
        assert {"claude", "model", "daemon"} <= {check["name"] for check in checks}


def test_completion_knows_the_commands(home: Home) -> None:
    script = home.ix("completion", "bash").stdout
    assert home.json("completion", "bash") == {"shell": "bash", "script": script.removesuffix("\n")}
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "_INDEXERD_COMPLETE" in script
    asked = {"_INDEXERD_COMPLETE": "bash_complete", "COMP_WORDS": "indexerd re", "COMP_CWORD": "1"}
    known = ["plain,resolve", "plain,resume", "plain,resume-context", "plain,rename"]
    known.append("plain,restore")
    assert set(home.ix(env=asked).stdout.split()) == set(known)
    asked |= {"COMP_WORDS": "indexerd show tune", "COMP_CWORD": "2"}
    assert home.ix(env=asked).stdout == "plain,tune-the-retry-loop\n"
    assert home.json("resolve", "tune-the-retry-loop")["how"] == "name"
    asked["COMP_WORDS"] = "indexerd show depl"
    assert home.ix(env=asked, cwd=home.other).stdout == "plain,deploy\n"  # of two sessions
    assert all(twin.id in home.ix("show", "deploy").stderr for twin in home.twins)
    assert "Did you mean 'list'?" in home.ix("lst").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_without_click_writes_what_click_would(home: Home, shell: str) -> None:
    """Of sessions after a command; an option before it has click do the same."""
    at = {"fish": ("tune", "tune")}.get(shell, ("2", "3"))
    asked = {"_INDEXERD_COMPLETE": f"{shell}_complete"}
    quick = home.ix(env=asked | {"COMP_WORDS": "indexerd show tune", "COMP_CWORD": at[0]})
    click = home.ix(env=asked | {"COMP_WORDS": "indexerd --json show tune", "COMP_CWORD": at[1]})
    assert quick.stdout == click.stdout
    assert "tune-the-retry-loop" in quick.stdout


def test_completion_knows_the_commands_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """All whose first argument click completes as a session, and no others."""
    monkeypatch.setattr(completion, "sessions", lambda _begun: [("one", "")])
    context, known = click.Context(cli), set[str]()
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        params = command.params if command else []
        first = next((each for each in params if isinstance(each, click.Argument)), None)
        if first and [item.value for item in first.shell_complete(context, "")] == ["one"]:
            known.add(name)
    assert known == completion.COMMANDS


def test_completion_stays_in_the_project_if_it_has_a_match(world: World, tmp_path: Path) -> None:
    """S0.59, S0.68: sessions elsewhere are offered only where nothing here fits."""
    for name in ("Please fix the parser", "Fix the parrot"):
        place = tmp_path / ("here" if name.startswith("Please") else "other")
        place.mkdir()
        world.session(cwd=str(place)).turn(name)
    world.run("run", "--once")
    for prefix, name in (("fix", "Please fix the parser"), ("fix the parr", "Fix the parrot")):
        items = world.run("complete", prefix, "--json", cwd=tmp_path / "here")["items"]
        assert [item["name"] for item in items] == [name]


def test_run_once_prints_a_report(world: World) -> None:
    first = world.session(turns=5)
    world.session(turns=1)
    assert world.run("run", "--once") == f"{first.id}\tnamed\tlocal/extractive\n"
    assert world.stderr == "2 sessions, 1 named, 1 with fewer than 5 new prompts\n"
    second = world.session(turns=5)
    report = {"sessions": 3, "indexed": [second.id], "digested": []}
    report |= {"skipped": 2, "waiting": {"below_threshold": 2}, "unreadable": 0, "failed": []}
    assert world.run("run", "--once", "--json") == report
    world.run("run", "--once")
    named, few = "2 named before", "1 with fewer than 5 new prompts"
    assert world.stderr == f"3 sessions, 0 named, {named}, {few}\n"
    assert re.search(r"^ok    pi: 3 files in ", world.run("doctor"), re.MULTILINE)
    odd = first.path.read_text().replace(first.id, "../odd")
    first.path.with_name("2026-11-20_odd.jsonl").write_text(odd)
    world.run("run", "--once")
    assert world.stderr.endswith(", 1 file cannot be read (see `indexerd doctor`)\n")


def test_run_once_reports_what_waits_for_a_model(world: World) -> None:
    world.session(turns=5)
    world.env["INDEXERD_MODEL_KEYS"] = '["google/absent"]'
    world.run("run", "--once")
    assert world.stderr.startswith("1 session, 0 named, 1 without a usable model")


def test_logs_are_shown_by_level_and_number_and_followed(home: Home, tmp_path: Path) -> None:
    """Over a rotation, until it is interrupted; an incomplete line is not shown."""
    path, seen = tmp_path / "log.jsonl", tmp_path / "seen"
    env = {"INDEXERD_STATE_DIR": str(tmp_path)}

    def write(*numbers: int, level: str = "info") -> None:
        line = {"ts": "2026-11-21T00:00:00.000Z", "level": level, "event": "x.y"}
        with path.open("a") as file:
            file.writelines(json.dumps(line | {"n": number}) + "\n" for number in numbers)

    def numbers(text: str) -> list[int]:
        return [json.loads(line)["n"] for line in text.splitlines()]

    assert home.ix("logs", env=env).stdout == ""
    write(1)
    write(2, level="error")
    path.rename(tmp_path / "log.jsonl.1")
    write(3, 4)
    with path.open("a") as file:
        file.write('{"n": 5')
    shown = home.ix("logs", "-n", "3", env=env).stdout.splitlines()
    assert shown[0] == "2026-11-21T00:00:00.000Z error   x.y n=2"
    assert [line[-3:] for line in shown] == ["n=2", "n=3", "n=4"]
    assert numbers(home.ix("--json", "logs", "--level", "warning", env=env).stdout) == [2]
    path.write_text("")
    write(5)
    with seen.open("w") as out:
        argv = [*INDEXERD, "--json", "logs", "-f"]
        process = subprocess.Popen(argv, env=home.world.env | env, stdout=out)
        try:
            until(lambda: numbers(seen.read_text())[-1:] == [5], "the first lines")
            write(6)
            path.rename(tmp_path / "log.jsonl.1")
            write(7)
            until(lambda: numbers(seen.read_text())[-2:] == [6, 7], "the lines around a rotation")
            write(8, 9)
            until(lambda: numbers(seen.read_text())[-4:] == [6, 7, 8, 9], "more lines")
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        finally:
            process.kill()
            process.wait()
