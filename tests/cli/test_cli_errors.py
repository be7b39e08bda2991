"""Errors of the command line, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.home import Home, nowhere
from tests.e2e.world import World

ERROR_KEYS = {"code", "message", "hint", "retryable"}


def failed(home: Home, *argv: str, code: int, **options: Any) -> dict[str, Any]:
    error: dict[str, Any] = home.json(*argv, code=code, **options)["error"]
    assert error.keys() - {"candidates", "problems"} == ERROR_KEYS
    plain = home.ix(*argv, **options)
    assert (plain.returncode, plain.stdout) == (code, ""), "all of an error goes to stderr"
    assert "Traceback" not in plain.stderr
    assert error["message"].split(": ")[-1] in plain.stderr
    return error


MISUSED = [
    ["nonsense"],
    ["list", "--limit", "0"],
    ["list", "--since", "yesterday"],
    ["resolve"],
    ["resolve", ""],
    ["index"],
    ["index", "x", "--all"],
    ["logs", "--level", "loud"],
]


@pytest.mark.parametrize("argv", MISUSED, ids=" ".join)
def test_misuse_ends_with_2(home: Home, argv: list[str]) -> None:
    assert home.json(*argv, code=2)["error"]["code"] == "usage"


def test_misuse_is_explained(home: Home) -> None:
    failed(home, "list", "--limit", "0", code=2)
    bare = home.ix()
    assert (bare.returncode, bare.stdout) == (2, "")
    assert "  resolve " in bare.stderr
    asked = home.ix("-h")
    assert (asked.returncode, asked.stderr) == (0, "")


def test_what_is_not_there_ends_with_3(home: Home) -> None:
    for argv in (["show", "zebra"], ["index", "zebra"], ["rename", "zebra", "x"]):
        assert home.json(*argv, code=3)["error"]["code"] == "not_found"
    assert failed(home, "resolve", "zebra", code=3)["code"] == "not_found"


def test_without_a_daemon_reads_work_and_the_rest_ends_with_69(home: Home) -> None:
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
    (tmp_path / "file").touch()
    env = {"INDEXERD_STATE_DIR": str(tmp_path / "file/state")}
    error = failed(home, "run", "--once", code=77, env=env)
    assert error["code"] == "permission"
    assert str(tmp_path / "file") in error["message"]


def test_a_bad_configuration_ends_with_78(home: Home, tmp_path: Path) -> None:
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
