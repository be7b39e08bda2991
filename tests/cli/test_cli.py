"""The command line against interfaces.md 4, with real processes and one daemon."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.home import DAY, INDEXERD, SECRET, Home, ids, nowhere
from tests.e2e.world import World, until

ERROR_KEYS = {"code", "message", "hint", "retryable"}


def failed(home: Home, *argv: str, code: int, **options: Any) -> dict[str, Any]:
    """Run a command that fails, in both forms, which must keep the rules; return the error."""
    error: dict[str, Any] = home.json(*argv, code=code, **options)["error"]
    assert error.keys() - {"candidates", "problems"} == ERROR_KEYS
    plain = home.ix(*argv, **options)
    assert (plain.returncode, plain.stdout) == (code, ""), "all of an error goes to stderr"
    assert "Traceback" not in plain.stderr
    assert error["message"].split(": ")[-1] in plain.stderr
    return error


# -- --json prints exactly the socket's result ---------------------------------------------------

EVEN = {"cwd": "/nowhere"}
SAME: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "list": (["list", "--all"], "list", {}),
    "list, filtered": (
        ["list", "--cwd", "/w", "--agent", "pi", "--limit", "2", "--archived"],
        "list",
        {"cwd": "/w", "agent": "pi", "limit": 2, "archived": True},
    ),
    "show": (["show", "forecast"], "get", {"ref": "forecast"}),
    "resolve": (["resolve", "forecast"], "resolve", {"ref": "forecast"}),
    "complete": (["complete", "d"], "complete", {"prefix": "d"}),
    "search": (["search", "expiry", "--limit", "3"], "search", {"query": "expiry", "limit": 3}),
    "index": (["index", "c0ffee02"], "index", {"ref": "c0ffee02"}),
    "a dry run": (["index", "--all", "--dry-run"], "index", {"all": True, "dryRun": True}),
    "as sent": (["show", "c0ffee01", "--as-sent"], "as_sent", {"ref": "c0ffee01"}),
}


def even(found: Any) -> Any:
    """A result without what changes from one call to the next."""
    text = re.sub(r"\[(begin|end) [0-9a-f]+\]", "[]", json.dumps(found))
    return json.loads(text)


@pytest.mark.parametrize("name", SAME)
def test_json_is_the_sockets_result(home: Home, name: str) -> None:
    """One document, equal to the method's result."""
    argv, method, params = SAME[name]
    assert even(home.world.call(method, **params)) == even(home.json(*argv))


def test_json_may_be_asked_for_anywhere(home: Home) -> None:
    """--json before the command's name, after it, after its arguments; not behind `--`."""
    expected = home.world.call("resolve", ref="tune")
    for argv in ("--json resolve tune", "resolve --json tune", "resolve tune --all --json"):
        done = home.ix(*argv.split())
        assert (expected, "") == (json.loads(done.stdout), done.stderr)
    literally = home.ix("resolve", "--", "--json")
    assert (literally.returncode, literally.stdout) == (3, "")


def test_status_says_how_the_daemon_is(home: Home) -> None:
    """The fields of the contract; the plain form shows the same for people."""
    found = home.json("status")
    told = home.world.call("status")
    keys = {"state", "sessions", "queued", "indexing", "lastScanAt", "budget", "watches"}
    assert found.keys() == told.keys() >= keys | {"problems"}
    assert (told["state"], 10) == (found["state"], found["sessions"])

    plain = home.ix("status").stdout
    assert re.search(r"^state +ok$", plain, re.MULTILINE)
    assert re.search(r"^models +scripted/test$", plain, re.MULTILINE)


def test_data_goes_to_stdout_and_all_else_to_stderr(home: Home) -> None:
    """A note beside an answer never mixes with it."""
    nothing = home.ix("search", "zebra")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "nothing found\n")
    empty = home.ix("list", cwd=home.world.sessions)
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "--all" in empty.stderr


# -- list ----------------------------------------------------------------------------------------


def test_list_shows_the_current_project_newest_first(home: Home) -> None:
    """The directory of the command and below; with --cwd another one; with --all every one."""
    shop = [home.cache.id, home.retry.id, home.old.id]
    assert shop == ids(home.json("list", cwd=home.shop)["sessions"])
    assert [home.retry.id] == ids(home.json("list", cwd=home.api)["sessions"])
    assert shop == ids(home.json("list", "--cwd", "../shop", cwd=home.other)["sessions"])
    everything = ids(home.json("list", "--all", cwd=home.api)["sessions"])
    assert everything[:2] == shop[:2]
    assert everything[-1] == home.old.id
    assert len(everything) == 10


def test_list_shows_what_is_gone_only_when_asked(home: Home) -> None:
    """--archived adds sessions whose file is gone, at their place in the order."""
    with_gone = home.json("list", "--archived", cwd=home.shop)["sessions"]
    assert [home.cache.id, home.retry.id, home.gone.id, home.old.id] == ids(with_gone)
    plain = home.ix("list", "--archived", cwd=home.shop).stdout.splitlines()
    assert "\t(gone) A short-lived session\t" in plain[2]


def test_list_takes_an_agent_a_time_and_a_limit(home: Home) -> None:
    """--agent, --since as age, date or time, --limit."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 2.5 * DAY))
    for since in ("60h", moment):
        found = home.json("list", "--all", "--since", since)
        assert [home.cache.id, home.retry.id] == ids(found["sessions"]), since
    assert len(home.json("list", "--all", "--since", "3w")["sessions"]) == 9
    assert home.json("list", "--all", "--agent", "codex")["sessions"] == []
    first = home.json("list", "--all", "--limit", "1")
    assert [home.cache.id] == ids(first["sessions"])
    assert "nextCursor" in first


def test_plain_lists_have_one_row_a_line(home: Home) -> None:
    """Columns are separated by tabs where no terminal reads: id, age, agent, asks, name, cwd."""
    rows = [line.split("\t") for line in home.ix("list", cwd=home.shop).stdout.splitlines()]
    assert [
        [home.cache.id, "1d ago", "pi", "5", "Design the forecast cache", str(home.shop)],
        [home.retry.id, "2d ago", "pi", "1", "Tune the retry loop", str(home.api)],
        [home.old.id, "1y ago", "pi", "1", "From another year", str(home.shop)],
    ] == rows


# -- references ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "how"),
    [
        ("c0ffee01-0000-4000-8000-000000000000", "id"),
        ("c0ffee01", "prefix"),
        ("DESIGN THE FORECAST CACHE", "name"),
        ("forecast-cache", "fuzzy"),
    ],
)
def test_a_session_is_found_by_any_reference(home: Home, ref: str, how: str) -> None:
    """Id, unique prefix, name in any case, or nearly a name; the plain form is two columns."""
    found = home.json("resolve", ref)
    assert (home.cache.id, how) == (found["sessionId"], found["how"])


def test_a_session_is_shown(home: Home) -> None:
    """In two columns by `resolve`; with its description, facts and summary by `show`."""
    found = home.ix("resolve", "forecast").stdout
    assert found == f"{home.cache.id}\tDesign the forecast cache\n"
    shown = home.ix("show", "forecast").stdout
    assert shown.startswith("Design the forecast cache\nIt was done.\n\nsession ")
    assert re.search(r"^messages +10, 5 of them yours$", shown, re.MULTILINE)
    assert shown.endswith("\n\n## Goal\n- All of it.\n")


@pytest.mark.parametrize("command", [["resolve"], ["show"], ["index"], ["show", "--as-sent"]])
def test_what_fits_several_is_an_error_with_candidates(home: Home, command: list[str]) -> None:
    """Never a guess: exit code 3, the candidates in both forms."""
    error = home.json(*command, "deploy", code=3)["error"]
    assert (error["code"], error["retryable"]) == ("ambiguous_reference", False)
    assert {one.id for one in home.twins} == set(ids(error["candidates"]))
    told = home.ix(*command, "deploy")
    assert (told.returncode, told.stdout) == (3, "")
    assert all(f"  {one.id}  Deploy\n" in told.stderr for one in home.twins)


def test_a_prefix_is_unique_or_ambiguous(home: Home) -> None:
    """interfaces.md §4: wherever one stands; the nearest project's session is named first."""
    for where in (home.shop, home.api):
        home.json("resolve", "c0ffee", code=3, cwd=where)
    error = home.json("resolve", "c0ffee", "--cwd", "../shop/api", cwd=home.other, code=3)["error"]
    assert ids(error["candidates"])[0] == home.retry.id
    assert home.retry.id == home.json("resolve", "c0ffee02", cwd=home.other)["sessionId"]


def test_complete_offers_sessions_to_insert(home: Home) -> None:
    """S0.59: newest first, an age, and what to insert; the nearest project's sessions first."""
    items = home.json("complete", cwd=home.shop)["items"]
    assert [home.cache.id, home.retry.id, home.old.id] == ids(items)
    assert items[0] == {
        "sessionId": home.cache.id,
        "label": "Design the forecast cache",
        "age": "1d",
        "named": True,
        "insert": f"@@{home.cache.id} ",
    }
    plain = home.ix("complete", "tune", cwd=home.shop).stdout
    assert plain == f"@@{home.retry.id}\tTune the retry loop\t2d\n"
    assert home.ix("complete", "zebra").stdout == ""


def test_search_finds_names_and_messages(home: Home) -> None:
    """Full text; a phrase, a pattern; the filters of the contract."""
    hits = home.json("search", '"expiry time"')["hits"]
    assert [(home.cache.id, "message")] == [(one["sessionId"], one["field"]) for one in hits]
    assert "«expiry" in home.ix("search", '"expiry time"').stdout.splitlines()[1]
    assert home.retry.id in ids(home.json("search", "re:[Tt]une the .*loop")["hits"])
    for narrowed in (["--cwd", str(home.other)], ["--agent", "codex"], ["--since", "1h"]):
        assert home.json("search", "expiry", *narrowed)["hits"] == []
    here = home.json("search", "expiry", "--cwd", ".", cwd=home.shop)["hits"]
    assert {home.cache.id} == set(ids(here))


# -- what changes something ----------------------------------------------------------------------


def test_as_sent_is_the_prompt_without_secrets(home: Home) -> None:
    """S2.24: the system and the user part, redacted; nothing is sent."""
    before = len(home.world.calls())
    told = home.json("show", "c0ffee01", "--as-sent")
    assert (told["model"], told["leavesTheMachine"]) == ("scripted/test", True)
    assert SECRET not in told["user"]
    assert "[redacted:" in told["user"]
    plain = home.ix("show", "c0ffee01", "--as-sent").stdout
    assert even(f"{told['system']}\n\n{told['user']}\n") == even(plain)
    assert before == len(home.world.calls())


def test_index_says_what_it_did(home: Home) -> None:
    """below_threshold; queued; with --wait what it cost, or the failure and its exit code."""
    assert home.ix("index", home.retry.id).stdout == "below threshold\n"
    assert home.json("index", home.cache.id, "--force") == {"status": "queued"}
    found = home.json("index", home.evil.id, "--force", "--wait")
    assert found["status"] == "indexed"
    assert "costUsd" in found
    error = home.json("index", home.down.id, "--force", "--wait", code=75)["error"]
    assert (error["code"], error["retryable"]) == ("provider_unavailable", True)
    error = home.json("index", home.declined.id, "--force", "--wait", code=1)["error"]
    assert (error["code"], error["retryable"]) == ("model_unavailable", False)
    assert home.world.meta(home.down.id) is None


def test_the_older_commands_name_forces_a_run(home: Home) -> None:
    """S0.3, S0.30: the alias of `command_name` is `index --force`; other words are misuse."""
    assert home.json("index-session", home.evil.id, "--wait")["status"] == "indexed"
    env = {"INDEXERD_COMMAND_NAME": '"name-it"'}
    assert home.ix("name-it", home.evil.id, env=env).stdout == "queued\n"
    assert home.json("index-session", home.evil.id, env=env, code=2)["error"]["code"] == "usage"


def test_a_dry_run_counts_and_sends_nothing(home: Home) -> None:
    """`index --all --dry-run` says sessions, tokens and price; without it they are indexed."""

    def calls() -> int:
        return sum(one["rule"] in (None, 4) for one in home.world.calls())

    before = calls()
    found = home.json("index", "--all", "--dry-run")
    assert (found["sessions"], found["model"]) == (1, "scripted/test")
    assert found["inputTokens"] > 500
    assert found["costUsd"] > 0
    plain = home.ix("index", "--all", "--dry-run").stdout
    assert plain.startswith("1 sessions, about ")
    assert plain.endswith("nothing was sent\n")
    assert (before, None) == (calls(), home.world.meta(home.due.id))

    assert home.ix("index", "--all").stdout == "1 sessions queued\n"
    home.world.wait_meta(home.due.id)
    assert home.json("index", "--all", "--dry-run")["sessions"] == 0


def test_a_title_of_your_own_wins_until_it_is_taken_back(home: Home) -> None:
    """`rename`: in the sidecar, as one clean line; an empty title clears it."""
    named = home.json("rename", home.pet.id, "  Polly's\x1b[31m diet\n")
    assert (named["name"], named["nameSource"]) == ("Polly's diet", "user")
    assert home.json("resolve", "polly's diet")["sessionId"] == home.pet.id
    assert home.ix("rename", home.pet.id, "Diet").stdout == f"{home.pet.id}\tDiet\n"
    sidecar = json.loads((home.world.metas / f"{home.pet.id}.user.json").read_text())
    assert sidecar["title"] == "Diet"
    assert home.json("rename", home.pet.id, "")["nameSource"] == "first-message"


# -- errors and exit codes -----------------------------------------------------------------------

MISUSED = [
    ["nonsense"],
    ["list", "--limit", "0"],
    ["list", "--since", "yesterday"],
    ["list", "--cursor", "x"],
    ["resolve"],
    ["resolve", ""],
    ["index"],
    ["index", "x", "--all"],
    ["logs", "--level", "loud"],
]


@pytest.mark.parametrize("argv", MISUSED, ids=" ".join)
def test_misuse_ends_with_2(home: Home, argv: list[str]) -> None:
    """A usage error."""
    assert home.json(*argv, code=2)["error"]["code"] == "usage"


def test_misuse_is_explained(home: Home) -> None:
    """On stderr; without any argument the help is, and with --help on stdout."""
    failed(home, "list", "--limit", "0", code=2)
    bare = home.ix()
    assert (bare.returncode, bare.stdout) == (2, "")
    assert "  resolve " in bare.stderr
    asked = home.ix("-h")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "130 interrupted" in asked.stdout


def test_what_is_not_there_ends_with_3(home: Home) -> None:
    """not_found, for every command with a reference."""
    for argv in (["show", "zebra"], ["index", "zebra"], ["rename", "zebra", "x"]):
        assert home.json(*argv, code=3)["error"]["code"] == "not_found"
    assert failed(home, "resolve", "zebra", code=3)["code"] == "not_found"


def test_without_a_daemon_reads_work_and_the_rest_ends_with_69(home: Home) -> None:
    """Read commands answer from what is stored, the same, and say so on stderr alone."""
    env = nowhere(home)
    reads: list[tuple[list[str], str, dict[str, Any]]] = [
        (["list", "--all"], "list", {}),
        (["show", "c0ffee02"], "get", {"ref": "c0ffee02"}),
        (["resolve", "tune"], "resolve", {"ref": "tune"}),
        (["complete", "tune"], "complete", {"prefix": "tune"}),
        (["search", "tuned"], "search", {"query": "tuned"}),
    ]
    for argv, method, params in reads:
        alone = home.ix(*argv, "--json", env=env)
        assert home.world.call(method, **params) == json.loads(alone.stdout), argv
        assert (alone.returncode, "no daemon runs" in alone.stderr) == (0, True)
    assert failed(home, "status", code=69, env=env)["code"] == "daemon_down"
    for argv in (["index", "x"], ["rename", "x", "y"]):
        assert home.json(*argv, code=69, env=env)["error"]["retryable"] is True


def test_a_home_in_which_nothing_happened_yet(tmp_path: Path) -> None:
    """Before the first start: empty answers, a word on what to do, and nothing is created."""
    world = World(tmp_path)
    assert world.run("list", "--all", "--json") == {"sessions": []}
    assert "nothing is stored yet" in world.stderr
    assert world.run("resolve", "zebra", "--json", code=3)["error"]["code"] == "not_found"
    assert world.run("logs") == ""
    assert not world.state.exists()


def test_a_second_daemon_ends_with_75(home: Home) -> None:
    """A11, S0.41: the holder is named, and goes on."""
    pid = home.world.call("hello")["pid"]
    error = failed(home, "run", code=75)
    assert error["code"] == "already_running"
    assert str(pid) in error["message"]
    assert pid == home.world.call("hello")["pid"]


def test_a_place_that_is_denied_ends_with_77(home: Home, tmp_path: Path) -> None:
    """permission, with the path that is meant."""
    (tmp_path / "file").touch()
    env = {"INDEXERD_STATE_DIR": str(tmp_path / "file/state")}
    error = failed(home, "run", "--once", code=77, env=env)
    assert error["code"] == "permission"
    assert str(tmp_path / "file") in error["message"]


def test_a_bad_configuration_ends_with_78(home: Home, tmp_path: Path) -> None:
    """`config check` lists every problem with file, key and hint; lookups go on (V3, C2)."""
    path = tmp_path / "bad.toml"
    path.write_text('min_new_user_messages = "five"\n[watch]\nmode = "psychic"\nnonsense = 1\n')
    error = home.json("--config", str(path), "config", "check", code=78)["error"]
    assert error["code"] == "config_invalid"
    keys = {"min_new_user_messages", "watch.mode", "watch.nonsense"}
    assert keys == {one["key"] for one in error["problems"]}
    told = home.ix("config", "check", env={"INDEXERD_CONFIG": str(path)})
    assert (told.returncode, told.stdout) == (78, "")
    assert all(f"{path}: {key}: " in told.stderr for key in keys)
    assert told.stderr.count("hint: ") >= 3
    assert home.json("--config", str(path), "resolve", "tune")["sessionId"] == home.retry.id
    missing = home.json("--config", str(tmp_path / "none"), "config", "check", code=78)
    assert "no such file" in missing["error"]["message"]


# -- set-up --------------------------------------------------------------------------------------


def test_config_show_says_where_each_value_came_from(home: Home, tmp_path: Path) -> None:
    """Default, file (in either spelling), variable; `config path` names the file."""
    path = tmp_path / "mine.toml"
    path.write_text("statusKey = 'x'\n[index]\nquietSeconds = 9\n[budget]\ndaily_calls = 25\n")
    env = {"INDEXERD_CONFIG": str(path), "INDEXERD_INDEX__QUIET_SECONDS": "7"}
    shown = home.json("config", "show", env=env)
    assert shown["status_key"] == {"value": "x", "source": str(path)}
    assert shown["budget.daily_calls"] == {"value": 25, "source": str(path)}
    seven = {"value": 7, "source": "INDEXERD_INDEX__QUIET_SECONDS"}
    assert shown["index.quiet_seconds"] == seven
    assert shown["log.level"] == {"value": "info", "source": "default"}
    rows = [line.split("\t") for line in home.ix("config", "show", env=env).stdout.splitlines()]
    assert ["budget.daily_calls", "25", str(path)] in rows
    assert len(shown) == len(rows)
    assert home.json("config", "path", env=env) == {"path": str(path), "exists": True}
    assert home.ix("config", "check", env=env).stdout == "the configuration is sound\n"


def test_doctor_names_what_is_wrong_and_what_to_mend(home: Home, tmp_path: Path) -> None:
    """0 while only notes are to be made, 1 when something is bad."""
    checks = {one["name"]: one for one in home.json("doctor")["checks"]}
    assert {one["state"] for one in checks.values()} == {"ok"}
    assert "10 sessions in " in checks["pi"]["found"]
    assert "sends redacted transcripts" in checks["model"]["found"]
    bad = tmp_path / "bad.toml"
    bad.write_text("nonsense = 1")
    env = nowhere(home) | {"INDEXERD_CONFIG": str(bad), "PI_CODING_AGENT_DIR": "/nowhere"}
    done = home.ix("doctor", env=env)
    assert done.returncode == 1
    for line in (r"bad   configuration: .*nonsense", r"note  daemon: ", r"note  pi: /nowhere"):
        assert re.search(f"^{line}", done.stdout, re.MULTILINE), line


def test_doctor_goes_on_past_what_it_cannot_look_at(home: Home) -> None:
    """A path that the system refuses is a finding, and not the end of all others."""
    odd = "/" + "x" * 300
    for env, name in (
        ({"INDEXERD_STATE_DIR": odd}, "state"),
        ({"INDEXERD_SOCKET": f"{odd}/s"}, "socket"),
        ({"PI_CODING_AGENT_DIR": odd}, "pi"),
    ):
        checks = home.json("doctor", env=env, code=1)["checks"]
        bad = {one["name"]: one["found"] for one in checks if one["state"] == "bad"}
        assert bad[name].endswith("File name too long")
        assert {"python", "sqlite", "claude", "model", "daemon"} <= {one["name"] for one in checks}


def test_the_service_is_installed_and_removed(home: Home, tmp_path: Path) -> None:
    """Without a service manager: the file is written, 69 says that nothing runs."""
    program = tmp_path / "indexerd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": f"{tmp_path}/config", "PATH": str(tmp_path)}
    done = home.ix("service", "install", "--program", str(program), env=env)
    assert (done.returncode, "installed: ") == (69, done.stdout[:11])
    path = Path(done.stdout.splitlines()[0].removeprefix("installed: "))
    assert str(program) in path.read_text()
    assert done.stderr != "", "what is left to do is said"
    assert home.json("service", "status", env=env, code=69)["installed"] is True
    assert home.ix("service", "uninstall", env=env).returncode == 0
    assert not path.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_the_shell_takes(home: Home, shell: str) -> None:
    """It names indexerd; where the shell is installed, it parses the script."""
    script = home.ix("completion", shell).stdout
    assert "_INDEXERD_COMPLETE" in script
    assert re.search(r"\bindexerd\b", script)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_completion_knows_the_commands(home: Home) -> None:
    """What the script asks for at a tab."""
    asked = {"_INDEXERD_COMPLETE": "bash_complete", "COMP_WORDS": "indexerd re", "COMP_CWORD": "1"}
    known = ["plain,resolve", "plain,resume", "plain,resume-context", "plain,rename"]
    assert home.ix(env=asked).stdout.split() == known


def test_run_once_prints_a_report(tmp_path: Path) -> None:
    """`run --once`: a row for each session tried, the sum on stderr; --json as in the contract."""
    world = World(tmp_path)
    world.install_pi()
    first = world.session(turns=5)
    world.session(turns=1)
    assert world.run("run", "--once") == f"{first.id}\tindexed\tlocal/extractive\n"
    assert world.stderr == "2 sessions, 1 indexed, 1 not due, 0 failed\n"
    second = world.session(turns=5)
    report = {"sessions": 3, "indexed": [second.id], "digested": []}
    report |= {"skipped": 2, "failed": []}
    assert world.run("run", "--once", "--json") == report


# -- logs ----------------------------------------------------------------------------------------


class Log:
    """A log as the daemon writes and rotates it, in a state directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "log.jsonl"
        self.env = {"INDEXERD_STATE_DIR": str(directory)}

    def write(self, *numbers: int, level: str = "info") -> None:
        with self.path.open("a") as file:
            for number in numbers:
                line = {"ts": "2026-11-21T00:00:00.000Z", "level": level, "event": "x.y"}
                file.write(json.dumps(line | {"n": number}) + "\n")

    def rotate(self) -> None:
        self.path.rename(self.path.with_name("log.jsonl.1"))


def test_logs_are_shown_by_level_and_number(home: Home, tmp_path: Path) -> None:
    """The last lines, from the level up; the lines before a rotation are not forgotten."""
    log = Log(tmp_path)
    assert home.ix("logs", env=log.env).stdout == ""
    log.write(1)
    log.write(2, level="error")
    log.rotate()
    log.write(3, 4)
    with log.path.open("a") as file:
        file.write('{"n": 5')
    shown = home.ix("logs", "-n", "3", env=log.env).stdout.splitlines()
    assert shown[0] == "2026-11-21T00:00:00.000Z error   x.y n=2"
    assert [line[-3:] for line in shown] == ["n=2", "n=3", "n=4"]
    loud = home.ix("--json", "logs", "--level", "warning", env=log.env).stdout.splitlines()
    assert [json.loads(line)["n"] for line in loud] == [2]


def test_logs_are_followed_over_a_rotation_until_interrupted(home: Home, tmp_path: Path) -> None:
    """`logs -f` loses no line, not even the last before a rotation; SIGINT ends it with 130."""
    log = Log(tmp_path)
    log.write(0)
    seen = tmp_path / "seen"

    def numbers() -> list[int]:
        return [json.loads(line)["n"] for line in seen.read_text().splitlines()]

    with seen.open("w") as out:
        argv = [*INDEXERD, "--json", "logs", "-f"]
        process = subprocess.Popen(argv, env=home.world.env | log.env, stdout=out)
        try:
            until(lambda: numbers() == [0], "the first line")
            log.write(1)
            log.rotate()
            log.write(2)
            until(lambda: numbers() == [0, 1, 2], "the lines around a rotation")
            log.write(3, 4)
            until(lambda: numbers() == [0, 1, 2, 3, 4], "more lines")
            log.path.write_text("")
            log.write(5)
            until(lambda: numbers()[-1] == 5, "a line after the file was emptied")
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        finally:
            process.kill()
            process.wait()
