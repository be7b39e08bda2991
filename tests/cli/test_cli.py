"""Commands and their errors as in interfaces.md 4, with real processes and one daemon."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.cli.home import SECRET, Home, ids, nowhere
from tests.e2e.world import World, until
from tests.store.rows import fill, row, texts

PRICED = 'providers.openai.prices = { "openai/m" = { input = 1, output = 1 } }'


def test_json_may_be_asked_for_anywhere(home: Home) -> None:
    expected = home.world.call("resolve", ref="tune")
    for argv in ("--json resolve tune", "resolve --json tune", "resolve tune --json"):
        done = home.ix(*argv.split())
        assert (expected, "") == (json.loads(done.stdout), done.stderr)
    literally = home.ix("resolve", "--", "--json")
    assert (literally.returncode, literally.stdout) == (3, "")


def test_status_says_how_the_daemon_is(home: Home) -> None:
    found = home.json("status")
    told = home.world.call("status")
    keys = {"state", "sessions", "queued", "indexing", "lastScanAt", "budget", "watches"}
    assert found.keys() == told.keys() >= keys | {"problems"}
    assert (told["state"], 10) == (found["state"], found["sessions"])

    plain = home.ix("status").stdout
    assert re.search(r"^state +ok$", plain, re.MULTILINE)
    assert re.search(r"^models +scripted/test", plain, re.MULTILINE)


def test_data_goes_to_stdout_and_all_else_to_stderr(home: Home) -> None:
    until(lambda: not home.world.call("status")["textPending"], "all words")
    nothing = home.ix("search", "zebra")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr == 'no session matches "zebra"\n'
    empty = home.ix("list", cwd=home.world.sessions)
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "--all" in empty.stderr


def test_list_shows_the_current_project_newest_first(home: Home) -> None:
    """What is gone only when asked; one row a line, if it is not JSON."""
    shop = [home.cache.id, home.retry.id, home.old.id]
    assert shop == ids(home.json("list", cwd=home.shop)["sessions"])
    assert [home.retry.id] == ids(home.json("list", cwd=home.api)["sessions"])
    assert shop == ids(home.json("list", "--cwd", "../shop", cwd=home.other)["sessions"])
    everything = ids(home.json("list", "--all", cwd=home.api)["sessions"])
    assert (len(everything), everything[:2], everything[-1]) == (10, shop[:2], home.old.id)
    rows = [line.split("\t") for line in home.ix("list", cwd=home.shop).stdout.splitlines()]
    assert rows == [
        [home.cache.id, "1d ago", "pi", "5", "Design the forecast cache", str(home.shop)],
        [home.retry.id, "2d ago", "pi", "1", "Tune the retry loop", str(home.api)],
        [home.old.id, "1y ago", "pi", "1", "From another year", str(home.shop)],
    ]
    with_gone = [*shop[:2], home.gone.id, shop[2]]
    assert with_gone == ids(home.json("list", "--archived", cwd=home.shop)["sessions"])
    plain = home.ix("list", "--archived", cwd=home.shop).stdout.splitlines()
    assert "\t(gone) A short-lived session\t" in plain[2]


def test_a_list_is_as_long_as_asked_for(tmp_path: Path) -> None:
    """interfaces.md 4: `--limit` may exceed the socket's pages of 500, which are joined."""
    world = stored(tmp_path, **{f"s{n:04}": {} for n in range(1100)})
    found = world.run("list", "--all", "--limit", "1050", "--json")
    assert world.stderr.count("the daemon is not running") == 1
    assert ids(found["sessions"]) == [f"s{n:04}" for n in range(1099, 49, -1)]
    assert found["nextCursor"]


def test_a_session_is_shown(home: Home) -> None:
    found = home.ix("resolve", "forecast").stdout
    assert found == f"{home.cache.id}\tDesign the forecast cache\n"
    shown = home.ix("show", "forecast").stdout
    assert shown.startswith("Design the forecast cache\nIt was done.\n\nsession id ")
    assert re.search(r"^prompts +5$", shown, re.MULTILINE)
    assert shown.endswith("\n## Goal\n- All of it.\n")


@pytest.mark.parametrize("command", [["resolve"], ["show"], ["index"], ["show", "--as-sent"]])
def test_an_ambiguous_reference_is_an_error_with_candidates(home: Home, command: list[str]) -> None:
    error = home.json(*command, "deploy", code=3)["error"]
    assert (error["code"], error["retryable"]) == ("ambiguous_reference", False)
    assert {session.id for session in home.twins} == set(ids(error["candidates"]))
    told = home.ix(*command, "deploy")
    assert (told.returncode, told.stdout) == (3, "")
    for session in home.twins:
        row = home.world.row(session.id)
        place, at = row["cwd"].rpartition("/")[2], row["modifiedAt"][:16].replace("T", " ")
        line = f"  {session.id}  Deploy  {place}  {at}\n"
        assert line in told.stderr


def test_a_prefix_is_unique_or_ambiguous(home: Home) -> None:
    """interfaces.md 4: a prefix that fits several sessions lists the nearest project's first."""
    home.json("resolve", "c0ffee", code=3, cwd=home.shop)
    error = home.json("resolve", "c0ffee", cwd=home.api, code=3)["error"]
    assert ids(error["candidates"])[0] == home.retry.id
    assert home.retry.id == home.json("resolve", "c0ffee02", cwd=home.other)["sessionId"]


def test_what_does_not_name_one_session_is_explained(world: World) -> None:
    """More candidates than are listed are counted; an id needs six characters."""
    for _ in range(12):
        world.session(turns=1).entry("session_info", name="Deploy")
    world.session(turns=1, session_id="c4deb000-1111-4000-8000-000000000001")
    world.run("run", "--once")
    world.run("show", "Deploy", code=3)
    assert "12 sessions match this reference; these are 10 of them" in world.stderr
    assert world.stderr.count("  Deploy  ") == 10
    world.run("show", "c4deb", code=3)
    assert "c4deb is too short for an id: type at least 6" in world.stderr


def test_complete_offers_sessions_to_insert(home: Home) -> None:
    """S0.59: newest first, with age and text to insert; the current project's come first."""
    items = home.json("complete", cwd=home.shop)["items"]
    assert [home.cache.id, home.retry.id, home.old.id] == ids(items)
    assert items[0] == {
        "sessionId": home.cache.id,
        "name": "Design the forecast cache",
        "label": "Design the forecast cache",
        "age": "1d",
        "named": True,
        "insert": f"@@{home.cache.id} ",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", items[2]["age"])
    plain = home.ix("complete", "tune", cwd=home.shop).stdout
    assert plain == f"@@{home.retry.id}\tTune the retry loop\t2d\n"
    assert home.ix("complete", "zebra").stdout == ""


def test_a_moment_is_shown_in_the_local_zone(home: Home) -> None:
    """In `show` and in Markdown, with the zone's name; JSON has UTC."""
    stored = home.json("show", home.cache.id)["session"]["modifiedAt"]
    here = datetime.fromisoformat(stored).astimezone(ZoneInfo("Asia/Kolkata"))
    for argv in (["show", home.cache.id], ["export", home.cache.id, "--format", "md"]):
        shown = home.ix(*argv, env={"TZ": "Asia/Kolkata"}).stdout
        assert f"{here:%Y-%m-%d %H:%M} IST" in shown
        assert (stored.endswith("Z"), stored in shown) == (True, False)


def test_search_finds_names_and_messages(home: Home) -> None:
    hits = home.json("search", '"expiry time"')["hits"]
    assert [(home.cache.id, "message")] == [(hit["sessionId"], hit["field"]) for hit in hits]
    title, facts, place = home.ix("search", '"expiry time"').stdout.splitlines()
    assert home.cache.id in title
    assert facts.split() == ["1d", "ago", "pi", str(home.shop)]
    assert (place.startswith("  answer: "), "«expiry" in place) == (True, True)
    titled, _facts, *places = home.ix("search", "retry loop").stdout.splitlines()
    assert titled.startswith("Tune the «retry» «loop»  ")  # instead of a line that repeats it
    assert not [place for place in places if place.startswith("  title:")]
    assert home.retry.id in ids(home.json("search", "re:[Tt]une the .*loop")["hits"])
    for narrowed in (["--cwd", str(home.other)], ["--agent", "codex"], ["--since", "1h"]):
        assert home.json("search", "expiry", *narrowed)["hits"] == []
    here = home.json("search", "expiry", "--cwd", ".", cwd=home.shop)["hits"]
    assert {home.cache.id} == set(ids(here))


def test_a_session_of_several_names_is_found_by_each(world: World) -> None:
    session = world.session(turns=1)
    session.entry("session_info", name="Wombat burrow")
    with world.daemon():
        world.seen(session)
        world.run("rename", session.id, "Wombat tunnel")
        for query, shown in (("tunnel", "Wombat «tunnel»"), ("burrow", "Wombat «burrow»")):

            def is_found(query: str = query, shown: str = shown) -> bool:
                hits = world.call("search", query=query)["hits"]
                return [hit["snippet"] for hit in hits] == [shown]

            until(is_found, shown)


def test_as_sent_is_the_prompt_without_secrets(home: Home) -> None:
    """S2.24: system and user part are redacted, and nothing is sent."""
    before = len(home.world.calls())
    told = home.json("show", "c0ffee01", "--as-sent")
    assert (told["model"], told["leavesTheMachine"]) == ("scripted/test", True)
    assert SECRET not in told["user"]
    assert "[redacted:" in told["user"]
    plain = home.ix("show", "c0ffee01", "--as-sent").stdout
    both = f"{told['system']}\n\n{told['user']}\n"
    said, shown = (re.sub(r"\[(begin|end) \w+\]", "", text) for text in (both, plain))
    assert said == shown  # apart from the nonces
    assert before == len(home.world.calls())


def test_index_says_what_it_did(home: Home) -> None:
    assert home.ix("index", home.retry.id).stdout.startswith("nothing to do: too few new prompts")
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
    """S0.3, S0.30: the name in `command_name` means `index --force`; others are usage errors."""
    assert home.json("index-session", home.evil.id, "--wait")["status"] == "indexed"
    env = {"INDEXERD_COMMAND_NAME": '"name-it"'}
    assert home.ix("name-it", home.evil.id, env=env).stdout == "queued\n"
    assert home.json("index-session", home.evil.id, env=env, code=2)["error"]["code"] == "usage"


def test_a_dry_run_counts_and_sends_nothing(home: Home) -> None:
    def calls() -> int:
        return sum(call["rule"] in (None, 4) for call in home.world.calls())

    before = calls()
    found = home.json("index", "--all", "--dry-run")
    assert (found["sessions"], found["model"]) == (1, "scripted/test")
    assert found["inputTokens"] > 500
    assert found["costUsd"] > 0
    plain = home.ix("index", "--all", "--dry-run").stdout
    assert plain.startswith("1 session, about ")
    assert plain.endswith("nothing was sent\n")
    assert (before, None) == (calls(), home.world.meta(home.due.id))
    until(lambda: not home.world.call("status")["textPending"], "nothing left to commit", 5)

    assert home.ix("index", "--all").stdout == "1 session queued\n"
    home.world.wait_meta(home.due.id)
    assert home.json("index", "--all", "--dry-run")["sessions"] == 0
    assert home.ix("index", "--all").stdout == "nothing to index\n"


def test_a_users_title_wins_until_it_is_removed(home: Home) -> None:
    named = home.json("rename", home.pet.id, "  Polly's\x1b[31m diet\n")
    assert (named["name"], named["nameSource"]) == ("Polly's diet", "user")
    assert home.json("resolve", "polly's diet")["sessionId"] == home.pet.id
    assert home.ix("rename", home.pet.id, "Diet").stdout == f"{home.pet.id}\tDiet\n"
    sidecar = json.loads((home.world.metas / f"{home.pet.id}.user.json").read_text())
    assert sidecar["title"] == "Diet"
    assert home.json("rename", home.pet.id, "")["nameSource"] == "first-message"


USUAL = {"state": "idle", "userMessageCount": 7, "subagent": False, "parentSessionId": None}


def stored(tmp_path: Path, **sessions: dict[str, object]) -> World:
    world = World(tmp_path)
    world.state.mkdir(parents=True)
    index = texts(world.state)
    rows = enumerate(sessions.items())
    fill(index, *(row(name, minute, **USUAL | more) for minute, (name, more) in rows))
    index.close()
    index.store.close()
    return world


def test_a_family_is_drawn_as_a_tree(tmp_path: Path) -> None:
    """S1.16: each session is below its parent; without a daemon, stderr says so."""
    world = stored(
        tmp_path,
        a={},
        d={"parentSessionId": "b", "archived": True, "gone": True},
        b={"parentSessionId": "a"},
        c={"parentSessionId": "b", "subagent": True, "name": "\x1b[2JName\tof c"},
        e={"parentSessionId": "a", "archived": True},
    )
    lines = [line.split("\t") for line in world.run("family", "b").splitlines()]
    assert [(line[0], line[1], line[3], line[4]) for line in lines[:3]] == [
        ("a", "pi", "7", ""),
        ("b", "pi", "7", "*"),
        ("d", "pi", "7", ""),
    ]
    assert [line[5] for line in lines] == [
        "Name of a",
        "  fork: Name of b",
        "    fork: Name of d (gone)",
        "    sub-agent: Name of c",
        "  fork: Name of e (archived)",
    ]
    assert world.stderr == "indexerd: the daemon is not running; answering from stored data\n"


def test_a_family_that_is_a_cycle_starts_at_its_oldest_session(tmp_path: Path) -> None:
    """S1.7: it ends, and each member gets the same answer."""
    ring = {"e": "c", "c": "b", "b": "a", "a": "c"}
    world = stored(tmp_path, **{key: {"parentSessionId": parent} for key, parent in ring.items()})
    for session_id in ring:
        members = world.run("family", session_id, "--json")["members"]
        assert [(one["sessionId"], one["depth"], one["relation"]) for one in members] == [
            ("c", 0, "root"),
            ("e", 1, "fork"),
            ("a", 1, "fork"),
            ("b", 2, "fork"),
        ]


def test_omitted_rows_are_reported(tmp_path: Path) -> None:
    chain = {f"s{n:03}": {"parentSessionId": f"s{n - 1:03}"} for n in range(510)}
    world = stored(tmp_path, **chain)
    assert world.run("family", "s509").count("\n") == 500
    assert "parent of the first session is unknown\n" in world.stderr
    assert "10 more" in world.stderr


ERROR_KEYS = {"code", "message", "hint", "retryable"}


def failed(home: Home, *argv: str, code: int, **options: Any) -> dict[str, Any]:
    error: dict[str, Any] = home.json(*argv, code=code, **options)["error"]
    assert error.keys() - {"candidates", "problems"} == ERROR_KEYS
    plain = home.ix(*argv, **options)
    assert (plain.returncode, plain.stdout) == (code, ""), "errors are written to stderr only"
    assert "Traceback" not in plain.stderr
    assert error["message"].split(": ")[-1] in plain.stderr
    return error


MISUSED = [
    ["nonsense"],
    ["list", "--limit", "0"],
    ["list", "--since", "soon"],
    ["list", "--agent", "nobody"],
    ["export", "c0ffee", "-o", "page.pdf"],
    ["resolve"],
    ["resolve", ""],
    ["index"],
    ["index", "x", "--all"],
    ["index", "x", "--dry-run"],
    ["logs", "--level", "loud"],
]


@pytest.mark.parametrize("argv", MISUSED, ids=" ".join)
def test_misuse_exits_with_2(home: Home, argv: list[str]) -> None:
    assert home.json(*argv, code=2)["error"]["code"] == "usage"


def test_errors_are_explained(home: Home) -> None:
    """Misuse exits with 2, an unknown reference with 3; without a command, help is shown."""
    failed(home, "list", "--limit", "0", code=2)
    for argv in (["show"], ["resolve"], ["index"], ["rename", "zebra"]):
        assert failed(home, *argv[:1], "zebra", *argv[1:], code=3)["code"] == "not_found"
    bare, asked = home.ix(), home.ix("-h")
    assert (bare.returncode, bare.stdout, asked.returncode, asked.stderr) == (2, "", 0, "")
    assert "  resolve " in bare.stderr


def test_without_a_daemon_reads_work_and_others_exit_with_69(home: Home) -> None:
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
        assert (alone.returncode, "the daemon is not running" in alone.stderr) == (0, True)
    assert failed(home, "status", code=69, env=env)["code"] == "daemon_down"
    for argv in (["index", "x"], ["rename", "x", "y"]):
        assert home.json(*argv, code=69, env=env)["error"]["retryable"] is True


def test_an_empty_home(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.run("list", "--all", "--json") == {"sessions": []}
    assert "nothing is stored yet" in world.stderr
    assert world.run("resolve", "zebra", "--json", code=3)["error"]["code"] == "not_found"
    assert world.run("logs") == ""
    assert not world.state.exists()


def test_a_second_daemon_ends_with_75(home: Home) -> None:
    """S0.41: the error names the running daemon, and how to stop it; it goes on."""
    pid = home.world.call("hello")["pid"]
    error = failed(home, "run", code=75)
    assert error["code"] == "already_running"
    assert f"already running: indexerd (pid {pid}, since" in error["message"]
    assert error["hint"] == f"`indexerd status` shows it; `kill {pid}` stops it"
    assert pid == home.world.call("hello")["pid"]


def test_an_unwritable_directory_exits_with_77(home: Home, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {"INDEXERD_STATE_DIR": str(tmp_path / "file/state")}
    error = failed(home, "run", "--once", code=77, env=env)
    assert error["code"] == "permission"
    assert str(tmp_path / "file") in error["message"]


def test_a_bad_configuration_ends_with_78(tmp_path: Path) -> None:
    """S0.25, S0.29: each problem is told once with its key; a model key has a hint."""
    world = World(tmp_path)
    del world.env["INDEXERD_MODEL_KEYS"]
    world.configure(
        'commandName = 5\nstatus_key = ""\nmin_new_user_messages = 0\nnonsense = 1\n'
        'notificationAutoClearMs = "3"\nmodelKeys = ["claude-haiku-4-5"]\n'
        '[watch]\nmode = "psychic"\n'
    )
    path = str(world.config)
    keys = {"command_name", "status_key", "min_new_user_messages", "notification_auto_clear_ms"}
    keys |= {"nonsense", "model_keys.0", "watch.mode"}
    assert world.run("config", "check", code=78) == ""
    assert [world.stderr.count(f"{path}: {key}: ") for key in keys] == [1] * len(keys)
    assert "must be 'auto', 'inotify' or 'poll'" in world.stderr
    for argv in (["config", "check"], ["--config", path, "resolve", "tune"]):
        error = world.run(*argv, "--json", code=78)["error"]
        problems = {problem["key"]: problem for problem in error["problems"]}
        assert (error["code"], problems.keys()) == ("config_invalid", keys)
        assert {problem["file"] for problem in problems.values()} == {path}
        assert problems["nonsense"]["message"] == "no such key"
        assert "provider/model" in problems["model_keys.0"]["hint"]
    for command in (["config", "check"], ["list"]):
        missing = world.run("--config", f"{tmp_path}/none", *command, "--json", code=78)
        assert "no such file" in missing["error"]["message"]
    for text, problem in (
        ("a = [", "Invalid"),
        ('digest.model = "no/a"', "digest.model: not a"),
        ("agents.pi = 5", "agents.pi: must be a table\n"),
        ("index.backfill_days = 1.5", "index.backfill_days: must be a whole number\n"),
        ("archive.max_gb = 1e9", "archive.max_gb: must be at most 100000\n"),
        ('web.listen = "127.0.0.1:99999"', "web.listen: must have a port of at most 65535\n"),
        (PRICED, "providers.openai.prices.openai/m: must be named as its server does"),
    ):
        world.configure(text)
        world.run("config", "check", code=78)
        assert f"{path}: {problem}" in world.stderr
