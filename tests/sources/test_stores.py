"""Where pi keeps its sessions, and which meta directory belongs to which of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexerd.settings import Agent, Agents, Settings
from indexerd.sources.stores import Store
from indexerd.sources.stores import stores as every_store


def settings(*roots: str, meta_dir: str = "") -> Settings:
    return Settings(agents=Agents(pi=Agent(roots=list(roots), meta_dir=meta_dir)))


def stores(settings: Settings, env: dict[str, str], home: Path) -> list[Store]:
    return [one for one in every_store(settings, env, home) if one.agent == "pi"]


def pairs(found: list[Store]) -> set[tuple[str, str]]:
    assert {store.agent for store in found} <= {"pi"}
    return {(store.sessions, store.meta) for store in found}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home without anything in it, by its real path."""
    return tmp_path.resolve()


def test_by_default_it_is_the_agents_own_directory(home: Path) -> None:
    """S0.31: `~/.pi/agent`; it may be missing now and appear later."""
    found = stores(Settings(), {}, home)

    assert pairs(found) == {(f"{home}/.pi/agent/sessions", f"{home}/.pi/agent/sessions-meta")}
    assert not (home / ".pi").exists()


@pytest.mark.parametrize("given", ["~/elsewhere", "{home}/elsewhere", "{home}/x/../elsewhere/"])
def test_the_agents_variable_moves_it(home: Path, given: str) -> None:
    """S0.31: PI_CODING_AGENT_DIR, its tilde expanded, instead of the default."""
    env = {"PI_CODING_AGENT_DIR": given.format(home=home)}

    assert pairs(stores(Settings(), env, home)) == {
        (f"{home}/elsewhere/sessions", f"{home}/elsewhere/sessions-meta")
    }


def test_roots_are_read_instead_of_the_default(home: Path) -> None:
    """interfaces.md 1: several, each with its own meta directory; the variables do not count."""
    env = {"PI_CODING_AGENT_DIR": "/env", "PI_CODING_AGENT_SESSION_DIR": "/flat"}
    found = stores(settings("~/one", f"{home}/two"), env, home)

    assert pairs(found) == {
        (f"{home}/one/sessions", f"{home}/one/sessions-meta"),
        (f"{home}/two/sessions", f"{home}/two/sessions-meta"),
    }


def test_a_flat_session_directory_is_added(home: Path) -> None:
    """S3.7: PI_CODING_AGENT_SESSION_DIR; its meta files are with the agent directory's."""
    env = {"PI_CODING_AGENT_SESSION_DIR": "~/flat", "PI_CODING_AGENT_DIR": "~/agent"}

    assert pairs(stores(Settings(), env, home)) == {
        (f"{home}/agent/sessions", f"{home}/agent/sessions-meta"),
        (f"{home}/flat", f"{home}/agent/sessions-meta"),
    }


def test_a_root_is_taken_by_its_real_path(home: Path) -> None:
    """A dotfiles user's symlink, of the agent directory or of `sessions` in it."""
    (home / "real/agent").mkdir(parents=True)
    (home / "link").symlink_to(home / "real/agent")
    (home / "big/sessions").mkdir(parents=True)
    (home / "other").mkdir()
    (home / "other/sessions").symlink_to(home / "big/sessions")

    assert pairs(stores(settings("~/link", "~/other"), {}, home)) == {
        (f"{home}/real/agent/sessions", f"{home}/real/agent/sessions-meta"),
        (f"{home}/big/sessions", f"{home}/other/sessions-meta"),
    }


@pytest.mark.parametrize(
    "roots",
    [
        ["~/a", "~/a"],
        ["~/a", "~/a/"],
        ["~/a", "~/link"],
        ["~/link", "~/a"],
        ["~/a", "~/a/sessions/--home-u--/agent"],
        ["~/a/sessions/deep", "~/a"],
    ],
)
def test_nested_and_repeated_roots_are_one(home: Path, roots: list[str]) -> None:
    """No session file is in two stores, also where one root is a link to the other."""
    (home / "a").mkdir()
    (home / "link").symlink_to(home / "a")

    found = stores(settings(*roots), {}, home)

    assert pairs(found) == {(f"{home}/a/sessions", f"{home}/a/sessions-meta")}


@pytest.mark.parametrize(
    "words",
    [
        "--w--/../../../../outside/s.jsonl",
        "../sessions-old/s.jsonl",
        "--w--/../--secret--/s.jsonl",
        "--w--/./s.jsonl",
        "--w--//s.jsonl",
        "--w--/..",
    ],
)
def test_a_path_that_leads_up_again_is_in_no_store(home: Path, words: str) -> None:
    """A meta file says where its session is, and any hand may have written that."""
    [first] = [one for one in stores(Settings(), {}, home) if one.sessions.endswith("/sessions")]
    path = f"{first.sessions}/{words}"

    assert not first.holds(path)
    assert not first.takes(path)
